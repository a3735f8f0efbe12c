//! What happened to audit logs in the field and is in no random history of the model or of the simulation: failures that do not stop, other
//! filters, imports, replicas, and wrong dates. Each is played to the whole program.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use orgdata_exporter::simulator::{
    ClockSource, Config, Fault, FaultKind, Fields, KeyReading, Moment, Readings, Running, Scope,
    Simulator,
};
use tempfile::TempDir;

use crate::support::binary::{Exporter, Launch, Scrape, exporter, until};
use crate::support::collector_peer::Peer;
use crate::support::service::{readings, spawn};

/// The requests in which an exporter could still count or deliver something wrong.
const MORE_REQUESTS: u64 = 20;

/// A service, its collector, and an exporter between them.
struct History {
    service: Running,
    peer: Peer,
    dir: TempDir,
    exporter: Option<Exporter>,
    /// When counting began.
    began: Option<Moment>,
}

// === impl History ===

impl History {
    /// Returns a service with so many entries in the last week, without an exporter.
    async fn of(history: u64, readings: Readings) -> Self {
        let config = Config {
            history,
            readings,
            clock: ClockSource::Real,
            ..Config::quiet()
        };
        // In memory if possible: only a power failure needs a disk.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        Self {
            service: spawn(config).await,
            peer: Peer::grpc(4 << 20).await,
            dir: dir.unwrap(),
            exporter: None,
            began: None,
        }
    }

    /// Returns a service with 200 entries, and an exporter that counts.
    async fn counting(readings: Readings, flags: &str) -> Self {
        let mut history = Self::of(200, readings).await;
        history.start(flags).await;
        history
    }

    /// Returns a service with 2000 events that came while nothing ran: 20 pages of a catch-up.
    async fn behind() -> Self {
        let mut history = Self::counting(Readings::default(), "").await;
        history.stop().await;
        history.service.add_events(2000);
        history
    }

    /// Returns an exporter with quick loops and these flags, separated by spaces.
    fn launch(&self, flags: &str) -> Launch {
        let launch = exporter(&self.service.base_url())
            .flag("--audit.poll-interval", "20ms")
            .flag("--audit.reread-interval", "200ms")
            .flag("--tickets.enabled", "false")
            .state(&self.dir.path().join("state.db"))
            .otlp("grpc", &self.peer.url());
        let flags = flags.split(' ').filter_map(|flag| flag.split_once('='));
        flags.fold(launch, |launch, (name, value)| launch.flag(name, value))
    }

    /// Starts an exporter, and waits until the first one counts.
    async fn start(&mut self, flags: &str) {
        let exporter = self.exporter.insert(self.launch(flags).start());
        if self.began.is_none() {
            exporter.logs("first sync is done").await;
            self.began = Some(self.service.mark());
        }
    }

    /// Stops the exporter. What is delivered is stored as delivered.
    async fn stop(&mut self) {
        let mut exporter = self.exporter.take().unwrap();
        assert_eq!(exporter.stop().await, Some(0));
    }

    fn exporter(&self) -> &Exporter {
        self.exporter.as_ref().unwrap()
    }

    /// Waits until the service has been asked so many times more.
    async fn requested(&self, more: u64) {
        let wanted = self.service.requests().audit + more;
        let is_done = async || (self.service.requests().audit >= wanted).then_some(());
        until("more requests", is_done).await;
    }

    /// Waits until so many events are counted.
    async fn counted(&self, events: u64) {
        let is_so = |scrape: &Scrape| totals(scrape)[0] == events;
        let wanted = format!("{events} events");
        self.exporter().until(&wanted, is_so).await;
    }

    /// Waits until these numbers of events and of backdated entries are counted, and asserts that it stays so, that there is no gap, and that
    /// all of it is delivered once, with every entry that came since counting began.
    async fn ends_with(&self, events: u64, backdated: u64) {
        let expected = [events, backdated, 0];
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
        assert_eq!(ids.len() as u64, events + backdated);
        let scope = Scope::arrived_since(self.began.unwrap());
        let mut missing: Vec<String> = self.service.entries_of(scope).map(|it| it.id).collect();
        missing.retain(|id| !distinct.contains(id));
        assert!(missing.is_empty(), "not delivered: {missing:?}");
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

/// A page with an entry that cannot be read stops neither polls nor what is above it.
#[tokio::test]
async fn an_entry_that_cannot_be_read_stops_nothing_else() {
    let mut history = History::counting(Readings::default(), "--api.page-size=20").await;
    history.stop().await;
    history.service.add_events(300);
    let id = history.service.add_entry(&Fields::new()).unwrap();
    history.service.add_events(400);
    history.service.fault(Fault::new(FaultKind::Poison(id)));
    history.start("--api.page-size=20").await;
    // All above it, and what comes now.
    history.counted(400).await;
    history.service.add_events(5);
    history.counted(405).await;
    let behind = history.exporter().value("orgdata_audit_behind").await;
    assert_eq!(behind, Some(1.0));
    history.service.clear_faults();
    history.ends_with(706, 0).await;
}

/// Nothing is read any more that could be older.
#[tokio::test]
async fn records_that_wait_for_older_ones_leave_when_the_exporter_stops() {
    for (flags, is_deleted) in [("", false), (" --state.path=:memory:", false), ("", true)] {
        let mut history = History::of(300, Readings::default()).await;
        let id = history.service.entries().nth(100).unwrap().id;
        history.service.fault(Fault::new(FaultKind::Poison(id)));
        let flags = format!("--audit.start=oldest --api.page-size=20{flags}");
        history.start(&flags).await;
        let delivered = "orgdata_audit_entries_backdated_total";
        let is_read = |scrape: &Scrape| scrape.sum(delivered) >= 180.0;
        let scrape = history.exporter().until("a part of history", is_read).await;
        assert_eq!(history.peer.taken_ids().len(), 0);
        let mut exporter = history.exporter.take().unwrap();
        if is_deleted {
            std::fs::remove_file(history.dir.path().join("state.db")).unwrap();
            assert_eq!(exporter.ended().await, Some(1));
        } else {
            assert_eq!(exporter.stop().await, Some(0));
            assert!(exporter.stderr().text().contains("unsent=0"));
        }
        let taken = history.peer.taken_ids().len() as f64;
        assert!(taken >= scrape.sum(delivered), "{taken}");
    }
}

/// One answer has a `Date` of tomorrow, the first one or a later one.
#[tokio::test]
async fn a_date_of_tomorrow_in_one_answer_changes_nothing() {
    for which in [1, 10] {
        let mut history = History::of(200, Readings::default()).await;
        history.service.on_request(Box::new(move |request, sim| {
            let ahead = if request.number == which { 86_400 } else { 0 };
            sim.change_readings(|it| it.date_ahead = ahead);
            None
        }));
        history.start("--audit.start=200h --api.page-size=20").await;
        history.requested(20).await;
        history.service.add_events(20);
        history.ends_with(20, 200).await;
        let through = "orgdata_audit_complete_through_timestamp_seconds";
        let through = history.exporter().value(through).await.unwrap();
        assert!(through <= Timestamp::now().as_second() as f64 + 1.0);
    }
}

#[tokio::test]
async fn a_catch_up_ends_although_one_request_in_five_fails() {
    let mut history = History::behind().await;
    let fault: Fault = "status=500".parse().unwrap();
    history.service.fault(fault.every(5));
    history.start("--api.page-size=100").await;
    history.counted(2000).await;
    history.service.clear_faults();
    history.ends_with(2000, 0).await;
}

#[tokio::test]
async fn a_catch_up_ends_although_the_exporter_is_killed_all_the_time() {
    let mut history = History::behind().await;
    for _ in 0..8 {
        // As slow as the API: a life has time for a few pages below those of the sweep. Nobody takes records, because what a killed
        // exporter was sending comes twice.
        history
            .start("--api.page-size=40 --api.max-requests-per-second=40 --otlp.endpoint=http://127.0.0.1:1")
            .await;
        history.requested(15).await;
        history.exporter.take().unwrap().kill();
    }
    history.start("--api.page-size=40").await;
    history.requested(30).await;
    history.ends_with(2000, 0).await;
}

#[tokio::test]
async fn the_start_of_history_is_counted_from_the_first_start() {
    let mut history = History::of(200, Readings::default()).await;
    history.service.fault(Fault::new(FaultKind::Hang));
    let first = history.launch("--audit.start=200h").start();
    let created = "orgdata_state_created_timestamp_seconds";
    let created = first.value(created).await.unwrap();
    drop(first);
    history.service.clear_faults();
    history.start("--audit.start=200h").await;
    let from = Timestamp::from_microsecond((created * 1e6).round() as i64).unwrap() - hours(200);
    let words = format!("catching_up_from={from}");
    history.exporter().logs(&words).await;
    history.ends_with(0, 200).await;
}

#[tokio::test]
async fn an_import_on_top_hides_nothing_although_a_page_fails() {
    let by_arrival = readings(|it| it.key = KeyReading::Arrival);
    let history = History::counting(by_arrival, "--api.page-size=20").await;
    let last_year = history.service.now() - hours(365 * 24);
    history.service.on_request(Box::new({
        let mut is_done = false;
        move |_, sim| {
            if !std::mem::replace(&mut is_done, true) {
                sim.add_events(20);
                for minute in 0..500 {
                    add_dated(sim, last_year + SignedDuration::from_mins(minute));
                }
                let below = sim.entries().nth(400).unwrap();
                sim.fault(Fault::new(FaultKind::Poison(below.id)).times(6));
            }
            None
        }
    }));
    history.ends_with(20, 500).await;
}

#[tokio::test]
async fn a_replica_that_is_behind_now_and_then_changes_nothing() {
    let history = History::counting(Readings::default(), "").await;
    history.service.on_request(Box::new(|request, sim| {
        sim.change_readings(|readings| readings.behind = 3 * (request.number as usize % 2));
        None
    }));
    for total in 1..=5 {
        history.service.add_events(1);
        history.counted(total).await;
    }
    history.ends_with(5, 0).await;
}

#[tokio::test]
async fn an_entry_dated_2099_keeps_no_ids() {
    let flags = "--audit.reread-window=1s --api.page-size=100";
    let history = History::counting(Readings::default(), flags).await;
    history.service.add_events(4_000);
    history.counted(4_000).await;
    add_dated(&history.service, "2099-01-01T00:00:00Z".parse().unwrap());
    history.counted(4_001).await;
    history.service.advance(Duration::from_secs(3600));
    history.service.add_events(30);
    let file = rusqlite::Connection::open(history.dir.path().join("state.db")).unwrap();
    let is_small = async || {
        let sql = "SELECT sum(length(ids)) / 8 < 4000 FROM pages";
        let is_small = file.query_row(sql, [], |row| row.get(0)).unwrap();
        bool::then_some(is_small, ())
    };
    until("ids are pruned", is_small).await;
    history.service.add_late(1, Duration::from_millis(500));
    history.ends_with(4_032, 0).await;
}
