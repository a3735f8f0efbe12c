//! What must be true of the exporter and the world.

use std::collections::{BTreeMap, HashSet};

use crate::audit::Start;
use crate::metrics::audit::Total;
use crate::simulator::Scope;

use super::bench::Bench;
use super::case::{Change, Step};
use super::world::World;

fn actor(id: Option<i64>) -> String {
    id.map_or_else(|| "none".to_owned(), |id| id.to_string())
}

impl Bench {
    /// The ledger is one unbroken range: of the rows in the order of the listing that arrived on top of it, from the start floor on,
    /// those delivered are the first ones, without a hole. Rows that arrived below others, and those dated in the future, are left out.
    pub(super) fn check_range(&self) {
        let delivered: HashSet<&str> = self.delivered.iter().map(String::as_str).collect();
        let world = self.world();
        let wanted = self.wanted(&world).into_iter();
        let mut missing = None;
        for (id, _) in wanted.filter(|(_, in_order)| *in_order) {
            match (delivered.contains(id), missing) {
                (false, None) => missing = Some(id),
                (true, Some(missing)) => panic!("{id} was taken before {missing} below it"),
                _ => {}
            }
        }
    }

    fn wanted<'a>(&self, world: &'a World) -> Vec<(&'a str, bool)> {
        world.wanted(self.case.start, self.start_floor, self.case.readings.key)
    }

    /// The world stands still, and the exporter has time.
    pub(super) async fn come_to_rest(&mut self) {
        self.sim().clear_faults();
        self.world().pending.clear();
        self.settle().await;
        self.settle().await;
    }

    /// Everything has happened: what the exporter shows is the truth.
    pub(super) async fn check_all(&mut self) {
        self.come_to_rest().await;
        let distinct: HashSet<&str> = self.delivered.iter().map(String::as_str).collect();
        assert_eq!(self.delivered.len(), distinct.len(), "delivered twice");
        let world = self.world();
        let mut wanted = self.wanted(&world);
        let count = wanted.len();
        wanted.retain(|(id, _)| !distinct.contains(id));
        assert!(wanted.is_empty(), "lost: {wanted:?}");
        assert_eq!(distinct.len(), count, "more was delivered than there is");

        let truth = self.sim().truth_of(Scope::arrived_since(world.beginning()));
        let counts = truth.counts.into_iter();
        let truth: BTreeMap<(String, String), u64> = counts
            .map(|((kind, id), count)| ((kind, actor(id)), count))
            .collect();
        assert_eq!(self.counted(), truth, "counters");
        // Below a page full of entries from the future only the re-read finds anything, also what came in the very moment of the newest.
        if !self.case.has_future() {
            let (called, late) = (self.total(Total::Late), world.late);
            assert!(called <= late, "{called} rows are called late, {late} were");
        }
        let totals = |totals: [Total; 2]| totals.map(|total| self.total(total));
        let seen = totals([Total::Gaps, Total::Malformed]);
        assert_eq!(seen, [0, 0], "gaps, malformed");
        if self.case.faults() == 0 {
            let seen = totals([Total::Recoveries, Total::Duplicate]);
            assert_eq!(seen, [0, 0], "recoveries, duplicates");
        }
    }

    /// Some of it is gone, and that is said; the rest is delivered and counted once.
    pub(super) async fn check_rest(&mut self) {
        self.come_to_rest().await;
        // What is gone without a trace is only seen beside something new.
        self.world().change(self.sim(), &Change::Events(1));
        self.settle().await;
        let distinct: HashSet<&str> = self.delivered.iter().map(String::as_str).collect();
        assert_eq!(self.delivered.len(), distinct.len(), "delivered twice");
        let world = self.world();
        let removed = Scope {
            removed: true,
            ..Scope::default()
        };
        let live = world.since_beginning();
        let mut counts = BTreeMap::new();
        for entry in self.sim().entries_of(removed) {
            if live.contains(entry.id.as_str()) && distinct.contains(entry.id.as_str()) {
                let labels = (entry.activity_type, actor(entry.actor));
                *counts.entry(labels).or_insert(0) += 1;
            }
        }
        let counted = self.counted();
        // If a restore took everything that the ledger held, or a first start has to begin again and the newest entry of the beginning is
        // gone, the edge between history and news cannot be found.
        let certain = self.case.start == Start::Now || matches!(self.case.steps[0], Step::Settle);
        if certain && !self.case.has_restore() {
            assert_eq!(counted, counts, "what is delivered is counted");
        }
        let count = counted.values().sum::<u64>() as usize;
        assert!(count <= distinct.len(), "what is counted is delivered");
        let mut away = world.retained_away.iter();
        let is_lost = away.any(|id| !distinct.contains(id.as_str()));
        let is_told = self.total(Total::Gaps) > 0;
        assert!(!is_lost || is_told, "some are lost without a gap");
        let kept: HashSet<String> = self.sim().entries().map(|entry| entry.id).collect();
        let mut missed = self.wanted(&world);
        missed.retain(|(id, _)| kept.contains(*id) && !distinct.contains(id));
        assert!(missed.is_empty(), "{missed:?} are there and were not taken");
    }

    /// Nothing is new: one request says so.
    pub(super) async fn check_quiet(&mut self) {
        let before = self.sim().requests().audit;
        self.tail().hurry();
        self.round().await;
        let requests = self.sim().requests().audit - before;
        assert_eq!(requests, 1, "requests of a quiet poll");
    }
}
