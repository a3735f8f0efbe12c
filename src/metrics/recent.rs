//! How many events came in during each of the last minutes, for the landing page.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

/// How many minutes are kept.
const MINUTES: usize = 60;

/// Counts events by the minute in which they were counted; cheap to clone, every clone is the same handle.
#[derive(Clone, Debug)]
pub struct Recent {
    started: Instant,
    minutes: Arc<Mutex<Minutes>>,
}

#[derive(Debug)]
struct Minutes {
    counts: [u64; MINUTES],
    /// The minute since the start that the newest count belongs to.
    newest: u64,
}

// === impl Recent ===

impl Default for Recent {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            minutes: Arc::new(Mutex::new(Minutes {
                counts: [0; MINUTES],
                newest: 0,
            })),
        }
    }
}

impl Recent {
    /// Events were counted now.
    pub fn record(&self, events: u64) {
        let mut minutes = self.current();
        let place = place(minutes.newest);
        minutes.counts[place] = minutes.counts[place].saturating_add(events);
    }

    /// Events in each minute since the start, the last 60 at most; the current one, which is not over yet, last.
    pub fn per_minute(&self) -> Vec<u64> {
        let minutes = self.current();
        let oldest = (minutes.newest + 1).saturating_sub(MINUTES as u64);
        (oldest..=minutes.newest)
            .map(|minute| minutes.counts[place(minute)])
            .collect()
    }

    /// The counts, with those cleared whose minute has passed out of sight.
    fn current(&self) -> MutexGuard<'_, Minutes> {
        let minute = self.started.elapsed().as_secs() / 60;
        let mut minutes = self.minutes.lock().unwrap_or_else(PoisonError::into_inner);
        for passed in (minutes.newest + 1..=minute).take(MINUTES) {
            minutes.counts[place(passed)] = 0;
        }
        minutes.newest = minutes.newest.max(minute);
        minutes
    }
}

fn place(minute: u64) -> usize {
    usize::try_from(minute % MINUTES as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn events_are_counted_in_their_minute() {
        let recent = Recent::default();
        assert_eq!(recent.per_minute(), [0]);
        recent.record(3);
        recent.record(4);
        tokio::time::advance(MINUTE * 2).await;
        recent.record(1);
        assert_eq!(recent.per_minute(), [7, 0, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_hour_is_kept_and_no_more() {
        let recent = Recent::default();
        for minute in 0..90 {
            recent.record(minute);
            tokio::time::advance(MINUTE).await;
        }
        let expected: Vec<u64> = (31..90).chain([0]).collect();
        assert_eq!(recent.per_minute(), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_long_silence_nothing_is_left() {
        let recent = Recent::default();
        recent.record(9);
        tokio::time::advance(MINUTE * 1000).await;
        assert_eq!(recent.per_minute(), [0; MINUTES]);
        recent.record(2);
        assert_eq!(recent.per_minute().last(), Some(&2));
    }
}
