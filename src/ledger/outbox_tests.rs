//! The outbox and the dead letters: bounded, in order, only what was acknowledged leaves, and a full disk loses nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;
use tokio::task::JoinHandle;

use super::ledger_tests::{MIB, World, entry, gap, json, page, raw};
use super::*;
use crate::machine::{Machine, ThisMachine};
use crate::metrics::audit::Total;

/// A page of one entry that cannot be counted.
fn malformed(number: u64, raw: String) -> Commit {
    let mut commit = page(number, 1, Timestamp::now());
    commit.entries[0].activity_type = None;
    commit.entries[0].problem = Some("unreadable");
    commit.entries[0].text = raw.into();
    commit
}

#[tokio::test]
async fn a_backlog_stops_at_the_limit_and_drains_oldest_first() {
    let mut world = World::new();
    let committed = world.fill(0).await;
    assert!(world.bytes() <= 8 * MIB, "{} bytes", world.bytes());
    assert_eq!((world.backlog(), world.counted()), (committed, committed));
    // It does not stop the tail if no collector is configured.
    for (outbox, full) in [(false, false), (true, true)] {
        world.settings.outbox = outbox;
        world.restart();
        assert_eq!(
            (world.backlog(), world.ledger().is_full().await),
            (committed, full)
        );
    }
    assert_eq!(world.drain().await, raw(0, committed));
    let status = world.ledger().status();
    assert!(!world.ledger().is_full().await && status.oldest.is_none());
    let (left, used) = (world.path().metadata().unwrap().len(), status.size_bytes);
    assert!(left < used + MIB, "{left} bytes for {used}");
}

/// Or records that arrive later would always be in front of it, and it would never be a suspect with a witness behind it.
#[tokio::test]
async fn an_entry_that_is_dated_ahead_leaves_before_what_arrives_later() {
    let mut world = World::new();
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    for (number, ahead) in [(0, 1000), (1, 0), (2, 0)] {
        let arrived = now + Duration::from_secs(number);
        let mut commit = page(number, 1, arrived + Duration::from_secs(ahead));
        (commit.arrived_at, commit.server_time) = (arrived, arrived);
        world.commit(commit).await.unwrap();
    }
    assert_eq!(world.drain().await, raw(0, 3));
}

/// A newer record is delivered first if a collector rejects the oldest one.
#[tokio::test]
async fn a_witness_leaves_out_of_order() {
    let mut world = World::new();
    world.page(0, 4).await;
    world.page(4, 3).await;
    world.deliver(&world.batch(1).await).await;
    let mut seen = Vec::new();
    for skip in 0.. {
        let ledger = world.ledger();
        let record = ledger.outbox_batch(skip, 1, usize::MAX).await.unwrap();
        if record.is_empty() {
            break;
        }
        seen.extend(record);
    }
    assert_eq!(json(&seen), raw(1, 7));
    let settled = Settled {
        records: vec![seen[1].clone()],
        is_witness: true,
        rejected: None,
    };
    // Written again after it was interrupted, it takes nothing else.
    for _ in 0..2 {
        world.settle(settled.clone()).await;
    }
    world.restart();
    let left = [1, 3, 4, 5, 6].map(|number| raw(number, number + 1).remove(0));
    assert_eq!(world.drain().await, left);
}

/// Records wait while older entries are still to be read, so that these leave first.
#[tokio::test]
async fn records_wait_for_older_ones_for_ten_minutes() {
    let now = Timestamp::now();
    let at = |second: i64| now + jiff::SignedDuration::from_secs(second);
    let held = |first, count, at, held_since| Commit {
        held_since,
        ..page(first, count, at)
    };
    let mut world = World::new();
    world.commit(held(4, 2, at(2), Some(now))).await.unwrap();
    world.commit(held(0, 2, at(0), Some(now))).await.unwrap();
    assert_eq!((world.batch(100).await.len(), world.backlog()), (0, 4));
    // Not over a restart, either, unless nothing is read any more.
    world.restart();
    assert_eq!(world.batch(100).await.len(), 0);
    world.ledger().end_reading();
    assert_eq!(world.batch(100).await.len(), 4);
    world.restart();
    world.commit(held(2, 2, at(1), None)).await.unwrap();
    assert_eq!(world.drain().await, raw(0, 6));
    for (minutes, waits) in [(9, true), (11, false), (-11, false)] {
        let since = now - jiff::SignedDuration::from_mins(minutes);
        let mut world = World::new();
        world.commit(held(0, 1, now, Some(since))).await.unwrap();
        assert_eq!(world.batch(1).await.is_empty(), waits, "{minutes}");
    }
}

