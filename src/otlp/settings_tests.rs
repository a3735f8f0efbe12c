use super::*;
use crate::util::sanitize;

fn flags(endpoint: Option<&str>, protocol: Option<&str>) -> Flags {
    Flags {
        endpoint: endpoint.map(str::to_owned),
        protocol: protocol.map(str::to_owned),
        batch_size: 512,
        user_names: true,
        redact: Vec::new(),
    }
}

fn read(flags: &Flags, variables: &[(&str, &str)]) -> Result<Option<Settings>, String> {
    Settings::from_env(flags, &|name| {
        let short = name.strip_prefix("OTEL_EXPORTER_OTLP_").unwrap_or(name);
        let mut pairs = variables.iter();
        let (_, value) = pairs.find(|(known, _)| *known == short)?;
        Some((*value).to_owned())
    })
}

const FLAG: Option<&str> = Some("http://collector:4318");

fn connection(variables: &[(&str, &str)]) -> Connection {
    let settings = read(&flags(FLAG, None), variables).expect("right");
    match settings.expect("an endpoint").target {
        Target::Collector(connection) => *connection,
        Target::Stdout => panic!("a collector"),
    }
}

#[test]
fn endpoint_and_protocol_follow_the_specification() {
    let general_and_logs = [
        ("ENDPOINT", "http://general"),
        ("LOGS_ENDPOINT", "http://logs"),
    ];
    let protocols = [("PROTOCOL", "http/protobuf"), ("LOGS_PROTOCOL", "grpc")];
    let insecure = [("INSECURE", "true"), ("LOGS_INSECURE", "FALSE")];
    type Row<'a> = (
        Option<&'a str>,
        Option<&'a str>,
        &'a [(&'a str, &'a str)],
        &'a str,
    );
    let rows: &[Row<'_>] = &[
        (
            None,
            Some("grpc"),
            &[("ENDPOINT", ""), ("LOGS_ENDPOINT", " ")],
            "nothing",
        ),
        // The path is appended to the general endpoint.
        (
            None,
            None,
            &[("ENDPOINT", "http://c:4318")],
            "http/protobuf http://c:4318/v1/logs",
        ),
        (
            None,
            None,
            &[("ENDPOINT", "https://c/otlp/")],
            "http/protobuf https://c/otlp/v1/logs",
        ),
        (
            None,
            None,
            &[("ENDPOINT", "https://c/o?x=1")],
            "http/protobuf https://c/o/v1/logs?x=1",
        ),
        (
            None,
            None,
            &[("LOGS_ENDPOINT", "http://c:4318")],
            "http/protobuf http://c:4318/",
        ),
        (
            None,
            None,
            &[("LOGS_ENDPOINT", "http://c/my/logs")],
            "http/protobuf http://c/my/logs",
        ),
        // The flag wins.
        (
            Some("http://f:4318"),
            None,
            &general_and_logs,
            "http/protobuf http://f:4318/v1/logs",
        ),
        (
            Some("http://f:4318/x"),
            None,
            &general_and_logs,
            "http/protobuf http://f:4318/x",
        ),
        (None, None, &general_and_logs, "http/protobuf http://logs/"),
        (
            Some(" "),
            None,
            &general_and_logs[..1],
            "http/protobuf http://general/v1/logs",
        ),
        // The protocol is the flag's, the signal's, the general one, or the port's.
        (
            Some("http://c:1"),
            Some("http/protobuf"),
            &protocols,
            "http/protobuf http://c:1/v1/logs",
        ),
        (Some("http://c:1"), None, &protocols, "grpc http://c:1/"),
        (
            Some("http://c:4317"),
            None,
            &protocols[..1],
            "http/protobuf http://c:4317/v1/logs",
        ),
        (Some("http://c:4317/x"), None, &[], "grpc http://c:4317/"),
        // Without a scheme, gRPC means TLS.
        (Some("c:4317"), None, &[], "grpc https://c:4317/"),
        (Some("c:4317"), None, &insecure[..1], "grpc http://c:4317/"),
        (Some("c:1"), Some("grpc"), &insecure, "grpc https://c:1/"),
        (
            Some("https://c:4317"),
            None,
            &insecure[..1],
            "grpc https://c:4317/",
        ),
        (Some("[::1]:4317"), None, &[], "grpc https://[::1]:4317/"),
        // No exporter of log records.
        (
            None,
            None,
            &[
                ("ENDPOINT", "http://c:4318"),
                ("OTEL_LOGS_EXPORTER", "none"),
            ],
            "nothing",
        ),
        // But a flag takes precedence.
        (
            Some("c:4317"),
            None,
            &[("OTEL_LOGS_EXPORTER", "none")],
            "grpc https://c:4317/",
        ),
        (
            None,
            None,
            &[("ENDPOINT", "http://c"), ("OTEL_LOGS_EXPORTER", "otlp")],
            "http/protobuf http://c/v1/logs",
        ),
    ];
    for (flag, protocol, variables, expected) in rows {
        let settings = read(&flags(*flag, *protocol), variables).expect("right");
        let shown = settings.map_or("nothing".to_owned(), |settings| match settings.target {
            Target::Collector(connection) => {
                format!("{} {}", connection.protocol.as_str(), connection.endpoint)
            }
            Target::Stdout => "standard output".to_owned(),
        });
        assert_eq!(shown, *expected, "{flag:?} {protocol:?} {variables:?}");
    }
}

