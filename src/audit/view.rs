//! A page as the tail sees it: in order, with what the ledger holds of it.

use jiff::Timestamp;

use super::event::Event;
use crate::api::{AuditPage, Client, Cursor};
use crate::ledger::{Disposition, EventId, LedgerHandle, NewEntry};

/// The order of items in a page; the specification does not say which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// The first item is the newest.
    NewestFirst,
    /// The first item is the oldest.
    OldestFirst,
}

/// Entries older than these are never taken as late rows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Floors {
    /// Of the first start.
    pub(super) start: Option<Timestamp>,
    /// Of the last change of filters.
    pub(super) filter: Option<Timestamp>,
    /// Of the ids that are kept.
    pub(super) prune: Option<Timestamp>,
}

/// What becomes of the unknown entries of a page.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rule {
    /// A first start: history, from the start floor on; what came after the ledger began is live.
    FirstStart {
        /// Nothing older is taken.
        start_floor: Option<Timestamp>,
        /// Everything above it is live.
        newest: Option<EventId>,
        /// All of the page is above it.
        passed: bool,
    },
    /// A range of history, its end excluded.
    Range {
        /// Nothing older is taken.
        from: Option<Timestamp>,
        /// Nothing from then on is taken.
        until: Option<Timestamp>,
    },
    /// Above the frontier: everything is live.
    Above,
    /// It may hold the frontier: what stands above it is live, what stands below is late.
    Frontier,
    /// For late rows only: what stands above the frontier is left to the poll.
    Late,
}

/// A page, its entries from the oldest to the newest in the service's order.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) page: AuditPage,
    events: Vec<Placed>,
    /// Entries that stood in the page twice.
    repeated: u64,
}

#[derive(Clone, Debug)]
struct Placed {
    event: Event,
    /// Which item of the page it is.
    index: usize,
}

// === impl Floors ===

impl Floors {
    /// The highest of the three.
    pub(super) fn highest(&self) -> Option<Timestamp> {
        self.start.max(self.filter).max(self.prune)
    }
}

// === impl View ===

