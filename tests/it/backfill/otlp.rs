//! `--to otlp`: every entry of the range, once, whatever happens.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use orgdata_exporter::simulator::{Config, Fault, Fields, KeyReading};

use super::support::{World, done, fails, hours};
use crate::support::binary::{launch, until};
use crate::support::collector_peer::Peer;

fn instance(stdout: &str) -> &str {
    let (_, rest) = stdout.split_once("service.instance.id ").expect("its name");
    rest.split([';', '\n']).next().expect("a word")
}

/// The resource of the last request.
fn resource(peer: &Peer) -> String {
    let last = peer.script.last.lock().expect("lock").clone();
    format!("{:?}", last.expect("a request").resource_logs[0].resource)
}

#[tokio::test]
async fn a_range_is_delivered_once_from_the_oldest_to_the_newest() {
    let world = World::new(2_500).await;
    // A first response that is late makes no entry a live one.
    world.service().add_events(3);
    let delay: Fault = "delay=2500ms".parse().expect("a fault");
    world.service().fault(delay.once());
    let (from, end) = (world.hours_ago(72), world.hours_ago(24));
    let flags = format!("--from={from} --until={end} --api.page-size=100");
    let stdout = done(world.to_otlp(&flags)).await;
    let expected = world.entries(|at| at >= from && at < end);
    let expected: Vec<String> = expected.into_iter().map(|entry| entry.id).collect();
    assert!(expected.len() > 500);
    assert_eq!(world.peer.taken_ids(), expected);
    let words = format!("Delivered {} log records", expected.len());
    assert!(stdout.starts_with(&words), "{stdout}");

    // A second run has nothing to do, and requests nothing.
    world.service().clear_requests();
    assert!(done(world.to_otlp(&flags)).await.contains("complete"));
    assert_eq!(world.peer.taken_ids().len(), expected.len());
    assert_eq!(world.service().requests().audit, 0);
}

/// The readings of what the specification leaves open, each with a service that fails now and then, and with entries
/// that arrive meanwhile.
#[tokio::test]
async fn every_reading_of_the_specification_and_a_failing_service_change_nothing() {
    let names = ["newest", "inclusive", "capped", "arrival", "too large"];
    join_all(names.map(changes_nothing)).await;
}

async fn changes_nothing(name: &str) {
    let mut config = Config {
        history: 600,
        ..Config::quiet()
    };
    let readings = &mut config.readings;
    match name {
        "newest" => (readings.after_newest, readings.after_inclusive) = (true, true),
        "inclusive" => readings.before_inclusive = true,
        "capped" => (readings.page_cap, readings.no_date) = (Some(60), true),
        "arrival" => readings.key = KeyReading::Arrival,
        _ => {}
    }
    let world = World::with(config).await;
    let service = world.service();
    service.add_late(20, hours(30));
    let (expected, ids) = (world.truth(|_| true), world.ids());
    let end = service.now() + hours(1) / 3600;
    if name == "too large" {
        // A page that the service cannot make is requested in halves.
        service.fault("too-large=60".parse().expect("a fault"));
    } else {
        for (kind, every) in [
            ("status=500", 9),
            ("truncated-json", 11),
            ("duplicate", 3),
            ("empty-page", 5),
        ] {
            let fault: Fault = kind.parse().expect("a fault");
            service.fault(fault.every(every));
        }
    }
    service.advance(hours(1));
    let newer = service.clone();
    service.on_request(Box::new(move |_, _| {
        newer.add_events(2);
        None
    }));
    let flags = format!("--until={end} --api.page-size=100");
    done(world.to_file(&flags)).await;
    assert_eq!(world.totals(), expected, "{name}");
    done(world.to_otlp(&flags)).await;
    let taken = world.peer.taken_ids();
    let unique: BTreeSet<&String> = taken.iter().collect();
    assert_eq!(unique, ids.iter().collect(), "{name}: everything");
    assert_eq!(unique.len(), taken.len(), "{name}: nothing twice");
}

#[tokio::test]
async fn what_is_refused_or_unreadable_is_a_dead_letter_and_can_be_sent_again() {
    let world = World::new(300).await;
    let bad = world.ids().swap_remove(100);
    world.peer.refuse(&bad);
    let odd = Fields::new().unchecked().with("id", "odd");
    let odd = odd.with("type", serde_json::Value::Null);
    world.service().add_entry(&odd).expect("unchecked");
    let path = format!("--state.path={}", world.path("p.db").display());
    let stdout = done(world.to_otlp("")).await;
    for words in [
        "Delivered 299",
        "2 could not be delivered",
        "dead-letters list",
    ] {
        assert!(stdout.contains(words), "{stdout}");
    }
    let listed = done(launch(&["dead-letters", "list", &path])).await;
    assert!(listed.contains(&bad) && listed.contains("odd"), "{listed}");

    world.peer.script.bad.lock().expect("lock").clear();
    let replay = launch(&["dead-letters", "replay", "--all", &path]);
    assert!(done(replay).await.starts_with("2 queued"));
    let stdout = done(world.to_otlp("")).await;
    assert!(stdout.contains("Delivered 2 log records"), "{stdout}");
    let taken = world.peer.taken_ids();
    assert!(taken.contains(&bad) && taken.contains(&"odd".to_owned()));
}

