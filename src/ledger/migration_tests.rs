//! State files of schema 2 are migrated: what they counted, delivered and remembered stays.

use std::hash::Hasher as _;
use std::path::Path;
use std::time::Duration;

use crate::audit::{Settings, Start, Tail};
use crate::ledger::{Commit, DeadLetters, EventId, LedgerHandle, Settled};
use crate::metrics::Metrics;
use crate::metrics::audit::Total;
use crate::simulator::{Config, Simulator};
use jiff::Timestamp;
use rusqlite::{Connection, params};
use siphasher::sip::SipHasher13;

use crate::support::settings;

const SECOND: i64 = 1_000_000;
const CREATED: i64 = 1_800_000_000 * SECOND;

/// Creates a file of schema 2 with something in every table.
fn old_file(path: &Path, base_url: &str, filters: &str) -> Connection {
    let file = Connection::open(path).unwrap();
    file.execute_batch(include_str!("schema_2.sql")).unwrap();
    file.execute(
        "INSERT INTO state (one, schema_version, oldest_reader, base_url, organization, instance_id, filters, born_at,
             start_floor, count_floor, filter_floor, prune_floor, cursor, frontier_at, frontier_id, newest_at, reread_at)
         VALUES (1, 2, 1, ?1, NULL, 'instance-1', ?2, ?3, ?3 - 9000000, ?3 - 1000000, ?3 - 8000000, ?3 - 7000000, 'c', ?3 + 5000000, 5,
             ?3 + 6000000, ?3 + 4000000)",
        params![base_url, filters, CREATED],
    )
    .unwrap();
    file.execute_batch(
        "INSERT INTO events VALUES ('id', 'A', '7', 40), ('id', 'B', 'none', 2), ('name', 'A', 'Ada', 9);
         INSERT INTO actors VALUES ('id', '7', 'Ada L', 1800000000000000);
         INSERT INTO totals VALUES ('late', 3), ('gaps', 1), ('malformed', 2);
         INSERT INTO dead_letters (at, arrived, reason, message, kind, raw, queued)
             VALUES (1, 1, 'refused', 'no', 0, '{\"id\":\"dead\"}', 0), (2, 2, 'too_large', 'big', 0, '{\"id\":\"again\"}', 1);
         INSERT INTO shown VALUES ('id', 'A', '7', 1, 1);",
    )
    .unwrap();
    let sql = "INSERT INTO outbox (arrived, records, acknowledged, trace, block) VALUES (?1, 10, ?2, ?3, ?4)";
    for page in 0..3u8 {
        let mut block = Vec::new();
        for index in 0..10 {
            let json = format!(r#"{{"id":"{page}-{index}"}}"#);
            block.push(0);
            block.extend_from_slice(&u32::try_from(json.len()).unwrap().to_le_bytes());
            block.extend_from_slice(json.as_bytes());
        }
        let acknowledged = if page == 0 { 4 } else { 0 };
        let block = lz4_flex::compress_prepend_size(&block);
        let row = params![CREATED, acknowledged, [page; 24], block];
        file.execute(sql, row).unwrap();
    }
    file
}

fn insert_ids(file: &Connection, ids: impl IntoIterator<Item = EventId>) {
    file.execute_batch("BEGIN").unwrap();
    for (at, id) in (0..).zip(ids) {
        let row = params![CREATED + at, id.0.cast_signed()];
        let sql = "INSERT INTO seen VALUES (?1, ?2)";
        file.execute(sql, row).unwrap();
    }
    file.execute_batch("COMMIT").unwrap();
}

/// Writes an unfinished catch-up of schema 2 (column `walk`).
fn set_catch_up(file: &Connection, kind: &str, direction: &str, top: Option<&str>) {
    let top = top.map(|top| lz4_flex::compress_prepend_size(top.as_bytes()));
    let sql = "UPDATE state SET walk = ?1, walk_direction = ?2, walk_started = ?3, walk_top = ?4";
    let row = params![kind, direction, CREATED, top];
    file.execute(sql, row).unwrap();
    let sql = "INSERT INTO walk_marks VALUES (0, NULL, 'c', 1), (1, 'c', 'd', 2)";
    file.execute_batch(sql).unwrap();
}

