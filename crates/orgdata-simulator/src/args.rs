//! The flags of `simulate`, and what they make of a [`Config`].

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args as ClapArgs;
use jiff::Timestamp;

use super::auth::ApiKey;
use super::clock::ClockSource;
use super::config::Config;
use super::fault::Fault;
use super::readings::{
    AfterReading, CursorReading, EmptyCursor, FlagReading, KeyReading, Order, Readings,
    TicketOrder, TotalCount, UnknownParameters,
};

/// Most events or changes per second: above it a millisecond holds more than a page.
const FASTEST: f64 = 1e6;

/// Flags of the simulator.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// Address to listen on
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8081")]
    pub listen: SocketAddr,

    /// A key that is accepted, with its scopes (default: all); repeatable
    #[arg(long = "api-key", value_name = "KEY[=SCOPE,SCOPE]", default_value = "demo-key", value_parser = api_key)]
    pub api_keys: Vec<ApiKey>,

    /// The same seed serves the same data
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,

    /// Number of the organization
    #[arg(long, value_name = "NUMBER", default_value_t = 4711)]
    pub organization_id: i64,

    /// Audit log entries that exist at the start; they take no memory
    #[arg(long, value_name = "COUNT", default_value_t = 5_000)]
    pub history: u64,

    /// Time before the start over which they are spread
    #[arg(long, value_name = "DURATION", default_value = "7days", value_parser = duration)]
    pub history_span: Duration,

    /// New audit log entries per second; fractions are allowed, 0 means none
    #[arg(long, value_name = "PER_SECOND", default_value = "2", value_parser = rate)]
    pub rate: f64,

    /// Tickets that exist at the start
    #[arg(long, value_name = "COUNT", default_value_t = 250)]
    pub tickets: u64,

    /// Changes of tickets per second: created, moved on, another amount, removed
    #[arg(long, value_name = "PER_SECOND", default_value = "0.2", value_parser = rate)]
    pub ticket_change_rate: f64,

    /// Time that every answer of the two listings takes at least
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    pub latency: Duration,

    /// Use a clock that starts at this time and moves only by `/control/clock`; otherwise the machine's
    #[arg(long, value_name = "TIME")]
    pub manual_clock: Option<Timestamp>,

    /// What goes wrong: `KIND[=VALUE][,on=audit|tickets][,times=N][,every=N][,chance=P]`; repeatable
    ///
    /// Kinds: a status (`500`, `503=MESSAGE`, `401`, ...), `429`, `429=10s`, `429=date:10s`, `redirect=URL`,
    /// `delay=DURATION`, `reset`, `reset-body`, `truncated-json`, `truncated-transfer`, `stall`, `hang`, `html=STATUS`,
    /// `empty=STATUS`, `oversized=BYTES`, `expired-cursor=STATUS`, `expired-cursor=empty`, `too-large=LIMIT`,
    /// `poison=ID`, `empty-page=OFFSET`, `unknown-fields`, `wrong-types`, `missing-id`, `not-an-object`, `duplicate`
    #[arg(long = "fault", value_name = "SPEC", value_parser = str::parse::<Fault>)]
    pub faults: Vec<Fault>,

    /// Do not compress answers
    #[arg(long)]
    pub no_compression: bool,

    /// How silent spots of the specification are read.
    #[command(flatten)]
    pub readings: ReadingArgs,
}

/// Flags for the silent spots of the specification.
#[derive(Clone, Debug, ClapArgs)]
#[command(next_help_heading = "Silent spots of the specification")]
pub struct ReadingArgs {
    /// What `after=` answers when more is new than fits: the page next to the cursor, or the newest one
    #[arg(long, value_enum, default_value_t)]
    pub after_reading: AfterReading,

    /// `after=` also returns the entry that the cursor was made from
    #[arg(long)]
    pub after_inclusive: bool,

    /// `before=` also returns the entry that the cursor was made from
    #[arg(long)]
    pub before_inclusive: bool,

    /// The order of entries inside a page
    #[arg(long, value_enum, default_value_t)]
    pub order: Order,

    /// `startCursor` of an empty page asked for with `after=`
    #[arg(long, value_enum, default_value_t)]
    pub empty_start_cursor: EmptyCursor,

    /// Whether `hasPrevious` says what is the case
    #[arg(long, value_enum, default_value_t)]
    pub has_previous: FlagReading,

    /// Whether `hasMore` says what is the case
    #[arg(long, value_enum, default_value_t)]
    pub has_more: FlagReading,

    /// Most items on a page, whatever limit is asked for
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub page_cap: Option<u64>,

    /// What the order of the audit log goes by: late rows fall behind (created-at) or come on top (arrival)
    #[arg(long, value_enum, default_value_t)]
    pub key_reading: KeyReading,

