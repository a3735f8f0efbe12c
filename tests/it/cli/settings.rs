//! Wrong settings end the program with status 2 and one line that names the flag, the value, and what would be right.

use futures_util::future::join_all;

use crate::support::binary::{KEY, Launch, launch};

const URL: &str = "--api.base-url=https://api.example.com";

/// A command line that would be right without what the test adds.
fn with(arguments: &[&str]) -> Launch {
    launch(arguments).env("ORGDATA_API_KEY", KEY)
}

async fn refused(launch: Launch, parts: &[&str]) {
    let finished = launch.run().await;
    let line = finished.refusal(2);
    for part in parts {
        assert!(line.contains(part), "{part:?} is missing in: {line}");
    }
    assert!(!line.contains(KEY), "{line}");
}

#[tokio::test]
async fn a_wrong_flag_is_named_with_its_value_and_what_would_be_right() {
    join_all(
        [
            (
                &["--audit.poll-interval=fast", URL][..],
                &["--audit.poll-interval", "fast", "15s"][..],
            ),
            (
                &["--api.timeout=0s", URL],
                &["--api.timeout", "0s", "longer than 0"],
            ),
            (
                &["--audit.reread-interval=500000000000years", URL],
                &[
                    "--audit.reread-interval",
                    "500000000000years",
                    "hundred years",
                ],
            ),
            (
                &["--api.page-size=1001", URL],
                &["--api.page-size", "1001", "1..=1000"],
            ),
            (
                &["--state.max-size=1", URL],
                &["--state.max-size", "1", "8MiB"],
            ),
            (
                &["--metrics.actor-label=mail", URL],
                &["--metrics.actor-label", "mail", "id, name, hash, none"],
            ),
            (&["--log.level=loud", URL], &["--log.level", "loud", "info"]),
            (
                &["--web.listen-address=::1", URL],
                &["--web.listen-address", "::1", "[::1]:10917"],
            ),
            (
                &["--audit.deal-ids=nan", URL],
                &["--audit.deal-ids", "nan", "42"],
            ),
            (
                &["--audit.enabled=perhaps", URL],
                &["--audit.enabled", "perhaps"],
            ),
            (
                &["--otlp.endpoint=collector", URL],
                &["--otlp.endpoint", "collector", "http://"],
            ),
            (
                &["--api.timeout", URL, "--api.timeout"],
                &["--api.timeout", "value"],
            ),
            (&[], &["--api.base-url", "https://api.example.com", "demo"]),
            (
                &["--api.base-url=api.example.com"],
                &[
                    "--api.base-url",
                    "api.example.com",
                    "https://api.example.com",
                ],
            ),
            (
                &["--api.base-url=ftp://api.example.com"],
                &["--api.base-url", "ftp", "http or https"],
            ),
            (
                &["--api.base-url=http://10.0.0.1"],
                &[
                    "--api.base-url",
                    "10.0.0.1",
                    "https://",
                    "--api.allow-plain-http",
                ],
            ),
            (
                &[
                    "--api.ca-file=/nonexistent.pem",
                    "--state.path=:memory:",
                    URL,
                ],
                &["--api.ca-file", "/nonexistent.pem"],
            ),
            (&["simulate", "--rate=fast"], &["--rate", "fast", "number"]),
            (&["simulate", "--fault=explode"], &["--fault", "explode"]),
            (
                &["demo", "--audit.poll-interval=fast"],
                &["--audit.poll-interval", "fast", "15s"],
            ),
        ]
        .map(|(arguments, parts)| refused(with(arguments), parts)),
    )
    .await;
}

#[tokio::test]
async fn what_is_no_flag_or_command_is_named_with_what_was_perhaps_meant() {
    refused(
        with(&["--audit.pol-interval=15s", URL]),
        &["--audit.pol-interval", "--audit.poll-interval"],
    )
    .await;
    refused(with(&["dmo"]), &["dmo", "demo"]).await;
    refused(
        with(&["--log.level=debug", "demo"]),
        &["demo", "--log.level"],
    )
    .await;
    refused(with(&["serve", "me"]), &["serve"]).await;
}

#[tokio::test]
async fn a_wrong_variable_is_named_as_the_variable() {
    for (name, value, parts) in [
        (
            "ORGDATA_AUDIT_POLL_INTERVAL",
            "fast",
            &["--audit.poll-interval", "fast", "15s"][..],
        ),
        (
            "ORGDATA_API_BASE_URL",
            "api.example.com",
            &["--api.base-url", "api.example.com", "https://"],
        ),
        ("ORGDATA_API_BASE_URL", "", &["--api.base-url", "https://"]),
        (
            "ORGDATA_WEB_LISTEN_ADDRESS",
            "10917",
            &["--web.listen-address", "10917", ":10917"],
        ),
        (
            "ORGDATA_API_KEY_FILE",
            "/nonexistent/key",
            &["--api.key-file", "/nonexistent/key"],
        ),
    ] {
        let launch = with(&[])
            .env("ORGDATA_API_BASE_URL", "https://api.example.com")
            .env(name, value);
        refused(
            launch,
            &[parts, &[&*format!("from the variable {name}")]].concat(),
        )
        .await;
    }
    // A flag wins, so the variable is not to blame.
    let finished = with(&[URL, "--audit.poll-interval=fast"])
        .env("ORGDATA_AUDIT_POLL_INTERVAL", "15s")
        .run()
        .await;
    assert!(!finished.refusal(2).contains("variable"), "{finished:?}");
    refused(
        with(&["demo"]).env("ORGDATA_LOG_FORMAT", "xml"),
        &[
            "--log.format",
            "xml",
            "from the variable ORGDATA_LOG_FORMAT",
        ],
    )
    .await;
}

#[tokio::test]
async fn wrong_standard_variables_are_named() {
    for (name, value, right) in [
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "abc", "milliseconds"),
        ("OTEL_EXPORTER_OTLP_LOGS_COMPRESSION", "brotli", "gzip"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", "http/protobuf"),
        (
            "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT",
            "ftp://collector",
            "http",
        ),
        (
            "OTEL_EXPORTER_OTLP_CERTIFICATE",
            "/nonexistent.pem",
            "/nonexistent.pem",
        ),
    ] {
        let launch = with(&[URL, "--state.path=:memory:"])
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
            .env(name, value);
        refused(launch, &[name, value, right]).await;
    }
}

#[tokio::test]
async fn a_secret_in_the_base_address_is_refused_and_not_repeated() {
    for address in [
        "https://user:hunter2@api.example.com",
        "https://api.example.com/?key=hunter2",
        "user:hunter2@api.example.com",
    ] {
        let finished = with(&[&format!("--api.base-url={address}")]).run().await;
        let line = finished.refusal(2);
        assert!(
            line.contains("--api.base-url")
                && line.contains("api.example.com")
                && !line.contains("hunter2"),
            "{line}"
        );
    }
}

#[tokio::test]
async fn a_port_in_use_is_named_with_what_to_do() {
    let other = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = other.local_addr().expect("it is bound").to_string();
    let flag = format!("--web.listen-address={address}");
    refused(
        with(&[URL, "--state.path=:memory:", &flag]),
        &[&address, "in use", "--web.listen-address"],
    )
    .await;
    refused(
        with(&["simulate", &format!("--listen={address}")]),
        &["--listen", &address, "port 0"],
    )
    .await;
    refused(with(&["demo", &flag]), &[&address, "in use"]).await;
}