#[tokio::test]
async fn beside_an_exporter_it_sends_what_that_one_does_not() {
    const SENT: &str = "orgdata_otlp_records_sent_total";
    let world = World::new(300).await;
    let endpoint = format!("--otlp.endpoint=http://{}", world.peer.address);
    for start in ["now", "24h", "oldest"] {
        let history = world.ids();
        let day = world.entries(|at| at >= world.hours_ago(24)).len();
        assert!(day > 20 && day < 300);
        let own = match start {
            "now" => 0,
            "24h" => day,
            _ => history.len(),
        };
        let before = world.peer.taken_ids().len();
        let start_flag = format!("--audit.start={start}");
        let flags = [&*endpoint, "--otlp.protocol=grpc", &start_flag];
        let exporter = world.exporter(&format!("{start}.db"), &flags).await;
        world.service().advance(hours(1) / 3600);
        world.service().add_events(1);
        exporter.until_value(SENT, own as f64 + 1.0).await;
        let resource_of_exporter = resource(&world.peer);
        let state = world.path(&format!("{start}.db"));
        let beside = world.to_otlp_with(&format!("{start}-p.db"), "");
        let beside = beside.state(&state);
        if own == history.len() {
            fails(beside, 2, &["--from oldest is not before --until"]).await;
            continue;
        }
        let filtered = beside.clone().arg("--audit.activity-types=X");
        filtered.refused(2, "other filters").await;
        let stdout = done(beside).await;
        let taken = world.peer.taken_ids();
        let rest = &history[..history.len() - own];
        assert_eq!(&taken[before + own + 1..], rest, "{start}");
        let instance = instance(&stdout);
        assert!(resource(&world.peer).contains(instance));
        assert!(!resource_of_exporter.contains(instance));
    }
}

#[tokio::test]
async fn killed_or_stopped_at_any_moment_it_continues_where_it_was() {
    let world = World::new(3_000).await;
    let slow = "--api.page-size=100 --otlp.batch-size=50 --api.max-requests-per-second=60";
    // While it reads, and at several moments while it delivers.
    let mut taken = 0;
    for kill in 0..5 {
        world.service().clear_requests();
        let running = world.to_otlp(slow).start();
        until("it works", async || {
            let is_reading = kill == 0 && world.service().requests().audit >= 12;
            (is_reading || world.peer.taken_ids().len() >= taken + 300).then_some(())
        })
        .await;
        running.signal("KILL").await;
        taken = world.peer.taken_ids().len();
    }
    assert!(taken < 3_000, "it was killed before its end");
    let mut running = world.without_collector("--shutdown.grace=100ms").await;
    assert_eq!(running.stop().await, Some(1));
    let is_last = |line: &str| line.starts_with("orgdata-exporter: stopped");
    let words = running.stderr().until("the last words", is_last).await;
    let says_how = words.contains("run the same command again") && words.contains("p.db");
    assert!(says_how, "{words}");
    world.collector_is_back();

    let stdout = done(world.to_otlp("--otlp.batch-size=50")).await;
    let taken = world.peer.taken_ids();
    let unique: BTreeSet<&String> = taken.iter().collect();
    assert_eq!(unique, world.ids().iter().collect());
    // The batch on its way at a kill may come twice, under the same log.record.uid; nothing else does.
    assert!(taken.len() <= 3_000 + 5 * 50, "{} records", taken.len());
    assert!(resource(&world.peer).contains(instance(&stdout)));
}

#[tokio::test]
async fn a_damaged_progress_file_is_begun_again_and_nothing_is_called_missing() {
    let world = World::new(300).await;
    done(world.to_otlp("")).await;
    let mut bytes = std::fs::read(world.path("p.db")).expect("it is there");
    bytes[4096..].fill(0x5a);
    std::fs::write(world.path("p.db"), bytes).expect("it can be written");
    done(world.to_otlp("")).await;
    assert_eq!(world.peer.taken_ids(), [world.ids(), world.ids()].concat());
}

#[tokio::test]
async fn a_history_that_lost_records_is_never_called_complete() {
    let world = World::new(300).await;
    let flags = "--api.page-size=100 --shutdown.grace=100ms";
    let mut running = world.without_collector(flags).await;
    assert_eq!(running.stop().await, Some(1));
    world.collector_is_back();
    let database = rusqlite::Connection::open(world.path("p.db")).expect("it opens");
    let sql =
        "UPDATE outbox SET block = X'ffffff7f00112233' WHERE page = (SELECT min(page) FROM outbox)";
    assert_eq!(database.execute(sql, []), Ok(1));
    drop(database);
    fails(world.to_otlp(flags), 1, &["p.db"]).await;
    done(world.to_otlp_with("q.db", flags)).await;
    let taken: BTreeSet<String> = world.peer.taken_ids().into_iter().collect();
    assert!(world.ids().iter().all(|id| taken.contains(id)));
}

/// Times say nothing about what is listed below.
#[tokio::test]
async fn entries_below_thousands_of_imported_ones_are_delivered() {
    let mut config = Config {
        history: 7_000,
        ..Config::quiet()
    };
    config.readings.key = KeyReading::Arrival;
    let world = World::with(config).await;
    let from = world.hours_ago(24 * 10);
    world.service().add_late(3_500, hours(24 * 30));
    done(world.to_otlp(&format!("--from={from} --otlp.batch-size=5000"))).await;
    let expected = world.entries(|at| at >= from).into_iter();
    let expected: BTreeSet<String> = expected.map(|entry| entry.id).collect();
    let taken = world.peer.taken_ids();
    assert_eq!((taken.len(), expected.len()), (7_000, 7_000));
    assert_eq!(taken.into_iter().collect::<BTreeSet<_>>(), expected);
}
