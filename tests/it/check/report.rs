//! The report itself: columns, JSON, colours, origins, and secrets that are in none of them.

use orgdata_exporter::simulator::{Running, Simulator};
use serde_json::Value;

use super::support::{Checked, check, organization};
use crate::support::binary::{KEY, launch};

async fn service() -> Running {
    Simulator::spawn(organization()).await.expect("a simulator")
}

#[tokio::test]
async fn settings_are_shown_with_their_origin() {
    let sim = service().await;
    let launch = check(&sim.base_url())
        .env("ORGDATA_AUDIT_POLL_INTERVAL", "20s")
        .env("ORGDATA_STATE_MAX_SIZE", "64MiB");
    let checked = Checked::of(
        launch
            .arg("--state.max-size=32MiB")
            .env("OTEL_SERVICE_NAME", "audit"),
    )
    .await;
    let rows: Vec<Vec<&str>> = checked
        .text
        .lines()
        .take_while(|line| !line.is_empty())
        .map(|line| line.split_whitespace().collect())
        .collect();
    let url = sim.base_url();
    for row in [
        &["--api.base-url", &url, "variable", "ORGDATA_API_BASE_URL"][..],
        &[
            "--audit.poll-interval",
            "20s",
            "variable",
            "ORGDATA_AUDIT_POLL_INTERVAL",
        ],
        &["--state.max-size", "32MiB", "flag"],
        &["--tickets.enabled", "true", "default"],
        &["ORGDATA_API_KEY", "(not", "shown)", "variable"],
        &["OTEL_SERVICE_NAME", "audit", "variable"],
    ] {
        assert!(
            rows.iter().any(|shown| shown == row),
            "{row:?} is missing in:\n{}",
            checked.text
        );
    }
    // Neither given nor important.
    assert!(
        !checked.text.contains("--tickets.scan-interval") && !checked.text.contains("--format"),
        "{}",
        checked.text
    );
    let origins: Vec<usize> = checked
        .text
        .lines()
        .take(rows.len())
        .filter_map(|line| line.rfind("  "))
        .collect();
    assert!(
        origins.windows(2).all(|pair| pair[0] == pair[1]),
        "{}",
        checked.text
    );
}

#[tokio::test]
async fn json_is_one_document_with_the_same_fields_everywhere() {
    let sim = service().await;
    let finished = check(&sim.base_url())
        .arg("--format=json")
        .env("ORGDATA_API_KEY", "not-the-key")
        .run()
        .await;
    assert_eq!((finished.status, finished.stderr.as_str()), (Some(2), ""));
    let document: Value = serde_json::from_str(&finished.stdout).expect("one document");
    let keys = |value: &Value| {
        value
            .as_object()
            .expect("an object")
            .keys()
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(
        keys(&document),
        ["version", "level", "settings", "findings"]
    );
    assert_eq!(
        (&document["version"], &document["level"]),
        (&env!("CARGO_PKG_VERSION").into(), &"bad".into())
    );
    let of = |name: &str| document[name].as_array().expect("a list").clone();
    assert!(
        of("settings")
            .iter()
            .all(|setting| keys(setting) == ["name", "value", "from", "variable"])
    );
    assert!(
        of("findings")
            .iter()
            .all(|finding| keys(finding) == ["check", "level", "said", "advice"])
    );
    let key = of("findings")
        .into_iter()
        .find(|finding| finding["check"] == "key")
        .expect("a finding");
    assert_eq!(key["level"], "bad");
    assert!(
        key["said"].as_str().expect("text").contains("HTTP 401")
            && key["advice"].as_str().expect("text").contains("make a key")
    );
    let good = of("findings")
        .into_iter()
        .find(|finding| finding["level"] == "good")
        .expect("a finding");
    assert_eq!(good["advice"], Value::Null);
}

#[tokio::test]
async fn a_pipe_gets_no_colours() {
    let sim = service().await;
    let checked = Checked::of(check(&sim.base_url())).await;
    assert!(!checked.text.contains('\u{1b}'), "{:?}", checked.text);
}

/// `script` of util-linux is a terminal to what it runs.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_terminal_gets_colours_unless_they_are_not_wanted() {
    let sim = service().await;
    for (no_color, coloured) in [(None, true), (Some("1"), false)] {
        let mut command = tokio::process::Command::new("script");
        command
            .args([
                "-qec",
                &format!("{} check", env!("CARGO_BIN_EXE_orgdata-exporter")),
                "/dev/null",
            ])
            .env_clear()
            .env("PATH", "/usr/bin:/bin");
        command
            .env("TERM", "xterm")
            .env("ORGDATA_STATE_PATH", ":memory:")
            .env("ORGDATA_WEB_LISTEN_ADDRESS", "127.0.0.1:0");
        command
            .env("ORGDATA_API_BASE_URL", sim.base_url())
            .env("ORGDATA_API_KEY", KEY)
            .stdin(std::process::Stdio::null());
        if let Some(value) = no_color {
            command.env("NO_COLOR", value);
        }
        let output = command.output().await.expect("there is script");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("All is well."), "{text}");
        assert_eq!(text.contains("\u{1b}[32mgood"), coloured, "{text:?}");
    }
}

