use super::*;

/// A connection without settings.
pub(crate) fn plain(endpoint: &str) -> Connection {
    let call = (Some(endpoint), None);
    let read = read(Signal::LOGS, call, &[]);
    read.expect("right").expect("an endpoint")
}

/// The endpoint and the protocol that the caller gives.
type Call<'c> = (Option<&'c str>, Option<&'c str>);

/// Variables by their names, or by what follows `OTEL_EXPORTER_OTLP_` in them.
type Variables<'v> = [(&'v str, &'v str)];

fn read(
    signal: Signal,
    (endpoint, protocol): Call<'_>,
    variables: &Variables<'_>,
) -> Result<Option<Connection>, String> {
    let endpoint = Given::new("--endpoint", endpoint);
    let protocol = Given::new("--protocol", protocol);
    let read_file: ReadFile = |path| std::fs::read(path);
    let env = env(variables);
    Connection::from_env(signal, endpoint, protocol, "test", read_file, &env)
}

fn env(variables: &Variables<'_>) -> impl Fn(&str) -> Option<String> {
    |name| {
        let short = name.strip_prefix("OTEL_EXPORTER_OTLP_").unwrap_or(name);
        let mut pairs = variables.iter();
        let (_, value) = pairs.find(|(known, _)| [short, name].contains(known))?;
        Some((*value).to_owned())
    }
}

fn connection(variables: &Variables<'_>) -> Connection {
    let call = (Some("https://collector:4318"), None);
    let read = read(Signal::LOGS, call, variables);
    read.expect("right").expect("an endpoint")
}

/// Reads an endpoint and a protocol, each of which may be `-`, and variables.
fn read_case(case: &str) -> Result<Option<Connection>, String> {
    let mut words = case.split(' ');
    let mut given = || words.next().filter(|word| *word != "-");
    let call = (given(), given());
    let pairs = words.map(|word| word.split_once('=').expect("name=value"));
    read(Signal::LOGS, call, &pairs.collect::<Vec<_>>())
}

/// Calls and variables, and the connection.
const PLACES: &str = "
- grpc ENDPOINT= LOGS_ENDPOINT= => nothing
# The path is appended to the general endpoint.
- - ENDPOINT=http://c:4318 => http/protobuf http://c:4318/v1/logs
- - ENDPOINT=https://c/otlp/ => http/protobuf https://c/otlp/v1/logs
- - ENDPOINT=https://c/o?x=1 => http/protobuf https://c/o/v1/logs?x=1
- - LOGS_ENDPOINT=http://c:4318 => http/protobuf http://c:4318/
- - LOGS_ENDPOINT=http://c/my/logs => http/protobuf http://c/my/logs
# The flag wins.
http://f:4318 - ENDPOINT=http://general LOGS_ENDPOINT=http://logs => http/protobuf http://f:4318/v1/logs
http://f:4318/x - ENDPOINT=http://general LOGS_ENDPOINT=http://logs => http/protobuf http://f:4318/x
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
        let shown = match read_case(case).expect(line) {
            Some(found) => format!("{} {}", found.protocol.as_str(), found.endpoint),
            None => "nothing".to_owned(),
        };
        assert_eq!(shown, expected, "{line}");
    }
}

#[test]
fn spans_have_their_own_variables_and_path() {
    let variables = [
        ("ENDPOINT", "https://c:4318"),
        ("CERTIFICATE", "/general.pem"),
        ("LOGS_CERTIFICATE", "/logs.pem"),
        ("TRACES_HEADERS", "a=b"),
    ];
    let found = read(Signal::TRACES, (None, None), &variables);
    let found = found.expect("right").expect("an endpoint");
    assert_eq!(found.endpoint.as_str(), "https://c:4318/v1/traces");
    assert_eq!(found.certificate.expect("given").value, "/general.pem");
    assert_eq!(found.headers["a"], "b");
}

#[test]
fn values_are_read_and_have_the_defaults_of_the_specification() {
    let found = connection(&[]);
    assert_eq!((found.timeout.as_secs(), found.gzip), (10, false));
    assert!(found.headers.is_empty() && found.certificate.is_none() && found.client.is_none());
    let found = connection(&[
        ("TIMEOUT", "2500"),
        ("COMPRESSION", "gzip"),
        ("HEADERS", "a=1,authorization=Bearer%20secret"),
        ("CLIENT_CERTIFICATE", "/client.pem"),
        ("LOGS_CLIENT_KEY", "/key.pem"),
    ]);
    assert_eq!((found.timeout.as_millis(), found.gzip), (2500, true));
    assert_eq!(found.headers["authorization"], "Bearer secret");
    assert!(!format!("{found:?}").contains("secret"), "{found:?}");
    let key = found.client.expect("given").1;
    assert_eq!(key.name, "OTEL_EXPORTER_OTLP_LOGS_CLIENT_KEY");
    // Without TLS, files have no effect.
    let plain = read_case("http://c - CERTIFICATE=/ca.pem CLIENT_KEY=/key.pem");
    let plain = plain.expect("right").expect("an endpoint");
    assert!(plain.certificate.is_none() && plain.client.is_none());
}

