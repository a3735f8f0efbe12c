//! The exporter's flags, as they were given: one struct per concern.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{BoolishValueParser, RangedU64ValueParser};
use clap::{ArgAction, Args, ValueEnum};

use super::values;
use crate::audit::Start;
use crate::web::{ListenAddress, TelemetryPath};

/// All flags of the exporter.
#[derive(Clone, Debug, Args)]
#[expect(missing_docs, reason = "each is the struct of one concern")]
pub struct Flags {
    #[command(flatten)]
    pub api: ApiFlags,
    #[command(flatten)]
    pub audit: AuditFlags,
    #[command(flatten)]
    pub tickets: TicketFlags,
    #[command(flatten)]
    pub metrics: MetricsFlags,
    #[command(flatten)]
    pub state: StateFlags,
    #[command(flatten)]
    pub otlp: OtlpFlags,
    #[command(flatten)]
    pub web: WebFlags,
    #[command(flatten)]
    pub log: LogFlags,
}

/// `--api.*`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Organization Data API")]
pub struct ApiFlags {
    #[arg(
        id = "api.base-url",
        long = "api.base-url",
        env = "ORGDATA_API_BASE_URL",
        value_name = "URL",
        help = "The service's base address, without /v1"
    )]
    pub base_url: Option<String>,
    #[arg(
        id = "api.key-file",
        long = "api.key-file",
        env = "ORGDATA_API_KEY_FILE",
        value_name = "FILE",
        help = "File with the API key, read again for every request, so that a rotated key needs no restart. Without it the key is read from the variable ORGDATA_API_KEY"
    )]
    pub key_file: Option<PathBuf>,
    #[arg(id = "api.timeout", long = "api.timeout", env = "ORGDATA_API_TIMEOUT", value_name = "DURATION", default_value = "30s", value_parser = values::duration, help = "Longest time for one request")]
    pub timeout: Duration,
    #[arg(
        id = "api.max-requests-per-second", long = "api.max-requests-per-second",
        env = "ORGDATA_API_MAX_REQUESTS_PER_SECOND",
        value_name = "NUMBER",
        default_value = "5",
        value_parser = values::rate,
        help = "Most requests per second, over both loops; the tail of the audit logs goes first"
    )]
    pub max_requests_per_second: f64,
    #[arg(
        id = "api.page-size", long = "api.page-size",
        env = "ORGDATA_API_PAGE_SIZE",
        value_name = "NUMBER",
        default_value = "1000",
        value_parser = RangedU64ValueParser::<u32>::new().range(1..=1000),
        help = "Items asked for in one request, 1 to 1000"
    )]
    pub page_size: u32,
    #[arg(
        id = "api.ca-file",
        long = "api.ca-file",
        env = "ORGDATA_API_CA_FILE",
        value_name = "FILE",
        help = "Root certificates (PEM) for the service, besides the system's"
    )]
    pub ca_file: Option<PathBuf>,
    #[arg(
        id = "api.allow-plain-http", long = "api.allow-plain-http",
        env = "ORGDATA_API_ALLOW_PLAIN_HTTP",
        value_name = "BOOL",
        default_value = "false",
        num_args = 0..=1,
        default_missing_value = "true",
        action = ArgAction::Set,
        value_parser = BoolishValueParser::new(),
        help = "Send the key over plain http to a host that is not this machine"
    )]
    pub allow_plain_http: bool,
}

