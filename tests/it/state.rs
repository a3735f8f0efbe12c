//! The state file: bounded, one process's and one service's, and readable by the versions that may read it.

use crate::support::settings;

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use orgdata_exporter::ledger::{
    ActorLabel, ActorRef, Birth, Commit, DeadLetter, DeadLetters, DeadReason, Disposition, EventId,
    Frontier, Gap, GapReason, LedgerError, LedgerHandle, LedgerState, NewEntry, NewEvent,
    OpenError, RecordKind, Selection, Settings, StatePath,
};
use orgdata_exporter::metrics::Metrics;
use orgdata_exporter::metrics::audit::Total;
use orgdata_exporter::metrics::exposition::Format;

const DAY: Duration = Duration::from_secs(86_400);

fn settings(path: &Path) -> Settings {
    let path = StatePath::File(path.to_owned());
    Settings {
        max_size: 8 << 20,
        filters: "[]".to_owned(),
        max_dead_letters: 100,
        ..settings::ledger(path, "https://api.example")
    }
}

fn open(path: &Path) -> (LedgerHandle, LedgerState, Metrics) {
    let metrics = Metrics::new(Duration::ZERO);
    let (ledger, state) = LedgerHandle::open(settings(path), metrics.clone()).expect("opens");
    (ledger, state, metrics)
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
            "{{\"id\":\"{number}\",\"note\":\"{:x}{:x}{:x}\"}}",
            number.wrapping_mul(0xd134_2543_de82_ef95),
            number * 7919,
            number ^ 0xabcdef
        ),
    }
}

/// A page of `count` entries from `first` on, as one commit.
fn page(first: u64, count: u64, at: Timestamp) -> Commit {
    let mut commit = Commit::new(at);
    commit.entries = (first..first + count)
        .map(|number| entry(number, at))
        .collect();
    commit.frontier_at = Some(at);
    commit
}

fn born(at: Timestamp) -> Commit {
    let mut commit = Commit::new(at);
    commit.birth = Some(Birth {
        born_at: at,
        start_floor: None,
        count_floor: None,
    });
    commit
}

fn counted(metrics: &Metrics) -> u64 {
    metrics.audit.events().iter().map(|(_, count)| count).sum()
}

/// Bytes of the file and what SQLite keeps beside it.
fn bytes(path: &Path) -> u64 {
    ["", "-wal"]
        .iter()
        .filter_map(|suffix| std::fs::metadata(format!("{}{suffix}", path.display())).ok())
        .map(|file| file.len())
        .sum()
}

/// What another program does to the file.
fn change(path: &Path, sql: &str) {
    rusqlite::Connection::open(path)
        .expect("opens")
        .execute_batch(sql)
        .expect("runs");
}

/// Takes everything out of the outbox, in the order it comes.
async fn drain(ledger: &LedgerHandle) -> Vec<String> {
    let mut taken = Vec::new();
    loop {
        let batch = ledger.outbox_batch(512, 3 << 20).await.expect("readable");
        let Some(last) = batch.last() else {
            return taken;
        };
        let through = last.position;
        taken.extend(batch.into_iter().map(|record| record.raw));
        ledger
            .outbox_acknowledge(through, Vec::new())
            .await
            .expect("written");
    }
}

/// The texts of entries `first..last`.
fn raw(first: u64, last: u64) -> Vec<String> {
    (first..last)
        .map(|number| entry(number, Timestamp::UNIX_EPOCH).raw)
        .collect()
}

fn asides(directory: &Path) -> usize {
    let names = std::fs::read_dir(directory)
        .expect("readable")
        .filter_map(Result::ok)
        .map(|file| file.file_name());
    names
        .filter(|name| {
            name.to_string_lossy().contains(".damaged-")
                && !name.to_string_lossy().ends_with("-wal")
        })
        .count()
}

fn shown(metrics: &Metrics, line: &str) -> bool {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, metrics.registry()).expect("encodes");
    text.lines().any(|shown| shown == line)
}

