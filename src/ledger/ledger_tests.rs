//! The state file: bounded, used by one process, readable by the versions that may read it, and left as it is if it is damaged.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tempfile::TempDir;

use super::*;
use crate::machine::ThisMachine;
use crate::metrics::Metrics;
use crate::metrics::audit::Total;

pub(super) const DAY: Duration = Duration::from_secs(86_400);
const HOUR: Duration = Duration::from_secs(3600);
pub(super) const MIB: u64 = 1 << 20;

/// A state file and the process that has it open.
pub(super) struct World {
    pub(super) directory: TempDir,
    pub(super) settings: LedgerOptions,
    pub(super) metrics: Metrics,
    open: Option<(LedgerHandle, LedgerState)>,
}

// === impl World ===

impl World {
    pub(super) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(super) fn with(change: impl FnOnce(&mut LedgerOptions)) -> Self {
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let directory = directory.unwrap();
        let path = Some(directory.path().join("state.db"));
        let mut settings = LedgerOptions {
            max_size: 8 * MIB,
            max_dead_letters: 100,
            ..options(path)
        };
        change(&mut settings);
        let mut world = Self {
            directory,
            settings,
            metrics: Metrics::new(Duration::ZERO),
            open: None,
        };
        world.restart();
        world
    }

    /// Another process opens the file.
    pub(super) fn restart(&mut self) {
        self.open = None;
        let (ledger, state) = LedgerHandle::open(self.settings.clone()).unwrap();
        self.metrics = Metrics::new(Duration::ZERO);
        let held = state.counted.clone();
        self.metrics.audit.restore(held, state.events);
        self.metrics.audit.publish(state.opening.clone());
        self.open = Some((ledger, state));
    }

    /// Reports which entries are known.
    pub(super) fn holds<const N: usize>(&self, ids: [EventId; N]) -> [bool; N] {
        ids.map(|id| self.ledger().seen(id) != Seen::Unknown)
    }

    /// Another process tries to open the file.
    pub(super) fn reopened(&mut self) -> Result<(), OpenError> {
        self.open = None;
        LedgerHandle::open(self.settings.clone()).map(drop)
    }

    fn refused(&self) -> OpenError {
        LedgerHandle::open(self.settings.clone()).unwrap_err()
    }

    pub(super) fn ledger(&self) -> &LedgerHandle {
        &self.open.as_ref().unwrap().0
    }

    /// Returns what was in the file when it was opened.
    fn opened(&self) -> &LedgerState {
        &self.open.as_ref().unwrap().1
    }

    pub(super) fn path(&self) -> PathBuf {
        self.directory.path().join("state.db")
    }

    /// Returns the bytes of the file and of its write-ahead log.
    pub(super) fn bytes(&self) -> u64 {
        let files = ["state.db", "state.db-wal"].map(|name| self.directory.path().join(name));
        let sizes = files.iter().filter_map(|file| file.metadata().ok());
        sizes.map(|file| file.len()).sum()
    }

    /// Commits a page that is settled.
    pub(super) async fn commit(&mut self, mut commit: Commit) -> Result<(), LedgerError> {
        (commit.sweep, commit.settled) = (1, 1);
        commit.tail = Some("{}".to_owned());
        let changes = self.ledger().commit(commit).await?;
        self.metrics.audit.publish(changes);
        Ok(())
    }

    /// Commits `count` entries from number `first` on.
    pub(super) async fn page(&mut self, first: u64, count: u64) {
        let commit = page(first, count, Timestamp::now());
        self.commit(commit).await.unwrap();
    }

    /// Commits pages until the file is full. Returns the number of the next entry.
    pub(super) async fn fill(&mut self, mut count: u64) -> u64 {
        while !self.ledger().is_full().await {
            self.page(count, 1000).await;
            count += 1000;
            let limit = self.settings.max_size;
            assert!(self.bytes() < 2 * limit, "it never fills");
        }
        count
    }

    pub(super) fn counted(&self) -> u64 {
        let events = self.metrics.audit.events();
        events.iter().map(|(_, count)| count).sum()
    }

    pub(super) fn total(&self, total: Total) -> u64 {
        self.metrics.audit.total(total)
    }

    pub(super) fn backlog(&self) -> u64 {
        self.ledger().status().backlog
    }