/// `--audit.*`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Audit logs")]
pub struct AuditFlags {
    #[arg(
        id = "audit.enabled", long = "audit.enabled",
        env = "ORGDATA_AUDIT_ENABLED",
        value_name = "BOOL",
        default_value = "true",
        num_args = 0..=1,
        default_missing_value = "true",
        action = ArgAction::Set,
        value_parser = BoolishValueParser::new(),
        help = "Tail the audit logs; needs the scope activity_logs:read"
    )]
    pub enabled: bool,
    #[arg(id = "audit.poll-interval", long = "audit.poll-interval", env = "ORGDATA_AUDIT_POLL_INTERVAL", value_name = "DURATION", default_value = "15s", value_parser = values::duration, help = "Time between two polls when nothing is new; a full page is followed at once")]
    pub poll_interval: Duration,
    #[arg(
        id = "audit.start",
        long = "audit.start",
        env = "ORGDATA_AUDIT_START",
        value_name = "WHEN",
        default_value = "now",
        help = "On a new state file, how far back log records begin: now, oldest, a duration ago like 24h, or an instant like 2026-01-31T00:00:00Z. Counters begin at 0 in any case"
    )]
    pub start: Start,
    #[arg(
        id = "audit.activity-types",
        long = "audit.activity-types",
        env = "ORGDATA_AUDIT_ACTIVITY_TYPES",
        value_name = "TYPE",
        value_delimiter = ',',
        help = "Only these activity types; repeatable"
    )]
    pub activity_types: Vec<String>,
    #[arg(
        id = "audit.deal-ids",
        long = "audit.deal-ids",
        env = "ORGDATA_AUDIT_DEAL_IDS",
        value_name = "ID",
        value_delimiter = ',',
        help = "Only these deals; repeatable"
    )]
    pub deal_ids: Vec<String>,
    #[arg(
        id = "audit.actor-emails",
        long = "audit.actor-emails",
        env = "ORGDATA_AUDIT_ACTOR_EMAILS",
        value_name = "EMAIL",
        value_delimiter = ',',
        help = "Only events of these actors; repeatable"
    )]
    pub actor_emails: Vec<String>,
    #[arg(
        id = "audit.target-emails",
        long = "audit.target-emails",
        env = "ORGDATA_AUDIT_TARGET_EMAILS",
        value_name = "EMAIL",
        value_delimiter = ',',
        help = "Only events on these target users; repeatable"
    )]
    pub target_emails: Vec<String>,
    #[arg(id = "audit.reread-interval", long = "audit.reread-interval", env = "ORGDATA_AUDIT_REREAD_INTERVAL", value_name = "DURATION", default_value = "5m", value_parser = values::duration, help = "Time between two looks back for entries that appeared late")]
    pub reread_interval: Duration,
    #[arg(id = "audit.reread-window", long = "audit.reread-window", env = "ORGDATA_AUDIT_REREAD_WINDOW", value_name = "DURATION", default_value = "1h", value_parser = values::duration, help = "How far such a look reaches back")]
    pub reread_window: Duration,
}

/// `--tickets.*`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Tickets")]
pub struct TicketFlags {
    #[arg(
        id = "tickets.enabled", long = "tickets.enabled",
        env = "ORGDATA_TICKETS_ENABLED",
        value_name = "BOOL",
        default_value = "true",
        num_args = 0..=1,
        default_missing_value = "true",
        action = ArgAction::Set,
        value_parser = BoolishValueParser::new(),
        help = "Scan the tickets; needs the scope tickets:read"
    )]
    pub enabled: bool,
    #[arg(id = "tickets.scan-interval", long = "tickets.scan-interval", env = "ORGDATA_TICKETS_SCAN_INTERVAL", value_name = "DURATION", default_value = "1m", value_parser = values::duration, help = "Time between two scans")]
    pub scan_interval: Duration,
    #[arg(id = "tickets.max-age", long = "tickets.max-age", env = "ORGDATA_TICKETS_MAX_AGE", value_name = "DURATION", default_value = "15m", value_parser = values::duration, help = "How long the last snapshot is shown when scans fail")]
    pub max_age: Duration,
    #[arg(
        id = "tickets.open-states",
        long = "tickets.open-states",
        env = "ORGDATA_TICKETS_OPEN_STATES",
        value_name = "STATES",
        default_value = "OPEN",
        value_delimiter = ',',
        help = "Which states count as open, as a comma list"
    )]
    pub open_states: Vec<String>,
    #[arg(
        id = "tickets.priorities",
        long = "tickets.priorities",
        env = "ORGDATA_TICKETS_PRIORITIES",
        value_name = "PRIORITIES",
        default_value = "BLOCKER,HIGH,MEDIUM,LOW",
        value_delimiter = ',',
        help = "Priorities of linked deals, highest first, as a comma list; unknown ones rank last"
    )]
    pub priorities: Vec<String>,
}