/// The identity of an entry, which is the same in every version.
fn identity(id: &str) -> EventId {
    let mut hasher = SipHasher13::new_with_keys(0x6f72_6764_6174_6131, 0x6175_6469_742d_6964);
    hasher.write(b"id");
    hasher.write_u8(0xff);
    hasher.write(id.as_bytes());
    EventId(hasher.finish())
}

#[tokio::test]
async fn everything_in_an_old_file_stays() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    for (kind, direction, top) in [
        (None, "", None),
        (Some("catch_up"), "down", None),
        (Some("catch_up"), "up", Some("{}")),
        (Some("recovery"), "down", None),
        (Some("first_start"), "down", Some("the first page")),
        (Some("first_start"), "up", Some("the first page")),
    ] {
        std::fs::remove_file(&path).ok();
        let base_url = "https://api.example";
        let file = old_file(&path, base_url, "[]");
        insert_ids(&file, (0..2500).map(EventId));
        if let Some(kind) = kind {
            set_catch_up(&file, kind, direction, top);
        }
        drop(file);
        let older = DeadLetters::open(&path).unwrap_err().to_string();
        assert!(older.contains("an older version (schema 2)"), "{older}");

        let state_path = Some(path.clone());
        let open = || LedgerHandle::open(settings::ledger(state_path.clone(), base_url));
        let (ledger, state) = open().unwrap();

        let at = |seconds: i64| Timestamp::from_microsecond(CREATED + seconds * SECOND).ok();
        let tail = &state.tail;
        let first = tail.first_sync.clone().unwrap();
        assert_eq!(state.instance_id, "instance-1");
        let floors = (first.count_floor, first.history_floor, tail.filter_floor);
        assert_eq!(floors, (at(-1), at(-9), at(-8)));
        assert_eq!((Some(first.at), state.prune_floor), (at(0), at(-7)));
        let times = (tail.last_poll_at, tail.reread_at, state.counted.newest);
        assert_eq!((times, &*tail.filters), ((at(5), at(4), at(6)), "[]"));
        let is_history = kind == Some("first_start");
        assert_eq!(tail.first_page.as_deref(), top.filter(|_| is_history));
        assert_eq!(tail.ranges, []);

        let series = state.counted.introduced.iter().map(|(series, count)| {
            let actor = series.actor.as_deref().unwrap();
            (&*series.activity_type, actor, *count)
        });
        assert!(series.eq([("A", "7", 40), ("B", "none", 2)]));
        let mut totals = state.counted.totals.clone();
        totals.sort_by_key(|(total, _)| *total as u8);
        let totals = totals.into_iter();
        let totals = totals.map(|(total, count)| (total.as_str(), count));
        assert!(totals.eq([("late", 3), ("malformed", 2), ("gaps", 1)]));
        let known = ledger.holds((0..2501).map(EventId));
        assert_eq!(known.iter().filter(|known| **known).count(), 2500);

        // Old pages are delivered first and in their order, whatever is open; then what is new.
        let mut commit = Commit::new(Timestamp::now());
        let mut next = state.tail.clone();
        commit.place = next.take_place();
        commit.tail = Some(next);
        ledger.commit(commit).await.unwrap();
        assert_eq!(ledger.status().backlog, 26);
        let batch = ledger.outbox_batch(0, 100, usize::MAX).await.unwrap();
        let expected = (4..30).map(|at| format!(r#"{{"id":"{}-{}"}}"#, at / 10, at % 10));
        assert!(settings::entries(&batch).into_iter().eq(expected));
        let settled = Settled {
            records: batch[..16].to_vec(),
            ..Settled::default()
        };
        ledger.outbox_settle(settled).await.unwrap();
        drop(ledger);

        let (ledger, _) = open().unwrap();
        let status = ledger.status();
        assert_eq!((status.backlog, status.dead_letters), (10, 2));
        assert_eq!(ledger.replay_dead_letters().await.unwrap(), 1);
        let batch = ledger.outbox_batch(0, 100, usize::MAX).await.unwrap();
        let ids = settings::entries(&batch);
        assert_eq!(ids.last().map(String::as_str), Some(r#"{"id":"again"}"#));
        let letters = DeadLetters::open(&path).unwrap();
        let ids = letters.ids(None).unwrap();
        let left = ids.iter().map(|id| letters.letter(*id).unwrap().unwrap());
        let left: Vec<String> = left.map(|stored| stored.letter.raw).collect();
        assert_eq!(left, [r#"{"id":"dead"}"#]);
    }
}

/// The old version was stopped in the middle of a first start: its first page is stored, and it had taken the oldest
/// entries. The new one takes the rest once, and counts what came since.
#[tokio::test]
async fn an_unfinished_history_is_finished() {
    let config = Config {
        history: 300,
        ..Config::quiet()
    };
    let running = Simulator::spawn(config).await.unwrap();
    let sim = running.simulator();
    let ids = || -> Vec<String> { sim.entries().map(|entry| entry.id).collect() };
    let metrics = Metrics::new(Duration::ZERO);
    let client = settings::client(&running.base_url(), &metrics);
    let page = client.audit_page(100, None).await.unwrap();

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    let filters = client.settings().filters.fingerprint();
    let file = old_file(&path, &running.base_url(), &filters);
    let sql = "DELETE FROM outbox; UPDATE state SET start_floor = NULL, filter_floor = NULL, prune_floor = NULL";
    file.execute_batch(sql).unwrap();
    let sql = "UPDATE state SET born_at = ?1, count_floor = ?1, frontier_at = ?1, reread_at = ?1";
    file.execute(sql, [sim.now().as_microsecond()]).unwrap();
    set_catch_up(&file, "first_start", "up", Some(page.body()));
    insert_ids(&file, ids()[..100].iter().map(|id| identity(id)));
    drop(file);

    sim.advance(Duration::from_secs(5));
    sim.add_events(40);
    // Another one comes before the first page below.
    let mut is_there = false;
    sim.on_request(Box::new(move |request, sim| {
        if request.param("before").is_some() && !std::mem::replace(&mut is_there, true) {
            sim.add_events(1);
        }
        None
    }));
    let ledger_settings = settings::ledger(Some(path), running.base_url());
    let (ledger, state) = LedgerHandle::open(ledger_settings).unwrap();
    let hour = Duration::from_secs(3600);
    let tail_settings = Settings {
        poll_interval: hour,
        start: Start::Oldest,
        reread_interval: hour,
        reread_window: hour,
        page_size: 30,
    };
    let own = (ledger.clone(), metrics.clone());
    let mut tail = Tail::new(client, own.0, state, own.1, tail_settings);
    for round in 0.. {
        if tail.round().await > Duration::from_secs(60) {
            if round > 50 {
                break;
            }
            tail.hurry();
        }
        assert!(round < 500, "it does not come to rest: {:?}", tail.state());
    }
    let records = ledger
        .outbox_batch(0, usize::MAX, usize::MAX)
        .await
        .unwrap();
    let entries = settings::entries(&records);
    let id = |entry: &String| -> String {
        let entry: serde_json::Value = serde_json::from_str(entry).unwrap();
        entry["id"].as_str().unwrap().to_owned()
    };
    let mut delivered: Vec<String> = entries.iter().map(id).collect();
    let mut expected = ids().split_off(100);
    delivered.sort();
    expected.sort();
    assert_eq!(delivered, expected, "each once");
    let counted: u64 = metrics.audit.events().iter().map(|(_, count)| count).sum();
    assert_eq!((counted, metrics.audit.total(Total::Gaps)), (42 + 41, 1));
    assert!(tail.state().ranges.is_empty() && tail.state().first_page.is_none());
}
