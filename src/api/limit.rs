//! The client-side rate limit: one budget for both loops, handed out by priority, and paused when the service asks for it.

use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// Who goes first on the shared budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// The live poll of the audit logs.
    Live,
    /// The scan of the tickets.
    Tickets,
    /// Walks over older audit log pages.
    Walk,
}

/// A token bucket of at most one second's requests.
#[derive(Debug)]
pub struct Limiter {
    /// Time between two requests at the full rate.
    interval: Duration,
    state: Mutex<State>,
    /// Woken whenever a request of some priority went out.
    went: Notify,
}

#[derive(Debug)]
struct State {
    /// When the bucket would be empty had every request been sent at the full rate.
    horizon: Instant,
    /// The service asked for silence until then.
    paused_until: Option<Instant>,
    /// Requests that wait, by priority.
    waiting: [u32; 3],
}

/// A place in the queue; leaving it, also by being dropped, lets others go on.
struct Waiting<'a>(&'a Limiter, Priority);

// === impl Limiter ===

impl Limiter {
    /// At most `rate` requests a second, with bursts of a second's worth (at least one).
    pub fn new(rate: f64) -> Self {
        let state = State { horizon: Instant::now(), paused_until: None, waiting: [0; 3] };
        Self { interval: Duration::from_secs_f64(1.0 / rate), state: Mutex::new(state), went: Notify::new() }
    }

    /// Waits for a turn and takes it; returns how long that took.
    pub async fn acquire(&self, priority: Priority) -> Duration {
        let started = Instant::now();
        let _place = Waiting::new(self, priority);
        loop {
            let went = self.went.notified();
            match self.try_acquire(priority) {
                Ok(()) => return started.elapsed(),
                Err(Some(until)) => tokio::time::sleep_until(until).await,
                Err(None) => went.await,
            }
        }
    }

    /// Holds every request for `wait`: the service asked for it.
    pub fn pause(&self, wait: Duration) {
        let until = Instant::now() + wait;
        let mut state = self.lock();
        state.paused_until = Some(state.paused_until.map_or(until, |earlier| earlier.max(until)));
    }

    /// `Err(Some)`: not before then. `Err(None)`: somebody more urgent is first.
    fn try_acquire(&self, priority: Priority) -> Result<(), Option<Instant>> {
        let now = Instant::now();
        let mut state = self.lock();
        if let Some(until) = state.paused_until {
            if until > now {
                return Err(Some(until));
            }
            state.paused_until = None;
        }
        if state.waiting[..priority as usize].iter().any(|waiting| *waiting > 0) {
            return Err(None);
        }
        let burst = self.interval.max(Duration::from_secs(1)) - self.interval;
        let earliest = state.horizon.checked_sub(burst).unwrap_or(state.horizon);
        if earliest > now {
            return Err(Some(earliest));
        }
        state.horizon = state.horizon.max(now) + self.interval;
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

// === impl Waiting ===

impl<'a> Waiting<'a> {
    fn new(limiter: &'a Limiter, priority: Priority) -> Self {
        limiter.lock().waiting[priority as usize] += 1;
        Self(limiter, priority)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.lock().waiting[self.1 as usize] -= 1;
        self.0.went.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_second_never_sees_more_than_its_burst_and_the_rate_holds() {
        let limiter = Limiter::new(5.0);
        let started = Instant::now();
        for _ in 0..25 {
            limiter.acquire(Priority::Live).await;
        }
        // Five at once, then twenty at five a second.
        assert_eq!(started.elapsed().as_millis(), 4000);
    }

    #[tokio::test(start_paused = true)]
    async fn the_live_poll_overtakes_a_waiting_walk() {
        let limiter = Arc::new(Limiter::new(1.0));
        limiter.acquire(Priority::Walk).await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let spawn = |priority| {
            let (limiter, order) = (limiter.clone(), order.clone());
            tokio::spawn(async move {
                limiter.acquire(priority).await;
                order.lock().expect("not poisoned").push(priority);
            })
        };
        let tasks = [spawn(Priority::Walk), spawn(Priority::Tickets), spawn(Priority::Live)];
        for task in tasks {
            task.await.expect("no panic");
        }
        assert_eq!(*order.lock().expect("not poisoned"), [Priority::Live, Priority::Tickets, Priority::Walk]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_that_gives_up_blocks_nobody() {
        let limiter = Arc::new(Limiter::new(1.0));
        limiter.acquire(Priority::Live).await;
        let urgent = tokio::spawn({
            let limiter = limiter.clone();
            async move { limiter.acquire(Priority::Live).await }
        });
        tokio::task::yield_now().await;
        urgent.abort();
        let _ = urgent.await;
        limiter.acquire(Priority::Walk).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_holds_everybody() {
        let limiter = Limiter::new(100.0);
        limiter.pause(Duration::from_secs(30));
        assert_eq!(limiter.acquire(Priority::Live).await.as_secs(), 30);
    }
}
