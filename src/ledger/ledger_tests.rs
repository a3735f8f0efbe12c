//! The state file: bounded, used by one process, readable by the versions that may read it, and replaced if it is damaged.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tempfile::TempDir;

use super::*;
use crate::ledger::TraceContext;
use crate::metrics::Metrics;
use crate::metrics::audit::Total;
use crate::support::settings::alone;
use crate::telemetry::captured::Captured;

pub(super) const DAY: Duration = Duration::from_secs(86_400);
pub(super) const MIB: u64 = 1 << 20;

/// A state file and the process that has it open.
pub(super) struct World {
    pub(super) directory: TempDir,
    pub(super) settings: LedgerOptions,
    pub(super) zero_hold: Duration,
    pub(super) metrics: Metrics,
    open: Option<(LedgerHandle, LedgerState)>,
    /// The tail's state of the last commit.
    pub(super) tail: TailState,
}

/// Log records that are nothing but their JSON, behind a byte for their kind.
struct Plain;

impl Encode for Plain {
    fn encode(&self, record: &RawRecord<'_>, out: &mut Vec<u8>) {
        let record = [&[record.kind as u8], record.json.as_bytes()].concat();
        prost::encoding::bytes::encode(2, &record, out);
    }

    fn redact(&self, json: &str) -> String {
        json.to_owned()
    }

    fn decode(&self, record: &[u8]) -> (RecordKind, String) {
        let mut record = &record[1..];
        prost::encoding::decode_varint(&mut record).unwrap();
        let json = String::from_utf8(record[1..].to_vec()).unwrap();
        (RecordKind::from_code(record[0].into()), json)
    }
}

// === impl World ===

impl World {
    pub(super) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(super) fn with(change: impl FnOnce(&mut LedgerOptions)) -> Self {
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let directory = directory.unwrap();
        let mut settings = LedgerOptions {
            path: Some(directory.path().join("state.db")),
            max_size: 8 * MIB,
            base_url: "https://api.example".to_owned(),
            filters: "[]".to_owned(),
            outbox: true,
            encoder: Arc::new(Plain),
            actor_label: ActorLabel::Id,
            max_actors: 1000,
            actor_idle: 30 * DAY,
            max_dead_letters: 100,
        };
        change(&mut settings);
        let mut world = Self {
            directory,
            settings,
            zero_hold: Duration::ZERO,
            metrics: Metrics::new(Duration::ZERO),
            open: None,
            tail: TailState::default(),
        };
        world.restart();
        world
    }

    /// Another process opens the file.
    pub(super) fn restart(&mut self) {
        self.open = None;
        let (ledger, state) = LedgerHandle::open(self.settings.clone()).unwrap();
        self.metrics = Metrics::new(self.zero_hold);
        let held = state.counted.clone();
        self.metrics.audit.restore(held, state.events);
        self.tail = state.tail.clone();
        self.open = Some((ledger, state));
    }

    /// Reports which entries are known.
    pub(super) fn holds<const N: usize>(&self, ids: [EventId; N]) -> [bool; N] {
        ids.map(|id| self.ledger().standing([id], self.tail.number) != [Standing::Unknown])
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

    /// Makes another name for the file.
    fn link(&self) -> Option<PathBuf> {
        let link = self.directory.path().join("link.db");
        std::os::unix::fs::symlink(self.path(), &link).unwrap();
        Some(link)
    }

    /// Returns the bytes of the file and of its write-ahead log.
    pub(super) fn bytes(&self) -> u64 {
        let files = ["state.db", "state.db-wal"].map(|name| self.directory.path().join(name));
        let sizes = files.iter().filter_map(|file| file.metadata().ok());
        sizes.map(|file| file.len()).sum()
    }

    /// Commits a page of a sweep that it ends, if none is open.
    pub(super) async fn commit(&mut self, commit: Commit) -> Result<(), LedgerError> {
        self.commit_of(self.tail.number, commit).await
    }

    /// Commits a page of this sweep.
    pub(super) async fn commit_of(
        &mut self,
        sweep: i64,
        mut commit: Commit,
    ) -> Result<(), LedgerError> {
        let mut tail = self.tail.clone();
        commit.sweep = sweep;
        tail.number += i64::from(tail.sweep.is_none());
        commit.tail = Some(tail.clone());
        let changes = self.ledger().commit(commit).await?;
        self.metrics.audit.publish(changes);
        self.tail = tail;
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
            assert!(count < 3_000_000, "it never fills");
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
            self.deliver(&batch).await;
        }
    }

