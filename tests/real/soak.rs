//! A month in an hour: the clock of the service runs 720 times as fast as ours. `SOAK_MINUTES` says how long it takes, by default one minute.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use orgdata_simulator::{ClockSource, Config, Scope};

use crate::support::binary::{event_counts, exporter};
use crate::support::collector_peer::{Peer, Reply, record_id};
use crate::support::parts::{Prometheus, number};
use crate::support::service::spawn;

/// How many of the service's seconds pass in one of ours: 30 days in an hour.
const SPEED: u32 = 720;

/// An hour of the service's.
const HOUR: Duration = Duration::from_secs(3600);

/// Its events per second: 200,000 a day.
const RATE: f64 = 200_000.0 / 86_400.0;

/// Lets a collector reject everything, or accept it again.
fn set_away(peer: &Peer, is_away: bool) {
    let reject = || Reply::Status(tonic::Status::unavailable("away"));
    let replies = std::iter::repeat_with(reject).take(if is_away { 1000 } else { 0 });
    *peer.script.replies.lock().unwrap() = replies.collect();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Prometheus and the image's program"]
async fn a_month_changes_neither_memory_nor_files_and_every_number_is_true() {
    let minutes = std::env::var("SOAK_MINUTES").map_or(1, |minutes| minutes.parse().unwrap());
    let length = Duration::from_secs(60 * minutes);
    let started = Timestamp::now() - length * SPEED;
    let service = spawn(Config {
        history: 5_000,
        rate: RATE,
        tickets: 1_000,
        // Four an hour.
        ticket_change_rate: 4.0 / HOUR.as_secs_f64(),
        clock: ClockSource::Manual(started),
        ..Config::quiet()
    })
    .await;
    let collector = Peer::grpc(4 << 20).await;
    let exporter = exporter(&service.base_url())
        .shipped()
        .on_disk()
        .flag("--audit.poll-interval", "1s")
        // An hour of the service's, as its clock is the one by which entries grow old.
        .flag("--audit.reread-interval", "5s")
        .flag("--tickets.scan-interval", "5s")
        .flag("--metrics.zero-hold", "10s")
        .otlp("grpc", &collector.url())
        .listening()
        .await;
    exporter.synced().await;
    let synced = service.mark();
    let address = exporter.address().to_string();
    let prometheus = Prometheus::start("prometheus3", &[&address], "5s").await;
    prometheus.shows("orgdata_up{loop=\"tickets\"}", 1.0).await;

    let begun = (Instant::now(), Timestamp::now());
    let (mut passed, mut is_away, mut came) = (Duration::ZERO, false, Vec::new());
    while begun.0.elapsed() < length {
        let before = std::mem::replace(&mut passed, begun.0.elapsed() * SPEED);
        service.advance(passed - before);
        // One hour in ten.
        let should = passed.as_secs() / HOUR.as_secs() % 10 == 9;
        if should != is_away {
            set_away(&collector, should);
            is_away = should;
        }
        // A month of records takes more memory than there is.
        let records = std::mem::take(&mut *collector.script.taken.lock().unwrap());
        came.extend(records.iter().map(record_id));
        collector.script.requests.lock().unwrap().clear();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    set_away(&collector, false);
    let truth = service.truth_of(Scope::arrived_since(synced));
    exporter.settled(truth.total).await;
    let sum = "sum(orgdata_audit_events_total)";
    prometheus.shows(sum, truth.total as f64).await;
    came.extend(collector.taken_ids());
    // A pass that finds more than a page of new entries sends the newest page first.
    came.sort_unstable();
    let mut sent: Vec<_> = service
        .entries()
        .skip(5_000)
        .map(|entry| entry.id)
        .collect();
    sent.sort_unstable();
    assert!(sent == came, "each once");

    // Seen by Prometheus, at its last scrape: increase() then has nothing to extrapolate.
    let newest = "max(timestamp(orgdata_audit_events_total))";
    let last = number(&prometheus.query(newest).await[0]["value"][1]);
    let window = begun.0.elapsed().as_secs() + 60;
    let increase = format!("increase(orgdata_audit_events_total[{window}s])");
    let names = ["activity_type", "actor"];
    let mut seen = prometheus
        .by(&names, &increase, Some(&format!("{last:.3}")))
        .await;
    seen.values_mut().for_each(|value| *value = value.round());
    seen.retain(|_, value| *value > 0.0);
    assert_eq!(seen, event_counts(&truth));

    let third = (length / 3).as_secs().cast_signed();
    println!(
        "{} events, {} series: each increase() is true",
        truth.total,
        truth.counts.len()
    );
    for (metric, bound) in [
        ("process_resident_memory_bytes", 1.05),
        ("orgdata_state_size_bytes", 1.05),
        ("process_open_fds", 1.05),
        ("scrape_samples_post_metric_relabeling", 1.01),
        ("orgdata_otlp_backlog_records", 1.05),
    ] {
        let mut least = Vec::new();
        for end in 1..=3 {
            let end = begun.1.as_second() + end * third;
            let of_third = format!("min_over_time({metric}[{third}s])");
            let value = prometheus.by(&[], &of_third, Some(&end.to_string())).await;
            least.push(value[&vec![]]);
        }
        println!("{metric}, the least value of each third: {least:?}");
        // What grows lifts the least value. In the first days everything is new.
        let is_long = minutes >= 10;
        assert!(
            !is_long || least[2] <= least[1] * bound,
            "{metric} grows: {least:?}"
        );
    }
}
