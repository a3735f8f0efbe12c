//! A client that is made anew after a request that timed out or broke, after a minute of nothing but errors, and every five
//! minutes. A new client resolves the name of the peer, reads certificates, and opens connections of its own.
//!
//! The old client is dropped, and closes its idle connections. Requests that are under way keep theirs until they end. If a
//! new client cannot be made, for example because a file is half written, the old one goes on, and each request tries again.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

/// The maximum age of a client.
const MAX_AGE: Duration = Duration::from_secs(300);

/// How long a client is kept while every request fails.
const MAX_FAILING: Duration = Duration::from_secs(60);

/// A client that is renewed when that is due.
pub struct Renewed<C> {
    /// `None` if it never is.
    make: Option<Make<C>>,
    /// Locked while a new client is made, so that other requests do not use the old one.
    state: Mutex<State<C>>,
}

type Make<C> = Arc<dyn Fn() -> Result<C, String> + Send + Sync>;

struct State<C> {
    client: C,
    made_at: Instant,
    /// When the first request failed since one succeeded.
    failing_since: Option<Instant>,
    /// Whether a request timed out or broke.
    is_broken: bool,
    /// Whether it was logged that a new client cannot be made.
    is_warned: bool,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The peer accepted it.
    Success,
    /// The peer answered with an error.
    Error,
    /// There was no whole answer, or not in time.
    Broken,
}

// === impl Renewed ===

impl<C: Clone + Send + 'static> Renewed<C> {
    /// Makes the first client. `make` may block.
    ///
    /// # Errors
    /// Returns the error of `make`.
    pub fn new(
        make: impl Fn() -> Result<C, String> + Send + Sync + 'static,
    ) -> Result<Self, String> {
        Ok(Self {
            state: Mutex::new(State::new(make()?)),
            make: Some(Arc::new(make)),
        })
    }

    /// Returns a client that is never renewed, for simulations.
    pub fn never(client: C) -> Self {
        Self {
            make: None,
            state: Mutex::new(State::new(client)),
        }
    }

    /// Returns the client for one request; a new one if that is due.
    pub async fn client(&self) -> C {
        let mut state = self.state.lock().await;
        if let Some(make) = self.make.clone().filter(|_| state.is_due()) {
            let made = tokio::task::spawn_blocking(move || make()).await;
            match made.unwrap_or_else(|panic| Err(panic.to_string())) {
                Ok(client) => *state = State::new(client),
                Err(error) if !state.is_warned => {
                    tracing::warn!(%error, "cannot create a new client; using the old one");
                    state.is_warned = true;
                }
                Err(_) => {}
            }
        }
        state.client.clone()
    }

    /// Takes note of how a request ended.
    pub async fn report(&self, outcome: Outcome) {
        let mut state = self.state.lock().await;
        match outcome {
            Outcome::Success => state.failing_since = None,
            Outcome::Error => {
                state.failing_since.get_or_insert_with(Instant::now);
            }
            Outcome::Broken => state.is_broken = true,
        }
    }
}

impl<C> fmt::Debug for Renewed<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Renewed")
    }
}

// === impl State ===

impl<C> State<C> {
    fn new(client: C) -> Self {
        Self {
            client,
            made_at: Instant::now(),
            failing_since: None,
            is_broken: false,
            is_warned: false,
        }
    }

    fn is_due(&self) -> bool {
        let is_failing = |since: Instant| since.elapsed() >= MAX_FAILING;
        self.is_broken
            || self.made_at.elapsed() >= MAX_AGE
            || self.failing_since.is_some_and(is_failing)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::time::advance;

    use super::*;

    /// Returns a client that is a number, from 1. The second one cannot be made at first.
    fn numbers() -> Renewed<u32> {
        let made = AtomicU32::new(0);
        let numbers = Renewed::new(move || match made.fetch_add(1, Ordering::Relaxed) {
            1 => Err("half written".to_owned()),
            number => Ok(number.max(1)),
        });
        numbers.expect("the first one")
    }

    /// Asks once every 15 s, and returns the clients.
    async fn clients(outcomes: &[Outcome]) -> Vec<u32> {
        let (renewed, mut clients) = (numbers(), Vec::new());
        for outcome in outcomes {
            clients.push(renewed.client().await);
            renewed.report(*outcome).await;
            advance(Duration::from_secs(15)).await;
        }
        clients
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_is_left_when_it_breaks_fails_for_a_minute_or_is_five_minutes_old() {
        use Outcome::{Broken, Error, Success};
        // The first try to make the second client fails.
        let broken = clients(&[Success, Broken, Success, Success, Success]).await;
        assert_eq!(broken, [1, 1, 1, 2, 2]);
        let failing = clients(&[Success, Error, Error, Error, Error, Error, Error, Error]).await;
        assert_eq!(failing, [1, 1, 1, 1, 1, 1, 2, 2]);
        let mixed = clients(&[Error, Error, Error, Success, Error, Error, Error, Error]).await;
        assert_eq!(mixed, [1; 8]);
        let old = clients(&[Success; 23]).await;
        assert_eq!((old[20], old[21], old[22]), (1, 2, 2));
    }
}
