//! The report: settings and their origin, JSON, colours, the transcript of the documentation, and no secrets.

use orgdata_exporter::simulator::{ApiKey, Config};
use serde_json::Value;

use super::{check, expect, organization, service};
use crate::support::binary::{KEY, launch};
use crate::support::files::assert_has;
use crate::support::http_peer::{Peer, json};
use crate::support::service::spawn;

#[tokio::test]
async fn settings_are_shown_with_their_origin_and_an_unknown_variable_is_a_warning() {
    let api = service().await;
    let launch = check(&api.base_url())
        .env("ORGDATA_AUDIT_POLL_INTERVAL", "20s")
        .env("ORGDATA_STATE_MAX_SIZE", "64MiB")
        .env("ORGDATA_TICKETS_MAX_AGE", "")
        // A flag of another command, which has no variable.
        .env("ORGDATA_TIMEOUT", "1s")
        .arg("--state.max-size=32MiB");
    // Kubernetes sets these for Services of these names.
    let of_services = "EXPORTER_SERVICE_HOST EXPORTER_SERVICE_PORT_METRICS EXPORTER_PORT_80_TCP PORT_SERVICE_HOST PORT_PORT";
    let launch = of_services.split(' ').fold(launch, |launch, name| {
        launch.env(&format!("ORGDATA_{name}"), "10.0.0.1")
    });
    let expected = "warning variables: ORGDATA_TIMEOUT | unknown | --help";
    let text = expect(launch, expected).await.0;
    assert!(!text.contains('\u{1b}'), "colours are for terminals");
    let lines = text.lines().take_while(|line| !line.is_empty());
    let rows: Vec<&str> = lines.collect();
    let url = api.base_url();
    for row in [
        &*format!("--api.base-url={url} (ORGDATA_API_BASE_URL)"),
        "--audit.poll-interval=20s (ORGDATA_AUDIT_POLL_INTERVAL)",
        "--state.max-size=32MiB (flag)",
    ] {
        assert!(rows.contains(&row), "{row:?} is missing in:\n{text}");
    }
    // Not given.
    for flag in ["--tickets.scan-interval", "--tickets.max-age", "--format"] {
        assert!(!text.contains(flag), "{text}");
    }
    for name in ["ORGDATA_EXPORTER_AUDIT_START", "ORGDATA_WEB_LISTEN_PORT"] {
        let words = format!("warning variables: {name} | unknown");
        expect(check(&api.base_url()).env(name, "1"), &words).await;
    }
}

#[tokio::test]
async fn json_is_one_document_with_the_same_fields_everywhere() {
    let api = service().await;
    let launch = check(&api.base_url()).env("ORGDATA_API_KEY", "not-the-key");
    let finished = launch.arg("--format=json").run().await;
    assert_eq!((finished.status, finished.stderr.as_str()), (Some(2), ""));
    let document: Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_has!(document, { "version": env!("CARGO_PKG_VERSION"), "level": "bad" });
    let settings = document["settings"].as_array().unwrap();
    let url = format!("--api.base-url={} (ORGDATA_API_BASE_URL)", api.base_url());
    assert!(settings.contains(&url.into()), "{settings:?}");
    for finding in document["findings"].as_array().unwrap() {
        let keys = finding.as_object().unwrap().keys();
        assert!(keys.eq(["check", "level", "said"]), "{finding}");
    }
    let mut findings = document["findings"].as_array().unwrap().iter();
    let key = findings.find(|finding| finding["check"] == "key").unwrap();
    assert!(key["said"].to_string().contains("HTTP 401"), "{key}");
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
    let api = spawn(config).await;
    let url = format!("--api.base-url={}", api.base_url());
    let run = launch(&["check", &url]).env("ORGDATA_API_KEY", KEY);
    let run = run.run().await;
    let begin = "orgdata-exporter check --api.base-url http://127.0.0.1:8081\n";
    let (_, transcript) = PAGE.split_once(begin).unwrap();
    let (transcript, _) = transcript.split_once("\n```\n").unwrap();
    let lines = |text: &str| text.lines().map(masked).collect::<Vec<_>>();
    assert_eq!(lines(transcript), lines(&run.stdout));
    assert_eq!(run.status, Some(2));
}