    pub(super) async fn batch(&self, max_records: usize) -> Vec<OutboxRecord> {
        let batch = self.ledger().outbox_batch(0, max_records, 3 << 20).await;
        batch.unwrap()
    }

    pub(super) async fn settle(&self, settled: Settled) {
        self.ledger().outbox_settle(settled).await.unwrap();
    }

    /// The collector rejects a record for good.
    pub(super) async fn reject(&self, record: &OutboxRecord) {
        self.settle(Settled {
            records: vec![record.clone()],
            is_witness: false,
            rejected: Some((DeadReason::Rejected, "no".to_owned())),
        })
        .await;
    }

    pub(super) async fn deliver(&self, records: &[OutboxRecord]) {
        self.settle(Settled {
            records: records.to_vec(),
            ..Settled::default()
        })
        .await;
    }

    /// Takes everything out of the outbox.
    pub(super) async fn drain(&self) -> Vec<String> {
        let mut taken = Vec::new();
        loop {
            let batch = self.batch(512).await;
            if batch.is_empty() {
                return taken;
            }
            taken.extend(json(&batch));
            assert!(taken.len() < 1_000_000, "it never ends");
            self.deliver(&batch).await;
        }
    }

    /// Opens the file as another program does.
    pub(super) fn other(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.path()).unwrap()
    }

    /// Changes the file as another program does, while no process has it open.
    pub(super) fn change(&mut self, sql: &str) {
        self.open = None;
        self.other().execute_batch(sql).unwrap();
    }
}

/// As the flags have it.
pub(crate) fn options(path: Option<PathBuf>) -> LedgerOptions {
    LedgerOptions {
        path,
        max_size: 256 * MIB,
        base_url: "https://api.example".to_owned(),
        outbox: true,
        actor_label: ActorPrivacy::Id,
        max_actors: 1000,
        max_dead_letters: 1000,
        machine: Arc::new(ThisMachine),
    }
}

/// A live entry of type X, created at the beginning of 1970 by nobody.
pub(crate) fn live(id: u64, text: String) -> NewEntry {
    NewEntry {
        id: EventId(id),
        created_at: Timestamp::UNIX_EPOCH,
        disposition: Disposition::Live,
        activity_type: Some("X".to_owned()),
        actor: None,
        problem: None,
        is_uncounted: false,
        is_unsent: false,
        hash: None,
        text: text.into(),
    }
}

pub(super) fn entry(number: u64, created_at: Timestamp) -> NewEntry {
    // Every text differs, as real ones do.
    let text = format!(
        "{{\"id\":\"{number}\",\"note\":\"{:x}{:x}\"}}",
        number.wrapping_mul(0xd134_2543_de82_ef95),
        number * 7919
    );
    NewEntry {
        created_at,
        activity_type: Some(format!("TYPE_{}", number % 5)),
        actor: Some(ActorRef {
            id: (number % 7).to_string(),
            name: None,
        }),
        ..live(number.wrapping_mul(0x9e37_79b9_7f4a_7c15), text)
    }
}

pub(super) fn page(first: u64, count: u64, at: Timestamp) -> Commit {
    let entries = (first..first + count).map(|number| entry(number, at));
    Commit {
        entries: entries.collect(),
        ..Commit::new(at)
    }
}

pub(super) fn gap(message: &str) -> Gap {
    Gap {
        reason: GapReason::Retention,
        from: None,
        to: None,
        message: message.to_owned(),
    }
}

/// The texts of entries `first..last`.
pub(super) fn raw(first: u64, last: u64) -> Vec<String> {
    let numbers = first..last;
    numbers
        .map(|number| entry(number, Timestamp::UNIX_EPOCH).text.to_string())
        .collect()
}

/// The texts of records.
pub(super) fn json(records: &[OutboxRecord]) -> Vec<String> {
    let texts = records
        .iter()
        .map(|record| Stored::read(&record.line).entry.into_owned());
    texts.collect()
}

