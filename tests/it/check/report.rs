//! The report: variables without effect, JSON, colours, the transcript of the documentation, and no secrets.

use std::path::Path;

use orgdata_exporter::simulator::{ApiKey, Fields};
use serde_json::Value;

use super::{Checked, check, expect, organization, service};
use crate::support::binary::{KEY, free_address, launch};
use crate::support::files::{masked, transcript};
use crate::support::http_peer::{Peer, Reply, json};
use crate::support::service::spawn;

#[tokio::test]
async fn a_variable_without_effect_is_a_warning() {
    let api = service().await;
    let launch = check(&api.base_url())
        // A flag of another command, which has no variable.
        .env("ORGDATA_TIMEOUT", "1s");
    // Kubernetes sets these for a Service of this name.
    let of_service = ["SERVICE_HOST", "SERVICE_PORT_METRICS", "PORT_80_TCP"];
    let launch = of_service.iter().fold(launch, |launch, name| {
        launch.env(&format!("ORGDATA_EXPORTER_{name}"), "10.0.0.1")
    });
    let expected = "warning variables: ORGDATA_TIMEOUT | unknown | --help";
    let text = expect(launch, expected).await.0;
    assert!(!text.contains('\u{1b}'), "colours are for terminals");
}

/// A report in JSON can be attached to a bug report.
#[tokio::test]
async fn json_has_no_ids_names_cursors_addresses_or_query_strings() {
    let api = service().await;
    let ticket = Fields::new().with("state", "ACME_STATE");
    api.add_ticket(ticket.with("type", "ACME_TYPE")).unwrap();
    let said = r#"{"message":"no deal 31337 of Acme for ada@example.com"}"#;
    let refusing = Peer::always(json("400 Bad Request", said)).await;
    let port = free_address().port().to_string();
    let of = |base_url: &str| {
        check(base_url)
            .state(Path::new("acme.db"))
            .flag("--web.listen-address", &format!("127.0.0.1:{port}"))
            .arg("--format=json")
    };
    let collector = "http://acme.localhost:1/v1/logs?token=acme";
    for launch in [
        of(&refusing.url()).otlp("http/protobuf", collector),
        of("https://acme.invalid").otlp("grpc", "acme:x"),
        of(&api.base_url())
            .env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", collector)
            .state(Path::new("/proc/acme"))
            .flag("--web.listen-address", "acme.invalid:1"),
        of(&api.base_url()).args(&[
            "--audit.actor-emails=ada@acme.example",
            "--audit.deal-ids=31337",
            "--otlp.redact=acme.path",
            "--tickets.open-states=ACME_STATE,OPEN",
        ]),
    ] {
        let shown = launch.run().await.stdout;
        let document: Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(document["version"], env!("CARGO_PKG_VERSION"));
        assert!(document["level"].is_string(), "{shown}");
        for finding in document["findings"].as_array().unwrap() {
            let keys = finding.as_object().unwrap().keys();
            assert!(keys.eq(["check", "level", "reason"]), "{finding}");
        }
        let findings = document["findings"].to_string().to_lowercase();
        let cursors = api.requests().last.into_iter();
        let cursors = cursors.filter_map(|request| Some(request.param("before")?.to_lowercase()));
        let private = "acme 31337 4711 127.0.0.1 localhost /proc @".split(' ');
        let private = private.chain([&*port]).map(str::to_owned).chain(cursors);
        for private in private {
            assert!(!findings.contains(&private), "{private} is in {shown}");
        }
    }
}

