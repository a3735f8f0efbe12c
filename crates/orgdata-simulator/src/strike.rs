//! Which faults hit a request, and what they make of its answer.

use std::time::Duration;

use super::dice::{Dice, Purpose};
use super::fault::{Endpoint, Fault, FaultKind};
use super::query::{Issues, Query};

/// Faults in force.
#[derive(Debug, Default)]
pub(super) struct Faults {
    seed: u64,
    next: u64,
    active: Vec<Active>,
}

#[derive(Debug)]
struct Active {
    id: u64,
    fault: Fault,
    /// Requests it could have hit.
    seen: u64,
}

/// What a fault may look at: the request, and the items of the page that would answer it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<'a> {
    pub(super) endpoint: Endpoint,
    pub(super) number: u64,
    pub(super) query: &'a Query,
    /// `None` when the answer is no page.
    pub(super) ids: Option<&'a [String]>,
}

/// The faults that hit one request.
#[derive(Debug, Default)]
pub(super) struct Strike {
    pub(super) delay: Duration,
    /// Faults that change the page, in order.
    pub(super) changes: Vec<FaultKind>,
    /// The fault that decides how the answer ends.
    pub(super) ending: Option<FaultKind>,
}

/// What part of the answer a fault is about.
enum Class {
    Delay(Duration),
    Change,
    Ending,
}

// === impl Faults ===

impl Faults {
    pub(super) fn new(seed: u64, faults: &[Fault]) -> Self {
        let mut list = Self {
            seed,
            next: 1,
            active: Vec::new(),
        };
        for fault in faults {
            list.add(fault.clone());
        }
        list
    }

    /// Puts a fault in force; the number to remove it by is returned.
    pub(super) fn add(&mut self, fault: Fault) -> u64 {
        let id = self.next;
        self.next += 1;
        self.active.push(Active { id, fault, seen: 0 });
        id
    }

    /// Removes a fault; false when it is not there (any more).
    pub(super) fn remove(&mut self, id: u64) -> bool {
        let before = self.active.len();
        self.active.retain(|active| active.id != id);
        self.active.len() < before
    }

    pub(super) fn clear(&mut self) {
        self.active.clear();
    }

    /// Faults in force with their numbers; `times` is what is left of it.
    pub(super) fn list(&self) -> Vec<(u64, Fault)> {
        self.active
            .iter()
            .map(|active| (active.id, active.fault.clone()))
            .collect()
    }

    /// The faults that hit this request, one from a hook among them.
    pub(super) fn strike(&mut self, target: Target<'_>, from_hook: Option<Fault>) -> Strike {
        let mut strike = Strike::default();
        if let Some(fault) = from_hook.filter(|fault| can_hit(fault, target)) {
            strike.take(&fault.kind);
        }
        for active in &mut self.active {
            let taken =
                strike.ending.is_some() && matches!(class(&active.fault.kind), Class::Ending);
            if !taken && can_hit(&active.fault, target) && active.comes_up(self.seed, target.number)
            {
                strike.take(&active.fault.kind);
            }
        }
        self.active.retain(|active| active.fault.times != Some(0));
        strike
    }
}

// === impl Active ===

impl Active {
    /// Counts this request; true when it is the fault's turn.
    fn comes_up(&mut self, seed: u64, number: u64) -> bool {
        self.seen += 1;
        let turn = self
            .fault
            .every
            .is_none_or(|every| self.seen.is_multiple_of(every));
        let luck = self
            .fault
            .chance
            .is_none_or(|chance| Dice::new(seed, Purpose::Fault, self.id, number).chance(chance));
        if !(turn && luck) {
            return false;
        }
        if let Some(times) = &mut self.fault.times {
            *times -= 1;
        }
        true
    }
}

// === impl Strike ===

impl Strike {
    fn take(&mut self, kind: &FaultKind) {
        match class(kind) {
            Class::Delay(delay) => self.delay += delay,
            Class::Change => self.changes.push(kind.clone()),
            Class::Ending => self.ending = Some(kind.clone()),
        }
    }
}

fn class(kind: &FaultKind) -> Class {
    use FaultKind as Kind;
    match kind {
        Kind::Delay(delay) => Class::Delay(*delay),
        Kind::EmptyPage(_) | Kind::ExpiredCursorEmpty | Kind::UnknownFields | Kind::WrongTypes => {
            Class::Change
        }
        Kind::MissingId | Kind::NotAnObject | Kind::Duplicate | Kind::Oversized(_) => Class::Change,
        _ => Class::Ending,
    }
}

/// Whether a fault is about requests like this one.
fn can_hit(fault: &Fault, target: Target<'_>) -> bool {
    use FaultKind as Kind;
    if fault.on.is_some_and(|on| on != target.endpoint) || fault.times == Some(0) {
        return false;
    }
    let has_cursor = || {
        target
            .query
            .pairs()
            .iter()
            .any(|(name, _)| name == "before" || name == "after")
    };
    let mut ignored = Issues::default();
    match &fault.kind {
        Kind::ExpiredCursor(_) => target.endpoint == Endpoint::Audit && has_cursor(),
        Kind::ExpiredCursorEmpty => {
            target.endpoint == Endpoint::Audit && has_cursor() && target.ids.is_some()
        }
        Kind::TooLarge(limit) => target.query.limit(&mut ignored) > *limit,
        Kind::Poison(id) => target.ids.is_some_and(|ids| ids.contains(id)),
        Kind::EmptyPage(Some(offset)) => {
            let (from, limit) = (
                target.query.offset(&mut ignored),
                target.query.limit(&mut ignored),
            );
            target.ids.is_some()
                && target.endpoint == Endpoint::Tickets
                && (from..from.saturating_add(limit)).contains(offset)
        }
        Kind::EmptyPage(None) | Kind::Oversized(_) => target.ids.is_some(),
        Kind::UnknownFields => target.ids.is_some(),
        Kind::WrongTypes | Kind::MissingId | Kind::NotAnObject | Kind::Duplicate => {
            target.ids.is_some_and(|ids| !ids.is_empty())
        }
        _ => true,
    }
}