#[tokio::test]
async fn no_secret_is_in_it() {
    let sim = service().await;
    for format in ["text", "json"] {
        let launch = check(&sim.base_url())
            .arg(&format!("--format={format}"))
            .arg("--otlp.endpoint=http://127.0.0.1:9/v1/logs?token=hunter2")
            .arg("--audit.actor-emails=hunter2@example.com")
            .env(
                "OTEL_EXPORTER_OTLP_HEADERS",
                "authorization=Bearer%20hunter2",
            )
            .env(
                "OTEL_EXPORTER_OTLP_LOGS_HEADERS",
                "authorization=Bearer%20hunter2",
            )
            .env(
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
                "http://user:hunter2@127.0.0.1:9",
            )
            .env("https_proxy", "http://user:hunter2@127.0.0.1:9");
        let finished = launch.run().await;
        assert_eq!(finished.status, Some(2), "{}", finished.stderr);
        for secret in [KEY, "hunter2"] {
            assert!(
                !finished.stdout.contains(secret) && !finished.stderr.contains(secret),
                "{}",
                finished.stdout
            );
        }
    }
    for url in [
        "--api.base-url=https://user:hunter2@api.example.com",
        "--api.base-url=https://api.example.com/?key=hunter2",
    ] {
        let finished = launch(&["check", url])
            .env("ORGDATA_API_KEY", KEY)
            .run()
            .await;
        assert!(
            finished.status == Some(2) && !finished.stdout.contains("hunter2"),
            "{}",
            finished.stdout
        );
    }
    for endpoint in [
        "http://user:hunter2@127.0.0.1",
        "http://user:hunter2@[oops",
        "user:hunter2@host:4317",
    ] {
        let finished = check(&sim.base_url())
            .arg(&format!("--otlp.endpoint={endpoint}"))
            .run()
            .await;
        assert!(
            finished.status == Some(2) && !finished.stdout.contains("hunter2"),
            "{}",
            finished.stdout
        );
    }
}

#[tokio::test]
async fn a_key_that_the_service_repeats_is_not_shown() {
    let body = format!(r#"{{"message":"no such key: {KEY}"}}"#);
    let peer = crate::support::http_peer::Peer::always(crate::support::http_peer::json(
        "401 Unauthorized",
        body,
    ))
    .await;
    let checked = Checked::of(check(&peer.url())).await;
    checked.assert_only(&[("bad", "key", &["no such key: [secret]"])]);
    assert!(!checked.text.contains(KEY), "{}", checked.text);
}

#[tokio::test]
async fn a_variable_with_a_wrong_name_is_a_warning() {
    let sim = service().await;
    let launch = check(&sim.base_url()).env("ORGDATA_AUDIT_POL_INTERVAL", "1s");
    // What Kubernetes sets for Services of these names.
    let launch = launch
        .env("ORGDATA_EXPORTER_SERVICE_HOST", "10.0.0.1")
        .env("ORGDATA_PORT_80_TCP", "tcp://10.0.0.1:80");
    Checked::of(launch).await.assert_only(&[(
        "warning",
        "variables",
        &["ORGDATA_AUDIT_POL_INTERVAL", "does nothing", "--help"],
    )]);
}