/// Wrong flags, wrong variables and what contradicts each other, each in a line of its own.
#[tokio::test]
async fn all_wrong_settings_are_reported_at_once() {
    let launch = check("https://api.example.com/v1")
        .env("ORGDATA_API_KEY", "")
        .env("ORGDATA_AUDIT_POLL_INTERVAL", "fast")
        .env("ORGDATA_TICKETS_ENABLED", "\"false\"")
        .args(&["--api.page-size", "1001", "--audit.pol-interval=1s"])
        .args(&["--otlp.redact=a..b", "--metrics.actor-label=hash"])
        .args(&["--web.config.file=missing.yml"]);
    let finished = launch.run().await;
    let checked = Checked(finished.stdout);
    let found = checked.findings();
    let lines = [
        "ORGDATA_TICKETS_ENABLED is in quotes",
        "fast' for '--audit.poll-interval",
        "1001' for '--api.page-size",
        "--audit.pol-interval",
        "remove /v1",
        "there is no API key",
        "'a..b' is not a path",
        "--metrics.actor-label=hash needs",
        "--web.config.file \"missing.yml\"",
    ];
    for words in lines {
        let is_it = |(level, check, said): &&(&str, &str, &str)| {
            (*level, *check) == ("bad", "settings") && said.contains(words)
        };
        let count = found.iter().filter(is_it).count();
        assert_eq!(count, 1, "{words}:\n{}", checked.0);
    }
    let ended = (finished.status, finished.stderr.as_str(), found.len());
    assert_eq!(ended, (Some(2), "", lines.len()), "{}", checked.0);
}

/// What is known is printed while a peer that does not answer is waited for.
#[tokio::test]
async fn a_line_is_printed_when_it_is_known() {
    let silent = Peer::always(Reply::Held(Vec::new())).await;
    let mut running = check(&silent.url()).start();
    let is_known = |line: &str| line.contains("can be created");
    running.stdout().until("the state file", is_known).await;
    assert!(running.runs());
    let known = running.stdout().text();
    assert!(!known.contains("audit-logs"), "{known}");
}

#[tokio::test]
async fn no_secret_is_in_it() {
    let said = format!(r#"{{"message":"no such key: {KEY}"}}"#);
    let refusing = Peer::always(json("401 Unauthorized", said)).await;
    let repeating = Peer::always(json("401 Unauthorized", "no such token: hunter2")).await;
    let endpoint = format!("{}/v1/logs?token=hunter2", repeating.url());
    let proxy = "http://user:hunter2@127.0.0.1:9";
    let with = |format| {
        check(&refusing.url())
            .otlp("http/protobuf", &endpoint)
            .args(&["--audit.actor-emails=hunter2@example.com", format])
            .env(
                "OTEL_EXPORTER_OTLP_HEADERS",
                "authorization=Bearer%20hunter2",
            )
            .env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", proxy)
            .env("https_proxy", proxy)
    };
    let wrong = |endpoint| check(&refusing.url()).env("ORGDATA_OTLP_ENDPOINT", endpoint);
    for launch in [
        with("--format=text"),
        with("--format=json"),
        check("https://user:hunter2#4@api.example.com"),
        check("https://api.example.com/?key=3@hunter2"),
        wrong("http://user:hunter2@[oops"),
        wrong("http://127.0.0.1:9/x#hunter2"),
    ] {
        let finished = launch.run().await;
        assert_ne!(finished.status, Some(0), "{}", finished.stderr);
        let shown = finished.stdout + &finished.stderr;
        let is_secret = shown.contains(KEY) || shown.contains("hunter2");
        assert!(!is_secret, "{shown}");
    }
}

#[tokio::test]
async fn the_transcript_in_the_documentation_is_what_is_printed() {
    const PAGE: &str = include_str!("../../../docs/operations.md");
    let mut config = organization();
    config.history = 1500;
    config.keys = vec![ApiKey::scoped(KEY, &["activity_logs:read"])];
    let api = spawn(config).await;
    let url = format!("--api.base-url={}", api.base_url());
    // The usual port may be in use on this machine.
    let run = launch(&["check", &url, "--web.listen-address=127.0.0.1:0"]);
    let run = run.env("ORGDATA_API_KEY", KEY).run().await;
    let printed = run.stdout.replace("127.0.0.1:0: free", ":10917: free");
    let command = "orgdata-exporter check --api.base-url http://127.0.0.1:8081";
    assert_eq!(transcript(PAGE, command), masked(&printed));
    assert_eq!(run.status, Some(2));
}
