//! The request budget of all loops: a token bucket with a share for each of them, which the service can pause.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// The longest time that a request waits for a pause to end. A longer pause is an error at once.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// The number of live polls that may go out in a row while other requests wait.
const LIVE_IN_A_ROW: u32 = 3;

/// What a request is for. Live polls go first; the others take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// A live poll of the audit logs.
    Live,
    /// A page of an open range.
    Range,
    /// A page of the search for late rows.
    Reread,
    /// A page of the tickets.
    Tickets,
}

/// A token bucket of at most one second's requests.
#[derive(Debug)]
pub(super) struct Budget {
    /// The time between two requests at the full rate.
    interval: Duration,
    state: Mutex<State>,
    /// Notified when a request stops waiting.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    /// When the bucket would be empty if every request had been sent at the full rate.
    horizon: Instant,
    /// When the pause ends that the service asked for.
    paused_until: Instant,
    /// The paused time before it has been reported, or is in `unreported`.
    reported_until: Instant,
    unreported: Duration,
    /// Requests that wait, by priority.
    waiting: [u32; 4],
    live_in_a_row: u32,
    /// The priority of the last request that was not live.
    last: usize,
}

/// The service asked for a pause that is longer than a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Paused {
    /// The time that requests waited and that has not been reported yet.
    pub(super) waited: Duration,
    /// The rest of the pause.
    pub(super) left: Duration,
}

/// Whether a request may be sent.
enum Turn {
    Now,
    /// The service asked for a pause until then.
    Paused(Instant),
    /// The budget is used up until then.
    Spent(Instant),
    /// A request of another priority is next.
    Behind,
}

/// A place among the waiting requests. Dropping it lets the others go on.
struct Place<'a>(&'a Budget, Priority);

// === impl Budget ===

impl Budget {
    /// Returns a budget of `rate` requests a second, with bursts of a second's worth (at least one).
    pub(super) fn new(rate: f64) -> Self {
        let now = Instant::now();
        let state = State {
            horizon: now,
            paused_until: now,
            reported_until: now,
            unreported: Duration::ZERO,
            waiting: [0; 4],
            live_in_a_row: 0,
            last: Priority::Tickets as usize,
        };
        Self {
            interval: Duration::from_secs_f64(1.0 / rate),
            state: Mutex::new(state),
            changed: Notify::new(),
        }
    }

    /// Waits for a turn and takes it. Returns the time that requests waited and that has not been returned before.
    pub(super) async fn acquire(&self, priority: Priority) -> Result<Duration, Paused> {
        let _place = Place::new(self, priority);
        let mut waited = Duration::ZERO;
        loop {
            let changed = self.changed.notified();
            let now = Instant::now();
            match self.try_acquire(priority, now) {
                Turn::Now => return Ok(waited + self.lock().paused_time(now)),
                Turn::Paused(until) if until - now > LONGEST_WAIT => {
                    return Err(Paused {
                        waited: waited + self.lock().paused_time(now),
                        left: until - now,
                    });
                }
                Turn::Paused(until) => tokio::time::sleep_until(until).await,
                Turn::Spent(until) => {
                    tokio::time::sleep_until(until).await;
                    waited += now.elapsed();
                }
                Turn::Behind => {
                    changed.await;
                    waited += now.elapsed();
                }
            }
        }
    }

    /// Holds every request for `wait`, as the service asked.
    pub(super) fn pause(&self, wait: Duration) {
        let now = Instant::now();
        let mut state = self.lock();
        state.unreported = state.paused_time(now);
        state.reported_until = now;
        state.paused_until = state.paused_until.max(now + wait);
    }