#[tokio::test]
async fn a_backlog_stops_at_the_limit_and_drains_oldest_first() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state.db");
    let (ledger, _, metrics) = open(&path);
    let now = Timestamp::now();
    ledger.commit(born(now)).await.expect("written");
    let mut committed = 0;
    while !ledger.is_full() {
        ledger
            .commit(page(committed, 1000, now))
            .await
            .expect("written");
        committed += 1000;
        assert!(committed < 1_000_000, "it never fills");
    }
    let file = std::fs::metadata(&path).expect("a file").len();
    assert!(
        bytes(&path) <= 8 << 20,
        "{file} bytes in the file, {} with the log",
        bytes(&path)
    );
    assert_eq!(
        (ledger.backlog().records, counted(&metrics)),
        (committed, committed)
    );
    let mut next = 0;
    let mut rounds = 0;
    while ledger.backlog().records > 0 {
        let batch = ledger.outbox_batch(512, 3 << 20).await.expect("readable");
        for record in &batch {
            assert!(
                record.raw.starts_with(&format!("{{\"id\":\"{next}\"")),
                "{next}: {}",
                record.raw
            );
            next += 1;
        }
        ledger
            .outbox_acknowledge(batch.last().expect("not empty").position, Vec::new())
            .await
            .expect("written");
        rounds += 1;
        assert!(rounds < 10_000);
    }
    assert_eq!(next, committed);
    assert!(!ledger.is_full() && ledger.backlog().oldest.is_none());
    let emptied = std::fs::metadata(&path).expect("a file").len();
    let used = metrics.state.size_bytes.get().unsigned_abs();
    assert!(
        emptied < used + (1 << 20),
        "the file gives back what the backlog took: {emptied} bytes for {used}"
    );
}

/// What a large transaction leaves of the log beside the file is cut at once, and what it leaves of the file once it is delivered.
#[tokio::test]
async fn what_a_large_page_took_is_given_back() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state.db");
    let (ledger, _, _) = open(&path);
    let mut commit = page(0, 1000, Timestamp::now());
    for (number, entry) in (0u64..).zip(&mut commit.entries) {
        entry.raw = (0..600)
            .map(|word| {
                format!(
                    "{:016x}",
                    (number << 32 | word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
                )
            })
            .collect();
    }
    ledger.commit(commit).await.expect("written");
    let (log, all) = (
        std::fs::metadata(directory.path().join("state.db-wal"))
            .expect("a log")
            .len(),
        bytes(&path),
    );
    assert!(
        log < 1 << 20 && all > 6 << 20,
        "{log} of {all} bytes are in the log"
    );
    assert!(ledger.is_full());
    assert_eq!(drain(&ledger).await.len(), 1000);
    assert!(
        !ledger.is_full() && bytes(&path) < 1 << 20,
        "{} bytes",
        bytes(&path)
    );
}

#[tokio::test]
async fn a_restart_in_the_middle_of_a_page_goes_on_behind_the_last_acknowledged_record() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state.db");
    let (ledger, _, _) = open(&path);
    ledger
        .commit(page(0, 10, Timestamp::now()))
        .await
        .expect("written");
    ledger
        .commit(page(10, 10, Timestamp::now()))
        .await
        .expect("written");
    let batch = ledger.outbox_batch(13, usize::MAX).await.expect("readable");
    ledger
        .outbox_acknowledge(batch[12].position, Vec::new())
        .await
        .expect("written");
    let instance = ledger.instance_id();
    drop(ledger);
    let (ledger, _, metrics) = open(&path);
    let batch = ledger
        .outbox_batch(100, usize::MAX)
        .await
        .expect("readable");
    assert_eq!(
        (batch.len(), ledger.backlog().records, counted(&metrics)),
        (7, 7, 20)
    );
    assert!(batch[0].raw.starts_with("{\"id\":\"13\""));
    assert_eq!(ledger.instance_id(), instance);
}

#[tokio::test]
async fn a_year_of_events_leaves_a_bounded_file_and_a_floor() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state.db");
    let mut settings = settings(&path);
    settings.outbox = false;
    let metrics = Metrics::new(Duration::ZERO);
    let (ledger, _) = LedgerHandle::open(settings, metrics.clone()).expect("opens");
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
    ledger.commit(born(start)).await.expect("written");
    let mut floor = None;
    for day in 0..365u32 {
        let at = start + DAY * day;
        let mut commit = page(u64::from(day) * 1000, 1000, at);
        commit.reread_at = Some(at);
        floor = ledger.commit(commit).await.expect("written");
    }
    assert_eq!(counted(&metrics), 365_000);
    let floor = floor.expect("ids were pruned");
    assert!(
        floor > start + DAY * 300 && floor <= start + DAY * 364 - Duration::from_secs(3600),
        "{floor}"
    );
    assert!(bytes(&path) < 5 << 20, "{} bytes", bytes(&path));
    let (old, new) = (entry(0, start).id, entry(364_999, start).id);
    assert_eq!(ledger.holds([old, new]), [false, true]);
}

