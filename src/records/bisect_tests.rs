//! Delivery against simulated collectors: a request is one step.

use std::collections::BTreeMap;
use std::ops::Range;

use otlp_logs::Rejection;
use proptest::prelude::*;

use super::*;

/// Nothing here needs as many.
const MAX_REQUESTS: usize = 100_000;

/// A collector, and the outbox that is delivered to it.
#[derive(Clone, Debug)]
struct World {
    outbox: Vec<usize>,
    /// Records that it never accepts.
    bad: BTreeMap<usize, Reason>,
    /// The number of records that is too much for it.
    most: usize,
    /// The requests of which it accepts none.
    down: Option<(Range<usize>, Reason)>,
    /// Also those for which there was no record.
    requests: usize,
    /// The request in which a record was first rejected alone, and the last one that was accepted.
    rejected_at: BTreeMap<usize, usize>,
    /// When, and how often since.
    rejections: BTreeMap<usize, (Instant, u32)>,
    now: Instant,
    accepted_at: Option<usize>,
    delivered: Vec<usize>,
    dead: Vec<usize>,
}

impl World {
    fn new(records: usize, bad: impl IntoIterator<Item = (usize, Reason)>) -> Self {
        Self {
            outbox: (0..records).collect(),
            bad: bad.into_iter().collect(),
            most: usize::MAX,
            down: None,
            requests: 0,
            rejected_at: BTreeMap::new(),
            rejections: BTreeMap::new(),
            now: Instant::now(),
            accepted_at: None,
            delivered: Vec::new(),
            dead: Vec::new(),
        }
    }

    fn answer(&self, sent: &[usize]) -> Verdict {
        let down = self.down.as_ref();
        let down = down.filter(|(requests, _)| requests.contains(&self.requests));
        let down = down.map(|(_, reason)| *reason);
        let size = (sent.len() > self.most).then_some(Reason::TooLarge);
        let bad = sent.iter().find_map(|record| self.bad.get(record).copied());
        match down.or(size).or(bad) {
            Some(reason) => Verdict::Rejected(Rejection::new(reason, "no")),
            None => Verdict::Accepted,
        }
    }

    /// Sends one request, or finds no record for it.
    fn step(&mut self, bisect: &mut Bisect) {
        self.requests += 1;
        assert!(self.requests < MAX_REQUESTS, "it does not end");
        let (skip, records) = bisect.next();
        let records = self.outbox.iter().skip(skip).take(records);
        let sent: Vec<usize> = records.copied().collect();
        if sent.is_empty() {
            return bisect.no_witness();
        }
        let verdict = self.answer(&sent);
        let (fate, pause) = bisect.answered(sent.len(), &verdict, self.now);
        if sent.len() == 1 && verdict.reason().is_some_and(Reason::is_about_records) {
            self.rejected_at.entry(sent[0]).or_insert(self.requests);
            self.rejections.entry(sent[0]).or_insert((self.now, 0)).1 += 1;
        }
        let is_overload = verdict.reason() == Some(Reason::ServerError);
        self.now += match pause {
            Pause::None => Duration::ZERO,
            Pause::For(pause) => pause,
            Pause::Backoff => Duration::from_secs(1),
        };
        match fate {
            Fate::Kept => return,
            Fate::Delivered => {
                self.accepted_at = Some(self.requests);
                self.delivered.extend(&sent);
            }
            Fate::DeadLetters => {
                assert_eq!(sent.len(), 1);
                let rejected_at = self.rejected_at[&sent[0]];
                assert!(self.accepted_at > Some(rejected_at), "{sent:?}");
                let (since, times) = self.rejections[&sent[0]];
                let is_sure = times >= 3 && self.now - since >= Duration::from_secs(120);
                assert!(is_sure || !is_overload, "{sent:?}");
                self.dead.extend(&sent);
            }
        }
        self.outbox.drain(skip..skip + sent.len());
    }

    /// Runs until nothing is left, for at most so many steps. Returns whether all is done.
    fn run(&mut self, bisect: &mut Bisect, steps: usize) -> bool {
        for _ in 0..steps {
            if self.outbox.is_empty() {
                break;
            }
            self.step(bisect);
        }
        self.outbox.is_empty()
    }
}

fn about_records() -> impl Strategy<Value = Reason> {
    prop_oneof![
        Just(Reason::BadRecord),
        Just(Reason::ServerError),
        Just(Reason::TooLarge)
    ]
}

fn down() -> impl Strategy<Value = Option<(Range<usize>, Reason)>> {
    let passing = prop_oneof![
        Just(Reason::Unavailable),
        Just(Reason::Timeout),
        Just(Reason::RateLimited),
    ];
    let reason = prop_oneof![about_records(), passing];
    let down = (0..60_usize, 1..200_usize, reason);
    proptest::option::of(down.prop_map(|(begin, length, reason)| (begin..begin + length, reason)))
}

