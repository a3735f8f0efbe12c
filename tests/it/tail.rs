//! The tail against the simulator: whatever is new, and however the service reads its own specification, each event is counted once.

use crate::support::captured;
use crate::support::settings;

use std::collections::BTreeMap;
use std::time::Duration;

use captured::Captured;
use http::StatusCode;
use orgdata_exporter::api::{Client, Filters, Settings as ApiSettings};
use orgdata_exporter::audit::{Settings, Start, Tail};
use orgdata_exporter::ledger::{LedgerHandle, RecordKind, Settings as LedgerSettings, StatePath};
use orgdata_exporter::metrics::Metrics;
use orgdata_exporter::metrics::audit::Total;
use orgdata_exporter::simulator::{
    AfterReading, Config, Fault, FaultKind, Fields, KeyReading, Readings, Running, Simulator,
};
use serde_json::json;

/// An exporter's tail beside a simulator, driven round by round.
struct Bench {
    running: Running,
    client: Client,
    tail: Tail,
    ledger: LedgerHandle,
    metrics: Metrics,
}

#[derive(Clone)]
struct Wish {
    start: Start,
    page_size: u32,
    path: StatePath,
    filters: Filters,
}

impl Default for Wish {
    fn default() -> Self {
        Self {
            start: Start::Now,
            page_size: 100,
            path: StatePath::Memory,
            filters: Filters::default(),
        }
    }
}

/// How a clock is set.
#[derive(Clone, Copy, Debug)]
enum Jump {
    Ahead(Duration),
    Back(Duration),
}

impl Bench {
    async fn new(config: Config, wish: Wish) -> Self {
        let running = Simulator::spawn(config).await.expect("a free port");
        rustls::crypto::ring::default_provider()
            .install_default()
            .ok();
        let api = ApiSettings {
            filters: wish.filters.clone(),
            ..settings::api(&running.base_url())
        };
        let client = Client::new(api, Metrics::new(Duration::ZERO).api.clone()).expect("a client");
        Self::beside(running, client, wish)
    }

    /// A process that begins; to make its client anew would take longer than the rest of it.
    fn beside(running: Running, client: Client, wish: Wish) -> Self {
        let metrics = Metrics::new(Duration::ZERO);
        let ledger_settings = LedgerSettings {
            filters: client.settings().filters.fingerprint(),
            ..settings::ledger(wish.path, running.base_url())
        };
        let (ledger, state) =
            LedgerHandle::open(ledger_settings, metrics.clone()).expect("a ledger");
        let settings = Settings {
            poll_interval: Duration::from_secs(3600),
            start: wish.start,
            reread_interval: Duration::from_secs(3600),
            reread_window: Duration::from_secs(3600),
            page_size: wish.page_size,
        };
        let tail = Tail::new(
            client.clone(),
            ledger.clone(),
            state,
            metrics.clone(),
            settings,
        );
        Self {
            running,
            client,
            tail,
            ledger,
            metrics,
        }
    }

    /// A process that begins where this one died.
    fn restarted(self, wish: Wish) -> Self {
        let Self {
            running,
            client,
            tail,
            ledger,
            metrics,
        } = self;
        drop((tail, ledger, metrics));
        Self::beside(running, client, wish)
    }

    fn sim(&self) -> &Simulator {
        self.running.simulator()
    }

    /// Polls, walks and re-reads until nothing is left to do.
    async fn settle(&mut self) {
        self.tail.hurry();
        for _ in 0..10_000 {
            if self.tail.round().await > Duration::from_secs(60) {
                return;
            }
        }
        panic!(
            "the tail does not come to rest: {:?}",
            self.metrics
                .loops
                .state(orgdata_exporter::metrics::Loop::Audit)
        );
    }

    fn counted(&self) -> u64 {
        self.metrics
            .audit
            .events()
            .iter()
            .map(|(_, value)| value)
            .sum()
    }

