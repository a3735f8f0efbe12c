//! Help, and wrong settings: exit status 2 and one line that names the flag, the value, and what would be right.

use clap::CommandFactory as _;
use futures_util::future::join_all;
use orgdata_exporter::commands::Cli;

use super::{TICKETS_UP, UP, organization};
use crate::support::binary::{KEY, Launch, client, exporter, launch};

const URL: &str = "--api.base-url=https://api.example.com";

/// Wrong command lines, and words of their errors.
const WRONG: [(&str, &str); 39] = [
    ("dead-letters", "list, replay, drop"),
    (
        "--audit.poll-interval=fast URL",
        "--audit.poll-interval | fast | 15s",
    ),
    ("--audit.poll-interval=1M URL", "1M | write 1m for a minute"),
    ("--metrics.zero-hold=-1s URL", "--metrics.zero-hold | 15s"),
    (
        "--audit.activity-types=A,,B URL",
        "--audit.activity-types | a value is empty",
    ),
    (
        "--audit.start=yesterday URL",
        "--audit.start | yesterday | oldest",
    ),
    ("--api.timeout=0s URL", "--api.timeout | 0s | longer than 0"),
    (
        "--audit.reread-interval=500000000000years URL",
        "--audit.reread-interval | hundred years",
    ),
    (
        "--api.page-size=1001 URL",
        "--api.page-size | 1001 is not in 1..=1000",
    ),
    (
        "--api.max-requests-per-second=nan URL",
        "--api.max-requests-per-second | nan | 0.5",
    ),
    ("--state.max-size=1 URL", "--state.max-size | 1 | 8MiB"),
    (
        "--metrics.actor-label=mail URL",
        "--metrics.actor-label | mail | id, name, hash, none",
    ),
    ("--metrics.actor-label=hash URL", "--metrics.hash-key-file"),
    (
        "--web.config.file=/dev/zero URL",
        "--web.config.file | 4 MiB",
    ),
    (
        "--web.listen-address=::1 URL",
        "--web.listen-address | ::1 | [::1]:PORT",
    ),
    ("--audit.deal-ids=nan URL", "--audit.deal-ids | nan | 42"),
    (
        "--audit.enabled=false --tickets.enabled=false URL",
        "--audit.enabled | --tickets.enabled",
    ),
    ("--tickets.open-states= URL", "--tickets.open-states | OPEN"),
    (
        "--otlp.redact=contact.email,,a..b URL",
        "--otlp.redact | a..b | contact.email",
    ),
    (
        "--otlp.endpoint=collector URL",
        "--otlp.endpoint | collector | http://",
    ),
    (
        "--otlp.protocol=stdout --otlp.endpoint=http://[::1]:4317 URL",
        "--otlp.protocol | --otlp.endpoint",
    ),
    ("", "--api.base-url | https://api.example.com | demo"),
    (
        "--api.base-url=api.example.com",
        "--api.base-url | https://api.example.com",
    ),
    (
        "--api.base-url=https://user:hunter2@api.example.com",
        "--api.base-url | api.example.com",
    ),
    (
        "--api.base-url=https://api.example.com/?key=hunter2",
        "--api.base-url | api.example.com",
    ),
    (
        "--api.base-url=https://api.example.com/v1/audit-logs",
        "remove /v1/audit-logs",
    ),
    (
        "--api.base-url=http://10.0.0.1",
        "10.0.0.1 | https:// | --api.allow-plain-http",
    ),
    (
        "--api.ca-file=/nonexistent.pem --state.path=:memory: URL",
        "--api.ca-file | /nonexistent.pem",
    ),
    (
        "--audit.pol-interval=15s URL",
        "--audit.pol-interval' found; tip: a | --audit.poll-interval",
    ),
    (
        "--log.level=debug demo",
        "--log.level | put the flags after demo",
    ),
    (
        "demo URL",
        "demo has an API of its own; remove --api.base-url",
    ),
    ("dead-letters replay", "NUMBER | --all | --reason"),
    ("verify export", "--from"),
    ("verify --from=7d export URL", "cannot read export"),
    (
        "verify --from=7d --send-missing /dev/null URL",
        "--send-missing | --otlp.endpoint",
    ),
    ("simulate --rate=fast", "--rate | fast"),
    (
        "healthcheck --url=http://admin:hunter2@localhost:port/",
        "--url",
    ),
    ("healthcheck --url=localhost", "http://localhost:10917"),
    (
        "healthcheck --web.listen-address=unix:/run/x",
        "localhost:PORT",
    ),
];

/// The names of the exporter's flags, without dashes in front.
fn flags() -> Vec<String> {
    let command = Cli::command();
    let flags = command.get_arguments().filter_map(|flag| flag.get_long());
    let flags = flags.filter(|flag| flag.contains('.'));
    flags.map(str::to_owned).collect()
}

fn variable(flag: &str) -> String {
    format!("ORGDATA_{}", flag.to_uppercase().replace(['.', '-'], "_"))
}

/// A command line that would be right without what the test adds.
fn with(arguments: &[&str]) -> Launch {
    launch(arguments).env("ORGDATA_API_KEY", KEY)
}

/// Asserts that it is refused with these words, and shows no secret.
async fn refused(launch: Launch, words: &str) {
    let line = launch.refused(2, words).await;
    assert!(!line.contains(KEY) && !line.contains("hunter2"), "{line}");
}

