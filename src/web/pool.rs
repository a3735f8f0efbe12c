//! The connections that are open: a bounded number, of which the longest idle one gives way to a new one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use super::activity::Activity;

/// The open connections of one server.
#[derive(Debug)]
pub(super) struct Pool {
    capacity: usize,
    places: Mutex<Places>,
}

#[derive(Debug, Default)]
struct Places {
    next: u64,
    taken: HashMap<u64, (Arc<Activity>, CancellationToken)>,
}

/// One connection's place, free again when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    pool: Arc<Pool>,
    id: u64,
    evicted: CancellationToken,
}

// === impl Pool ===

impl Pool {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            places: Mutex::default(),
        }
    }

    /// A place for a new connection. When all are taken, the connection gives way that has been without a request for
    /// longest, so that many clients who only connect cannot keep out one who asks. `None` when all are being answered.
    pub(super) fn admit(self: &Arc<Self>, activity: Arc<Activity>) -> Option<Place> {
        let mut places = self.places();
        if places.taken.len() >= self.capacity {
            let idle = places
                .taken
                .iter()
                .filter_map(|(id, (activity, _))| Some((activity.disposable_since()?, *id)));
            let (_, longest) = idle.min()?;
            if let Some((_, evict)) = places.taken.remove(&longest) {
                evict.cancel();
            }
        }
        let id = places.next;
        places.next += 1;
        let evicted = CancellationToken::new();
        places.taken.insert(id, (activity, evicted.clone()));
        Some(Place {
            pool: self.clone(),
            id,
            evicted,
        })
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Place ===

impl Place {
    /// Cancelled when the connection has to give way.
    pub(super) fn evicted(&self) -> CancellationToken {
        self.evicted.clone()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.pool.places().taken.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_longest_idle_connection_gives_way() {
        let pool = Arc::new(Pool::new(2));
        let first = pool.admit(Activity::new()).unwrap();
        tokio::time::advance(Duration::from_secs(1)).await;
        let second = pool.admit(Activity::new()).unwrap();
        tokio::time::advance(Duration::from_secs(1)).await;
        let _third = pool.admit(Activity::new()).unwrap();
        assert!(first.evicted().is_cancelled());
        assert!(!second.evicted().is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_is_being_answered_stays() {
        let pool = Arc::new(Pool::new(2));
        let asking = Activity::new();
        let first = pool.admit(asking.clone()).unwrap();
        let _answering = asking.answering();
        tokio::time::advance(Duration::from_secs(1)).await;
        let second = pool.admit(Activity::new()).unwrap();
        let _third = pool.admit(Activity::new()).unwrap();
        assert!(!first.evicted().is_cancelled());
        assert!(second.evicted().is_cancelled());
    }

    #[tokio::test]
    async fn without_an_idle_connection_a_new_one_is_refused() {
        let pool = Arc::new(Pool::new(1));
        let asking = Activity::new();
        let place = pool.admit(asking.clone()).unwrap();
        let answering = asking.answering();
        assert!(pool.admit(Activity::new()).is_none());
        drop(answering);
        assert!(pool.admit(Activity::new()).is_some());
        drop(place);
    }

    #[tokio::test]
    async fn a_place_that_ended_is_free_again() {
        let pool = Arc::new(Pool::new(1));
        let first = pool.admit(Activity::new()).unwrap();
        let evicted = first.evicted();
        drop(first);
        let _second = pool.admit(Activity::new()).unwrap();
        assert!(!evicted.is_cancelled());
    }
}
