//! Shared by all modules: delays between attempts, text that is safe to log, throttled warnings, and
//! values of flags.

pub mod throttle;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use orgdata_api::{Backoff, MAX_SHOWN, error_chain, labels, location, one_line, sanitize};

/// The maximum length of an id in a log line, in characters.
const MAX_SHOWN_ID: usize = 64;

/// Locks a mutex whose data is valid even if a thread panicked while it held the lock.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns an id for a log line.
pub(crate) fn shown_id(id: &str) -> String {
    one_line(id, MAX_SHOWN_ID)
}

/// Returns a parser of whole numbers in this range.
pub(crate) fn between(min: u32, max: u32) -> impl Fn(&str) -> Result<u32, String> + Clone {
    move |text| match text.trim().parse() {
        Ok(number) if (min..=max).contains(&number) => Ok(number),
        _ => Err(format!("must be a whole number between {min} and {max}")),
    }
}

/// humantime reads `M` as months, which is hardly ever meant.
pub(crate) fn refuse_months(text: &str) -> Result<(), String> {
    let mut units = text.split(|letter: char| !letter.is_alphabetic());
    if units.any(|unit| unit == "M") {
        return Err(
            "M would be months; write 1m for a minute, and 30d instead of a month".to_owned(),
        );
    }
    Ok(())
}