#[tokio::test]
async fn the_delay_is_told_to_less_than_a_second_where_both_clocks_agree() {
    for (ahead, expected) in [(700, 1.7), (3_600_000, 1.0), (-5_000, 1.0)] {
        let directory = tempfile::tempdir().expect("a directory");
        let (ledger, _, metrics) = open(&directory.path().join("state.db"));
        let now = Timestamp::from_second(1_800_000_000).expect("in range");
        let mut commit = page(0, 10, now - Duration::from_secs(1));
        commit.server_time = now;
        commit.arrived_at = now + jiff::SignedDuration::from_millis(ahead);
        ledger.commit(commit).await.expect("written");
        let text = Format::Text.encode(metrics.registry(), 0).expect("encodes");
        let sum = text.lines().find_map(|line| {
            line.strip_prefix("orgdata_audit_event_delay_seconds_sum ")?
                .parse::<f64>()
                .ok()
        });
        assert!(
            sum.is_some_and(|sum| (sum - 10.0 * expected).abs() < 0.1),
            "{sum:?}"
        );
    }
}

#[tokio::test]
async fn a_second_process_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state.db");
    let (_ledger, _, _) = open(&path);
    let error =
        LedgerHandle::open(settings(&path), Metrics::new(Duration::ZERO)).expect_err("refused");
    assert!(matches!(error, OpenError::Locked(_)), "{error}");
}

#[tokio::test]
async fn the_file_of_another_service_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state.db");
    drop(open(&path));
    let mut other = settings(&path);
    other.base_url = "https://other.example".to_owned();
    let error = LedgerHandle::open(other, Metrics::new(Duration::ZERO))
        .expect_err("refused")
        .to_string();
    assert!(
        error.contains("api.example")
            && error.contains("other.example")
            && error.contains("--state.path"),
        "{error}"
    );
}

#[tokio::test]
async fn a_damaged_file_is_set_aside_and_a_fresh_one_begun() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state.db");
    for damage in
        [&b"this is no database at all, not even a small one, and longer than a header of one hundred bytes needs to be"[..], b"short"]
    {
        std::fs::write(&path, damage).expect("written");
        let (ledger, state, metrics) = open(&path);
        assert!(state.birth.is_none() && ledger.backlog().records == 0);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, metrics.registry()).expect("encodes");
        assert!(text.contains("orgdata_state_recreated_total 1"), "{text}");
        drop(ledger);
        let aside = std::fs::read_dir(directory.path()).expect("readable").filter_map(Result::ok).find(|file| {
            let name = file.file_name();
            name.to_string_lossy().contains(".damaged-") && std::fs::read(file.path()).is_ok_and(|bytes| bytes == damage)
        });
        std::fs::remove_file(aside.expect("it was set aside").path()).expect("removed");
        std::fs::remove_file(&path).expect("removed");
    }
}

#[tokio::test]
async fn a_newer_file_is_read_where_it_allows_that_and_refused_where_not() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state.db");
    let (ledger, _, _) = open(&path);
    ledger
        .commit(page(0, 10, Timestamp::now()))
        .await
        .expect("written");
    drop(ledger);
    let change = |sql: &str| change(&path, sql);
    // A later version that added a column and a table, and says that this one may read the file.
    change(
        "UPDATE state SET schema_version = 9, oldest_reader = 1; ALTER TABLE seen ADD COLUMN later INTEGER; CREATE TABLE later (x INTEGER);",
    );
    let (ledger, _, metrics) = open(&path);
    ledger
        .commit(page(10, 10, Timestamp::now()))
        .await
        .expect("written");
    assert_eq!((counted(&metrics), ledger.backlog().records), (20, 20));
    drop(ledger);
    change("UPDATE state SET oldest_reader = 9");
    let error =
        LedgerHandle::open(settings(&path), Metrics::new(Duration::ZERO)).expect_err("refused");
    assert!(
        matches!(error, OpenError::Newer { version: 9, .. }),
        "{error}"
    );
}