    /// Opens the file as another program does.
    pub(super) fn other(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.path()).unwrap()
    }

    /// Changes the file as another program does, while no process has it open.
    fn change(&mut self, sql: &str) {
        self.open = None;
        self.other().execute_batch(sql).unwrap();
    }

    /// Returns how many files were set aside.
    pub(super) fn asides(&self) -> usize {
        let files = std::fs::read_dir(self.directory.path()).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        let is_aside = |name: &String| name.contains(".damaged-") && !name.contains("-wal");
        names
            .filter(|name| is_aside(name) && !name.contains("-shm"))
            .count()
    }
}

pub(super) fn entry(number: u64, created_at: Timestamp) -> NewEntry {
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
        raw: alone(format!(
            "{{\"id\":\"{number}\",\"note\":\"{:x}{:x}\"}}",
            number.wrapping_mul(0xd134_2543_de82_ef95),
            number * 7919
        )),
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
        .map(|number| entry(number, Timestamp::UNIX_EPOCH).raw.to_string())
        .collect()
}

/// The texts of records.
pub(super) fn json(records: &[OutboxRecord]) -> Vec<String> {
    let texts = records.iter().map(|record| Plain.decode(&record.bytes).1);
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
        commit.prune_before = Some(at - Duration::from_secs(7200));
        world.commit(commit).await.unwrap();
        let oldest = entry(u64::from(day) * 1000, start).id;
        assert_eq!(world.holds([oldest]), [true]);
    }
    assert_eq!(world.counted(), 365_000);
    let pruned = world.ledger().state().await.unwrap().pruned;
    let pruned = pruned.expect("ids were pruned");
    let newest = start + DAY * 364 - Duration::from_secs(7200);
    assert!(pruned > start + DAY * 300 && pruned <= newest, "{pruned}");
    assert!(world.bytes() < 5 * MIB, "{} bytes", world.bytes());
    let ids = [0, 350_000, 364_999].map(|number| entry(number, start).id);
    // Ten thousand stay, however old they are.
    let held = [false, false, true];
    assert_eq!(world.holds(ids), held);
    assert_eq!(world.holds([entry(355_000, start).id]), [true]);
    world.restart();
    assert_eq!(world.holds(ids), held);
}

#[tokio::test]
async fn an_entry_is_settled_when_its_sweep_has_ended_also_after_a_restart() {
    let mut world = World::new();
    let now = Timestamp::now();
    world.tail.sweep = Some(OpenSweep::default());
    world.commit(page(0, 1, now)).await.unwrap();
    let mut above = page(1, 1, now);
    above.sweep = world.tail.number + 1;
    above.tail = Some(world.tail.clone());
    world.ledger().commit(above).await.unwrap();
    let ids = [0, 1, 2].map(|number| entry(number, now).id);
    let expected = [Standing::Current, Standing::Upper, Standing::Unknown];
    assert_eq!(world.ledger().standing(ids, world.tail.number), expected);
    world.restart();
    assert_eq!(world.ledger().standing(ids, world.tail.number), expected);
    world.tail.sweep = None;
    world.page(2, 1).await;
    let expected = [Standing::Settled, Standing::Current, Standing::Settled];
    assert_eq!(world.ledger().standing(ids, world.tail.number), expected);
}

#[tokio::test]
async fn the_delay_has_fractions_of_a_second_if_both_clocks_agree() {
    for (ahead, expected) in [(700, 1.7), (3_600_000, 1.0), (-5_000, 1.0)] {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let mut commit = page(0, 10, now - Duration::from_secs(1));
        commit.server_time = now;
        commit.arrived_at = now + SignedDuration::from_millis(ahead);
        let changes = World::new().ledger().commit(commit).await.unwrap();
        let is_right = |delay: &f64| (delay - expected).abs() < 0.01;
        assert_eq!(
            changes
                .delays
                .iter()
                .filter(|delay| is_right(delay))
                .count(),
            10
        );
    }
}

