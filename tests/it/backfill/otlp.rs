//! `--to otlp`: every entry of the range, once, whatever happens.

use std::collections::BTreeSet;

use orgdata_exporter::simulator::{AfterReading, Config, Fault, Fields, Readings};

use super::support::{ids, live, to_otlp, world, world_of};
use crate::support::binary::{Finished, launch, until};
use crate::support::collector_peer::{Peer, Reply};

const LIMIT: usize = 4 << 20;

fn done(finished: &Finished) -> &str {
    assert_eq!(finished.status, Some(0), "{finished:?}");
    &finished.stdout
}

fn instance(stdout: &str) -> String {
    let (_, rest) = stdout
        .split_once("service.instance.id ")
        .expect("it is told");
    rest.split([' ', ';', '\n'])
        .next()
        .expect("a word")
        .to_owned()
}

#[tokio::test]
async fn a_range_is_delivered_once_from_the_oldest_to_the_newest() {
    let (simulator, peer) = (world(2_500).await, Peer::grpc(LIMIT).await);
    let (from, end) = (
        simulator.simulator().now() - jiff::SignedDuration::from_hours(72),
        simulator.simulator().now() - jiff::SignedDuration::from_hours(24),
    );
    let directory = tempfile::tempdir().expect("a directory");
    let (from_flag, until_flag) = (format!("--from={from}"), format!("--until={end}"));
    let run = || {
        to_otlp(
            &simulator,
            &peer,
            &directory.path().join("p.db"),
            &[&from_flag, &until_flag, "--api.page-size=100"],
        )
        .run()
    };
    let stdout = done(&run().await).to_owned();
    let expected = ids(&simulator, |at| at >= from && at < end);
    assert!(expected.len() > 500);
    assert_eq!(peer.taken_ids(), expected);
    assert!(
        stdout.starts_with(&format!("Delivered {} log records", expected.len())),
        "{stdout}"
    );

    // A second run has nothing to do, and asks nobody.
    simulator.simulator().clear_requests();
    assert!(done(&run().await).contains("complete"));
    assert_eq!(peer.taken_ids().len(), expected.len());
    assert_eq!(simulator.simulator().requests().audit, 0);
}

#[tokio::test]
async fn every_reading_of_the_specification_and_a_failing_service_change_nothing() {
    for (name, readings) in [
        (
            "the cursor's own entry again",
            Readings {
                before_inclusive: true,
                ..Readings::default()
            },
        ),
        (
            "newest page, inclusive",
            Readings {
                after: AfterReading::Newest,
                after_inclusive: true,
                ..Readings::default()
            },
        ),
        (
            "capped pages",
            Readings {
                page_cap: Some(60),
                no_date: true,
                ..Readings::default()
            },
        ),
    ] {
        let faults = ["500,every=9", "reset-body,every=11", "empty-page,every=5"]
            .map(|fault| fault.parse::<Fault>().expect("a fault"));
        let simulator = world_of(Config {
            history: 600,
            rate: 0.0,
            tickets: 0,
            ticket_change_rate: 0.0,
            readings,
            faults: faults.into(),
            ..Config::default()
        })
        .await;
        let expected = ids(&simulator, |_| true);
        // Entries that arrive meanwhile are no part of it, and late ones move what the pages hold.
        let late = simulator.simulator().clone();
        simulator.simulator().on_request(Box::new(move |_, _| {
            late.add_events(3);
            late.add_late(1, std::time::Duration::from_secs(3 * 86_400));
            None
        }));
        let peer = Peer::grpc(LIMIT).await;
        let directory = tempfile::tempdir().expect("a directory");
        let run = to_otlp(
            &simulator,
            &peer,
            &directory.path().join("p.db"),
            &["--api.page-size=100"],
        )
        .run()
        .await;
        done(&run);
        let taken = peer.taken_ids();
        let unique: BTreeSet<&String> = taken.iter().collect();
        assert_eq!(unique.len(), taken.len(), "{name}: nothing twice");
        assert!(
            expected.iter().all(|id| unique.contains(id)),
            "{name}: everything"
        );
    }
}

/// A page that the service cannot make is asked for in halves; that takes some seconds, in which it could have healed.
#[tokio::test]
async fn pages_that_are_too_large_are_read_in_halves() {
    let simulator = world(150).await;
    simulator
        .simulator()
        .fault("too-large=60".parse().expect("a fault"));
    let (peer, directory) = (
        Peer::grpc(LIMIT).await,
        tempfile::tempdir().expect("a directory"),
    );
    done(
        &to_otlp(
            &simulator,
            &peer,
            &directory.path().join("p.db"),
            &["--api.page-size=100"],
        )
        .run()
        .await,
    );
    assert_eq!(peer.taken_ids(), ids(&simulator, |_| true));
}

