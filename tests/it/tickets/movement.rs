//! Tickets created, closed, deleted and reordered between any two requests: what a snapshot without a doubt promises.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use orgdata_exporter::tickets::Snapshot;
use proptest::prelude::*;

use super::support::{Script, round, slice};

/// What happens between two requests.
#[derive(Clone, Debug)]
enum Change {
    Create(usize),
    Delete(usize),
    /// Only its content changes.
    Close(usize),
    /// A deletion and a creation at once: the count stays.
    Exchange(usize, usize),
}

/// A listing under change, and which tickets were there when.
#[derive(Debug)]
struct World {
    /// In the order of the listing.
    ids: Vec<u32>,
    closed: BTreeSet<u32>,
    next: u32,
    /// There all through the present attempt.
    steady: BTreeSet<u32>,
    /// There at some time of the present attempt.
    ever: BTreeSet<u32>,
}

// === impl World ===

impl World {
    fn new(tickets: u32) -> Self {
        let mut world = Self {
            ids: (0..tickets).collect(),
            closed: BTreeSet::new(),
            next: tickets,
            steady: BTreeSet::new(),
            ever: BTreeSet::new(),
        };
        world.begin();
        world
    }

    /// The first page is asked for: an attempt begins.
    fn begin(&mut self) {
        self.steady = self.ids.iter().copied().collect();
        self.ever = self.steady.clone();
    }

    fn apply(&mut self, change: &Change) {
        match *change {
            // Amounts tell tickets apart, so their number is bounded.
            Change::Create(at) if self.next < 45 => {
                self.ids.insert(at % (self.ids.len() + 1), self.next);
                self.ever.insert(self.next);
                self.next += 1;
            }
            Change::Delete(at) if !self.ids.is_empty() => {
                let gone = self.ids.remove(at % self.ids.len());
                self.steady.remove(&gone);
            }
            Change::Close(at) if !self.ids.is_empty() => {
                self.closed.insert(self.ids[at % self.ids.len()]);
            }
            Change::Exchange(from, to) => {
                self.apply(&Change::Delete(from));
                self.apply(&Change::Create(to));
            }
            _ => {}
        }
    }

    /// The amount is a power of two, so that a sum says which tickets are in it.
    fn rows(&self) -> Vec<String> {
        let state = |id| {
            if self.closed.contains(id) {
                "CLOSED"
            } else {
                "OPEN"
            }
        };
        self.ids
            .iter()
            .map(|id| {
                format!(
                    r#"{{"id":{id},"state":"{}","dealAmountSum":{}}}"#,
                    state(id),
                    1_u64 << id
                )
            })
            .collect()
    }
}

/// The tickets of a snapshot.
fn ids(snapshot: &Snapshot) -> BTreeSet<u32> {
    let sum: f64 = snapshot
        .by_state()
        .map(|(_, group)| group.deal_amount.as_f64())
        .sum();
    (0..45).filter(|id| (sum as u64) & (1 << id) != 0).collect()
}

