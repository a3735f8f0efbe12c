//! When a sweep that cannot be read is given up: after seven days in which polls succeeded, and never because of an outage.

use std::time::Duration;

use jiff::Timestamp;

use super::start::Start;
use super::step::{Limits, Page, Row, Task};
use super::sweep::Sweep;
use super::walk::Cause;
use crate::ledger::Standing::{self, Current, Settled, Unknown};
use crate::ledger::{EventId, GapReason, TailState};

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// A tail whose service has been read for some time.
struct Tail {
    sweep: Sweep,
    /// Since the start of the process, and since the service began.
    at: Duration,
    now: Duration,
}

// === impl Tail ===

impl Tail {
    /// Returns a tail with an open sweep.
    fn new() -> Self {
        let mut tail = Self::started(TailState::new(String::new()), Duration::ZERO);
        // The end of the listing is confirmed.
        for _ in 0..2 {
            assert_eq!(tail.read(Task::First, &[(1, Unknown)], None), None);
        }
        assert_eq!(tail.read(Task::Poll, &[(9, Unknown)], Some("c")), None);
        assert!(tail.sweep.state.sweep.is_some());
        tail
    }

    fn started(state: TailState, now: Duration) -> Self {
        let limits = Limits {
            page_size: 10,
            reread_interval: 5 * MINUTE,
            window: 60 * MINUTE,
            start: Start::Now,
        };
        Self {
            sweep: Sweep::new(state, limits, None, None),
            at: Duration::ZERO,
            now,
        }
    }

    fn pass(&mut self, time: Duration) {
        self.at += time;
        self.now += time;
    }

    /// Reads a page, and returns the reason of the gap if there is one.
    fn read(
        &mut self,
        task: Task,
        rows: &[(u64, Standing)],
        end: Option<&str>,
    ) -> Option<GapReason> {
        self.pass(Duration::from_secs(2));
        let now = Timestamp::UNIX_EPOCH + self.now;
        let rows = rows.iter().map(|(id, standing)| Row {
            id: EventId(*id),
            at: Some(now),
            standing: *standing,
        });
        let page = Page {
            rows: rows.collect(),
            end: end.map(str::to_owned),
            now,
            requested: self.at,
            at: self.at,
        };
        let request = self.sweep.request(task).unwrap();
        let step = self.sweep.page(&request, &page, now);
        step.gap.map(|gap| gap.reason)
    }

    fn fail(&mut self, task: Task) {
        let request = self.sweep.request(task).unwrap();
        self.sweep.failed(&request, Cause::Page);
    }

    fn poll(&mut self) -> Option<GapReason> {
        self.read(Task::Poll, &[(9, Current)], Some("c"))
    }

    /// Asserts that the open sweep is still there and ends.
    fn ends(mut self) {
        let rows = [(8, Unknown), (1, Settled)];
        assert_eq!(self.read(Task::Sweep, &rows, Some("e")), None);
        assert!(self.sweep.state.sweep.is_none());
    }
}

#[test]
fn seven_days_of_an_unreadable_page_between_polls_are_one_gap() {
    let mut tail = Tail::new();
    let mut gaps = Vec::new();
    for minute in 0..8 * 24 * 60 {
        if tail.sweep.request(Task::Sweep).is_some() {
            tail.fail(Task::Sweep);
        }
        tail.pass(MINUTE);
        gaps.extend(tail.poll().map(|reason| (reason, minute / (24 * 60))));
    }
    // Each minute takes two seconds more.
    assert_eq!(gaps, [(GapReason::Unreadable, 6)]);
}

#[test]
fn an_outage_of_seven_days_is_no_gap() {
    let mut tail = Tail::new();
    for _ in 0..7 * 24 {
        tail.fail(Task::Sweep);
        tail.fail(Task::Poll);
        tail.pass(60 * MINUTE);
    }
    assert_eq!(tail.poll(), None);
    tail.ends();
}

#[test]
fn twenty_failures_after_seven_days_switched_off_are_no_gap() {
    let mut tail = Tail::new();
    tail.fail(Task::Sweep);
    let mut tail = Tail::started(tail.sweep.state.clone(), tail.now + 7 * DAY);
    for _ in 0..20 {
        tail.fail(Task::Sweep);
        tail.pass(MINUTE);
        assert_eq!(tail.poll(), None);
    }
    tail.ends();
}
