//! However many actors and activity types there are: a bounded number of series, a bounded file, and no series that
//! jumps or falls.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use orgdata_exporter::audit::{publish, restore};
use orgdata_exporter::ledger::{
    ActorLabel, ActorRef, Commit, Disposition, EventId, LedgerHandle, MAX_LABEL, NewEntry,
    NewEvent, STRIDE, Settings, StatePath,
};
use orgdata_exporter::metrics::Metrics;
use orgdata_exporter::metrics::audit::Total;
use orgdata_exporter::metrics::exposition::Format;
use ring::hmac;
use tempfile::TempDir;
use tokio::time::Instant;

use crate::support::settings;

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

/// Series of the counter, and their values.
type Series = BTreeMap<String, u64>;

/// A state file and the process that has it open.
struct World {
    directory: TempDir,
    settings: Settings,
    metrics: Metrics,
    ledger: Option<LedgerHandle>,
    entries: u64,
    pages: i64,
}

// === impl World ===

impl World {
    fn new(max_actors: usize) -> Self {
        Self::with(max_actors, Duration::ZERO)
    }

    fn with(max_actors: usize, zero_hold: Duration) -> Self {
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let directory = directory.expect("a directory");
        let path = StatePath::File(directory.path().join("state.db"));
        let settings = Settings {
            max_size: 64 << 20,
            outbox: false,
            max_actors,
            reread_window: Duration::from_secs(1),
            ..settings::ledger(path, "https://api.example")
        };
        let mut world = Self {
            directory,
            settings,
            metrics: Metrics::new(zero_hold),
            ledger: None,
            entries: 0,
            pages: 0,
        };
        world.restart(zero_hold);
        world
    }

    /// Another process opens the file.
    fn restart(&mut self, zero_hold: Duration) {
        self.ledger = None;
        self.metrics = Metrics::new(zero_hold);
        let (ledger, state) = LedgerHandle::open(self.settings.clone()).expect("opens");
        restore(&self.metrics, state.counted);
        self.metrics.audit.restore_counted(state.events);
        self.ledger = Some(ledger);
    }

    fn labelled(&mut self, label: ActorLabel) -> Series {
        self.settings.actor_label = label;
        self.restart(Duration::ZERO);
        self.series()
    }