#[tokio::test]
async fn the_database_of_another_program_is_left_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("other.db");
    rusqlite::Connection::open(&path)
        .expect("opens")
        .execute_batch("CREATE TABLE theirs (x)")
        .expect("runs");
    let before = std::fs::read(&path).expect("readable");
    let error =
        LedgerHandle::open(settings(&path), Metrics::new(Duration::ZERO)).expect_err("refused");
    assert!(matches!(error, OpenError::Foreign(_)), "{error}");
    assert!(
        std::fs::read(&path).expect("readable") == before,
        "it was changed"
    );
}

#[tokio::test]
async fn a_file_that_cannot_be_written_is_refused_with_the_way_out() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("file"), "").expect("written");
    for path in [
        directory.path().join("file/state.db"),
        directory.path().to_owned(),
        directory.path().join("missing/state.db"),
    ] {
        let error =
            LedgerHandle::open(settings(&path), Metrics::new(Duration::ZERO)).expect_err("refused");
        assert!(matches!(error, OpenError::Unwritable { .. }), "{error}");
        assert!(error.to_string().contains("--state.path"), "{error}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn nobody_else_may_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state.db");
    let (ledger, _, _) = open(&path);
    ledger
        .commit(page(0, 1, Timestamp::now()))
        .await
        .expect("written");
    for file in std::fs::read_dir(directory.path())
        .expect("readable")
        .filter_map(Result::ok)
    {
        assert_eq!(
            file.metadata().expect("readable").permissions().mode() & 0o077,
            0,
            "{}",
            file.path().display()
        );
    }
}

#[tokio::test]
async fn dead_letters_are_bounded_and_leave_with_the_position() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state.db");
    let (ledger, _, metrics) = open(&path);
    ledger
        .commit(page(0, 150, Timestamp::now()))
        .await
        .expect("written");
    for record in ledger
        .outbox_batch(150, usize::MAX)
        .await
        .expect("readable")
    {
        let letter = DeadLetter {
            reason: DeadReason::Refused,
            message: "no".to_owned(),
            kind: RecordKind::Entry,
            arrived_at: record.arrived_at,
            raw: record.raw.clone(),
        };
        ledger
            .outbox_acknowledge(record.position, vec![letter])
            .await
            .expect("written");
    }
    assert_eq!(
        (
            ledger.dead_letters().expect("readable"),
            ledger.backlog().records
        ),
        (100, 0)
    );
    assert_eq!(
        (
            metrics.otlp.dead_letters.get(),
            metrics.otlp.dead_letters_evicted.get()
        ),
        (100, 50)
    );
    assert_eq!(metrics.audit.total(Total::Malformed), 0);
}

#[tokio::test]
async fn a_user_called_none_or_other_never_takes_the_events_of_others_away() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state.db");
    let settings = Settings {
        actor_label: ActorLabel::Name,
        max_actors: 2,
        actor_idle: Duration::from_secs(3600),
        outbox: false,
        ..settings(&path)
    };
    let metrics = Metrics::new(Duration::ZERO);
    let (ledger, _) = LedgerHandle::open(settings, metrics.clone()).expect("opens");
    let now = Timestamp::now();
    let names = [
        Some("none"),
        Some("other"),
        None,
        Some("Ada, who is one too many"),
    ];
    for (number, name) in (0..).zip(names) {
        let mut commit = page(number, 1, now);
        let actor = name.map(|name| ActorRef {
            id: number.to_string(),
            name: Some(name.to_owned()),
        });
        commit.entries[0].event = Ok(NewEvent {
            activity_type: "T".to_owned(),
            actor,
            malformed: false,
        });
        ledger.commit(commit).await.expect("written");
    }
    ledger
        .commit(Commit::new(now + 2 * Duration::from_secs(3600)))
        .await
        .expect("written");
    for actor in ["none", "other"] {
        let line = format!("orgdata_audit_events_total{{activity_type=\"T\",actor=\"{actor}\"}} 1");
        assert!(
            shown(&metrics, &line),
            "{actor}: {:?}",
            metrics.audit.events()
        );
    }
}

