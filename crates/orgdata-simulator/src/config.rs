//! What a simulator is like: its data, its keys, its clock.

use std::time::Duration;

use jiff::Timestamp;

use super::auth::ApiKey;
use super::clock::ClockSource;
use super::fault::Fault;
use super::readings::Readings;

/// Everything that decides what a simulator serves.
#[derive(Clone, Debug)]
pub struct Config {
    /// The same seed serves the same data, apart from the times, which follow the start.
    pub seed: u64,
    /// Number of the organization.
    pub organization_id: i64,
    /// Name of the organization.
    pub organization_name: String,
    /// Keys that are accepted, each with its scopes.
    pub keys: Vec<ApiKey>,
    /// Audit log entries that exist at the start.
    pub history: u64,
    /// Time before the start over which they are spread.
    pub history_span: Duration,
    /// New audit log entries per second.
    pub rate: f64,
    /// Tickets that exist at the start.
    pub tickets: u64,
    /// Changes of tickets per second: created, moved to another state, another amount, removed.
    pub ticket_change_rate: f64,
    /// Time that every answer of the two listings takes at least.
    pub latency: Duration,
    /// Where the time comes from.
    pub clock: ClockSource,
    /// How the silent spots of the specification are read.
    pub readings: Readings,
    /// Whether answers are compressed for clients that accept gzip.
    pub compression: bool,
    /// Faults from the start on.
    pub faults: Vec<Fault>,
    /// How many of the last requests are remembered with their queries.
    pub request_log: usize,
}

// === impl Config ===

impl Default for Config {
    fn default() -> Self {
        Self {
            seed: 1,
            organization_id: 4711,
            organization_name: "Example GmbH & Søns".to_owned(),
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
    /// A world in which nothing happens but what a test does: a clock that stands at 2030-01-01, no history, no
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
