//! Liveness of the loops and readiness of the process. An outage of a peer affects neither.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::metrics::Loop;
use crate::util::lock;

/// A loop without a beat for this long is stuck in a computation or a lock. No computation of a round takes more than a
/// second or two.
const SILENCE: Duration = Duration::from_secs(5 * 60);

/// The maximum time of a round. Each wait of a round is bounded: a request by its time limit and attempts, a pause that
/// the service asks for by an hour, a scan by three attempts of limited length. This is more than their sum.
pub const LONGEST_ROUND: Duration = Duration::from_secs(48 * 60 * 60);

/// The maximum time of a round of the relay, which is one request and a few rows in the state file.
pub const LONGEST_RELAY_ROUND: Duration = Duration::from_secs(6 * 60 * 60);

/// The state behind `/-/healthy` and `/-/ready`. Clones are the same handle.
///
/// A watched loop beats once a round, while a round waits for a peer or a disk ([`Health::round`]), and while it sleeps
/// ([`Health::waiting`]).
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Cancelled when the exporter is ready.
    ready: CancellationToken,
    beats: Mutex<Beats>,
}

/// The last beat of each loop that is watched.
type Beats = [Option<Instant>; Loop::ALL.len()];

/// A loop that has not beaten in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// The loop.
    pub which: Loop,
    /// The time since its last beat.
    pub silent: Duration,
}

/// A loop is watched until this is dropped.
#[derive(Debug)]
pub struct Watched(Health, Loop);

// === impl Health ===

impl Health {
    /// Watches a loop until the guard is dropped, which means that the loop ended normally.
    #[must_use]
    pub fn watched(&self, which: Loop) -> Watched {
        self.watch(which, Instant::now());
        Watched(self.clone(), which)
    }

    /// Watches a loop whose last beat was at `last`.
    pub fn watch(&self, which: Loop, last: Instant) {
        self.beats()[which as usize] = Some(last);
    }

    /// Beats for a loop while it waits. Only for waits such as a sleep: work that hangs would look alive.
    pub async fn waiting<F: Future>(&self, which: Loop, wait: F) -> F::Output {
        let mut ticks = tokio::time::interval(SILENCE / 4);
        tokio::pin!(wait);
        loop {
            tokio::select! {
                biased;
                output = &mut wait => {
                    self.beat(which);
                    return output;
                }
                _ = ticks.tick() => self.beat(which),
            }
        }
    }

    /// Runs a round of a loop and beats while it waits, for at most [`LONGEST_ROUND`] or [`LONGEST_RELAY_ROUND`].
    pub async fn round<F: Future>(&self, which: Loop, round: F) -> F::Output {
        tokio::pin!(round);
        let longest = match which {
            Loop::Otlp => LONGEST_RELAY_ROUND,
            _ => LONGEST_ROUND,
        };
        let in_time = self.waiting(which, &mut round);
        if let Ok(output) = tokio::time::timeout(longest, in_time).await {
            return output;
        }
        tracing::error!(
            loop = which.as_str(),
            "a round did not end in time; /-/healthy fails until it ends or the exporter is restarted"
        );
        let output = round.await;
        self.beat(which);
        output
    }

    /// Returns the watched loops that have not beaten in time.
    pub fn stuck(&self) -> Vec<Stuck> {
        let beats = *self.beats();
        let stuck = |which: Loop| {
            let silent = beats[which as usize]?.elapsed();
            (silent > SILENCE).then_some(Stuck { which, silent })
        };
        Loop::ALL.into_iter().filter_map(stuck).collect()
    }

    /// Reports that the settings are valid, the state file is open and the port is bound.
    pub fn set_ready(&self) {
        self.0.ready.cancel();
    }

    /// Returns whether the exporter is ready.
    pub fn is_ready(&self) -> bool {
        self.0.ready.is_cancelled()
    }

    /// Waits until the exporter is ready, for at most `longest`; returns whether it is.
    pub async fn ready_within(&self, longest: Duration) -> bool {
        let ready = tokio::time::timeout(longest, self.0.ready.cancelled());
        ready.await.is_ok()
    }

    fn beat(&self, which: Loop) {
        if let Some(last) = &mut self.beats()[which as usize] {
            *last = Instant::now();
        }
    }

    fn beats(&self) -> MutexGuard<'_, Beats> {
        lock(&self.0.beats)
    }
}

// === impl Watched ===

impl Drop for Watched {
    fn drop(&mut self) {
        self.0.beats()[self.1 as usize] = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_silent_loop_is_stuck_until_it_beats() {
        let health = Health::default();
        let _audit = health.watched(Loop::Audit);
        drop(health.watched(Loop::Otlp));
        health.beat(Loop::Tickets);
        tokio::time::advance(SILENCE).await;
        assert_eq!(health.stuck(), []);
        tokio::time::advance(SILENCE).await;
        let stuck = Stuck {
            which: Loop::Audit,
            silent: SILENCE * 2,
        };
        assert_eq!(
            health.stuck(),
            [stuck],
            "not the loops that ended or are off"
        );
        health.beat(Loop::Audit);
        assert_eq!(health.stuck(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_waits_is_alive() {
        let health = Health::default();
        let _watched = health.watched(Loop::Audit);
        let waiting = {
            let health = health.clone();
            let wait = tokio::time::sleep(SILENCE * 20);
            tokio::spawn(async move { health.waiting(Loop::Audit, wait).await })
        };
        for _ in 0..30 {
            tokio::time::sleep(SILENCE / 2).await;
            assert_eq!(health.stuck(), []);
        }
        waiting.await.expect("no panic");
        tokio::time::advance(SILENCE * 2).await;
        assert_eq!(health.stuck().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_round_that_never_ends_is_stuck() {
        let health = Health::default();
        let _watched = health.watched(Loop::Audit);
        let round = tokio::spawn({
            let health = health.clone();
            let never = std::future::pending::<()>();
            async move { health.round(Loop::Audit, never).await }
        });
        tokio::time::sleep(LONGEST_ROUND - Duration::from_secs(1)).await;
        assert_eq!(health.stuck(), []);
        tokio::time::sleep(SILENCE * 2).await;
        assert_eq!(health.stuck().len(), 1);
        round.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_round_that_computes_too_long_is_stuck_until_it_goes_on() {
        let health = Health::default();
        let _watched = health.watched(Loop::Tickets);
        let mut round = Box::pin(health.round(Loop::Tickets, std::future::pending::<()>()));
        assert!(futures_util::poll!(round.as_mut()).is_pending());
        // A computation does not let the round be polled.
        tokio::time::advance(SILENCE + Duration::from_secs(1)).await;
        assert_eq!(health.stuck().len(), 1);
        assert!(futures_util::poll!(round.as_mut()).is_pending());
        assert_eq!(health.stuck(), []);
    }
}