impl View {
    /// Reads every entry of a page. Where the order is not known, the times of its ends have to do; they mislead where the service's order
    /// is that of arrival, and say nothing where both are the same.
    pub(super) fn read(page: AuditPage, order: Option<Order>, client: &Client) -> Self {
        let mut unknown_fields = 0;
        let mut events: Vec<Placed> = Vec::with_capacity(page.len());
        for (index, raw) in page.items().enumerate() {
            let (event, unknown) = Event::read(raw, page.server_time);
            unknown_fields += unknown;
            events.push(Placed { event, index });
        }
        client.unknown_fields(unknown_fields);
        let ends = events.first().zip(events.last());
        let rising =
            ends.is_some_and(|(first, last)| first.event.created_at < last.event.created_at);
        if order.map_or(!rising, |order| order == Order::NewestFirst) {
            events.reverse();
        }
        let before = events.len();
        let mut seen = std::collections::HashSet::with_capacity(before);
        events.retain(|placed| seen.insert(placed.event.id));
        let repeated = (before - events.len()) as u64;
        Self {
            page,
            events,
            repeated,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    pub(super) fn end(&self) -> Option<&Cursor> {
        self.page.end_cursor.as_ref()
    }

    /// The first and the last item as the service wrote them.
    pub(super) fn ends(&self) -> Option<(EventId, EventId)> {
        let first = self.events.iter().min_by_key(|placed| placed.index)?;
        let last = self.events.iter().max_by_key(|placed| placed.index)?;
        (first.index != last.index).then_some((first.event.id, last.event.id))
    }

    /// The oldest entry.
    pub(super) fn bottom(&self) -> Option<EventId> {
        self.events.first().map(|placed| placed.event.id)
    }

    /// The newest entry.
    pub(super) fn top(&self) -> Option<EventId> {
        self.events.last().map(|placed| placed.event.id)
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = EventId> {
        self.events.iter().map(|placed| placed.event.id)
    }

    pub(super) fn contains(&self, id: EventId) -> bool {
        self.ids().any(|other| other == id)
    }

    /// Creation time of the newest entry.
    pub(super) fn newest(&self) -> Option<Timestamp> {
        self.events
            .iter()
            .map(|placed| placed.event.created_at)
            .max()
    }

    /// Creation time of the newest entry that is not newer than `latest`.
    pub(super) fn newest_until(&self, latest: Timestamp) -> Option<Timestamp> {
        self.events
            .iter()
            .map(|placed| placed.event.created_at)
            .filter(|at| *at <= latest)
            .max()
    }

    /// Creation time of the oldest entry.
    pub(super) fn oldest(&self) -> Option<Timestamp> {
        self.events
            .iter()
            .map(|placed| placed.event.created_at)
            .min()
    }

    /// Whether every entry was created before `floor`; pages may not be sorted, so all of them must have been.
    pub(super) fn is_below(&self, floor: Option<Timestamp>) -> bool {
        floor.is_some_and(|floor| self.newest().is_some_and(|newest| newest < floor))
    }

    /// The organization of the first entry that names one.
    pub(super) fn organization(&self) -> Option<&str> {
        self.events
            .iter()
            .find_map(|placed| placed.event.organization.as_deref())
    }

    /// Another organization than this one, where no entry is of this one.
    pub(super) fn other_organization(&self, wanted: &str) -> Option<&str> {
        let mut named = self
            .events
            .iter()
            .filter_map(|placed| placed.event.organization.as_deref());
        let found = named.next()?;
        (found != wanted && named.all(|other| other != wanted)).then_some(found)
    }

    /// Entries that the ledger holds already, the one at the frontier aside: a service that repeats that one repeats nothing else.
    pub(super) fn duplicates(&self, ledger: &LedgerHandle, frontier: Option<EventId>) -> u64 {
        let held = self
            .ids()
            .zip(ledger.holds(self.ids()))
            .filter(|(id, held)| *held && Some(*id) != frontier)
            .count();
        held as u64 + self.repeated
    }

    /// Whether what is live in this page stands on an entry that the ledger holds, with nothing between them.
    pub(super) fn is_joined(&self, ledger: &LedgerHandle, frontier_at: Option<Timestamp>) -> bool {
        let anchors = self.anchors(ledger, frontier_at);
        let top = anchors.iter().rposition(|(_, anchor)| *anchor);
        let lowest = anchors.iter().position(|(_, anchor)| *anchor);
        let first_live = anchors
            .iter()
            .enumerate()
            .position(|(index, (held, _))| !held && self.is_live(index, top, frontier_at));
        match (lowest, first_live) {
            (Some(anchor), Some(live)) => anchor < live,
            (Some(_), None) => true,
            (None, _) => false,
        }
    }

    /// The entries to be taken, oldest first.
    pub(super) fn take(
        &self,
        rule: Rule,
        ledger: &LedgerHandle,
        frontier_at: Option<Timestamp>,
        floors: Floors,
    ) -> Vec<NewEntry> {
        let anchors = self.anchors(ledger, frontier_at);
        let top = anchors.iter().rposition(|(_, anchor)| *anchor);
        let mut entries: Vec<NewEntry> = Vec::new();
        for (position, placed) in self.events.iter().enumerate() {
            if anchors[position].0 {
                continue;
            }
            let created_at = placed.event.created_at;
            let late = || {
                (placed.event.event.is_err()
                    || floors.highest().is_none_or(|floor| created_at >= floor))
                .then_some(Disposition::Late)
            };
            let disposition = match rule {
                Rule::FirstStart { newest, passed, .. }
                    if passed || newest.is_some_and(|id| self.is_above(position, id)) =>
                {
                    Some(Disposition::Live)
                }
                Rule::FirstStart { start_floor, .. }
                    if start_floor.is_some_and(|floor| created_at < floor) =>
                {
                    Some(Disposition::Baseline)
                }
                Rule::FirstStart { .. } => Some(Disposition::History),
                Rule::Range { from, until } => self
                    .is_within(placed, from, until)
                    .then_some(Disposition::History),
                Rule::Above => Some(Disposition::Live),
                Rule::Frontier if self.is_live(position, top, frontier_at) => {
                    Some(Disposition::Live)
                }
                // What is too old is remembered, so that the next page has something to join.
                Rule::Frontier => late().or(Some(Disposition::Baseline)),
                // Its place in a page says nothing here: all of the page may be below the frontier.
                Rule::Late
                    if placed.event.event.is_ok()
                        && frontier_at.is_none_or(|at| created_at > at) =>
                {
                    None
                }
                Rule::Late => late(),
            };
            if let Some(disposition) = disposition {
                let raw = self.page.item(placed.index).to_owned();
                entries.push(NewEntry {
                    id: placed.event.id,
                    created_at,
                    disposition,
                    event: placed.event.event.clone(),
                    raw,
                });
            }
        }
        // Log records go out oldest first, also where the service's order is not that of creation.
        entries.sort_by_key(|entry| entry.created_at);
        entries
    }

    /// Whether an entry was created in a range. One that cannot be read may have no time but that of the page: it is in the range where
    /// any of its neighbours is.
    fn is_within(
        &self,
        placed: &Placed,
        from: Option<Timestamp>,
        until: Option<Timestamp>,
    ) -> bool {
        let within = |at: Timestamp| {
            from.is_none_or(|from| at >= from) && until.is_none_or(|until| at < until)
        };
        let undated =
            |event: &Event| event.event.is_err() && event.created_at == self.page.server_time;
        within(placed.event.created_at)
            || undated(&placed.event)
                && self
                    .events
                    .iter()
                    .any(|other| !undated(&other.event) && within(other.event.created_at))
    }

    /// Whether there is any entry that the ledger does not hold.
    pub(super) fn has_unknown(&self, ledger: &LedgerHandle) -> bool {
        ledger.holds(self.ids()).contains(&false)
    }

    /// Whether unknown entries stand above the frontier: the poll should have brought them.
    pub(super) fn has_unknown_above(
        &self,
        ledger: &LedgerHandle,
        frontier_at: Option<Timestamp>,
    ) -> bool {
        let anchors = self.anchors(ledger, frontier_at);
        let top = anchors.iter().rposition(|(_, anchor)| *anchor);
        anchors
            .iter()
            .enumerate()
            .any(|(position, (held, _))| !held && self.is_live(position, top, frontier_at))
    }

    /// For each entry: whether the ledger holds it, and whether it says how far the ledger reaches. One dated in the future does not:
    /// it stays on top whatever comes.
    fn anchors(&self, ledger: &LedgerHandle, frontier_at: Option<Timestamp>) -> Vec<(bool, bool)> {
        let held = ledger.holds(self.ids());
        let reaches = |placed: &Placed| frontier_at.is_none_or(|at| placed.event.created_at <= at);
        self.events
            .iter()
            .zip(held)
            .map(|(placed, held)| (held, held && reaches(placed)))
            .collect()
    }

    /// Whether the entry at `position` stands above this one.
    fn is_above(&self, position: usize, id: EventId) -> bool {
        self.events[..position]
            .iter()
            .any(|placed| placed.event.id == id)
    }

    fn is_live(
        &self,
        position: usize,
        top_anchor: Option<usize>,
        frontier_at: Option<Timestamp>,
    ) -> bool {
        top_anchor.is_some_and(|top| position > top)
            || frontier_at.is_none_or(|at| self.events[position].event.created_at > at)
    }
}