/// What the metrics show of a page: late entries have no delay, unreadable ones neither, and all have a creation time.
#[tokio::test]
async fn a_commit_tells_the_newest_creation_time_the_delays_of_live_events_and_its_trace() {
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let mut commit = page(0, 4, now - Duration::from_secs(1));
    (commit.server_time, commit.arrived_at) = (now, now);
    commit.entries[1].disposition = Disposition::Late;
    commit.entries[2].event = Err("unreadable".to_owned());
    commit.trace = Some(TraceContext {
        trace_id: [1; 16],
        span_id: [2; 8],
    });
    let (newest, trace) = (
        commit.entries.iter().map(|entry| entry.created_at).max(),
        commit.trace,
    );
    let changes = World::new().ledger().commit(commit).await.unwrap();
    assert_eq!(changes.delays.len(), 2);
    assert_eq!((changes.newest, changes.trace), (newest, trace));
}

/// As on a file system that became read-only for this file.
#[tokio::test]
async fn it_starts_and_shows_what_it_has_if_the_file_cannot_be_written() {
    let mut world = World::new();
    world.page(0, 10).await;
    world.change(
        "CREATE TRIGGER refuse BEFORE UPDATE ON state BEGIN SELECT RAISE(FAIL, 'refused'); END",
    );
    world.restart();
    assert_eq!((world.backlog(), world.counted()), (10, 10));
}

#[tokio::test]
async fn a_second_process_is_refused_also_by_another_name() {
    let mut world = World::new();
    for path in [world.settings.path.clone(), world.link()] {
        world.settings.path = path;
        let error = world.refused();
        assert!(matches!(error, OpenError::Locked(_)), "{error}");
    }
}

/// The lock file was deleted, and a second process started.
#[tokio::test]
async fn a_process_that_lost_the_file_writes_and_sends_nothing() {
    for by_link in [false, true] {
        let mut world = World::new();
        world.page(0, 10).await;
        std::fs::remove_file(world.directory.path().join("state.db.lock")).unwrap();
        if by_link {
            world.settings.path = world.link();
        }
        let first = world.ledger().clone();
        let (second, _) = LedgerHandle::open(world.settings.clone()).unwrap();
        let commit = page(10, 10, Timestamp::now());
        for refused in [
            first.commit(commit.clone()).await.map(drop),
            first.outbox_batch(0, 10, usize::MAX).await.map(drop),
            first.outbox_batch(1, 1, usize::MAX).await.map(drop),
            first.outbox_settle(Settled::default()).await,
        ] {
            assert!(matches!(refused, Err(LedgerError::Fenced)), "{refused:?}");
        }
        first.lost().await;
        second.commit(commit).await.unwrap();
        let batch = second.outbox_batch(0, 100, usize::MAX).await.unwrap();
        assert_eq!(json(&batch), raw(0, 20));
    }
}

#[tokio::test]
async fn a_damaged_file_is_set_aside_and_a_new_one_is_created() {
    for damage in [
        "DROP TABLE pages; DROP TABLE outbox",
        "DROP TABLE state",
        "UPDATE state SET tail = 'no JSON'",
        "ALTER TABLE state DROP COLUMN pruned_at",
    ] {
        let mut world = World::new();
        for time in 1..=5 {
            world.page(0, 10).await;
            world.change(damage);
            world.restart();
            assert_eq!((world.backlog(), world.counted()), (0, 0), "{damage}");
            assert!(world.opened().recreated_at.is_some(), "{damage}");
            assert_eq!(
                world.asides(),
                time.min(3),
                "the newest three are kept: {damage}"
            );
        }
    }
}

#[tokio::test]
async fn a_damaged_file_stays_until_another_one_can_take_its_place() {
    let mut world = World::new();
    world.change("DROP TABLE state");
    let in_the_way = world.path().with_file_name("state.db.damaged");
    std::fs::create_dir(&in_the_way).unwrap();
    for _ in 0..2 {
        world.refused();
        assert_eq!((world.path().exists(), world.asides()), (true, 0));
    }
    std::fs::remove_dir(in_the_way).unwrap();
    world.restart();
    assert!(world.opened().recreated_at.is_some());
    assert_eq!(world.asides(), 1);
}

