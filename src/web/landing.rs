//! The landing page: what the exporter is doing right now, for a person.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::format::{age, amount, bytes, count, duration, name};
use super::overview::{
    AuditOverview, Count, DeliveryOverview, Overview, StateOverview, TicketsOverview,
};
use super::{HEALTHY_PATH, READY_PATH};
use crate::health::Stuck;
use crate::metrics::build::{REVISION, RUSTC, VERSION};
use crate::metrics::loops::{Loop, LoopState};

const STYLE: &str = include_str!("landing.css");

/// How many rows a list of the most frequent has.
const TOP: usize = 10;

/// Instead of a list of actors, where events were counted.
const NO_ACTORS: &str = "No actor has a label: --metrics.actor-label is none, or all were idle for --metrics.actor-idle.";

/// The minutes that the page shows.
const HOUR: usize = 60;

/// The page reloads itself after so many seconds.
const REFRESH_SECONDS: u32 = 10;

/// Everything that the page shows. It has no scripts and fetches nothing; `maud` escapes every value in it.
#[derive(Debug)]
pub(super) struct Landing<'a> {
    pub(super) now: Timestamp,
    pub(super) loops: [(Loop, LoopState); Loop::ALL.len()],
    pub(super) stuck: Vec<Stuck>,
    pub(super) ready: bool,
    pub(super) overview: Overview,
    pub(super) telemetry_path: &'a str,
    /// Lets the style sheet in, and nothing else.
    pub(super) nonce: &'a str,
}

// === impl Landing ===

