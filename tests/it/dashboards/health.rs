//! `exporter-health.json`: how the exporter itself is doing, for whoever runs it.

use super::model::{Dashboard, Panel, ZERO, ZERO_TICKETS, bars, heading, lines, stat, table};

fn or_zero(query: &str) -> String {
    format!("{query} or on () {ZERO}")
}

/// A counter's rise in the time range, as a whole number.
fn total(counter: &str) -> String {
    or_zero(&format!("sum(round(increase({counter}{{@}}[$__range])))"))
}

/// A counter's rise in each bar, as a whole number.
fn each(counter: &str) -> String {
    or_zero(&format!(
        "sum(round(increase({counter}{{@}}[$__rate_interval])))"
    ))
}

fn quantile(of: f64, histogram: &str, by: &str) -> String {
    // Without a single observation it is NaN, which reads as no data.
    or_zero(&format!(
        "histogram_quantile({of}, sum by (le{by}) (rate({histogram}_bucket{{@}}[$__rate_interval]))) >= 0"
    ))
}

pub(crate) fn dashboard() -> Dashboard {
    Dashboard {
        uid: "exporter-health",
        title: "Exporter health",
        description: "Whether orgdata-exporter reads, counts and delivers, and why not. Each alert of dashboards/alerts.yaml has its graph here.",
        from: "now-3h",
        variables: Vec::new(),
        panels: [
            overview(),
            loops(),
            audit(),
            api(),
            delivery(),
            state(),
            tickets(),
            process(),
        ]
        .into_iter()
        .flatten()
        .collect(),
    }
}

fn overview() -> Vec<Panel> {
    vec![
        heading("Overview"),
        stat("Loops", "short", "Whether the last round of each loop succeeded: audit reads audit logs, tickets scans tickets, otlp delivers log records.")
            .now("min by (loop) (orgdata_up{@})", "{{loop}}")
            .words(&[("0", "fails", "red"), ("1", "works", "green")])
            .size(6, 4)
            .absent("no exporter"),
        stat("Delay", "s", "Nine in ten live events were counted within this time after the service created them, in the selected time range; 0 without any.")
            .now(&or_zero("histogram_quantile(0.9, sum by (le) (increase(orgdata_audit_event_delay_seconds_bucket{@}[$__range]))) >= 0"), "Delay")
            .steps(&[(60.0, "orange"), (300.0, "red")])
            .size(3, 4),
        stat("Backlog", "locale", "Log records that the collector has not acknowledged.")
            .now(&or_zero("sum(orgdata_otlp_backlog_records{@})"), "Records")
            .size(3, 4),
        stat("State file", "percentunit", "How full the state file is. At 100 % the tail pauses.")
            .now(&or_zero("max(orgdata_state_size_bytes{@} / orgdata_state_max_size_bytes{@})"), "Full")
            .steps(&[(0.5, "orange"), (0.85, "red")])
            .size(3, 4),
        stat("Tail", "short", "Whether a full state file holds the tail.")
            .now("max(orgdata_audit_paused{@})", "Tail")
            .words(&[("0", "goes on", "green"), ("1", "paused", "red")])
            .absent("no exporter")
            .size(3, 4),
        stat("Dead letters", "locale", "Records in the state file that could not be delivered or read: orgdata-exporter dead-letters list.")
            .now(&or_zero("sum(orgdata_otlp_dead_letters{@})"), "Dead letters")
            .steps(&[(1.0, "orange")])
            .size(3, 4),
        stat("Holes", "locale", "Gaps in the audit trail in the selected time range.")
            .now(&total("orgdata_audit_gaps_total"), "Gaps")
            .steps(&[(1.0, "red")])
            .size(3, 4),
    ]
}

fn loops() -> Vec<Panel> {
    vec![
        heading("Loops"),
        lines(
            "Loops that work",
            "short",
            "1 while the last round of a loop succeeded, 0 while it fails. A loop that is switched off is not there.",
        )
        .query("min by (loop, instance) (orgdata_up{@})", "{{loop}} {{instance}}"),
        lines("Since the last success", "s", "How long ago a round of each loop succeeded; since 1970 for one that never did.")
            .query("time() - min by (loop, instance) (orgdata_last_success_timestamp_seconds{@})", "{{loop}} {{instance}}"),
    ]
}

