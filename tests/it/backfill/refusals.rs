//! What `backfill` does not do, and what it says instead: one line and a status.

use super::support::{World, done, fails};
use crate::support::binary::launch;

/// Wrong arguments, and words of the errors.
const WRONG: &str = "
 => --to
--to loki => --to | loki | otlp | openmetrics
--to otlp => --otlp.endpoint
--to otlp x.om --otlp.endpoint=http://[::1]:4318 => FILE
--to openmetrics => --to openmetrics FILE
--to openmetrics x.om => --until live | orgdata-exporter.db | --state.path
--to openmetrics x.om --until=yesterday => --until | yesterday | 24h
--to openmetrics x.om --until=oldest => --from oldest | --until
--to openmetrics x.om --from=1d --until=2d => --from | --until
--to openmetrics x.om --until=4h --step=10m => --step | 10m | 1m
--to openmetrics x.om --until=4h --label=job => --label | job=orgdata-exporter
--to openmetrics x.om --until=4h --label=actor=a => --label | the metric itself
--to openmetrics x.om --until=4h --label=job=a --label=job=b => --label job | twice
--to otlp --otlp.endpoint=http://[::1]:4318 --state.path=/dev/null/state.db => /dev/null/state.db | set --until
--to openmetrics /nonexistent/x.om --until=4h => /nonexistent | FILE
--to openmetrics /dev/null --until=4h => /dev/null | not a regular file
--to otlp --progress=/nonexistent/p.db --otlp.endpoint=http://[::1]:4318 => /nonexistent/p.db | --progress
";

#[tokio::test]
async fn wrong_settings_are_one_line_that_says_what_would_be_right() {
    let world = World::new(10).await;
    for line in WRONG.trim_matches('\n').lines() {
        let (arguments, words) = line.split_once(" => ").expect("an arrow");
        let finished = world.backfill(arguments).run().await;
        let line = finished.refusal(2);
        for words in words.split(" | ") {
            assert!(line.contains(words), "{words} is missing in: {line}");
        }
        if words.contains("--until") {
            let dry = world.backfill(&format!("{arguments} --dry-run"));
            assert_eq!(dry.run().await.refusal(2), line, "{arguments}");
        }
    }
}

#[tokio::test]
async fn a_progress_file_is_for_one_backfill_and_for_nothing_else() {
    let world = World::new(50).await;
    done(world.to_otlp("--from=9d")).await;
    done(world.to_otlp("--from=9d --log.level=error")).await;
    let filtered = "--from=9d --audit.actor-emails=ada@example.com";
    for other in ["--from=8d", "--from=9d --until=4h", filtered] {
        let words = ["belongs to backfill --from 9days", "set --progress"];
        let message = fails(world.to_otlp(other), 2, &words).await;
        assert!(!message.contains("ada@"), "{message}");
    }
    // An exporter does not take it, nor a backfill that of an exporter, and neither one that is in use.
    let progress = world.path("p.db");
    for command in ["check", "--shutdown.grace=1s"] {
        let exporter = launch(&[command, "--web.listen-address=127.0.0.1:0"])
            .env("ORGDATA_STATE_PATH", &progress.display().to_string())
            .env("ORGDATA_API_BASE_URL", "http://127.0.0.1:1")
            .env("ORGDATA_API_KEY", "demo-key");
        let refused = exporter.run().await;
        let text = format!("{}{}", refused.stdout, refused.stderr);
        assert_eq!(refused.status, Some(2), "{text}");
        assert!(text.contains("belongs to backfill --from 9days"), "{text}");
    }
    let mut running = world.exporter("state.db", &[]).await;
    let beside = world.to_otlp_with("state.db", "");
    fails(beside.clone(), 3, &["in use"]).await;
    running.stop().await;
    fails(beside, 2, &["belongs to http://"]).await;
}

#[tokio::test]
async fn a_refused_key_ends_it_at_once() {
    let world = World::new(10).await;
    for launch in [world.to_file("--until=4h"), world.to_otlp("--until=4h")] {
        let refused = launch.env("ORGDATA_API_KEY", "wrong");
        fails(refused, 1, &["401"]).await;
    }
    assert!(!world.path("h.om").exists());
}

/// It goes on until it is stopped, and a later run reads the rest, even beside an exporter that began since.
#[tokio::test]
async fn a_history_with_failing_pages_is_never_called_complete() {
    let world = World::new(500).await;
    let mut pages = 0;
    world.service().on_request(Box::new(move |_, _| {
        pages += 1;
        (pages > 2).then(|| "status=500".parse().expect("a fault"))
    }));
    for launch in [
        world.to_otlp("--api.page-size=100"),
        world.to_file("--until=4h"),
    ] {
        let mut running = launch.start();
        let is_failing = |line: &str| line.contains("cannot read history") && line.contains("500");
        running.stderr().until("a failure", is_failing).await;
        assert_eq!(running.stop().await, Some(1));
    }
    assert!(world.peer.taken_ids().is_empty() && !world.path("h.om").exists());
    world.service().on_request(Box::new(|_, _| None));
    let filtered = ["--audit.activity-types=DEAL_UPDATED"];
    let _exporter = world.exporter("state.db", &filtered).await;
    let continued = world.to_otlp("--api.page-size=100");
    done(continued.state(&world.path("state.db"))).await;
    assert_eq!(world.peer.taken_ids(), world.ids());
}

/// The counters of the state file are not where the history of another organization ends.
#[tokio::test]
async fn a_key_of_another_organization_than_the_file_that_sets_the_end_is_refused() {
    let world = World::new(500).await;
    let state = world.path("state.db");
    world.exporter("state.db", &[]).await.stop().await;
    let database = rusqlite::Connection::open(&state).expect("it opens");
    let sql = "UPDATE state SET organization = '9'";
    assert_eq!(database.execute(sql, []), Ok(1));
    drop(database);
    let words = ["organization 4711, but the", "file to 9"];
    fails(world.to_file("--until=live"), 1, &words).await;
    fails(world.to_otlp("").state(&state), 1, &words).await;
    // With another end it does not matter.
    done(world.to_file("--until=4h")).await;
}