impl Landing<'_> {
    pub(super) fn render(&self) -> String {
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="robots" content="noindex";
                    meta http-equiv="refresh" content=(REFRESH_SECONDS);
                    title { (self.summary()) " \u{b7} orgdata-exporter" }
                    // Without an icon of its own a browser asks for one.
                    link rel="icon" href="data:,";
                    style nonce=(self.nonce) { (PreEscaped(STYLE)) }
                }
                body {
                    (self.header())
                    main {
                        div.grid { @for (which, state) in &self.loops { (self.loop_card(*which, state)) } }
                        @if let Some(audit) = &self.overview.audit { (self.audit(audit)) }
                        div."grid wide tops" {
                            @if let Some(tickets) = &self.overview.tickets { (self.tickets(tickets)) }
                            (self.delivery(self.overview.delivery.as_ref(), self.overview.state.as_ref()))
                        }
                    }
                    (self.footer())
                }
            }
        };
        page.into_string()
    }

    /// One word for the title of the tab.
    fn summary(&self) -> &'static str {
        let failing = self
            .loops
            .iter()
            .any(|(_, state)| state.enabled && state.up == Some(false));
        match () {
            () if !self.stuck.is_empty() => "Stuck",
            () if failing => "Failing",
            () if !self.ready => "Not ready",
            () => "Working",
        }
    }

    fn header(&self) -> Markup {
        html! {
            header {
                h1 { "orgdata-exporter" }
                span.muted { (VERSION) }
                @if !self.ready { span."badge wait" { "not ready" } }
                span."muted when" { "as of " (self.time(self.now)) ", every " (REFRESH_SECONDS) " s" }
            }
        }
    }

    fn loop_card(&self, which: Loop, state: &LoopState) -> Markup {
        let stuck = self.stuck.iter().find(|stuck| stuck.which == which);
        let (class, word) = match (state.enabled, stuck, state.up) {
            (false, ..) => ("badge", "off"),
            (_, Some(_), _) => ("badge bad", "stuck"),
            (.., None) => ("badge wait", "starting"),
            (.., Some(true)) => ("badge good", "working"),
            (.., Some(false)) => ("badge bad", "failing"),
        };
        html! {
            section {
                div.head { h2 { (title(which)) } span class=(class) { (word) } }
                @if state.enabled {
                    @if let Some(stuck) = stuck { p.error { "Has not turned for " (duration(stuck.silent)) "." } }
                    p.muted {
                        @match state.last_success {
                            Some(at) => { "Last success " (self.ago(at)) "." }
                            None => { "No success yet." }
                        }
                    }
                    @if let Some(failure) = &state.last_failure {
                        p class=(if state.up == Some(false) { "error" } else { "error past" }) {
                            small { (if state.up == Some(false) { "Failure" } else { "Last failure" }) " " (self.ago(failure.at)) ": " }
                            bdi { (failure.message) }
                        }
                    }
                } @else {
                    p.muted { (why_off(which)) }
                }
            }
        }
    }

    fn audit(&self, audit: &AuditOverview) -> Markup {
        html! {
            div.grid {
                section {
                    div.head {
                        h2 { "Audit events" }
                        @if audit.paused { span."badge bad" { "paused: the state file is full" } }
                        @else if let Some(walk) = &audit.walk { span."badge wait" { (walk) } }
                    }
                    dl {
                        (figure("Newest event", &html! { (audit.newest.map_or_else(|| html! { "none" }, |at| self.ago(at))) }, None))
                        (figure("Counted", &html! { (count(audit.events)) }, Some("since the state file was begun")))
                        (figure("Found late", &html! { (count(audit.late)) }, None))
                        (figure("Unreadable", &counted_fault(audit.malformed), None))
                        (figure("Gaps", &counted_fault(audit.gaps), (audit.gaps > 0).then_some("entries that were lost before they could be read")))
                    }
                    @if !audit.per_minute.is_empty() { (minutes(&audit.per_minute)) }
                }
            }
            div."grid wide" {
                (top("By activity type", &audit.activity_types, "Nothing counted yet."))
                (top("By actor", &audit.actors, if audit.events > 0 { NO_ACTORS } else { "Nothing counted yet." }))
            }
        }
    }

    fn tickets(&self, tickets: &TicketsOverview) -> Markup {
        let open: u64 = tickets.open.iter().map(|row| row.tickets).sum();
        let total: f64 = tickets.open.iter().map(|row| row.deal_amount).sum();
        html! {
            section {
                div.head {
                    h2 { "Open tickets" }
                    @if !tickets.consistent { span."badge wait" { "changed while it was read" } }
                }
                div.scroll {
                    table {
                        thead { tr { th { "Type and priority" } th.number { "Tickets" } th.number { "Deal amount" } } }
                        @for rows in tickets.open.chunk_by(|a, b| a.ticket_type == b.ticket_type) {
                            tbody {
                                tr.group { th colspan="3" scope="rowgroup" { (breakable(&name(&rows[0].ticket_type))) } }
                                @for row in rows {
                                    tr {
                                        td { (breakable(&name(&row.priority))) }
                                        td.number { (count(row.tickets)) }
                                        td.number { (amount(row.deal_amount)) }
                                    }
                                }
                            }
                        }
                        tfoot { tr { td { "All" } td.number { (count(open)) } td.number { (amount(total)) } } }
                    }
                }
                p."muted more" {
                    (count(tickets.overdue)) " overdue"
                    @if let Some(at) = tickets.oldest_open { ", the oldest opened " (self.ago(at)) }
                    @if let Some(at) = tickets.taken_at { ". Read " (self.ago(at)) }
                    ". A deal with two tickets counts in both."
                }
                @if !tickets.states.is_empty() {
                    p.muted {
                        "All tickets by state: "
                        @for (index, state) in tickets.states.iter().enumerate() {
                            @if index > 0 { ", " }
                            bdi { (name(&state.name)) } " " (count(state.count))
                        }
                        "."
                    }
                }
            }
        }
    }

    fn delivery(
        &self,
        delivery: Option<&DeliveryOverview>,
        state: Option<&StateOverview>,
    ) -> Markup {
        html! {
            section {
                h2 { "Delivery and state" }
                dl {
                    @if let Some(delivery) = delivery {
                        (figure("Backlog", &html! {
                            (count(delivery.backlog))
                            @if let Some(at) = delivery.oldest_unsent { small { "oldest " (self.ago(at)) } }
                        }, None))
                        (figure("Acknowledged", &html! { (count(delivery.sent)) }, Some("since this process started")))
                    }
                    (figure("Dead letters", &counted_fault(self.overview.dead_letters),
                        (self.overview.dead_letters > 0).then_some("orgdata-exporter dead-letters list")))
                    @if let Some(state) = state {
                        (figure("State file", &html! { (bytes(state.size_bytes)) small { "of " (bytes(state.max_size_bytes)) } }, None))
                    }
                }
                @if let Some(delivery) = delivery { p."muted more" { "Collector: " bdi { (delivery.endpoint) } } }
                @else { p."muted more" { "No collector is set, so no log records are sent." } }
                @if let Some(state) = state { p.muted { "State: " bdi { (state.path) } } }
            }
        }
    }

    fn footer(&self) -> Markup {
        let readme = env!("CARGO_PKG_REPOSITORY");
        html! {
            footer {
                nav {
                    a href=(self.telemetry_path) { "Metrics" }
                    a href=(HEALTHY_PATH) { "Healthy?" }
                    a href=(READY_PATH) { "Ready?" }
                    @if !readme.is_empty() { a href=(readme) { "README" } }
                }
                small { "orgdata-exporter " (VERSION) ", revision " (REVISION) ", built with rustc " (RUSTC) }
            }
        }
    }

    /// An age, with the instant for who wants to know exactly.
    fn ago(&self, at: Timestamp) -> Markup {
        html! { time datetime=(at) title=(at) { (age(self.now, at)) } }
    }

    fn time(&self, at: Timestamp) -> Markup {
        let clock = at
            .to_zoned(TimeZone::UTC)
            .strftime("%H:%M:%S UTC")
            .to_string();
        html! { time datetime=(at) { (clock) } }
    }
}

