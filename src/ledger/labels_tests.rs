//! However many actors and activity types there are: a bounded number of series, a bounded file, and no series that
//! jumps or falls.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use ring::hmac;
use tokio::time::Instant;

use super::ledger_tests::{DAY, World, live};
use super::*;
use crate::metrics::audit::Total;
use crate::metrics::exposition::Format;

const HOUR: Duration = Duration::from_secs(3600);

/// Series of the counter, and their values.
type Values = BTreeMap<String, u64>;

fn world(max_actors: usize) -> World {
    World::with(|settings| {
        settings.max_size = 64 << 20;
        settings.outbox = false;
        settings.max_actors = max_actors;
    })
}

// === impl World ===

impl World {
    async fn events(&mut self, at: Timestamp, entries: impl IntoIterator<Item = NewEntry>) {
        self.commit(events(at, entries)).await.unwrap();
    }

    /// A page of one event that cannot be written.
    async fn refuse(&mut self, at: Timestamp, event: NewEntry) {
        let refuse = "CREATE TRIGGER refuse BEFORE UPDATE OF tail ON state BEGIN SELECT RAISE(ABORT, 'no'); END";
        self.other().execute_batch(refuse).unwrap();
        self.commit(events(at, [event])).await.unwrap_err();
        self.other().execute_batch("DROP TRIGGER refuse").unwrap();
    }

    fn scrape(&self) -> String {
        let text = Format::Text.encode(self.metrics.registry()).unwrap();
        self.metrics.audit.scraped(Instant::now());
        text
    }

    /// Returns what follows a name in the lines of a scrape.
    fn lines(&self, name: &str) -> Vec<String> {
        let scrape = self.scrape();
        let lines = scrape.lines();
        lines
            .filter_map(|line| line.strip_prefix(name).map(str::to_owned))
            .collect()
    }

    fn series(&self) -> Values {
        let lines = self.lines("orgdata_audit_events_total").into_iter();
        let series = lines.map(|line| {
            let (labels, value) = line.rsplit_once(' ').unwrap();
            (labels.to_owned(), value.parse().unwrap())
        });
        series.collect()
    }

    fn infos(&self) -> Vec<String> {
        self.lines("orgdata_audit_actor_info")
    }

    fn query(&self, sql: &str) -> i64 {
        let value = self.other().query_row(sql, [], |row| row.get(0));
        value.unwrap()
    }
}

/// A page of these entries, which were created when it was sent unless they are older.
fn events(at: Timestamp, entries: impl IntoIterator<Item = NewEntry>) -> Commit {
    let entries = entries.into_iter().map(|entry| NewEntry {
        created_at: entry.created_at.min(at),
        ..entry
    });
    Commit {
        entries: entries.collect(),
        ..Commit::new(at)
    }
}

fn event(activity_type: impl Into<String>, actor: impl ToString) -> NewEntry {
    named(activity_type, actor, None)
}

fn named(activity_type: impl Into<String>, actor: impl ToString, name: Option<&str>) -> NewEntry {
    NewEntry {
        created_at: Timestamp::MAX,
        activity_type: Some(activity_type.into()),
        actor: Some(ActorRef {
            id: actor.to_string(),
            name: name.map(str::to_owned),
        }),
        ..live(fastrand::u64(..), "{}".to_owned())
    }
}

fn label(activity_type: &str, actor: &str) -> String {
    format!("{{activity_type=\"{activity_type}\",actor=\"{actor}\"}}")
}

/// A counter never falls.
fn assert_none_falls(before: &Values, after: &Values) {
    for (labels, value) in before {
        let now = after.get(labels);
        let falls = now.is_some_and(|now| now < value);
        assert!(!falls, "{labels} falls from {value} to {now:?}");
    }
}

#[tokio::test]
async fn beyond_the_limit_events_count_under_other_with_their_type() {
    let mut world = world(2);
    let now = Timestamp::now();
    let first = [("A", 1), ("B", 2), ("A", 3), ("B", 3), ("B", 1)];
    world
        .events(now, first.map(|(kind, actor)| event(kind, actor)))
        .await;
    let mut system = event("A", 0);
    system.actor = None;
    world.events(now, [event("A", 4), system]).await;
    let expected = [
        ("A", "1", 1),
        ("B", "1", 1),
        ("B", "2", 1),
        ("A", "other", 2),
        ("B", "other", 1),
        ("A", "none", 1),
    ];
    let expected = expected.map(|(kind, actor, count)| (label(kind, actor), count));
    assert_eq!(world.series(), expected.into());
    assert_eq!(world.total(Total::Folded), 3);
}

