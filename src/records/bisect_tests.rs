//! Delivery against simulated collectors, without time: a request is one step.

use std::collections::BTreeMap;

use otlp_logs::Rejection;
use proptest::prelude::*;

use super::*;

/// Nothing here needs as many.
const MAX_STEPS: usize = 100_000;

/// A collector, and the outbox that is delivered to it.
#[derive(Clone, Debug)]
struct World {
    outbox: Vec<usize>,
    /// Records that it never accepts.
    bad: BTreeMap<usize, Reason>,
    /// The number of records that is too much for it.
    most: usize,
    trouble: Trouble,
    steps: usize,
    requests: usize,
    /// The request in which a record was first rejected alone, and the last one that was accepted.
    rejected_at: BTreeMap<usize, usize>,
    accepted_at: Option<usize>,
    delivered: Vec<usize>,
    dead: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
enum Trouble {
    None,
    /// It rejects everything for so many requests.
    Down(usize, usize, Reason),
}

impl World {
    fn new(records: usize, bad: impl IntoIterator<Item = (usize, Reason)>) -> Self {
        Self {
            outbox: (0..records).collect(),
            bad: bad.into_iter().collect(),
            most: usize::MAX,
            trouble: Trouble::None,
            steps: 0,
            requests: 0,
            rejected_at: BTreeMap::new(),
            accepted_at: None,
            delivered: Vec::new(),
            dead: Vec::new(),
        }
    }

    fn answer(&self, sent: &[usize]) -> Verdict {
        let trouble = match self.trouble {
            Trouble::Down(begin, length, reason) => {
                let is_down = (begin..begin + length).contains(&self.requests);
                is_down.then_some(reason)
            }
            Trouble::None => None,
        };
        let size = (sent.len() > self.most).then_some(Reason::TooLarge);
        let bad = sent.iter().find_map(|record| self.bad.get(record).copied());
        match trouble.or(size).or(bad) {
            Some(reason) => Verdict::Rejected(Rejection::new(reason, "no")),
            None => Verdict::Accepted,
        }
    }

