//! The configuration of a simulator, and the flags of `simulate`.

use std::net::SocketAddr;
use std::time::Duration;

use jiff::Timestamp;

use crate::auth::ApiKey;
use crate::clock::ClockSource;
use crate::fault::{Fault, duration};
use crate::readings::Readings;

/// The most entries or changes per second.
const MAX_RATE: f64 = 1e6;

/// Everything that decides what a simulator serves.
#[derive(Clone, Debug, clap::Args)]
pub struct Config {
    /// An accepted key with its scopes (default: all); repeatable
    #[arg(
        long = "api-key",
        value_name = "KEY[=SCOPE,SCOPE]",
        default_value = "demo-key"
    )]
    pub keys: Vec<ApiKey>,

    /// Seed of the generated data; times and ids also depend on the start time
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,

    /// Audit log entries at the start; a million take 24 MB
    #[arg(long, value_name = "COUNT", default_value_t = 5_000)]
    pub history: u64,

    /// How far back the entries of the history go
    #[arg(long, value_name = "DURATION", default_value = "7d", value_parser = duration::parse)]
    pub history_span: Duration,

    /// New audit log entries per second
    #[arg(long, value_name = "NUMBER", default_value = "2", value_parser = rate)]
    pub rate: f64,

    /// Tickets at the start
    #[arg(long, value_name = "COUNT", default_value_t = 250)]
    pub tickets: u64,

    /// Tickets created, removed or changed per second
    #[arg(long, value_name = "NUMBER", default_value = "0.2", value_parser = rate)]
    pub ticket_change_rate: f64,

    /// Minimum response time of both listings
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::parse)]
    pub latency: Duration,

    /// A fault that lasts until it is removed, as in `status=503` or `hang`; repeatable. The page `/` lists the kinds
    #[arg(long = "fault", value_name = "KIND[=VALUE]")]
    pub faults: Vec<Fault>,

    /// The id of the organization.
    #[arg(skip = 4711)]
    pub organization_id: i64,

    /// The source of the time.
    #[arg(skip = ClockSource::Real)]
    pub clock: ClockSource,

    /// How the specification is read where it is ambiguous.
    #[arg(skip)]
    pub readings: Readings,
}

/// The flags of `simulate`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The address to listen on
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8081")]
    pub listen: SocketAddr,

    /// Everything else.
    #[command(flatten)]
    pub config: Config,
}

// === impl Config ===

impl Default for Config {
    /// Returns the configuration of `simulate` without flags.
    fn default() -> Self {
        #[derive(clap::Parser)]
        struct Flags {
            #[command(flatten)]
            config: Config,
        }
        let Flags { config } = clap::Parser::parse_from(["simulate"]);
        config
    }
}

impl Config {
    /// Returns a configuration in which nothing happens by itself: a manual clock at 2026-01-01, which no machine is behind, no history, no
    /// tickets.
    pub fn quiet() -> Self {
        let start = Timestamp::from_second(1_767_225_600).unwrap_or(Timestamp::UNIX_EPOCH);
        Self {
            history: 0,
            rate: 0.0,
            tickets: 0,
            ticket_change_rate: 0.0,
            clock: ClockSource::Manual(start),
            ..Self::default()
        }
    }
}

fn rate(text: &str) -> Result<f64, String> {
    checked_rate(text.parse().unwrap_or(f64::NAN))
}

/// Returns the rate, or why it is not usable.
pub(crate) fn checked_rate(rate: f64) -> Result<f64, String> {
    if (0.0..=MAX_RATE).contains(&rate) {
        return Ok(rate);
    }
    Err("a rate is a number from 0 to a million per second".to_owned())
}