fn audit() -> Vec<Panel> {
    vec![
        heading("Audit logs"),
        lines("From creation to counted", "s", "How late live events are counted, from the service's createdAt on; 0 while there are none.")
            .query(&quantile(0.5, "orgdata_audit_event_delay_seconds", ""), "half of the events")
            .query(&quantile(0.9, "orgdata_audit_event_delay_seconds", ""), "nine in ten"),
        bars("What was not as it should be", "short", "Entries that appeared late, came twice or broke the contract or were outside the filters; events of actors beyond --metrics.max-actors; lost cursors; holes in the trail.")
            .query(&each("orgdata_audit_events_late_total"), "late")
            .query(&each("orgdata_audit_events_duplicate_total"), "twice, dropped")
            .query(&each("orgdata_audit_entries_malformed_total"), "malformed")
            .query(&each("orgdata_audit_actors_folded_total"), "actor folded")
            .query(&each("orgdata_audit_cursor_recoveries_total"), "cursor recovered")
            .query(&each("orgdata_audit_gaps_total"), "gap")
            .query(&each("orgdata_audit_filtered_total"), "outside the filters"),
        lines("Open ranges", "short", "Ranges of the audit logs that are known to be missing and are still to be read.")
            .query(&or_zero("sum by (kind) (orgdata_audit_open_ranges{@})"), "{{kind}}"),
        lines("Age of open ranges", "s", "How long the oldest open range has been open; 0 if none is.")
            .query(&or_zero("max by (kind) (orgdata_audit_open_range_age_seconds{@})"), "{{kind}}"),
        bars("Events counted", "short", "Audit events of all activities, whole numbers in each bar.").query(&each("orgdata_audit_events_total"), "events"),
    ]
}

fn api() -> Vec<Panel> {
    vec![
        heading("Organization Data API"),
        lines("Requests", "reqps", "Requests a second by endpoint, retries included.")
            .query("sum by (endpoint) (rate(orgdata_api_requests_total{@}[$__rate_interval]))", "{{endpoint}}"),
        bars("Failed requests by reason", "short", "Requests that brought no usable answer, whole numbers in each bar.").query(
            &or_zero("sum by (endpoint, reason) (round(increase(orgdata_api_request_failures_total{@}[$__rate_interval]))) > 0"),
            "{{endpoint}} {{reason}}",
        ),
        lines("Latency", "s", "Time from sending a request to the last byte of its answer; 0 while there are none.")
            .query(&quantile(0.5, "orgdata_api_request_duration_seconds", ", endpoint"), "{{endpoint}}, half")
            .query(&quantile(0.95, "orgdata_api_request_duration_seconds", ", endpoint"), "{{endpoint}}, 95 %"),
        lines("Waiting for the request limit", "percentunit", "Share of the time that requests waited for the service (429, Retry-After) or for --api.max-requests-per-second. Both loops can wait at once.")
            .query(&or_zero("sum(rate(orgdata_api_throttled_seconds_total{@}[$__rate_interval]))"), "waiting"),
        lines("Bytes", "Bps", "Bytes of answers a second, after decompression.")
            .query("sum by (endpoint) (rate(orgdata_api_response_bytes_total{@}[$__rate_interval]))", "{{endpoint}}"),
        bars("Unknown fields", "short", "Fields in answers that the specification does not name: a sign of a new version of the service.")
            .query(&each("orgdata_api_unknown_fields_total"), "fields"),
    ]
}

fn delivery() -> Vec<Panel> {
    vec![
        heading("Delivery of log records"),
        lines("Records sent", "cps", "Log records a second that the collector acknowledged, and export requests a second.")
            .query(&or_zero("sum(rate(orgdata_otlp_records_sent_total{@}[$__rate_interval]))"), "records")
            .query(&or_zero("sum(rate(orgdata_otlp_requests_total{@}[$__rate_interval]))"), "requests"),
        bars(
            "Failed requests by reason",
            "short",
            "Export requests that were not acknowledged, whole numbers in each bar. Their records stay in the state file.",
        )
        .query(&or_zero("sum by (reason) (round(increase(orgdata_otlp_request_failures_total{@}[$__rate_interval]))) > 0"), "{{reason}}"),
        lines("Backlog", "short", "Log records that wait for the collector.")
            .query(&or_zero("sum by (instance) (orgdata_otlp_backlog_records{@})"), "{{instance}}"),
        lines("The oldest record waits", "s", "How long the oldest record has waited that is not acknowledged; 0 when none waits.")
            .query(&or_zero("time() - min by (instance) (orgdata_otlp_oldest_unsent_timestamp_seconds{@})"), "{{instance}}"),
        lines("From arrival to acknowledged", "s", "How long records were on their way through the exporter; 0 while there are none.")
            .query(&quantile(0.5, "orgdata_otlp_acknowledgement_delay_seconds", ""), "half")
            .query(&quantile(0.9, "orgdata_otlp_acknowledgement_delay_seconds", ""), "nine in ten"),
        bars(
            "Refused for good",
            "short",
            "Records refused in a partial success, kept as dead letters, deleted to make room, and sent again.",
        )
        .query(&each("orgdata_otlp_records_rejected_total"), "rejected")
        .query(&each("orgdata_otlp_records_dead_lettered_total"), "dead letter")
        .query(&each("orgdata_otlp_dead_letters_evicted_total"), "evicted, lost")
        .query(&each("orgdata_otlp_records_replayed_total"), "replayed"),
    ]
}

