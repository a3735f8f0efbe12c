//! Which endpoint and which protocol: precedence, paths and schemes as the OpenTelemetry specification has them.
//!
//! - `--otlp.endpoint` wins over `OTEL_EXPORTER_OTLP_LOGS_ENDPOINT`, and that over `OTEL_EXPORTER_OTLP_ENDPOINT`.
//! - For HTTP the general variable is a base: `/v1/logs` is appended to its path. The variable for logs is taken as it is. The flag
//!   is taken as it is when it has a path; without one, `/v1/logs` is appended.
//! - For gRPC a path means nothing and is dropped. `host:port` without a scheme is TLS unless `OTEL_EXPORTER_OTLP_[LOGS_]INSECURE` is true.
//! - Without a protocol, port 4317 means gRPC, which that port is registered for; any other endpoint means `http/protobuf`, the
//!   specification's default.

use url::Url;

use super::settings::{Flags, Given, Protocol, SettingsError, Variables};

/// The path of log records.
const PATH: &str = "v1/logs";

/// gRPC's registered port.
const GRPC_PORT: u16 = 4317;

/// Where an endpoint was named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Flag,
    Logs,
    General,
}

/// The endpoint as requests need it; `None` where none is named.
pub(super) fn resolve(
    flags: &Flags,
    variables: &Variables<'_>,
) -> Result<Option<(Url, Protocol)>, SettingsError> {
    let protocol = match flag("--otlp.protocol", flags.protocol.as_deref())
        .or_else(|| variables.otlp("PROTOCOL"))
    {
        Some(given) => Some(protocol(&given)?),
        None => None,
    };
    let insecure = match variables.otlp("INSECURE") {
        Some(given) => insecure(&given)?,
        None => false,
    };
    let endpoint = flag("--otlp.endpoint", flags.endpoint.as_deref())
        .map(|given| (given, Source::Flag))
        .or_else(|| {
            variables
                .logs("ENDPOINT")
                .map(|given| (given, Source::Logs))
        })
        .or_else(|| {
            variables
                .general("ENDPOINT")
                .map(|given| (given, Source::General))
        });
    let Some((given, source)) = endpoint else {
        return Ok(None);
    };
    let has_scheme = given.value.contains("://");
    let url = parse(&given, has_scheme, insecure)?;
    let protocol = protocol.unwrap_or(if url.port() == Some(GRPC_PORT) {
        Protocol::Grpc
    } else {
        Protocol::HttpProtobuf
    });
    let url = match protocol {
        Protocol::Grpc => origin(url),
        Protocol::HttpProtobuf if !has_scheme => {
            return Err(given.wrong(&format!(
                "http/protobuf needs a URL: give http://{0} or https://{0}, or ask for grpc",
                given.value
            )));
        }
        Protocol::HttpProtobuf => with_path(url, source),
    };
    Ok(Some((url, protocol)))
}

fn flag(name: &str, value: Option<&str>) -> Option<Given> {
    let value = value?.trim();
    (!value.is_empty()).then(|| Given {
        name: name.to_owned(),
        value: value.to_owned(),
    })
}

fn protocol(given: &Given) -> Result<Protocol, SettingsError> {
    match given.value.as_str() {
        "grpc" => Ok(Protocol::Grpc),
        "http/protobuf" => Ok(Protocol::HttpProtobuf),
        "http/json" => {
            Err(given.wrong("http/json is not supported, and every collector that takes it takes http/protobuf: give that, or grpc"))
        }
        _ => Err(given.wrong("give grpc or http/protobuf")),
    }
}

fn insecure(given: &Given) -> Result<bool, SettingsError> {
    match given.value.to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(given.wrong("give true or false")),
    }
}

fn parse(given: &Given, has_scheme: bool, insecure: bool) -> Result<Url, SettingsError> {
    const RIGHT: &str = "give a URL such as http://localhost:4318, or host:port for grpc";
    let url = match (has_scheme, insecure) {
        (true, _) => Url::parse(&given.value),
        (false, true) => Url::parse(&format!("http://{}", given.value)),
        (false, false) => Url::parse(&format!("https://{}", given.value)),
    };
    // What is no URL may hold a password all the same.
    let url = url.map_err(|_| {
        if given.value.contains('@') {
            SettingsError::new(&given.name, RIGHT)
        } else {
            given.wrong(RIGHT)
        }
    })?;
    if !url.username().is_empty() || url.password().is_some() {
        // The value is not repeated: it holds a password.
        return Err(SettingsError::new(
            &given.name,
            "holds a user or password; give those in OTEL_EXPORTER_OTLP_HEADERS instead",
        ));
    }
    match url.scheme() {
        "http" | "https" if url.has_host() => Ok(url),
        _ => Err(given.wrong(RIGHT)),
    }
}

fn origin(mut url: Url) -> Url {
    url.set_path("");
    url.set_query(None);
    url.set_fragment(None);
    url
}

