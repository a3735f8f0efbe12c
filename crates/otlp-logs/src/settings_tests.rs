use super::*;

/// A connection without settings.
pub(crate) fn plain(endpoint: &str) -> Connection {
    read((Some(endpoint), None), &[])
        .expect("right")
        .expect("an endpoint")
}

/// The endpoint and the protocol that the caller gives.
type Call<'c> = (Option<&'c str>, Option<&'c str>);

fn read(
    (endpoint, protocol): Call<'_>,
    variables: &[(&str, &str)],
) -> Result<Option<Connection>, String> {
    let endpoint = Given::new("--endpoint", endpoint);
    let protocol = Given::new("--protocol", protocol);
    Connection::from_env(
        Signal::LOGS,
        endpoint,
        protocol,
        "test",
        |path| std::fs::read(path),
        &env(variables),
    )
}

/// Variables by their names, or by what follows `OTEL_EXPORTER_OTLP_` in them.
fn env(variables: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> {
    |name| {
        let short = name.strip_prefix("OTEL_EXPORTER_OTLP_").unwrap_or(name);
        let mut pairs = variables.iter();
        let (_, value) = pairs.find(|(known, _)| [short, name].contains(known))?;
        Some((*value).to_owned())
    }
}

const GIVEN: Call<'_> = (Some("https://collector:4318"), None);

fn connection(variables: &[(&str, &str)]) -> Connection {
    read(GIVEN, variables).expect("right").expect("an endpoint")
}

/// The endpoint and the protocol of the caller, and variables; `_` in a value stands for a space.
struct Case<'a>(Call<'a>, Vec<(&'a str, String)>);

impl<'a> Case<'a> {
    fn parse(text: &'a str) -> Self {
        let mut words = text.split(' ');
        let mut given = || words.next().filter(|word| *word != "-");
        let call = (given(), given());
        let pairs = words.map(|word| word.split_once('=').expect("name=value"));
        let pairs = pairs.map(|(name, value)| (name, value.replace('_', " ")));
        Self(call, pairs.collect())
    }

    fn read(&self) -> Result<Option<Connection>, String> {
        let ((endpoint, protocol), pairs) = (self.0, self.1.iter());
        let endpoint = endpoint.map(|endpoint| endpoint.replace('_', " "));
        let pairs: Vec<_> = pairs.map(|(name, value)| (*name, value.as_str())).collect();
        read((endpoint.as_deref(), protocol), &pairs)
    }
}

/// Calls and variables, and the connection.
const PLACES: &str = "
- grpc ENDPOINT= LOGS_ENDPOINT=_ => nothing
# The path is appended to the general endpoint.
- - ENDPOINT=http://c:4318 => http/protobuf http://c:4318/v1/logs
- - ENDPOINT=https://c/otlp/ => http/protobuf https://c/otlp/v1/logs
- - ENDPOINT=https://c/o?x=1 => http/protobuf https://c/o/v1/logs?x=1
- - LOGS_ENDPOINT=http://c:4318 => http/protobuf http://c:4318/
- - LOGS_ENDPOINT=http://c/my/logs => http/protobuf http://c/my/logs
# The flag wins.
http://f:4318 - ENDPOINT=http://general LOGS_ENDPOINT=http://logs => http/protobuf http://f:4318/v1/logs
http://f:4318/x - ENDPOINT=http://general LOGS_ENDPOINT=http://logs => http/protobuf http://f:4318/x
- - ENDPOINT=http://general LOGS_ENDPOINT=http://logs => http/protobuf http://logs/
_ - ENDPOINT=http://general => http/protobuf http://general/v1/logs
# The protocol is the flag's, the signal's, the general one, or the port's.
http://c:1 http/protobuf PROTOCOL=http/protobuf LOGS_PROTOCOL=grpc => http/protobuf http://c:1/v1/logs
http://c:1 - PROTOCOL=http/protobuf LOGS_PROTOCOL=grpc => grpc http://c:1/
http://c:4317 - PROTOCOL=http/protobuf => http/protobuf http://c:4317/v1/logs
http://c:4317/x - => grpc http://c:4317/
# Without a scheme, gRPC means TLS.
c:4317 - => grpc https://c:4317/
c:4317 - INSECURE=true => grpc http://c:4317/
c:1 grpc INSECURE=true LOGS_INSECURE=FALSE => grpc https://c:1/
https://c:4317 - INSECURE=true => grpc https://c:4317/
[::1]:4317 - => grpc https://[::1]:4317/
# No exporter of log records, unless a flag names one.
- - ENDPOINT=http://c:4318 OTEL_LOGS_EXPORTER=none => nothing
- - ENDPOINT=ftp://c OTEL_LOGS_EXPORTER=None => nothing
c:4317 - OTEL_LOGS_EXPORTER=none => grpc https://c:4317/
- - ENDPOINT=http://c OTEL_LOGS_EXPORTER=otlp => http/protobuf http://c/v1/logs
";

#[test]
fn endpoint_and_protocol_follow_the_specification() {
    let lines = PLACES.trim().lines().filter(|line| !line.starts_with('#'));
    for line in lines {
        let (case, expected) = line.split_once(" => ").expect(line);
        let shown = match Case::parse(case).read().expect(line) {
            Some(found) => format!("{} {}", found.protocol.as_str(), found.endpoint),
            None => "nothing".to_owned(),
        };
        assert_eq!(shown, expected, "{line}");
    }
}

#[test]
fn spans_have_their_own_variables_and_path() {
    let env = |name: &str| match name {
        "OTEL_EXPORTER_OTLP_ENDPOINT" => Some("https://c:4318".to_owned()),
        "OTEL_EXPORTER_OTLP_CERTIFICATE" => Some("/general.pem".to_owned()),
        "OTEL_EXPORTER_OTLP_LOGS_CERTIFICATE" => Some("/logs.pem".to_owned()),
        "OTEL_EXPORTER_OTLP_TRACES_HEADERS" => Some("a=b".to_owned()),
        _ => None,
    };
    let connection = Connection::from_env(
        Signal::TRACES,
        None,
        None,
        "test",
        |path| std::fs::read(path),
        &env,
    );
    let connection = connection.expect("right").expect("an endpoint");
    assert_eq!(connection.endpoint.as_str(), "https://c:4318/v1/traces");
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
    ] {
        let endpoint = Some("c:4317").filter(|_| name != "ENDPOINT");
        let shown = |variables: &[_]| format!("{:?}", read((endpoint, None), variables));
        let own = &*format!("LOGS_{name}");
        let (unset, given) = (shown(&[]), shown(&[(name, value)]));
        assert_ne!(given, unset, "{name}");
        assert_eq!(shown(&[(name, ""), (own, " ")]), unset, "{name}");
        assert_eq!(shown(&[(name, value), (own, "")]), given, "{name}");
    }
}

/// Calls and variables, and the beginning of the error.
const WRONG: &str = "
c:1 grpc LOGS_TIMEOUT=10s => OTEL_EXPORTER_OTLP_LOGS_TIMEOUT: '10s' is wrong; give milliseconds
c:1 grpc COMPRESSION=zstd => OTEL_EXPORTER_OTLP_COMPRESSION: 'zstd' is wrong; give gzip or none
c:1 grpc INSECURE=yes => OTEL_EXPORTER_OTLP_INSECURE: 'yes' is wrong; give true or false
c:1 grpc CLIENT_CERTIFICATE=/c.pem => OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE: '/c.pem' is wrong; give both
c:1 grpc CLIENT_KEY=/k.pem => OTEL_EXPORTER_OTLP_CLIENT_KEY: '/k.pem' is wrong; give both
- - PROTOCOL=thrift ENDPOINT=http://c => OTEL_EXPORTER_OTLP_PROTOCOL: 'thrift' is wrong; give grpc or http/protobuf
http://c:1 http/json => --protocol: 'http/json' is wrong; give grpc or http/protobuf
localhost:4318 - => --endpoint: 'localhost:4318' is wrong; http/protobuf needs a URL: give http://localhost:4318 or https://localhost:4318
unix:///x - => --endpoint: 'unix:///x' is wrong; give a URL
http://c:99999 - => --endpoint: 'http://c:99999' is wrong; give a URL
c:4318/?token=x#y - => --endpoint: 'c:4318/' is wrong; http/protobuf needs a URL
http://a_b?token=x - => --endpoint: 'http://a b' is wrong; give a URL
";

#[test]
fn wrong_values_are_named_with_what_would_be_right() {
    for line in WRONG.trim().lines() {
        let (case, expected) = line.split_once(" => ").expect(line);
        let error = Case::parse(case).read().expect_err(line);
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn without_tls_certificates_have_no_effect() {
    let variables = [("CERTIFICATE", "/nowhere.pem"), ("CLIENT_KEY", "/key.pem")];
    let found = read((Some("http://c"), None), &variables).expect("right");
    let found = found.expect("an endpoint");
    assert!(found.certificate.is_none() && found.client.is_none());
    read((Some("https://c"), None), &variables).expect_err("one of two");
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
        ("ENDPOINT", "c:4318#secret"),
        ("ENDPOINT", "http://c:99999#secret"),
        ("LOGS_ENDPOINT", "c:4318/?token=secret"),
    ] {
        let flag = GIVEN.0.filter(|_| !variable.0.ends_with("ENDPOINT"));
        let error = read((flag, None), &[variable]).expect_err("wrong");
        assert!(!error.contains("secret"), "{error}");
    }
}

#[test]
fn the_environment_wins_over_the_own_resource() {
    let own = [("service.name", "exporter"), ("service.version", "1")];
    let resource = |variables| {
        let resource = resource(&own, &env(variables));
        let pair = |(key, value): (String, String)| format!("{key}={value}");
        resource.into_iter().map(pair).collect::<Vec<_>>()
    };
    let alone = ["service.name=exporter", "service.version=1"];
    assert_eq!(resource(&[]), alone);
    let empty = [("OTEL_RESOURCE_ATTRIBUTES", ""), ("OTEL_SERVICE_NAME", " ")];
    assert_eq!(resource(&empty), alone);
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
            "service.name=audit",
            "service.version=1",
            "te=am=a b"
        ]
    );
    let wrong = [("OTEL_RESOURCE_ATTRIBUTES", "a=1,b")];
    assert_eq!(resource(&wrong), alone);
    let said = wrong_attributes(&env(&wrong)).expect("wrong");
    let expected = "OTEL_RESOURCE_ATTRIBUTES: pair 2 is wrong";
    assert!(said.starts_with(expected), "{said}");
}

#[test]
fn loopback_is_an_address_or_localhost() {
    let is_loopback = |host: &str| plain(&format!("http://{host}:4318")).is_loopback();
    for host in ["127.0.0.1", "127.9.9.9", "[::1]", "localhost"] {
        assert!(is_loopback(host), "{host}");
    }
    for host in ["127.evil.example", "x.localhost", "10.0.0.1"] {
        assert!(!is_loopback(host), "{host}");
    }
}

#[test]
fn a_file_that_is_not_pem_is_named() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    for (path, expected) in [
        (file.path(), "' is not PEM; give a PEM file"),
        ("/nowhere.pem".as_ref(), "cannot read '/nowhere.pem'"),
    ] {
        let given = Given::new("OTEL_EXPORTER_OTLP_CERTIFICATE", path.to_str());
        let error = given
            .expect("a path")
            .read_pem(|path| std::fs::read(path))
            .expect_err("not PEM");
        let name = "OTEL_EXPORTER_OTLP_CERTIFICATE: ";
        assert!(
            error.starts_with(name) && error.contains(expected),
            "{error}"
        );
    }
}
