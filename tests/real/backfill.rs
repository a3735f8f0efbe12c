//! History in real Prometheus servers: blocks that promtool makes of a backfill, beside what is scraped from the exporter, and the seam.

use crate::support::exporter;
use crate::support::parts;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use exporter::{Setup, event_counts};
use jiff::{SignedDuration, Timestamp};
use orgdata_exporter::simulator::{Config, Running, Simulator};
use parts::{Prometheus, number, tool};
use serde_json::Value;
use tokio::process::Command;

/// Rises by activity type and actor.
type Rises = BTreeMap<Vec<String>, f64>;

/// `--step`, in seconds.
const STEP: i64 = 60;

/// Prometheus looks for new blocks once a minute.
const RELOADS: usize = 4;

async fn backfill(simulator: &Running, state: &Path, file: &Path, instance: &str) {
    let output = Command::new(env!("CARGO_BIN_EXE_orgdata-exporter"))
        .env_clear()
        .env("ORGDATA_API_KEY", "demo-key")
        .args([
            "backfill",
            "--to",
            "openmetrics",
            &file.display().to_string(),
        ])
        .args([
            "--api.base-url",
            &simulator.base_url(),
            "--api.max-requests-per-second",
            "100",
        ])
        .args([
            "--state.path",
            &state.display().to_string(),
            "--allow-recent",
        ])
        .args([
            "--label",
            "job=orgdata-exporter",
            "--label",
            &format!("instance={instance}"),
        ])
        .output()
        .await
        .expect("it can be run");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// How far each series rises in a window that ends at a moment, from the samples themselves: a fall is a reset, as for `increase()`.
async fn rises(server: &Prometheus, window: &str, end: Timestamp) -> Rises {
    let query = format!("orgdata_audit_events_total[{window}]");
    let answer = server
        .api(
            "query",
            &[("query", &query), ("time", &end.as_second().to_string())],
        )
        .await;
    let mut rises = Rises::new();
    for one in answer["result"].as_array().expect("a matrix") {
        let samples: Vec<f64> = one["values"]
            .as_array()
            .expect("samples")
            .iter()
            .map(|sample| number(&sample[1]))
            .collect();
        let labels = ["activity_type", "actor"]
            .map(|label| one["metric"][label].as_str().unwrap_or_default().to_owned());
        let rise = samples
            .windows(2)
            .map(|pair| {
                if pair[1] < pair[0] {
                    pair[1]
                } else {
                    pair[1] - pair[0]
                }
            })
            .sum::<f64>();
        assert!(
            rises.insert(labels.into(), rise).is_none(),
            "{labels:?} is one series",
            labels = one["metric"]
        );
    }
    rises.retain(|_, rise| *rise > 0.0);
    rises
}

/// What `increase()` says of all of them together.
async fn increase(server: &Prometheus, window: &str, end: Timestamp) -> f64 {
    let query = format!("sum(increase(orgdata_audit_events_total[{window}]))");
    let answer = server
        .api(
            "query",
            &[("query", &query), ("time", &end.as_second().to_string())],
        )
        .await;
    number(&answer["result"][0]["value"][1])
}

/// What the service knows to have been created after one moment and until another.
fn truth(simulator: &Running, after: Timestamp, until: Timestamp) -> Rises {
    let mut counts = Rises::new();
    for entry in simulator
        .simulator()
        .entries()
        .filter(|entry| entry.created_at > after && entry.created_at <= until)
    {
        let actor = entry
            .actor
            .map_or_else(|| "none".to_owned(), |id| id.to_string());
        *counts.entry(vec![entry.activity_type, actor]).or_default() += 1.0;
    }
    counts
}

async fn sum_is(server: &Prometheus, wanted: f64) {
    let is = |sum: &Value| {
        sum.as_array()
            .is_some_and(|sum| sum.len() == 1 && number(&sum[0]["value"][1]) == wanted)
    };
    server
        .query_until("sum(orgdata_audit_events_total)", is)
        .await;
}

fn on_the_grid(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second().div_euclid(STEP) * STEP).expect("in range")
}

