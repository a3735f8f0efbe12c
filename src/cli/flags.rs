//! The exporter's flags as they are given, in one struct per group.
//!
//! Doc comments of the fields are the text of `--help`, of the manual and of completions.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{BoolishValueParser, PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgAction, Args, value_parser};
use exporter_web::WebArgs;

use super::values;
use crate::audit::Start;
use crate::telemetry::LogFormat;

/// The default of `--state.path`.
pub(crate) const DEFAULT_STATE_PATH: &str = "orgdata-exporter.db";

/// The default of `--web.listen-address`.
const DEFAULT_LISTEN_ADDRESS: &str = ":10917";

/// All flags of the exporter.
#[derive(Clone, Debug, Args)]
#[command(mut_args = with_variable)]
#[expect(missing_docs, reason = "each is documented at its type")]
pub struct Flags {
    #[command(flatten)]
    pub(crate) api: ApiFlags,
    #[command(flatten)]
    pub(crate) audit: AuditFlags,
    #[command(flatten)]
    pub(crate) tickets: TicketFlags,
    #[command(flatten)]
    pub(crate) metrics: MetricsFlags,
    #[command(flatten)]
    pub(crate) state: StateFlags,
    #[command(flatten)]
    pub(crate) otlp: OtlpFlags,
    #[command(flatten)]
    pub(crate) web: WebArgs,
    #[command(flatten)]
    pub process: ProcessFlags,
}

/// `--api.*`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Organization Data API")]
pub(crate) struct ApiFlags {
    /// Base URL of the API, without /v1
    #[arg(id = "api.base-url", long, value_name = "URL")]
    pub(crate) base_url: Option<String>,
    /// File with the API key. It is read for every request, so a rotated key needs no restart. Without this flag the key is read from the variable ORGDATA_API_KEY
    #[arg(id = "api.key-file", long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// Maximum time for one request
    #[arg(id = "api.timeout", long, value_name = "DURATION")]
    #[arg(default_value = "30s", value_parser = values::duration)]
    pub(crate) timeout: Duration,
    /// Maximum number of requests per second for audit logs and tickets together
    #[arg(id = "api.max-requests-per-second", long, value_name = "NUMBER")]
    #[arg(default_value = "5", value_parser = values::rate)]
    pub(crate) max_requests_per_second: f64,
    /// Number of items to request per page, 1 to 1000
    #[arg(id = "api.page-size", long, value_name = "NUMBER")]
    #[arg(default_value = "1000", value_parser = value_parser!(u32).range(1..=1000))]
    pub(crate) page_size: u32,
    /// File with root certificates (PEM) for the API, in addition to those of the system; read again while the exporter runs
    #[arg(id = "api.ca-file", long, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
    /// Allow plain http to another host, which sends the key unencrypted
    #[arg(id = "api.allow-plain-http", long, value_name = BOOL, default_value = "false")]
    pub(crate) allow_plain_http: bool,
}

/// `--audit.*`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Audit logs")]
pub(crate) struct AuditFlags {
    /// Read the audit logs; needs the scope activity_logs:read
    #[arg(id = "audit.enabled", long, value_name = BOOL, default_value = "true")]
    pub(crate) enabled: bool,
    /// Time between polls
    #[arg(id = "audit.poll-interval", long, value_name = "DURATION")]
    #[arg(default_value = "15s", value_parser = values::duration)]
    pub(crate) poll_interval: Duration,
    /// How far back log records start if the state file is new: now, oldest, a duration like 24h, or a time like 2026-01-31T00:00:00Z. Counters always start at 0
    #[arg(id = "audit.start", long, value_name = "WHEN", default_value = "now")]
    #[arg(value_parser = values::start)]
    pub(crate) start: Start,
    /// Only these activity types; repeatable
    #[arg(id = "audit.activity-types", long, value_name = "TYPE")]
    #[arg(value_delimiter = ',', value_parser = values::word)]
    pub(crate) activity_types: Vec<String>,
    /// Only these deals; repeatable
    #[arg(id = "audit.deal-ids", long, value_name = "ID")]
    #[arg(value_delimiter = ',', value_parser = values::deal_id)]
    pub(crate) deal_ids: Vec<String>,
    /// Only events by these actors; repeatable
    #[arg(id = "audit.actor-emails", long, value_name = "EMAIL")]
    #[arg(value_delimiter = ',', value_parser = values::word)]
    pub(crate) actor_emails: Vec<String>,
    /// Only events that target these users; repeatable
    #[arg(id = "audit.target-emails", long, value_name = "EMAIL")]
    #[arg(value_delimiter = ',', value_parser = values::word)]
    pub(crate) target_emails: Vec<String>,
    /// Time between re-reads, which find entries that appeared late
    #[arg(id = "audit.reread-interval", long, value_name = "DURATION")]
    #[arg(default_value = "15m", value_parser = values::duration)]
    pub(crate) reread_interval: Duration,
    /// How far a re-read goes back beyond the start of the last complete one
    #[arg(id = "audit.reread-window", long, value_name = "DURATION")]
    #[arg(default_value = "1h", value_parser = values::duration)]
    pub(crate) reread_window: Duration,
}