    fn try_acquire(&self, priority: Priority, now: Instant) -> Turn {
        let mut state = self.lock();
        if state.paused_until > now {
            return Turn::Paused(state.paused_until);
        }
        if state.next() != priority as usize {
            return Turn::Behind;
        }
        let burst = self.interval.max(Duration::from_secs(1)) - self.interval;
        let earliest = state.horizon.checked_sub(burst).unwrap_or(state.horizon);
        if earliest > now {
            return Turn::Spent(earliest);
        }
        state.horizon = state.horizon.max(now) + self.interval;
        if priority == Priority::Live {
            state.live_in_a_row += 1;
        } else {
            (state.live_in_a_row, state.last) = (0, priority as usize);
        }
        Turn::Now
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl State ===

impl State {
    /// Returns the priority whose turn it is.
    fn next(&self) -> usize {
        // The three others in a circle, beginning after the last one.
        let others = (0..3).map(|step| (self.last + step) % 3 + 1);
        let other = others.into_iter().find(|other| self.waiting[*other] > 0);
        let is_live = self.waiting[Priority::Live as usize] > 0;
        match other {
            Some(other) if !is_live || self.live_in_a_row >= LIVE_IN_A_ROW => other,
            _ => Priority::Live as usize,
        }
    }

    /// Returns the time of pauses that passed since the last call.
    fn paused_time(&mut self, now: Instant) -> Duration {
        let end = self.paused_until.min(now);
        let passed = end.saturating_duration_since(self.reported_until);
        self.reported_until = self.reported_until.max(end);
        std::mem::take(&mut self.unreported) + passed
    }
}

// === impl Place ===

impl<'a> Place<'a> {
    fn new(budget: &'a Budget, priority: Priority) -> Self {
        budget.lock().waiting[priority as usize] += 1;
        Self(budget, priority)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.lock().waiting[self.1 as usize] -= 1;
        self.0.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    async fn turn(budget: &Budget, priority: Priority) -> Duration {
        budget.acquire(priority).await.expect("no long pause")
    }

    /// Sends requests of one priority for ever, `concurrent` at a time, and counts them.
    fn load(budget: &Arc<Budget>, priority: Priority, concurrent: usize) -> Arc<Mutex<u32>> {
        let sent = Arc::new(Mutex::new(0));
        for _ in 0..concurrent {
            let (budget, sent) = (Arc::clone(budget), Arc::clone(&sent));
            tokio::spawn(async move {
                loop {
                    turn(&budget, priority).await;
                    *sent.lock().expect("not poisoned") += 1;
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            });
        }
        sent
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_never_sees_more_than_its_burst_and_the_rate_holds() {
        let budget = Budget::new(5.0);
        let started = Instant::now();
        for _ in 0..25 {
            turn(&budget, Priority::Live).await;
        }
        // Five at once, then twenty at five a second.
        assert_eq!(started.elapsed().as_millis(), 4000);
    }

    #[tokio::test(start_paused = true)]
    async fn no_priority_starves_another() {
        let budget = Arc::new(Budget::new(5.0));
        let tickets = load(&budget, Priority::Tickets, 4);
        let range = load(&budget, Priority::Range, 1);
        let reread = load(&budget, Priority::Reread, 1);
        tokio::time::sleep(Duration::from_secs(60)).await;
        for sent in [&tickets, &range, &reread] {
            let sent = *sent.lock().expect("not poisoned");
            assert!((95..=105).contains(&sent), "{sent} of 300 in a minute");
        }
        // More live polls than the whole budget.
        let live = load(&budget, Priority::Live, 8);
        for sent in [&tickets, &range, &reread] {
            *sent.lock().expect("not poisoned") = 0;
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        for (sent, expected) in [(live, 225), (tickets, 25), (range, 25), (reread, 25)] {
            let sent = *sent.lock().expect("not poisoned");
            assert!(sent.abs_diff(expected) <= 5, "{sent}, {expected} expected");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_live_poll_waits_for_one_request_at_most() {
        let budget = Arc::new(Budget::new(1.0));
        load(&budget, Priority::Tickets, 4);
        load(&budget, Priority::Range, 4);
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_secs(15)).await;
            assert!(turn(&budget, Priority::Live).await <= Duration::from_secs(1));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_gives_up_blocks_no_other() {
        let budget = Arc::new(Budget::new(1.0));
        turn(&budget, Priority::Live).await;
        let urgent = tokio::spawn({
            let budget = budget.clone();
            async move { budget.acquire(Priority::Live).await }
        });
        tokio::task::yield_now().await;
        urgent.abort();
        let _ = urgent.await;
        turn(&budget, Priority::Range).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_holds_all_requests() {
        let budget = Budget::new(100.0);
        budget.pause(LONGEST_WAIT);
        assert_eq!(turn(&budget, Priority::Live).await, LONGEST_WAIT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_pause_is_an_error_and_its_time_is_reported_once() {
        let budget = Arc::new(Budget::new(100.0));
        budget.pause(LONGEST_WAIT);
        let waiting = tokio::spawn({
            let budget = budget.clone();
            async move { budget.acquire(Priority::Live).await }
        });
        tokio::task::yield_now().await;
        budget.pause(Duration::from_secs(100));
        let paused = |waited, left| {
            Err(Paused {
                waited: Duration::from_secs(waited),
                left: Duration::from_secs(left),
            })
        };
        assert_eq!(budget.acquire(Priority::Tickets).await, paused(0, 100));
        // A request that waited before learns of it too.
        assert_eq!(waiting.await.expect("no panic"), paused(10, 90));
        tokio::time::advance(Duration::from_secs(40)).await;
        assert_eq!(budget.acquire(Priority::Live).await, paused(40, 50));
        assert_eq!(budget.acquire(Priority::Tickets).await, paused(0, 50));
        tokio::time::advance(Duration::from_secs(45)).await;
        // 45 s between the requests, and the rest of the pause in the queue.
        assert_eq!(turn(&budget, Priority::Live).await.as_secs(), 50);
        assert_eq!(turn(&budget, Priority::Tickets).await.as_secs(), 0);
        budget.pause(Duration::from_secs(20));
        assert_eq!(budget.acquire(Priority::Live).await, paused(0, 20));
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(
            turn(&budget, Priority::Live).await.as_secs(),
            20,
            "the pause was no longer"
        );
    }
}