#[tokio::test]
async fn who_was_active_long_ago_takes_no_label_from_who_is_active_now() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state.db");
    let open = || {
        let metrics = Metrics::new(Duration::ZERO);
        let settings = Settings {
            max_actors: 2,
            outbox: false,
            ..settings(&path)
        };
        (
            LedgerHandle::open(settings, metrics.clone())
                .expect("opens")
                .0,
            metrics,
        )
    };
    let (ledger, metrics) = open();
    let now = Timestamp::now();
    // A first start: the actors 0 to 4 of years ago, and 5 of the day before yesterday.
    let mut history = page(0, 6, now - 1000 * DAY);
    history.server_time = now;
    history.entries[5].created_at = now - 2 * DAY;
    for entry in &mut history.entries {
        entry.disposition = Disposition::History;
    }
    ledger.commit(history).await.expect("written");
    ledger.commit(page(6, 1, now)).await.expect("written");
    for metrics in [metrics, {
        drop(ledger);
        open().1
    }] {
        let actors: Vec<String> = metrics
            .audit
            .events()
            .iter()
            .filter_map(|(labels, _)| labels.actor.as_deref().map(str::to_owned))
            .collect();
        assert_eq!(
            (
                actors,
                counted(&metrics),
                metrics.audit.total(Total::Folded)
            ),
            (vec!["5".to_owned(), "6".to_owned()], 1, 0)
        );
    }
}

#[tokio::test]
async fn an_acknowledgement_waits_for_whoever_writes_to_the_file() {
    let directory = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("a directory");
    let path = directory.path().join("state.db");
    let (ledger, _, metrics) = open(&path);
    ledger
        .commit(page(0, 100, Timestamp::now()))
        .await
        .expect("written");
    let other = rusqlite::Connection::open(&path).expect("opens");
    for record in ledger
        .outbox_batch(100, usize::MAX)
        .await
        .expect("readable")
    {
        other
            .execute_batch("BEGIN IMMEDIATE; UPDATE dead_letters SET queued = 1")
            .expect("runs");
        let acknowledged = tokio::spawn({
            let ledger = ledger.clone();
            async move { ledger.outbox_acknowledge(record.position, Vec::new()).await }
        });
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        other.execute_batch("COMMIT").expect("runs");
        acknowledged.await.expect("ends").expect("written");
    }
    assert_eq!(
        (
            ledger.backlog().records,
            metrics.state.commit_failures.get()
        ),
        (0, 0)
    );
}

#[tokio::test]
async fn large_dead_letters_go_back_a_few_at_a_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state.db");
    let settings = Settings {
        max_size: 256 << 20,
        ..settings(&path)
    };
    let (ledger, _) = LedgerHandle::open(settings, Metrics::new(Duration::ZERO)).expect("opens");
    let mut commit = page(0, 20, Timestamp::now());
    for (number, entry) in commit.entries.iter_mut().enumerate() {
        entry.event = Err("unreadable".to_owned());
        entry.raw = format!("{number:02}{}", "x".repeat(1 << 20));
    }
    ledger.commit(commit).await.expect("written");
    assert_eq!(
        DeadLetters::open(&path)
            .and_then(|letters| letters.replay(&Selection::All))
            .expect("queued"),
        20
    );
    assert_eq!(ledger.replay_dead_letters().await.expect("moved"), 20);
    let together: u32 = rusqlite::Connection::open(&path)
        .and_then(|file| file.query_row("SELECT max(records) FROM outbox", [], |row| row.get(0)))
        .expect("readable");
    assert!(
        together <= 4,
        "{together} MiB of them are in memory at once"
    );
    let order: Vec<String> = drain(&ledger)
        .await
        .iter()
        .map(|raw| raw[..2].to_owned())
        .collect();
    assert_eq!(
        order,
        (0..20)
            .map(|number| format!("{number:02}"))
            .collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn dead_letters_that_an_operator_deletes_make_room() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state.db");
    let (ledger, _, _) = open(&path);
    let now = Timestamp::now();
    let mut commit = page(0, 1, now);
    commit.entries[0].event = Err("unreadable".to_owned());
    commit.entries[0].raw = "x".repeat(1 << 20);
    ledger.commit(commit).await.expect("written");
    let mut committed = 1;
    while !ledger.is_full() {
        ledger
            .commit(page(committed, 1000, now))
            .await
            .expect("written");
        committed += 1000;
    }
    assert_eq!(
        DeadLetters::open(&path)
            .and_then(|letters| letters.drop_letters(&Selection::All))
            .expect("deleted"),
        1
    );
    assert_eq!(ledger.replay_dead_letters().await.expect("looked"), 0);
    assert!(!ledger.is_full());
}

