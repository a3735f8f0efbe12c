//! The report: settings and their origin, JSON, colours, the transcript of the documentation, and no secrets.

use orgdata_exporter::simulator::{ApiKey, Config, Simulator};
use serde_json::Value;

use super::{check, expect, organization, service};
use crate::support::binary::{KEY, launch};
use crate::support::http_peer::{Peer, json};

#[tokio::test]
async fn settings_are_shown_with_their_origin_and_an_unknown_variable_is_a_warning() {
    let api = service().await;
    let launch = check(&api.base_url())
        .env("ORGDATA_AUDIT_POLL_INTERVAL", "20s")
        .env("ORGDATA_STATE_MAX_SIZE", "64MiB")
        .env("ORGDATA_TICKETS_MAX_AGE", "")
        .env("OTEL_SERVICE_NAME", "audit")
        .arg("--state.max-size=32MiB");
    let launch = launch
        // A flag of another command, which has no variable.
        .env("ORGDATA_TIMEOUT", "1s")
        // Kubernetes sets these for Services of these names.
        .env("ORGDATA_EXPORTER_SERVICE_HOST", "10.0.0.1")
        .env("ORGDATA_EXPORTER_SERVICE_PORT_METRICS", "80")
        .env("ORGDATA_EXPORTER_PORT_80_TCP", "tcp://10.0.0.1:80")
        .env("ORGDATA_PORT_SERVICE_HOST", "10.0.0.2")
        .env("ORGDATA_PORT_PORT", "tcp://10.0.0.2:80");
    let expected = "warning variables: ORGDATA_TIMEOUT | unknown | --help";
    let text = expect(launch, expected).await.0;
    let lines = text.lines().take_while(|line| !line.is_empty());
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let rows: Vec<String> = lines.map(words).collect();
    let url = api.base_url();
    for row in [
        &*format!("--api.base-url {url} variable ORGDATA_API_BASE_URL"),
        "--audit.poll-interval 20s variable ORGDATA_AUDIT_POLL_INTERVAL",
        "--state.max-size 32MiB flag",
        "--tickets.enabled true default",
        "ORGDATA_API_KEY (not shown) variable",
        "OTEL_SERVICE_NAME (set) variable",
    ] {
        let is_shown = rows.iter().any(|shown| shown == row);
        assert!(is_shown, "{row:?} is missing in:\n{text}");
    }
    // Neither given nor important.
    for flag in ["--tickets.scan-interval", "--tickets.max-age", "--format"] {
        assert!(!text.contains(flag), "{text}");
    }
    for name in [
        "ORGDATA_EXPORTER_AUDIT_POLL_INTERVAL",
        "ORGDATA_WEB_LISTEN_PORT",
    ] {
        let words = format!("warning variables: {name} | unknown");
        expect(check(&api.base_url()).env(name, "1"), &words).await;
    }
}

#[tokio::test]
async fn the_status_is_the_same_if_nothing_reads_the_report() {
    let api = service().await;
    let (mut check, _dir) = check(&api.base_url()).env("ORGDATA_API_KEY", "x").spawn();
    drop(check.stdout.take());
    let ended = check.wait_with_output().await.unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!((ended.status.code(), &*said), (Some(2), ""));
}

#[tokio::test]
async fn json_is_one_document_with_the_same_fields_everywhere() {
    let api = service().await;
    let launch = check(&api.base_url()).env("ORGDATA_API_KEY", "not-the-key");
    let finished = launch.arg("--format=json").run().await;
    assert_eq!((finished.status, finished.stderr.as_str()), (Some(2), ""));
    let document: Value = serde_json::from_str(&finished.stdout).unwrap();
    let keys = |value: &Value| -> Vec<String> {
        let object = value.as_object().unwrap();
        object.keys().cloned().collect()
    };
    let names = ["version", "level", "settings", "findings"];
    assert_eq!(keys(&document), names);
    assert_eq!(document["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(document["level"], "bad");
    let list = |name: &str| document[name].as_array().unwrap();
    for setting in list("settings") {
        assert_eq!(keys(setting), ["name", "value", "from", "variable"]);
    }
    for finding in list("findings") {
        assert_eq!(keys(finding), ["check", "level", "said", "advice"]);
        let is_good = finding["level"] == "good";
        assert_eq!(is_good, finding["advice"].is_null(), "{finding}");
    }
    let mut findings = list("findings").iter();
    let key = findings.find(|finding| finding["check"] == "key").unwrap();
    let said = key["said"].as_str().unwrap();
    assert!(said.contains("HTTP 401"), "{said}");
}

/// `script` of util-linux runs its command in a terminal.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_terminal_gets_colours_unless_they_are_not_wanted() {
    let api = service().await;
    for (variable, coloured) in [("UNUSED", true), ("NO_COLOR", false)] {
        let check = format!("{} check", env!("CARGO_BIN_EXE_orgdata-exporter"));
        let mut command = tokio::process::Command::new("script");
        let command = command.args(["-qec", &check, "/dev/null"]).env_clear();
        let command = command.envs([
            ("PATH", "/usr/bin:/bin"),
            ("TERM", "xterm"),
            (variable, "1"),
            ("ORGDATA_STATE_PATH", ":memory:"),
            ("ORGDATA_WEB_LISTEN_ADDRESS", "127.0.0.1:0"),
            ("ORGDATA_API_BASE_URL", &api.base_url()),
            ("ORGDATA_API_KEY", KEY),
        ]);
        let output = command.stdin(std::process::Stdio::null()).output();
        let output = output.await.expect("script is installed");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("All is well."), "{text}");
        assert_eq!(text.contains("\u{1b}[32mgood"), coloured, "{text:?}");
    }
    let piped = expect(check(&api.base_url()), "").await;
    assert!(!piped.0.contains('\u{1b}'), "{piped:?}");
}

