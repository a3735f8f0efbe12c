//! The passes that are no sweeps: the first one, re-reads and history. `sweep.rs` says what they are for.

use std::time::Duration;

use jiff::Timestamp;

use super::start::Start;
use super::step::{Page, Request, Step, Task, back};
use super::sweep::Sweep;
use super::walk::{MAX_OLDER, Reread};
use crate::ledger::{Disposition, FirstPass, History, Standing};

/// A re-read ends after this many entries in a row that are older than its floor; the first pass after twice as many.
const REREAD_OLDER: u32 = 2000;

// === impl Sweep ===

impl Sweep {
    /// Begins the first pass again, because the filters have changed. Of what it meets, entries since the last contact are live.
    pub(super) fn change_filters(&mut self, filters: String) {
        self.state.filters = filters;
        let Some(contact) = self.state.contact else {
            return;
        };
        self.state.sweep = None;
        let known = self.state.newest;
        let known = known.map_or(contact, |newest| newest.min(contact));
        let live_after = known.max(back(contact, self.limits.window));
        self.state.first = Some(FirstPass {
            live_after: Some(live_after),
            ..FirstPass::default()
        });
        if let Some(history) = &mut self.state.history {
            history.cursors.clear();
        }
        self.reread = None;
    }

    pub(super) fn first_page(
        &mut self,
        request: &Request,
        page: &Page,
        opened_at: Timestamp,
        step: &mut Step,
    ) {
        let Some(mut pass) = self.state.first.take() else {
            return;
        };
        if request.before.is_none() {
            let newest = page.rows.iter().filter_map(|row| row.at).max();
            let begin = newest.map_or(page.now, |newest| newest.min(page.now));
            self.state.floor = Some(back(begin, self.limits.window));
            (pass.older, pass.as_of) = (0, page.as_of());
            if self.state.contact.is_none() {
                let start = self.limits.start.from(back(page.now, page.at));
                let from = *self.state.records_from.get_or_insert(start);
                self.state.history.get_or_insert_with(|| History {
                    from,
                    is_short: self.limits.start == Start::Now,
                    opened_at,
                    ..History::default()
                });
            }
        }
        (step.number, step.must_save) = (0, true);
        self.walks[Task::First as usize].is_failing = false;
        pass.has_entries |= page.has_entries();
        for (index, row) in page.rows.iter().enumerate() {
            let is_old = row.at.is_none_or(|at| Some(at) < self.state.floor);
            pass.older = if is_old { pass.older + 1 } else { 0 };
            if row.standing != Standing::Unknown {
                continue;
            }
            let is_live = |at: Timestamp| pass.live_after.is_some_and(|live| at > live);
            let is_wanted = |history: &History| history.wants(row.at);
            let taken = match row.at {
                Some(at) if is_live(at) => Disposition::Live,
                _ if self.state.history.as_ref().is_some_and(is_wanted) => Disposition::History,
                _ => Disposition::Ignored,
            };
            step.take.push((index, taken));
        }
        let is_end = match self.is_empty_top(request, page, step) {
            Some(is_believed) => is_believed,
            None => self.turn(&mut pass.cursors, request, page, step),
        };
        if !is_end && pass.older < 2 * REREAD_OLDER {
            self.state.first = Some(pass);
            return;
        }
        let state = &mut self.state;
        // What an interrupted sweep has met under other filters is settled too.
        state.number += 2;
        state.reached(pass.as_of, self.newest, !pass.has_entries);
        // The next poll says where re-reads start: nothing is below the end of this pass but history.
        (state.below, state.below_time) = (None, state.floor);
        (state.read_to, state.short_read_to) = (state.floor, state.floor);
        state.history.take_if(|history| is_end || history.is_short);
        if let Some(history) = &mut state.history {
            history.cursors = pass.cursors;
        }
        (self.polled, self.empty_since) = (Some(page.at), None);
    }

