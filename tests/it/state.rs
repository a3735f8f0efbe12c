//! The state file: bounded, used by one process, and readable by the versions that may read it.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use orgdata_exporter::audit::{publish, restore};
use orgdata_exporter::ledger::{
    ActorRef, Commit, DeadLetters, DeadReason, Disposition, Encode, EventId, FirstSync, Gap,
    GapReason, LedgerError, LedgerHandle, LedgerState, NewEntry, NewEvent, OpenError, OutboxRecord,
    Rejected, STRIDE, Selection, Settings, Settled, StatePath, TailState,
};
use orgdata_exporter::metrics::Metrics;
use orgdata_exporter::metrics::audit::Total;
use orgdata_exporter::metrics::exposition::Format;
use tempfile::TempDir;

use crate::support::captured::Captured;
use crate::support::settings::{self, PlainRecords};

const DAY: Duration = Duration::from_secs(86_400);
const MIB: u64 = 1 << 20;

/// A state file and the process that has it open.
struct World {
    directory: TempDir,
    settings: Settings,
    open: Option<Process>,
    /// The tail's state of the last commit.
    tail: TailState,
}

struct Process {
    ledger: LedgerHandle,
    state: LedgerState,
    metrics: Metrics,
}

// === impl World ===

impl World {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let directory = directory.expect("a directory");
        let path = StatePath::File(directory.path().join("state.db"));
        let mut settings = Settings {
            max_size: 8 * MIB,
            filters: "[]".to_owned(),
            max_dead_letters: 100,
            ..settings::ledger(path, "https://api.example")
        };
        change(&mut settings);
        let mut world = Self {
            directory,
            settings,
            open: None,
            tail: TailState::default(),
        };
        world.restart();
        world
    }

    fn restart(&mut self) {
        self.open = None;
        let (ledger, state) = LedgerHandle::open(self.settings.clone()).expect("opens");
        let metrics = Metrics::new(Duration::ZERO);
        restore(&metrics, state.counted.clone());
        self.tail = state.tail.clone();
        self.open = Some(Process {
            ledger,
            state,
            metrics,
        });
    }

    fn close(&mut self) {
        self.open = None;
    }

    fn refused(&self) -> OpenError {
        LedgerHandle::open(self.settings.clone()).expect_err("refused")
    }

    fn process(&self) -> &Process {
        self.open.as_ref().expect("open")
    }

    fn ledger(&self) -> &LedgerHandle {
        &self.process().ledger
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("state.db")
    }

    /// Bytes of the file and of its write-ahead log.
    fn bytes(&self) -> u64 {
        let files = ["state.db", "state.db-wal"].map(|name| self.directory.path().join(name));
        let sizes = files.iter().filter_map(|file| file.metadata().ok());
        sizes.map(|file| file.len()).sum()
    }

    /// Commits a page at its place.
    async fn commit(&mut self, mut commit: Commit) -> Result<(), LedgerError> {
        let mut tail = self.tail.clone();
        commit.place = tail.take_place();
        commit.top = true;
        commit.tail = Some(tail.clone());
        let changes = self.ledger().commit(commit).await?;
        publish(&self.process().metrics, changes);
        self.tail = tail;
        Ok(())
    }

    /// Commits `count` entries from number `first` on.
    async fn page(&mut self, first: u64, count: u64) {
        let commit = page(first, count, Timestamp::now());
        self.commit(commit).await.expect("written");
    }

    /// Commits pages until the file is full. Returns how many entries are in it.
    async fn fill(&mut self) -> u64 {
        let mut count = 0;
        while !self.ledger().is_full() {
            self.page(count, 1000).await;
            count += 1000;
            assert!(count < 1_000_000, "it never fills");
        }
        count
    }

    fn counted(&self) -> u64 {
        let events = self.process().metrics.audit.events();
        events.iter().map(|(_, count)| count).sum()
    }

    fn total(&self, total: Total) -> u64 {
        self.process().metrics.audit.total(total)
    }

    fn backlog(&self) -> u64 {
        self.ledger().status().backlog
    }

    async fn batch(&self, max_records: usize) -> Vec<OutboxRecord> {
        let batch = self.ledger().outbox_batch(max_records, 3 << 20).await;
        batch.expect("readable")
    }

    async fn settle(&self, records: &[OutboxRecord]) {
        let delivered = records.iter().map(|record| record.position).collect();
        let settled = Settled {
            delivered,
            ..Settled::default()
        };
        self.ledger().outbox_settle(settled).await.expect("written");
    }

    /// Takes everything out of the outbox.
    async fn drain(&self) -> Vec<String> {
        let mut taken = Vec::new();
        loop {
            let batch = self.batch(512).await;
            if batch.is_empty() {
                return taken;
            }
            let decoded = batch
                .iter()
                .map(|record| PlainRecords.decode(&record.bytes));
            taken.extend(decoded.map(|(_, json)| json));
            self.settle(&batch).await;
        }
    }

    /// Changes the file as another program does.
    fn change(&self, sql: &str) {
        let file = rusqlite::Connection::open(self.path()).expect("opens");
        file.execute_batch(sql).expect("runs");
    }

    fn query<T: rusqlite::types::FromSql>(&self, sql: &str) -> T {
        let file = rusqlite::Connection::open(self.path()).expect("opens");
        file.query_row(sql, [], |row| row.get(0)).expect("a row")
    }

    /// Files that were set aside.
    fn asides(&self) -> usize {
        let files = std::fs::read_dir(self.directory.path()).expect("readable");
        let names = files.map(|file| {
            file.expect("readable")
                .file_name()
                .to_string_lossy()
                .into_owned()
        });
        names
            .filter(|name| {
                name.contains(".damaged-") && !name.contains("-wal") && !name.contains("-shm")
            })
            .count()
    }
}

