//! Help, and wrong settings: exit status 2 and one line that names the flag, the value, and what would be right.

use clap::CommandFactory as _;
use futures_util::future::join_all;
use orgdata_exporter::commands::Cli;

use super::{TICKETS_UP, UP, organization};
use crate::support::binary::{KEY, Launch, client, exporter, launch};

const URL: &str = "--api.base-url=https://api.example.com";

/// Wrong command lines, and words of their errors, which also name the flag.
const WRONG: &str = "
dead-letters => list, replay, drop
--audit.poll-interval=fast URL => fast | 15s
--audit.start=yesterday URL => yesterday | oldest
--api.timeout=0s URL => 0s | longer than 0
--api.page-size=1001 URL => 1001 is not in 1..=1000
--state.max-size=1 URL => 8MiB
--metrics.actor-label=mail URL => mail | id, name, hash
--metrics.actor-label=hash URL => --metrics.hash-key-file
--web.listen-address=::1 URL => [::1]:PORT
--web.telemetry-path=/:x URL => plain path
--otlp.redact=contact.email,,a..b URL => a..b
--otlp.protocol=stdout OTLP URL => --otlp.endpoint
--otlp.bearer-token-file=missing OTLP URL => cannot read the bearer token file missing
--otlp.protocol=http URL => grpc, http/protobuf, stdout | --otlp.protocol
 => --api.base-url | https://api.example.com | demo