#[test]
fn spans_have_their_own_variables_and_path() {
    let env = |name: &str| match name {
        "OTEL_EXPORTER_OTLP_ENDPOINT" => Some("http://c:4318".to_owned()),
        "OTEL_EXPORTER_OTLP_CERTIFICATE" => Some("/general.pem".to_owned()),
        "OTEL_EXPORTER_OTLP_LOGS_CERTIFICATE" => Some("/logs.pem".to_owned()),
        "OTEL_EXPORTER_OTLP_TRACES_HEADERS" => Some("a=b".to_owned()),
        _ => None,
    };
    let connection = Connection::from_env(TRACES, None, None, &env);
    let connection = connection.expect("right").expect("an endpoint");
    assert_eq!(connection.endpoint.as_str(), "http://c:4318/v1/traces");
    assert_eq!(connection.certificate.expect("given").value, "/general.pem");
    assert_eq!(connection.headers["a"], "b");
}

#[test]
fn the_variables_of_log_records_win_and_empty_ones_are_unset() {
    let defaults = connection(&[]);
    assert_eq!(
        (defaults.timeout, defaults.gzip),
        (Duration::from_secs(10), false)
    );
    assert!(defaults.headers.is_empty() && defaults.certificate.is_none());
    assert!(defaults.client.is_none());
    let connection = connection(&[
        ("TIMEOUT", "1000"),
        ("LOGS_TIMEOUT", "2500"),
        ("COMPRESSION", "gzip"),
        ("LOGS_COMPRESSION", " "),
        ("HEADERS", "a=1,authorization=Bearer%20secret"),
        ("CERTIFICATE", "/ca.pem"),
        ("CLIENT_CERTIFICATE", "/client.pem"),
        ("LOGS_CLIENT_KEY", "/key.pem"),
    ]);
    assert_eq!(
        (connection.timeout, connection.gzip),
        (Duration::from_millis(2500), true)
    );
    assert_eq!(connection.headers["authorization"], "Bearer secret");
    assert!(connection.secrets().contains(&"secret"));
    let certificate = connection.certificate.expect("given");
    assert_eq!(certificate.name, "OTEL_EXPORTER_OTLP_CERTIFICATE");
    let key = connection.client.expect("given").1;
    assert_eq!(key.name, "OTEL_EXPORTER_OTLP_LOGS_CLIENT_KEY");
}

#[test]
fn each_empty_variable_is_unset_and_hides_no_other() {
    for (name, value) in [
        ("ENDPOINT", "http://c:1"),
        ("PROTOCOL", "http/protobuf"),
        ("INSECURE", "true"),
        ("HEADERS", "a=b"),
        ("TIMEOUT", "5"),
        ("COMPRESSION", "gzip"),
        ("CERTIFICATE", "/ca.pem"),
        ("CLIENT_CERTIFICATE", "/client.pem"),
        ("CLIENT_KEY", "/key.pem"),
        ("OTEL_RESOURCE_ATTRIBUTES", "a=b"),
        ("OTEL_SERVICE_NAME", "audit"),
    ] {
        let endpoint = Some("c:4317").filter(|_| name != "ENDPOINT");
        let shown = |variables: &[_]| format!("{:?}", read(&flags(endpoint, None), variables));
        let own = &*format!("LOGS_{name}");
        let (unset, given) = (shown(&[]), shown(&[(name, value)]));
        assert_ne!(given, unset, "{name}");
        assert_eq!(shown(&[(name, ""), (own, " ")]), unset, "{name}");
        assert_eq!(shown(&[(name, value), (own, "")]), given, "{name}");
    }
}