#[tokio::test]
async fn a_full_disk_changes_nothing_until_there_is_room() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state.db");
    let (ledger, _, metrics) = open(&path);
    let now = Timestamp::now();
    ledger.commit(born(now)).await.expect("written");
    ledger.commit(page(0, 1000, now)).await.expect("written");
    let before = format!("{:?}", ledger.state().await.expect("readable"));

    ledger.pretend_full(true).await.expect("set");
    for attempt in 1..=3 {
        let mut commit = page(1000, 1000, now);
        commit.frontier = Some(Frontier {
            cursor: Some("next".to_owned()),
            id: Some(EventId(1)),
        });
        commit.gaps = vec![Gap {
            reason: GapReason::FrontierGone,
            from: None,
            to: None,
            message: "gone".to_owned(),
        }];
        commit.duplicates = 5;
        let error = ledger.commit(commit).await.expect_err("there is no room");
        assert!(matches!(error, LedgerError::DiskFull), "{error}");
        assert_eq!(
            (
                metrics.state.commit_failures.get(),
                counted(&metrics),
                ledger.backlog().records
            ),
            (attempt, 1000, 1000)
        );
    }
    assert_eq!(
        metrics.audit.total(Total::Gaps) + metrics.audit.total(Total::Duplicate),
        0
    );
    assert_eq!(
        ledger.holds([entry(999, now).id, entry(1000, now).id]),
        [true, false]
    );
    assert_eq!(
        format!("{:?}", ledger.state().await.expect("readable")),
        before
    );
    // What is there already can be delivered: that takes no room.
    let batch = ledger
        .outbox_batch(1000, usize::MAX)
        .await
        .expect("readable");
    ledger
        .outbox_acknowledge(batch[999].position, Vec::new())
        .await
        .expect("written");

    ledger.pretend_full(false).await.expect("set");
    ledger.commit(page(1000, 1000, now)).await.expect("written");
    assert_eq!((counted(&metrics), ledger.backlog().records), (2000, 1000));
    drop(ledger);
    let (ledger, _, metrics) = open(&path);
    assert_eq!(drain(&ledger).await, raw(1000, 2000));
    assert_eq!(counted(&metrics), 2000);
}

#[tokio::test]
async fn an_acknowledgement_is_done_once_whatever_fails_after_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state.db");
    let (ledger, _, _) = open(&path);
    ledger
        .commit(page(0, 100, Timestamp::now()))
        .await
        .expect("written");
    let batch = ledger
        .outbox_batch(100, usize::MAX)
        .await
        .expect("readable");
    let letter = DeadLetter {
        reason: DeadReason::Refused,
        message: "no".to_owned(),
        kind: RecordKind::Entry,
        arrived_at: batch[0].arrived_at,
        raw: batch[0].raw.clone(),
    };
    // It is on disk; the look at what is left fails.
    change(
        &path,
        "CREATE TRIGGER later AFTER INSERT ON dead_letters BEGIN UPDATE outbox SET acknowledged = 40; END;
         ALTER TABLE outbox RENAME COLUMN arrived TO moved;",
    );
    ledger
        .outbox_acknowledge(batch[39].position, vec![letter])
        .await
        .expect("written");
    assert_eq!(
        (
            ledger.dead_letters().expect("readable"),
            ledger.backlog().records
        ),
        (1, 60)
    );
}

#[tokio::test]
async fn a_damaged_page_of_the_outbox_is_a_gap_and_holds_no_other() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state.db");
    let (ledger, _, metrics) = open(&path);
    for first in [0, 10, 20] {
        ledger
            .commit(page(first, 10, Timestamp::now()))
            .await
            .expect("written");
    }
    change(
        &path,
        "UPDATE outbox SET block = X'ffffff7f00112233' WHERE page = 2",
    );
    let mut taken = drain(&ledger).await;
    let gap = taken.pop().expect("a record");
    assert_eq!(taken, [raw(0, 10), raw(20, 30)].concat());
    assert!(
        gap.contains("damaged_page") && gap.contains("10 log records"),
        "{gap}"
    );
    assert_eq!(
        (
            metrics.audit.total(Total::Gaps),
            counted(&metrics),
            ledger.backlog().records
        ),
        (1, 30, 0)
    );
    drop(ledger);
    assert_eq!(open(&path).2.audit.total(Total::Gaps), 1);
}