--api.base-url=https://a:hunter2@b => user
--api.base-url=https://b/?key=hunter2 => query
--api.base-url=http://10.0.0.1 => --api.allow-plain-http
--audit.pol-interval=1s URL => tip: a | --audit.poll-int
--log.level=debug demo => put the flags after demo
demo URL => remove --api.base-url
dead-letters replay => NUMBER | --all | --reason
verify --from=7d --send-missing - URL => --otlp.endpoint
healthcheck --url=http://a:hunter2@b:port => --url
";

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

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[tokio::test]
async fn help_manual_and_completions_name_every_flag_and_show_no_values() {
    let printed = async |arguments: &str| {
        let launch = with(&words(arguments)).env("ORGDATA_API_BASE_URL", "https://secret.example");
        let finished = launch.run().await;
        let ended = (finished.status, finished.stderr.as_str());
        assert_eq!(ended, (Some(0), ""), "{arguments}");
        let is_secret = [KEY, "secret.example"].map(|text| finished.stdout.contains(text));
        assert_eq!(is_secret, [false, false], "{arguments}");
        // roff escapes dashes.
        finished.stdout.replace("\\-", "-")
    };
    for arguments in ["--help", "check --help", "man"] {
        let text = printed(arguments).await;
        for flag in flags() {
            let is_named = text.contains(&format!("--{flag}")) && text.contains(&variable(&flag));
            assert!(is_named, "{arguments}: {flag}");
        }
    }
    let manual = printed("man").await;
    for flag in Cli::command().get_arguments() {
        let text = flag.get_help().unwrap().to_string();
        let text = text.split('\'').next().unwrap();
        assert!(manual.contains(text), "{flag}: {text}");
    }
    for command in ["", "check ", "demo ", "verify "] {
        let short = printed(&format!("{command}-h")).await;
        assert!(short.lines().count() < 60, "{command}: {short}");
        assert!(short.contains("--otlp.endpoint"), "{command}: {short}");
    }
    for help in ["help -h", "help --help"] {
        assert_eq!(printed(help).await, printed("--help").await);
    }
    let manual = printed("man demo").await;
    assert!(!manual.contains("ORGDATA_"), "it reads no variable");
    let manual = printed("man dead-letters list").await;
    assert!(manual.contains(".TH orgdata-exporter-dead-letters-list 1"));
    assert!(printed("completions zsh").await.contains("--otlp.endpoint"));
    let version = concat!("orgdata-exporter ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(printed("--version").await, version);
}

#[tokio::test]
async fn a_wrong_flag_is_named_with_its_value_and_what_would_be_right() {
    join_all(WRONG.lines().skip(1).map(async |line| {
        let (arguments, said) = line.split_once(" => ").expect(line);
        let arguments = arguments.replace("URL", URL);
        let arguments = arguments.replace("OTLP", "--otlp.endpoint=http://[::1]:4317");
        let flag = arguments.split('=').next().unwrap();
        let flag = if said.contains("--") { "" } else { flag };
        let said = format!("{flag} | {said}");
        refused(with(&words(&arguments)), &said).await;
    }))
    .await;
}

#[tokio::test]
async fn a_wrong_variable_is_named() {
    for (arguments, name, value, said) in [
        (&[URL][..], "ORGDATA_AUDIT_POLL_INTERVAL", "fast", "15s"),
        (&[URL], "ORGDATA_API_KEY_FILE", "/no/key", "--api.key-file"),
        (&[URL], "OTEL_EXPORTER_OTLP_TIMEOUT", "abc", "milliseconds"),
    ] {
        let launch = with(arguments).env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");
        let words = format!("{value} | {said} | {name}");
        refused(launch.env(name, value), &words).await;
    }
    // Two tokens.
    let launch = with(&[URL, "--otlp.bearer-token-file=token"]);
    std::fs::write(launch.dir().join("token"), "hunter2").unwrap();
    let launch = launch
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
        .env(
            "OTEL_EXPORTER_OTLP_HEADERS",
            "Authorization=Bearer%20hunter2",
        );
    let words = "--otlp.bearer-token-file | OTEL_EXPORTER_OTLP_HEADERS | remove one of the two";
    refused(launch, words).await;
}

/// Docker's env files keep quotes. A filter with quotes matches nothing, and a state with them is never open.
#[tokio::test]
async fn a_variable_in_quotes_is_refused() {
    for (name, value) in [
        ("ORGDATA_OTLP_REDACT", "\"contact.email\""),
        ("ORGDATA_TICKETS_OPEN_STATES", "'OPEN'"),
        ("ORGDATA_AUDIT_ENABLED", "\"false\""),
        ("ORGDATA_API_KEY", "'hunter2'"),
    ] {
        let words = format!("{name} is in quotes | remove the quotes");
        refused(with(&[URL]).env(name, value), &words).await;
    }
}

#[tokio::test]
async fn an_empty_variable_is_unset_and_one_without_effect_is_a_warning() {
    let api = organization().await;
    let given = "api.base-url web.listen-address audit.poll-interval tickets.scan-interval";
    let launch = exporter(&api.base_url())
        .env("ORGDATA_AUDIT_POL_INTERVAL", "1s")
        .env("OTEL_RESOURCE_ATTRIBUTES", "a=b,team");
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
    for words in [
        "ORGDATA_AUDIT_POL_INTERVAL is unknown",
        "OTEL_RESOURCE_ATTRIBUTES: ",
    ] {
        exporter
            .logs(&format!("level=warn | a variable has no effect | {words}"))
            .await;
    }
    let without_key = with(&[URL]).env("ORGDATA_API_KEY", "");
    refused(without_key, "--api.key-file | ORGDATA_API_KEY").await;
}

/// With status 1: a restart may find the address, the name or a free port.
#[tokio::test]
async fn an_address_that_cannot_be_used_now_is_named_with_what_to_do() {
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    for (address, why) in [
        (&*address, "in use"),
        ("192.0.2.1:10917", "assign"),
        ("nowhere.invalid:10917", "lookup"),
    ] {
        let flag = format!("--web.listen-address={address}");
        let words = format!("{address} | {why} | --web.listen-address");
        let launch = with(&[URL, "--state.path=:memory:", &flag]);
        launch.refused(1, &words).await;
        with(&["demo", &flag]).refused(1, &words).await;
    }
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
    ] {
        let request = client().get(format!("{url}{path}"));
        let answer = request.header("X-API-Key", key).send().await.unwrap();
        assert_eq!(answer.status(), status, "{path}");
    }
    assert_eq!(simulator.stop().await, Some(0));
}