fn state() -> Vec<Panel> {
    vec![
        heading("State file"),
        lines(
            "Size",
            "bytes",
            "Bytes in use by the state file, and the limit at which the tail pauses.",
        )
        .query(
            "sum by (instance) (orgdata_state_size_bytes{@})",
            "{{instance}}",
        )
        .query("max(orgdata_state_max_size_bytes{@})", "limit"),
        lines(
            "Commits",
            "cps",
            "Transactions a second written to the state file, and those that could not be written.",
        )
        .query(
            &or_zero("sum(rate(orgdata_state_commits_total{@}[$__rate_interval]))"),
            "commits",
        )
        .query(
            &or_zero("sum(rate(orgdata_state_commit_failures_total{@}[$__rate_interval]))"),
            "failures",
        ),
        stat(
            "Created",
            "dateTimeAsIso",
            "When the state file was created; counters count from this time.",
        )
        .now(
            "max(orgdata_state_created_timestamp_seconds{@}) * 1000",
            "Time",
        )
        .size(12, 4),
        stat(
            "Set aside last",
            "dateTimeAsIso",
            "When a damaged state file was set aside and a fresh one begun.",
        )
        .now(
            "max(orgdata_state_recreated_timestamp_seconds{@}) * 1000",
            "Time",
        )
        .words(&[("0", "never", "green")])
        .size(12, 4),
        stat(
            "Set aside",
            "locale",
            "How often that happened in the selected time range.",
        )
        .now(&total("orgdata_state_recreated_total"), "Times")
        .size(12, 4),
    ]
}

fn tickets() -> Vec<Panel> {
    vec![
        heading("Ticket scans"),
        lines("Age of the snapshot", "s", "How old the ticket figures are. At --tickets.max-age they disappear; 0 without a snapshot.")
            .query(&or_zero("time() - min by (instance) (orgdata_tickets_snapshot_timestamp_seconds{@} > 0)"), "{{instance}}"),
        lines("Duration of a scan", "s", "How long the scan took that made the snapshot, repeats included; 0 without a snapshot.")
            .query(&or_zero("max by (instance) (orgdata_tickets_snapshot_duration_seconds{@})"), "{{instance}}"),
        lines(
            "Consistent snapshots",
            "short",
            "1 where every ticket is in the snapshot exactly once, 0 where some may be missing; absent without a snapshot.",
        )
        .query(&format!("min by (instance) (orgdata_tickets_snapshot_consistent{{@}}) or on () {ZERO_TICKETS}"), "{{instance}}"),
        bars(
            "Repeated scans and unreadable tickets",
            "short",
            "Scans begun again because tickets moved meanwhile, and tickets with something unreadable in them.",
        )
        .query(&each("orgdata_tickets_snapshot_retries_total"), "scans begun again")
        .query(&or_zero("sum(orgdata_tickets_malformed{@})"), "unreadable tickets"),
    ]
}

fn process() -> Vec<Panel> {
    vec![
        heading("Process"),
        lines("CPU", "percentunit", "Share of one core.")
            .query("sum by (instance) (rate(process_cpu_seconds_total{@}[$__rate_interval]))", "{{instance}}"),
        lines("Memory", "bytes", "Resident and virtual memory.")
            .query("sum by (instance) (process_resident_memory_bytes{@})", "{{instance}} resident")
            .query("sum by (instance) (process_virtual_memory_bytes{@})", "{{instance}} virtual"),
        lines("Open files", "short", "Open file descriptors, and how many there may be.")
            .query("sum by (instance) (process_open_fds{@})", "{{instance}}")
            .query("min(process_max_fds{@})", "limit"),
        stat(
            "Certificates end",
            "dateTimeAsIso",
            "When the certificate of the exporter's own pages ends, and that which it shows to the collector.",
        )
        .now(&format!("min by (used_for) (orgdata_certificate_not_after_timestamp_seconds{{@}}) * 1000 or on () {ZERO}"), "{{used_for}}")
        .words(&[("0", "no certificate", "green")]),
        lines("Running for", "s", "Time since the process started. Each fall to 0 is a restart.")
            .query("time() - max by (instance) (process_start_time_seconds{@})", "{{instance}}"),
        table("Builds", "short", "Version, commit and compiler of each exporter.")
            .rows("max by (instance, version, revision, rustc) (orgdata_exporter_build_info{@})")
            .columns(&[("instance", "Instance"), ("version", "Version"), ("revision", "Commit"), ("rustc", "Compiler")])
            .size(24, 4),
        table("Organizations", "short", "The organization of each exporter; only exporters that are not kept idle by their pod index.")
            .rows(&or_zero("max by (instance, organization_id, organization_name) (orgdata_organization_info{@} and on (job, instance) orgdata_exporter_active{@} == 1)"))
            .columns(&[("instance", "Instance"), ("organization_id", "Organization"), ("organization_name", "Name")])
            .size(24, 4),
    ]
}