#[test]
fn wrong_values_are_named_with_what_would_be_right() {
    for (flags, variables, expected) in [
        (
            flags(FLAG, None),
            ("LOGS_TIMEOUT", "10s"),
            "OTEL_EXPORTER_OTLP_LOGS_TIMEOUT: '10s' is wrong; give milliseconds",
        ),
        (
            flags(FLAG, None),
            ("COMPRESSION", "zstd"),
            "OTEL_EXPORTER_OTLP_COMPRESSION: 'zstd' is wrong; give gzip or none",
        ),
        (
            flags(FLAG, None),
            ("INSECURE", "yes"),
            "OTEL_EXPORTER_OTLP_INSECURE: 'yes' is wrong; give true or false",
        ),
        (
            flags(FLAG, None),
            ("CLIENT_CERTIFICATE", "/c.pem"),
            "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE: '/c.pem' is wrong; give both OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and",
        ),
        (
            flags(FLAG, None),
            ("CLIENT_KEY", "/k.pem"),
            "OTEL_EXPORTER_OTLP_CLIENT_KEY: '/k.pem' is wrong; give both OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and",
        ),
        (
            flags(FLAG, None),
            ("OTEL_RESOURCE_ATTRIBUTES", "a=1,b"),
            "OTEL_RESOURCE_ATTRIBUTES: pair 2 is wrong",
        ),
        (
            flags(None, None),
            ("PROTOCOL", "thrift"),
            "OTEL_EXPORTER_OTLP_PROTOCOL: 'thrift' is wrong; give grpc or http/protobuf",
        ),
        (
            flags(FLAG, Some("http/json")),
            ("", ""),
            "--otlp.protocol: 'http/json' is wrong; give grpc or http/protobuf",
        ),
        (
            flags(Some("localhost:4318"), None),
            ("", ""),
            "--otlp.endpoint: 'localhost:4318' is wrong; http/protobuf needs a URL: give http://localhost:4318 or https://localhost:4318",
        ),
        (
            flags(Some("unix:///x"), None),
            ("", ""),
            "--otlp.endpoint: 'unix:///x' is wrong; give a URL",
        ),
        (
            flags(Some("http://c:99999"), None),
            ("", ""),
            "--otlp.endpoint: 'http://c:99999' is wrong; give a URL",
        ),
        (
            flags(Some("http://a b?token=x"), None),
            ("", ""),
            "--otlp.endpoint: 'http://a b' is wrong; give a URL",
        ),
    ] {
        let error = read(&flags, &[variables]).expect_err(expected);
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn secrets_are_never_shown() {
    let shown = format!("{:?}", connection(&[("HEADERS", "authorization=secret")]));
    assert!(
        shown.contains("authorization") && !shown.contains("secret"),
        "{shown}"
    );
    for variable in [
        ("HEADERS", "authorization=secret%0a"),
        ("HEADERS", "authorization=secret%ff"),
        ("HEADERS", "se cret=secret"),
        ("HEADERS", "secret"),
        ("ENDPOINT", "http://me:secret@c"),
        ("ENDPOINT", "http://me:secret@c:99999"),
        ("ENDPOINT", "http://c:99999?secret"),
        ("ENDPOINT", "c:4318?token=secret"),
        ("LOGS_ENDPOINT", "c:4318/?token=secret"),
    ] {
        let flag = FLAG.filter(|_| !variable.0.ends_with("ENDPOINT"));
        let error = read(&flags(flag, None), &[variable]).expect_err("wrong");
        assert!(!error.contains("secret"), "{error}");
    }
}

#[test]
fn a_token_in_the_address_is_hidden_however_the_collector_repeats_it() {
    let flags = flags(Some("https://c/v1/logs?token=t0p%2Bs3cret"), None);
    let settings = read(&flags, &[]).expect("right").expect("an endpoint");
    let Target::Collector(connection) = settings.target else {
        panic!("a collector");
    };
    for said in ["no token t0p+s3cret", "POST /v1/logs?token=t0p%2Bs3cret"] {
        let shown = sanitize(said, &connection.secrets());
        assert!(!shown.contains("s3cret"), "{shown}");
    }
}

#[test]
fn the_environment_wins_over_the_exporters_own_resource() {
    let resource = |variables| {
        let settings = read(&flags(FLAG, None), variables).expect("right");
        let resource = settings.expect("an endpoint").resource("i");
        let pair = |(key, value): (String, String)| format!("{key}={value}");
        resource.into_iter().map(pair).collect::<Vec<_>>()
    };
    let version = format!("service.version={VERSION}");
    assert_eq!(
        resource(&[]),
        [
            "service.instance.id=i",
            "service.name=orgdata-exporter",
            &version
        ]
    );
    assert_eq!(
        resource(&[
            (
                "OTEL_RESOURCE_ATTRIBUTES",
                "service.name=x, te%3Dam = a%20b,c=1,c=d=e,,"
            ),
            ("OTEL_SERVICE_NAME", "audit"),
        ]),
        [
            "c=d=e",
            "service.instance.id=i",
            "service.name=audit",
            &version,
            "te=am=a b"
        ]
    );
}

#[test]
fn a_file_that_is_not_pem_is_named() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    for (path, expected) in [
        (file.path(), "' is not PEM; give a PEM file"),
        ("/nowhere.pem".as_ref(), "cannot read '/nowhere.pem'"),
    ] {
        let given = Given::new("OTEL_EXPORTER_OTLP_CERTIFICATE", path.to_str());
        let error = given.expect("a path").read_pem().expect_err("not PEM");
        let name = "OTEL_EXPORTER_OTLP_CERTIFICATE: ";
        assert!(
            error.starts_with(name) && error.contains(expected),
            "{error}"
        );
    }
}
