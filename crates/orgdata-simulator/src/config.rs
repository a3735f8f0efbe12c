//! The configuration of a simulator.

use std::time::Duration;

use jiff::Timestamp;

use crate::auth::ApiKey;
use crate::clock::ClockSource;
use crate::fault::Fault;
use crate::readings::Readings;

/// Everything that decides what a simulator serves.
#[derive(Clone, Debug)]
pub struct Config {
    /// The seed of all data. The same seed serves the same data; only the times follow the start.
    pub seed: u64,
    /// The id of the organization.
    pub organization_id: i64,
    /// The accepted API keys with their scopes.
    pub keys: Vec<ApiKey>,
    /// The number of audit log entries at the start.
    pub history: u64,
    /// The time before the start over which they are spread.
    pub history_span: Duration,
    /// New audit log entries per second.
    pub rate: f64,
    /// The number of tickets at the start.
    pub tickets: u64,
    /// Tickets per second that are created, removed, or get another state or amount.
    pub ticket_change_rate: f64,
    /// The minimum time that every response of the two listings takes.
    pub latency: Duration,
    /// The source of the time.
    pub clock: ClockSource,
    /// How the silent spots of the specification are read.
    pub readings: Readings,
    /// Whether responses are compressed for clients that accept gzip.
    pub compression: bool,
    /// Faults from the start on.
    pub faults: Vec<Fault>,
    /// How many of the last requests are remembered.
    pub request_log: usize,
}

// === impl Config ===

impl Default for Config {
    fn default() -> Self {
        Self {
            seed: 1,
            organization_id: 4711,
            keys: vec![ApiKey::full("demo-key")],
            history: 5_000,
            history_span: Duration::from_secs(7 * 24 * 3600),
            rate: 2.0,
            tickets: 250,
            ticket_change_rate: 0.2,
            latency: Duration::ZERO,
            clock: ClockSource::Real,
            readings: Readings::default(),
            compression: true,
            faults: Vec::new(),
            request_log: 1_000,
        }
    }
}

impl Config {
    /// Returns a configuration in which nothing happens by itself: a manual clock at 2030-01-01, no history, no
    /// tickets, no compression.
    pub fn quiet() -> Self {
        let start = Timestamp::from_second(1_893_456_000).unwrap_or(Timestamp::UNIX_EPOCH);
        Self {
            history: 0,
            rate: 0.0,
            tickets: 0,
            ticket_change_rate: 0.0,
            clock: ClockSource::Manual(start),
            compression: false,
            ..Self::default()
        }
    }
}