async fn history_and_present_are_one(start: impl AsyncFn(&str) -> Prometheus, promtool: &str) {
    let world = Config {
        history: 4_000,
        history_span: Duration::from_secs(4 * 86_400),
        rate: 0.0,
        tickets: 5,
        ticket_change_rate: 0.0,
        ..Config::default()
    };
    let simulator = Simulator::spawn(world).await.expect("a free port");
    let directory = tempfile::tempdir().expect("a directory");
    let (state, file) = (
        directory.path().join("state.db"),
        directory.path().join("history.om"),
    );
    let exporter = Setup::new(&simulator)
        .state(&state)
        .flag("--metrics.zero-hold", "3s")
        .start()
        .await;
    exporter.born().await;
    let born = on_the_grid(Timestamp::now());
    let server = start(&exporter.address().to_string()).await;
    // The fall to 0 at the seam is what `increase()` goes by: the server has to see it, as it does where it scrapes from the start.
    sum_is(&server, 0.0).await;
    simulator.add_events(300);
    sum_is(&server, 300.0).await;

    backfill(&simulator, &state, &file, &exporter.address().to_string()).await;
    let (file, data) = (file.display().to_string(), server.data());
    tool(
        promtool,
        &[
            "tsdb",
            "create-blocks-from",
            "openmetrics",
            &file,
            &data.display().to_string(),
        ],
    )
    .expect("promtool takes it");

    // The server finds the blocks without a restart.
    let whole = truth(&simulator, Timestamp::MIN, Timestamp::MAX);
    assert_eq!(whole.values().sum::<f64>(), 4_300.0);
    let mut seen = Rises::new();
    for _ in 0..RELOADS * 30 {
        seen = rises(&server, "10d", Timestamp::now()).await;
        if seen.values().sum::<f64>() >= 4_300.0 {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(seen, whole, "over the whole");
    assert_eq!(seen, event_counts(&simulator.truth()));

    // A day of the past. A window sees what rises after its first sample, as of every scraped counter.
    let begin = born - SignedDuration::from_hours(72);
    let end = begin + SignedDuration::from_hours(24);
    let half = SignedDuration::from_secs(STEP / 2);
    let seen = rises(&server, "1d", end + half).await;
    let day = truth(&simulator, begin + SignedDuration::from_secs(STEP), end);
    assert!(day.values().sum::<f64>() > 500.0);
    assert_eq!(seen, day, "a past day");
    // And increase() itself, which extrapolates to the ends of its window: by at most a step in what is filled around a rise.
    let (told, true_sum) = (
        increase(&server, "1d", end + half).await,
        day.values().sum::<f64>(),
    );
    assert!(
        (told / true_sum - 1.0).abs() < 0.05,
        "{told} for {true_sum}"
    );
    let hour = truth(
        &simulator,
        end - SignedDuration::from_hours(1) + SignedDuration::from_secs(STEP),
        end,
    )
    .values()
    .sum::<f64>();
    let told = increase(&server, "1h", end + half).await;
    assert!(
        (told - hour).abs() <= hour * 0.06 + 0.1,
        "{told} for {hour}"
    );

    // Over the seam: the fall to 0 is a reset, and nothing else is one.
    let begin = born - SignedDuration::from_hours(12);
    let now = Timestamp::now();
    let seconds = now.as_second() - (begin + half).as_second();
    let seen = rises(&server, &format!("{seconds}s"), now).await;
    assert_eq!(
        seen,
        truth(
            &simulator,
            begin + SignedDuration::from_secs(STEP),
            Timestamp::MAX
        ),
        "over the seam"
    );
    let resets = server
        .query("max(resets(orgdata_audit_events_total[10d]))")
        .await;
    assert_eq!(number(&resets[0]["value"][1]), 1.0);
}

#[tokio::test]
#[ignore = "needs Prometheus 2.42 and its promtool"]
async fn history_is_one_with_the_present_in_the_oldest_supported_prometheus() {
    history_and_present_are_one(
        async |target| Prometheus::start(&[target], "1s").await,
        "promtool",
    )
    .await;
}

#[tokio::test]
#[ignore = "needs Prometheus 3 and its promtool"]
async fn history_is_one_with_the_present_in_the_current_prometheus() {
    history_and_present_are_one(
        async |target| Prometheus::start_current(&[target], "1s").await,
        "promtool3",
    )
    .await;
}