#[tokio::test]
async fn killed_at_any_moment_it_goes_on_where_it_was() {
    let (simulator, peer) = (world(3_000).await, Peer::grpc(LIMIT).await);
    let expected = ids(&simulator, |_| true);
    let directory = tempfile::tempdir().expect("a directory");
    let progress = directory.path().join("p.db");
    // On the way down, and at several moments of the way up.
    let mut taken = 0;
    for kill in 0..5 {
        simulator.simulator().clear_requests();
        let running = to_otlp(
            &simulator,
            &peer,
            &progress,
            &[
                "--api.page-size=100",
                "--api.max-requests-per-second=60",
                "--otlp.batch-size=50",
            ],
        )
        .start();
        until("it works", async || {
            let moved = if kill == 0 {
                simulator.simulator().requests().audit >= 12
            } else {
                peer.taken_ids().len() >= taken + 300
            };
            moved.then_some(())
        })
        .await;
        running.signal("KILL").await;
        taken = peer.taken_ids().len();
    }
    assert!(taken < 3_000, "it was killed before its end");
    let stdout = done(
        &to_otlp(
            &simulator,
            &peer,
            &progress,
            &["--api.page-size=100", "--otlp.batch-size=50"],
        )
        .run()
        .await,
    )
    .to_owned();
    let taken = peer.taken_ids();
    let unique: BTreeSet<&String> = taken.iter().collect();
    assert!(expected.iter().all(|id| unique.contains(id)) && unique.len() == 3_000);
    // What was on its way to the collector at a kill may come twice, under the same log.record.uid; nothing else does.
    assert!(taken.len() <= 3_000 + 5 * 50 * 2, "{} records", taken.len());
    let resource = peer
        .script
        .last
        .lock()
        .expect("lock")
        .clone()
        .expect("a request")
        .resource_logs[0]
        .resource
        .clone()
        .expect("a resource");
    let own = resource
        .attributes
        .iter()
        .find(|attribute| attribute.key == "service.instance.id")
        .expect("an instance")
        .value
        .clone();
    assert!(format!("{own:?}").contains(&instance(&stdout)));
}

#[tokio::test]
async fn a_signal_ends_it_in_order_and_it_says_how_to_go_on() {
    let (simulator, peer) = (world(2_000).await, Peer::grpc(LIMIT).await);
    let directory = tempfile::tempdir().expect("a directory");
    let progress = directory.path().join("p.db");
    let mut running = to_otlp(
        &simulator,
        &peer,
        &progress,
        &["--api.page-size=100", "--rate=500"],
    )
    .start();
    until("records arrive", async || {
        (peer.taken_ids().len() >= 200).then_some(())
    })
    .await;
    assert_eq!(running.stop().await, Some(1));
    let words = running
        .stderr()
        .until("the last words", |line| {
            line.starts_with("orgdata-exporter: stopped")
        })
        .await;
    assert!(
        words.contains("run the same command again") && words.contains("p.db"),
        "{words}"
    );
    assert!(peer.taken_ids().len() < 2_000);
    done(
        &to_otlp(&simulator, &peer, &progress, &["--api.page-size=100"])
            .run()
            .await,
    );
    assert_eq!(
        peer.taken_ids(),
        ids(&simulator, |_| true),
        "in order, and none twice"
    );
}

