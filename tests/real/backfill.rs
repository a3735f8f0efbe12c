//! History in real Prometheus servers: the blocks that promtool makes of a backfill continue in what is scraped from the exporter.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use orgdata_simulator::{ClockSource, Config, Running};

use crate::support::binary::{KEY, event_counts, exporter, launch};
use crate::support::parts::{Prometheus, number, tool};
use crate::support::scrape::actor;
use crate::support::service::spawn;

/// Increases by activity type and actor.
type Increases = BTreeMap<Vec<String>, f64>;

/// The default of `--step`.
const STEP: SignedDuration = SignedDuration::from_secs(60);

/// Prometheus looks for new blocks once a minute.
const RELOADS: Duration = Duration::from_secs(240);

/// Returns how far each series rises in a window that ends at a moment, from its samples: a fall is a reset, as for `increase()`.
async fn increases(server: &Prometheus, window: &str, end: Timestamp) -> Increases {
    let query = format!("orgdata_audit_events_total[{window}]");
    let series = server.samples(&query, &end.to_string()).await;
    let rise = |pair: &[f64]| match pair[1] < pair[0] {
        true => pair[1],
        false => pair[1] - pair[0],
    };
    let series = series.into_iter();
    let series = series.map(|(labels, samples)| (labels, samples.windows(2).map(rise).sum()));
    series.filter(|(_, increase)| *increase > 0.0).collect()
}

/// Returns what `increase()` says of all series together.
async fn increase(server: &Prometheus, window: &str, end: Timestamp) -> f64 {
    let query = format!("sum(increase(orgdata_audit_events_total[{window}]))");
    let parameters = [("query", query.as_str()), ("time", &end.to_string())];
    number(&server.api("query", &parameters).await["result"][0]["value"][1])
}

/// Returns the number of events that were created after one moment and until another.
fn truth(simulator: &Running, after: Timestamp, until: Timestamp) -> Increases {
    let mut counts = Increases::new();
    for entry in simulator.simulator().entries() {
        if entry.created_at > after && entry.created_at <= until {
            let labels = vec![entry.activity_type, actor(entry.actor)];
            *counts.entry(labels).or_default() += 1.0;
        }
    }
    counts
}

fn sum(increases: &Increases) -> f64 {
    increases.values().sum()
}

async fn history_continues_in(program: &str, promtool: &str) {
    let config = Config {
        history: 4_000,
        history_span: Duration::from_secs(4 * 86_400),
        clock: ClockSource::Real,
        ..Config::quiet()
    };
    let simulator = spawn(config).await;
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state.db");
    let setup = exporter(&simulator.base_url())
        .state(&state)
        .flag("--metrics.zero-hold", "3s");
    let exporter = setup.listening().await;
    exporter.synced().await;
    let second = Timestamp::now().as_second() / STEP.as_secs() * STEP.as_secs();
    let synced = Timestamp::from_second(second).unwrap();
    let instance = exporter.address().to_string();
    let server = Prometheus::start(program, &[&instance], "1s").await;
    // The server has to see that each series begins at 0, as it does if it scrapes from the start.
    server.shows("up", 1.0).await;
    simulator.add_events(300);
    server.shows("sum(orgdata_audit_events_total)", 300.0).await;

    let file = directory.path().join("history.om").display().to_string();
    let instance = format!("--label=instance={instance}");
    let backfill = launch(&["backfill", "--to=openmetrics", &file, "--until=live"])
        .args(&["--label=job=orgdata-exporter", &instance])
        .env("ORGDATA_API_KEY", KEY)
        .env("ORGDATA_API_BASE_URL", &simulator.base_url())
        .flag("--api.max-requests-per-second", "100")
        .state(&state);
    let finished = backfill.run().await;
    assert_eq!(finished.status, Some(0), "{finished:?}");
    let data = server.data().display().to_string();
    let create = ["tsdb", "create-blocks-from", "openmetrics", &file, &data];
    tool(promtool, &create).expect("promtool takes it");

    // The server finds the blocks without a restart.
    let whole = truth(&simulator, Timestamp::MIN, Timestamp::MAX);
    assert_eq!(sum(&whole), 4_300.0);
    let begun = Instant::now();
    let mut seen = Increases::new();
    while sum(&seen) < 4_300.0 && begun.elapsed() < RELOADS {
        tokio::time::sleep(Duration::from_secs(1)).await;
        seen = increases(&server, "10d", Timestamp::now()).await;
    }
    assert_eq!(seen, whole, "over the whole time");
    assert_eq!(seen, event_counts(&simulator.truth()));

    // A window of the past shows what rises after its first sample, as of every scraped counter.
    let half = STEP / 2;
    let begin = synced - SignedDuration::from_hours(72);
    let end = begin + SignedDuration::from_hours(24);
    let day = truth(&simulator, begin + STEP, end);
    assert!(sum(&day) > 500.0);
    let seen = increases(&server, "1d", end + half).await;
    assert_eq!(seen, day, "a past day");
    // `increase()` extrapolates to the ends of its window.
    let shown = increase(&server, "1d", end + half).await;
    let ratio = shown / sum(&day);
    assert!((ratio - 1.0).abs() < 0.05, "{shown}, {ratio}");
    let hour = truth(&simulator, end - SignedDuration::from_hours(1) + STEP, end);
    let hour = sum(&hour);
    let shown = increase(&server, "1h", end + half).await;
    let is_near = (shown - hour).abs() <= hour * 0.06 + 0.1;
    assert!(is_near, "{shown} for {hour}");

    // Across the end of history, the fall to 0 is the only reset.
    let begin = synced - SignedDuration::from_hours(12);
    let now = Timestamp::now();
    let window = format!("{}s", now.as_second() - (begin + half).as_second());
    let seen = increases(&server, &window, now).await;
    let wanted = truth(&simulator, begin + STEP, Timestamp::MAX);
    assert_eq!(seen, wanted, "history and present");
    let resets = "max(resets(orgdata_audit_events_total[10d]))";
    server.shows(resets, 1.0).await;
}

#[tokio::test]
#[ignore = "needs Prometheus 2.42 and 3 with their promtools"]
async fn history_continues_in_the_present() {
    for (program, promtool) in [("prometheus", "promtool"), ("prometheus3", "promtool3")] {
        history_continues_in(program, promtool).await;
    }
}
