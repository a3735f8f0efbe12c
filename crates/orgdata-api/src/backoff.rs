//! Delays between attempts: exponential, with jitter.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

/// An endless sequence of growing delays.
#[derive(Debug)]
pub struct Backoff {
    first: Duration,
    builder: ExponentialBuilder,
    delays: ExponentialBackoff,
}

// === impl Backoff ===

impl Default for Backoff {
    /// Returns delays from 1 s to 30 s.
    fn default() -> Self {
        Self::new(Duration::from_secs(1), Duration::from_secs(30))
    }
}

impl Backoff {
    /// Returns delays that double from `first` and never exceed `longest`. Jitter adds up to 100 %.
    pub fn new(first: Duration, longest: Duration) -> Self {
        let builder = ExponentialBuilder::new()
            .with_min_delay(first)
            .with_max_delay(longest / 2)
            .with_factor(2.0)
            .with_jitter()
            .without_max_times();
        Self {
            first,
            builder,
            delays: builder.build(),
        }
    }

    /// Returns the next delay. A delay that the server gave wins unless it is shorter than the first one.
    pub fn next(&mut self, server: Option<Duration>) -> Duration {
        let own = self.delays.next().unwrap_or(self.first);
        server.map_or(own, |delay| delay.max(self.first))
    }

    /// Begins with the first delay again, after a success.
    pub fn reset(&mut self) {
        self.delays = self.builder.build();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_longest_and_begin_again_after_a_success() {
        let mut backoff = Backoff::default();
        for _ in 0..2 {
            for expected in [1.0, 2.0, 4.0, 8.0, 15.0, 15.0, 15.0] {
                let delay = backoff.next(None).as_secs_f64();
                assert!((expected..=2.0 * expected).contains(&delay), "{delay}");
            }
            backoff.reset();
        }
    }

    #[test]
    fn the_server_s_delay_wins_unless_it_is_too_short() {
        let mut backoff = Backoff::default();
        for (server, expected) in [(90, 90), (2, 2), (0, 1)] {
            let delay = backoff.next(Some(Duration::from_secs(server)));
            assert_eq!(delay, Duration::from_secs(expected));
        }
    }
}