#[tokio::test]
async fn no_secret_is_in_it() {
    let said = format!(r#"{{"message":"no such key: {KEY}"}}"#);
    let refusing = Peer::always(json("401 Unauthorized", said)).await;
    let repeating = Peer::always(json("401 Unauthorized", "no such token: hunter2")).await;
    let endpoint = format!("{}/v1/logs?token=hunter2", repeating.url());
    let headers = "authorization=Bearer%20hunter2";
    let proxy = "http://user:hunter2@127.0.0.1:9";
    for format in ["text", "json"] {
        let one = check(&refusing.url())
            .otlp("http/protobuf", &endpoint)
            .arg("--audit.actor-emails=hunter2@example.com")
            .env("OTEL_EXPORTER_OTLP_HEADERS", headers)
            .env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", proxy)
            .env("https_proxy", proxy);
        let with = |endpoint| check(&refusing.url()).env("ORGDATA_OTLP_ENDPOINT", endpoint);
        for launch in [
            one,
            check("https://user:hunter2@api.example.com"),
            check("https://user:hunter2#4@api.example.com"),
            check("https://api.example.com/?key=3@hunter2"),
            check("https://api.example.com/?key=hunter2"),
            with("http://user:hunter2@127.0.0.1"),
            with("http://user:hunter2@[oops"),
            with("user:hunter2@host:4317"),
        ] {
            let finished = launch.arg(&format!("--format={format}")).run().await;
            assert_eq!(finished.status, Some(2), "{}", finished.stderr);
            let shown = finished.stdout + &finished.stderr;
            let is_secret = shown.contains(KEY) || shown.contains("hunter2");
            assert!(!is_secret, "{shown}");
        }
    }
}

/// The line without what differs from run to run: numbers, and the width of columns.
fn masked(line: &str) -> String {
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut masked = line.replace(|letter: char| letter.is_ascii_digit(), "#");
    while masked.contains("##") {
        masked = masked.replace("##", "#");
    }
    masked
}

#[tokio::test]
async fn the_transcript_in_the_documentation_is_what_is_printed() {
    const PAGE: &str = include_str!("../../../docs/operations.md");
    let keys = vec![ApiKey::scoped(KEY, &["activity_logs:read"])];
    let config = Config {
        keys,
        ..organization()
    };
    let api = Simulator::spawn(config).await.unwrap();
    let url = format!("--api.base-url={}", api.base_url());
    // The port of the transcript may be in use here.
    let run = launch(&["check", &url, "--web.listen-address=127.0.0.1:0"]);
    let run = run.env("ORGDATA_API_KEY", KEY).run().await;
    let begin = "orgdata-exporter check --api.base-url http://127.0.0.1:8081\n";
    let (_, transcript) = PAGE.split_once(begin).unwrap();
    let (transcript, _) = transcript.split_once("\n```\n").unwrap();
    let lines = |text: &str| -> Vec<String> {
        let lines = text.lines();
        let is_port =
            |line: &&str| line.contains("--web.listen-address") || line.contains(" listen ");
        lines.filter(|line| !is_port(line)).map(masked).collect()
    };
    assert_eq!(lines(transcript), lines(&run.stdout));
    assert_eq!(run.status, Some(2));
}