#[tokio::test]
async fn a_restart_moves_no_event_to_another_label() {
    let mut world = world(2);
    let now = Timestamp::now();
    world.events(now, (0..6).map(|n| event("A", n))).await;
    let before = world.series();
    world.restart();
    assert_eq!(world.series(), before);
    // An actor without a series stays without one, and one with a series keeps it.
    world.events(now, [event("A", 5), event("A", 0)]).await;
    let after = world.series();
    let other = label("A", "other");
    assert_eq!(
        (after[&other], after[&label("A", "0")]),
        (before[&other] + 1, 2)
    );

    // With fewer slots some leave; with more they are back where they were, and nothing was added to anybody else.
    for slots in [1, 0, 2] {
        world.settings.max_actors = slots;
        world.restart();
        let series = world.series();
        assert_none_falls(&after, &series);
        assert_eq!((series.len(), series[&other]), (slots + 1, after[&other]));
    }
    assert_eq!(world.series(), after);
    let counted = world.metrics.audit.counted();
    assert_eq!(counted, 8, "of which some have no series for a while");
}

#[tokio::test]
async fn with_another_kind_of_label_counters_begin_at_0_and_the_file_has_no_old_label() {
    let key = |secret: &[u8]| ActorPrivacy::Hash(hmac::Key::new(hmac::HMAC_SHA256, secret));
    let modes = [
        ActorPrivacy::Id,
        ActorPrivacy::Name,
        key(b"one secret of some length"),
        ActorPrivacy::None,
        key(b"and another one, also long"),
        ActorPrivacy::Id,
    ];
    let mut world = world(1000);
    let mut old: Vec<String> = Vec::new();
    for mode in modes {
        world.settings.actor_label = mode.clone();
        world.restart();
        assert_eq!(
            (world.series().len(), world.metrics.audit.counted()),
            (0, 0)
        );
        let files = ["state.db", "state.db-wal"].map(|name| world.directory.path().join(name));
        let bytes = files.map(|file| std::fs::read(file).unwrap()).concat();
        let text = String::from_utf8_lossy(&bytes);
        for label in old.drain(..) {
            assert!(!text.contains(&label), "{label} before {mode:?}");
        }
        for name in ["Ada", "Ada Lovelace"] {
            let page = (0..1000).map(|n| named("A", 123_456_000 + n, Some(&format!("{name} {n}"))));
            world.events(Timestamp::now(), page).await;
        }
        let series = world.series();
        let labels = series
            .keys()
            .chain(&world.infos())
            .cloned()
            .collect::<Vec<_>>();
        let values = labels.iter().flat_map(|labels| labels.split('"'));
        let values = values.filter(|value| value.len() > 6 && !value.contains('='));
        old = values.map(str::to_owned).collect();
        assert_eq!(old.is_empty(), matches!(mode, ActorPrivacy::None));
        world.restart();
        assert_eq!(world.series(), series);
        assert_eq!(world.metrics.audit.counted(), 2000);
    }
}

#[tokio::test]
async fn page_and_file_have_ids_and_names_only_as_the_label_says() {
    let secret = b"one secret of some length";
    let hash = ActorPrivacy::Hash(hmac::Key::new(hmac::HMAC_SHA256, secret));
    let texts = [
        "actor=\"",
        "actor=\"7\"",
        "actor=\"Ada L\"",
        "name=\"Ada L\"",
    ];
    for (actor_label, expected, names) in [
        (ActorPrivacy::Id, [true, true, false, true], 2),
        (ActorPrivacy::Name, [true, false, true, false], 0),
        (hash, [true, false, false, false], 0),
        (ActorPrivacy::None, [false; 4], 0),
    ] {
        let mut world = world(10);
        world.settings.actor_label = actor_label.clone();
        world.restart();
        let page = [7, 8, 7].map(|actor| named("A", actor, Some("Ada L")));
        world.events(Timestamp::now(), page).await;
        let scrape = world.scrape();
        let shown = texts.map(|text| scrape.contains(text));
        assert_eq!(shown, expected, "{actor_label:?}");
        let sql = "SELECT count(*) FROM actors WHERE name IS NOT NULL";
        assert_eq!(world.query(sql), names, "{actor_label:?}");
    }
}

#[tokio::test]
async fn a_start_with_a_lower_limit_shows_the_actors_that_were_active_last() {
    let mut world = world(75);
    let begun = Timestamp::now() - HOUR;
    world.events(begun, (0..75).map(|n| event("A", n))).await;
    let now = begun + HOUR;
    world.events(now, (25..50).map(|n| event("A", n))).await;
    world.settings.max_actors = 25;
    world.restart();
    let shown = |value| (25..50).map(move |n| (label("A", &n.to_string()), value));
    assert_eq!(world.series(), shown(2).collect());

    // They have the same labels after a page that could not be written.
    world.refuse(now, event("A", 60)).await;
    world.events(now, (0..75).map(|n| event("A", n))).await;
    let mut expected: Values = shown(3).collect();
    expected.insert(label("A", "other"), 50);
    assert_eq!(world.series(), expected);
}

