//! Ticket flow: how many tickets of a type were opened and closed in the days before the scan, and how long they were open.

use jiff::Timestamp;

use crate::metrics::tickets::{Flow, PERCENTILES, WINDOWS};

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