    /// Sends one request. Returns whether anything is left to do at once.
    fn step(&mut self, bisect: &mut Bisect) -> bool {
        self.steps += 1;
        assert!(self.steps < MAX_STEPS, "it does not end");
        let (skip, records) = bisect.next();
        let records = self.outbox.iter().skip(skip).take(records);
        let sent: Vec<usize> = records.copied().collect();
        if sent.is_empty() {
            if skip > 0 {
                bisect.no_witness();
            }
            return false;
        }
        let verdict = self.answer(&sent);
        self.requests += 1;
        let (fate, waits) = bisect.answered(sent.len(), &verdict);
        match fate {
            Fate::Kept => {
                if sent.len() == 1 && verdict.reason().is_some_and(Reason::is_about_records) {
                    self.rejected_at.entry(sent[0]).or_insert(self.requests);
                }
                return !waits;
            }
            Fate::Delivered => {
                self.accepted_at = Some(self.requests);
                self.delivered.extend(&sent);
            }
            Fate::DeadLetters => {
                assert_eq!(sent.len(), 1);
                let rejected_at = self.rejected_at[&sent[0]];
                assert!(self.accepted_at > Some(rejected_at), "{sent:?}");
                self.dead.extend(&sent);
            }
        }
        self.outbox.drain(skip..skip + sent.len());
        true
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

fn trouble() -> impl Strategy<Value = Trouble> {
    let passing = prop_oneof![
        Just(Reason::Unavailable),
        Just(Reason::Timeout),
        Just(Reason::RateLimited),
    ];
    let reason = prop_oneof![about_records(), passing];
    prop_oneof![
        Just(Trouble::None),
        (0..60_usize, 1..200_usize, reason).prop_map(|(a, b, c)| Trouble::Down(a, b, c)),
    ]
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
        trouble in trouble(),
    ) {
        let mut world = World { most, trouble, ..World::new(records, bad.clone()) };
        let mut bisect = Bisect::new(max);
        let good = world.bad.len();
        let good: Vec<usize> = (0..records).filter(|record| !world.bad.contains_key(record)).take(records - good).collect();
        // A bad one stops a good one for no more than its search.
        world.run(&mut bisect, 2000 + 100 * records);
        let mut delivered = world.delivered.clone();
        delivered.sort_unstable();
        prop_assert_eq!(&delivered, &good);
        prop_assert!(world.dead.iter().all(|record| world.bad.contains_key(record)), "{:?}", world.dead);
        // What could not be compared becomes a dead letter when there are newer records.
        world.outbox.extend(records..records + 3 * world.bad.len() + 5);
        prop_assert!(world.run(&mut bisect, 2000 + 100 * records), "{:?} wait", world.outbox.len());
        world.dead.sort_unstable();
        prop_assert!(world.dead.iter().eq(world.bad.keys()), "{:?}", world.dead);
    }

    #[test]
    fn a_collector_that_rejects_everything_makes_no_dead_letter(
        records in 1..300_usize,
        max in 1..70_usize,
        reason in about_records(),
        steps in 1..2000_usize,
    ) {
        let mut world = World::new(records, []);
        world.trouble = Trouble::Down(0, usize::MAX, reason);
        let mut bisect = Bisect::new(max);
        world.run(&mut bisect, steps);
        prop_assert!(world.dead.is_empty());
        world.trouble = Trouble::None;
        prop_assert!(world.run(&mut bisect, 1000));
        prop_assert!(world.dead.is_empty());
    }
}

#[test]
fn one_bad_record_costs_few_requests() {
    for reason in [Reason::BadRecord, Reason::ServerError, Reason::TooLarge] {
        for position in [0, 1, 255, 300, 510, 511, 1000] {
            let mut world = World::new(1024, [(position, reason)]);
            assert!(world.run(&mut Bisect::new(512), 1000));
            assert_eq!(world.dead, [position]);
            let requests = world.requests;
            assert!(requests <= 40, "{reason:?} {position}: {requests}");
        }
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
    for good in [10, 50, 500] {
        let bad = (0..1000).map(|record| (record, Reason::BadRecord));
        let (mut world, mut bisect) = (World::new(1000 + good, bad), Bisect::new(512));
        while world.delivered.is_empty() {
            world.step(&mut bisect);
        }
        assert!(world.requests < 500, "{}", world.requests);
        assert!(world.dead.is_empty());
    }
}

#[test]
fn a_size_that_is_too_much_is_seldom_tried_again() {
    for reason in [Reason::TooLarge, Reason::Timeout] {
        let (mut world, mut bisect) = (World::new(20_000, []), Bisect::new(512));
        let mut too_much = 0;
        while !world.outbox.is_empty() {
            let large = bisect.next().1 > 200;
            too_much += usize::from(large);
            world.trouble = match large {
                true => Trouble::Down(0, usize::MAX, reason),
                false => Trouble::None,
            };
            world.step(&mut bisect);
        }
        assert!(too_much <= 3, "{too_much}");
        assert!(world.requests <= 20_000 / 128 + 20, "{}", world.requests);
        assert!(world.delivered.is_sorted());
    }
}

#[test]
fn a_batch_of_bad_records_costs_one_search_and_three_requests_each() {
    let bad = (0..50).map(|record| (record, Reason::BadRecord));
    let (mut world, mut bisect) = (World::new(200, bad), Bisect::new(1));
    while world.dead.len() < 50 {
        world.step(&mut bisect);
    }
    // The search has doubled its distance up to 64. Each record behind that is a witness once.
    assert!(
        world.delivered.iter().copied().eq(64..114),
        "{:?}",
        world.delivered
    );
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
        assert_eq!(bisect.answered(8, &partly), (Fate::DeadLetters, false));
        assert!(bisect.is_partly_rejected());
        assert_eq!(bisect.next(), (0, 4));
        assert_eq!(bisect.answered(4, &partly), (Fate::DeadLetters, true));
        let accepted = bisect.answered(2, &Verdict::Accepted);
        assert_eq!(accepted, (Fate::Delivered, false));
    }
}

/// As when an operator deletes the suspect, or sends a dead letter again.
#[test]
fn another_oldest_record_is_no_suspect() {
    let mut bisect = Bisect::new(1);
    let bad = Verdict::Rejected(Rejection::new(Reason::BadRecord, "no"));
    bisect.answered(1, &bad);
    assert_eq!(bisect.next(), (1, 1));
    bisect.oldest_changed();
    assert_eq!(bisect.next(), (0, 1));
}
