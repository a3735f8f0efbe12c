//! What `backfill` does not do, and what it says instead: one line and a status.

use std::path::Path;

use orgdata_exporter::simulator::Running;

use super::support::{backfill, hours, ids, live, to_file, to_otlp, world};
use crate::support::binary::launch;
use crate::support::collector_peer::Peer;

async fn refused(simulator: &Running, arguments: &[&str], parts: &[&str]) {
    let finished = backfill(simulator, arguments).run().await;
    let line = finished.refusal(2);
    for part in parts {
        assert!(line.contains(part), "{part} is missing in: {line}");
    }
}

#[tokio::test]
async fn wrong_settings_are_one_line_that_says_what_would_be_right() {
    let simulator = world(10).await;
    for (arguments, parts) in [
        (&[][..], &["--to"][..]),
        (&["--to", "loki"], &["--to", "loki", "otlp", "openmetrics"]),
        (&["--to", "otlp"], &["--otlp.endpoint"]),
        (
            &[
                "--to",
                "otlp",
                "x.om",
                "--otlp.endpoint=http://localhost:4318",
            ],
            &["FILE"],
        ),
        (&["--to", "openmetrics"], &["--to openmetrics FILE"]),
        (
            &["--to", "openmetrics", "x.om", "--until=yesterday"],
            &["--until", "yesterday", "24h"],
        ),
        (
            &["--to", "openmetrics", "x.om", "--until=oldest"],
            &["--until oldest"],
        ),
        (
            &["--to", "openmetrics", "x.om", "--from=1d", "--until=2d"],
            &["--from", "--until"],
        ),
        (
            &["--to", "openmetrics", "x.om", "--until=1h"],
            &["--until", "three hours", "--allow-recent"],
        ),
        (
            &["--to", "openmetrics", "x.om"],
            &["--until live", "orgdata-exporter.db", "--state.path"],
        ),
        (
            &["--to", "openmetrics", "x.om", "--until=4h", "--step=10m"],
            &["--step", "10m", "1m"],
        ),
        (
            &["--to", "openmetrics", "x.om", "--until=4h", "--label=job"],
            &["--label", "job=orgdata-exporter"],
        ),
        (
            &[
                "--to",
                "openmetrics",
                "x.om",
                "--until=4h",
                "--label=job=a",
                "--label=job=b",
            ],
            &["--label job", "twice"],
        ),
        (
            &["--to", "openmetrics", "/nonexistent/x.om", "--until=4h"],
            &["/nonexistent", "FILE"],
        ),
        (
            &[
                "--to",
                "otlp",
                "--progress=/nonexistent/p.db",
                "--otlp.endpoint=http://localhost:4318",
            ],
            &["/nonexistent/p.db", "--progress"],
        ),
    ] {
        refused(&simulator, arguments, parts).await;
    }
}

#[tokio::test]
async fn a_key_that_is_refused_ends_it_at_once_and_a_service_that_is_away_after_the_patience() {
    let simulator = world(10).await;
    let file = tempfile::tempdir().expect("a directory");
    let path = file.path().join("x.om");
    let finished = to_file(&simulator, &path, &["--until=4h"])
        .env("ORGDATA_API_KEY", "wrong")
        .run()
        .await;
    assert!(finished.refusal(1).contains("401"), "{finished:?}");
    let away = to_file(&simulator, &path, &["--until=4h", "--patience=1s"])
        .env("ORGDATA_API_BASE_URL", "http://127.0.0.1:1")
        .run()
        .await;
    assert!(away.refusal_with_log(1).contains("--patience"), "{away:?}");
    assert_eq!(
        std::fs::read_dir(file.path()).expect("a directory").count(),
        0,
        "nothing is left of it"
    );
}

