//! Tickets created, closed, deleted and reordered between two requests: what a snapshot without a doubt promises.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use orgdata_exporter::metrics::tickets::TicketSource as _;
use orgdata_exporter::tickets::Snapshot;
use proptest::prelude::*;

use super::support::{Script, round, slice};

/// Amounts tell tickets apart, so their number is bounded.
const MOST: u32 = 45;

/// What happens between two requests.
#[derive(Clone, Debug)]
enum Change {
    Create(usize),
    Delete(usize),
    Close(usize),
    /// A deletion and a creation at once: the count stays.
    Exchange(usize, usize),
    /// From one position to another.
    Move(usize, usize),
}

/// A listing that changes, and which tickets existed when.
#[derive(Debug, Default)]
struct World {
    /// In the order of the listing.
    ids: Vec<u32>,
    closed: BTreeSet<u32>,
    next: u32,
    /// Those that existed during the whole attempt.
    steady: BTreeSet<u32>,
    /// Those that existed at some time of the attempt.
    ever: BTreeSet<u32>,
}

// === impl World ===

impl World {
    fn new(tickets: u32) -> Self {
        Self {
            ids: (0..tickets).collect(),
            next: tickets,
            ..Self::default()
        }
    }

    fn begin(&mut self) {
        self.steady = self.ids.iter().copied().collect();
        self.ever = self.steady.clone();
    }

    fn apply(&mut self, change: &Change) {
        match *change {
            Change::Create(at) if self.next < MOST => {
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
            Change::Move(from, to) if !self.ids.is_empty() => {
                let moved = self.ids.remove(from % self.ids.len());
                self.ids.insert(to % (self.ids.len() + 1), moved);
            }
            _ => {}
        }
    }

    /// The amount is a power of two, so a sum says which tickets are in it.
    fn rows(&self) -> Vec<String> {
        let row = |id: &u32| {
            let state = if self.closed.contains(id) {
                "CLOSED"
            } else {
                "OPEN"
            };
            let amount = 1_u64 << id;
            format!(r#"{{"id":{id},"state":"{state}","dealAmountSum":{amount}}}"#)
        };
        self.ids.iter().map(row).collect()
    }
}

/// A listing of `tickets`, to which something happens before some requests.
fn changing(tickets: u32, changes: Vec<(usize, Change)>) -> (Arc<Mutex<World>>, Script) {
    let world = Arc::new(Mutex::new(World::new(tickets)));
    let script = Script::new({
        let world = world.clone();
        move |request| {
            let mut world = world.lock().unwrap();
            for (_, change) in changes.iter().filter(|(at, _)| *at == request.number) {
                world.apply(change);
            }
            if request.offset == 0 {
                world.begin();
            }
            Ok(slice(&world.rows(), request))
        }
    });
    (world, script)
}

/// The tickets of a snapshot.
fn ids(snapshot: &Snapshot) -> BTreeSet<u32> {
    let groups = snapshot.series().by_state;
    let sum: f64 = groups.iter().map(|(_, group)| group.deal_amount).sum();
    (0..MOST)
        .filter(|id| (sum as u64) & (1 << id) != 0)
        .collect()
}

fn change() -> impl Strategy<Value = Change> {
    let at = || 0_usize..64;
    prop_oneof![
        at().prop_map(Change::Create),
        at().prop_map(Change::Delete),
        at().prop_map(Change::Close),
        (at(), at()).prop_map(|(from, to)| Change::Exchange(from, to)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn a_consistent_snapshot_has_every_steady_ticket_once_and_no_other(
        tickets in 0_u32..25,
        page_size in 1_u32..9,
        changes in proptest::collection::vec((0_usize..30, change()), 0..6),
    ) {
        let still = changes.iter().all(|(_, change)| matches!(change, Change::Close(_)));
        let (world, script) = changing(tickets, changes);
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
        if still {
            prop_assert_eq!((snapshot.doubt, retries), (None, 0));
            prop_assert_eq!(seen, world.steady.clone());
        }
    }
}

#[tokio::test]
async fn movements_that_no_count_shows_are_noticed_and_the_scan_is_repeated() {
    for (what, tickets, changes) in [
        (
            "a deletion above the boundary and a creation below it",
            20,
            vec![(1, Change::Exchange(2, 18))],
        ),
        (
            "a ticket that moves up before it was read",
            20,
            vec![(1, Change::Move(15, 0))],
        ),
        (
            "one ticket too many and one too few",
            30,
            vec![(1, Change::Exchange(2, 28)), (2, Change::Move(25, 0))],
        ),
    ] {
        let (world, script) = changing(tickets, changes);
        let (snapshot, retries) = round(&script, 10).await;
        let snapshot = snapshot.unwrap();
        assert_eq!((snapshot.doubt, retries), (None, 1), "{what}");
        let all: BTreeSet<u32> = world.lock().unwrap().ids.iter().copied().collect();
        assert_eq!(ids(&snapshot), all, "{what}");
    }
}