fn change() -> impl Strategy<Value = Change> {
    let at = 0_usize..64;
    prop_oneof![
        at.clone().prop_map(Change::Create),
        at.clone().prop_map(Change::Delete),
        at.clone().prop_map(Change::Close),
        (at.clone(), at).prop_map(|(from, to)| Change::Exchange(from, to)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn a_consistent_snapshot_has_every_steady_ticket_once_and_no_ghost(
        tickets in 0_u32..25,
        page_size in 2_u32..9,
        changes in proptest::collection::vec((0_usize..30, change()), 0..6),
    ) {
        let world = Arc::new(Mutex::new(World::new(tickets)));
        let script = Script::new({
            let world = world.clone();
            move |request| {
                let mut world = world.lock().unwrap();
                if request.offset == 0 {
                    world.begin();
                }
                for (_, change) in changes.iter().filter(|(at, _)| *at == request.number) {
                    world.apply(change);
                }
                if request.offset == 0 {
                    world.begin();
                }
                Ok(slice(&world.rows(), request))
            }
        });
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (snapshot, retries) = runtime.block_on(round(&script, page_size));
        let snapshot = snapshot.unwrap();
        prop_assert!(retries <= 2);
        prop_assert!(script.requests().len() < 200);
        let world = world.lock().unwrap();
        let seen = ids(&snapshot);
        prop_assert_eq!(seen.len() as u64, snapshot.tickets, "a ticket counted twice");
        prop_assert!(seen.is_subset(&world.ever));
        if snapshot.doubt.is_none() {
            prop_assert!(world.steady.is_subset(&seen), "{:?} of {:?}", seen, world.steady);
        }
    }

    #[test]
    fn what_does_not_move_is_exact_in_one_attempt(
        tickets in 0_u32..45,
        page_size in 1_u32..9,
        shuffled in any::<prop::sample::Index>(),
    ) {
        let mut world = World::new(tickets);
        world.ids.rotate_left(shuffled.index(tickets.max(1) as usize));
        world.closed = world.ids.iter().copied().filter(|id| id % 3 == 0).collect();
        let script = Script::listing(world.rows());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (snapshot, retries) = runtime.block_on(round(&script, page_size));
        let snapshot = snapshot.unwrap();
        prop_assert_eq!((snapshot.doubt, retries), (None, 0));
        prop_assert_eq!(ids(&snapshot), world.steady);
        prop_assert_eq!(snapshot.open_total().tickets, world.ids.iter().filter(|id| *id % 3 != 0).count() as u64);
    }
}

#[tokio::test]
async fn a_deletion_and_a_creation_between_two_pages_are_noticed() {
    let world = Arc::new(Mutex::new(World::new(20)));
    let script = Script::new({
        let world = world.clone();
        move |request| {
            let mut world = world.lock().unwrap();
            if request.number == 1 {
                // Above the boundary one goes, below it one comes: the count stays, and a ticket slips through.
                world.apply(&Change::Exchange(2, 18));
            }
            Ok(slice(&world.rows(), request))
        }
    });
    let (snapshot, retries) = round(&script, 10).await;
    let snapshot = snapshot.unwrap();
    assert_eq!((snapshot.doubt, retries), (None, 1));
    assert_eq!(
        ids(&snapshot),
        world.lock().unwrap().ids.iter().copied().collect()
    );
}

#[tokio::test]
async fn a_ticket_that_moves_up_unread_is_noticed() {
    let world = Arc::new(Mutex::new(World::new(20)));
    let script = Script::new({
        let world = world.clone();
        move |request| {
            let mut world = world.lock().unwrap();
            if request.number == 1 {
                let moved = world.ids.remove(15);
                world.ids.insert(0, moved);
            }
            Ok(slice(&world.rows(), request))
        }
    });
    let (snapshot, retries) = round(&script, 10).await;
    assert_eq!((snapshot.unwrap().doubt, retries), (None, 1));
}

#[tokio::test]
async fn two_mistakes_that_cancel_out_in_the_count_are_noticed_by_the_overlap() {
    let world = Arc::new(Mutex::new(World::new(30)));
    let script = Script::new({
        let world = world.clone();
        move |request| {
            let mut world = world.lock().unwrap();
            match request.number {
                // One too many: a ticket that was read is deleted, and another created further down.
                1 => world.apply(&Change::Exchange(2, 28)),
                // One too few: a ticket moves up before it was read.
                2 => {
                    let moved = world.ids.remove(25);
                    world.ids.insert(0, moved);
                }
                _ => {}
            }
            Ok(slice(&world.rows(), request))
        }
    });
    let (snapshot, retries) = round(&script, 10).await;
    let snapshot = snapshot.unwrap();
    assert_eq!((snapshot.doubt, retries), (None, 1));
    assert_eq!(
        ids(&snapshot),
        world.lock().unwrap().ids.iter().copied().collect()
    );
}