/// SQLite takes it for a file of another program then.
#[tokio::test]
async fn a_file_whose_beginning_is_damaged_is_set_aside() {
    for bytes in [72, 4096] {
        let mut world = World::new();
        world.page(0, 10).await;
        world.open = None;
        let mut file = std::fs::read(world.path()).unwrap();
        file[..bytes].fill(0);
        std::fs::write(world.path(), file).unwrap();
        let content = Look::at(&world.path()).unwrap().content;
        assert!(matches!(content, Content::Damaged(_)), "{content:?}");
        world.restart();
        assert!(world.opened().recreated_at.is_some());
        assert_eq!((world.asides(), world.counted()), (1, 0));
    }
}

#[tokio::test]
async fn a_file_that_lost_its_content_is_created_again_with_a_warning() {
    for keeps_page in [false, true] {
        let mut world = World::new();
        world.page(0, 10).await;
        // As if it was killed while a damaged file was set aside.
        let log = world.path().with_file_name("state.db-wal");
        let left = std::fs::read(&log).unwrap();
        // Until the log is written back for the first time, everything is in it.
        let page = std::fs::read(world.path()).unwrap();
        assert_eq!(page.len(), 4096);
        world.open = None;
        if keeps_page {
            std::fs::write(world.path(), page).unwrap();
        } else {
            std::fs::File::create(world.path()).unwrap();
            std::fs::write(log, left).unwrap();
        }
        let log = Captured::begin();
        world.restart();
        let lines = log.lines();
        assert!(lines.concat().contains("was empty"), "{lines:?}");
        assert!(world.opened().recreated_at.is_some());
        world.page(0, 10).await;
        assert_eq!(world.counted(), 10);
    }
}

/// On a full disk, for example.
#[tokio::test]
async fn a_first_start_that_failed_is_no_damage() {
    let mut world = World::new();
    world.open = None;
    for name in ["state.db", "state.db.lock"] {
        std::fs::File::create(world.path().with_file_name(name)).unwrap();
    }
    world.restart();
    assert!(world.opened().recreated_at.is_none());
}

/// The link was renamed, and the next file was created beside it.
#[tokio::test]
async fn behind_a_symbolic_link_the_file_itself_is_set_aside() {
    let mut world = World::new();
    world.open = None;
    world.settings.path = world.link();
    world.restart();
    world.page(0, 10).await;
    world.change("DROP TABLE state");
    world.restart();
    let link = world.path().with_file_name("link.db");
    assert!(link.is_symlink() && world.path().is_file());
    assert_eq!((world.asides(), world.counted()), (1, 0));
}

/// The write-ahead log is switched on before the tables are created.
#[tokio::test]
async fn a_file_that_a_crash_left_without_tables_is_used() {
    let mut world = World::new();
    world.open = None;
    std::fs::remove_file(world.path()).unwrap();
    schema::configure(&world.other()).unwrap();
    assert!(world.bytes() > 0);
    world.restart();
    assert_eq!(world.asides(), 0);
}

#[tokio::test]
async fn a_changed_base_address_is_one_line_and_changes_no_count() {
    let mut world = World::new();
    world.page(0, 10).await;
    world.settings.base_url = "https://moved.example".to_owned();
    let log = Captured::begin();
    for start in ["the first", "the next"] {
        world.restart();
        let lines = log.lines();
        assert_eq!(lines.len(), 1, "{start}: {lines:?}");
        assert!(lines[0].contains("base address has changed"), "{lines:?}");
        assert_eq!((world.counted(), world.backlog()), (10, 10), "{start}");
    }
}

#[tokio::test]
async fn files_of_other_programs_are_refused_and_not_touched() {
    let text = b"this is no database at all, not even a small one, and longer than a header of one hundred bytes";
    let mut world = World::new();
    let path = world.directory.path().join("theirs.db");
    world.settings.path = Some(path.clone());
    // Also without tables: the other program may be about to create them.
    let [with_table, with_version, with_id] = [
        "CREATE TABLE theirs (x)",
        "PRAGMA user_version = 1",
        "PRAGMA application_id = 1",
    ]
    .map(|sql| {
        let _ = std::fs::remove_file(&path);
        let theirs = rusqlite::Connection::open(&path).unwrap();
        theirs.execute_batch(sql).unwrap();
        std::fs::read(&path).unwrap()
    });
    let lock = world.directory.path().join("theirs.db.lock");
    for content in [
        with_table.clone(),
        with_version,
        with_id,
        text.to_vec(),
        b"short".to_vec(),
    ] {
        std::fs::write(&path, &content).unwrap();
        std::fs::write(&lock, "4711").unwrap();
        let error = world.refused();
        let words = "is not a state file of this program; set --state.path";
        assert!(error.to_string().contains(words), "{error}");
        let looked = Look::at(&path).unwrap_err().to_string();
        assert!(looked.contains(words), "{looked}");
        assert!(std::fs::read(&path).unwrap() == content);
        assert_eq!(std::fs::read(&lock).unwrap(), b"4711");
        assert_eq!(world.asides(), 0);
    }
    // In the place of ours.
    std::fs::write(&path, with_table).unwrap();
    std::fs::write(&lock, "The state file beside this one was in use.\n").unwrap();
    let error = world.refused().to_string();
    assert!(error.contains("not a state file"), "{error}");
    assert_eq!(world.asides(), 0);
}

