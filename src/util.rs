//! Shared by all modules: locks, and the form of values in log lines; and what the API client shares with them.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use humantime::FormattedDuration;
use tokio::time::Instant;

pub(crate) use orgdata_api::{Backoff, Endpoint, FailureReason, Observer, error_chain, one_line};

/// The maximum length of an id in a log line, in characters.
const MAX_SHOWN_ID: usize = 64;

/// The maximum time without a log line while a failure repeats.
const MAX_SILENCE: Duration = Duration::from_secs(3600);

/// Which failures of a loop or a task are logged: of each kind the 1st, 2nd, 4th, 8th and so on since the last success, and the first one an hour after the
/// last line. With each kind its count, and when it was logged.
#[derive(Debug)]
pub(crate) struct Repeated<K>(HashMap<K, (u64, Instant)>);

/// Locks a mutex whose data is valid even if a thread panicked while it held the lock.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns an id for a log line.
pub(crate) fn shown_id(id: &str) -> String {
    one_line(id, MAX_SHOWN_ID)
}

/// Returns a duration for a log line or an error, in whole milliseconds: `1s 432ms`.
pub(crate) fn shown_duration(duration: Duration) -> FormattedDuration {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    humantime::format_duration(Duration::from_millis(millis))
}

/// Returns a delay for a log line, in whole seconds.
pub(crate) fn shown_wait(wait: Duration) -> FormattedDuration {
    humantime::format_duration(Duration::from_secs(
        wait.as_secs_f64().round().max(1.0) as u64
    ))
}

/// Returns the end of a log message: what to do if a retry cannot help.
pub(crate) fn advice(must_act: bool) -> &'static str {
    if must_act {
        "; run \"orgdata-exporter check\" with the same flags"
    } else {
        ""
    }
}

/// Returns a number with its noun: `1 dead letter`, `2 dead letters`.
pub(crate) fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

// === impl Repeated ===

impl<K: Eq + Hash> Repeated<K> {
    /// Counts a failure of this kind, of which there may only be a few. Returns the count if the failure is to be logged.
    pub(crate) fn should_log(&mut self, kind: K) -> Option<u64> {
        let (count, logged_at) = self.0.entry(kind).or_insert((0, Instant::now()));
        *count += 1;
        if !count.is_power_of_two() && logged_at.elapsed() < MAX_SILENCE {
            return None;
        }
        *logged_at = Instant::now();
        Some(*count)
    }

    /// Begins again, after a success. Returns the number of failures before it.
    pub(crate) fn clear(&mut self) -> u64 {
        self.0.drain().map(|(_, (count, _))| count).sum()
    }
}

impl<K> Default for Repeated<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_failure_that_repeats_is_logged_at_least_once_an_hour() {
        let mut failures = Repeated::default();
        let mut logged = Vec::new();
        // One a minute, for half a day.
        for minute in 0..720 {
            logged.extend(failures.should_log("timeout").map(|_| minute));
            tokio::time::advance(Duration::from_secs(60)).await;
        }
        let hours = [
            0, 1, 3, 7, 15, 31, 63, 123, 127, 187, 247, 255, 315, 375, 435,
        ];
        assert_eq!(logged[..hours.len()], hours);
        assert!(logged.windows(2).all(|pair| pair[1] - pair[0] <= 60));
    }

    #[test]
    fn failures_that_repeat_are_logged_ever_more_rarely_also_if_they_alternate() {
        let mut failures = Repeated::default();
        for _ in 0..2 {
            let kinds = (0..40).map(|number| ["timeout", "connect"][number % 2]);
            let logged = kinds.filter_map(|kind| failures.should_log(kind));
            let logged: Vec<u64> = logged.collect();
            assert_eq!(logged, [1, 1, 2, 2, 4, 4, 8, 8, 16, 16]);
            failures.clear();
        }
    }
}