    fn page(&mut self, at: Timestamp, events: impl IntoIterator<Item = Event>) -> Commit {
        let mut commit = Commit::new(at);
        self.pages += 1;
        (commit.place, commit.top) = (self.pages * STRIDE, true);
        for event in events {
            self.entries += 1;
            commit.entries.push(NewEntry {
                id: EventId(self.entries.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
                created_at: event.created_at.unwrap_or(at),
                disposition: event.disposition,
                event: Ok(NewEvent {
                    activity_type: event.activity_type,
                    actor: event.actor,
                    malformed: false,
                }),
                raw: "{}".to_owned(),
            });
        }
        commit
    }

    async fn commit(&mut self, at: Timestamp, events: impl IntoIterator<Item = Event>) {
        let commit = self.page(at, events);
        let ledger = self.ledger.as_ref().expect("open");
        publish(&self.metrics, ledger.commit(commit).await.expect("written"));
    }

    fn scrape(&self) -> String {
        let registry = self.metrics.registry();
        let text = Format::Text.encode(registry, 0).expect("encodes");
        self.metrics.audit.scraped(Instant::now());
        text
    }

    fn series(&self) -> Series {
        let scrape = self.scrape();
        let lines = scrape
            .lines()
            .filter_map(|line| line.strip_prefix("orgdata_audit_events_total"));
        lines
            .map(|line| line.rsplit_once(' ').expect("a value"))
            .map(|(labels, value)| (labels.to_owned(), value.parse().expect("a count")))
            .collect()
    }

    fn infos(&self) -> Vec<String> {
        let scrape = self.scrape();
        let lines = scrape.lines();
        lines
            .filter_map(|line| line.strip_prefix("orgdata_audit_actor_info"))
            .map(str::to_owned)
            .collect()
    }

    fn query(&self, sql: &str) -> i64 {
        let path: &Path = self.directory.path();
        rusqlite::Connection::open(path.join("state.db"))
            .and_then(|file| file.query_row(sql, [], |row| row.get(0)))
            .expect("a row")
    }
}

/// An event of somebody.
struct Event {
    activity_type: String,
    actor: Option<ActorRef>,
    disposition: Disposition,
    created_at: Option<Timestamp>,
}

fn event(activity_type: impl Into<String>, actor: impl ToString) -> Event {
    named(activity_type, actor, None)
}

fn named(activity_type: impl Into<String>, actor: impl ToString, name: Option<&str>) -> Event {
    let actor = ActorRef {
        id: actor.to_string(),
        name: name.map(str::to_owned),
    };
    Event {
        activity_type: activity_type.into(),
        actor: Some(actor),
        disposition: Disposition::Live,
        created_at: None,
    }
}

fn label(activity_type: &str, actor: &str) -> String {
    format!("{{activity_type=\"{activity_type}\",actor=\"{actor}\"}}")
}

/// A counter never falls.
fn assert_none_falls(before: &Series, after: &Series) {
    for (labels, value) in before {
        assert!(
            after.get(labels).is_none_or(|now| now >= value),
            "{labels} falls from {value} to {:?}",
            after.get(labels)
        );
    }
}

#[tokio::test]
async fn beyond_the_limit_events_count_under_other_with_their_type() {
    let mut world = World::new(2);
    let now = Timestamp::now();
    world
        .commit(
            now,
            [
                event("A", 1),
                event("B", 2),
                event("A", 3),
                event("B", 3),
                event("B", 1),
            ],
        )
        .await;
    let system = Event {
        actor: None,
        ..event("A", 0)
    };
    world.commit(now, [event("A", 4), system]).await;
    let expected = [
        ("A", "1", 1),
        ("B", "1", 1),
        ("B", "2", 1),
        ("A", "other", 2),
        ("B", "other", 1),
        ("A", "none", 1),
    ];
    assert_eq!(
        world.series(),
        expected
            .map(|(kind, actor, count)| (label(kind, actor), count))
            .into()
    );
    assert_eq!(world.metrics.audit.total(Total::Folded), 3);
}

#[tokio::test]
async fn a_restart_moves_no_event_to_another_label() {
    let mut world = World::new(2);
    let now = Timestamp::now();
    world.commit(now, (0..6).map(|n| event("A", n))).await;
    let before = world.series();
    world.restart(Duration::ZERO);
    assert_eq!(world.series(), before);
    // An actor without a series stays without one, and one with a series keeps it.
    world.commit(now, [event("A", 5), event("A", 0)]).await;
    let after = world.series();
    assert_eq!(
        (after[&label("A", "other")], after[&label("A", "0")]),
        (before[&label("A", "other")] + 1, 2)
    );

    // With fewer slots some leave; with more they are back where they were, and nothing was added to anybody else.
    for slots in [1, 0, 2] {
        world.settings.max_actors = slots;
        world.restart(Duration::ZERO);
        assert_none_falls(&after, &world.series());
        assert_eq!(world.series().len(), slots + 1);
        assert_eq!(
            world.series()[&label("A", "other")],
            after[&label("A", "other")]
        );
    }
    assert_eq!(world.series(), after);
    assert_eq!(
        world.metrics.audit.counted(),
        8,
        "of which some have no series for a while"
    );
}

#[tokio::test]
async fn values_counted_under_one_kind_of_label_are_never_shown_under_another() {
    let key = |secret: &[u8]| ActorLabel::Hash(hmac::Key::new(hmac::HMAC_SHA256, secret));
    let modes = [
        ActorLabel::Id,
        ActorLabel::Name,
        key(b"one secret of some length"),
        ActorLabel::None,
        key(b"and another one, also long"),
    ];
    let mut world = World::new(10);
    let now = Timestamp::now();
    let mut known: Vec<Series> = vec![Series::new(); modes.len()];
    for round in 1..=3 {
        for (index, mode) in modes.iter().enumerate() {
            // Where it left off, whatever was counted meanwhile under other labels.
            let shown = world.labelled(mode.clone());
            assert_eq!(shown, known[index], "{mode:?}");
            let page = [
                named("A", 7, Some("Ada L")),
                named("A", 7, Some("Ada L")),
                event("B", 8),
                event("B", 8),
            ];
            world.commit(now, page).await;
            known[index] = world.series();
            assert_none_falls(&shown, &known[index]);
            assert_eq!(known[index].values().sum::<u64>(), 4 * round);
            let text = world.scrape();
            let (id, name) = (text.contains("actor=\"7\""), text.contains("Ada L"));
            match mode {
                ActorLabel::Id => {
                    assert!(id && name && world.infos() == ["{actor=\"7\",name=\"Ada L\"} 1"])
                }
                ActorLabel::Name => assert!(
                    !id && known[index].contains_key(&label("A", "Ada L"))
                        && world.infos().is_empty()
                ),
                ActorLabel::Hash(_) => {
                    assert!(!id && !name && text.contains("actor=\"") && world.infos().is_empty())
                }
                ActorLabel::None => {
                    assert!(!id && !name && known[index].contains_key("{activity_type=\"A\"}"))
                }
            }
        }
    }
    assert_eq!(world.metrics.audit.counted(), 4 * 3 * 5);
    assert!(
        known[2].keys().all(|labels| !known[4].contains_key(labels)),
        "two keys, two sets of labels"
    );
}

#[tokio::test(start_paused = true)]
async fn an_idle_actor_leaves_and_comes_back_with_its_value_first() {
    let mut world = World::with(2, Duration::from_secs(60));
    let begun = Timestamp::now() - 40 * DAY;
    world
        .commit(
            begun,
            [event("A", 1), event("A", 1), event("B", 1), event("A", 2)],
        )
        .await;
    world.series();
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(world.series().values().sum::<u64>(), 4);
    world.commit(begun + 20 * DAY, [event("A", 2)]).await;

    // The slot is free for whoever comes first, in the same page.
    world.commit(begun + 31 * DAY, [event("A", 3)]).await;
    assert_eq!(
        world.series().into_iter().collect::<Vec<_>>(),
        [(label("A", "2"), 2), (label("A", "3"), 0)]
    );
    assert_eq!(world.metrics.audit.total(Total::Folded), 0);
    assert_eq!(
        world.metrics.audit.counted(),
        6,
        "no event is gone with its series"
    );

    // It comes back when there is a slot, and the first scrape shows where it was.
    world.settings.max_actors = 3;
    world.restart(Duration::from_secs(60));
    world.series();
    tokio::time::advance(Duration::from_secs(60)).await;
    world.commit(begun + 40 * DAY, [event("A", 1)]).await;
    assert_eq!(world.series()[&label("A", "1")], 2);
    assert_eq!(world.series()[&label("B", "1")], 1);
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(world.series()[&label("A", "1")], 3);
    assert_eq!(world.metrics.audit.counted(), 7);
}

#[tokio::test]
async fn a_page_that_cannot_be_written_changes_no_slot() {
    let mut world = World::new(1);
    let begun = Timestamp::now() - 31 * DAY;
    world.commit(begun, [event("A", 1)]).await;
    let before = world.series();
    let ledger = world.ledger.clone().expect("open");
    ledger.pretend_full(true).await.expect("set");
    let events = (0..2_000).map(|number| event(number.to_string(), 2));
    let commit = world.page(begun + 31 * DAY, events);
    ledger.commit(commit).await.expect_err("it is full");
    ledger.pretend_full(false).await.expect("set");
    assert_eq!(world.series(), before);
    world
        .commit(begun + 30 * DAY, [event("A", 1), event("A", 3)])
        .await;
    assert_eq!(
        world.series(),
        [(label("A", "1"), 2), (label("A", "other"), 1)].into()
    );
}

#[tokio::test]
async fn history_takes_no_slot_and_has_no_series() {
    let mut world = World::new(10);
    let now = Timestamp::now();
    let history = (0..500).map(|actor| Event {
        disposition: Disposition::History,
        created_at: Some(now - DAY),
        ..event("A", actor)
    });
    world.commit(now, history).await;
    world
        .commit(now, (1000..1010).map(|actor| event("A", actor)))
        .await;
    let expected = (1000..1010).map(|actor| (label("A", &actor.to_string()), 1));
    assert_eq!(world.series(), expected.collect());
    assert_eq!(world.metrics.audit.total(Total::Folded), 0);
}

/// `ORGDATA_FLOOD` sets the thousands of actors; a million take a release build some ten seconds.
#[tokio::test]
async fn a_flood_of_actors_costs_bounded_memory_and_disk() {
    let pages: u32 = std::env::var("ORGDATA_FLOOD")
        .ok()
        .and_then(|pages| pages.parse().ok())
        .unwrap_or(30);
    let mut world = World::new(1000);
    // So short that every page frees all slots: the worst there is.
    world.settings.actor_idle = Duration::from_secs(60);
    world.restart(Duration::ZERO);
    let begun = Timestamp::now() - HOUR * pages;
    for page in 0..pages {
        world
            .commit(
                begun + HOUR * page,
                (0..1000)
                    .map(|n| named(format!("TYPE_{}", n % 7), page * 1000 + n, Some("Somebody"))),
            )
            .await;
        assert!(
            world.metrics.audit.events().len() <= 1000 && world.metrics.audit.names().len() <= 1000
        );
    }
    let count = |table: &str| world.query(&format!("SELECT count(*) FROM {table}"));
    assert!(count("actors") <= 10_000 && count("events") <= 10_000);
    let bytes = std::fs::metadata(world.directory.path().join("state.db"));
    let bytes = bytes.expect("a file").len();
    assert!(bytes < 4 << 20, "{bytes} bytes");
    assert_eq!(world.metrics.audit.counted(), u64::from(pages) * 1000);

    world.restart(Duration::ZERO);
    // An actor who was active an hour ago is still remembered.
    world
        .commit(begun + HOUR * pages, [event("TYPE_0", (pages - 2) * 1000)])
        .await;
    assert_eq!(
        world.series()[&label("TYPE_0", &((pages - 2) * 1000).to_string())],
        2
    );
}

#[tokio::test]
async fn activity_types_are_bounded_also_over_restarts() {
    let mut world = World::new(3);
    let now = Timestamp::now();
    let types = |series: &Series| {
        series
            .keys()
            .map(|labels| labels.split('"').nth(1).expect("a type").to_owned())
            .collect::<BTreeSet<_>>()
            .len()
    };
    let mut sum = 0;
    for round in 0..3_u32 {
        let before = world.series();
        world
            .commit(
                now,
                (0..1500).map(|n| event(format!("TYPE_{round}_{n}"), 1)),
            )
            .await;
        sum += 1500;
        let after = world.series();
        assert_none_falls(&before, &after);
        assert_eq!((types(&after), after.values().sum::<u64>()), (1001, sum));
        world.restart(Duration::ZERO);
        assert_eq!(world.series(), after);
    }
    assert_eq!(world.series()[&label("other", "1")], 3500);
}

#[tokio::test]
async fn a_renamed_actor_has_one_name_at_a_time() {
    let mut world = World::new(10);
    let now = Timestamp::now();
    world
        .commit(
            now,
            [named("A", 1, Some("Ada Byron")), named("A", 2, Some("Bob"))],
        )
        .await;
    world
        .commit(
            now,
            [
                named("A", 1, Some("Ada Byron")),
                named("A", 1, Some("Ada Lovelace")),
            ],
        )
        .await;
    let expected = [
        "{actor=\"1\",name=\"Ada Lovelace\"} 1",
        "{actor=\"2\",name=\"Bob\"} 1",
    ];
    assert_eq!(world.infos(), expected);
    // A late row is from before the renaming; an entry without a name takes none away.
    let late = Event {
        disposition: Disposition::Late,
        created_at: Some(now - HOUR),
        ..named("A", 1, Some("Ada Byron"))
    };
    world.commit(now, [late, event("A", 2)]).await;
    assert_eq!(world.infos(), expected);
    world.restart(Duration::ZERO);
    assert_eq!(world.infos(), expected);
}

#[tokio::test]
async fn names_and_types_of_any_length_are_cut_on_the_page_and_in_the_file() {
    let mut world = World::new(10);
    let long = "ü\"\\\n".repeat(25_000);
    let odd = Event {
        actor: Some(ActorRef {
            id: long.clone(),
            name: Some(long.clone()),
        }),
        ..event(long.clone(), 0)
    };
    let empty = Event {
        actor: Some(ActorRef {
            id: String::new(),
            name: None,
        }),
        ..event("", 0)
    };
    world.commit(Timestamp::now(), [odd, empty]).await;
    let series = world.series();
    let cut = format!("{}…", "ü\\\"\\\\\\n".repeat(MAX_LABEL / 4));
    assert_eq!(series[&label(&cut, &cut)], 1);
    assert_eq!(series[&label("unknown", "")], 1);
    assert_eq!(
        world.infos(),
        [format!("{{actor=\"{cut}\",name=\"{cut}\"}} 1")]
    );
    assert!(
        world.query("SELECT max(length(actor) + length(coalesce(name, ''))) FROM actors") < 1000
    );
    world.restart(Duration::ZERO);
    assert_eq!(world.series(), series);
}