#[tokio::test]
async fn a_progress_file_is_for_one_backfill_and_for_nothing_else() {
    let (simulator, peer) = (world(50).await, Peer::grpc(4 << 20).await);
    let directory = tempfile::tempdir().expect("a directory");
    let (progress, state) = (
        directory.path().join("p.db"),
        directory.path().join("state.db"),
    );
    let line = async |file: &Path, arguments: &[&str], status| {
        to_otlp(&simulator, &peer, file, arguments)
            .run()
            .await
            .refusal(status)
            .to_owned()
    };
    assert_eq!(
        to_otlp(&simulator, &peer, &progress, &["--from=9d"])
            .run()
            .await
            .status,
        Some(0)
    );
    assert_eq!(
        to_otlp(&simulator, &peer, &progress, &["--from=9d", "--rate=5"])
            .run()
            .await
            .status,
        Some(0),
        "this is no other backfill"
    );
    for other in [
        "--from=8d",
        "--until=4h",
        "--audit.activity-types=DEAL_UPDATED",
    ] {
        let arguments = if other.starts_with("--from") {
            vec![other]
        } else {
            vec!["--from=9d", other]
        };
        let line = line(&progress, &arguments, 2).await;
        assert!(
            line.contains("belongs to backfill --from 9days") && line.contains("--progress"),
            "{line}"
        );
    }
    // Neither takes the other's file, and neither takes one that is in use.
    let exporter = launch(&[
        "--state.path",
        &progress.display().to_string(),
        "--web.listen-address=127.0.0.1:0",
    ])
    .env("ORGDATA_API_BASE_URL", &simulator.base_url())
    .env("ORGDATA_API_KEY", "demo-key")
    .run()
    .await;
    assert!(exporter.refusal(2).contains("backfill"), "{exporter:?}");
    let mut running = live(&simulator, &state).start();
    running.until_value("orgdata_up{loop=\"audit\"}", 1.0).await;
    assert!(line(&state, &[], 3).await.contains("in use"));
    running.stop().await;
    assert!(line(&state, &[], 2).await.contains("belongs to http://"));
}

/// A page that cannot be read stays missing, even after the seven days after which an exporter reports a gap.
#[tokio::test]
async fn a_history_with_failing_pages_is_never_called_complete() {
    let (simulator, peer) = (world(500).await, Peer::grpc(4 << 20).await);
    let directory = tempfile::tempdir().expect("a directory");
    let (progress, file) = (directory.path().join("p.db"), directory.path().join("h.om"));
    let deep_pages_fail = || {
        let mut pages = 0;
        simulator.simulator().on_request(Box::new(move |_, _| {
            pages += 1;
            (pages > 2).then(|| "500".parse().expect("a fault"))
        }));
    };
    let flags = ["--until=4h", "--api.page-size=100", "--patience=1s"];
    for days in [0, 8] {
        deep_pages_fail();
        let failed = to_otlp(&simulator, &peer, &progress, &flags).run().await;
        let line = failed.refusal_with_log(1);
        assert!(
            line.contains("--patience") && line.contains("run the same command again"),
            "{days}: {line}"
        );
        assert!(peer.taken_ids().is_empty());
        let database = rusqlite::Connection::open(&progress).expect("it opens");
        let aged = jiff::Timestamp::now() - hours(8 * 24);
        let sql = "UPDATE state SET tail = json_set(tail, '$.ranges[0].opened_at', ?1)";
        assert_eq!(database.execute(sql, [aged.to_string()]), Ok(1));
    }
    deep_pages_fail();
    let failed = to_file(&simulator, &file, &flags).run().await;
    assert!(
        failed.refusal_with_log(1).contains("nothing was written") && !file.exists(),
        "{failed:?}"
    );
    simulator.simulator().on_request(Box::new(|_, _| None));
    let done = to_otlp(&simulator, &peer, &progress, &flags).run().await;
    assert_eq!(done.status, Some(0), "{done:?}");
    assert_eq!(peer.taken_ids(), ids(&simulator, |_| true));
}
