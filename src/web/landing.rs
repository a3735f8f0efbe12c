//! The landing page: what the exporter is doing right now, for a person.
//!
//! It runs no scripts, loads nothing, and shows no text of the API or the collector, only names that
//! are labels of metrics too. `maud` escapes every value.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use http::{HeaderName, HeaderValue};
use jiff::Timestamp;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use ring::digest;

use super::{HEALTHY_PATH, READY_PATH, WebState};
use crate::metrics::Loop;
use crate::metrics::audit::{RangeKind, Total};
use crate::metrics::build::{REVISION, RUSTC, VERSION};

const STYLE: &str = include_str!("landing.css");

/// The number of rows of a list of the most frequent.
const TOP: usize = 10;

/// The number of characters of a name that are shown.
const NAME_LENGTH: usize = 200;

/// The time after which the page reloads itself, in seconds.
const REFRESH_SECONDS: u32 = 10;

/// What is shown, and its value.
type Fact = (&'static str, String);

/// Returns the headers of the page. Its policy allows its one style sheet.
pub(super) fn headers() -> [(HeaderName, HeaderValue); 2] {
    let hash = BASE64_STANDARD.encode(digest::digest(&digest::SHA256, STYLE.as_bytes()));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{hash}'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'"
    );
    [
        (
            CONTENT_TYPE,
            HeaderValue::from_static("text/html; charset=utf-8"),
        ),
        (
            CONTENT_SECURITY_POLICY,
            HeaderValue::try_from(policy).expect("ASCII"),
        ),
    ]
}

/// Returns the page.
pub(super) fn render(state: &WebState, telemetry_path: &str) -> String {
    let cards = Loop::ALL.map(|which| loop_card(state, which));
    let words = cards.each_ref().map(|(word, _)| *word);
    let summary = match () {
        () if words.contains(&"stuck") => "Stuck",
        () if words.contains(&"failing") => "Failing",
        () if !state.health.is_ready() => "Not ready",
        () => "Working",
    };
    let (metrics, audit) = (&state.metrics, &state.metrics.audit);
    let names = audit.names();
    let shown = |actor: &str| match names.get(actor) {
        Some(name) => format!("{name} ({actor})"),
        None => actor.to_owned(),
    };
    let events = audit.events();
    let types = events
        .iter()
        .map(|(labels, count)| (labels.activity_type.to_string(), *count));
    let actors = events
        .iter()
        .filter_map(|(labels, count)| Some((shown(labels.actor.as_deref()?), *count)));
    let tickets = metrics.tickets.series();
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="refresh" content=(REFRESH_SECONDS);
                title { (summary) " \u{b7} orgdata-exporter" }
                link rel="icon" href="data:,";
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { "orgdata-exporter" }
                    span.muted { (VERSION) }
                    span."muted when" { "as of " (Timestamp::now().strftime("%H:%M:%S UTC")) }
                }
                main {
                    div.grid { @for (_, card) in &cards { (card) } }
                    (section("Audit events", &audit_facts(state)))
                    div."grid wide tops" {
                        (top("Events by activity type", types))
                        (top("Events by actor", actors))
                        @if let Some(tickets) = &tickets {
                            (top("Open tickets", tickets.open.iter().map(|(labels, group)| (labels.join(" "), group.tickets))))
                            (top("All tickets", tickets.by_state.iter().map(|(labels, group)| (labels.join(" "), group.tickets))))
                        }
                        (section("Delivery and state", &delivery_facts(state)))
                    }
                }
                footer {
                    nav {
                        a href=(telemetry_path) { "Metrics" }
                        a href=(HEALTHY_PATH) { "Healthy?" }
                        a href=(READY_PATH) { "Ready?" }
                    }
                    small { "revision " (REVISION) ", built with rustc " (RUSTC) }
                }
            }
        }
    };
    page.into_string()
}

