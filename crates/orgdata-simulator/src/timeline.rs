//! When generated event number i was created: a pure function of i, never decreasing, so that a time's or a cursor's
//! place among millions of events is found by binary search.

use super::dice::{Purpose, hash};

/// Neighbouring slots that may share one moment.
const BLOCK: u64 = 4;
/// One block in so many shares one moment.
const SHARED: u64 = 16;
/// Parts of a slot's length by which an event moves inside its slot.
const JITTER: u64 = 1000;

/// A run of events at one pace.
#[derive(Clone, Copy, Debug)]
struct Segment {
    /// Number of its first event.
    first: u64,
    /// Slot of its first event: a live run interrupted by added events goes on in the next slot.
    slot: u64,
    /// When slot 0 begins, in milliseconds since 1970.
    origin: i64,
    /// Length of a slot, in nanoseconds.
    period: u64,
    /// No event of the run is later than this: one that shares its block's last moment could be.
    end: i64,
}

/// The times of all generated events, past and to come.
#[derive(Clone, Debug)]
pub(super) struct Timeline {
    seed: u64,
    segments: Vec<Segment>,
    /// Events that exist.
    made: u64,
    /// Whether the last segment makes events as the clock goes on.
    live: bool,
    /// The latest time seen: a clock that goes back unmakes nothing.
    seen: i64,
}

// === impl Timeline ===

impl Timeline {
    /// `history` events spread over the `span` milliseconds before `start`, and from then on `rate` events a second.
    pub(super) fn new(seed: u64, start: i64, history: u64, span: i64, rate: f64) -> Self {
        let mut timeline = Self {
            seed,
            segments: Vec::new(),
            made: 0,
            live: false,
            seen: start,
        };
        if history > 0 {
            let span = u64::try_from(span).unwrap_or(0);
            let period = u64::try_from(u128::from(span) * 1_000_000 / u128::from(history))
                .unwrap_or(u64::MAX);
            let span = i64::try_from(span).unwrap_or(i64::MAX);
            timeline.segments.push(Segment {
                first: 0,
                slot: 0,
                origin: start.saturating_sub(span),
                period,
                end: start,
            });
            timeline.made = history;
        }
        timeline.set_rate(start, rate);
        timeline
    }

    /// Events that exist.
    pub(super) fn made(&self) -> u64 {
        self.made
    }

    /// When event `i` was created, in milliseconds since 1970.
    pub(super) fn time(&self, i: u64) -> i64 {
        let at = self.segments.partition_point(|segment| segment.first <= i);
        match at.checked_sub(1).and_then(|at| self.segments.get(at)) {
            Some(segment) => self.slot_time(segment, segment.slot + (i - segment.first)),
            None => self.seen,
        }
    }

