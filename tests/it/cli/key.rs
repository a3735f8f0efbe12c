//! The API key: awaited, rotated, refused without being shown, and never in a log.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use orgdata_exporter::simulator::{ApiKey, Config, Running};

use super::{ONE_ENTRY, TICKETS_UP, UP};
use crate::support::binary::{KEY, exporter, until};
use crate::support::http_peer::{NO_TICKETS, Peer, answer, json};
use crate::support::service::spawn;

/// A simulated organization with this key alone.
async fn with_key(key: ApiKey) -> Running {
    let mut config = Config::quiet();
    (config.history, config.keys) = (3, vec![key]);
    spawn(config).await
}

#[tokio::test]
async fn a_key_that_is_mounted_late_or_rotated_works_without_a_restart() {
    let api = with_key(ApiKey::scoped("the-new-key", &["*"])).await;
    let launch = exporter(&api.base_url())
        .env("ORGDATA_API_KEY", "")
        .arg("--api.key-file=mounted/key");
    let mounted = launch.dir().join("mounted");
    std::fs::create_dir_all(mounted.join("..data")).unwrap();
    let mut exporter = launch.start();
    exporter
        .logs("cannot read the API key file mounted/key")
        .await;
    std::fs::write(mounted.join("key"), "the-old-key").unwrap();
    let page = until("the error on the landing page", async || {
        let (_, page) = exporter.get("/").await;
        page.contains("unauthorized; the log says more")
            .then_some(page)
    })
    .await;
    for which in [UP, TICKETS_UP] {
        exporter.until_value(which, 0.0).await;
    }
    for path in ["/-/healthy", "/-/ready"] {
        assert_eq!(exporter.get(path).await.0, 200, "{path}");
    }
    // An editor ends the line.
    std::fs::write(mounted.join("key"), "the-new-key\r\n").unwrap();
    for which in [UP, TICKETS_UP] {
        exporter.until_value(which, 1.0).await;
    }
    assert_eq!(exporter.stop().await, Some(0));
    let log = exporter.stderr().text();
    assert!(log.contains("HTTP 401"), "{log}");
    for key in ["the-old-key", "the-new-key"] {
        assert!(!log.contains(key) && !page.contains(key), "{log}{page}");
    }
}

#[tokio::test]
async fn a_key_file_that_all_users_can_read_is_a_warning_unless_it_is_of_a_volume_of_kubernetes() {
    let api = with_key(ApiKey::scoped(KEY, &["*"])).await;
    for (name, mode, warnings) in [
        ("key", 0o644, 1),
        ("key", 0o640, 0),
        ("..2026/key", 0o644, 0),
    ] {
        let launch = exporter(&api.base_url())
            .env("ORGDATA_API_KEY", "")
            .arg("--api.key-file=mounted/key");
        let mounted = launch.dir().join("mounted");
        let file = mounted.join(name);
        std::fs::create_dir_all(file.with_file_name("")).unwrap();
        std::fs::write(&file, KEY).unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        if name != "key" {
            symlink("..2026", mounted.join("..data")).unwrap();
            symlink("..data/key", mounted.join("key")).unwrap();
        }
        let exporter = launch.start();
        exporter.logs("listening").await;
        exporter.until_value(UP, 1.0).await;
        let count = exporter
            .stderr()
            .count("every user of this machine can read");
        assert_eq!(count, warnings, "{name} {mode:o}");
    }
}

#[tokio::test]
async fn a_missing_scope_is_named_and_the_other_loop_works() {
    let api = with_key(ApiKey::scoped(KEY, &["tickets:read"])).await;
    let exporter = exporter(&api.base_url()).start();
    exporter.until_value(TICKETS_UP, 1.0).await;
    exporter.logs("HTTP 403 | activity_logs:read").await;
    assert_eq!(exporter.value(UP).await, Some(0.0));
}

#[tokio::test]
async fn secrets_are_in_no_line_page_or_metric() {
    let token = "--otlp.endpoint=http://127.0.0.1:1/v1/logs?token=open-sesame";
    let traces = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
    // A request that fails has more to say.
    let api = Peer::start(|seen, number| match seen.target() {
        _ if number <= 2 => answer("503 Service Unavailable", &[], format!("not with {KEY}")),
        target if target.contains("tickets") => json("200 OK", NO_TICKETS),
        _ => json("200 OK", ONE_ENTRY),
    })
    .await;
    let exporter = exporter(&api.url())
        .args(&["--log.level=debug", "--otlp.protocol=http/protobuf", token])
        .env(traces, "http://me:hunter2@[oops")
        .start();
    exporter.until_value(UP, 1.0).await;
    for said in ["503", "http://127.0.0.1:1/v1/logs"] {
        exporter.logs(said).await;
    }
    let without_spans = format!("level=warn | cannot export spans | {traces}");
    exporter.logs(&without_spans).await;
    let log = exporter.stderr().text();
    for text in [log, exporter.get("/").await.1, exporter.metrics().await] {
        for secret in ["sesame", "hunter2", KEY] {
            assert!(!text.contains(secret), "{text}");
        }
    }
}