/// `--metrics.*`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Metrics")]
pub struct MetricsFlags {
    #[arg(id = "metrics.actor-label", long = "metrics.actor-label", env = "ORGDATA_METRICS_ACTOR_LABEL", value_name = "MODE", value_enum, default_value_t = ActorLabelMode::Id, help = "What the label actor shows")]
    pub actor_label: ActorLabelMode,
    #[arg(
        id = "metrics.hash-key-file",
        long = "metrics.hash-key-file",
        env = "ORGDATA_METRICS_HASH_KEY_FILE",
        value_name = "FILE",
        help = "Key of the hash, for --metrics.actor-label=hash"
    )]
    pub hash_key_file: Option<PathBuf>,
    #[arg(
        id = "metrics.max-actors", long = "metrics.max-actors",
        env = "ORGDATA_METRICS_MAX_ACTORS",
        value_name = "NUMBER",
        default_value = "1000",
        value_parser = RangedU64ValueParser::<u32>::new().range(0..=100_000),
        help = "Actors with a label of their own; the events of others are counted under actor=\"other\""
    )]
    pub max_actors: u32,
    #[arg(id = "metrics.actor-idle", long = "metrics.actor-idle", env = "ORGDATA_METRICS_ACTOR_IDLE", value_name = "DURATION", default_value = "30d", value_parser = values::duration, help = "An actor without events for this long leaves the metrics and makes room for another")]
    pub actor_idle: Duration,
    #[arg(
        id = "metrics.zero-hold", long = "metrics.zero-hold",
        env = "ORGDATA_METRICS_ZERO_HOLD",
        value_name = "DURATION",
        value_parser = values::duration_or_zero,
        help = "From the first scrape that shows a series to the first one that shows it risen, so that increase() sees the rise; at least the scrape interval when two Prometheus servers scrape; 0 shows every rise at once [default: 60s, with demo 0]"
    )]
    pub zero_hold: Option<Duration>,
}

/// `--state.*`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "State")]
pub struct StateFlags {
    #[arg(
        id = "state.path",
        long = "state.path",
        env = "ORGDATA_STATE_PATH",
        value_name = "FILE",
        help = "The state file, or :memory: [default: orgdata-exporter.db, with demo :memory:]"
    )]
    pub path: Option<String>,
    #[arg(id = "state.max-size", long = "state.max-size", env = "ORGDATA_STATE_MAX_SIZE", value_name = "SIZE", default_value = "256MiB", value_parser = values::size, help = "Largest size of the state file; when log records that wait for the collector have filled it, the tail pauses")]
    pub max_size: u64,
}

/// `--otlp.*`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Log records")]
pub struct OtlpFlags {
    #[arg(
        id = "otlp.endpoint",
        long = "otlp.endpoint",
        env = "ORGDATA_OTLP_ENDPOINT",
        value_name = "URL",
        help = "The collector; without one no log records are sent [default: OTEL_EXPORTER_OTLP_LOGS_ENDPOINT, then OTEL_EXPORTER_OTLP_ENDPOINT]"
    )]
    pub endpoint: Option<String>,
    #[arg(
        id = "otlp.protocol",
        long = "otlp.protocol",
        env = "ORGDATA_OTLP_PROTOCOL",
        value_name = "PROTOCOL",
        help = "grpc or http/protobuf [default: OTEL_EXPORTER_OTLP_LOGS_PROTOCOL, then OTEL_EXPORTER_OTLP_PROTOCOL, then grpc for port 4317 and http/protobuf for any other]"
    )]
    pub protocol: Option<String>,
    #[arg(
        id = "otlp.batch-size", long = "otlp.batch-size",
        env = "ORGDATA_OTLP_BATCH_SIZE",
        value_name = "NUMBER",
        default_value = "512",
        value_parser = RangedU64ValueParser::<u32>::new().range(1..=100_000),
        help = "Most records per request, and never more than 3 MiB"
    )]
    pub batch_size: u32,
    #[arg(
        id = "otlp.user-names", long = "otlp.user-names",
        env = "ORGDATA_OTLP_USER_NAMES",
        value_name = "BOOL",
        default_value = "true",
        num_args = 0..=1,
        default_missing_value = "true",
        action = ArgAction::Set,
        value_parser = BoolishValueParser::new(),
        help = "Whether records carry names and pictures of users"
    )]
    pub user_names: bool,
    #[arg(
        id = "otlp.redact",
        long = "otlp.redact",
        env = "ORGDATA_OTLP_REDACT",
        value_name = "PATH",
        value_delimiter = ',',
        help = "A path in metadata, like contact.email, whose value is replaced, in records and dead letters; repeatable"
    )]
    pub redact: Vec<String>,
}

