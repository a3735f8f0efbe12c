//! A world with a past, and a backfill of it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use orgdata_exporter::simulator::{ClockSource, Config, Running, Served, Simulator};
use tempfile::TempDir;

use crate::support::binary::{Exporter, KEY, Launch, exporter, launch};
use crate::support::collector_peer::{Peer, Reply};
use crate::support::openmetrics::{Family, Sample, parse};
use crate::support::scrape::actor;

/// Events by activity type and actor.
pub(super) type Counts = BTreeMap<Vec<String>, f64>;

/// An organization with a week of history that ended five hours ago, in which nothing else happens; a collector; and a
/// directory for files.
pub(super) struct World {
    running: Running,
    pub(super) peer: Peer,
    dir: TempDir,
}

impl World {
    pub(super) async fn new(history: u64) -> Self {
        let quiet = Config::quiet();
        Self::with(Config { history, ..quiet }).await
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

    pub(super) fn hours_ago(&self, hours: i64) -> Timestamp {
        self.service().now() - SignedDuration::from_hours(hours)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The number of files beside the backfill's.
    pub(super) fn files(&self) -> usize {
        self.dir.path().read_dir().expect("it is there").count()
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
        let progress = self.path(progress).display().to_string();
        self.backfill(&format!("--to=otlp --progress={progress} {arguments}"))
            .otlp("grpc", &self.peer.url())
    }

    /// A backfill to the collector, with the progress in `p.db`.
    pub(super) fn to_otlp(&self, arguments: &str) -> Launch {
        self.to_otlp_with("p.db", arguments)
    }

    /// The same that has found that the collector is away.
    pub(super) async fn without_collector(&self, arguments: &str) -> Exporter {
        for _ in 0..100 {
            let away = tonic::Status::unavailable("away");
            self.peer.reply(Reply::Status(away));
        }
        let running = self.to_otlp(arguments).start();
        running.logs("delivery failed").await;
        running
    }

    pub(super) fn collector_is_back(&self) {
        self.peer.script.replies.lock().expect("lock").clear();
    }

    pub(super) fn to_file(&self, arguments: &str) -> Launch {
        let file = self.path("h.om").display().to_string();
        self.backfill(&format!("--to openmetrics {file} {arguments}"))
            .state(&self.path("state.db"))
    }

    /// An exporter with its state in this file that has read its first page.
    pub(super) async fn exporter(&self, state: &str, arguments: &[&str]) -> Exporter {
        let launch = exporter(&self.running.base_url()).state(&self.path(state));
        let exporter = launch.args(arguments).start();
        exporter.synced().await;
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
            *counts.entry(labels(&entry)).or_default() += 1.0;
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
            let last = totals.insert(series(&sample), sample.value);
            let is_right = last.map_or(sample.value == 0.0, |last| last <= sample.value);
            assert!(is_right, "each begins with 0 and never falls: {sample:?}");
        }
        totals
    }
}

/// The labels that an entry is counted with.
pub(super) fn labels(entry: &Served) -> Vec<String> {
    vec![entry.activity_type.clone(), actor(entry.actor)]
}

pub(super) fn series(sample: &Sample) -> Vec<String> {
    ["activity_type", "actor"]
        .map(|name| label(sample, name))
        .into()
}

pub(super) fn label(sample: &Sample, name: &str) -> String {
    let label = sample.labels.iter().find(|(other, _)| other == name);
    label.map_or(String::new(), |(_, value)| value.clone())
}

pub(super) fn sum(counts: &Counts) -> f64 {
    counts.values().sum()
}

/// Runs it to a good end and returns what it prints.
pub(super) async fn done(launch: Launch) -> String {
    let finished = launch.run().await;
    assert_eq!(finished.status, Some(0), "{finished:?}");
    finished.stdout
}

/// Runs it to an end with this status and a message that has all of the words.
pub(super) async fn fails(launch: Launch, status: i32, words: &[&str]) -> String {
    let finished = launch.run().await;
    let message = finished.refusal_with_log(status);
    for words in words {
        assert!(message.contains(words), "{words} is missing in: {message}");
    }
    message.to_owned()
}

pub(super) fn hours(hours: u64) -> Duration {
    Duration::from_secs(hours * 3600)
}