#[tokio::test]
async fn help_names_every_flag_with_its_variable_and_shows_no_values() {
    for arguments in [&["--help"][..], &["check", "--help"]] {
        let launch = launch(arguments)
            .env("ORGDATA_API_KEY", KEY)
            .env("ORGDATA_API_BASE_URL", "https://secret.example");
        let help = launch.run().await;
        assert_eq!((help.status, help.stderr.as_str()), (Some(0), ""));
        for flag in flags() {
            let shown = help.stdout.contains(&format!("--{flag} "));
            assert!(shown && help.stdout.contains(&variable(&flag)), "{flag}");
        }
        assert!(!help.stdout.contains(KEY) && !help.stdout.contains("secret.example"));
    }
    for asks in ["--version", "version"] {
        let version = launch(&[asks]).run().await.stdout;
        let expected = concat!("orgdata-exporter ", env!("CARGO_PKG_VERSION"), "\n");
        assert_eq!(version, expected, "{asks}");
    }
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[tokio::test]
async fn a_wrong_flag_is_named_with_its_value_and_what_would_be_right() {
    join_all(WRONG.map(async |(arguments, said)| {
        let arguments = arguments.replace("URL", URL);
        refused(with(&words(&arguments)), said).await;
    }))
    .await;
}

#[tokio::test]
async fn a_wrong_variable_is_named() {
    let in_memory = "--state.path=:memory:";
    for (arguments, name, value, said) in [
        (&[URL][..], "ORGDATA_AUDIT_POLL_INTERVAL", "fast", "15s"),
        (&[], "ORGDATA_API_BASE_URL", "api.example.com", "https://"),
        (&[URL], "ORGDATA_API_KEY_FILE", "/no/key", "--api.key-file"),
        (&["demo"], "ORGDATA_LOG_FORMAT", "xml", "logfmt"),
        (
            &["healthcheck"],
            "ORGDATA_WEB_LISTEN_ADDRESS",
            "10917",
            ":PORT",
        ),
        (
            &[URL, in_memory],
            "OTEL_EXPORTER_OTLP_TIMEOUT",
            "abc",
            "milliseconds",
        ),
        (
            &[URL, in_memory],
            "OTEL_EXPORTER_OTLP_LOGS_COMPRESSION",
            "brotli",
            "gzip",
        ),
    ] {
        let launch = with(arguments).env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");
        let words = format!("{value} | {said} | {name}");
        refused(launch.env(name, value), &words).await;
    }
    // The variable is not at fault if a flag overrides it.
    let launch = with(&[URL, "--audit.poll-interval=fast"]);
    let launch = launch.env("ORGDATA_AUDIT_POLL_INTERVAL", "15s");
    let finished = launch.run().await;
    assert!(!finished.refusal(2).contains("variable"), "{finished:?}");
}

#[tokio::test]
async fn a_wrong_variable_without_effect_is_a_warning() {
    let api = organization().await;
    let name = "OTEL_RESOURCE_ATTRIBUTES";
    let exporter = exporter(&api.base_url()).env(name, "a=b,team").start();
    exporter.until_value(UP, 1.0).await;
    let words = format!("level=warn | wrong variable has no effect | {name}: ");
    exporter.logs(&words).await;
}

#[tokio::test]
async fn an_empty_variable_is_unset_and_an_unknown_one_is_a_warning() {
    let api = organization().await;
    let given = "api.base-url web.listen-address audit.poll-interval tickets.scan-interval";
    let launch = exporter(&api.base_url()).env("ORGDATA_AUDIT_POL_INTERVAL", "1s");
    let mut others = flags();
    others.retain(|flag| !given.contains(flag.as_str()));
    let launch = others
        .iter()
        .fold(launch, |launch, flag| launch.env(&variable(flag), ""));
    let exporter = launch.start();
    exporter.until_value(TICKETS_UP, 1.0).await;
    exporter.until_value(UP, 1.0).await;
    // No empty list of open states: some tickets are open.
    assert!(exporter.sum("orgdata_open_tickets").await > 0.0);
    let words = "level=warn | ORGDATA_AUDIT_POL_INTERVAL";
    exporter.logs(words).await;
    assert_eq!(exporter.stderr().count("unknown variable"), 1);
    let without_key = with(&[URL]).env("ORGDATA_API_KEY", "");
    refused(without_key, "--api.key-file | ORGDATA_API_KEY").await;
}

#[tokio::test]
async fn a_port_in_use_is_named_with_what_to_do() {
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let flag = format!("--web.listen-address={address}");
    let words = format!("{address} | in use | --web.listen-address");
    refused(with(&[URL, "--state.path=:memory:", &flag]), &words).await;
    refused(with(&["demo", &flag]), &words).await;
    let listen = format!("--listen={address}");
    let words = format!("--listen | {address} | port 0");
    refused(with(&["simulate", &listen]), &words).await;
}

#[tokio::test]
async fn the_simulator_prints_its_address_and_serves_until_a_signal() {
    let simulate = "simulate --listen=127.0.0.1:0 --api-key=k1 --history=3";
    let mut simulator = launch(&words(simulate)).start();
    let shown = |line: &str| line.contains("http://");
    let line = simulator.stdout().until("its address", shown).await;
    let url = &line[line.find("http://").unwrap()..];
    let url = url.split_whitespace().next().unwrap();
    for (path, key, status) in [
        ("v1/audit-logs", "k1", 200),
        ("v1/audit-logs", "k2", 401),
        ("control/", "", 200),
        ("control", "", 200),
    ] {
        let request = client().get(format!("{url}{path}"));
        let answer = request.header("X-API-Key", key).send().await.unwrap();
        assert_eq!(answer.status(), status, "{path}");
    }
    assert_eq!(simulator.stop().await, Some(0));
}
