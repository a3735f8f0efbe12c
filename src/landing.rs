//! The landing page: what the exporter is doing right now, for a person.
//!
//! It runs no scripts, and shows no text of the API or the collector, only names that are labels of
//! metrics too. `maud` escapes every value.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use maud::{DOCTYPE, Markup, Render, html};
use strum::VariantArray as _;

use crate::health::{HEALTHY_PATH, Health, Loop, READY_PATH, Stuck};
use crate::metrics::Metrics;
use crate::metrics::audit::Total;
use crate::metrics::build::{REPOSITORY, REVISION, RUSTC, VERSION};
use crate::metrics::loops::LoopState;
use crate::metrics::tickets::Label;
use crate::util::{counted, shown_duration};

/// The path of the style sheet.
pub(crate) const STYLE_PATH: &str = "/-/style.css";

/// The style sheet.
pub(crate) const STYLE: &str = include_str!("landing.css");

/// The number of rows of a list of the most frequent.
const TOP: usize = 10;

/// The number of characters of a name that are shown.
const NAME_LENGTH: usize = 200;

/// The time after which the page reloads itself, in seconds.
const REFRESH_SECONDS: u32 = 10;

/// What the page shows.
#[derive(Clone, Debug)]
pub(crate) struct Landing {
    pub(crate) metrics: Metrics,
    pub(crate) health: Health,
    pub(crate) telemetry_path: String,
    /// When the process started.
    pub(crate) started: Timestamp,
}

/// Returns the page.
pub(crate) fn render(state: &Landing) -> String {
    let (metrics, health) = (&state.metrics, &state.health);
    let stuck = health.stuck();
    let cards = Loop::VARIANTS.iter().map(|&which| {
        let stuck = stuck.iter().find(|stuck| stuck.which == which);
        loop_card(which, &metrics.loops.state(which), stuck)
    });
    let cards: Vec<_> = cards.collect();
    let any = |word| cards.iter().any(|(other, _)| *other == word);
    let is_ready = health.is_ready();
    let summary = match () {
        () if any("stuck") => "Stuck",
        () if any("failing") => "Failing",
        () if !is_ready || any("starting") => "Starting",
        () => "Working",
    };
    let sections = html! {
        p.summary { strong { (summary) } ". Running for " (since_then(state.started)) "." }
        @if is_ready {
            div.grid { @for (_, card) in &cards { (card) } }
            (audit(metrics))
            div."grid wide tops" { (tickets(metrics)) (delivery(metrics)) }
        }
    };
    let mut links = vec![
        ("Metrics", &*state.telemetry_path),
        ("Health", HEALTHY_PATH),
        ("Readiness", READY_PATH),
    ];
    if !REPOSITORY.is_empty() {
        links.push(("Documentation", REPOSITORY));
    }
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="refresh" content=(REFRESH_SECONDS);
                title { (summary) " \u{b7} orgdata-exporter" }
                link rel="icon" href="data:,";
                link rel="stylesheet" href=(relative(STYLE_PATH));
            }
            body {
                header {
                    h1 { "orgdata-exporter" }
                    span.muted { (VERSION) ", as of " (format!("{:.0}", Timestamp::now())) }
                }
                main { (sections) }
                footer {
                    nav { @for (text, address) in links { a href=(relative(address)) { (text) } } }
                    small { "revision " (REVISION) ", built with rustc " (RUSTC) }
                }
            }
        }
    };
    page.into_string()
}

/// Makes a path relative to the page, whose own path is `/`: a proxy may serve it below another one.
fn relative(address: &str) -> String {
    let dot = if address.starts_with('/') { "." } else { "" };
    format!("{dot}{address}")
}

/// Returns the state of a loop in one word, and with details.
fn loop_card(which: Loop, state: &LoopState, stuck: Option<&Stuck>) -> (&'static str, Markup) {
    let (class, word) = match (state.enabled, stuck, state.up) {
        (false, ..) => ("badge", "off"),
        (_, Some(_), _) => ("badge bad", "stuck"),
        (.., None) => ("badge wait", "starting"),
        (.., Some(true)) => ("badge good", "working"),
        (.., Some(false)) => ("badge bad", "failing"),
    };
    let (title, off) = match which {
        Loop::Audit => ("Audit logs", "Disabled by --audit.enabled=false."),
        Loop::Tickets => ("Tickets", "Disabled by --tickets.enabled=false."),
        Loop::Otlp => ("Log records", "No collector; see --otlp.endpoint."),
    };
    let card = html! {
        section {
            div.head { h2 { (title) } span class=(class) { (word) } }
            @if !state.enabled { p.muted { (off) } }
            @if let Some(stuck) = stuck { p.error { "No progress for " (since_then(Timestamp::now() - stuck.silent)) "." } }
            @if let Some(at) = state.last_success { p.muted { "Last success " (ago(at)) "." } }
            @if let Some(failure) = &state.last_failure {
                p.(if word == "failing" { "error" } else { "muted" }) { "Last failure " (ago(failure.at)) ": " (failure.reason) "; the log says more." }
            }
        }
    };
    (word, card)
}

