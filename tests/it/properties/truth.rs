//! What must be true of the exporter and the world.

use std::collections::{BTreeMap, HashSet};

use orgdata_exporter::audit::Start;
use orgdata_exporter::metrics::audit::Total;
use orgdata_exporter::simulator::Scope;

use super::bench::Bench;
use super::case::{Change, Step};

// === impl Bench ===

impl Bench {
    /// The ledger is one unbroken range: of the rows in the order of the listing that arrived on top of it, from the start floor on,
    /// those delivered are the first ones, without a hole. Rows that arrived below others, and those dated in the future, are left out.
    pub(super) fn check_range(&self) {
        let delivered: HashSet<&str> = self.delivered.iter().map(String::as_str).collect();
        let world = self.world();
        let in_order = world
            .wanted(self.case.start, self.start_floor, self.case.readings.key)
            .into_iter()
            .filter(|(_, in_order)| *in_order);
        let mut missing = None;
        for (id, _) in in_order {
            match (delivered.contains(id), missing) {
                (false, None) => missing = Some(id),
                (true, Some(missing)) => {
                    panic!("{id} was taken before {missing}, which is below it")
                }
                _ => {}
            }
        }
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
        let wanted = world.wanted(self.case.start, self.start_floor, self.case.readings.key);
        let lost: Vec<&str> = wanted
            .iter()
            .map(|(id, _)| *id)
            .filter(|id| !distinct.contains(id))
            .collect();
        assert!(lost.is_empty(), "lost: {lost:?}");
        assert_eq!(
            self.delivered.len(),
            wanted.len(),
            "more was delivered than there is"
        );

        let counts = self
            .sim()
            .truth_of(Scope::arrived_since(world.birth()))
            .counts
            .into_iter();
        let actor =
            |actor: Option<i64>| actor.map_or_else(|| "none".to_owned(), |actor| actor.to_string());
        let truth: BTreeMap<(String, String), u64> = counts
            .map(|((kind, id), count)| ((kind, actor(id)), count))
            .collect();
        assert_eq!(self.counted(), truth, "counters");
        // Below a page full of entries from the future only the re-read finds anything, also what came in the very moment of the newest.
        if !self.case.has_future() {
            assert!(
                self.total(Total::Late) <= world.late,
                "{} rows are called late, {} were",
                self.total(Total::Late),
                world.late
            );
        }
        assert_eq!(
            [Total::Gaps, Total::Malformed].map(|total| self.total(total)),
            [0, 0],
            "gaps, malformed"
        );
        if self.case.faults() == 0 {
            assert_eq!(
                [Total::Recoveries, Total::Duplicate].map(|total| self.total(total)),
                [0, 0],
                "recoveries, duplicates"
            );
        }
    }

    /// Some of it is gone, and that is said; the rest is delivered and counted once.
    pub(super) async fn check_rest(&mut self) {
        self.come_to_rest().await;
        // What is gone without a trace is only seen beside something new.
        self.world()
            .change(self.running.simulator(), &Change::Events(1));
        self.settle().await;
        let distinct: HashSet<&str> = self.delivered.iter().map(String::as_str).collect();
        assert_eq!(self.delivered.len(), distinct.len(), "delivered twice");
        let world = self.world();
        let wanted = world.wanted(self.case.start, self.start_floor, self.case.readings.key);
        let there: Vec<(String, String, String)> = self
            .sim()
            .entries_of(Scope {
                removed: true,
                ..Scope::default()
            })
            .map(|entry| {
                (
                    entry.id,
                    entry.activity_type,
                    entry
                        .actor
                        .map_or_else(|| "none".to_owned(), |actor| actor.to_string()),
                )
            })
            .collect();
        let live = world.since_birth();
        let mut counts = BTreeMap::new();
        for (id, kind, actor) in there {
            if live.contains(id.as_str()) && distinct.contains(id.as_str()) {
                *counts.entry((kind, actor)).or_insert(0) += 1;
            }
        }
        let counted = self.counted();
        // Where a restore took everything that the ledger held, or a first start has to begin again and the newest entry of the birth is
        // gone, the edge between history and news cannot be found.
        let certain = self.case.start == Start::Now || matches!(self.case.steps[0], Step::Settle);
        if certain && !self.case.has_restore() {
            assert_eq!(counted, counts, "what is delivered is counted");
        }
        assert!(
            counted.values().sum::<u64>() <= self.delivered.len() as u64,
            "what is counted is delivered"
        );
        let lost = world
            .retained_away
            .iter()
            .filter(|id| !distinct.contains(id.as_str()))
            .count();
        assert!(
            lost == 0 || self.total(Total::Gaps) > 0,
            "{lost} are lost, and nobody says so"
        );
        let kept: HashSet<String> = self.sim().entries().map(|entry| entry.id).collect();
        let missed: Vec<&str> = wanted
            .iter()
            .map(|(id, _)| *id)
            .filter(|id| kept.contains(*id) && !distinct.contains(id))
            .collect();
        assert!(missed.is_empty(), "{missed:?} are there and were not taken");
    }

    /// Nothing is new: one request says so.
    pub(super) async fn check_quiet(&mut self) {
        let before = self.sim().requests().audit;
        self.tail().hurry();
        self.round().await;
        assert_eq!(
            self.sim().requests().audit - before,
            1,
            "requests of a quiet poll"
        );
    }
}