#[tokio::test]
async fn damage_found_while_it_runs_sets_the_file_aside_and_never_counts_twice() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state.db");
    let (ledger, _, _) = open(&path);
    let now = Timestamp::now();
    ledger.commit(born(now)).await.expect("written");
    for first in 0..60 {
        ledger
            .commit(page(first * 1000, 1000, now))
            .await
            .expect("written");
    }
    drop(ledger);
    let (ledger, _, metrics) = open(&path);
    // Everything but the first page, in the middle of the run.
    let mut file = std::fs::read(&path).expect("readable");
    assert!(
        file.len() > 3 << 20,
        "more than is kept in memory: {}",
        file.len()
    );
    file[4096..].fill(0x5a);
    std::fs::write(&path, &file).expect("written");
    let error = loop {
        match ledger
            .commit(page(60_000, 1000, now))
            .await
            .and(ledger.outbox_batch(usize::MAX, usize::MAX).await)
        {
            Ok(batch) => assert!(batch.len() < 100_000, "it never notices"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, LedgerError::Damaged(_)), "{error}");
    ledger.damaged().await;
    let failed = (metrics.state.commits.get(), counted(&metrics));
    assert!(matches!(
        ledger.commit(page(70_000, 1, now)).await,
        Err(LedgerError::Damaged(_))
    ));
    assert_eq!(
        (metrics.state.commits.get(), counted(&metrics)),
        failed,
        "nothing is written to it any more"
    );

    ledger.set_aside().await.expect("renamed");
    // The other handle is still there: it holds neither the file nor its lock.
    let (fresh, state, metrics) = open(&path);
    assert!(state.birth.is_none() && counted(&metrics) == 0 && fresh.backlog().records == 0);
    assert_eq!(asides(directory.path()), 1);
    assert!(
        !shown(&metrics, "orgdata_state_recreated_timestamp_seconds 0.0"),
        "an alert needs the time"
    );
    fresh.commit(page(70_000, 10, now)).await.expect("written");
    assert_eq!((counted(&metrics), fresh.backlog().records), (10, 10));
}

#[tokio::test]
async fn every_damaged_file_is_kept() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state.db");
    for _ in 0..3 {
        std::fs::write(&path, "damaged").expect("written");
        drop(open(&path));
    }
    assert_eq!(asides(directory.path()), 3);
}

#[tokio::test]
async fn a_file_that_is_whole_and_still_unusable_is_set_aside() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state.db");
    for damage in [
        // Killed while it was made, by a version that made its tables one by one.
        "DROP TABLE seen; DROP TABLE outbox",
        "DROP TABLE state",
        // A walk that cannot be gone on with.
        "UPDATE state SET walk = 'first_start', walk_top = X'0000000a00'",
        "ALTER TABLE state DROP COLUMN prune_floor",
    ] {
        let (ledger, _, _) = open(&path);
        ledger
            .commit(page(0, 10, Timestamp::now()))
            .await
            .expect("written");
        drop(ledger);
        change(&path, damage);
        let (ledger, state, metrics) = open(&path);
        assert!(
            state.birth.is_none() && ledger.backlog().records == 0 && counted(&metrics) == 0,
            "{damage}"
        );
        assert!(
            shown(&metrics, "orgdata_state_recreated_total 1"),
            "{damage}"
        );
        assert_eq!(asides(directory.path()), 1, "{damage}");
        drop(ledger);
        for file in std::fs::read_dir(directory.path())
            .expect("readable")
            .filter_map(Result::ok)
        {
            std::fs::remove_file(file.path()).expect("removed");
        }
    }
}

#[tokio::test]
async fn a_reader_that_holds_an_old_moment_of_the_file_stops_it_at_the_limit_until_it_lets_go() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state.db");
    let metrics = Metrics::new(Duration::ZERO);
    let (ledger, _) = LedgerHandle::open(
        Settings {
            outbox: false,
            ..settings(&path)
        },
        metrics.clone(),
    )
    .expect("opens");
    let now = Timestamp::now();
    ledger.commit(page(0, 1000, now)).await.expect("written");
    let reader = rusqlite::Connection::open(&path).expect("opens");
    reader
        .execute_batch("BEGIN; SELECT count(*) FROM seen")
        .expect("runs");
    let mut committed = 1000;
    while !ledger.is_full() {
        ledger
            .commit(page(committed, 1000, now))
            .await
            .expect("written");
        committed += 1000;
        assert!(committed < 1_000_000, "it never stops");
    }
    assert!(bytes(&path) < 9 << 20, "{} bytes", bytes(&path));
    reader.execute_batch("COMMIT").expect("runs");
    // Nothing is committed any more; looking is enough.
    for look in 0.. {
        if !ledger.is_full() {
            break;
        }
        assert!(look < 1000, "it stays full");
        ledger.state().await.expect("readable");
    }
    assert!(bytes(&path) < 4 << 20, "{} bytes", bytes(&path));
    ledger
        .commit(page(committed, 1000, now))
        .await
        .expect("written");
    assert_eq!(counted(&metrics), committed + 1000);
}

