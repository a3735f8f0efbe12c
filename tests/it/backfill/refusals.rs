//! What `backfill` does not do, and what it says instead: one line and a status.

use super::support::{World, done, fails, hours};
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
--to openmetrics x.om --until=oldest => --until oldest
--to openmetrics x.om --from=1d --until=2d => --from | --until
--to openmetrics x.om --until=1h => --until | three hours | --allow-recent
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
async fn a_refused_key_ends_it_at_once_and_a_service_that_is_away_after_the_patience() {
    let world = World::new(10).await;
    let refused = world.to_file("--until=4h").env("ORGDATA_API_KEY", "wrong");
    let refused = refused.run().await;
    assert!(refused.refusal(1).contains("401"), "{refused:?}");
    let away = world.to_file("--until=4h --patience=1s");
    let away = away.env("ORGDATA_API_BASE_URL", "http://127.0.0.1:1");
    fails(away, 1, &["--patience"]).await;
    assert_eq!(world.files(), 0, "nothing is left of it");
}

#[tokio::test]
async fn a_progress_file_is_for_one_backfill_and_for_nothing_else() {
    let world = World::new(50).await;
    done(world.to_otlp("--from=9d")).await;
    done(world.to_otlp("--from=9d --rate=5")).await;
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

/// A page that cannot be read stays missing, even after the seven days after which an exporter reports a gap.
#[tokio::test]
async fn a_history_with_failing_pages_is_never_called_complete() {
    let world = World::new(500).await;
    let deep_pages_fail = || {
        let mut pages = 0;
        world.service().on_request(Box::new(move |_, _| {
            pages += 1;
            (pages > 2).then(|| "status=500".parse().expect("a fault"))
        }));
    };
    let flags = "--until=4h --api.page-size=100 --patience=1s";
    for _ in 0..2 {
        deep_pages_fail();
        let words = ["--patience", "run the same command again"];
        fails(world.to_otlp(flags), 1, &words).await;
        assert!(world.peer.taken_ids().is_empty());
        let database = rusqlite::Connection::open(world.path("p.db")).expect("it opens");
        let aged = jiff::Timestamp::now() - hours(8 * 24);
        let read = database.query_row("SELECT tail FROM state", [], |row| row.get::<_, String>(0));
        let mut tail: serde_json::Value =
            serde_json::from_str(&read.expect("a state")).expect("JSON");
        tail["ranges"][0]["opened_at"] = aged.to_string().into();
        assert_eq!(
            database.execute("UPDATE state SET tail = ?1", [tail.to_string()]),
            Ok(1)
        );
    }
    deep_pages_fail();
    fails(world.to_file(flags), 1, &["nothing was written"]).await;
    assert!(!world.path("h.om").exists());
    world.service().on_request(Box::new(|_, _| None));
    done(world.to_otlp("--until=4h")).await;
    assert_eq!(world.peer.taken_ids(), world.ids());
}

/// The pages above it can be read, again and again.
#[tokio::test]
async fn a_page_that_is_always_refused_ends_it_after_the_patience() {
    let world = World::new(500).await;
    world.service().on_request(Box::new(|request, _| {
        let is_deep = request.raw_query.contains("before=");
        is_deep.then(|| "status=400".parse().expect("a fault"))
    }));
    let flags = "--until=4h --api.page-size=100 --patience=1s";
    for launch in [world.to_otlp(flags), world.to_file(flags)] {
        fails(launch, 1, &["HTTP 400", "--patience"]).await;
    }
}

/// The counters of the state file are not where the history of another organization ends.
#[tokio::test]
async fn a_key_of_another_organization_than_the_file_that_sets_the_end_is_refused() {
    let world = World::new(500).await;
    let state = world.path("state.db");
    world.exporter("state.db", &[]).await.stop().await;
    let belongs_to_another = |file| {
        let database = rusqlite::Connection::open(file).expect("it opens");
        let sql = "UPDATE state SET organization = '9'";
        assert_eq!(database.execute(sql, []), Ok(1));
    };
    belongs_to_another(&state);
    let words = ["organization 4711, but the state file to 9", "--state.path"];
    let flags = "--allow-recent --api.page-size=100";
    fails(world.to_file(flags), 1, &words).await;
    fails(world.to_otlp("").state(&state), 1, &words).await;
    // With another end it does not matter.
    done(world.to_file("--until=4h")).await;

    let mut pages = 0;
    world.service().on_request(Box::new(move |_, _| {
        pages += 1;
        (pages > 2).then(|| "status=500".parse().expect("a fault"))
    }));
    let flags = "--until=4h --api.page-size=100 --patience=1s";
    let other = |arguments| world.to_otlp_with("q.db", arguments);
    fails(other(flags), 1, &["--patience"]).await;
    world.service().on_request(Box::new(|_, _| None));
    belongs_to_another(&world.path("q.db"));
    let words = ["the progress file to 9", "set --progress to another file"];
    fails(other(flags), 1, &words).await;
}

#[tokio::test]
async fn a_progress_file_that_cannot_be_written_is_not_called_that_of_the_exporter() {
    let world = World::new(500).await;
    world.exporter("state.db", &[]).await.stop().await;
    let state = world.path("state.db");
    let flags = "--api.page-size=100 --patience=1s";
    world.fault("status=500");
    fails(world.to_otlp(flags).state(&state), 1, &["--patience"]).await;
    world.service().clear_faults();
    let database = rusqlite::Connection::open(world.path("p.db")).expect("it opens");
    let sql =
        "CREATE TRIGGER fails BEFORE INSERT ON outbox BEGIN SELECT RAISE(ABORT, 'injected'); END";
    database.execute_batch(sql).expect("it can be written");
    drop(database);
    let words = ["cannot use the progress file: injected"];
    fails(world.to_otlp(flags).state(&state), 1, &words).await;
}

/// Times that are relative are those of the first run.
#[tokio::test]
async fn a_backfill_that_began_long_ago_continues() {
    let world = World::new(500).await;
    let until = jiff::Timestamp::now() - hours(4);
    let flags = |from| format!("--from={from} --until={until} --api.page-size=100 --patience=1s");
    let mut pages = 0;
    world.service().on_request(Box::new(move |_, _| {
        pages += 1;
        (pages > 2).then(|| "status=500".parse().expect("a fault"))
    }));
    fails(world.to_otlp(&flags("30d")), 1, &["--patience"]).await;
    // As if `--from=1h` had been 30 days ago.
    let database = rusqlite::Connection::open(world.path("p.db")).expect("it opens");
    let sql = "UPDATE state SET base_url = replace(base_url, '--from 30days', '--from 1h')";
    assert_eq!(database.execute(sql, []), Ok(1));
    drop(database);
    world.service().on_request(Box::new(|_, _| None));
    done(world.to_otlp(&flags("1h"))).await;
    assert!(!world.peer.taken_ids().is_empty());
}

/// Where it ends was decided by the first run.
#[tokio::test]
async fn a_backfill_that_was_interrupted_continues_beside_a_new_exporter() {
    let world = World::new(500).await;
    let mut pages = 0;
    world.service().on_request(Box::new(move |_, _| {
        pages += 1;
        (pages > 2).then(|| "status=500".parse().expect("a fault"))
    }));
    let flags = "--api.page-size=100 --patience=1s";
    fails(world.to_otlp(flags), 1, &["--patience"]).await;
    world.service().on_request(Box::new(|_, _| None));
    let _exporter = world
        .exporter("state.db", &["--audit.activity-types=DEAL_UPDATED"])
        .await;
    done(world.to_otlp(flags).state(&world.path("state.db"))).await;
    assert_eq!(world.peer.taken_ids(), world.ids());
}
