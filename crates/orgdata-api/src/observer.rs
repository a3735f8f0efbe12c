//! Reports of the client about its requests.

use std::fmt::Debug;
use std::time::Duration;

use crate::{Endpoint, FailureReason};

/// Receives a report of each request; the exporter implements it with its metrics.
pub trait Observer: Debug + Send + Sync {
    /// A request was sent; its response took `duration` and had `bytes` bytes after decompression.
    fn response(&self, endpoint: Endpoint, duration: Duration, bytes: u64);

    /// A request brought no usable response.
    fn failure(&self, endpoint: Endpoint, reason: FailureReason);

    /// A request waited for the rate limit, the service's or ours.
    fn throttled(&self, waited: Duration);
}