fn with_path(mut url: Url, source: Source) -> Url {
    url.set_fragment(None);
    let append = match source {
        Source::Logs => false,
        Source::Flag => url.path() == "/",
        Source::General => true,
    };
    if append {
        let path = format!("{}/{PATH}", url.path().trim_end_matches('/'));
        url.set_path(&path);
    }
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve_with(
        flag: Option<&str>,
        protocol: Option<&str>,
        variables: &[(&str, &str)],
    ) -> Result<Option<String>, String> {
        let own = |text: Option<&str>| text.map(str::to_owned);
        let flags = Flags {
            endpoint: own(flag),
            protocol: own(protocol),
            batch_size: 1,
            user_names: true,
            redact: Vec::new(),
        };
        let find = |name: &str| {
            variables
                .iter()
                .find(|(known, _)| name == format!("OTEL_EXPORTER_OTLP_{known}"))
                .map(|(_, value)| (*value).to_owned())
        };
        let resolved = resolve(&flags, &Variables(&find)).map_err(|error| error.to_string())?;
        Ok(resolved.map(|(url, protocol)| format!("{protocol} {url}")))
    }

    #[track_caller]
    fn assert_resolves(
        flag: Option<&str>,
        protocol: Option<&str>,
        variables: &[(&str, &str)],
        expected: &str,
    ) {
        assert_eq!(
            resolve_with(flag, protocol, variables)
                .expect("right")
                .as_deref()
                .unwrap_or("nothing"),
            expected
        );
    }

    #[test]
    fn without_an_endpoint_there_is_nothing() {
        assert_resolves(
            None,
            Some("grpc"),
            &[
                ("PROTOCOL", "grpc"),
                ("ENDPOINT", ""),
                ("LOGS_ENDPOINT", " "),
            ],
            "nothing",
        );
    }

    #[test]
    fn the_path_is_appended_to_the_general_endpoint_and_not_to_the_signal_s_own() {
        for (name, value, expected) in [
            (
                "ENDPOINT",
                "http://c:4318",
                "http/protobuf http://c:4318/v1/logs",
            ),
            (
                "ENDPOINT",
                "http://c:4318/",
                "http/protobuf http://c:4318/v1/logs",
            ),
            (
                "ENDPOINT",
                "https://c/otlp/",
                "http/protobuf https://c/otlp/v1/logs",
            ),
            (
                "ENDPOINT",
                "https://c/otlp?x=1",
                "http/protobuf https://c/otlp/v1/logs?x=1",
            ),
            (
                "LOGS_ENDPOINT",
                "http://c:4318",
                "http/protobuf http://c:4318/",
            ),
            (
                "LOGS_ENDPOINT",
                "http://c:4318/my/logs",
                "http/protobuf http://c:4318/my/logs",
            ),
        ] {
            assert_resolves(None, None, &[(name, value)], expected);
        }
    }

    #[test]
    fn the_flag_wins_and_gets_the_path_where_it_has_none() {
        let variables = [
            ("ENDPOINT", "http://general"),
            ("LOGS_ENDPOINT", "http://logs"),
        ];
        assert_resolves(
            Some("http://flag:4318"),
            None,
            &variables,
            "http/protobuf http://flag:4318/v1/logs",
        );
        assert_resolves(
            Some("http://flag:4318/x"),
            None,
            &variables,
            "http/protobuf http://flag:4318/x",
        );
        assert_resolves(None, None, &variables, "http/protobuf http://logs/");
        assert_resolves(
            Some(" "),
            None,
            &variables[..1],
            "http/protobuf http://general/v1/logs",
        );
    }

    #[test]
    fn the_protocol_is_the_flag_s_the_signal_s_the_general_one_or_the_port_s() {
        let variables = [("PROTOCOL", "http/protobuf"), ("LOGS_PROTOCOL", "grpc")];
        assert_resolves(
            Some("http://c:1"),
            Some("http/protobuf"),
            &variables,
            "http/protobuf http://c:1/v1/logs",
        );
        assert_resolves(Some("http://c:1"), None, &variables, "grpc http://c:1/");
        assert_resolves(
            Some("http://c:4317"),
            None,
            &variables[..1],
            "http/protobuf http://c:4317/v1/logs",
        );
        assert_resolves(Some("http://c:4317/x"), None, &[], "grpc http://c:4317/");
    }

    #[test]
    fn without_a_scheme_grpc_is_tls_unless_it_is_called_insecure() {
        assert_resolves(
            Some("localhost:4317"),
            None,
            &[],
            "grpc https://localhost:4317/",
        );
        assert_resolves(
            Some("localhost:4317"),
            None,
            &[("INSECURE", "true")],
            "grpc http://localhost:4317/",
        );
        assert_resolves(
            Some("collector:1"),
            Some("grpc"),
            &[("INSECURE", "true"), ("LOGS_INSECURE", "FALSE")],
            "grpc https://collector:1/",
        );
        assert_resolves(
            Some("https://c:4317"),
            None,
            &[("INSECURE", "true")],
            "grpc https://c:4317/",
        );
        assert_resolves(Some("[::1]:4317"), None, &[], "grpc https://[::1]:4317/");
    }

    #[test]
    fn wrong_values_are_named_with_what_would_be_right() {
        let wrong = |flag, protocol, variables: &[(&str, &str)]| {
            resolve_with(flag, protocol, variables).expect_err("wrong")
        };
        assert_eq!(
            wrong(None, None, &[("PROTOCOL", "thrift")]),
            "OTEL_EXPORTER_OTLP_PROTOCOL: 'thrift' is wrong; give grpc or http/protobuf"
        );
        assert!(
            wrong(Some("http://c"), Some("http/json"), &[])
                .starts_with("--otlp.protocol: 'http/json' is wrong; http/json is not supported")
        );
        assert_eq!(
            wrong(Some("localhost:4318"), None, &[]),
            "--otlp.endpoint: 'localhost:4318' is wrong; http/protobuf needs a URL: give http://localhost:4318 or https://localhost:4318, \
             or ask for grpc"
        );
        for value in ["unix:///x", "ftp://c", "http://", "http://c:99999", "a b"] {
            assert!(
                wrong(Some(value), None, &[])
                    .starts_with(&format!("--otlp.endpoint: '{value}' is wrong; give a URL")),
                "{value}"
            );
        }
        let error = wrong(None, None, &[("ENDPOINT", "http://me:secret@c")]);
        assert!(
            error.starts_with("OTEL_EXPORTER_OTLP_ENDPOINT: ") && !error.contains("secret"),
            "{error}"
        );
    }
}