    /// What characters a cursor is made of
    #[arg(long, value_enum, default_value_t)]
    pub cursor_characters: CursorReading,

    /// What happens to query parameters that the specification does not name
    #[arg(long, value_enum, default_value_t)]
    pub unknown_parameters: UnknownParameters,

    /// Send no `Date` header
    #[arg(long)]
    pub no_date: bool,

    /// The order of tickets
    #[arg(long, value_enum, default_value_t)]
    pub ticket_order: TicketOrder,

    /// `totalCount` of ticket pages: right, missing, null, page-length, or a number to add as +3
    #[arg(long, value_name = "WHAT", default_value = "right", allow_hyphen_values = true, value_parser = str::parse::<TotalCount>)]
    pub total_count: TotalCount,

    /// Answer every offset with the first tickets
    #[arg(long)]
    pub ignore_offset: bool,
}

// === impl Args ===

impl Args {
    /// The configuration that the flags describe. What is wrong with a flag was said when it was parsed.
    pub fn into_config(self) -> Config {
        Config {
            seed: self.seed,
            organization_id: self.organization_id,
            keys: self.api_keys,
            history: self.history,
            history_span: self.history_span,
            rate: self.rate,
            tickets: self.tickets,
            ticket_change_rate: self.ticket_change_rate,
            latency: self.latency,
            clock: self
                .manual_clock
                .map_or(ClockSource::Real, ClockSource::Manual),
            readings: self.readings.into(),
            compression: !self.no_compression,
            faults: self.faults,
            ..Config::default()
        }
    }
}

impl From<Args> for Config {
    fn from(args: Args) -> Self {
        args.into_config()
    }
}

impl From<ReadingArgs> for Readings {
    fn from(args: ReadingArgs) -> Self {
        Self {
            after: args.after_reading,
            after_inclusive: args.after_inclusive,
            before_inclusive: args.before_inclusive,
            order: args.order,
            empty_start_cursor: args.empty_start_cursor,
            has_previous: args.has_previous,
            has_more: args.has_more,
            page_cap: args.page_cap,
            key: args.key_reading,
            cursor: args.cursor_characters,
            unknown_parameters: args.unknown_parameters,
            no_date: args.no_date,
            ticket_order: args.ticket_order,
            total_count: args.total_count,
            ignore_offset: args.ignore_offset,
        }
    }
}

fn api_key(text: &str) -> Result<ApiKey, String> {
    let key = text.rsplit_once('=').map_or(text, |(key, _)| key);
    if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("a key is made of visible ASCII characters".to_owned());
    }
    text.parse().map_err(|never| match never {})
}

fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{error}; as in 90s or 1h 30m"))
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text
        .parse()
        .ok()
        .filter(|rate| (0.0..=FASTEST).contains(rate));
    rate.ok_or_else(|| "a number from 0 to a million".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::fault::FaultKind;
    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn parse(flags: &[&str]) -> Result<Config, String> {
        let parsed = Cli::try_parse_from(["simulate"].iter().chain(flags));
        parsed
            .map(|cli| cli.args.into_config())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn no_flags_mean_the_default_configuration() {
        assert_eq!(
            format!("{:?}", parse(&[]).unwrap()),
            format!("{:?}", Config::default())
        );
    }

    #[test]
    fn flags_reach_the_configuration() {
        let config = parse(&[
            "--api-key=a=tickets:read",
            "--api-key=b",
            "--history-span=2h",
            "--rate=0.5",
            "--after-reading=newest",
            "--order=oldest-first",
            "--total-count=-1",
            "--page-cap=7",
            "--no-compression",
            "--manual-clock=2030-01-01T00:00:00Z",
            "--fault=500,times=2",
            "--fault=hang",
        ])
        .unwrap();
        assert_eq!(
            (config.keys.len(), config.history_span, config.compression),
            (2, Duration::from_secs(7200), false)
        );
        assert_eq!(
            (config.readings.after, config.readings.order),
            (AfterReading::Newest, Order::OldestFirst)
        );
        assert_eq!(
            (config.readings.total_count, config.readings.page_cap),
            (TotalCount::Off(-1), Some(7))
        );
        assert_eq!(config.clock, Config::quiet().clock);
        assert_eq!(
            (config.faults[0].times, &config.faults[1].kind),
            (Some(2), &FaultKind::Hang)
        );
    }

    #[test]
    fn a_wrong_flag_is_named_with_its_value() {
        for (flag, value) in [
            ("--rate", "-1"),
            ("--rate", "NaN"),
            ("--history-span", "long"),
            ("--fault", "explode"),
            ("--page-cap", "0"),
            ("--listen", "here"),
            ("--api-key", "=x"),
            ("--total-count", "many"),
        ] {
            let error = parse(&[&format!("{flag}={value}")]).unwrap_err();
            assert!(error.contains(flag) && error.contains(value), "{error}");
        }
    }
}