#[tokio::test]
async fn a_year_of_events_leaves_a_bounded_file_and_a_watermark() {
    let mut world = World::with(|settings| settings.outbox = false);
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    for day in 0..365u32 {
        let at = start + DAY * day;
        let mut commit = page(u64::from(day) * 1000, 1000, at);
        commit.server_time = at;
        commit.prune = Some(Prune {
            sweep: 1,
            at: at - Duration::from_secs(7200),
            // A pass has met the entries of the day before.
            listed: [entry((u64::from(day) * 1000).saturating_sub(1), start).id]
                .into_iter()
                .collect(),
            newest: 1000,
        });
        world.commit(commit).await.unwrap();
        let oldest = entry(u64::from(day) * 1000, start).id;
        assert_eq!(world.holds([oldest]), [true]);
    }
    assert_eq!(world.counted(), 365_000);
    let pruned = world.ledger().reload().await.unwrap().pruned;
    let pruned = pruned.expect("ids were pruned");
    let newest = start + DAY * 364 - Duration::from_secs(7200);
    assert!(pruned > start + DAY * 300 && pruned <= newest, "{pruned}");
    assert!(world.bytes() < 5 * MIB, "{} bytes", world.bytes());
    let ids = [0, 350_000, 364_999].map(|number| entry(number, start).id);
    // What the pass has met stays, however old it is.
    let held = [false, false, true];
    assert_eq!(world.holds(ids), held);
    assert_eq!(world.holds([entry(363_000, start).id]), [true]);
    world.restart();
    assert_eq!(world.holds(ids), held);
}

#[tokio::test]
async fn the_delay_of_a_live_event_has_fractions_of_a_second_if_both_clocks_agree() {
    for (ahead, expected) in [(700, 1.7), (3_600_000, 1.0), (-5_000, 1.0)] {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let mut commit = page(0, 3, now - Duration::from_secs(1));
        commit.server_time = now;
        commit.arrived_at = now + SignedDuration::from_millis(ahead);
        commit.entries[1].disposition = Disposition::Late;
        commit.entries[1].created_at -= Duration::from_secs(1);
        commit.entries[2].activity_type = None;
        let changes = World::new().ledger().commit(commit).await.unwrap();
        assert_eq!(changes.delays, [expected]);
    }
}

/// As on a volume that knows no locks.
#[tokio::test]
async fn a_process_that_lost_the_file_writes_and_sends_nothing() {
    let mut world = World::new();
    world.page(0, 10).await;
    let take_over = "UPDATE state SET fence = fence + 1";
    world.other().execute_batch(take_over).unwrap();
    let ledger = world.ledger();
    for refused in [
        ledger
            .commit(page(10, 10, Timestamp::now()))
            .await
            .map(drop),
        ledger.outbox_batch(0, 10, usize::MAX).await.map(drop),
        ledger.outbox_batch(1, 1, usize::MAX).await.map(drop),
        ledger.outbox_settle(Settled::default()).await,
    ] {
        assert!(matches!(refused, Err(LedgerError::Fenced)), "{refused:?}");
    }
    let error = ledger.fatal_error().await;
    assert!(matches!(error, LedgerError::Fenced), "{error}");
}

/// The name of a kind of damage, and what makes it.
type Damage<'a> = (&'a str, &'a dyn Fn(&mut World));

/// Also behind a symbolic link.
#[tokio::test]
async fn a_damaged_file_is_refused_with_the_command_that_moves_it_away_and_not_touched() {
    let zeros = |bytes: std::ops::Range<usize>| {
        move |world: &mut World| {
            world.open = None;
            let mut file = std::fs::read(world.path()).unwrap();
            file[bytes.clone()].fill(0);
            std::fs::write(world.path(), file).unwrap();
        }
    };
    let sql = |sql: &'static str| move |world: &mut World| world.change(sql);
    let damages: [Damage; 3] = [
        // SQLite does not notice these two by a quick check.
        (
            "a byte of a record",
            &sql(
                "UPDATE outbox SET block = CAST(substr(block, 1, 20) || x'00' || substr(block, 22) AS BLOB)",
            ),
        ),
        (
            "an index without a row",
            &sql(
                "PRAGMA writable_schema = 1; UPDATE sqlite_schema SET sql = replace(sql, 'arrived)', 'records)') WHERE name = 'outbox_arrived'",
            ),
        ),
        ("a page", &zeros(4096..8192)),
    ];
    for (case, damage) in damages {
        let mut world = World::new();
        let link = world.directory.path().join("link.db");
        std::os::unix::fs::symlink(world.path(), &link).unwrap();
        world.settings.path = Some(link.clone());
        world.page(0, 10).await;
        damage(&mut world);
        let before = std::fs::read(world.path()).unwrap();
        let path = world.path().display().to_string();
        let words = [
            format!("state file {path} is damaged: "),
            "restore a copy of it".to_owned(),
            format!("`mv '{path}' '{path}.old'`, and the same for its -wal"),
            "counters begin at 0, and log records that wait".to_owned(),
        ];
        for error in [world.refused(), Inspection::at(&link).unwrap_err()] {
            assert!(matches!(error, OpenError::Damaged { .. }), "{case}");
            let error = error.to_string();
            assert!(words.iter().all(|words| error.contains(words)), "{error}");
        }
        assert!(std::fs::read(&link).unwrap() == before && link.is_symlink());
    }
}

