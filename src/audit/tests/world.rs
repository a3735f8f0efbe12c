//! What the test knows of the world: every row that ever arrived, and what is still to happen.

use std::collections::HashSet;
use std::time::Duration;

use crate::audit::Start;
use crate::simulator::{Fields, KeyReading, Mark, RequestInfo, Scope, Served, Simulator};
use jiff::{SignedDuration, Timestamp};

use super::bench::SILENCE;
use super::case::Change;

/// Rows dated further ahead than this are from the future for the exporter.
const FUTURE: SignedDuration = SignedDuration::from_mins(5);

#[derive(Debug)]
pub(super) struct World {
    /// In the order of arrival.
    rows: Vec<Row>,
    beginning: Option<Beginning>,
    /// The ledger has been begun.
    pub(super) begun: bool,
    /// In this round nothing was asked for but the newest page: what is answered last becomes the ledger's first page.
    pub(super) looks: bool,
    /// Changes to come, each so many requests from now.
    pub(super) pending: Vec<(u64, Change)>,
    /// Rows that arrived below others.
    pub(super) late: u64,
    /// Rows that went with everything below them.
    pub(super) retained_away: HashSet<String>,
}

/// The moment of the ledger's first page.
#[derive(Clone, Copy, Debug)]
struct Beginning {
    mark: Mark,
    at: Timestamp,
    /// How many rows there were.
    rows: usize,
}

#[derive(Clone, Debug)]
struct Row {
    id: String,
    created: Timestamp,
    /// It arrived on top of the listing, and does not stay there whatever comes.
    in_order: bool,
}

impl World {
    pub(super) fn new(sim: &Simulator) -> Self {
        let row = |entry: Served| Row {
            id: entry.id,
            created: entry.created_at,
            in_order: true,
        };
        Self {
            rows: sim.entries().map(row).collect(),
            beginning: None,
            begun: false,
            looks: true,
            pending: Vec::new(),
            late: 0,
            retained_away: HashSet::new(),
        }
    }

    /// Later arrivals are counted.
    pub(super) fn beginning(&self) -> Mark {
        self.beginning.unwrap().mark
    }

    /// Before each request: the world goes on.
    pub(super) fn requested(&mut self, request: &RequestInfo, sim: &Simulator) {
        for (left, _) in &mut self.pending {
            *left = left.saturating_sub(1);
        }
        let due = self.pending.extract_if(.., |(left, _)| *left == 0);
        for (_, change) in due.collect::<Vec<_>>() {
            self.change(sim, &change);
        }
        self.looks &= request.param("before").is_none();
        if !self.begun && self.looks {
            let there: HashSet<String> = sim.entries().map(|entry| entry.id).collect();
            self.rows.retain(|row| there.contains(&row.id));
            self.beginning = Some(Beginning {
                mark: sim.mark(),
                at: sim.now(),
                rows: self.rows.len(),
            });
        }
    }

    pub(super) fn change(&mut self, sim: &Simulator, change: &Change) {
        let (mark, beginning) = (sim.mark(), self.beginning.filter(|_| self.begun));
        let mut ahead = false;
        match change {
            Change::Events(count) => {
                // Events are spread over the last milliseconds, and none is dated before the beginning, or it need not be taken.
                if beginning.is_some_and(|beginning| {
                    sim.now().duration_since(beginning.at) <= millis(*count)
                }) {
                    sim.advance(Duration::from_millis(count + 1));
                }
                sim.add_events(*count);
            }
            Change::Pass(millis) => sim.advance(Duration::from_millis(*millis)),
            Change::Late(count, behind) => {
                // Only what was created since the beginning must be counted, so nothing else arrives late.
                let Some(beginning) = beginning else { return };
                for i in 0..*count {
                    let at = sim.now() - millis(behind + i);
                    insert(sim, at.max(beginning.at + millis(1)));
                }
            }
            Change::Ahead(by) => {
                // If all entries of the newest page are from the future, or the clock is wrong, the future cannot be recognized.
                if beginning.is_some() && sim.config().history > 0 && !sim.readings().no_date {
                    ahead = true;
                    insert(sim, sim.now() + millis(*by));
                }
            }
            Change::Fault(fault) => drop(sim.fault(fault.clone())),
            Change::Retain(keep) => {
                let ids = || -> HashSet<String> { sim.entries().map(|entry| entry.id).collect() };
                let there = ids();
                sim.advance(SILENCE);
                sim.retain(*keep);
                let kept = ids();
                // What came on top since the beginning is not missed where the ledger had nothing to stand on.
                if let Some(beginning) = beginning.filter(|beginning| beginning.rows > 0) {
                    let since = self.rows[beginning.rows..]
                        .iter()
                        .filter(|row| row.in_order);
                    let ids = since.map(|row| row.id.clone());
                    let gone = ids.filter(|id| there.contains(id) && !kept.contains(id));
                    self.retained_away.extend(gone);
                }
            }
            Change::Restore(newest) => sim.restore(*newest),
        }
        let times = self.rows.iter().map(|row| row.created);
        let newest = times.filter(|at| *at <= sim.now() + FUTURE).max();
        for entry in sim.entries_of(Scope::arrived_since(mark)) {
            let below = newest.is_some_and(|newest| entry.created_at < newest);
            self.late += u64::from(below);
            self.rows.push(Row {
                id: entry.id,
                created: entry.created_at,
                in_order: !below && !ahead,
            });
        }
    }

    /// Ids of what must be delivered in the end, in the order of the listing; and whether each arrived on top of it.
    pub(super) fn wanted(
        &self,
        start: Start,
        floor: Option<Timestamp>,
        key: KeyReading,
    ) -> Vec<(&str, bool)> {
        let there = self.beginning.map_or(0, |beginning| beginning.rows);
        let from_history =
            |row: &Row| start != Start::Now && floor.is_none_or(|floor| row.created >= floor);
        let rows = self.rows.iter().enumerate();
        let wanted = rows.filter(|(index, row)| *index >= there || from_history(row));
        let mut rows: Vec<&Row> = wanted.map(|(_, row)| row).collect();
        if key == KeyReading::CreatedAt {
            rows.sort_by_key(|row| row.created);
        }
        let is_in_order = |row: &Row| row.in_order || key == KeyReading::Arrival;
        let rows = rows.into_iter();
        rows.map(|row| (row.id.as_str(), is_in_order(row)))
            .collect()
    }

    pub(super) fn since_beginning(&self) -> HashSet<&str> {
        let rows = self.rows[self.beginning.unwrap().rows..].iter();
        rows.map(|row| row.id.as_str()).collect()
    }
}

fn insert(sim: &Simulator, created: Timestamp) {
    let fields = Fields::new().with("createdAt", created.to_string());
    sim.add_entry(&fields).unwrap();
}

fn millis(count: u64) -> SignedDuration {
    SignedDuration::from_millis(count.cast_signed())
}
