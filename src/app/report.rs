//! Log lines about the exporter as a whole: one at the start and one once it works.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path};
use std::time::Duration;

use orgdata_api::{KEY_VARIABLE, KeySource};
use otlp_logs::Target;

use crate::cli::ExporterSettings;
use crate::health::Loop;
use crate::metrics::Metrics;
use crate::util::shown_duration;

/// The interval at which the first success of all loops is looked for.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Logs what the exporter will do and with which settings, and warns of records that it will not deliver.
pub(super) fn begin(settings: &ExporterSettings, addresses: &str, backlog_records: u64) {
    let (audit, tickets) = (settings.audit.as_ref(), settings.tickets.as_ref());
    let every = |interval: Option<Duration>| {
        interval.map_or("off".to_owned(), |every| shown_duration(every).to_string())
    };
    let log_records = settings.otlp.as_ref().map(|otlp| match &otlp.target {
        Target::Collector(connection) => connection.to_string(),
        Target::Stdout(_) => "standard output".to_owned(),
    });
    let key = match &settings.api.key {
        KeySource::File(path) => format!("file {}", path.display()),
        KeySource::Value(_) => format!("variable {KEY_VARIABLE}"),
    };
    tracing::info!(
        addresses,
        version = env!("CARGO_PKG_VERSION"),
        api = %settings.api.base_url,
        key,
        audit_logs = every(audit.map(|audit| audit.poll_interval)),
        start = audit.map(|audit| audit.start.to_string()),
        filtered = !settings.api.filters.is_empty(),
        not_counted = audit.and_then(|audit| audit.excluded.metrics.patterns()),
        not_sent = audit.and_then(|audit| audit.excluded.records.patterns()),
        tickets = every(tickets.map(|tickets| tickets.scan_interval)),
        open_states = tickets.map(|tickets| tickets.open_states.join(",")),
        log_records = log_records.as_deref().unwrap_or("off"),
        state = %settings.ledger.shown_path().display(),
        state_max_size = %bytesize::ByteSize(settings.ledger.max_size).display().iec(),
        "listening"
    );
    if let KeySource::File(path) = &settings.api.key
        && others_can_read(path)
    {
        tracing::warn!(
            file = %path.display(),
            "every user of this machine can read the file with the API key; change its mode to 0600 or 0640"
        );
    }
    if backlog_records > 0 && settings.otlp.is_none() {
        tracing::warn!(
            backlog_records,
            "log records wait in the state file and are not delivered; set --otlp.endpoint"
        );
    }
}

/// Returns whether a file has a mode that lets all users read it. Kubernetes gives the files of a volume such a mode, and they
/// are in a container of their own; their real names begin with two dots.
fn others_can_read(path: &Path) -> bool {
    let mode = path.metadata().map_or(0, |file| file.permissions().mode());
    let is_of_volume = |part: Component<'_>| part.as_os_str().as_encoded_bytes().starts_with(b"..");
    let real = path.canonicalize();
    mode & 0o004 != 0 && !real.is_ok_and(|real| real.components().any(is_of_volume))
}

/// Logs once that the API is being read, when every loop that reads it has succeeded.
pub(super) async fn log_when_working(metrics: Metrics) {
    let works = |which| {
        let state = metrics.loops.state(which);
        !state.enabled || state.up == Some(true)
    };
    while ![Loop::Audit, Loop::Tickets].into_iter().all(works) {
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
    let tickets = metrics.tickets.snapshot().map(|shown| shown.tickets);
    let newest_event = metrics.audit.newest().map(|at| format!("{at:.3}"));
    tracing::info!(tickets, newest_event, "working");
}
