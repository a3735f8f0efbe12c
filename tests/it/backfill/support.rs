//! A world with a past, and a backfill of it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use orgdata_exporter::simulator::{ClockSource, Config, Running, Served, Simulator};
use tempfile::TempDir;

use crate::support::binary::{Exporter, Finished, KEY, Launch, client, exporter, launch};
use crate::support::collector_peer::Peer;
use crate::support::openmetrics::{Family, Sample, parse};

/// Events by activity type and actor.
pub(super) type Counts = BTreeMap<(String, String), u64>;

/// An organization with a week of history that ended five hours ago, in which nothing else happens; a collector; and a
/// directory for files.
pub(super) struct World {
    running: Running,
    pub(super) peer: Peer,
    pub(super) dir: TempDir,
}

// === impl World ===

impl World {
    pub(super) async fn new(history: u64) -> Self {
        Self::with(Config {
            history,
            ..Config::quiet()
        })
        .await
    }

    pub(super) async fn with(config: Config) -> Self {
        let start = Timestamp::now() - SignedDuration::from_hours(5);
        // In whole milliseconds, as the service's times are.
        let start = Timestamp::from_millisecond(start.as_millisecond()).expect("in range");
        let clock = ClockSource::Manual(start);
        let running = Simulator::spawn(Config { clock, ..config }).await;
        Self {
            running: running.expect("a free port"),
            peer: Peer::grpc(4 << 20).await,
            dir: tempfile::tempdir().expect("a directory"),
        }
    }

    pub(super) fn service(&self) -> &Arc<Simulator> {
        self.running.simulator()
    }

    pub(super) fn fault(&self, fault: &str) {
        self.service().fault(fault.parse().expect("a fault"));
    }

    pub(super) fn hours_ago(&self, hours: i64) -> Timestamp {
        self.service().now() - SignedDuration::from_hours(hours)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The number of files beside the backfill's.
    pub(super) fn files(&self) -> usize {
        std::fs::read_dir(self.dir.path())
            .expect("it is there")
            .count()
    }

    /// A backfill, as quick as it can be; the arguments are separated by spaces.
    pub(super) fn backfill(&self, arguments: &str) -> Launch {
        let arguments: Vec<&str> = arguments.split_whitespace().collect();
        launch(&["backfill"])
            .args(&arguments)
            .env("ORGDATA_API_MAX_REQUESTS_PER_SECOND", "1000")
            .env("ORGDATA_API_BASE_URL", &self.running.base_url())
            .env("ORGDATA_API_KEY", KEY)
            .env("ORGDATA_LOG_LEVEL", "warn")
    }

    /// A backfill to the collector, with this file for its progress.
    pub(super) fn to_otlp_with(&self, progress: &str, arguments: &str) -> Launch {
        self.backfill(arguments)
            .arg("--to=otlp")
            .arg(&format!("--progress={}", self.path(progress).display()))
            .env(
                "ORGDATA_OTLP_ENDPOINT",
                &format!("http://{}", self.peer.address),
            )
            .env("ORGDATA_OTLP_PROTOCOL", "grpc")
    }

    /// A backfill to the collector, with the progress in `p.db`.
    pub(super) fn to_otlp(&self, arguments: &str) -> Launch {
        self.to_otlp_with("p.db", arguments)
    }

    /// A backfill into the file `h.om`.
    pub(super) fn to_file(&self, arguments: &str) -> Launch {
        self.backfill(arguments)
            .args(&[
                "--to",
                "openmetrics",
                &self.path("h.om").display().to_string(),
            ])
            .env(
                "ORGDATA_STATE_PATH",
                &self.path("state.db").display().to_string(),
            )
    }

    /// An exporter with its state in this file that has read its first page.
    pub(super) async fn exporter(&self, state: &str, arguments: &[&str]) -> Exporter {
        let exporter = exporter(&self.running.base_url())
            .env(
                "ORGDATA_STATE_PATH",
                &self.path(state).display().to_string(),
            )
            .args(arguments)
            .start();
        exporter
            .until_value("orgdata_up{loop=\"audit\"}", 1.0)
            .await;
        exporter
    }

    /// What the service has, oldest first, as far as it is wanted.
    pub(super) fn entries(&self, wanted: impl Fn(Timestamp) -> bool) -> Vec<Served> {
        let entries = self.service().entries();
        entries.filter(|entry| wanted(entry.created_at)).collect()
    }

    pub(super) fn ids(&self) -> Vec<String> {
        self.service().entries().map(|entry| entry.id).collect()
    }

    pub(super) fn truth(&self, wanted: impl Fn(Timestamp) -> bool) -> Counts {
        let mut counts = Counts::new();
        for entry in self.entries(wanted) {
            let actor = entry.actor.map_or("none".to_owned(), |id| id.to_string());
            *counts.entry((entry.activity_type, actor)).or_default() += 1;
        }
        counts
    }

    /// The samples of `h.om`, as a strict parser reads them.
    pub(super) fn samples(&self) -> Vec<Sample> {
        let text = std::fs::read_to_string(self.path("h.om")).expect("a file");
        let families: Result<[Family; 1], _> = parse(&text).expect("OpenMetrics").try_into();
        let [family] = families.expect("one family");
        family.samples
    }

    /// The events in `h.om`: the last value of each series, since each begins with 0.
    pub(super) fn totals(&self) -> Counts {
        let mut totals = Counts::new();
        for sample in self.samples() {
            let value = sample.value as u64;
            let last = totals.insert(series(&sample), value);
            let is_right = last.map_or(value == 0, |last| last <= value);
            assert!(is_right, "each begins with 0 and never falls: {sample:?}");
        }
        totals
    }
}

/// The labels that the metric itself has.
pub(super) fn series(sample: &Sample) -> (String, String) {
    (label(sample, "activity_type"), label(sample, "actor"))
}

pub(super) fn label(sample: &Sample, name: &str) -> String {
    let label = sample.labels.iter().find(|(other, _)| other == name);
    label.map_or(String::new(), |(_, value)| value.clone())
}

pub(super) fn sum(counts: &Counts) -> u64 {
    counts.values().sum()
}

/// What the exporter counts.
pub(super) async fn counted(exporter: &Exporter) -> Counts {
    let request = client().get(format!("{}/metrics", exporter.url().await));
    let request = request.header("accept", "application/openmetrics-text");
    let text = request.send().await.expect("an answer").text().await;
    let families = parse(&text.expect("a body")).expect("OpenMetrics");
    let samples = families.iter().flat_map(|family| &family.samples);
    samples
        .filter(|sample| sample.name == "orgdata_audit_events_total" && sample.value > 0.0)
        .map(|sample| (series(sample), sample.value as u64))
        .collect()
}

/// Runs it to a good end and returns what it prints.
pub(super) async fn done(launch: Launch) -> String {
    let finished: Finished = launch.run().await;
    assert_eq!(finished.status, Some(0), "{finished:?}");
    finished.stdout
}

pub(super) fn hours(hours: u64) -> Duration {
    Duration::from_secs(hours * 3600)
}
