//! An exporter's metrics with something in every family, label values that have to be escaped among them.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use orgdata_api::{Endpoint, FailureReason, Observer as _, TicketPage};
use orgdata_exporter::health::Loop;
use orgdata_exporter::metrics::Metrics;
use orgdata_exporter::metrics::audit::{Changes, EventLabels, Total};
use orgdata_exporter::metrics::certificates::Certificate;
use orgdata_exporter::metrics::exposition::Format;
use orgdata_exporter::tickets::{Aggregate, ScanSettings};
use otlp_logs::Reason;

const TICKETS: &str = r#"{"limit":100,"offset":0,"totalCount":4,"items":[
    {"id":1,"type":"BUG","state":"OPEN","createdAt":"2026-01-01T00:00:00Z","targetDueDate":"2026-02-01T00:00:00Z","dealAmountSum":1250000.5,
     "linkedDeals":[{"id":7,"priority":"HIGH"},{"id":8,"priority":"BLOCKER"}]},
    {"id":2,"type":"FEATURE_REQUEST","state":"OPEN","createdAt":"2026-03-05T00:00:00Z","linkedDeals":[]},
    {"id":3,"type":"BUG","state":"CLOSED","createdAt":"2025-03-05T00:00:00Z","closedAt":"2026-03-08T00:00:00Z","dealAmountSum":0.25,"linkedDeals":[{"id":7,"priority":"LOW"}]},
    {"id":4,"type":"say \"no\"\\ \n twice","state":"OPEN","createdAt":"no time","linkedDeals":[{"id":9,"priority":"URGENT"}]}]}"#;

/// A name that has to be escaped.
const NAME: &str = "Zoë \"Zed\" \\ back\nslash # {a=\"b\"} 1";

/// Metrics with a series in every family.
pub(crate) fn busy() -> Metrics {
    let metrics = Metrics::new(Duration::ZERO);
    let at = |text: &str| text.parse::<Timestamp>().expect("a time");
    metrics.loops.enable(Loop::Tickets);
    metrics.loops.success(Loop::Audit);
    let why = "the collector is away";
    metrics.loops.failure(Loop::Otlp, "connect", why);

    let labels = |kind: &str, actor: &str| EventLabels {
        activity_type: kind.into(),
        actor: Some(actor.into()),
    };
    metrics.audit.publish(Changes {
        introduced: vec![
            (labels("DEAL_UPDATED", "9"), 41),
            (labels("DEAL_UPDATED", "10"), 7),
            (labels("TASK_DONE", "none"), 0),
        ],
        names: vec![
            ("9".into(), NAME.to_owned()),
            ("10".into(), "Ada Lovelace".to_owned()),
        ],
        newest: Some(at("2026-03-10T11:59:58.5Z")),
        ..Changes::default()
    });
    metrics.audit.publish(Changes {
        events: vec![
            (labels("DEAL_UPDATED", "9"), 1),
            (labels("odd \"type\"\n\\", "other"), 3),
        ],
        totals: vec![(Total::Folded, 3), (Total::Late, 1), (Total::Gaps, 2)],
        delays: vec![0.5, 3.0, 100_000.0],
        ..Changes::default()
    });
    let audit = &metrics.audit;
    audit.behind(Some(at("2026-03-10T10:58:59Z")));
    audit.complete_through(Some(at("2026-03-10T10:59:59Z")));
    let api = "api.example.com";
    metrics.audit.organization("7", "Example \"Org\"", api);
    metrics.audit.paused(true);

    let api = &metrics.api;
    api.response(Endpoint::AuditLogs, Duration::from_millis(30), 1000);
    api.response(Endpoint::Tickets, Duration::from_secs(40), 7);
    api.failure(Endpoint::Tickets, FailureReason::Key);
    api.throttled(Duration::from_millis(1500));
    metrics.otlp.failed(Reason::Timeout);
    metrics.otlp.requests.inc_by(4);
    metrics.otlp.acknowledged(512, Duration::from_millis(75));
    let delivered = Some(at("2026-03-10T10:59:59Z"));
    metrics
        .otlp
        .backlog(17, Some(at("2026-03-10T11:00:00Z")), delivered);
    metrics.state.size_bytes.set(1 << 20);
    metrics.state.max_size_bytes.set(256 << 20);
    metrics.state.created(at("2026-02-01T00:00:00Z"));

    let valid = at("2023-11-14T22:13:20Z")..at("2027-01-15T08:00:00Z");
    let certificates = ["web", "otlp"].map(|used_for| -> Certificate {
        let valid = valid.clone();
        (used_for, Box::new(move || Some(valid.clone())))
    });
    metrics.certificates.set(certificates.into());

    let settings = ScanSettings {
        scan_interval: Duration::from_secs(60),
        max_age: Duration::from_secs(900),
        open_states: vec!["OPEN".to_owned()],
        priorities: ["BLOCKER", "HIGH", "MEDIUM", "LOW"]
            .map(str::to_owned)
            .into(),
        page_size: 100,
    };
    let noon = at("2026-03-10T12:00:00Z");
    let page = TicketPage::parse(TICKETS.to_owned(), Some(noon)).expect("a page");
    let mut aggregate = Aggregate::new(&settings, noon, 4);
    for row in page.items() {
        aggregate.add(row);
    }
    let snapshot = Arc::new(aggregate.finish(Duration::ZERO, true));
    metrics.tickets.publish(snapshot, Duration::from_secs(900));
    metrics
}

pub(crate) fn encode(metrics: &Metrics, format: Format) -> String {
    format.encode(metrics.registry()).expect("encodes")
}
