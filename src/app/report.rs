//! Log lines about the exporter as a whole: one at the start, one once it works, and a summary every hour.

use std::convert::Infallible;
use std::time::Duration;

use orgdata_api::{KEY_VARIABLE, KeySource};
use otlp_logs::Target;
use tokio::time::{Instant, sleep_until};

use crate::cli::Settings;
use crate::metrics::audit::Total;
use crate::metrics::{Loop, Metrics};
use crate::util::shown_duration;

/// The time between two summaries.
const HOUR: Duration = Duration::from_secs(3600);

/// How often it is checked whether everything works, until it does.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Logs what the exporter will do and with which settings, and warns of records that it will not deliver.
pub(super) fn begin(settings: &Settings, addresses: &str, backlog_records: u64) {
    let audit_logs = settings.audit.as_ref().map(|audit| {
        let interval = shown_duration(audit.poll_interval);
        let filtered = match settings.api.filters.is_empty() {
            true => "",
            false => ", filtered",
        };
        format!(
            "every {interval}, log records from {}{filtered}",
            audit.start
        )
    });
    let tickets = settings.tickets.as_ref().map(|tickets| {
        let interval = shown_duration(tickets.scan_interval);
        format!(
            "every {interval}, open states {}",
            tickets.open_states.join(",")
        )
    });
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
        audit_logs = audit_logs.as_deref().unwrap_or("off"),
        tickets = tickets.as_deref().unwrap_or("off"),
        log_records = log_records.as_deref().unwrap_or("to no collector"),
        state = %settings.ledger.shown_path().display(),
        state_max_size = %bytesize::ByteSize(settings.ledger.max_size).display().iec(),
        "listening"
    );
    if backlog_records > 0 && settings.otlp.is_none() {
        tracing::warn!(
            backlog_records,
            "log records wait in the state file and are not delivered; set --otlp.endpoint"
        );
    }
}

/// Logs that another pod reads the API.
pub(super) fn idle(addresses: &str) {
    tracing::info!(
        addresses,
        version = env!("CARGO_PKG_VERSION"),
        "idle: only the pod with index 0 reads the API; see --kubernetes.pod-index"
    );
}

/// Logs once that everything works, and a summary every hour.
pub(super) async fn follow(metrics: &Metrics, backlog: impl Fn() -> u64) -> Infallible {
    let (mut before, mut works) = (totals(metrics), false);
    let mut next = Instant::now() + HOUR;
    loop {
        let check = Instant::now() + CHECK_INTERVAL;
        sleep_until(if works { next } else { next.min(check) }).await;
        works = works || log_if_working(metrics);
        if Instant::now() >= next {
            next += HOUR;
            before = log_summary(metrics, before, backlog());
        }
    }
}

/// Logs that the API is being read, if every loop that reads it has succeeded.
fn log_if_working(metrics: &Metrics) -> bool {
    let [audit, tickets] = [Loop::Audit, Loop::Tickets].map(|which| metrics.loops.state(which));
    let works = [&audit, &tickets]
        .iter()
        .all(|state| !state.enabled || state.up == Some(true));
    if works {
        let tickets = metrics.tickets.snapshot().map(|shown| shown.tickets);
        let newest_event = metrics.audit.newest().map(tracing::field::display);
        tracing::info!(tickets, newest_event, "working");
    }
    works
}

/// Logs what happened in the last hour, and which loops fail. Returns the new totals.
fn log_summary(metrics: &Metrics, before: [u64; 6], backlog_records: u64) -> [u64; 6] {
    let now = totals(metrics);
    // A new state file begins its counts at 0.
    let increase = |index| u64::saturating_sub(now[index], before[index]);
    let [
        events,
        late_events,
        gaps,
        api_requests,
        api_failures,
        records_sent,
    ] = std::array::from_fn(increase);
    tracing::info!(
        events,
        late_events,
        gaps,
        api_requests,
        api_failures,
        records_sent,
        backlog_records,
        dead_letters = metrics.otlp.dead_letters.get(),
        open_tickets = metrics.tickets.snapshot().map(|shown| shown.open_total()),
        "the last hour"
    );
    for which in Loop::ALL {
        let state = metrics.loops.state(which);
        if let (true, Some(false), Some(failure)) = (state.enabled, state.up, state.last_failure) {
            tracing::warn!(loop = which.as_str(), error = failure.message, "still failing");
        }
    }
    now
}

/// Returns the totals whose increase is in the summary, in its order.
fn totals(metrics: &Metrics) -> [u64; 6] {
    let (api_requests, api_failures) = metrics.api.totals();
    [
        metrics.audit.counted(),
        metrics.audit.total(Total::Late),
        metrics.audit.total(Total::Gaps),
        api_requests,
        api_failures,
        metrics.otlp.records_sent.get(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::captured::Captured;
    use crate::util::{Endpoint, FailureReason, Observer as _};

    #[tokio::test(start_paused = true)]
    async fn the_log_says_when_it_works_and_what_happened_each_hour() {
        let log = Captured::begin();
        let metrics = Metrics::new(Duration::ZERO);
        metrics.loops.enable(Loop::Audit);
        let run = async |time| {
            let sends = async {
                sleep_until(Instant::now() + HOUR / 2).await;
                metrics.otlp.records_sent.inc_by(7);
                metrics.api.failure(Endpoint::Tickets, FailureReason::Key);
            };
            let both = async { tokio::join!(follow(&metrics, || 3), sends) };
            assert!(tokio::time::timeout(time, both).await.is_err());
            log.lines()
        };
        metrics
            .loops
            .failure(Loop::Audit, "unauthorized, HTTP 401", "HTTP 401");
        let lines = run(HOUR + CHECK_INTERVAL).await;
        assert_eq!(lines.len(), 2, "{lines:?}");
        for part in [
            "the last hour",
            " events=0",
            "late_events=0",
            "gaps=0",
            "api_requests=0",
            "api_failures=1",
            "records_sent=7",
            "backlog_records=3",
        ] {
            assert!(lines[0].contains(part), "{part}: {lines:?}");
        }
        for part in ["WARN", "still failing", "HTTP 401", "audit"] {
            assert!(lines[1].contains(part), "{part}: {lines:?}");
        }
        metrics.loops.success(Loop::Audit);
        let lines = run(CHECK_INTERVAL * 3).await;
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines[2].contains("working"), "{lines:?}");
    }
}