fn audit(metrics: &Metrics) -> Markup {
    let audit = &metrics.audit;
    let reading = match () {
        () if audit.is_paused() => "paused: the state file is full",
        () if audit.behind_since().is_some() => "catching up",
        () => "new events",
    };
    let (events, names) = (audit.events(), audit.names());
    let types = events
        .iter()
        .map(|(labels, count)| (vec![labels.activity_type.to_string()], *count));
    let actors = events.iter().filter_map(|(labels, count)| {
        let actor = labels.actor.as_deref()?;
        let name = names.get(actor).cloned().unwrap_or_default();
        Some((vec![actor.to_owned(), name], *count))
    });
    // Only ids have names.
    let of_actors = match names.is_empty() {
        true => &["Actor"][..],
        false => &["Actor", "Name"],
    };
    let (held, hold) = audit.held();
    html! {
        section {
            h2 { "Audit events" }
            dl {
                (fact("Reading", reading))
                (fact("Newest event", audit.newest().map_or("none".to_owned(), ago)))
                (fact("Counted in all", audit.counted()))
                (fact("Found late", audit.total(Total::Late)))
                (fact("Malformed", audit.total(Total::Malformed)))
                (fact("Gaps", audit.total(Total::Gaps)))
            }
            @if held > 0 {
                p.muted {
                    (counted(held as u64, "new series still reads 0", "new series still read 0"))
                    " in Prometheus, for up to " (shown_duration(hold)) " (--metrics.zero-hold). This page has the true values."
                }
            }
        }
        div."grid wide tops" {
            (top("Events by activity type", &["Activity type"], "Events", types))
            (top("Events by actor", of_actors, "Events", actors))
        }
    }
}

fn tickets(metrics: &Metrics) -> Markup {
    let Some(snapshot) = metrics.tickets.snapshot() else {
        return html! {};
    };
    let (open, all) = (snapshot.open.iter(), snapshot.by_state.iter());
    let row = |labels: &[Label; 2]| labels.iter().map(ToString::to_string).collect();
    let open = open.map(|(labels, group)| (row(labels), group.tickets));
    let all = all.map(|(labels, group)| (row(labels), group.tickets));
    html! {
        (top("Open tickets", &["Ticket type", "Priority"], "Tickets", open))
        (top("All tickets", &["State", "Ticket type"], "Tickets", all))
        section {
            h2 { "Ticket snapshot" }
            dl {
                (fact("Scanned", ago(snapshot.taken_at)))
                (fact("Consistent", if snapshot.consistent { "yes" } else { "no" }))
                (fact("Overdue", snapshot.overdue_total()))
            }
        }
    }
}

fn delivery(metrics: &Metrics) -> Markup {
    let (otlp, file) = (&metrics.otlp, &metrics.state);
    let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    html! {
        section {
            h2 { "Delivery and state" }
            dl {
                (fact("Backlog", otlp.backlog.get()))
                (fact("Sent since the start", otlp.records_sent.get()))
                (fact("Dead letters", metrics.dead_letters.stored.get()))
                (fact("State file", mib(file.size_bytes.get())))
                (fact("Maximum size of the state file", mib(file.max_size_bytes.get())))
            }
        }
    }
}

fn fact(what: &str, value: impl Render) -> Markup {
    html! { div { dt { (what) } dd { (value) } } }
}

/// The most frequent values of some columns, each with the sum of its counts.
fn top(
    title: &str,
    columns: &[&str],
    unit: &str,
    counts: impl Iterator<Item = (Vec<String>, u64)>,
) -> Markup {
    let mut sums: BTreeMap<Vec<String>, u64> = BTreeMap::new();
    for (values, count) in counts.filter(|(_, count)| *count > 0) {
        *sums.entry(values).or_default() += count;
    }
    let mut rows: Vec<_> = sums.into_iter().collect();
    rows.sort_by_key(|(_, count)| Reverse(*count));
    let rest: u64 = rows.iter().skip(TOP).map(|(_, count)| count).sum();
    // Cut to what a page can hold, with line breaks at underscores.
    let short = |name: &str| name.chars().take(NAME_LENGTH).collect::<String>();
    html! {
        section {
            h2 { (title) }
            @if rows.is_empty() { p.muted { "None." } } @else {
                table {
                    thead { tr { @for column in columns { th { (column) } } th.number { (unit) } } }
                    tbody { @for (values, sum) in rows.iter().take(TOP) {
                        tr {
                            @for (column, value) in columns.iter().zip(values) { td {
                                @if value == "none" { "no " (column.to_lowercase()) }
                                @else { bdi { @for part in short(value).split_inclusive('_') { (part) wbr; } } }
                            } }
                            td.number { (sum) }
                        }
                    } }
                }
            }
            @if rest > 0 { p.muted { "All others: " (rest) "." } }
        }
    }
}

fn ago(at: Timestamp) -> String {
    format!("{} ago", since_then(at))
}

fn since_then(at: Timestamp) -> String {
    // The clock of a peer may be ahead of ours.
    let seconds = Timestamp::now().duration_since(at).as_secs().max(0);
    format!("{:#}", SignedDuration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_page_says_working_only_after_each_loop_has_worked() {
        let state = Landing {
            metrics: Metrics::new(Duration::ZERO),
            health: Health::default(),
            telemetry_path: "/metrics".to_owned(),
            started: Timestamp::now(),
        };
        let says = |summary| render(&state).contains(&format!("<strong>{summary}<"));
        assert!(says("Starting"));
        state.metrics.loops.enable(Loop::Audit);
        state.metrics.loops.enable(Loop::Tickets);
        state.health.set_ready();
        for which in [Loop::Audit, Loop::Tickets] {
            assert!(says("Starting"));
            state.metrics.loops.success(which);
        }
        assert!(says("Working"));
    }
}