    /// Reports whether it is known where a re-read begins, and how far back it goes.
    pub(super) fn can_reread(&self) -> bool {
        self.state.below.is_some() && self.now.is_some() && self.is_begun()
    }

    /// Begins a re-read, if it is known where: of the window once per window, otherwise of twice the interval.
    pub(super) fn begin_reread(&mut self, at: Duration) {
        let state = &self.state;
        let (Some(below), Some(now), None) = (&state.below, self.now, &self.reread) else {
            return;
        };
        let clock = self.clock(now);
        let window = back(clock, self.limits.window);
        let short = back(clock, self.limits.reread_interval.saturating_mul(2)).max(window);
        let is_whole = self
            .reread_at
            .is_none_or(|last| at.saturating_sub(last) >= self.limits.window);
        let (least, last) = match is_whole {
            true => (window, state.read_to),
            false => (short, state.short_read_to),
        };
        let floor = last.map_or(least, |last| last.min(least));
        let from = state.below_time.unwrap_or(clock);
        self.reread = Some(Reread {
            cursors: vec![below.clone()],
            floor: state.floor.map_or(floor, |first| first.max(floor)),
            older: 0,
            is_whole,
            began: at,
            reaches: from.min(window),
            short_reaches: from.min(short),
        });
        self.walks[Task::Reread as usize].restart();
    }

    pub(super) fn deepen(&mut self, request: &Request, page: &Page, step: &mut Step) {
        let Some(mut reread) = self.reread.take() else {
            return;
        };
        // The cursor may have expired and be answered with the newest page: what it shows must not be settled by a sweep that began below it.
        step.number += i64::from(self.state.sweep.is_some());
        self.take(page, true, step);
        if let Some(open) = &mut self.state.sweep {
            open.has_upper |= !step.take.is_empty();
        }
        for row in &page.rows {
            let is_old = row.at.is_none_or(|at| at < reread.floor);
            reread.older = if is_old { reread.older + 1 } else { 0 };
        }
        let is_end = self.turn(&mut reread.cursors, request, page, step);
        if !is_end && reread.older < REREAD_OLDER {
            if reread.cursors.is_empty() && !page.rows.is_empty() {
                reread.cursors.extend(request.before.clone());
            }
            // Nothing at all may be below the last sweep, or its cursor has expired.
            self.reread = Some(reread).filter(|reread| !reread.cursors.is_empty());
            return;
        }
        self.walks[Task::Reread as usize].is_failing = false;
        self.state.reread_failed_for = 0;
        step.must_save = true;
        self.state.short_read_to = Some(reread.short_reaches);
        if reread.is_whole {
            self.state.read_to = Some(reread.reaches);
            self.reread_at = Some(reread.began);
        }
        if let (None, Some(read_to)) = (&self.state.history, self.state.read_to) {
            let window = self.limits.window.saturating_mul(2);
            step.prune_before = Some(back(self.clock(page.now), window).min(read_to));
        }
    }

    pub(super) fn go_back(&mut self, request: &Request, page: &Page, step: &mut Step) {
        let Some(mut history) = self.state.history.take() else {
            return;
        };
        (step.number, step.must_save) = (0, true);
        history.older *= u32::from(request.before.is_some());
        for (index, row) in page.rows.iter().enumerate() {
            let is_unknown = row.standing == Standing::Unknown;
            match row.at {
                Some(at) if at < history.from => history.older += u32::from(is_unknown),
                Some(_) => history.older = 0,
                None => {}
            }
            // What is newer than the first pass came after it, and is not history.
            let is_old = row.at.is_none_or(|at| Some(at) <= self.state.floor);
            if is_unknown && is_old && history.wants(row.at) {
                step.take.push((index, Disposition::History));
            }
        }
        if !step.take.is_empty() {
            history.failed_for = 0;
            self.walks[Task::History as usize].is_failing = false;
        }
        let is_end = self.turn(&mut history.cursors, request, page, step);
        if !is_end && history.older < MAX_OLDER {
            self.state.history = Some(history);
        }
    }
}
