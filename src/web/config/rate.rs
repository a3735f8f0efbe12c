//! `rate_limit`: a token bucket over all requests.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The time between two requests; zero means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Interval(pub(super) Duration);

/// Lets a burst pass, and then one request an interval.
#[derive(Debug)]
pub(super) struct Bucket {
    interval: Duration,
    burst: u32,
    /// When the bucket is full again.
    full_at: Mutex<Option<Instant>>,
}

/// A duration as Go writes it: numbers with units, like `1h15m`, `250ms` or `1.5s`; `None` where it is none.
pub(super) fn parse_interval(text: &str) -> Option<Interval> {
    if text == "0" {
        return Some(Interval::default());
    }
    let mut seconds = 0.0_f64;
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (value, tail) = rest.split_at(number);
        let unit = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit);
        let scale = match unit {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        seconds += value.parse::<f64>().ok()? * scale;
        rest = tail;
    }
    Duration::try_from_secs_f64(seconds).ok().map(Interval)
}

// === impl Bucket ===

impl Bucket {
    /// A full bucket; `None` without a limit.
    pub(super) fn new(interval: Interval, burst: u32) -> Option<Self> {
        (interval.0 > Duration::ZERO).then(|| Self {
            interval: interval.0,
            burst,
            full_at: Mutex::new(None),
        })
    }

    /// Whether both let the same pass.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.interval == other.interval && self.burst == other.burst
    }

    /// Takes a token, if there is one.
    pub(super) fn take(&self) -> bool {
        let now = Instant::now();
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        let after = full_at.map_or(now, |full| full.max(now)) + self.interval;
        let fits = after - now <= self.interval.saturating_mul(self.burst);
        if fits {
            *full_at = Some(after);
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_go() {
        for (text, wanted) in [
            ("0", 0),
            ("1s", 1000),
            ("250ms", 250),
            ("1h15m", 4_500_000),
            ("1.5s", 1500),
            ("0s", 0),
            ("+2m", 120_000),
        ] {
            assert_eq!(
                parse_interval(text),
                Some(Interval(Duration::from_millis(wanted))),
                "{text}"
            );
        }
        for wrong in ["", "1", "s", "-1s", "1d", "1 s", "1..5s", "+", "1e400h"] {
            assert_eq!(parse_interval(wrong), None, "{wrong}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_and_then_one_an_interval() {
        let bucket = Bucket::new(Interval(Duration::from_secs(10)), 3).unwrap();
        assert_eq!(
            [(); 5].map(|()| bucket.take()),
            [true, true, true, false, false]
        );
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!([(); 2].map(|()| bucket.take()), [true, false]);
        tokio::time::advance(Duration::from_secs(1000)).await;
        assert_eq!([(); 4].map(|()| bucket.take()), [true, true, true, false]);
    }

    #[test]
    fn no_interval_is_no_limit_and_no_burst_lets_nothing_pass() {
        assert!(Bucket::new(Interval::default(), 5).is_none());
        assert!(
            !Bucket::new(Interval(Duration::from_secs(1)), 0)
                .unwrap()
                .take()
        );
    }
}
