//! Liveness of the loops and readiness of the process. An outage of a peer affects neither.
//!
//! A loop announces the longest duration of each step: a request, a disk access, a sleep. It is stuck if the step takes a few
//! minutes longer. So a request that never ends, a disk that hangs, a deadlock and an endless computation are all noticed, without
//! a second task.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::util::{labels, lock};

/// The path that answers whether the loops make progress.
pub(crate) const HEALTHY_PATH: &str = "/-/healthy";

/// The path that answers whether the exporter is set up.
pub(crate) const READY_PATH: &str = "/-/ready";

/// How much longer than announced a step may take. No computation takes that long, and no disk access unless the disk
/// is broken.
pub const SILENCE: Duration = Duration::from_secs(5 * 60);

/// The maximum time of all requests of a ticket scan: longer than all their pauses and attempts together.
pub const LONGEST_ROUND: Duration = Duration::from_secs(48 * 60 * 60);

/// The maximum time of a request to the collector.
pub(crate) const LONGEST_RELAY_ROUND: Duration = Duration::from_secs(6 * 60 * 60);

labels! {
    /// One of the exporter's loops.
    Loop {
        /// Reads the audit logs.
        Audit => "audit",
        /// Scans the tickets.
        Tickets => "tickets",
        /// Delivers log records.
        Otlp => "otlp",
    }
}

/// The state behind `/-/healthy` and `/-/ready`. Clones are the same handle.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Cancelled when the exporter is ready.
    ready: CancellationToken,
    /// When each watched loop began what it does, and how long that may take.
    begun: Mutex<[Option<(Instant, Duration)>; Loop::ALL.len()]>,
}

/// A stuck loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// The loop.
    pub which: Loop,
    /// The time since it began what it does.
    pub(crate) silent: Duration,
}

/// A loop is watched until this is dropped.
#[derive(Debug)]
pub struct Watched(Health, Loop);

/// A loop has finished what it began when this is dropped.
struct Begun<'a>(&'a Health, Loop);

// === impl Health ===

impl Health {
    /// Watches a loop until the guard is dropped, which means that the loop ended normally.
    #[must_use]
    pub fn watched(&self, which: Loop) -> Watched {
        lock(&self.0.begun)[which as usize] = Some((Instant::now(), Duration::ZERO));
        Watched(self.clone(), which)
    }

    /// Notes that a loop begins something that takes at most `limit`. Has no effect on a loop that is not watched.
    pub(crate) fn begin(&self, which: Loop, limit: Duration) {
        if let Some(begun) = &mut lock(&self.0.begun)[which as usize] {
            *begun = (Instant::now(), limit);
        }
    }

    /// Notes that a loop finished what it began.
    pub(crate) fn finished(&self, which: Loop) {
        self.begin(which, Duration::ZERO);
    }

    /// Runs what a loop begins, which takes at most `limit`. It is finished also if the future is dropped before its end.
    pub async fn within<F: Future>(&self, which: Loop, limit: Duration, work: F) -> F::Output {
        self.begin(which, limit);
        let _begun = Begun(self, which);
        work.await
    }

    /// Runs requests, which have time limits of their own. A call of the disk is not one: it may take minutes at most.
    pub(crate) async fn request<F: Future>(&self, which: Loop, request: F) -> F::Output {
        let limit = match which {
            Loop::Otlp => LONGEST_RELAY_ROUND,
            _ => LONGEST_ROUND,
        };
        self.within(which, limit, request).await
    }

    /// Waits for something that cannot hang, such as a sleep.
    pub(crate) async fn waiting<F: Future>(&self, which: Loop, wait: F) -> F::Output {
        self.within(which, Duration::MAX, wait).await
    }

    /// Returns the watched loops that are stuck.
    pub fn stuck(&self) -> Vec<Stuck> {
        let begun = *lock(&self.0.begun);
        let stuck = |which: Loop| {
            let (at, limit) = begun[which as usize]?;
            let silent = at.elapsed();
            (silent > limit.saturating_add(SILENCE)).then_some(Stuck { which, silent })
        };
        Loop::ALL.into_iter().filter_map(stuck).collect()
    }

    /// Reports that the settings are valid, the state file is open and the port is bound.
    pub fn set_ready(&self) {
        self.0.ready.cancel();
    }

    /// Returns whether the exporter is ready.
    pub(crate) fn is_ready(&self) -> bool {
        self.0.ready.is_cancelled()
    }

    /// Waits until the exporter is ready, for at most `longest`; returns whether it is.
    pub(crate) async fn ready_within(&self, longest: Duration) -> bool {
        let ready = tokio::time::timeout(longest, self.0.ready.cancelled());
        ready.await.is_ok()
    }
}

// === impl Watched ===

impl Drop for Watched {
    fn drop(&mut self) {
        lock(&self.0.0.begun)[self.1 as usize] = None;
    }
}

// === impl Begun ===

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.0.finished(self.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_loop_is_stuck_minutes_after_the_time_that_it_asked_for() {
        let health = Health::default();
        let _audit = health.watched(Loop::Audit);
        drop(health.watched(Loop::Otlp));
        health.begin(Loop::Tickets, Duration::ZERO);
        for limit in [0, 30, 3600, 7 * 86_400].map(Duration::from_secs) {
            health.begin(Loop::Audit, limit);
            tokio::time::advance(limit + SILENCE).await;
            assert_eq!(health.stuck(), []);
            let second = Duration::from_secs(1);
            tokio::time::advance(second).await;
            let stuck = Stuck {
                which: Loop::Audit,
                silent: limit + SILENCE + second,
            };
            assert_eq!(health.stuck(), [stuck], "not those that ended or are off");
            health.finished(Loop::Audit);
            assert_eq!(health.stuck(), []);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_disk_that_hangs_after_a_request_is_noticed_and_a_long_sleep_is_not() {
        let health = Health::default();
        let _watched = health.watched(Loop::Audit);
        health
            .waiting(Loop::Audit, tokio::time::sleep(SILENCE * 20))
            .await;
        assert_eq!(health.stuck(), []);
        let (request, disk) = (async {}, std::future::pending::<()>());
        health.within(Loop::Audit, SILENCE, request).await;
        let _ = tokio::time::timeout(SILENCE * 2, disk).await;
        assert_eq!(health.stuck().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_was_cancelled_leaves_no_time_for_what_follows() {
        let health = Health::default();
        let _watched = health.watched(Loop::Audit);
        let request = health.request(Loop::Audit, std::future::pending::<()>());
        let second = Duration::from_secs(1);
        let cancelled = tokio::time::timeout(second, request).await;
        assert!(cancelled.is_err());
        tokio::time::advance(SILENCE + second).await;
        assert_eq!(health.stuck().len(), 1);
    }
}
