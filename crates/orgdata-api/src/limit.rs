//! The client-side rate limit: one budget for both loops, handed out by priority, and paused when the service asks for it.

use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// The longest that a request waits for a pause of the service to end. Where it would be more the loop is told, and asks again later.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(10);

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
    /// A request was turned away then, and the time since has not been told as waiting.
    turned_away: Option<Instant>,
    /// Requests that wait, by priority.
    waiting: [u32; 3],
}

/// A request is turned away: the service asked for a pause that is longer than any request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnedAway {
    /// How long requests waited since that was last told.
    pub waited: Duration,
    /// How much of the pause is left.
    pub left: Duration,
}

/// Why it is not a request's turn.
enum NotYet {
    /// The service asked for silence until then.
    Paused(Instant),
    /// The budget is used up until then.
    Spent(Instant),
    /// Somebody more urgent is first.
    Behind,
}

/// A place in the queue; leaving it, also by being dropped, lets others go on.
struct Waiting<'a>(&'a Limiter, Priority);

// === impl Limiter ===

impl Limiter {
    /// At most `rate` requests a second, with bursts of a second's worth (at least one).
    pub fn new(rate: f64) -> Self {
        let state = State {
            horizon: Instant::now(),
            paused_until: None,
            turned_away: None,
            waiting: [0; 3],
        };
        Self {
            interval: Duration::from_secs_f64(1.0 / rate),
            state: Mutex::new(state),
            went: Notify::new(),
        }
    }

    /// Waits for a turn and takes it; returns how long requests waited since that was last told.
    ///
    /// # Errors
    /// Where the service asked for a pause that still lasts longer than ten seconds: at once.
    pub async fn acquire(&self, priority: Priority) -> Result<Duration, TurnedAway> {
        let started = Instant::now();
        let before = self.lock().waited_outside(started);
        let _place = Waiting::new(self, priority);
        loop {
            let went = self.went.notified();
            match self.try_acquire(priority) {
                Ok(()) => return Ok(before + started.elapsed()),
                Err(NotYet::Paused(until)) if until - Instant::now() > LONGEST_WAIT => {
                    let now = Instant::now();
                    self.lock().turned_away = Some(now);
                    return Err(TurnedAway {
                        waited: before + (now - started),
                        left: until - now,
                    });
                }
                Err(NotYet::Paused(until) | NotYet::Spent(until)) => {
                    tokio::time::sleep_until(until).await
                }
                Err(NotYet::Behind) => went.await,
            }
        }
    }

    /// Holds every request for `wait`: the service asked for it.
    pub fn pause(&self, wait: Duration) {
        let until = Instant::now() + wait;
        let mut state = self.lock();
        state.paused_until = Some(
            state
                .paused_until
                .map_or(until, |earlier| earlier.max(until)),
        );
    }

    fn try_acquire(&self, priority: Priority) -> Result<(), NotYet> {
        let now = Instant::now();
        let mut state = self.lock();
        if let Some(until) = state.paused_until.filter(|until| *until > now) {
            return Err(NotYet::Paused(until));
        }
        if state.waiting[..priority as usize]
            .iter()
            .any(|waiting| *waiting > 0)
        {
            return Err(NotYet::Behind);
        }
        let burst = self.interval.max(Duration::from_secs(1)) - self.interval;
        let earliest = state.horizon.checked_sub(burst).unwrap_or(state.horizon);
        if earliest > now {
            return Err(NotYet::Spent(earliest));
        }
        state.horizon = state.horizon.max(now) + self.interval;
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

// === impl State ===

impl State {
    /// How much of a pause passed since a request was turned away: it waits, and not in here.
    fn waited_outside(&mut self, now: Instant) -> Duration {
        let end = self.paused_until.map_or(now, |until| until.min(now));
        self.turned_away
            .take()
            .map_or(Duration::ZERO, |since| end.saturating_duration_since(since))
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

    async fn turn(limiter: &Limiter, priority: Priority) -> Duration {
        limiter.acquire(priority).await.expect("no long pause")
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_never_sees_more_than_its_burst_and_the_rate_holds() {
        let limiter = Limiter::new(5.0);
        let started = Instant::now();
        for _ in 0..25 {
            turn(&limiter, Priority::Live).await;
        }
        // Five at once, then twenty at five a second.
        assert_eq!(started.elapsed().as_millis(), 4000);
    }

    #[tokio::test(start_paused = true)]
    async fn the_live_poll_overtakes_a_waiting_walk() {
        let limiter = Arc::new(Limiter::new(1.0));
        turn(&limiter, Priority::Walk).await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let spawn = |priority| {
            let (limiter, order) = (limiter.clone(), order.clone());
            tokio::spawn(async move {
                turn(&limiter, priority).await;
                order.lock().expect("not poisoned").push(priority);
            })
        };
        let tasks = [
            spawn(Priority::Walk),
            spawn(Priority::Tickets),
            spawn(Priority::Live),
        ];
        for task in tasks {
            task.await.expect("no panic");
        }
        assert_eq!(
            *order.lock().expect("not poisoned"),
            [Priority::Live, Priority::Tickets, Priority::Walk]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_that_gives_up_blocks_nobody() {
        let limiter = Arc::new(Limiter::new(1.0));
        turn(&limiter, Priority::Live).await;
        let urgent = tokio::spawn({
            let limiter = limiter.clone();
            async move { limiter.acquire(Priority::Live).await }
        });
        tokio::task::yield_now().await;
        urgent.abort();
        let _ = urgent.await;
        turn(&limiter, Priority::Walk).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_holds_everybody() {
        let limiter = Limiter::new(100.0);
        limiter.pause(LONGEST_WAIT);
        assert_eq!(turn(&limiter, Priority::Live).await, LONGEST_WAIT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_pause_turns_everybody_away_and_its_time_is_told_once() {
        let limiter = Arc::new(Limiter::new(100.0));
        limiter.pause(LONGEST_WAIT);
        let waiting = tokio::spawn({
            let limiter = limiter.clone();
            async move { limiter.acquire(Priority::Live).await }
        });
        tokio::task::yield_now().await;
        limiter.pause(Duration::from_secs(100));
        let turned_away = |waited, left| {
            Err(TurnedAway {
                waited: Duration::from_secs(waited),
                left: Duration::from_secs(left),
            })
        };
        assert_eq!(
            limiter.acquire(Priority::Tickets).await,
            turned_away(0, 100)
        );
        // Who was there before hears of it too.
        assert_eq!(waiting.await.expect("no panic"), turned_away(10, 90));
        tokio::time::advance(Duration::from_secs(40)).await;
        assert_eq!(limiter.acquire(Priority::Live).await, turned_away(40, 50));
        assert_eq!(limiter.acquire(Priority::Tickets).await, turned_away(0, 50));
        tokio::time::advance(Duration::from_secs(45)).await;
        // 45 s outside, and the rest of the pause in the queue.
        assert_eq!(turn(&limiter, Priority::Live).await.as_secs(), 50);
        assert_eq!(turn(&limiter, Priority::Tickets).await.as_secs(), 0);
        limiter.pause(Duration::from_secs(20));
        assert_eq!(limiter.acquire(Priority::Live).await, turned_away(0, 20));
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(
            turn(&limiter, Priority::Live).await.as_secs(),
            20,
            "the pause was no longer"
        );
    }
}
