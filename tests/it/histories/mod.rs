//! Histories of an audit log that once lost entries, counted them twice, or counted what was there before. Each is played to the whole
//! program.

mod adversities;

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use orgdata_exporter::simulator::{
    ClockSource, Config, Fields, Mark, Readings, Running, Scope, Served, Simulator,
};
use tempfile::TempDir;

use crate::support::binary::{Exporter, Scrape, exporter, until};
use crate::support::collector_peer::Peer;
use crate::support::service::{reading, spawn};

/// The requests in which an exporter could still count or deliver something wrong.
const MORE_REQUESTS: u64 = 20;

/// A service, its collector, and an exporter between them.
struct History {
    service: Running,
    peer: Peer,
    dir: TempDir,
    exporter: Option<Exporter>,
    /// When counting began.
    began: Option<Mark>,
    /// The number of entries from before that are delivered; `None` if some are.
    before: Option<u64>,
    /// Whether an entry passes the filters.
    is_wanted: fn(&Served) -> bool,
}

// === impl History ===

impl History {
    /// Returns a service with so many entries in the last week, without an exporter.
    async fn of(entries: u64, readings: Readings) -> Self {
        Self::serving(reading(entries, readings)).await
    }

    async fn serving(config: Config) -> Self {
        let clock = ClockSource::Real;
        // In memory if possible: only a power failure needs a disk.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        Self {
            service: spawn(Config { clock, ..config }).await,
            peer: Peer::grpc(4 << 20).await,
            dir: dir.unwrap(),
            exporter: None,
            began: None,
            before: Some(0),
            is_wanted: |_| true,
        }
    }

    /// Returns the same with an exporter that counts.
    async fn with(entries: u64, readings: Readings, flags: &str) -> Self {
        let mut history = Self::of(entries, readings).await;
        history.start(flags).await;
        history
    }

    /// Starts an exporter with quick loops and these flags, separated by spaces, and waits until the first one counts.
    async fn start(&mut self, flags: &str) {
        self.stop().await;
        let launch = exporter(&self.service.base_url())
            .flag("--audit.poll-interval", "20ms")
            .flag("--audit.reread-interval", "200ms")
            .flag("--tickets.enabled", "false")
            .state(&self.dir.path().join("state.db"))
            .otlp("grpc", &self.peer.url());
        let flags = flags.split(' ').filter_map(|flag| flag.split_once('='));
        let launch = flags.fold(launch, |launch, (name, value)| launch.flag(name, value));
        let exporter = self.exporter.insert(launch.start());
        if self.began.is_none() {
            exporter.logs("first sync is done").await;
            self.began = Some(self.service.mark());
        }
    }

    /// Stops the exporter if there is one. What is delivered is stored as delivered.
    async fn stop(&mut self) {
        if let Some(mut exporter) = self.exporter.take() {
            assert_eq!(exporter.stop().await, Some(0));
        }
    }

    fn exporter(&self) -> &Exporter {
        self.exporter.as_ref().unwrap()
    }

    /// Waits until the service has been asked so many times more.
    async fn requested(&self, more: u64) {
        self.asked(self.service.requests().audit + more).await;
    }

    /// Waits until the service has been asked so many times in all.
    async fn asked(&self, wanted: u64) {
        let is_done = async || (self.service.requests().audit >= wanted).then_some(());
        until("more requests", is_done).await;
    }

    /// Waits until so many events are counted.
    async fn counted(&self, events: u64) {
        let is_so = |scrape: &Scrape| totals(scrape)[0] == events;
        let wanted = format!("{events} events");
        self.exporter().until(&wanted, is_so).await;
    }

    /// Waits until this number of events is counted, of entries backdated, and of gaps reported, and asserts that it stays so, and that all of
    /// it is delivered once, with every entry of the service that has to be.
    async fn ends_with(&self, expected: [u64; 3]) {
        let wanted = format!("[events, backdated, gaps] = {expected:?}");
        let is_so = |scrape: &Scrape| totals(scrape) == expected;
        self.exporter().until(&wanted, is_so).await;
        self.requested(MORE_REQUESTS).await;
        let is_sent = |scrape: &Scrape| scrape.value("orgdata_otlp_backlog_records") == Some(0.0);
        let scrape = self.exporter().until("nothing to send", is_sent).await;
        assert_eq!(totals(&scrape), expected);
        let ids = self.peer.taken_ids();
        let distinct: BTreeSet<&String> = ids.iter().collect();
        assert_eq!(ids.len(), distinct.len(), "records that came twice");
        if let Some(before) = self.before {
            let delivered = before + expected.iter().sum::<u64>();
            assert_eq!(ids.len() as u64, delivered, "records");
        }
        let scope = Scope {
            since: self.began,
            removed: false,
        };
        let wanted = self.service.entries_of(scope).filter(self.is_wanted);
        let mut missing: Vec<String> = wanted.map(|entry| entry.id).collect();
        missing.retain(|id| !distinct.contains(id));
        assert!(missing.is_empty(), "not delivered: {missing:?}");
    }

    /// Waits until the entries from before are read.
    async fn has_history(&self) {
        let series = "orgdata_audit_history_complete";
        self.exporter().until_value(series, 1.0).await;
    }

    /// Returns when the state file was created.
    fn created(&self) -> Timestamp {
        let file = rusqlite::Connection::open(self.dir.path().join("state.db")).unwrap();
        let sql = "SELECT created_at FROM state";
        let at = file.query_row(sql, [], |row| row.get(0)).unwrap();
        Timestamp::from_microsecond(at).unwrap()
    }

    /// Returns the number of ids in the state file.
    fn known(&self) -> i64 {
        let file = rusqlite::Connection::open(self.dir.path().join("state.db")).unwrap();
        let sql = "SELECT sum(length(ids)) / 8 FROM pages";
        file.query_row(sql, [], |row| row.get(0)).unwrap()
    }
}

/// Returns the numbers of events, backdated entries and gaps.
fn totals(scrape: &Scrape) -> [u64; 3] {
    let names = ["events", "entries_backdated", "gaps"];
    names.map(|name| scrape.sum(&format!("orgdata_audit_{name}_total")) as u64)
}

/// Adds an entry that was created at this time.
fn add_dated(sim: &Simulator, at: Timestamp) {
    let fields = Fields::new().with("createdAt", format!("{at:.3}"));
    sim.add_entry(&fields).unwrap();
}

fn hours(hours: i64) -> SignedDuration {
    SignedDuration::from_hours(hours)
}
