//! Whether the loops turn and whether the process is set up; never whether the upstream is well.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::metrics::Loop;

/// A loop that has not been seen to turn for so long is stuck: it sits in a computation or a lock, and lets nothing else of
/// itself run. No computation of a round takes more than a second or two.
const SILENCE: Duration = Duration::from_secs(5 * 60);

/// A round that takes longer waits for something that will not come. All that a round waits for is bounded: a request by its
/// time-out and its few attempts, the pause that the service asks for by an hour, and a scan by three times
/// [`MAX_SCAN`](crate::tickets::MAX_SCAN), which is also how long it may keep a walk from the shared budget of requests.
/// Together that is half of this.
pub const LONGEST_ROUND: Duration = Duration::from_secs(48 * 60 * 60);

/// The same for the relay, whose round is one request and a few lines in the state file.
pub const LONGEST_RELAY_ROUND: Duration = Duration::from_secs(6 * 60 * 60);

/// What `/-/healthy` and `/-/ready` answer from; cheap to clone, every clone is the same handle.
///
/// A loop that is watched has to beat: once a round, and while a round waits for an upstream or a disk ([`Health::round`]),
/// and while it pauses ([`Health::waiting`]). What never beats is stuck, and a restart is what helps.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    ready: AtomicBool,
    beats: Mutex<[Option<Beat>; Loop::ALL.len()]>,
}

#[derive(Clone, Copy, Debug)]
struct Beat {
    last: Instant,
    deadline: Duration,
}

/// A loop that has not beaten in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// Which one.
    pub which: Loop,
    /// How long it has been silent.
    pub silent: Duration,
}

/// A loop that is watched for as long as this lives.
#[derive(Debug)]
pub struct Watched(Health, Loop);

// === impl Health ===

impl Health {
    /// From now on the loop is watched, until the guard is dropped: it ended as it should, and its silence means nothing more.
    #[must_use]
    pub fn watched(&self, which: Loop) -> Watched {
        self.watch(which, SILENCE);
        Watched(self.clone(), which)
    }

    /// From now on the loop has to beat at least once in `deadline`: longer than its longest single computation.
    pub fn watch(&self, which: Loop, deadline: Duration) {
        self.beats()[which as usize] = Some(Beat {
            last: Instant::now(),
            deadline,
        });
    }

    /// The loop ended as it should; its silence means nothing any more.
    pub fn unwatch(&self, which: Loop) {
        self.beats()[which as usize] = None;
    }

    /// The loop turns. Without effect on a loop that is not watched.
    pub fn beat(&self, which: Loop) {
        if let Some(beat) = &mut self.beats()[which as usize] {
            beat.last = Instant::now();
        }
    }