#[tokio::test]
async fn a_full_file_holds_no_records_back() {
    let mut world = World::new();
    let mut commit = page(0, 1, Timestamp::now());
    commit.held_since = Some(Timestamp::now());
    world.commit(commit).await.unwrap();
    assert_eq!(world.batch(10).await.len(), 0);
    while !world.ledger().is_full().await {
        let number = world.counted();
        let mut commit = page(number, 1000, Timestamp::now());
        commit.held_since = Some(Timestamp::now());
        world.commit(commit).await.unwrap();
    }
    assert_eq!(world.batch(10).await.len(), 10);
}

#[tokio::test]
async fn what_was_committed_is_settled_when_a_sweep_ends_and_after_a_restart() {
    let mut world = World::new();
    let ids = [0, 1, 2].map(|number| entry(number, Timestamp::UNIX_EPOCH).id);
    for (sweep, settled) in [(5, 4), (5, 5), (6, 5)] {
        let number = world.counted();
        let mut commit = page(number, 1, Timestamp::now());
        (commit.sweep, commit.settled) = (sweep, settled);
        commit.tail = Some("{}".to_owned());
        world.ledger().commit(commit).await.unwrap();
        world.restart();
    }
    let expected = [Seen::Settled(5), Seen::Settled(5), Seen::Unsettled];
    assert_eq!(ids.map(|id| world.ledger().seen(id)), expected);
    world.restart();
    assert_eq!(ids.map(|id| world.ledger().seen(id)), expected);
}

#[tokio::test]
async fn dead_letters_are_bounded_in_number_and_size() {
    let mut world = World::new();
    world.page(0, 150).await;
    for record in world.batch(150).await {
        world.reject(&record).await;
    }
    let status = world.ledger().status();
    let total = status.dead_lettered[DeadReason::Rejected as usize];
    let letters = (status.dead_letters, total, status.evicted);
    assert_eq!(letters, (100, 150, 50));
    assert_eq!((status.backlog, world.total(Total::Malformed)), (0, 0));
    for number in 0..40 {
        let raw = format!("{number}{}", "x".repeat(300_000));
        world.commit(malformed(1000 + number, raw)).await.unwrap();
    }
    let kept = world.ledger().status().dead_letters;
    assert!((4..=6).contains(&kept), "{kept} in a quarter of the limit");
    assert!(world.bytes() < 5 * MIB, "{} bytes", world.bytes());
    let letters = DeadLetters::open(&world.path()).unwrap();
    let newest = letters.ids(None).unwrap().pop().unwrap();
    let newest = letters.letter(newest).unwrap().unwrap().letter.line;
    let newest = Stored::read(newest.as_bytes());
    assert!(newest.entry.starts_with("39x"));
}