fn title(which: Loop) -> &'static str {
    match which {
        Loop::Audit => "Audit logs",
        Loop::Tickets => "Tickets",
        Loop::Otlp => "Log records",
    }
}

fn why_off(which: Loop) -> &'static str {
    match which {
        Loop::Audit => "Switched off with --audit.enabled=false.",
        Loop::Tickets => "Switched off with --tickets.enabled=false.",
        Loop::Otlp => {
            "No collector is set; --otlp.endpoint or OTEL_EXPORTER_OTLP_ENDPOINT names one."
        }
    }
}

fn figure(what: &str, value: &Markup, note: Option<&str>) -> Markup {
    html! { div { dt { (what) } dd { (value) @if let Some(note) = note { small { (note) } } } } }
}

/// A name that a narrow column breaks at its underscores.
fn breakable(name: &str) -> Markup {
    html! { bdi { @for (index, part) in name.split('_').enumerate() { @if index > 0 { "_" wbr; } (part) } } }
}

/// A number that is better 0.
fn counted_fault(number: u64) -> Markup {
    html! { @if number > 0 { span.fault { (count(number)) } } @else { "0" } }
}

/// The most frequent rows, with a bar behind each.
fn top(title: &str, rows: &[Count], without: &str) -> Markup {
    let mut rows: Vec<_> = rows.iter().filter(|row| row.count > 0).collect();
    rows.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
    let (shown, rest) = rows.split_at(rows.len().min(TOP));
    let most = shown.first().map_or(1, |row| row.count).max(1);
    html! {
        section {
            h2 { (title) }
            ol {
                @for row in shown {
                    li {
                        // A style attribute would need a hole in the content security policy; an SVG has attributes of its own.
                        svg aria-hidden="true" preserveAspectRatio="none" viewBox="0 0 1000 1" { rect width=(thousandths(row.count, most)) height="1" {} }
                        bdi title=(name(&row.name)) { (name(&row.name)) }
                        span { (count(row.count)) }
                    }
                }
            }
            @if shown.is_empty() { p.muted { (without) } }
            @if !rest.is_empty() {
                p."muted more" { "and " (count(rest.len() as u64)) " more with " (count(rest.iter().map(|row| row.count).sum())) " events" }
            }
        }
    }
}

/// Events in each of the last minutes, at the right of an hour: in the first minutes of a process there are few.
fn minutes(per_minute: &[u64]) -> Markup {
    let per_minute = &per_minute[per_minute.len().saturating_sub(HOUR)..];
    let before = HOUR - per_minute.len();
    let most = per_minute.iter().copied().max().unwrap_or(0);
    let sum = per_minute.iter().sum();
    html! {
        svg.minutes role="img" aria-label=(format!("{} events in the last {} min", count(sum), per_minute.len()))
            preserveAspectRatio="none" viewBox=(format!("0 0 {} 1000", HOUR * 10)) {
            line.base x1="0" x2=(HOUR * 10) y1="1000" y2="1000" vector-effect="non-scaling-stroke" {}
            @for (index, events) in per_minute.iter().enumerate() {
                @if *events > 0 {
                    // A single event beside a burst is still to be seen.
                    @let height = thousandths(*events, most).max(30);
                    rect.bar x=((before + index) * 10 + 1) width="8" y=(1000 - height) height=(height) {}
                }
            }
        }
        div."axis muted" {
            span { (HOUR) " min ago" }
            span { (count(sum)) " events, " (count(most)) " in the busiest minute" }
            span { "now" }
        }
    }
}

fn thousandths(part: u64, whole: u64) -> u64 {
    u64::try_from(u128::from(part) * 1000 / u128::from(whole.max(1))).unwrap_or(1000)
}

#[cfg(test)]
#[path = "landing_tests.rs"]
mod tests;