/// `--tickets.*`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Tickets")]
pub(crate) struct TicketFlags {
    /// Read the tickets; needs the scope tickets:read
    #[arg(id = "tickets.enabled", long, value_name = BOOL, default_value = "true")]
    pub(crate) enabled: bool,
    /// Time between scans
    #[arg(id = "tickets.scan-interval", long, value_name = "DURATION")]
    #[arg(default_value = "1m", value_parser = values::duration)]
    pub(crate) scan_interval: Duration,
    /// How long the last snapshot is shown if scans fail; at least two scan intervals
    #[arg(id = "tickets.max-age", long, value_name = "DURATION")]
    #[arg(default_value = "15m", value_parser = values::duration)]
    pub(crate) max_age: Duration,
    /// States that count as open, separated by commas
    #[arg(id = "tickets.open-states", long, value_name = "STATES")]
    #[arg(default_value = "OPEN", value_delimiter = ',', value_parser = values::word)]
    pub(crate) open_states: Vec<String>,
    /// Priorities of linked deals, highest first, separated by commas; unknown ones rank last
    #[arg(id = "tickets.priorities", long, value_name = "PRIORITIES")]
    #[arg(default_value = "BLOCKER,HIGH,MEDIUM,LOW")]
    #[arg(value_delimiter = ',', value_parser = values::word)]
    pub(crate) priorities: Vec<String>,
}

/// `--metrics.*`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Metrics")]
pub(crate) struct MetricsFlags {
    /// Value of the label actor. Changing it or the hash key resets the counters of events to 0
    #[arg(id = "metrics.actor-label", long, value_name = "MODE")]
    #[arg(default_value = "id", value_parser = one_of(ACTOR_LABELS))]
    pub(crate) actor_label: String,
    /// File with the key of the hash for --metrics.actor-label=hash and --otlp.actor=hash
    #[arg(id = "metrics.hash-key-file", long, value_name = "FILE")]
    pub(crate) hash_key_file: Option<PathBuf>,
    /// Maximum number of actors with their own label; events of any others are counted as actor="other"
    #[arg(id = "metrics.max-actors", long, value_name = "NUMBER")]
    #[arg(default_value = "1000", value_parser = value_parser!(u32).range(..=100_000))]
    pub(crate) max_actors: u32,
    /// Do not count events of these activity types; * matches any text; repeatable
    #[arg(id = "metrics.exclude-activity-types", long, value_name = "TYPE")]
    #[arg(value_delimiter = ',', value_parser = values::word)]
    pub(crate) exclude_activity_types: Vec<String>,
    /// How long scrapers see the previous value of a new series first, so that increase() has a starting point. With two Prometheus servers, set it to at least the longer scrape interval. 0 disables it, as in demo
    #[arg(id = "metrics.zero-hold", long, value_name = "DURATION")]
    #[arg(default_value = "60s", value_parser = values::duration_or_zero)]
    pub(crate) zero_hold: Duration,
}

/// `--state.*`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "State")]
pub(crate) struct StateFlags {
    /// The state file, or :memory:, as in demo
    #[arg(id = "state.path", long, value_name = "FILE")]
    #[arg(default_value = DEFAULT_STATE_PATH)]
    pub(crate) path: String,
    /// Maximum size of the state file; reading pauses while undelivered log records fill it
    #[arg(id = "state.max-size", long, value_name = "SIZE")]
    #[arg(default_value = "256MiB", value_parser = values::state_size)]
    pub(crate) max_size: u64,
}