#[tokio::test]
async fn an_empty_file_is_a_new_one_whatever_log_is_left_beside_it() {
    let mut world = World::new();
    world.page(0, 10).await;
    let log = world.path().with_file_name("state.db-wal");
    let left = std::fs::read(&log).unwrap();
    assert!(!left.is_empty());
    world.open = None;
    std::fs::File::create(world.path()).unwrap();
    std::fs::write(log, left).unwrap();
    world.restart();
    world.page(0, 10).await;
    assert_eq!(world.counted(), 10);
}

#[tokio::test]
async fn files_of_other_programs_are_refused_and_not_touched() {
    let mut world = World::new();
    let path = world.directory.path().join("theirs.db");
    world.settings.path = Some(path.clone());
    let database = |sql: &str| {
        let _ = std::fs::remove_file(&path);
        let theirs = rusqlite::Connection::open(&path).unwrap();
        theirs.execute_batch(sql).unwrap();
        std::fs::read(&path).unwrap()
    };
    let text =
        "this is no database at all, not even a small one, and longer than a header".repeat(2);
    for content in [
        // Also without tables: the other program may be about to create them.
        database("PRAGMA user_version = 1"),
        database("PRAGMA application_id = 1"),
        text.into_bytes(),
        b"short".to_vec(),
        // So is one of this program without its header.
        vec![0; 8192],
        database("CREATE TABLE theirs (x)"),
    ] {
        std::fs::write(&path, &content).unwrap();
        let words = "is not a state file of this program; set --state.path";
        let error = world.refused();
        assert!(error.to_string().contains(words), "{error}");
        Inspection::at(&path).unwrap_err();
        assert!(std::fs::read(&path).unwrap() == content);
    }
}

#[tokio::test]
async fn each_entry_is_counted_sent_and_totalled_as_it_was_met() {
    use Disposition::{Backdated, Filtered, Ignored, Late, Live};
    type Change = fn(&mut NewEntry);
    let plain: Change = |_| {};
    let odd: Change = |entry| entry.problem = Some("the entry has no id");
    let untyped: Change = |entry| {
        entry.activity_type = None;
        entry.problem = Some("the entry has no type");
    };
    let uncounted: Change = |entry| entry.is_uncounted = true;
    let unsent: Change = |entry| entry.is_unsent = true;
    for (disposition, change, outcome, total) in [
        (Live, plain, "counted, sent", None),
        (Live, odd, "counted, sent", Some(Total::Malformed)),
        (Live, untyped, "dead", Some(Total::Malformed)),
        (Live, uncounted, "sent", Some(Total::Uncounted)),
        (Live, unsent, "counted", Some(Total::Unsent)),
        (Late, plain, "counted, sent", Some(Total::Late)),
        (Late, uncounted, "sent", Some(Total::Uncounted)),
        (Backdated, plain, "sent", Some(Total::Backdated)),
        (Filtered, plain, "", Some(Total::Filtered)),
        (Filtered, unsent, "", Some(Total::Filtered)),
        (Ignored, plain, "", None),
        (Ignored, untyped, "", None),
        (Ignored, uncounted, "", None),
    ] {
        let mut world = World::new();
        let mut commit = page(0, 1, Timestamp::now());
        commit.entries[0].disposition = disposition;
        change(&mut commit.entries[0]);
        let case = format!("{disposition:?} {outcome} {total:?}");
        world.commit(commit).await.unwrap();
        let status = world.ledger().status();
        let dead = status.dead_lettered[DeadReason::Malformed as usize];
        let found = [world.counted(), status.backlog, dead, status.dead_letters];
        let expected = ["counted", "sent", "dead", "dead"];
        let expected = expected.map(|what| u64::from(outcome.contains(what)));
        assert_eq!(found, expected, "{case}");
        for restarted in [false, true] {
            for &each in <Total as strum::VariantArray>::VARIANTS {
                let expected = u64::from(Some(each) == total);
                assert_eq!(world.total(each), expected, "{case} {each:?} {restarted}");
            }
            world.restart();
        }
        assert_eq!(world.drain().await.len() as u64, expected[1], "{case}");
    }
}