/// `--web.*`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Web")]
pub struct WebFlags {
    #[arg(
        id = "web.listen-address",
        long = "web.listen-address",
        env = "ORGDATA_WEB_LISTEN_ADDRESS",
        value_name = "ADDRESS",
        default_value = ":10917",
        value_delimiter = ',',
        help = "Where to listen: :PORT, HOST:PORT, [IPV6]:PORT or unix:PATH; repeatable"
    )]
    pub listen_addresses: Vec<ListenAddress>,
    #[arg(
        id = "web.systemd-socket", long = "web.systemd-socket",
        env = "ORGDATA_WEB_SYSTEMD_SOCKET",
        value_name = "BOOL",
        default_value = "false",
        num_args = 0..=1,
        default_missing_value = "true",
        action = ArgAction::Set,
        value_parser = BoolishValueParser::new(),
        help = "Listen on the sockets that systemd hands over, instead of --web.listen-address"
    )]
    pub systemd_socket: bool,
    #[arg(
        id = "web.config.file",
        long = "web.config.file",
        env = "ORGDATA_WEB_CONFIG_FILE",
        value_name = "FILE",
        help = "TLS, client certificates, basic auth, headers and a rate limit, in the format of Prometheus' exporter-toolkit; read again when it changes"
    )]
    pub config_file: Option<PathBuf>,
    #[arg(
        id = "web.telemetry-path",
        long = "web.telemetry-path",
        env = "ORGDATA_WEB_TELEMETRY_PATH",
        value_name = "PATH",
        default_value = "/metrics",
        help = "Where the metrics are"
    )]
    pub telemetry_path: TelemetryPath,
}

/// `--log.*` and `--shutdown.*`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Process")]
pub struct LogFlags {
    #[arg(id = "log.level", long = "log.level", env = "ORGDATA_LOG_LEVEL", value_name = "LEVEL", default_value = "info", value_parser = values::level, help = "error, warn, info, debug or trace")]
    pub level: tracing::Level,
    #[arg(id = "log.format", long = "log.format", env = "ORGDATA_LOG_FORMAT", value_name = "FORMAT", value_enum, default_value_t = LogFormatMode::Logfmt, help = "How log lines are written, on standard error")]
    pub format: LogFormatMode,
    #[arg(id = "shutdown.grace", long = "shutdown.grace", env = "ORGDATA_SHUTDOWN_GRACE", value_name = "DURATION", default_value = "10s", value_parser = values::duration, help = "How long log records are still sent after SIGTERM; the rest stays in the state file")]
    pub shutdown_grace: Duration,
}

/// `--metrics.actor-label`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ActorLabelMode {
    /// The user's id
    Id,
    /// First and last name
    Name,
    /// A keyed hash of the id
    Hash,
    /// No label
    None,
}

/// `--log.format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormatMode {
    /// key=value
    Logfmt,
    /// One JSON object a line
    Json,
}

// === impl OtlpFlags ===

impl OtlpFlags {
    /// The flags as the module of log records takes them.
    pub fn to_otlp(&self) -> crate::otlp::Flags {
        crate::otlp::Flags {
            endpoint: self.endpoint.clone(),
            protocol: self.protocol.clone(),
            batch_size: self.batch_size as usize,
            user_names: self.user_names,
            redact: self.redact.clone(),
        }
    }
}
