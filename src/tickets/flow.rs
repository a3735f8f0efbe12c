//! Ticket flow: how many tickets of a type were opened and closed in the days before the scan, and how long they were open.

use jiff::{SignedDuration, Timestamp};

/// The values of the label `window`: time before the scan. The time to close is not shown for the first.
pub const WINDOWS: [(&str, SignedDuration); 3] = [
    ("1d", SignedDuration::from_hours(24)),
    ("7d", SignedDuration::from_hours(7 * 24)),
    ("30d", SignedDuration::from_hours(30 * 24)),
];

/// The values of the label `percentile`, and the same as numbers.
pub const PERCENTILES: [(&str, usize); 2] = [("50", 50), ("90", 90)];

/// The tickets of one type that were opened and closed within each of the [`WINDOWS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// By `createdAt`.
    pub opened: [u64; WINDOWS.len()],
    /// By `closedAt`.
    pub closed: [u64; WINDOWS.len()],
    /// Seconds from `createdAt` to `closedAt` of those closed, for each of the [`PERCENTILES`]; `None` without one.
    pub time_to_close: [[Option<u32>; PERCENTILES.len()]; WINDOWS.len()],
}

/// The flow of one type so far. A ticket is in the shortest of the [`WINDOWS`] that it belongs to.
#[derive(Debug, Default)]
pub(super) struct Counts {
    opened: [u64; WINDOWS.len()],
    closed: [u64; WINDOWS.len()],
    /// Seconds from creation to closing: four bytes for each ticket closed lately.
    seconds: [Vec<u32>; WINDOWS.len()],
}

// === impl Counts ===

impl Counts {
    /// Adds a ticket. `end` is the time of the scan; `closed` is `None` for an open ticket.
    pub(super) fn add(
        &mut self,
        created: Option<Timestamp>,
        closed: Option<Timestamp>,
        end: Timestamp,
    ) {
        if let Some(window) = created.and_then(|created| window(created, end)) {
            self.opened[window] += 1;
        }
        if let Some(closed) = closed
            && let Some(window) = window(closed, end)
        {
            self.closed[window] += 1;
            if let Some(created) = created {
                // If the times are in the wrong order, the duration is 0.
                let seconds = closed.duration_since(created).as_secs().max(0);
                self.seconds[window].push(u32::try_from(seconds).unwrap_or(u32::MAX));
            }
        }
    }

    /// Returns the flow; a longer window includes the shorter ones.
    pub(super) fn finish(mut self) -> Flow {
        let mut flow = Flow::default();
        let (mut opened, mut closed, mut seconds) = (0, 0, Vec::new());
        for window in 0..WINDOWS.len() {
            opened += self.opened[window];
            closed += self.closed[window];
            seconds.append(&mut self.seconds[window]);
            seconds.sort_unstable();
            flow.opened[window] = opened;
            flow.closed[window] = closed;
            flow.time_to_close[window] =
                PERCENTILES.map(|(_, percent)| percentile(&seconds, percent));
        }
        flow
    }
}

/// Returns the shortest window before `end` with this moment.
fn window(moment: Timestamp, end: Timestamp) -> Option<usize> {
    let age = end.duration_since(moment);
    let mut windows = WINDOWS.iter();
    windows.position(|(_, length)| !age.is_negative() && age < *length)
}

/// Returns the smallest of sorted values that at least so many percent of them do not exceed.
fn percentile(sorted: &[u32], percent: usize) -> Option<u32> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.checked_sub(1)?).copied()
}