#[tokio::test]
async fn a_page_also_has_repeated_entries_gaps_and_a_newest_entry() {
    let mut world = World::new();
    let newest = Timestamp::from_second(4_000_000_000).unwrap();
    let mut commit = page(0, 1, newest);
    (commit.duplicates, commit.is_cut) = (3, true);
    commit.gaps = vec![gap("one"), gap("other")];
    let changes = world.ledger().commit(commit).await.unwrap();
    assert_eq!(changes.newest, Some(newest));
    let expected = [(Total::Duplicate, 3), (Total::Cut, 1), (Total::Gaps, 2)];
    assert_eq!(changes.totals, expected);
    // It is still known after a restart, and an older one does not take its place.
    world.page(10, 1).await;
    world.restart();
    assert_eq!(world.opened().counted.newest, Some(newest));
    let records = world.drain().await;
    for (record, text) in records.iter().zip(["\"10\"", "\"0\"", "one", "other"]) {
        assert!(record.contains(text), "{text}: {record}");
    }
    assert_eq!(records.len(), 4);
}

#[tokio::test]
async fn gaps_and_checkpoints_are_records_with_their_kind_and_times() {
    let world = World::new();
    let now = Timestamp::from_second(1_500_000_000).unwrap();
    let later = now + SignedDuration::from_secs(1);
    let commit = Commit {
        arrived_at: later,
        trace: Some("a trace".to_owned()),
        gaps: vec![gap("one")],
        ..Commit::new(now)
    };
    world.ledger().commit(commit).await.unwrap();
    world.ledger().checkpoint(Some(now)).await.unwrap();
    let status = world.ledger().status();
    assert_eq!((status.commits, status.backlog), (2, 2));
    let batch = world.batch(2).await;
    let [gap, checkpoint] = [0, 1].map(|index| Stored::read(&batch[index].line));
    assert_eq!(gap.kind, RecordKind::Gap);
    assert_eq!((gap.created, gap.arrived), (now, later));
    assert_eq!(gap.trace.as_deref(), Some("a trace"));
    assert_eq!(checkpoint.kind, RecordKind::Checkpoint);
    assert!(checkpoint.created > later && checkpoint.created == checkpoint.arrived);
}

#[tokio::test]
async fn the_status_counts_commits_and_evictions_and_survives_what_it_should() {
    let mut world = World::with(|settings| settings.max_dead_letters = 2);
    let created = Timestamp::from_second(1_800_000_000).unwrap();
    let named = Some(("7".to_owned(), Some("Org".to_owned())));
    let mut commit = page(0, 4, created);
    commit.organization = named.clone();
    world.commit(commit).await.unwrap();
    let mut dead = page(10, 3, created);
    for entry in &mut dead.entries {
        entry.activity_type = None;
    }
    dead.complete_through = Some(created + DAY);
    world.commit(dead).await.unwrap();
    let numbers = |world: &World| {
        let status = world.ledger().status();
        assert_eq!(status.dead_letters, 2);
        let rejected = status.dead_lettered[DeadReason::Rejected as usize];
        [status.commits, status.backlog, status.evicted, rejected]
    };
    assert_eq!(numbers(&world), [2, 4, 1, 0]);
    for record in world.batch(2).await {
        world.reject(&record).await;
    }
    assert_eq!(numbers(&world), [4, 2, 3, 2]);
    let instance = world.ledger().instance_id();
    world.restart();
    assert_eq!(numbers(&world), [0, 2, 0, 0]);
    assert_eq!(world.ledger().instance_id(), instance);
    let status = world.ledger().status();
    assert_eq!(status.organization, named);
    // Two records still wait.
    let before_them = created - Duration::from_micros(1);
    assert_eq!(status.delivered_through, Some(before_them));
    assert_eq!(world.drain().await, raw(2, 4));
    // What is delivered stays delivered.
    for complete_through in [Some(created + DAY), None] {
        let mut commit = page(20, 1, created + DAY + DAY);
        commit.complete_through = complete_through;
        world.commit(commit).await.unwrap();
        let through = world.ledger().status().delivered_through;
        assert_eq!(through, Some(created + DAY));
    }
}

