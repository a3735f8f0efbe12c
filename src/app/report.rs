//! What the log says of the exporter as a whole: one line at the start, and a summary each hour.

use std::convert::Infallible;
use std::time::Duration;

use humantime::format_duration;
use tokio::time::{Instant, MissedTickBehavior};

use crate::api::{KEY_VARIABLE, KeySource};
use crate::cli::Settings;
use crate::ledger::LedgerHandle;
use crate::metrics::audit::Total;
use crate::metrics::build::VERSION;
use crate::metrics::{Loop, Metrics};
use crate::otlp::Target;

/// Between two summaries.
const HOUR: Duration = Duration::from_secs(3600);

/// What a summary tells: the first six grow, and a line shows by how much.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    events: u64,
    late: u64,
    gaps: u64,
    api_requests: u64,
    api_failures: u64,
    records_sent: u64,
    backlog_records: u64,
    dead_letters: u64,
    /// Open tickets; `None` where no snapshot is shown.
    open_tickets: Option<u64>,
    /// The loops whose last round failed, and why.
    failing: Vec<(Loop, String)>,
}

/// Says once what the exporter will do, and with which settings.
pub(super) fn begin(settings: &Settings, addresses: &str) {
    let audit_logs = settings.audit.as_ref().map(|audit| {
        let filtered = if settings.api.filters == Default::default() {
            ""
        } else {
            ", filtered"
        };
        format!(
            "every {}, log records from {}{filtered}",
            format_duration(audit.poll_interval),
            audit.start
        )
    });
    let tickets = settings.tickets.as_ref().map(|tickets| {
        format!(
            "every {}, open are {}",
            format_duration(tickets.scan_interval),
            tickets.open_states.join(",")
        )
    });
    let log_records = settings.otlp.as_ref().map(|otlp| match &otlp.target {
        Target::Collector(connection) => {
            format!("{} over {}", connection.place(), connection.protocol)
        }
        Target::Stdout => "standard output".to_owned(),
    });
    let off = || "off".to_owned();
    tracing::info!(
        addresses,
        version = VERSION,
        service = %settings.api.base_url,
        key = match &settings.api.key {
            KeySource::File(path) => format!("file {}", path.display()),
            KeySource::Value(_) => format!("variable {KEY_VARIABLE}"),
        },
        audit_logs = audit_logs.unwrap_or_else(off),
        tickets = tickets.unwrap_or_else(off),
        log_records = log_records.unwrap_or_else(|| "to no collector".to_owned()),
        state = %settings.ledger.path,
        state_max_size = %bytesize::ByteSize(settings.ledger.max_size).display().iec(),
        "listening"
    );
}

/// Says each hour what happened in it, for as long as it is polled.
pub(super) async fn each_hour(metrics: &Metrics, ledger: &LedgerHandle) -> Infallible {
    summaries(|| Totals::read(metrics, ledger)).await
}

async fn summaries(totals: impl Fn() -> Totals) -> Infallible {
    let mut ticks = tokio::time::interval_at(Instant::now() + HOUR, HOUR);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before = totals();
    loop {
        ticks.tick().await;
        let now = totals();
        now.tell(&before);
        before = now;
    }
}

// === impl Totals ===

impl Totals {
    fn read(metrics: &Metrics, ledger: &LedgerHandle) -> Self {
        let (api_requests, api_failures) = metrics.api.totals();
        let failing = Loop::ALL.into_iter().filter_map(|which| {
            let state = metrics.loops.state(which);
            let failure = state
                .last_failure
                .filter(|_| state.enabled && state.up == Some(false))?;
            Some((which, failure.message))
        });
        Self {
            events: metrics.audit.counted(),
            late: metrics.audit.total(Total::Late),
            gaps: metrics.audit.total(Total::Gaps),
            api_requests,
            api_failures,
            records_sent: metrics.otlp.records_sent.get(),
            backlog_records: ledger.backlog().records,
            // The gauge, not the file: a disk that hangs must not hold up whoever waits for signals.
            dead_letters: metrics.otlp.dead_letters.get().unsigned_abs(),
            open_tickets: metrics
                .tickets
                .series()
                .map(|tickets| tickets.open_total().tickets),
            failing: failing.collect(),
        }
    }

    /// One line for everything, and one for each loop that does not work: what fails for hours is not told again elsewhere.
    fn tell(&self, before: &Self) {
        tracing::info!(
            events = self.events.saturating_sub(before.events),
            late_events = self.late.saturating_sub(before.late),
            gaps = self.gaps.saturating_sub(before.gaps),
            api_requests = self.api_requests.saturating_sub(before.api_requests),
            api_failures = self.api_failures.saturating_sub(before.api_failures),
            records_sent = self.records_sent.saturating_sub(before.records_sent),
            backlog_records = self.backlog_records,
            dead_letters = self.dead_letters,
            open_tickets = self.open_tickets,
            "the last hour"
        );
        for (which, message) in &self.failing {
            tracing::warn!(loop = which.as_str(), "still failing: {message}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::telemetry::captured::Captured;

    #[tokio::test(start_paused = true)]
    async fn each_hour_has_one_line_of_what_happened_in_it() {
        let log = Captured::begin();
        let hour = Cell::new(0);
        let totals = || {
            hour.set(hour.get() + 1);
            let open_tickets = (hour.get() > 1).then_some(7);
            Totals {
                events: 100 + 5 * hour.get(),
                api_requests: 240 * hour.get(),
                backlog_records: 3,
                open_tickets,
                ..Totals::default()
            }
        };
        let begun = Instant::now();
        assert!(
            tokio::time::timeout(HOUR * 2 + Duration::from_secs(60), summaries(totals))
                .await
                .is_err(),
            "it never ends by itself"
        );
        assert!(begun.elapsed() > HOUR * 2);
        let lines = log.lines();
        assert_eq!(lines.len(), 2, "{lines:?}");
        for line in &lines {
            for said in [
                "the last hour",
                "events=5",
                "api_requests=240",
                "backlog_records=3",
                "open_tickets=7",
                "gaps=0",
            ] {
                assert!(line.contains(said), "{said}: {line}");
            }
        }
    }

    #[tokio::test]
    async fn what_fails_for_hours_is_told_again() {
        let log = Captured::begin();
        let failing = vec![(Loop::Audit, "the service refuses the key".to_owned())];
        Totals {
            failing,
            ..Totals::default()
        }
        .tell(&Totals::default());
        assert!(log.lines().iter().any(|line| line.contains("WARN")
            && line.contains("still failing: the service refuses the key")));
    }

    #[tokio::test]
    async fn counts_that_begin_anew_are_no_panic() {
        let log = Captured::begin();
        Totals {
            events: 1,
            ..Totals::default()
        }
        .tell(&Totals {
            events: 1000,
            ..Totals::default()
        });
        assert!(log.lines()[0].contains("events=0"));
    }
}