#[tokio::test]
async fn a_file_of_another_version_is_refused_with_its_number() {
    for version in [1, 9] {
        let mut world = World::new();
        world.page(0, 10).await;
        world.change(&format!("UPDATE state SET schema_version = {version}"));
        let error = world.refused().to_string();
        let words = format!("another version of this program (schema {version}, not 5)");
        assert!(error.contains(&words), "{error}");
        assert_eq!(world.asides(), 0);
    }
}

#[tokio::test]
async fn other_users_may_not_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let mut world = World::new();
    world.page(0, 1).await;
    for file in std::fs::read_dir(world.directory.path()).unwrap() {
        let file = file.unwrap();
        let mode = file.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{}", file.path().display());
    }
}

#[tokio::test]
async fn damage_found_while_running_is_noted_for_the_next_start() {
    let mut world = World::with(|settings| settings.max_size = 64 * MIB);
    for first in 0..120 {
        world.page(first * 1000, 1000).await;
    }
    world.restart();
    let mut file = std::fs::read(world.path()).unwrap();
    assert!(
        file.len() > 3 << 20,
        "more than is kept in memory: {}",
        file.len()
    );
    file[4096..].fill(0x5a);
    std::fs::write(world.path(), &file).unwrap();
    let error = loop {
        if let Err(error) = world.commit(page(200_000, 1000, Timestamp::now())).await {
            break error;
        }
        match world.ledger().outbox_batch(0, usize::MAX, usize::MAX).await {
            Ok(batch) => assert!(batch.len() < 200_000, "it never notices"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, LedgerError::Damaged(_)), "{error}");
    world.ledger().lost().await;
    let counted = world.counted();
    let again = world.commit(page(300_000, 1, Timestamp::now())).await;
    assert!(matches!(again, Err(LedgerError::Damaged(_))), "{again:?}");
    assert_eq!(world.counted(), counted);
    let content = Look::at(&world.path()).unwrap().content;
    assert!(matches!(content, Content::Damaged(_)), "{content:?}");
    world.restart();
    let numbers = (world.counted(), world.backlog(), world.asides());
    assert_eq!(numbers, (0, 0, 1));
    assert!(
        world.opened().recreated_at.is_some(),
        "an alert needs the time"
    );
    world.page(300_000, 10).await;
    assert_eq!((world.counted(), world.backlog()), (10, 10));
}

#[tokio::test]
async fn damage_among_old_ids_is_found_when_they_are_deleted() {
    let mut world = World::with(|settings| settings.outbox = false);
    for number in 0..140 {
        world.page(1 + number * 100, 100).await;
    }
    world.restart();
    let mut file = std::fs::read(world.path()).unwrap();
    let id = entry(1, Timestamp::MIN).id.0.to_le_bytes();
    // The first copy is left over from when the table was one page.
    let found = file.windows(8).rposition(|bytes| bytes == id).unwrap();
    let start = found / 4096 * 4096;
    file[start..start + 4096].fill(0x5a);
    std::fs::write(world.path(), &file).unwrap();
    // After a change by another program, SQLite reads everything again.
    let sql = "UPDATE state SET newest_at = 0";
    world.other().execute(sql, []).unwrap();
    world.page(20_000, 1).await;
    let now = Timestamp::now();
    let mut commit = page(20_001, 1, now);
    commit.prune_before = Some(now);
    let error = world.commit(commit).await.unwrap_err();
    assert!(matches!(error, LedgerError::Damaged(_)), "{error}");
    world.ledger().lost().await;
}
