//! The content of the landing page, gathered from the metrics and the ledger.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cli::Settings;
use crate::ledger::LedgerHandle;
use crate::metrics::Metrics;
use crate::metrics::audit::{RangeKind, Total};
use crate::otlp::Target;
use crate::web::Overview;
use crate::web::overview::{
    AuditOverview, Count, DeliveryOverview, OpenTickets, StateOverview, TicketsOverview,
};

/// Returns a closure that gathers an overview each time it is called.
pub(super) fn gather(
    settings: &Settings,
    metrics: &Metrics,
    ledger: &LedgerHandle,
) -> Arc<dyn Fn() -> Overview + Send + Sync> {
    let (metrics, ledger) = (metrics.clone(), ledger.clone());
    let audit_on = settings.audit.is_some();
    let priorities = settings
        .tickets
        .as_ref()
        .map(|tickets| tickets.priorities.clone())
        .unwrap_or_default();
    let path = settings.ledger.path.to_string();
    let endpoint = settings.otlp.as_ref().map(|otlp| match &otlp.target {
        Target::Collector(connection) => connection.place(),
        Target::Stdout => "standard output".to_owned(),
    });
    Arc::new(move || Overview {
        audit: audit_on.then(|| audit(&metrics)),
        tickets: tickets(&metrics, &priorities),
        delivery: endpoint.clone().map(|endpoint| {
            let backlog = ledger.backlog();
            DeliveryOverview {
                endpoint,
                backlog: backlog.records,
                oldest_unsent: backlog.oldest,
                sent: metrics.otlp.records_sent.get(),
            }
        }),
        state: Some(StateOverview {
            path: path.clone(),
            size_bytes: metrics.state.size_bytes.get().unsigned_abs(),
            max_size_bytes: metrics.state.max_size_bytes.get().unsigned_abs(),
        }),
        dead_letters: ledger.status().dead_letters,
    })
}

/// Adds up the numbers of each name.
fn sums(counts: impl Iterator<Item = (String, u64)>) -> Vec<Count> {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for (name, count) in counts {
        *sums.entry(name).or_default() += count;
    }
    let rows = sums.into_iter();
    rows.map(|(name, count)| Count::new(name, count)).collect()
}

fn audit(metrics: &Metrics) -> AuditOverview {
    let mut events = metrics.audit.events();
    events.retain(|(_, count)| *count > 0);
    let names = metrics.audit.names();
    let shown = |actor: &str| match names.get(actor) {
        Some(name) => format!("{name} ({actor})"),
        None => actor.to_owned(),
    };
    let types = events
        .iter()
        .map(|(labels, count)| (labels.activity_type.to_string(), *count));
    let actors = events
        .iter()
        .filter_map(|(labels, count)| Some((shown(labels.actor.as_deref()?), *count)));
    AuditOverview {
        events: metrics.audit.counted(),
        newest: metrics.audit.newest(),
        per_minute: metrics.audit.per_minute(),
        activity_types: sums(types),
        actors: sums(actors),
        paused: metrics.audit.is_paused(),
        reading: [
            (RangeKind::CatchUp, "catching up"),
            (RangeKind::History, "reading history"),
        ]
        .into_iter()
        .find_map(
            |(kind, phrase)| match metrics.audit.current_ranges(kind).0 {
                0 => None,
                1 => Some(phrase.to_owned()),
                open => Some(format!("{phrase}, {open} open ranges")),
            },
        ),
        gaps: metrics.audit.total(Total::Gaps),
        late: metrics.audit.total(Total::Late),
        malformed: metrics.audit.total(Total::Malformed),
    }
}

fn tickets(metrics: &Metrics, priorities: &[String]) -> Option<TicketsOverview> {
    let series = metrics.tickets.series()?;
    let overdue = series.overdue_total();
    let states = series.by_state.iter();
    let states = states.map(|([state, _], group)| (state.to_string(), group.tickets));
    let rank = |name: &str| {
        priorities
            .iter()
            .position(|known| known == name)
            .unwrap_or(priorities.len())
    };
    let open = series.open.iter().filter(|(_, group)| group.tickets > 0);
    let open = open.map(|([ticket_type, priority], group)| OpenTickets {
        ticket_type: ticket_type.to_string(),
        priority: priority.to_string(),
        tickets: group.tickets,
        deal_amount: group.deal_amount,
    });
    let mut open: Vec<OpenTickets> = open.collect();
    open.sort_by(|a, b| {
        a.ticket_type
            .cmp(&b.ticket_type)
            .then_with(|| rank(&a.priority).cmp(&rank(&b.priority)))
    });
    Some(TicketsOverview {
        taken_at: Some(series.taken_at),
        consistent: series.consistent,
        states: sums(states),
        open,
        overdue,
        oldest_open: series.oldest_created.iter().map(|(_, at)| *at).min(),
    })
}