    /// Ids in the outbox, in its order.
    async fn delivered(&self) -> Vec<String> {
        let records = self
            .ledger
            .outbox_batch(usize::MAX, usize::MAX)
            .await
            .expect("readable");
        records
            .iter()
            .map(|record| {
                serde_json::from_str::<serde_json::Value>(&record.raw).expect("JSON")["id"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned()
            })
            .collect()
    }

    fn requests(&self) -> u64 {
        self.sim().requests().audit
    }
}

/// A directory in memory where there is one: a process that dies needs no disk, only a power cut does.
fn quick_directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("a directory")
}

fn config(history: u64, readings: Readings) -> Config {
    Config {
        history,
        readings,
        ..Config::quiet()
    }
}

/// Both readings of `after=`.
fn readings() -> [Readings; 2] {
    [AfterReading::Adjacent, AfterReading::Newest].map(|after| Readings {
        after,
        ..Readings::default()
    })
}

#[tokio::test]
async fn a_fresh_ledger_counts_nothing_of_the_past_and_everything_from_then_on() {
    for readings in readings() {
        let mut bench = Bench::new(config(500, readings), Wish::default()).await;
        bench.settle().await;
        assert_eq!(bench.counted(), 0, "{readings:?}");
        for (added, total) in [(1, 1), (99, 100), (0, 100), (2500, 2600), (100, 2700)] {
            bench.sim().add_events(added);
            bench.settle().await;
            assert_eq!(bench.counted(), total, "{readings:?}");
        }
        let delivered = bench.delivered().await;
        let distinct: std::collections::BTreeSet<_> = delivered.iter().collect();
        assert_eq!(
            (delivered.len(), distinct.len()),
            (2700, 2700),
            "{readings:?}"
        );
        for total in [
            Total::Gaps,
            Total::Recoveries,
            Total::Duplicate,
            Total::Late,
            Total::Malformed,
        ] {
            assert_eq!(
                bench.metrics.audit.total(total),
                0,
                "{total:?} {readings:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_quiet_poll_is_one_request() {
    for readings in readings() {
        let mut bench = Bench::new(config(500, readings), Wish::default()).await;
        bench.settle().await;
        let before = bench.requests();
        bench.tail.hurry();
        bench.tail.round().await;
        assert_eq!(bench.requests() - before, 1, "{readings:?}");
    }
}

#[tokio::test]
async fn history_is_delivered_and_not_counted() {
    for readings in readings() {
        let mut bench = Bench::new(
            config(1234, readings),
            Wish {
                start: Start::Oldest,
                ..Wish::default()
            },
        )
        .await;
        bench.settle().await;
        assert_eq!(bench.counted(), 0, "{readings:?}");
        assert_eq!(bench.delivered().await.len(), 1234, "{readings:?}");
        assert!(
            !bench.metrics.audit.events().is_empty(),
            "its label sets exist"
        );
        bench.sim().add_events(10);
        bench.settle().await;
        assert_eq!(
            (bench.counted(), bench.delivered().await.len()),
            (10, 1244),
            "{readings:?}"
        );
    }
}

#[tokio::test]
async fn pages_that_are_empty_by_accident_end_nothing() {
    // The very first answer; every other one. Each is right when it is asked for again.
    for (readings, fault) in readings().into_iter().flat_map(|readings| {
        ["empty-page,times=1", "empty-page,every=2"].map(|fault| (readings, fault))
    }) {
        let mut bench = Bench::new(
            config(334, readings),
            Wish {
                start: Start::Oldest,
                ..Wish::default()
            },
        )
        .await;
        bench.sim().fault(fault.parse().expect("a fault"));
        bench.settle().await;
        assert_eq!(
            (bench.counted(), bench.delivered().await.len()),
            (0, 334),
            "{fault}, {readings:?}: history is no news"
        );
        bench.sim().clear_faults();
        bench.sim().add_events(150);
        bench.settle().await;
        assert_eq!(
            (bench.counted(), bench.metrics.audit.total(Total::Gaps)),
            (150, 0),
            "{fault}, {readings:?}"
        );
    }
}

#[tokio::test]
async fn records_leave_oldest_first() {
    for readings in readings() {
        let mut bench = Bench::new(
            config(950, readings),
            Wish {
                start: Start::Oldest,
                ..Wish::default()
            },
        )
        .await;
        bench.settle().await;
        bench.sim().add_events(1234);
        bench.settle().await;
        let records = bench
            .ledger
            .outbox_batch(usize::MAX, usize::MAX)
            .await
            .expect("readable");
        let created: Vec<String> = records
            .iter()
            .map(|record| {
                serde_json::from_str::<serde_json::Value>(&record.raw).expect("JSON")["createdAt"]
                    .as_str()
                    .expect("a time")
                    .to_owned()
            })
            .collect();
        assert!(created.is_sorted(), "{readings:?}");
    }
}

#[tokio::test]
async fn pages_of_one_and_pages_capped_below_the_limit_lose_nothing() {
    for readings in readings() {
        let capped = Readings {
            page_cap: Some(7),
            ..readings
        };
        for (page_size, readings) in [(1, readings), (100, capped)] {
            let mut bench = Bench::new(
                config(20, readings),
                Wish {
                    page_size,
                    start: Start::Oldest,
                    ..Wish::default()
                },
            )
            .await;
            bench.settle().await;
            bench.sim().add_events(45);
            bench.settle().await;
            assert_eq!(
                (bench.counted(), bench.delivered().await.len()),
                (45, 65),
                "{page_size} {readings:?}"
            );
        }
    }
}

#[tokio::test]
async fn late_rows_are_found_counted_once_and_called_late() {
    for readings in readings() {
        let mut bench = Bench::new(config(300, readings), Wish::default()).await;
        bench.settle().await;
        bench.sim().add_events(250);
        bench.settle().await;
        bench.sim().advance(Duration::from_secs(60));
        bench.sim().add_events(1);
        bench.settle().await;
        bench.sim().add_late(3, Duration::from_secs(30));
        bench.settle().await;
        bench.settle().await;
        assert_eq!(
            (bench.counted(), bench.metrics.audit.total(Total::Late)),
            (254, 3),
            "{readings:?}"
        );
        assert_eq!(bench.delivered().await.len(), 254, "{readings:?}");
    }
}

#[tokio::test]
async fn an_organization_without_events_begins_with_the_first() {
    for readings in readings() {
        let mut bench = Bench::new(config(0, readings), Wish::default()).await;
        bench.settle().await;
        bench.sim().add_events(1);
        bench.settle().await;
        assert_eq!(bench.counted(), 1, "{readings:?}");
        bench.sim().add_events(1000);
        bench.settle().await;
        assert_eq!(
            (bench.counted(), bench.metrics.audit.total(Total::Gaps)),
            (1001, 0),
            "{readings:?}"
        );
    }
}

#[tokio::test]
async fn what_the_service_lost_is_a_gap() {
    for readings in readings() {
        let mut bench = Bench::new(config(300, readings), Wish::default()).await;
        bench.settle().await;
        bench.sim().add_events(1000);
        bench.sim().retain(400);
        bench.settle().await;
        assert_eq!(
            (bench.counted(), bench.metrics.audit.total(Total::Gaps)),
            (400, 1),
            "{readings:?}"
        );
        let records = bench
            .ledger
            .outbox_batch(usize::MAX, usize::MAX)
            .await
            .expect("readable");
        assert_eq!(
            records
                .iter()
                .filter(|record| record.raw.contains("frontier_gone"))
                .count(),
            1
        );
        bench.sim().add_events(5);
        bench.settle().await;
        assert_eq!(
            (bench.counted(), bench.metrics.audit.total(Total::Gaps)),
            (405, 1),
            "{readings:?}"
        );
    }
}

#[tokio::test]
async fn a_ledger_in_the_place_of_a_damaged_one_says_so_once() {
    for start in [Start::Now, Start::Oldest] {
        let directory = quick_directory();
        let path = directory.path().join("state.db");
        let wish = Wish {
            path: StatePath::File(path.clone()),
            start,
            ..Wish::default()
        };
        let mut bench = Bench::new(config(30, Readings::default()), wish.clone()).await;
        bench.settle().await;
        assert_eq!(bench.metrics.audit.total(Total::Gaps), 0);
        let Bench {
            running,
            client,
            tail,
            ledger,
            metrics,
        } = bench;
        drop((tail, ledger, metrics));
        // What happens now is in no file.
        std::fs::write(&path, "no database any more").expect("written");
        running.simulator().add_events(5);
        let mut bench = Bench::beside(running, client, wish.clone());
        bench.settle().await;
        bench = bench.restarted(wish);
        bench.sim().add_events(1);
        bench.settle().await;
        assert_eq!(
            (bench.counted(), bench.metrics.audit.total(Total::Gaps)),
            (1, 1),
            "{start}"
        );
        let records = bench
            .ledger
            .outbox_batch(usize::MAX, usize::MAX)
            .await
            .expect("readable");
        let gaps: Vec<&str> = records
            .iter()
            .filter(|record| record.kind == RecordKind::Gap)
            .map(|record| record.raw.as_str())
            .collect();
        let [gap] = gaps[..] else { panic!("{gaps:?}") };
        assert!(
            gap.contains("state_recreated")
                && gap.contains("is not delivered") == (start == Start::Now),
            "{gap}"
        );
        assert_eq!(records.len(), if start == Start::Now { 2 } else { 37 });
    }
}

#[tokio::test]
async fn an_entry_without_a_readable_organization_does_not_hold_the_tail() {
    let mut bench = Bench::new(config(20, Readings::default()), Wish::default()).await;
    bench.settle().await;
    bench
        .sim()
        .add_entry(&Fields::new().unchecked().with("organizationId", "odd"))
        .expect("unchecked");
    bench.sim().add_events(3);
    bench.settle().await;
    assert_eq!(
        (bench.counted(), bench.metrics.audit.total(Total::Malformed)),
        (4, 1)
    );
}

#[tokio::test]
async fn an_entry_of_another_organization_is_no_other_key() {
    for odd in [json!(12.5), json!(99)] {
        let mut bench = Bench::new(config(20, Readings::default()), Wish::default()).await;
        bench.settle().await;
        bench.sim().advance(Duration::from_secs(1));
        bench
            .sim()
            .add_entry(&Fields::new().unchecked().with("organizationId", odd))
            .expect("unchecked");
        bench.settle().await;
        assert_eq!(
            (bench.counted(), bench.metrics.audit.total(Total::Malformed)),
            (1, 0),
            "alone in its page"
        );
        bench.sim().advance(Duration::from_secs(1));
        bench
            .sim()
            .add_entry(&Fields::new().unchecked().with("organizationId", 99))
            .expect("unchecked");
        bench.sim().add_events(3);
        bench.settle().await;
        assert_eq!(bench.counted(), 5, "the first of its page");
    }
}

#[tokio::test]
async fn cursors_that_grow_old_on_the_way_back_lose_nothing_and_are_no_gap() {
    for fault in ["expired-cursor-empty,times=2", "expired-cursor=410,times=3"] {
        let mut bench = Bench::new(
            config(400, Readings::default()),
            Wish {
                start: Start::Oldest,
                page_size: 10,
                ..Wish::default()
            },
        )
        .await;
        // More pages are taken than are kept in memory, and many are left.
        while bench.ledger.backlog().records < 120 {
            bench.tail.round().await;
        }
        bench.sim().fault(fault.parse().expect("a fault"));
        bench.settle().await;
        let there: Vec<String> = bench.sim().entries().map(|entry| entry.id).collect();
        assert_eq!(
            (
                bench.delivered().await,
                bench.metrics.audit.total(Total::Gaps)
            ),
            (there, 0),
            "{fault}"
        );
    }
}

#[tokio::test]
async fn a_service_that_repeats_the_entry_of_the_cursor_in_older_pages_leads_to_everything_and_no_gap()
 {
    for history in [0, 250] {
        let readings = Readings {
            before_inclusive: true,
            ..Readings::default()
        };
        let mut bench = Bench::new(
            config(history, readings),
            Wish {
                start: Start::Oldest,
                page_size: 10,
                ..Wish::default()
            },
        )
        .await;
        bench.settle().await;
        for new in [1, 5, 40, 333] {
            bench.sim().advance(Duration::from_secs(1));
            bench.sim().add_events(new);
            bench.settle().await;
        }
        bench.sim().add_late(3, Duration::from_millis(500));
        bench.settle().await;
        let gaps = bench.metrics.audit.total(Total::Gaps);
        assert_eq!(
            (bench.counted(), bench.delivered().await.len() as u64, gaps),
            (382, history + 382, 0),
            "{history}"
        );
        let before = bench.requests();
        bench.tail.hurry_poll();
        bench.tail.round().await;
        assert_eq!(
            bench.requests() - before,
            1,
            "{history}: requests of a quiet poll"
        );
    }
}

#[tokio::test]
async fn a_limit_that_is_too_large_is_not_tried_again_and_again() {
    let mut bench = Bench::new(config(20, Readings::default()), Wish::default()).await;
    bench.sim().fault("too-large=60".parse().expect("a fault"));
    bench.settle().await;
    bench.sim().clear_requests();
    for _ in 0..65 {
        bench.sim().advance(Duration::from_secs(1));
        bench.sim().add_events(1);
        bench.tail.hurry_poll();
        bench.tail.round().await;
    }
    // Twice in so many polls a larger page is tried, with the attempts of a single failure each.
    let refused = bench.sim().requests().statuses.get(&500).copied();
    assert!(
        refused.is_some_and(|refused| refused <= 8),
        "{refused:?} requests were refused"
    );
    assert_eq!(bench.counted(), 65);
}

#[tokio::test]
async fn an_event_dated_long_ago_is_counted_once_wherever_it_stands() {
    let readings = Readings {
        key: KeyReading::Arrival,
        ..Readings::default()
    };
    let wish = Wish {
        start: Start::Oldest,
        page_size: 1000,
        ..Wish::default()
    };
    let mut bench = Bench::new(config(10_500, readings), wish).await;
    bench.settle().await;
    // More ids than are never forgotten, and the time to forget some.
    bench.sim().advance(Duration::from_secs(2 * 3600));
    bench
        .sim()
        .add_entry(
            &Fields::new()
                .unchecked()
                .with("createdAt", "2001-01-01T00:00:00.000Z"),
        )
        .expect("unchecked");
    for _ in 0..3 {
        bench.settle().await;
        bench.sim().advance(Duration::from_secs(2 * 3600));
        assert_eq!(
            (bench.counted(), bench.delivered().await.len()),
            (1, 10_501)
        );
    }
}

#[tokio::test]
async fn a_gap_is_told_and_counted_once_however_often_it_cannot_be_written() {
    // After one round the hole is found, after the second the gap is written, and what is above it has yet to be taken.
    for rounds in [1, 2] {
        let log = Captured::begin();
        let directory = quick_directory();
        let path = directory.path().join("state.db");
        let wish = Wish {
            path: StatePath::File(path.clone()),
            ..Wish::default()
        };
        let mut bench = Bench::new(config(300, Readings::default()), wish).await;
        bench.settle().await;
        let file = rusqlite::Connection::open(&path).expect("opens");
        bench.sim().add_events(50);
        bench.sim().retain(20);
        bench.tail.hurry();
        for _ in 0..rounds {
            bench.tail.round().await;
        }
        let written = bench.metrics.audit.total(Total::Gaps);
        file.execute_batch(
            "CREATE TRIGGER no BEFORE INSERT ON outbox BEGIN SELECT raise(ABORT, 'no'); END",
        )
        .expect("runs");
        for _ in 0..3 {
            bench.tail.round().await;
        }
        let told = || {
            log.lines()
                .iter()
                .filter(|line| line.contains("gap in the audit trail"))
                .count() as u64
        };
        assert_eq!(
            (told(), bench.metrics.audit.total(Total::Gaps), rounds),
            (written, written, 1 + written)
        );
        file.execute_batch("DROP TRIGGER no").expect("runs");
        bench.settle().await;
        assert_eq!(
            (
                told(),
                bench.metrics.audit.total(Total::Gaps),
                bench.counted()
            ),
            (1, 1, 20)
        );
    }
}

#[tokio::test]
async fn a_gap_is_counted_once_when_the_process_dies_behind_it() {
    for readings in readings() {
        let directory = quick_directory();
        let wish = Wish {
            path: StatePath::File(directory.path().join("state.db")),
            ..Wish::default()
        };
        let mut bench = Bench::new(config(300, readings), wish.clone()).await;
        bench.settle().await;
        bench.sim().add_events(50);
        bench.sim().retain(20);
        bench.tail.hurry();
        while bench.metrics.audit.total(Total::Gaps) == 0 {
            bench.tail.round().await;
        }
        bench = bench.restarted(wish);
        bench.sim().add_events(5);
        bench.settle().await;
        assert_eq!(
            (bench.counted(), bench.metrics.audit.total(Total::Gaps)),
            (25, 1),
            "{readings:?}"
        );
    }
}

#[tokio::test]
async fn a_restart_goes_on_where_it_was() {
    for readings in readings() {
        let directory = quick_directory();
        let wish = Wish {
            path: StatePath::File(directory.path().join("state.db")),
            start: Start::Oldest,
            page_size: 20,
            ..Wish::default()
        };
        let mut bench = Bench::new(config(190, readings), wish.clone()).await;
        let mut added = 0;
        // Killed after every third round, also on the way down and on the way up.
        for round in 0..60u64 {
            bench.tail.hurry();
            for _ in 0..3 {
                bench.tail.round().await;
            }
            if round % 3 == 0 && round < 40 {
                added += round;
                bench.sim().add_events(round);
            }
            bench = bench.restarted(wish.clone());
        }
        bench.settle().await;
        assert_eq!(
            (bench.counted(), bench.delivered().await.len() as u64),
            (added, 190 + added),
            "{readings:?}"
        );
        assert_eq!(bench.metrics.audit.total(Total::Gaps), 0);
    }
}

#[tokio::test]
async fn a_walk_of_a_thousand_pages_goes_on_where_it_was_killed() {
    let directory = quick_directory();
    let wish = Wish {
        path: StatePath::File(directory.path().join("state.db")),
        start: Start::Oldest,
        page_size: 2,
        ..Wish::default()
    };
    let mut bench = Bench::new(config(2000, Readings::default()), wish.clone()).await;
    let mut dice = fastrand::Rng::with_seed(7);
    let (mut killed, mut rounds) = (0, 0_u64);
    // The way down, the way up, and what comes afterwards: a page a round, killed about every fiftieth.
    while rounds < 2_100 {
        let until = rounds + dice.u64(1..100);
        while rounds < until {
            bench.tail.round().await;
            rounds += 1;
        }
        bench = bench.restarted(wish.clone());
        killed += 1;
    }
    bench.sim().add_events(3);
    bench.settle().await;
    assert_eq!(
        (bench.counted(), bench.delivered().await.len()),
        (3, 2003),
        "killed {killed} times"
    );
    assert_eq!(bench.metrics.audit.total(Total::Gaps), 0);
    // A thousand pages down, as many up, and a few where it was killed; begun again even once it would be a thousand more.
    assert!(
        (20..80).contains(&killed) && bench.requests() < 2_400,
        "{killed} kills, {} requests",
        bench.requests()
    );
}

#[tokio::test]
async fn a_clock_of_the_service_that_jumps_loses_nothing() {
    const DAY: Duration = Duration::from_secs(86_400);
    for readings in readings() {
        let mut bench = Bench::new(
            config(50, readings),
            Wish {
                page_size: 7,
                ..Wish::default()
            },
        )
        .await;
        bench.settle().await;
        let mut added = 0;
        for jump in [
            Jump::Ahead(10 * DAY),
            Jump::Back(6 * DAY),
            Jump::Back(DAY / 48),
            Jump::Ahead(20 * DAY),
            Jump::Back(19 * DAY),
        ] {
            match jump {
                Jump::Ahead(by) => bench.sim().advance(by),
                Jump::Back(by) => bench.sim().set_clock(bench.sim().now() - by),
            }
            bench.sim().add_events(30);
            added += 30;
            bench.settle().await;
            bench.settle().await;
            assert_eq!(
                (bench.counted(), bench.delivered().await.len()),
                (added, added as usize),
                "{readings:?} {jump:?}"
            );
        }
        assert_eq!(bench.metrics.audit.total(Total::Gaps), 0, "{readings:?}");
    }
}

#[tokio::test]
async fn counters_carry_type_and_actor() {
    let mut bench = Bench::new(config(50, Readings::default()), Wish::default()).await;
    bench.settle().await;
    bench.sim().add_events(500);
    bench.settle().await;
    let records = bench
        .ledger
        .outbox_batch(usize::MAX, usize::MAX)
        .await
        .expect("readable");
    let mut truth: BTreeMap<(String, String), u64> = BTreeMap::new();
    for record in records {
        let entry: serde_json::Value = serde_json::from_str(&record.raw).expect("JSON");
        let actor = entry["actorUserId"]
            .as_i64()
            .map_or_else(|| "none".to_owned(), |id| id.to_string());
        *truth
            .entry((entry["type"].as_str().expect("a type").to_owned(), actor))
            .or_default() += 1;
    }
    let shown: BTreeMap<(String, String), u64> = bench
        .metrics
        .audit
        .events()
        .into_iter()
        .filter(|(_, value)| *value > 0)
        .map(|(labels, value)| {
            (
                (
                    labels.activity_type.to_string(),
                    labels.actor.expect("a label").to_string(),
                ),
                value,
            )
        })
        .collect();
    assert_eq!(shown, truth);
}

#[tokio::test]
async fn what_comes_during_a_first_start_that_begins_again_is_counted() {
    for restart in [false, true] {
        let directory = quick_directory();
        let wish = Wish {
            path: StatePath::File(directory.path().join("state.db")),
            start: Start::Oldest,
            ..Wish::default()
        };
        let mut bench = Bench::new(config(2000, Readings::default()), wish.clone()).await;
        for _ in 0..5 {
            bench.tail.round().await;
        }
        // More than one page, and then no cursor is good any more.
        bench.sim().add_events(300);
        let refused = bench.sim().fault(Fault::new(FaultKind::ExpiredCursor(
            StatusCode::BAD_REQUEST,
        )));
        // So many calls fail before the place is at fault.
        for _ in 0..8 {
            bench.tail.round().await;
        }
        assert!(bench.sim().remove_fault(refused));
        if restart {
            bench = bench.restarted(wish);
        }
        bench.settle().await;
        assert_eq!(
            (bench.counted(), bench.delivered().await.len()),
            (300, 2300),
            "restarted: {restart}"
        );
        assert_eq!(bench.metrics.audit.total(Total::Gaps), 0);
    }
}

#[tokio::test]
async fn a_first_start_that_begins_again_counts_nothing_of_the_past() {
    for restart in [false, true] {
        let directory = tempfile::tempdir().expect("a directory");
        let wish = Wish {
            path: StatePath::File(directory.path().join("state.db")),
            start: Start::Oldest,
            ..Wish::default()
        };
        let mut bench = Bench::new(config(2000, Readings::default()), wish.clone()).await;
        for _ in 0..5 {
            bench.tail.round().await;
        }
        // The newer top holds one new entry, and the past below it.
        bench.sim().advance(Duration::from_secs(5));
        bench.sim().add_events(1);
        let refused = bench.sim().fault(Fault::new(FaultKind::ExpiredCursor(
            StatusCode::BAD_REQUEST,
        )));
        for _ in 0..4 {
            bench.tail.round().await;
        }
        assert!(bench.sim().remove_fault(refused));
        if restart {
            bench = bench.restarted(wish);
        }
        bench.settle().await;
        assert_eq!(
            (bench.counted(), bench.delivered().await.len()),
            (1, 2001),
            "restarted: {restart}"
        );
        assert_eq!(bench.metrics.audit.total(Total::Gaps), 0);
    }
}
