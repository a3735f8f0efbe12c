//! Liveness of the loops and readiness of the process. An outage of a peer affects neither.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

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
    is_ready: watch::Sender<bool>,
    beats: Mutex<[Option<Beat>; Loop::ALL.len()]>,
}

/// The last beat of a watched loop, and the maximum time until the next one.
#[derive(Clone, Copy, Debug)]
struct Beat {
    last: Instant,
    deadline: Duration,
}

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
        self.watch(which, SILENCE);
        Watched(self.clone(), which)
    }

    /// Watches a loop that has to beat at least once in `deadline`.
    pub fn watch(&self, which: Loop, deadline: Duration) {
        self.beats()[which as usize] = Some(Beat {
            last: Instant::now(),
            deadline,
        });
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
            let beat = beats[which as usize]?;
            let silent = beat.last.elapsed();
            (silent > beat.deadline).then_some(Stuck { which, silent })
        };
        Loop::ALL.into_iter().filter_map(stuck).collect()
    }

    /// Sets readiness: the settings are valid, the state file is open and the port is bound.
    pub fn set_ready(&self, is_ready: bool) {
        self.0.is_ready.send_replace(is_ready);
    }

    /// Returns whether the exporter is ready.
    pub fn is_ready(&self) -> bool {
        *self.0.is_ready.borrow()
    }

    /// Waits until the exporter is ready, for at most `longest`; returns whether it is.
    pub async fn ready_within(&self, longest: Duration) -> bool {
        let mut is_ready = self.0.is_ready.subscribe();
        let ready = is_ready.wait_for(|is_ready| *is_ready);
        matches!(tokio::time::timeout(longest, ready).await, Ok(Ok(_)))
    }

    fn beat(&self, which: Loop) {
        if let Some(beat) = &mut self.beats()[which as usize] {
            beat.last = Instant::now();
        }
    }

    fn beats(&self) -> MutexGuard<'_, [Option<Beat>; Loop::ALL.len()]> {
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