#[tokio::test]
async fn a_rate_is_kept() {
    let (simulator, peer) = (world(600).await, Peer::grpc(LIMIT).await);
    let directory = tempfile::tempdir().expect("a directory");
    let began = std::time::Instant::now();
    done(
        &to_otlp(
            &simulator,
            &peer,
            &directory.path().join("p.db"),
            &["--api.page-size=50", "--rate=400"],
        )
        .run()
        .await,
    );
    // The last page is not waited for.
    assert!(
        began.elapsed().as_secs_f64() >= 550.0 / 400.0,
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn what_is_refused_or_unreadable_is_a_dead_letter_and_can_be_sent_again() {
    let (simulator, peer) = (world(300).await, Peer::grpc(LIMIT).await);
    let all = ids(&simulator, |_| true);
    peer.refuse(&all[100]);
    let odd = Fields::new()
        .unchecked()
        .with("type", serde_json::Value::Null)
        .with("id", "odd");
    simulator.simulator().add_entry(&odd).expect("unchecked");
    let directory = tempfile::tempdir().expect("a directory");
    let progress = directory.path().join("p.db");
    let path = format!("--state.path={}", progress.display());
    let run = || to_otlp(&simulator, &peer, &progress, &[]).run();
    let stdout = done(&run().await).to_owned();
    assert!(
        stdout.contains("Delivered 299")
            && stdout.contains("2 could not be delivered")
            && stdout.contains("dead-letters list"),
        "{stdout}"
    );
    let listed = launch(&["dead-letters", "list", &path]).run().await;
    assert!(
        done(&listed).contains(&all[100]) && listed.stdout.contains("odd"),
        "{listed:?}"
    );

    peer.script.bad.lock().expect("lock").clear();
    let queued = launch(&["dead-letters", "replay", "--all", &path])
        .run()
        .await;
    assert!(done(&queued).starts_with("2 queued"));
    assert!(done(&run().await).contains("Delivered 2 log records"));
    assert!(peer.taken_ids().contains(&all[100]) && peer.taken_ids().contains(&"odd".to_owned()));
}

#[tokio::test]
async fn a_collector_that_is_away_is_waited_for_and_nothing_is_lost() {
    let (simulator, peer) = (world(300).await, Peer::grpc(LIMIT).await);
    let directory = tempfile::tempdir().expect("a directory");
    let progress = directory.path().join("p.db");
    for _ in 0..10 {
        peer.reply(Reply::Status(tonic::Status::unavailable("away")));
    }
    let failed = to_otlp(
        &simulator,
        &peer,
        &progress,
        &["--patience=1s", "--shutdown.grace=100ms"],
    )
    .run()
    .await;
    let line = failed.refusal_with_log(1);
    assert!(
        line.contains("collector has accepted nothing for 1s") && line.contains("300 wait"),
        "{line}"
    );
    peer.script.replies.lock().expect("lock").clear();
    done(&to_otlp(&simulator, &peer, &progress, &[]).run().await);
    assert_eq!(peer.taken_ids(), ids(&simulator, |_| true));
}

#[tokio::test]
async fn a_history_larger_than_the_limit_of_a_state_file_is_read_whole_and_sent_oldest_first() {
    let (simulator, peer) = (world(0).await, Peer::grpc(LIMIT).await);
    for _ in 0..200 {
        let noise: String = std::iter::repeat_with(fastrand::alphanumeric)
            .take(64_000)
            .collect();
        simulator
            .simulator()
            .add_entry(&Fields::new().with("metadata", serde_json::json!({ "noise": noise })))
            .expect("valid fields");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let progress = directory.path().join("p.db");
    let flags = ["--api.page-size=20", "--state.max-size=8MiB"];
    done(&to_otlp(&simulator, &peer, &progress, &flags).run().await);
    assert_eq!(peer.taken_ids(), ids(&simulator, |_| true));
}

#[tokio::test]
async fn beside_a_running_exporter_it_has_an_instance_of_its_own() {
    let (simulator, peer) = (world(200).await, Peer::grpc(LIMIT).await);
    let directory = tempfile::tempdir().expect("a directory");
    let exporter = live(&simulator, &directory.path().join("state.db"))
        .arg(&format!("--otlp.endpoint=http://{}", peer.address))
        .arg("--otlp.protocol=grpc")
        .start();
    exporter
        .until_value("orgdata_up{loop=\"audit\"}", 1.0)
        .await;
    simulator.simulator().add_events(1);
    exporter
        .until_value("orgdata_otlp_records_sent_total", 1.0)
        .await;
    let resource = |peer: &Peer| {
        format!(
            "{:?}",
            peer.script
                .last
                .lock()
                .expect("lock")
                .clone()
                .expect("a request")
                .resource_logs[0]
                .resource
        )
    };
    let own = resource(&peer);
    let stdout = done(
        &to_otlp(&simulator, &peer, &directory.path().join("p.db"), &[])
            .run()
            .await,
    )
    .to_owned();
    assert!(resource(&peer).contains(&instance(&stdout)) && !own.contains(&instance(&stdout)));
    assert_eq!(
        exporter.value("orgdata_otlp_records_sent_total").await,
        Some(1.0),
        "it shares nothing with it"
    );
}
