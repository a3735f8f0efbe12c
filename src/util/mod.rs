//! Shared by all modules: delays between attempts, text that is safe to log, and throttled warnings.

pub mod throttle;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use orgdata_api::{Backoff, MAX_SHOWN, error_chain, labels, location, one_line, sanitize};

/// Locks a mutex whose data is valid even if a thread panicked while it held the lock.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