#[tokio::test]
async fn a_dead_letter_can_be_sent_again_and_waits_like_any_record() {
    let mut world = World::with(|settings| settings.max_size = 256 * MIB);
    world.page(0, 2).await;
    world.reject(&world.batch(1).await[0]).await;
    for number in 0..20 {
        let raw = format!("{number:02}{}", "x".repeat(500_000));
        world.commit(malformed(10 + number, raw)).await.unwrap();
    }
    let letters = DeadLetters::open(&world.path()).unwrap();
    assert_eq!(letters.replay(&letters.ids(None).unwrap()).unwrap(), 21);
    // Without a collector they stay where they are.
    world.settings.outbox = false;
    world.restart();
    assert_eq!(world.ledger().replay_queued().await.unwrap(), 0);
    assert_eq!(world.ledger().status().dead_letters, 21);
    world.settings.outbox = true;
    world.restart();
    for moved in [21, 0] {
        assert_eq!(world.ledger().replay_queued().await.unwrap(), moved);
        let status = world.ledger().status();
        let numbers = (status.replayed, status.backlog, status.dead_letters);
        assert_eq!(numbers, (21, 22, 0));
        assert_eq!(status.commits, 3, "not all of them are in memory at once");
    }
    let drained = world.drain().await;
    assert_eq!(drained[..2], [raw(1, 2), raw(0, 1)].concat());
    assert!(drained[2..].iter().map(|raw| &raw[..2]).is_sorted() && drained.len() == 22);
}

#[tokio::test]
async fn dead_letters_that_an_operator_deletes_make_room() {
    let mut world = World::new();
    world
        .commit(malformed(0, "x".repeat(1 << 20)))
        .await
        .unwrap();
    world.fill(1).await;
    let letters = DeadLetters::open(&world.path()).unwrap();
    // More numbers than an SQL statement has parameters.
    let numbers: Vec<i64> = (1..=40_000).collect();
    assert_eq!(letters.drop_letters(&numbers).unwrap(), 1);
    assert_eq!(world.ledger().replay_queued().await.unwrap(), 0);
    assert!(!world.ledger().is_full().await);
}

#[tokio::test]
async fn an_acknowledgement_waits_for_another_writer() {
    let mut world = World::new();
    world.page(0, 20).await;
    let other = world.other();
    for record in world.batch(100).await {
        let sql = "BEGIN IMMEDIATE; UPDATE dead_letters SET queued = 1";
        other.execute_batch(sql).unwrap();
        let mut acknowledged = Box::pin(world.deliver(std::slice::from_ref(&record)));
        for _ in 0..100 {
            assert!(futures_util::poll!(&mut acknowledged).is_pending());
            tokio::task::yield_now().await;
        }
        other.execute_batch("COMMIT").unwrap();
        acknowledged.await;
    }
    let failures = world.ledger().status().commit_failures;
    assert_eq!((world.backlog(), failures), (0, 0));
}

#[tokio::test]
async fn damage_found_while_running_ends_the_process_and_the_next_start_finds_it_too() {
    for damage in ["block = X'ffffff7f00112233'", "records = 12"] {
        let mut world = World::new();
        world.page(0, 10).await;
        let sql = format!("UPDATE outbox SET {damage}");
        world.other().execute(&sql, []).unwrap();
        let batch = world.ledger().outbox_batch(0, 100, usize::MAX).await;
        let again = world.commit(page(10, 1, Timestamp::now())).await;
        for error in [
            batch.unwrap_err(),
            again.unwrap_err(),
            world.ledger().fatal_error().await,
        ] {
            assert!(matches!(error, LedgerError::Damaged(_)), "{error}");
        }
        let again = world.reopened().unwrap_err();
        assert!(matches!(again, OpenError::Damaged { .. }), "{again}");
    }
}

/// The number of a page that was deleted is used again.
#[tokio::test]
async fn a_dead_letter_that_is_sent_again_is_not_taken_for_the_one_before_it() {
    let mut world = World::new();
    world.page(0, 2).await;
    for record in world.batch(2).await {
        world.reject(&record).await;
    }
    for (letter, entry) in [(1, raw(0, 1)), (2, raw(1, 2))] {
        let queue = "UPDATE dead_letters SET queued = 1 WHERE id = ?1";
        world.other().execute(queue, [letter]).unwrap();
        assert_eq!(world.ledger().replay_queued().await.unwrap(), 1);
        let batch = world.batch(10).await;
        assert_eq!(json(&batch), entry);
        world.deliver(&batch).await;
    }
}