/// Bad records: some anywhere, or the oldest ones.
fn bad(records: usize) -> impl Strategy<Value = Vec<(usize, Reason)>> {
    let record = (0..records, about_records());
    prop_oneof![
        proptest::collection::vec(record, 0..records.min(30)),
        (0..records, about_records())
            .prop_map(|(count, reason)| (0..count).map(|record| (record, reason)).collect()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn a_good_record_arrives_once_and_only_a_bad_one_is_a_dead_letter(
        (records, bad) in (1..200_usize).prop_flat_map(|records| (Just(records), bad(records))),
        max in 1..70_usize,
        most in prop_oneof![Just(usize::MAX), 1..40_usize],
        down in down(),
    ) {
        let mut world = World { most, down, ..World::new(records, bad) };
        let mut bisect = Bisect::new(max);
        let good = (0..records).filter(|record| !world.bad.contains_key(record));
        let good: Vec<usize> = good.collect();
        // A bad one stops a good one for no more than its search.
        world.run(&mut bisect, 2000 + 100 * records);
        world.delivered.sort_unstable();
        prop_assert_eq!(&world.delivered, &good);
        prop_assert!(world.dead.iter().all(|record| world.bad.contains_key(record)), "{:?}", world.dead);
        // What could not be compared becomes a dead letter when there are newer records.
        world.outbox.extend(records..records + 12 * world.bad.len() + 5);
        prop_assert!(world.run(&mut bisect, 2000 + 100 * records), "{:?} wait", world.outbox.len());
        world.dead.sort_unstable();
        prop_assert!(world.dead.iter().eq(world.bad.keys()), "{:?}", world.dead);
    }
}

/// Loki rejects what is too old, and then what is much older than the newest record that it has.
#[test]
fn records_that_are_too_old_take_few_others_with_them() {
    let (window, mut bisect) = (20, Bisect::new(100));
    let mut world = World::new(1000, (0..100).map(|record| (record, Reason::BadRecord)));
    while !world.outbox.is_empty() {
        world.step(&mut bisect);
        let newest = world.delivered.iter().max().copied().unwrap_or_default();
        let old = 0..newest.saturating_sub(window);
        let old = old.map(|record| (record, Reason::BadRecord));
        world.bad.extend(old);
    }
    assert!(world.dead.len() <= 150, "{}", world.dead.len());
    assert!(world.requests < 1000, "{}", world.requests);
}

/// A backend that takes a week, and a first start with the history of a month.
#[test]
fn a_few_good_records_behind_many_bad_ones_are_found_soon() {
    let bad = (0..1000).map(|record| (record, Reason::BadRecord));
    let (mut world, mut bisect) = (World::new(1010, bad), Bisect::new(512));
    while world.delivered.is_empty() {
        world.step(&mut bisect);
    }
    assert!(world.requests < 600, "{}", world.requests);
    assert!(world.dead.is_empty());
}

#[test]
fn a_size_that_is_too_much_is_seldom_tried_again() {
    for reason in [Reason::TooLarge, Reason::Timeout] {
        let (mut world, mut bisect) = (World::new(20_000, []), Bisect::new(512));
        let mut too_much = 0;
        while !world.outbox.is_empty() {
            let is_large = bisect.next().1 > 200;
            too_much += usize::from(is_large);
            world.down = is_large.then_some((0..usize::MAX, reason));
            world.step(&mut bisect);
        }
        assert!(too_much <= 3, "{too_much}");
        assert!(world.requests <= 20_000 / 128 + 20, "{}", world.requests);
        assert!(world.delivered.is_sorted());
    }
}

/// It says nothing about sizes.
#[test]
fn a_collector_that_was_silent_for_long_soon_gets_full_requests_again() {
    let (mut world, mut bisect) = (World::new(5000, []), Bisect::new(512));
    world.down = Some((0..20, Reason::Timeout));
    assert!(world.run(&mut bisect, 20 + 30));
}

#[test]
fn a_batch_of_bad_records_costs_one_search_and_three_requests_each() {
    let bad = (0..50).map(|record| (record, Reason::BadRecord));
    let (mut world, mut bisect) = (World::new(200, bad), Bisect::new(1));
    while world.dead.len() < 50 {
        world.step(&mut bisect);
    }
    // The search has doubled its distance up to 64. Each record behind that is a witness once.
    let witnesses = world.delivered.iter().copied();
    assert!(witnesses.eq(64..114), "{:?}", world.delivered);
    assert_eq!(world.requests, 6 + 3 * 50);
}

#[test]
fn only_a_second_partial_success_in_a_row_delays_the_next_request() {
    let partly = Verdict::PartlyRejected {
        rejected: 1,
        message: String::new(),
    };
    let mut bisect = Bisect::new(8);
    for _ in 0..2 {
        assert!(!bisect.is_partly_rejected());
        let now = Instant::now();
        let first = bisect.answered(8, &partly, now);
        assert_eq!(first, (Fate::DeadLetters, Pause::None));
        assert!(bisect.is_partly_rejected());
        assert_eq!(bisect.next(), (0, 4));
        let second = bisect.answered(4, &partly, now);
        assert_eq!(second, (Fate::DeadLetters, Pause::Backoff));
        let accepted = bisect.answered(2, &Verdict::Accepted, now);
        assert_eq!(accepted, (Fate::Delivered, Pause::None));
    }
}

#[test]
fn the_third_internal_error_after_two_minutes_makes_a_dead_letter() {
    let error = Verdict::Rejected(Rejection::new(Reason::ServerError, "no"));
    let begun = Instant::now();
    for (seconds, expected) in [(119, Fate::Kept), (120, Fate::DeadLetters)] {
        let mut bisect = Bisect::new(1);
        for pause in [Pause::None, Pause::For(Duration::from_secs(1))] {
            assert_eq!(bisect.answered(1, &error, begun), (Fate::Kept, pause));
            bisect.answered(1, &Verdict::Accepted, begun);
        }
        let now = begun + Duration::from_secs(seconds);
        assert_eq!(bisect.answered(1, &error, now).0, expected);
    }
}

/// As when an operator deletes the suspect, or sends a dead letter again.
#[test]
fn another_oldest_record_is_no_suspect() {
    let mut bisect = Bisect::new(1);
    let bad = Verdict::Rejected(Rejection::new(Reason::BadRecord, "no"));
    bisect.answered(1, &bad, Instant::now());
    assert_eq!(bisect.next(), (1, 1));
    bisect.oldest_changed();
    assert_eq!(bisect.next(), (0, 1));
}