#[tokio::test]
async fn entries_read_without_a_collector_are_one_gap_of_the_first_start_with_one() {
    let mut world = World::with(|settings| settings.outbox = false);
    let begun = Timestamp::from_second(1_800_000_000).unwrap();
    let complete = |number, created: Timestamp, through: Timestamp| Commit {
        complete_through: Some(through),
        ..page(number, 1, created)
    };
    let through = |world: &World| world.ledger().status().delivered_through;
    // The last one is dated ahead.
    let ends = begun + DAY;
    for (number, created) in [(0, begun + HOUR), (1, begun), (2, ends), (3, ends + DAY)] {
        let mut commit = complete(number, created, ends);
        (commit.server_time, commit.arrived_at) = (ends, ends);
        world.commit(commit).await.unwrap();
        world.restart();
        assert_eq!((world.backlog(), world.total(Total::Gaps)), (0, 0));
        assert_eq!(through(&world), None);
    }
    world.settings.outbox = true;
    for _ in 0..2 {
        world.restart();
        assert_eq!((world.backlog(), world.total(Total::Gaps)), (1, 1));
        // What it says of the time before would be wrong.
        world.commit(complete(4, ends, ends)).await.unwrap();
        assert_eq!(through(&world), None);
        let waiting = json(&world.batch(10).await);
        let gap = format!("\"reason\":\"not_recorded\",\"from\":\"{begun}\",\"to\":\"{ends}\"");
        assert!(
            waiting.iter().any(|record| record.contains(&gap)),
            "{waiting:?}"
        );
        world.change("DELETE FROM outbox WHERE page > 1");
    }
    world.restart();
    world.drain().await;
    let later = ends + DAY;
    world.commit(complete(5, later, later)).await.unwrap();
    assert_eq!(through(&world), Some(later - Duration::from_micros(1)));
    // Without a collector it says nothing; another time without one is another gap.
    for (outbox, gaps) in [(false, 1), (false, 1), (true, 2)] {
        world.settings.outbox = outbox;
        world.restart();
        assert_eq!(world.total(Total::Gaps), gaps);
        let page = complete(6 + gaps, later + HOUR, later);
        world.commit(page).await.unwrap();
        assert_eq!(through(&world), None);
    }
}

#[tokio::test]
async fn beyond_two_million_ids_only_those_of_counted_entries_are_kept() {
    let mut world = World::with(|settings| settings.max_size = 256 * MIB);
    world.page(0, 1).await;
    world
        .change("INSERT INTO pages (newest, sweep, ids) VALUES (1000000, 1, randomblob(16000000))");
    world.restart();
    assert!(!world.ledger().is_full_of_ids());
    let mut commit = page(1, 2, Timestamp::now());
    commit.entries[0].disposition = Disposition::Backdated;
    world.commit(commit).await.unwrap();
    let ids = [0, 1, 2].map(|number| entry(number, Timestamp::UNIX_EPOCH).id);
    for _ in 0..2 {
        assert_eq!(world.holds(ids), [true, false, true]);
        world.restart();
    }
    world.change("INSERT INTO pages (newest, sweep, ids) VALUES (1000000, 1, randomblob(8000000))");
    world.restart();
    assert!(world.ledger().is_full_of_ids());
}

/// Also while a catch-up reads it, or it would be delivered at each.
#[tokio::test]
async fn an_entry_that_is_delivered_and_not_counted_is_known() {
    let mut world = World::new();
    let mut commit = page(0, 1, Timestamp::now());
    commit.is_sweep = false;
    commit.entries[0].disposition = Disposition::Backdated;
    let id = commit.entries[0].id;
    world.commit(commit).await.unwrap();
    assert_eq!(world.holds([id]), [true]);
    world.restart();
    assert_eq!(world.holds([id]), [true]);
}
