//! The number of events counted in each of the last minutes, for the landing page.

use std::collections::VecDeque;

use tokio::time::Instant;

/// The maximum number of minutes kept.
const MINUTES: u64 = 60;

/// Counts events by the minute in which they were counted.
#[derive(Debug)]
pub(super) struct Recent {
    started: Instant,
    /// Minutes since the start, and the events counted in each; minutes without events are left out.
    minutes: VecDeque<(u64, u64)>,
}

// === impl Recent ===

impl Default for Recent {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            minutes: VecDeque::new(),
        }
    }
}

impl Recent {
    /// Counts events now.
    pub(super) fn record(&mut self, events: u64) {
        let now = self.minute();
        match self.minutes.back_mut() {
            Some((minute, count)) if *minute == now => *count += events,
            _ => self.minutes.push_back((now, events)),
        }
        self.minutes.retain(|(minute, _)| minute + MINUTES > now);
    }

    /// Returns the events of each minute since the start, at most the last 60; the current minute comes last.
    pub(super) fn per_minute(&self) -> Vec<u64> {
        let now = self.minute();
        let count = |minute| {
            let found = self.minutes.iter().find(|(known, _)| *known == minute);
            found.map_or(0, |(_, count)| *count)
        };
        ((now + 1).saturating_sub(MINUTES)..=now)
            .map(count)
            .collect()
    }

    fn minute(&self) -> u64 {
        self.started.elapsed().as_secs() / 60
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn events_are_counted_in_their_minute() {
        let mut recent = Recent::default();
        assert_eq!(recent.per_minute(), [0]);
        recent.record(3);
        recent.record(4);
        tokio::time::advance(MINUTE * 2).await;
        recent.record(1);
        assert_eq!(recent.per_minute(), [7, 0, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_hour_is_kept() {
        let mut recent = Recent::default();
        for minute in 0..90 {
            recent.record(minute);
            tokio::time::advance(MINUTE).await;
        }
        let expected: Vec<u64> = (31..90).chain([0]).collect();
        assert_eq!(recent.per_minute(), expected);
        tokio::time::advance(MINUTE * 1000).await;
        assert_eq!(recent.per_minute(), [0; MINUTES as usize]);
    }
}