fn entry(number: u64, created_at: Timestamp) -> NewEntry {
    NewEntry {
        id: EventId(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        created_at,
        disposition: Disposition::Live,
        event: Ok(NewEvent {
            activity_type: format!("TYPE_{}", number % 5),
            actor: Some(ActorRef {
                id: (number % 7).to_string(),
                name: None,
            }),
            malformed: false,
        }),
        // Every text differs, as real ones do.
        raw: format!(
            "{{\"id\":\"{number}\",\"note\":\"{:x}{:x}\"}}",
            number.wrapping_mul(0xd134_2543_de82_ef95),
            number * 7919
        ),
    }
}

fn page(first: u64, count: u64, at: Timestamp) -> Commit {
    let mut commit = Commit::new(at);
    commit.entries = (first..first + count)
        .map(|number| entry(number, at))
        .collect();
    commit
}

/// A page of one entry that cannot be counted.
fn malformed(number: u64, raw: String) -> Commit {
    let mut commit = page(number, 1, Timestamp::now());
    commit.entries[0].event = Err("unreadable".to_owned());
    commit.entries[0].raw = raw;
    commit
}

/// The texts of entries `first..last`.
fn raw(first: u64, last: u64) -> Vec<String> {
    let numbers = first..last;
    numbers
        .map(|number| entry(number, Timestamp::UNIX_EPOCH).raw)
        .collect()
}

fn rejected(record: &OutboxRecord) -> Settled {
    Settled {
        rejected: vec![Rejected {
            position: record.position,
            arrived_at: record.arrived_at,
            reason: DeadReason::Refused,
            message: "no".to_owned(),
            bytes: record.bytes.clone(),
        }],
        ..Settled::default()
    }
}

#[tokio::test]
async fn a_backlog_stops_at_the_limit_and_drains_oldest_first() {
    let mut world = World::new();
    let committed = world.fill().await;
    assert!(world.bytes() <= 8 * MIB, "{} bytes", world.bytes());
    assert_eq!((world.backlog(), world.counted()), (committed, committed));
    assert_eq!(world.drain().await, raw(0, committed));
    let status = world.ledger().status();
    assert!(!world.ledger().is_full() && status.oldest.is_none());
    let left = std::fs::metadata(world.path()).expect("a file").len();
    assert!(
        left < status.size_bytes + MIB,
        "{left} bytes for {}",
        status.size_bytes
    );
}

#[tokio::test]
async fn what_a_large_page_took_is_given_back() {
    let mut world = World::new();
    let mut commit = page(0, 1000, Timestamp::now());
    for (number, entry) in (0u64..).zip(&mut commit.entries) {
        let words = (0..600).map(|word| (number << 32 | word).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        entry.raw = words.map(|word| format!("{word:016x}")).collect();
    }
    world.commit(commit).await.expect("written");
    let log = world.directory.path().join("state.db-wal");
    let log = log.metadata().expect("a log").len();
    assert!(
        log < MIB && world.bytes() > 6 * MIB,
        "{log} of {}",
        world.bytes()
    );
    assert!(world.ledger().is_full());
    assert_eq!(world.drain().await.len(), 1000);
    assert!(
        !world.ledger().is_full() && world.bytes() < MIB,
        "{} bytes",
        world.bytes()
    );
}

#[tokio::test]
async fn delivery_continues_after_the_last_acknowledged_record() {
    let mut world = World::new();
    world.page(0, 10).await;
    world.page(10, 10).await;
    let batch = world.batch(13).await;
    world.settle(&batch).await;
    let instance = world.ledger().instance_id();
    world.restart();
    assert_eq!((world.backlog(), world.counted()), (7, 20));
    assert_eq!(world.ledger().instance_id(), instance);
    assert_eq!(world.drain().await, raw(13, 20));
}

/// The newest record is delivered first if a collector rejects the oldest.
#[tokio::test]
async fn a_witness_leaves_out_of_order() {
    let mut world = World::new();
    world.page(0, 3).await;
    world.page(3, 2).await;
    for left in [4, 3, 2] {
        let newest = world
            .ledger()
            .outbox_newest()
            .await
            .expect("readable")
            .expect("one");
        let settled = Settled {
            witness: Some(newest.position),
            ..Settled::default()
        };
        world
            .ledger()
            .outbox_settle(settled)
            .await
            .expect("written");
        assert_eq!(world.backlog(), left);
    }
    assert_eq!(world.drain().await, raw(0, 2));
}

/// Pages above an open range wait, until it is closed or released.
#[tokio::test]
async fn records_above_an_open_range_wait_for_it() {
    let mut world = World::new();
    world.page(0, 2).await;
    let range = |released| {
        let range = serde_json::json!({
            "id": 2 * STRIDE, "kind": "catch_up", "cursor": "c", "received_at": Timestamp::now(), "end": null, "oldest": null,
            "opened_at": Timestamp::now(), "last_contact": null, "expected": true, "older_pages": 0,
            "released": released, "place": 2 * STRIDE,
        });
        serde_json::from_value(range).expect("a range")
    };
    world.tail.ranges = vec![range(false)];
    world.page(4, 2).await;
    assert_eq!(world.batch(100).await.len(), 2);
    world.restart();
    assert_eq!((world.batch(100).await.len(), world.backlog()), (2, 4));
    // The range brings its page, below the one that opened it.
    let mut commit = page(2, 2, Timestamp::now());
    commit.place = 2 * STRIDE - 1;
    world.tail.ranges = vec![range(true)];
    commit.tail = Some(world.tail.clone());
    world.ledger().commit(commit).await.expect("written");
    assert_eq!(world.drain().await, raw(0, 6));
}

#[tokio::test]
async fn a_year_of_events_leaves_a_bounded_file_and_a_floor() {
    for jump in [false, true] {
        let mut world = World::with(|settings| settings.outbox = false);
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
        for day in 0..365u32 {
            let at = start + DAY * day;
            let mut commit = page(u64::from(day) * 1000, 1000, at);
            // The service's clock jumps ahead for a day.
            let at = if jump && day == 20 {
                at + 365 * DAY
            } else {
                at
            };
            commit.server_time = at;
            world.tail.reread_at = Some(at);
            world.commit(commit).await.expect("written");
            let oldest = entry(u64::from(day) * 1000, start).id;
            assert_eq!(world.ledger().holds([oldest]), [true]);
        }
        assert_eq!(world.counted(), 365_000);
        let state = world.ledger().state().await.expect("readable");
        let floor = state.prune_floor.expect("ids were pruned");
        let newest = start + DAY * 364 - Duration::from_secs(3600);
        assert!(floor > start + DAY * 300 && floor <= newest, "{floor}");
        assert!(world.bytes() < 5 * MIB, "{} bytes", world.bytes());
        let (old, new) = (entry(0, start).id, entry(364_999, start).id);
        assert_eq!(world.ledger().holds([old, new]), [false, true]);
        world.restart();
        assert_eq!(world.ledger().holds([old, new]), [false, true]);
    }
}

#[tokio::test]
async fn the_delay_has_fractions_of_a_second_if_both_clocks_agree() {
    for (ahead, expected) in [(700, 1.7), (3_600_000, 1.0), (-5_000, 1.0)] {
        let mut world = World::new();
        let now = Timestamp::from_second(1_800_000_000).expect("in range");
        let mut commit = page(0, 10, now - Duration::from_secs(1));
        commit.server_time = now;
        commit.arrived_at = now + jiff::SignedDuration::from_millis(ahead);
        world.commit(commit).await.expect("written");
        let registry = world.process().metrics.registry();
        let text = Format::Text.encode(registry, 0).expect("encodes");
        let prefix = "orgdata_audit_event_delay_seconds_sum ";
        let sum = text
            .lines()
            .find_map(|line| line.strip_prefix(prefix)?.parse::<f64>().ok());
        assert!(
            sum.is_some_and(|sum| (sum - 10.0 * expected).abs() < 0.1),
            "{sum:?}"
        );
    }
}

#[tokio::test]
async fn a_second_process_is_refused_also_by_another_name() {
    let world = World::new();
    let link = world.directory.path().join("link.db");
    std::os::unix::fs::symlink(world.path(), &link).expect("a link");
    for path in [world.path(), link] {
        let settings = Settings {
            path: StatePath::File(path),
            ..world.settings.clone()
        };
        let error = LedgerHandle::open(settings).expect_err("refused");
        assert!(matches!(error, OpenError::Locked(_)), "{error}");
    }
}

/// Somebody deleted the lock file, and started a second process.
#[tokio::test]
async fn a_process_that_lost_the_file_writes_and_sends_nothing() {
    for by_link in [false, true] {
        let mut world = World::new();
        world.page(0, 10).await;
        std::fs::remove_file(world.directory.path().join("state.db.lock")).expect("removed");
        let mut settings = world.settings.clone();
        if by_link {
            let link = world.directory.path().join("link.db");
            std::os::unix::fs::symlink(world.path(), &link).expect("a link");
            settings.path = StatePath::File(link);
        }
        let (second, state) = LedgerHandle::open(settings).expect("opens");
        let first = world.ledger().clone();
        let fenced = |error| assert!(matches!(error, LedgerError::Fenced), "{error}");
        fenced(
            first
                .commit(page(10, 10, Timestamp::now()))
                .await
                .expect_err("fenced"),
        );
        fenced(
            first
                .outbox_batch(10, usize::MAX)
                .await
                .expect_err("fenced"),
        );
        fenced(first.outbox_newest().await.expect_err("fenced"));
        fenced(
            first
                .outbox_settle(Settled::default())
                .await
                .expect_err("fenced"),
        );
        first.fenced().await;
        let mut commit = page(10, 10, Timestamp::now());
        let mut tail = state.tail;
        commit.place = tail.take_place();
        second.commit(commit).await.expect("written");
        let batch = second
            .outbox_batch(100, usize::MAX)
            .await
            .expect("readable");
        assert_eq!(settings::entries(&batch), raw(0, 20));
    }
}

#[tokio::test]
async fn a_damaged_file_is_set_aside_and_a_new_one_is_created() {
    for damage in [
        "DROP TABLE pages; DROP TABLE outbox",
        "DROP TABLE state",
        "UPDATE state SET tail = 'no JSON'",
        "ALTER TABLE state DROP COLUMN prune_floor",
    ] {
        let mut world = World::new();
        for time in 1..=2 {
            world.page(0, 10).await;
            world.close();
            world.change(damage);
            world.restart();
            assert_eq!((world.backlog(), world.counted()), (0, 0), "{damage}");
            assert!(world.process().state.recreated_at.is_some(), "{damage}");
            // Every damaged file is kept.
            assert_eq!(world.asides(), time, "{damage}");
        }
    }
}

#[tokio::test]
async fn a_file_cut_to_nothing_is_created_again_with_a_warning() {
    let mut world = World::new();
    world.page(0, 10).await;
    world.close();
    std::fs::File::create(world.path()).expect("cut");
    let log = Captured::begin();
    world.restart();
    assert!(
        log.lines().iter().any(|line| line.contains("was empty")),
        "{:?}",
        log.lines()
    );
    assert!(world.process().state.recreated_at.is_some());
    world.page(0, 10).await;
    assert_eq!(world.counted(), 10);
}

#[tokio::test]
async fn files_of_other_programs_are_refused_and_not_touched() {
    let text = b"this is no database at all, not even a small one, and longer than a header of one hundred bytes";
    let databases = tempfile::tempdir().expect("a directory");
    let theirs = databases.path().join("theirs.db");
    rusqlite::Connection::open(&theirs)
        .and_then(|file| file.execute_batch("CREATE TABLE theirs (x)"))
        .expect("runs");
    let theirs = std::fs::read(theirs).expect("readable");
    for content in [&text[..], b"short", &theirs] {
        let mut world = World::new();
        world.close();
        for suffix in ["", "-wal", "-shm"] {
            std::fs::remove_file(format!("{}{suffix}", world.path().display())).ok();
        }
        std::fs::write(world.path(), content).expect("written");
        let error = world.refused();
        assert!(matches!(error, OpenError::Foreign(_)), "{error}");
        assert!(error.to_string().contains("--state.path"), "{error}");
        assert!(std::fs::read(world.path()).expect("readable") == content);
        assert_eq!(world.asides(), 0);
    }
}

#[tokio::test]
async fn a_newer_file_is_used_if_it_allows_it() {
    let mut world = World::new();
    world.page(0, 10).await;
    world.close();
    world.change(
        "UPDATE state SET schema_version = 9, oldest_reader = 3; ALTER TABLE pages ADD COLUMN later INTEGER; CREATE TABLE later (x INTEGER);",
    );
    world.restart();
    world.page(10, 10).await;
    assert_eq!((world.counted(), world.backlog()), (20, 20));
    world.close();
    world.change("UPDATE state SET oldest_reader = 9");
    let error = world.refused();
    assert!(
        matches!(error, OpenError::Newer { version: 9, .. }),
        "{error}"
    );
}

#[tokio::test]
async fn a_file_that_cannot_be_written_is_refused_with_the_way_out() {
    let mut world = World::new();
    world.close();
    let directory = world.directory.path().to_owned();
    for path in [
        world.path().join("state.db"),
        directory.clone(),
        directory.join("missing/state.db"),
    ] {
        world.settings.path = StatePath::File(path);
        let error = world.refused();
        assert!(matches!(error, OpenError::Unwritable { .. }), "{error}");
        assert!(error.to_string().contains("--state.path"), "{error}");
    }
}

#[tokio::test]
async fn nobody_else_may_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let mut world = World::new();
    world.page(0, 1).await;
    for file in std::fs::read_dir(world.directory.path()).expect("readable") {
        let file = file.expect("readable");
        let mode = file.metadata().expect("readable").permissions().mode();
        assert_eq!(mode & 0o077, 0, "{}", file.path().display());
    }
}

#[tokio::test]
async fn dead_letters_are_bounded_in_number_and_size() {
    let mut world = World::new();
    world.page(0, 150).await;
    for record in world.batch(150).await {
        world
            .ledger()
            .outbox_settle(rejected(&record))
            .await
            .expect("written");
    }
    let status = world.ledger().status();
    assert_eq!(
        (status.dead_letters, status.dead_lettered, status.evicted),
        (100, 150, 50)
    );
    assert_eq!((status.backlog, world.total(Total::Malformed)), (0, 0));
    for number in 0..40 {
        let raw = format!("{number}{}", "x".repeat(300_000));
        world
            .commit(malformed(1000 + number, raw))
            .await
            .expect("written");
    }
    let kept = world.ledger().status().dead_letters;
    assert!((4..=6).contains(&kept), "{kept} in a quarter of the limit");
    assert!(world.bytes() < 5 * MIB, "{} bytes", world.bytes());
    let newest = "SELECT substr(raw, 1, 2) FROM dead_letters ORDER BY id DESC LIMIT 1";
    assert_eq!(world.query::<String>(newest), "39");
}

#[tokio::test]
async fn a_rejected_record_is_a_dead_letter_and_can_be_sent_again() {
    let mut world = World::with(|settings| settings.max_size = 256 * MIB);
    world.page(0, 2).await;
    let batch = world.batch(1).await;
    world
        .ledger()
        .outbox_settle(rejected(&batch[0]))
        .await
        .expect("written");
    for number in 0..20 {
        let raw = format!("{number:02}{}", "x".repeat(100_000));
        world
            .commit(malformed(10 + number, raw))
            .await
            .expect("written");
    }
    let letters = DeadLetters::open(&world.path()).expect("opens");
    assert_eq!(letters.replay(&Selection::All).expect("queued"), 21);
    assert_eq!(
        world.ledger().replay_dead_letters().await.expect("moved"),
        21
    );
    let drained = world.drain().await;
    assert_eq!(drained[..2], [raw(1, 2), raw(0, 1)].concat());
    assert!(drained[2..].iter().map(|raw| &raw[..2]).is_sorted() && drained.len() == 22);
    assert_eq!(world.ledger().status().replayed, 21);
}

#[tokio::test]
async fn dead_letters_that_an_operator_deletes_make_room() {
    let mut world = World::new();
    world
        .commit(malformed(0, "x".repeat(1 << 20)))
        .await
        .expect("written");
    let mut committed = 1;
    while !world.ledger().is_full() {
        world.page(committed, 1000).await;
        committed += 1000;
    }
    let letters = DeadLetters::open(&world.path()).expect("opens");
    assert_eq!(letters.drop_letters(&Selection::All).expect("deleted"), 1);
    assert_eq!(
        world.ledger().replay_dead_letters().await.expect("looked"),
        0
    );
    assert!(!world.ledger().is_full());
}

#[tokio::test]
async fn an_acknowledgement_waits_for_another_writer() {
    let mut world = World::new();
    world.page(0, 20).await;
    let other = rusqlite::Connection::open(world.path()).expect("opens");
    for record in world.batch(100).await {
        let sql = "BEGIN IMMEDIATE; UPDATE dead_letters SET queued = 1";
        other.execute_batch(sql).expect("runs");
        let ledger = world.ledger().clone();
        let settled = Settled {
            delivered: vec![record.position],
            ..Settled::default()
        };
        let acknowledged = tokio::spawn(async move { ledger.outbox_settle(settled).await });
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        other.execute_batch("COMMIT").expect("runs");
        acknowledged.await.expect("ends").expect("written");
    }
    assert_eq!(
        (world.backlog(), world.ledger().status().commit_failures),
        (0, 0)
    );
}

fn gap(message: &str) -> Gap {
    Gap {
        reason: GapReason::Retention,
        from: None,
        to: None,
        message: message.to_owned(),
    }
}

#[tokio::test]
async fn gaps_without_entries_wait_for_the_collector_like_any_record() {
    let mut world = World::new();
    world.page(0, 2).await;
    for message in ["one", "other"] {
        let mut commit = Commit::new(Timestamp::now());
        commit.gaps = vec![gap(message)];
        world.commit(commit).await.expect("written");
    }
    world.page(2, 1).await;
    let records = world.drain().await;
    let names = ["\"0\"", "\"1\"", "one", "other", "\"2\""];
    assert_eq!(records.len(), names.len(), "{records:?}");
    for (record, name) in records.iter().zip(names) {
        assert!(record.contains(name), "{name}: {record}");
    }
    assert_eq!(world.total(Total::Gaps), 2);
}

#[tokio::test]
async fn a_full_disk_changes_nothing_until_there_is_room() {
    let mut world = World::new();
    world.tail.first_sync = Some(FirstSync {
        history_until: None,
        at: Timestamp::now(),
        count_floor: None,
        history_floor: None,
    });
    world.page(0, 1000).await;
    let state = |state: LedgerState| format!("{state:?}");
    let before = state(world.ledger().state().await.expect("readable"));
    world.ledger().pretend_full(true).await.expect("set");
    for attempt in 1..=3 {
        let mut commit = page(1000, 1000, Timestamp::now());
        commit.gaps = vec![gap("gone")];
        commit.duplicates = 5;
        let error = world.commit(commit).await.expect_err("there is no room");
        assert!(matches!(error, LedgerError::DiskFull), "{error}");
        let status = world.ledger().status();
        assert_eq!(
            (status.commit_failures, world.counted(), status.backlog),
            (attempt, 1000, 1000)
        );
    }
    assert_eq!(world.total(Total::Gaps) + world.total(Total::Duplicate), 0);
    let ids = [999, 1000].map(|number| entry(number, Timestamp::UNIX_EPOCH).id);
    assert_eq!(world.ledger().holds(ids), [true, false]);
    assert_eq!(
        state(world.ledger().state().await.expect("readable")),
        before
    );
    // To deliver what is there takes no room.
    let batch = world.batch(1000).await;
    world.settle(&batch).await;
    world.ledger().pretend_full(false).await.expect("set");
    world.page(1000, 1000).await;
    world.restart();
    assert_eq!(world.drain().await, raw(1000, 2000));
    assert_eq!(world.counted(), 2000);
}

#[tokio::test]
async fn a_damaged_page_of_the_outbox_is_a_gap_and_stops_no_other() {
    let mut world = World::new();
    for first in [0, 10, 20] {
        world.page(first, 10).await;
    }
    world.change(&format!(
        "UPDATE outbox SET block = X'ffffff7f00112233' WHERE page = {}",
        2 * STRIDE
    ));
    let batch = world.batch(100).await;
    assert_eq!(settings::entries(&batch), raw(0, 10));
    let mut taken = world.drain().await;
    let gap = taken.pop().expect("a record");
    assert_eq!(taken, [raw(0, 10), raw(20, 30)].concat());
    assert!(
        gap.contains("damaged_page") && gap.contains("10 log records"),
        "{gap}"
    );
    world.page(30, 1).await;
    assert_eq!(
        (world.total(Total::Gaps), world.counted(), world.backlog()),
        (1, 31, 1)
    );
    world.restart();
    assert_eq!(world.total(Total::Gaps), 1);
}

#[tokio::test]
async fn damage_found_while_running_sets_the_file_aside_and_counts_nothing_twice() {
    let mut world = World::with(|settings| settings.max_size = 64 * MIB);
    for first in 0..120 {
        world.page(first * 1000, 1000).await;
    }
    world.restart();
    let mut file = std::fs::read(world.path()).expect("readable");
    assert!(
        file.len() > 3 << 20,
        "more than is kept in memory: {}",
        file.len()
    );
    file[4096..].fill(0x5a);
    std::fs::write(world.path(), &file).expect("written");
    let error = loop {
        if let Err(error) = world.commit(page(200_000, 1000, Timestamp::now())).await {
            break error;
        }
        match world.ledger().outbox_batch(usize::MAX, usize::MAX).await {
            Ok(batch) => assert!(batch.len() < 200_000, "it never notices"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, LedgerError::Damaged(_)), "{error}");
    world.ledger().damaged().await;
    let counted = world.counted();
    let error = world
        .commit(page(300_000, 1, Timestamp::now()))
        .await
        .expect_err("damaged");
    assert!(
        matches!(error, LedgerError::Damaged(_)) && world.counted() == counted,
        "{error}"
    );
    // The old handle has neither the file nor its lock any more.
    let old = world.ledger().clone();
    old.set_aside().await.expect("renamed");
    world.restart();
    assert_eq!(
        (world.counted(), world.backlog(), world.asides()),
        (0, 0, 1)
    );
    assert!(
        world.process().state.recreated_at.is_some(),
        "an alert needs the time"
    );
    world.page(300_000, 10).await;
    assert_eq!((world.counted(), world.backlog()), (10, 10));
}

#[tokio::test]
async fn a_reader_that_prevents_truncation_stops_the_file_at_the_limit() {
    let mut world = World::with(|settings| settings.outbox = false);
    world.page(0, 1000).await;
    let reader = rusqlite::Connection::open(world.path()).expect("opens");
    reader
        .execute_batch("BEGIN; SELECT count(*) FROM pages")
        .expect("runs");
    let mut committed = 1000;
    while !world.ledger().is_full() {
        world.page(committed, 1000).await;
        committed += 1000;
        assert!(committed < 3_000_000, "it never stops");
    }
    assert!(world.bytes() < 9 * MIB, "{} bytes", world.bytes());
    reader.execute_batch("COMMIT").expect("runs");
    for look in 0.. {
        if !world.ledger().is_full() {
            break;
        }
        assert!(look < 1000, "it stays full");
        world.ledger().state().await.expect("readable");
    }
    world.page(committed, 1000).await;
    assert_eq!(world.counted(), committed + 1000);
}

#[tokio::test]
async fn a_backlog_does_not_stop_the_tail_if_no_collector_is_configured() {
    let mut world = World::new();
    let committed = world.fill().await;
    world.settings.outbox = false;
    world.restart();
    assert!(world.backlog() == committed && !world.ledger().is_full());
    world.settings.outbox = true;
    world.restart();
    assert!(world.ledger().is_full());
}
