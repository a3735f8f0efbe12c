//! Whether the process turns and whether it is set up; never whether the upstream is well.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::metrics::Loop;

/// What `/-/healthy` and `/-/ready` answer from; cheap to clone, every clone is the same handle.
///
/// A loop that is watched has to beat. It beats once a step and, through [`Health::waiting`], while it waits: for an
/// upstream, a disk or a backlog. What never beats is stuck, and a restart is what helps.
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

// === impl Health ===

impl Health {
    /// From now on the loop has to beat at least once in `deadline`: longer than its longest single step, time-outs included.
    pub fn watch(&self, which: Loop, deadline: Duration) {
        self.beats()[which as usize] = Some(Beat { last: Instant::now(), deadline });
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
        let every = self.beats()[which as usize].map_or(Duration::from_secs(10), |beat| beat.deadline / 4);
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
        assert_eq!(health.stuck(), [Stuck { which: Loop::Audit, silent: DEADLINE * 2 }]);
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
            tokio::spawn(async move { health.waiting(Loop::Audit, tokio::time::sleep(DEADLINE * 20)).await })
        };
        for _ in 0..30 {
            tokio::time::sleep(DEADLINE / 2).await;
            assert_eq!(health.stuck(), []);
        }
        waiting.await.unwrap();
        tokio::time::advance(DEADLINE * 2).await;
        assert_eq!(health.stuck().len(), 1);
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