/// `--otlp.*`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Log records")]
#[group(skip)]
pub(crate) struct OtlpFlags {
    /// The collector. Without one, no log records are made, and the first start with one reports them as a gap [default: OTEL_EXPORTER_OTLP_LOGS_ENDPOINT, then OTEL_EXPORTER_OTLP_ENDPOINT]
    #[arg(id = "otlp.endpoint", long, value_name = "URL")]
    pub(crate) endpoint: Option<String>,
    /// grpc, http/protobuf, or stdout for OTLP JSON lines on standard output [default: OTEL_EXPORTER_OTLP_LOGS_PROTOCOL, then OTEL_EXPORTER_OTLP_PROTOCOL, then grpc for port 4317 and http/protobuf for any other]
    #[arg(id = "otlp.protocol", long, value_name = "PROTOCOL")]
    #[arg(value_parser = one_of(PROTOCOLS))]
    pub(crate) protocol: Option<String>,
    /// File with a bearer token for the collector, read for each request
    #[arg(id = "otlp.bearer-token-file", long, value_name = "FILE")]
    pub(crate) bearer_token_file: Option<String>,
    /// Maximum number of records per request; a request never exceeds 3 MiB
    #[arg(id = "otlp.batch-size", long, value_name = "NUMBER")]
    #[arg(default_value = "512", value_parser = value_parser!(u32).range(1..=100_000))]
    pub(crate) batch_size: u32,
    /// User data in log records: full, hash or none. hash and none also leave out fields that the API does not document
    #[arg(id = "otlp.actor", long, value_name = "MODE")]
    #[arg(default_value = "full", value_parser = one_of(ACTORS))]
    pub(crate) actor: String,
    /// Do not send records of these activity types; * matches any text; repeatable
    #[arg(id = "otlp.exclude-activity-types", long, value_name = "TYPE")]
    #[arg(value_delimiter = ',', value_parser = values::word)]
    pub(crate) exclude_activity_types: Vec<String>,
    /// Path in metadata, like contact.email; its value is replaced in log records and dead letters; repeatable
    #[arg(id = "otlp.redact", long, value_name = "PATH", value_delimiter = ',')]
    pub(crate) redact: Vec<String>,
}

/// `--log.*` and `--shutdown.*`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Process")]
pub struct ProcessFlags {
    /// Lowest severity to log: error, warn, info or debug
    #[arg(id = "log.level", long, value_name = "LEVEL", default_value = "info")]
    #[arg(value_parser = PossibleValuesParser::new(LEVELS)
        .try_map(|level| level.parse::<tracing::Level>()))]
    pub level: tracing::Level,
    /// Format of log lines, which go to standard error
    #[arg(id = "log.format", long, value_name = "FORMAT")]
    #[arg(value_enum, default_value_t = LogFormat::Logfmt)]
    pub format: LogFormat,
    /// How long log records are still sent after SIGTERM; unsent ones stay in the state file
    #[arg(id = "shutdown.grace", long, value_name = "DURATION")]
    #[arg(default_value = "5s", value_parser = values::duration)]
    pub(crate) shutdown_grace: Duration,
}

/// The name of the value of a flag that is on without a value too.
const BOOL: &str = "BOOL";

const LEVELS: [&str; 4] = ["error", "warn", "info", "debug"];

/// The values of `--metrics.actor-label`.
const ACTOR_LABELS: [(&str, &str); 4] = [
    ("id", "The user's id"),
    ("name", "First and last name"),
    ("hash", "A keyed hash of the id"),
    ("none", "No label"),
];

/// The values of `--otlp.protocol`.
const PROTOCOLS: [(&str, &str); 3] = [
    ("grpc", "gRPC"),
    ("http/protobuf", "Protobuf over HTTP"),
    ("stdout", "OTLP JSON lines on standard output"),
];

/// The values of `--otlp.actor`.
const ACTORS: [(&str, &str); 3] = [
    ("full", "Ids, names and pictures"),
    (
        "hash",
        "The attribute user.hash, keyed with --metrics.hash-key-file",
    ),
    ("none", "Nothing"),
];

/// Returns the parser of one of these values, each with its description.
fn one_of<const N: usize>(
    values: [(&'static str, &'static str); N],
) -> impl TypedValueParser<Value = String> {
    let values = values.map(|(name, help)| PossibleValue::new(name).help(help));
    PossibleValuesParser::new(values).map(|value| value.to_lowercase())
}

/// Gives a flag of type bool an optional value, the listen address its default, and each flag with a dot in its name a variable: `--audit.start` is also
/// `ORGDATA_AUDIT_START`. Of a list of values, the case is ignored.
///
/// An empty variable counts as unset, and one in quotes is an error of its own. clap has no option for that, so such a flag gets no variable.
pub(crate) fn with_variable(arg: Arg) -> Arg {
    let mut arg = arg.ignore_case(true);
    if arg.get_value_names().is_some_and(|names| names == [BOOL]) {
        // clap's own form of such a flag takes no value.
        arg = arg.action(ArgAction::Set).num_args(0..=1);
        arg = arg
            .default_missing_value("true")
            .value_parser(BoolishValueParser::new());
    }
    if arg.get_id() == "web.listen-address" {
        arg = arg.default_value(DEFAULT_LISTEN_ADDRESS);
    }
    let variable = match arg.get_long().filter(|name| name.contains('.')) {
        Some(name) => super::variable_of(name),
        None => return arg,
    };
    match std::env::var_os(&variable) {
        Some(value) if value.is_empty() || super::is_quoted(&value) => arg,
        // Also the flags of the exporter itself, which are read with those of each command.
        _ if super::is_demo() => arg,
        _ => arg.env(variable).hide_env_values(true),
    }
}