#[test]
fn a_variable_of_log_records_wins_and_an_empty_one_is_unset() {
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
        let call = (Some("c:4317").filter(|_| name != "ENDPOINT"), None);
        let shown = |variables: &[_]| format!("{:?}", read(Signal::LOGS, call, variables));
        let own = &*format!("LOGS_{name}");
        let (unset, given) = (shown(&[]), shown(&[(name, value)]));
        assert_ne!(given, unset, "{name}");
        assert_eq!(shown(&[(name, ""), (own, " ")]), unset, "{name}");
        assert_eq!(shown(&[(name, value), (own, "")]), given, "{name}");
        let both = shown(&[(name, "wrong"), (own, value)]);
        assert_eq!(both, shown(&[(own, value)]), "{name}");
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
# A token or a password is not repeated.
c:4318#secret - => --endpoint: 'c:4318' is wrong; http/protobuf needs a URL
- - LOGS_ENDPOINT=c:4318/?token=secret => OTEL_EXPORTER_OTLP_LOGS_ENDPOINT: 'c:4318/' is wrong
http://c:99999?secret - => --endpoint: 'http://c:99999' is wrong; give a URL
http://c:99999#secret - => --endpoint: 'http://c:99999' is wrong; give a URL
http://me:secret@c - => --endpoint: contains a user or password
http://me:secret@c:99999 - => --endpoint: give a URL
c:1 grpc HEADERS=authorization=secret%0a => OTEL_EXPORTER_OTLP_HEADERS: pair 1 is wrong
c:1 grpc HEADERS=a=1,authorization=secret%ff => OTEL_EXPORTER_OTLP_HEADERS: pair 2 is wrong
c:1 grpc HEADERS=se%20cret=secret => OTEL_EXPORTER_OTLP_HEADERS: pair 1 is wrong
c:1 grpc HEADERS=secret => OTEL_EXPORTER_OTLP_HEADERS: pair 1 is wrong
";

#[test]
fn wrong_values_are_named_with_what_would_be_right_and_without_secrets() {
    let lines = WRONG.trim().lines().filter(|line| !line.starts_with('#'));
    for line in lines {
        let (case, expected) = line.split_once(" => ").expect(line);
        let error = read_case(case).expect_err(line);
        assert!(error.starts_with(expected), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
}

#[test]
fn the_environment_wins_over_the_own_resource() {
    let own = [("service.name", "exporter"), ("service.version", "1")];
    let alone = "service.name=exporter service.version=1";
    for (attributes, name, expected) in [
        ("", " ", alone),
        (
            "service.name=x, te%3Dam = a%20b,c=1,c=d=e,,",
            "audit",
            "c=d=e service.name=audit service.version=1 te=am=a b",
        ),
        // A wrong pair makes all of them wrong.
        ("a=1,b", "", alone),
    ] {
        let variables = [
            ("OTEL_RESOURCE_ATTRIBUTES", attributes),
            ("OTEL_SERVICE_NAME", name),
        ];
        let env = env(&variables);
        let pairs = resource(&own, &env).into_iter();
        let pairs: Vec<_> = pairs.map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(pairs.join(" "), expected);
        let said = wrong_attributes(&env).unwrap_or_default();
        let is_named = said.starts_with("OTEL_RESOURCE_ATTRIBUTES: pair 2 is wrong");
        assert_eq!(is_named, attributes == "a=1,b", "{said}");
    }
}

#[test]
fn a_file_that_is_not_pem_is_named() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    for (path, expected) in [
        (file.path(), "' is not PEM; give a PEM file"),
        ("/nowhere.pem".as_ref(), "cannot read '/nowhere.pem'"),
    ] {
        let given = Given::new("VARIABLE", path.to_str()).expect("a path");
        let error = given.read_pem(|path| std::fs::read(path));
        let error = error.expect_err(expected);
        let is_named = error.starts_with("VARIABLE: ") && error.contains(expected);
        assert!(is_named, "{error}");
    }
}