/// Pages of a sweep arrive later than the newer ones above them.
#[tokio::test]
async fn the_oldest_record_is_the_one_that_arrived_first() {
    let mut world = World::new();
    let arrived = |second: i64| Timestamp::from_second(1_800_000_000 + second).unwrap();
    for (number, second) in [(1, 10), (0, 20)] {
        let mut commit = page(number, 1, arrived(30 - second));
        commit.arrived_at = arrived(second);
        world.commit(commit).await.unwrap();
    }
    let oldest = world.ledger().status().oldest;
    assert_eq!(oldest, Some(arrived(10)));
    assert_eq!(world.drain().await, raw(0, 2));
}

#[tokio::test]
async fn a_reader_that_prevents_truncation_stops_the_file_at_the_limit() {
    let mut world = World::with(|settings| settings.outbox = false);
    world.page(0, 1000).await;
    let reader = world.other();
    let sql = "BEGIN; SELECT count(*) FROM pages";
    reader.execute_batch(sql).unwrap();
    let committed = world.fill(1000).await;
    assert!(world.bytes() < 9 * MIB, "{} bytes", world.bytes());
    reader.execute_batch("COMMIT").unwrap();
    for look in 0.. {
        if !world.ledger().is_full().await {
            break;
        }
        assert!(look < 1000, "it stays full");
        world.ledger().reload().await.unwrap();
    }
    world.page(committed, 1000).await;
    assert_eq!(world.counted(), committed + 1000);
}

#[tokio::test]
async fn a_full_disk_changes_nothing_until_there_is_room() {
    let mut world = World::new();
    world.page(0, 1000).await;
    let before = format!("{:?}", world.ledger().reload().await.unwrap());
    limit(&world, "1").await;
    let mut commit = page(1000, 1000, Timestamp::now());
    (commit.gaps, commit.duplicates) = (vec![gap("gone")], 5);
    let error = world.commit(commit).await.unwrap_err();
    assert!(matches!(error, LedgerError::Write(_)), "{error}");
    let status = world.ledger().status();
    assert_eq!((status.commit_failures, status.backlog), (1, 1000));
    let ids = [999, 1000].map(|number| entry(number, Timestamp::UNIX_EPOCH).id);
    assert_eq!(world.holds(ids), [true, false]);
    let after = format!("{:?}", world.ledger().reload().await.unwrap());
    assert_eq!(after, before);
    // To deliver what is there takes no room.
    world.deliver(&world.batch(1000).await).await;
    limit(&world, "4294967294").await;
    world.page(1000, 1000).await;
    world.restart();
    assert_eq!(world.drain().await, raw(1000, 2000));
    assert_eq!(world.counted(), 2000);
}

/// Limits the file to so many pages: to 1, as if its disk were full.
async fn limit(world: &World, pages: &str) {
    let limit = format!("PRAGMA max_page_count = {pages}");
    let limited = world
        .ledger()
        .with(move |file| file.query_row(&limit, [], |_| Ok(())));
    limited.await.unwrap();
}

/// A clock that a test sets, in seconds.
#[derive(Debug, Default)]
struct Clock(AtomicI64);

impl Machine for Clock {
    fn now(&self) -> Timestamp {
        Timestamp::from_second(self.0.load(Ordering::Relaxed)).unwrap()
    }

    fn start(self: Arc<Self>, call: Box<dyn FnOnce() + Send>) -> JoinHandle<()> {
        Arc::new(ThisMachine).start(call)
    }
}

/// Returns the numbers of the records that wait.
async fn numbers(world: &World) -> Vec<Option<i64>> {
    let batch = world.batch(1000).await;
    let records = batch.iter().map(|record| Stored::read(&record.line));
    records.map(|record| record.sequence).collect()
}

