//! The request budget of both loops: a token bucket that serves requests in their order, and that the API can pause.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use strum::VariantArray as _;
use tokio::time::Instant;

use super::Endpoint;

/// The longest time that a request waits for a pause to end. A longer pause is an error at once.
pub const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// A token bucket of at most one second's requests. No loop starves the other: each has one request at a time, and so
/// at most one request of the other loop is served before it.
#[derive(Debug)]
pub(super) struct Budget {
    /// The time between two requests at the full rate.
    interval: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// When the bucket would be empty if every request had been sent at the full rate.
    horizon: Instant,
    /// When the pause of each endpoint ends that the API asked for.
    paused_until: [Instant; Endpoint::VARIANTS.len()],
    /// The time that requests waited and that has not been reported.
    waited: Duration,
    /// The paused time before it is in `waited`, or has been reported.
    settled_at: Instant,
}

// === impl Budget ===

impl Budget {
    /// Returns a budget of `rate` requests a second, with bursts of a second's worth (at least one).
    pub(super) fn new(rate: f64) -> Self {
        let now = Instant::now();
        Self {
            interval: Duration::from_secs_f64(1.0 / rate),
            state: Mutex::new(State {
                horizon: now,
                paused_until: [now; Endpoint::VARIANTS.len()],
                waited: Duration::ZERO,
                settled_at: now,
            }),
        }
    }

    /// Returns the longest time that a request waits for its turn: behind one of the other loop, and between two pauses.
    pub(super) fn longest_turn(&self) -> Duration {
        self.interval.saturating_mul(2) + 2 * LONGEST_WAIT
    }

    /// Waits for a turn of an endpoint and takes it.
    ///
    /// # Errors
    /// Returns the rest of a pause that is longer than a request waits.
    pub(super) async fn acquire(&self, endpoint: Endpoint) -> Result<(), Duration> {
        self.resumed(endpoint).await?;
        let turn = self.lock().reserve(self.interval);
        tokio::time::sleep_until(turn).await;
        // The API may have asked for a pause meanwhile.
        self.resumed(endpoint).await
    }

    /// Holds the requests to an endpoint for `wait`, as the API asked.
    pub(super) fn pause(&self, endpoint: Endpoint, wait: Duration) {
        let mut state = self.lock();
        let now = state.settle();
        let until = &mut state.paused_until[endpoint as usize];
        *until = (*until).max(now + wait);
    }

    /// Returns the time that requests waited and that has not been returned before.
    pub(super) fn take_waited(&self) -> Duration {
        let mut state = self.lock();
        state.settle();
        std::mem::take(&mut state.waited)
    }

    /// Waits until no pause holds the requests to an endpoint.
    async fn resumed(&self, endpoint: Endpoint) -> Result<(), Duration> {
        loop {
            let until = self.lock().paused_until[endpoint as usize];
            match until.saturating_duration_since(Instant::now()) {
                Duration::ZERO => return Ok(()),
                left if left > LONGEST_WAIT => return Err(left),
                _ => tokio::time::sleep_until(until).await,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl State ===

impl State {
    /// Takes the next turn and returns when it is.
    fn reserve(&mut self, interval: Duration) -> Instant {
        let now = Instant::now();
        let burst = interval.max(Duration::from_secs(1)) - interval;
        let turn = self.horizon.checked_sub(burst).unwrap_or(now).max(now);
        self.horizon = self.horizon.max(now) + interval;
        self.waited += turn - now;
        turn
    }

    /// Adds the time of the longer pause that has passed to the time waited. Returns the time.
    fn settle(&mut self) -> Instant {
        let now = Instant::now();
        let end = self
            .paused_until
            .iter()
            .max()
            .map_or(now, |until| now.min(*until));
        self.waited += end.saturating_duration_since(self.settled_at);
        self.settled_at = now;
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_second_never_sees_more_than_its_burst_and_the_rate_holds() {
        let budget = Budget::new(5.0);
        let started = Instant::now();
        for _ in 0..25 {
            let turn = budget.acquire(Endpoint::AuditLogs).await;
            turn.expect("there is no pause");
        }
        // Five at once, then twenty at five a second.
        assert_eq!(started.elapsed().as_millis(), 4000);
        assert_eq!(budget.take_waited().as_millis(), 4000);
    }
}