#[tokio::test]
async fn what_waits_for_a_collector_that_is_configured_no_longer_does_not_hold_the_tail() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state.db");
    let (ledger, _, _) = open(&path);
    let now = Timestamp::now();
    let mut committed = 0;
    while !ledger.is_full() {
        ledger
            .commit(page(committed, 1000, now))
            .await
            .expect("written");
        committed += 1000;
    }
    drop(ledger);
    let (ledger, _) = LedgerHandle::open(
        Settings {
            outbox: false,
            ..settings(&path)
        },
        Metrics::new(Duration::ZERO),
    )
    .expect("opens");
    assert!(ledger.backlog().records == committed && !ledger.is_full());
    drop(ledger);
    assert!(open(&path).0.is_full(), "with a collector again it is");
}

#[tokio::test]
async fn a_clock_that_jumped_ahead_and_back_does_not_stop_the_pruning() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state.db");
    let metrics = Metrics::new(Duration::ZERO);
    let (ledger, _) = LedgerHandle::open(
        Settings {
            outbox: false,
            ..settings(&path)
        },
        metrics.clone(),
    )
    .expect("opens");
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
    ledger.commit(born(start)).await.expect("written");
    let mut floor = None;
    for day in 0..40u32 {
        let at = start + DAY * day;
        let mut commit = page(u64::from(day) * 1000, 1000, at);
        commit.server_time = if day == 20 { at + 365 * DAY } else { at };
        commit.reread_at = Some(at);
        floor = ledger.commit(commit).await.expect("written");
        let oldest = entry(u64::from(day) * 1000, at).id;
        assert_eq!(
            ledger.holds([oldest]),
            [true],
            "the newest are never pruned, whatever the clock says"
        );
    }
    let floor = floor.expect("ids were pruned");
    assert!(floor > start + DAY * 25, "{floor}");
}

#[tokio::test]
async fn a_great_many_old_ids_are_pruned_a_part_at_a_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state.db");
    let (ledger, _) = LedgerHandle::open(
        Settings {
            outbox: false,
            ..settings(&path)
        },
        Metrics::new(Duration::ZERO),
    )
    .expect("opens");
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
    for minute in 0..100u32 {
        ledger
            .commit(page(
                u64::from(minute) * 1000,
                1000,
                start + Duration::from_secs(60) * minute,
            ))
            .await
            .expect("written");
    }
    let mut held = Vec::new();
    for second in 0..10u32 {
        let mut commit = born(start + 30 * DAY + Duration::from_secs(1) * second);
        commit.reread_at = Some(commit.server_time);
        ledger.commit(commit).await.expect("written");
        let known = ledger.holds((0..100_000).map(|number| entry(number, start).id));
        held.push(known.iter().filter(|known| **known).count());
    }
    assert!(
        held.windows(2).all(|pair| pair[0] - pair[1] <= 22_000) && held[0] >= 78_000,
        "{held:?}"
    );
    assert!(held[9] <= 11_000 && held[9] >= 10_000, "{held:?}");
}

#[tokio::test]
async fn dead_letters_never_fill_the_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state.db");
    let (ledger, _, _) = open(&path);
    for number in 0..40 {
        let mut commit = page(number, 1, Timestamp::now());
        commit.entries[0].event = Err("unreadable".to_owned());
        commit.entries[0].raw = format!("{number}{}", "x".repeat(300_000));
        ledger.commit(commit).await.expect("written");
    }
    let kept = ledger.dead_letters().expect("readable");
    assert!((4..=6).contains(&kept), "{kept} in a quarter of the limit");
    assert!(bytes(&path) < 5 << 20, "{} bytes", bytes(&path));
    let newest: String = rusqlite::Connection::open(&path)
        .and_then(|file| {
            file.query_row(
                "SELECT substr(raw, 1, 2) FROM dead_letters ORDER BY id DESC LIMIT 1",
                [],
                |row| row.get(0),
            )
        })
        .expect("readable");
    assert_eq!(newest, "39");
}