    /// Makes the live events whose time has come.
    pub(super) fn sync(&mut self, now: i64) {
        self.seen = self.seen.max(now);
        let Some(segment) = self.segments.last().filter(|_| self.live) else {
            return;
        };
        let elapsed =
            u128::try_from(self.seen.saturating_sub(segment.origin)).unwrap_or(0) * 1_000_000;
        // Slots that can have begun by now; an event is never before its slot.
        let most = u64::try_from(elapsed / u128::from(segment.period.max(1)))
            .unwrap_or(u64::MAX)
            .saturating_add(1);
        let (mut low, mut high) = (segment.slot + (self.made - segment.first), most);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.slot_time(segment, middle) <= self.seen {
                low = middle + 1
            } else {
                high = middle
            }
        }
        self.made = segment.first + (low - segment.slot);
    }

    /// Changes the pace of live events; a `rate` of 0 stops them.
    pub(super) fn set_rate(&mut self, now: i64, rate: f64) {
        self.sync(now);
        self.drop_unused_live();
        self.live = rate > 0.0;
        if self.live {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a cast saturates, as is wanted"
            )]
            let period = (1e9 / rate) as u64;
            self.segments.push(Segment {
                first: self.made,
                slot: 0,
                origin: self.seen,
                period: period.max(1),
                end: i64::MAX,
            });
        }
    }

    /// Makes `count` events now, a millisecond apart where there is room since the last one. Refused (false) when the
    /// clock stands before the last event: order would break.
    pub(super) fn add(&mut self, now: i64, count: u64) -> bool {
        self.sync(now);
        let newest = self.made.checked_sub(1).map(|i| self.time(i));
        if now < self.seen || newest.is_some_and(|newest| now < newest) {
            return false;
        }
        if count == 0 {
            return true;
        }
        let wanted = i64::try_from(count).unwrap_or(i64::MAX);
        let room = newest.map_or(wanted, |newest| now.saturating_sub(newest).min(wanted));
        let room_nanos = u128::try_from(room).unwrap_or(0) * 1_000_000;
        let period = u64::try_from(room_nanos / u128::from(count)).unwrap_or(u64::MAX);
        let live = self.live.then(|| self.segments.last().copied()).flatten();
        let next_slot = live.map(|live| live.slot + (self.made - live.first));
        self.drop_unused_live();
        self.segments.push(Segment {
            first: self.made,
            slot: 0,
            origin: now.saturating_sub(room),
            period,
            end: now,
        });
        self.made += count;
        if let (Some(live), Some(slot)) = (live, next_slot) {
            self.segments.push(Segment {
                first: self.made,
                slot,
                ..live
            });
        }
        true
    }

    /// A live segment that made nothing would only lengthen the list.
    fn drop_unused_live(&mut self) {
        if self.live
            && self
                .segments
                .last()
                .is_some_and(|segment| segment.first == self.made)
        {
            self.segments.pop();
        }
    }

    fn slot_time(&self, segment: &Segment, slot: u64) -> i64 {
        let block = slot / BLOCK;
        let parts = if hash(self.seed, Purpose::Slot, block, 1).is_multiple_of(SHARED) {
            u128::from(block * BLOCK + BLOCK - 1) * u128::from(JITTER)
        } else {
            u128::from(slot) * u128::from(JITTER)
                + u128::from(hash(self.seed, Purpose::Slot, slot, 0) % JITTER)
        };
        let nanos = parts * u128::from(segment.period) / u128::from(JITTER);
        segment
            .origin
            .saturating_add(i64::try_from(nanos / 1_000_000).unwrap_or(i64::MAX))
            .min(segment.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn never_decreases(timeline: &Timeline) -> bool {
        (1..timeline.made()).all(|i| timeline.time(i - 1) <= timeline.time(i))
    }

    #[test]
    fn history_ends_before_the_start_and_some_times_are_equal() {
        let timeline = Timeline::new(1, 1_000_000, 5_000, 900_000, 0.0);
        assert_eq!(timeline.made(), 5_000);
        assert!(never_decreases(&timeline));
        assert!(timeline.time(0) >= 100_000 && timeline.time(4_999) <= 1_000_000);
        assert!((1..5_000).any(|i| timeline.time(i - 1) == timeline.time(i)));
    }

    #[test]
    fn live_events_come_with_the_clock_and_stay_when_it_goes_back() {
        let mut timeline = Timeline::new(3, 0, 10, 1_000, 2.5);
        timeline.sync(100_000);
        assert!(
            (255..=264).contains(&timeline.made()),
            "{}",
            timeline.made()
        );
        let made = timeline.made();
        assert!((0..made).all(|i| timeline.time(i) <= 100_000) && timeline.time(made) > 100_000);
        timeline.sync(5);
        assert_eq!(timeline.made(), made);
        assert!(never_decreases(&timeline));
    }

    #[test]
    fn added_events_are_now_and_live_ones_go_on() {
        let mut timeline = Timeline::new(3, 0, 0, 0, 1.0);
        assert!(timeline.add(0, 10));
        assert!(timeline.add(60_000, 1_000) && timeline.add(60_000, 5));
        timeline.sync(120_000);
        assert!(
            (1_130..=1_140).contains(&timeline.made()),
            "{}",
            timeline.made()
        );
        assert!(never_decreases(&timeline));
        assert!(!timeline.add(119_000, 1));
        timeline.set_rate(121_000, 0.0);
        let made = timeline.made();
        timeline.sync(i64::MAX / 2);
        assert_eq!(timeline.made(), made);
    }
}