#[tokio::test]
async fn history_takes_no_slot_and_has_no_series() {
    let mut world = world(10);
    let now = Timestamp::now();
    let history = (0..500).map(|actor| NewEntry {
        disposition: Disposition::Backdated,
        created_at: now - DAY,
        ..event("A", actor)
    });
    world.events(now, history).await;
    let live = (1000..1010).map(|actor| event("A", actor));
    world.events(now, live).await;
    let expected = (1000..1010).map(|actor| (label("A", &actor.to_string()), 1));
    assert_eq!(world.series(), expected.collect());
    assert_eq!(world.total(Total::Folded), 0);
}

#[tokio::test]
async fn a_flood_of_actors_costs_bounded_memory_and_disk() {
    let pages = 30;
    let mut world = world(1000);
    let begun = Timestamp::now() - HOUR * pages;
    for page in 0..pages {
        let actor = |n| named(format!("TYPE_{}", n % 7), page * 1000 + n, Some("Ada"));
        world
            .events(begun + HOUR * page, (0..1000).map(actor))
            .await;
        world.restart();
    }
    let (audit, folded) = (&world.metrics.audit, u64::from(pages - 1) * 1000);
    let expected = (folded + 1000, folded, 1000);
    let counted = (audit.counted(), audit.total(Total::Folded));
    assert_eq!((counted.0, counted.1, audit.names().len()), expected);
    for (table, rows) in [("actors", 1000), ("events", 1007)] {
        let sql = format!("SELECT count(*) FROM {table}");
        assert_eq!(world.query(&sql), rows, "{table}");
    }
    let bytes = world.path().metadata().unwrap().len();
    assert!(bytes < 4 << 20, "{bytes} bytes");
}

#[tokio::test]
async fn activity_types_are_bounded_also_over_restarts() {
    let mut world = world(3);
    let types = |series: &Values| {
        let types = series.keys().map(|labels| labels.split('"').nth(1));
        types.collect::<BTreeSet<_>>().len()
    };
    for round in 0..3 {
        let before = world.series();
        let page = (0..1500).map(|n| event(format!("TYPE_{round}_{n}"), 1));
        world.events(Timestamp::now(), page).await;
        let after = world.series();
        assert_none_falls(&before, &after);
        let sum = after.values().sum::<u64>();
        assert_eq!((types(&after), sum), (1001, 1500 * (round + 1)));
        world.restart();
        assert_eq!(world.series(), after);
    }
    assert_eq!(world.series()[&label("other", "1")], 3500);
}

#[tokio::test]
async fn a_renamed_actor_has_one_name_at_a_time() {
    let mut world = world(10);
    let now = Timestamp::now();
    let called = |actor, name| named("A", actor, Some(name));
    let first = [called(1, "Ada Byron"), called(2, "Bob")];
    world.events(now, first).await;
    let second = [called(1, "Ada Byron"), called(1, "Ada Lovelace")];
    world.events(now, second).await;
    let expected = [
        "{actor=\"1\",name=\"Ada Lovelace\"} 1",
        "{actor=\"2\",name=\"Bob\"} 1",
    ];
    assert_eq!(world.infos(), expected);
    // A late row is from before the renaming; an entry without a name takes none away.
    let late = NewEntry {
        disposition: Disposition::Late,
        created_at: now - HOUR,
        ..called(1, "Ada Byron")
    };
    world.events(now, [late, event("A", 2)]).await;
    assert_eq!(world.infos(), expected);
    world.restart();
    assert_eq!(world.infos(), expected);
}

#[tokio::test]
async fn names_and_types_of_any_length_are_cut_on_the_page_and_in_the_file() {
    let mut world = world(10);
    let long = "ü\"\\\n".repeat(25_000);
    let odd = named(long.clone(), &long, Some(&long));
    world.events(Timestamp::now(), [odd, event("", "")]).await;
    let series = world.series();
    let cut = format!("{}ü\\\"\\\\…", "ü\\\"\\\\ ".repeat(MAX_LABEL / 4 - 1));
    assert_eq!(series[&label(&cut, &cut)], 1);
    assert_eq!(series[&label("unknown", "unknown")], 1);
    let info = format!("{{actor=\"{cut}\",name=\"{cut}\"}} 1");
    assert_eq!(world.infos(), [info]);
    let sql = "SELECT max(max(length(actor), length(name))) FROM actors";
    assert_eq!(world.query(sql), MAX_LABEL as i64);
    world.restart();
    assert_eq!(world.series(), series);
}

#[tokio::test]
async fn a_text_of_control_characters_is_no_empty_label() {
    let blank = "\u{1b}\n \0";
    let mut world = world(10);
    world.settings.actor_label = ActorPrivacy::Name;
    world.restart();
    let page = ["7", blank].map(|actor| named(blank, actor, Some(blank)));
    world.events(Timestamp::now(), page).await;
    let expected = ["7", "unknown"].map(|actor| (label("unknown", actor), 1));
    assert_eq!(world.series(), expected.into());
}