    /// Beats for the loop while it waits, however long that takes. For waits alone (a pause, a notification): work that
    /// hangs would look alive.
    pub async fn waiting<F: Future>(&self, which: Loop, wait: F) -> F::Output {
        let every =
            self.beats()[which as usize].map_or(Duration::from_secs(10), |beat| beat.deadline / 4);
        let mut ticks = tokio::time::interval(every.max(Duration::from_millis(1)));
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

    /// One round of a loop: beats while it waits for an upstream or a disk, as long as that can last at most. A round that
    /// computes for ever never comes to its beats, and one that waits for ever has none after [`LONGEST_ROUND`], the relay's
    /// after [`LONGEST_RELAY_ROUND`].
    pub async fn round<F: Future>(&self, which: Loop, round: F) -> F::Output {
        tokio::pin!(round);
        let longest = if which == Loop::Otlp {
            LONGEST_RELAY_ROUND
        } else {
            LONGEST_ROUND
        };
        match tokio::time::timeout(longest, self.waiting(which, &mut round)).await {
            Ok(output) => output,
            Err(_) => {
                tracing::error!(loop = which.as_str(), "a round does not end; /-/healthy fails from now on, so that whoever watches it starts the exporter again");
                let output = round.await;
                self.beat(which);
                output
            }
        }
    }

    /// The watched loops that have not beaten in time.
    pub fn stuck(&self) -> Vec<Stuck> {
        let beats = *self.beats();
        let stuck = |which: Loop| {
            let beat = beats[which as usize]?;
            let silent = beat.last.elapsed();
            (silent > beat.deadline).then_some(Stuck { which, silent })
        };
        Loop::ALL.into_iter().filter_map(stuck).collect()
    }

    /// Settings valid, ledger open, port bound: or no longer, while stopping.
    pub fn set_ready(&self, ready: bool) {
        self.0.ready.store(ready, Ordering::Release);
    }

    /// Whether the exporter is set up.
    pub fn is_ready(&self) -> bool {
        self.0.ready.load(Ordering::Acquire)
    }

    fn beats(&self) -> MutexGuard<'_, [Option<Beat>; Loop::ALL.len()]> {
        self.0.beats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Watched ===

impl Drop for Watched {
    fn drop(&mut self) {
        self.0.unwatch(self.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_beats_is_well() {
        let health = Health::default();
        health.watch(Loop::Audit, DEADLINE);
        for _ in 0..10 {
            tokio::time::advance(DEADLINE / 2).await;
            health.beat(Loop::Audit);
            assert_eq!(health.stuck(), []);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_loop_is_stuck_and_heals_with_a_beat() {
        let health = Health::default();
        health.watch(Loop::Audit, DEADLINE);
        health.watch(Loop::Tickets, DEADLINE * 10);
        tokio::time::advance(DEADLINE * 2).await;
        assert_eq!(
            health.stuck(),
            [Stuck {
                which: Loop::Audit,
                silent: DEADLINE * 2
            }]
        );
        health.beat(Loop::Audit);
        assert_eq!(health.stuck(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_is_off_or_ended_is_never_stuck() {
        let health = Health::default();
        health.beat(Loop::Tickets);
        health.watch(Loop::Otlp, DEADLINE);
        health.unwatch(Loop::Otlp);
        tokio::time::advance(DEADLINE * 2).await;
        assert_eq!(health.stuck(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_is_turning() {
        let health = Health::default();
        health.watch(Loop::Audit, DEADLINE);
        let waiting = {
            let health = health.clone();
            tokio::spawn(async move {
                health
                    .waiting(Loop::Audit, tokio::time::sleep(DEADLINE * 20))
                    .await
            })
        };
        for _ in 0..30 {
            tokio::time::sleep(DEADLINE / 2).await;
            assert_eq!(health.stuck(), []);
        }
        waiting.await.unwrap();
        tokio::time::advance(DEADLINE * 2).await;
        assert_eq!(health.stuck().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_round_that_waits_is_well_and_one_that_never_ends_is_stuck() {
        let health = Health::default();
        let _watched = health.watched(Loop::Audit);
        let round = tokio::spawn({
            let health = health.clone();
            async move {
                health
                    .round(Loop::Audit, std::future::pending::<()>())
                    .await
            }
        });
        tokio::time::sleep(LONGEST_ROUND - Duration::from_secs(1)).await;
        assert_eq!(health.stuck(), []);
        tokio::time::sleep(SILENCE * 2).await;
        assert_eq!(health.stuck().len(), 1);
        round.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_round_that_computes_for_ever_is_stuck() {
        let health = Health::default();
        let _watched = health.watched(Loop::Tickets);
        let mut round = Box::pin(health.round(Loop::Tickets, std::future::pending::<()>()));
        assert!(futures_util::poll!(round.as_mut()).is_pending());
        // Whoever computes does not let the round be polled.
        tokio::time::advance(SILENCE + Duration::from_secs(1)).await;
        assert_eq!(health.stuck().len(), 1);
        assert!(futures_util::poll!(round.as_mut()).is_pending());
        assert_eq!(health.stuck(), [], "it goes on after all");
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_ended_as_it_should_is_watched_no_more() {
        let health = Health::default();
        drop(health.watched(Loop::Otlp));
        tokio::time::advance(SILENCE * 2).await;
        assert_eq!(health.stuck(), []);
    }

    #[test]
    fn readiness_is_what_the_application_says() {
        let health = Health::default();
        assert!(!health.is_ready());
        health.set_ready(true);
        assert!(health.clone().is_ready());
        health.set_ready(false);
        assert!(!health.is_ready());
    }
}