#[tokio::test]
async fn every_record_has_the_next_number_and_keeps_it() {
    let mut world = World::new();
    // Without a collector there are none.
    world.settings.outbox = false;
    world.restart();
    world.page(100, 2).await;
    world.ledger().checkpoint(None).await.unwrap();
    world.settings.outbox = true;
    world.restart();
    assert_eq!(numbers(&world).await, [Some(1)], "the gap `not_recorded`");
    world.drain().await;
    let mut commit = page(0, 4, Timestamp::UNIX_EPOCH);
    commit.entries[1].is_unsent = true;
    commit.entries[2].activity_type = None;
    commit.gaps = vec![gap("gone")];
    // A transaction that fails after that takes none.
    let other = world.other();
    let sql =
        "CREATE TRIGGER refuse BEFORE INSERT ON dead_letters BEGIN SELECT RAISE(ABORT, ''); END";
    other.execute_batch(sql).unwrap();
    world.commit(commit.clone()).await.unwrap_err();
    other.execute_batch("DROP TRIGGER refuse").unwrap();
    world.commit(commit).await.unwrap();
    assert_eq!(numbers(&world).await, [2, 3, 4].map(Some));
    world.reject(&world.batch(1).await[0]).await;
    world.restart();
    world.page(4, 1).await;
    let letters = DeadLetters::open(&world.path()).unwrap();
    assert_eq!(letters.replay(&letters.ids(None).unwrap()).unwrap(), 2);
    world.ledger().replay_queued().await.unwrap();
    let mut found = numbers(&world).await;
    found.sort();
    assert_eq!(found, [2, 3, 4, 5, 6].map(Some));
}

#[tokio::test]
async fn a_checkpoint_is_made_at_the_first_start_and_once_an_hour() {
    let clock = Arc::new(Clock::default());
    let mut world = World::with(|settings| settings.machine = clock.clone());
    let through = Timestamp::from_second(7).unwrap();
    let mut made = Vec::new();
    for (second, restarts) in [
        (10, false),
        (3609, true),
        (3610, false),
        (3700, true),
        (7209, false),
        // After downtime, and after a clock that was ahead.
        (50_000, true),
        (20_000, false),
    ] {
        clock.0.store(second, Ordering::Relaxed);
        if restarts {
            world.restart();
        }
        world.ledger().checkpoint(Some(through)).await.unwrap();
        let batch = world.batch(10).await;
        made.extend((!batch.is_empty()).then_some(second));
        world.deliver(&batch).await;
    }
    assert_eq!(made, [10, 3610, 50_000, 20_000]);
    // Of ten records, five are dead letters.
    world.page(0, 10).await;
    let batch = world.batch(10).await;
    for record in [0, 1, 2, 4, 9].map(|index: usize| &batch[index]) {
        world
            .settle(Settled {
                records: vec![record.clone()],
                is_witness: true,
                rejected: Some((DeadReason::Rejected, "no".to_owned())),
            })
            .await;
    }
    world.drain().await;
    clock.0.store(90_000, Ordering::Relaxed);
    world.ledger().checkpoint(Some(through)).await.unwrap();
    let batch = world.batch(10).await;
    let record = Stored::read(&batch[0].line);
    let found: Checkpoint = serde_json::from_str(&record.entry).unwrap();
    let expected = Checkpoint {
        id: found.id.clone(),
        last_sequence: 14,
        complete_through: Some(through),
        dead_letters: 5,
        dead_letter_sequences: Some("5-7,9,14".to_owned()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    assert_eq!((record.sequence, found), (Some(15), expected));
    // Of too many ranges there is the number of dead letters alone.
    world.deliver(&batch).await;
    world.change(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100)
         INSERT INTO dead_letters (at, reason, message, sequence, line) SELECT 0, '', '', 100 + 2 * i, '' FROM n;
         UPDATE state SET checkpoint_at = NULL",
    );
    world.restart();
    world.ledger().checkpoint(None).await.unwrap();
    let batch = world.batch(10).await;
    let found = Stored::read(&batch[0].line);
    let found: Checkpoint = serde_json::from_str(&found.entry).unwrap();
    let named = (found.dead_letters, found.dead_letter_sequences);
    assert_eq!(named, (105, None));
}