/// Returns the state of a loop in one word, and with details.
fn loop_card(web: &WebState, which: Loop) -> (&'static str, Markup) {
    let state = web.metrics.loops.state(which);
    let stuck = web
        .health
        .stuck()
        .into_iter()
        .find(|stuck| stuck.which == which);
    let (class, word) = match (state.enabled, &stuck, state.up) {
        (false, ..) => ("badge", "off"),
        (_, Some(_), _) => ("badge bad", "stuck"),
        (.., None) => ("badge wait", "starting"),
        (.., Some(true)) => ("badge good", "working"),
        (.., Some(false)) => ("badge bad", "failing"),
    };
    let (title, off) = match which {
        Loop::Audit => ("Audit logs", "Disabled by --audit.enabled=false."),
        Loop::Tickets => ("Tickets", "Disabled by --tickets.enabled=false."),
        Loop::Otlp => (
            "Log records",
            "No collector is configured; see --otlp.endpoint.",
        ),
    };
    let card = html! {
        section {
            div.head { h2 { (title) } span class=(class) { (word) } }
            @if !state.enabled { p.muted { (off) } }
            @if let Some(stuck) = stuck { p.error { "No progress for " (duration(stuck.silent)) "." } }
            @if let Some(at) = state.last_success { p.muted { "Last success " (ago(at)) "." } }
            @if let Some(failure) = &state.last_failure {
                p.error { "Last failure " (ago(failure.at)) "; see the log for the reason." }
            }
        }
    };
    (word, card)
}

fn audit_facts(state: &WebState) -> Vec<Fact> {
    let audit = &state.metrics.audit;
    let open = |kind| audit.current_ranges(kind).0 > 0;
    let reading = match () {
        () if audit.is_paused() => "paused: the state file is full",
        () if open(RangeKind::CatchUp) => "catching up",
        () if open(RangeKind::History) => "reading history",
        () => "new events",
    };
    let last_hour = audit.per_minute().iter().sum();
    let mut facts = vec![
        ("Reading", reading.to_owned()),
        ("Since the state file was created", count(audit.counted())),
        ("In the last hour", count(last_hour)),
        ("Found late", count(audit.total(Total::Late))),
        ("Malformed", count(audit.total(Total::Malformed))),
        ("Gaps", count(audit.total(Total::Gaps))),
    ];
    facts.extend(audit.newest().map(|at| ("Newest event", ago(at))));
    facts
}

fn delivery_facts(state: &WebState) -> Vec<Fact> {
    let (otlp, file) = (&state.metrics.otlp, &state.metrics.state);
    let mib = |bytes: i64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let mut facts = vec![
        ("Backlog", count(otlp.backlog_records().unsigned_abs())),
        ("Sent since the start", count(otlp.records_sent.get())),
        (
            "Dead letters",
            count(otlp.dead_letters.get().unsigned_abs()),
        ),
        ("State file", mib(file.size_bytes.get())),
        ("Its maximum size", mib(file.max_size_bytes.get())),
    ];
    if let Some(tickets) = state.metrics.tickets.series() {
        facts.push(("Tickets scanned", ago(tickets.taken_at)));
        facts.push(("Overdue", count(tickets.overdue_total())));
    }
    facts
}

fn section(title: &str, facts: &[Fact]) -> Markup {
    html! {
        section {
            h2 { (title) }
            dl { @for (what, value) in facts { div { dt { (what) } dd { (value) } } } }
        }
    }
}

/// The most frequent names, each with the sum of its counts.
fn top(title: &str, counts: impl Iterator<Item = (String, u64)>) -> Markup {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for (name, count) in counts.filter(|(_, count)| *count > 0) {
        *sums.entry(name).or_default() += count;
    }
    let mut rows: Vec<_> = sums.into_iter().collect();
    rows.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let rest: u64 = rows.iter().skip(TOP).map(|(_, count)| count).sum();
    // Cut to what a page can hold, with line breaks at underscores.
    let short = |name: &str| name.chars().take(NAME_LENGTH).collect::<String>();
    html! {
        section {
            h2 { (title) }
            ol { @for (name, sum) in rows.iter().take(TOP) {
                li { bdi { @for part in short(name).split_inclusive('_') { (part) wbr; } } span { (count(*sum)) } }
            } }
            @if rows.is_empty() { p.muted { "None." } }
            @if rest > 0 { p.muted { "All others: " (count(rest)) "." } }
        }
    }
}

/// `1234567` as `1,234,567`.
fn count(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev();
    let groups: Vec<_> = groups.map(String::from_utf8_lossy).collect();
    groups.join(",")
}

fn ago(at: Timestamp) -> String {
    // The clock of a peer may be ahead of ours.
    let age = Timestamp::now().duration_since(at);
    format!("{} ago", duration(age.try_into().unwrap_or_default()))
}

/// A duration in its largest unit.
fn duration(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} d", seconds / 86_400),
    }
}
