//! The landing page: what the exporter is doing right now, for a person.
//!
//! It runs no scripts, loads nothing, and shows no text of the API or the collector, only names that
//! are labels of metrics too. `maud` escapes every value.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::response::{Html, IntoResponse, Response};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::StatusCode;
use http::header::CONTENT_SECURITY_POLICY;
use jiff::Timestamp;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use ring::digest;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::overview::{AuditOverview, Count, Overview, TicketsOverview};
use super::{HEALTHY_PATH, READY_PATH, WebState};
use crate::health::Stuck;
use crate::metrics::build::{REVISION, RUSTC, VERSION};
use crate::metrics::loops::{Loop, LoopState};

const STYLE: &str = include_str!("landing.css");

/// The number of rows of a list of the most frequent.
const TOP: usize = 10;

/// The number of characters of a name that are shown.
const NAME_LENGTH: usize = 200;

/// The time after which the page reloads itself, in seconds.
const REFRESH_SECONDS: u32 = 10;

/// How long a rendered page is shared by requests.
const SHARED: Duration = Duration::from_secs(1);

/// Renders pages. Clients that do not read them share them, so that they do not fill the memory.
#[derive(Clone)]
pub(super) struct Pages {
    state: WebState,
    telemetry_path: String,
    policy: String,
    /// Locked while a page is rendered.
    latest: Arc<Mutex<Option<(Instant, Bytes)>>>,
}

/// Everything that the page shows.
struct Landing<'a> {
    now: Timestamp,
    loops: [(Loop, LoopState); Loop::ALL.len()],
    stuck: Vec<Stuck>,
    ready: bool,
    overview: Overview,
    telemetry_path: &'a str,
}

/// Answers `GET /`.
pub(super) async fn page(State(pages): State<Pages>) -> Response {
    match pages.latest().await {
        Some(page) => ([(CONTENT_SECURITY_POLICY, pages.policy)], Html(page)).into_response(),
        None => {
            let message = "The page could not be rendered; see the log.\n";
            (StatusCode::INTERNAL_SERVER_ERROR, message).into_response()
        }
    }
}

// === impl Pages ===

impl Pages {
    pub(super) fn new(state: WebState, telemetry_path: &str) -> Self {
        let hash = BASE64_STANDARD.encode(digest::digest(&digest::SHA256, STYLE.as_bytes()));
        Self {
            state,
            telemetry_path: telemetry_path.to_owned(),
            policy: format!(
                "default-src 'none'; style-src 'sha256-{hash}'; img-src data:; base-uri 'none'; \
                 form-action 'none'; frame-ancestors 'none'"
            ),
            latest: Arc::default(),
        }
    }

    async fn latest(&self) -> Option<Bytes> {
        let mut latest = self.latest.clone().lock_owned().await;
        if let Some((at, page)) = &*latest
            && at.elapsed() < SHARED
        {
            return Some(page.clone());
        }
        let pages = self.clone();
        let task = tokio::task::spawn_blocking(move || {
            let page = Bytes::from(pages.render());
            *latest = Some((Instant::now(), page.clone()));
            page
        });
        task.await
            .inspect_err(|error| tracing::error!(%error, "cannot render the page"))
            .ok()
    }

    fn render(&self) -> String {
        let (metrics, health) = (&self.state.metrics, &self.state.health);
        let landing = Landing {
            now: Timestamp::now(),
            loops: Loop::ALL.map(|which| (which, metrics.loops.state(which))),
            stuck: health.stuck(),
            ready: health.is_ready(),
            overview: (self.state.overview)(),
            telemetry_path: &self.telemetry_path,
        };
        landing.render()
    }
}

// === impl Landing ===

impl Landing<'_> {
    fn render(&self) -> String {
        let failing = |(_, state): &(Loop, LoopState)| state.enabled && state.up == Some(false);
        let summary = match () {
            () if !self.stuck.is_empty() => "Stuck",
            () if self.loops.iter().any(failing) => "Failing",
            () if !self.ready => "Not ready",
            () => "Working",
        };
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
                        @if !self.ready { span."badge wait" { "not ready" } }
                        span."muted when" { "as of " (self.now.strftime("%H:%M:%S UTC")) }
                    }
                    main {
                        div.grid { @for (which, state) in &self.loops { (self.loop_card(*which, state)) } }
                        @if let Some(audit) = &self.overview.audit { (self.audit(audit)) }
                        div."grid wide tops" {
                            @if let Some(tickets) = &self.overview.tickets { (self.tickets(tickets)) }
                            (self.delivery())
                        }
                    }
                    footer {
                        nav {
                            a href=(self.telemetry_path) { "Metrics" }
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

    fn loop_card(&self, which: Loop, state: &LoopState) -> Markup {
        let stuck = self.stuck.iter().find(|stuck| stuck.which == which);
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
            Loop::Otlp => (
                "Log records",
                "No collector is configured; see --otlp.endpoint.",
            ),
        };
        html! {
            section {
                div.head { h2 { (title) } span class=(class) { (word) } }
                @if !state.enabled { p.muted { (off) } }
                @if let Some(stuck) = stuck { p.error { "No progress for " (duration(stuck.silent)) "." } }
                @if let Some(at) = state.last_success { p.muted { "Last success " (self.ago(at)) "." } }
                @if let Some(failure) = &state.last_failure {
                    p.error { "Last failure " (self.ago(failure.at)) ": " (failure.summary) "; the log says more." }
                }
            }
        }
    }

    fn audit(&self, audit: &AuditOverview) -> Markup {
        html! {
            section {
                div.head {
                    h2 { "Audit events" }
                    @if audit.paused { span."badge bad" { "paused: the state file is full" } }
                    @else if let Some(reading) = &audit.reading { span."badge wait" { (reading) } }
                }
                dl {
                    @if let Some(at) = audit.newest { (figure("Newest event", self.ago(at))) }
                    (figure("Counted since the state file was created", count(audit.events)))
                    (figure("In the last hour", count(audit.per_minute.iter().sum())))
                    (figure("Found late", count(audit.late)))
                    (figure("Malformed", count(audit.malformed)))
                    (figure("Gaps", count(audit.gaps)))
                }
            }
            div."grid wide" {
                (top("By activity type", &audit.activity_types))
                (top("By actor", &audit.actors))
            }
        }
    }

    fn tickets(&self, tickets: &TicketsOverview) -> Markup {
        html! {
            section {
                div.head {
                    h2 { "Open tickets" }
                    @if !tickets.consistent { span."badge wait" { "changed during the scan" } }
                }
                div.scroll { table {
                    tr { th { "Type" } th { "Priority" } th.number { "Tickets" } th.number { "Deal amount" } }
                    @for row in &tickets.open { tr {
                        td { (name(&row.ticket_type)) }
                        td { (name(&row.priority)) }
                        td.number { (count(row.tickets)) }
                        td.number { (count(row.deal_amount.max(0.0).round() as u64)) }
                    } }
                } }
                dl {
                    (figure("Overdue", count(tickets.overdue)))
                    @if let Some(at) = tickets.oldest_open { (figure("Oldest created", self.ago(at))) }
                    @if let Some(at) = tickets.taken_at { (figure("Scanned", self.ago(at))) }
                }
                p.muted { @for state in &tickets.states { (name(&state.name)) " " (count(state.count)) ". " } }
            }
        }
    }

    fn delivery(&self) -> Markup {
        let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
        html! {
            section {
                h2 { "Delivery and state" }
                dl {
                    @if let Some(delivery) = &self.overview.delivery {
                        (figure("Backlog", count(delivery.backlog)))
                        @if let Some(at) = delivery.oldest_unsent { (figure("Oldest record", self.ago(at))) }
                        (figure("Acknowledged since the start", count(delivery.sent)))
                    }
                    (figure("Dead letters", count(self.overview.dead_letters)))
                    @if let Some(state) = &self.overview.state {
                        (figure("State file", mib(state.size_bytes)))
                        (figure("Its maximum size", mib(state.max_size_bytes)))
                    }
                }
                @if let Some(delivery) = &self.overview.delivery { p.muted { "Collector: " (delivery.endpoint) } }
                @if let Some(state) = &self.overview.state { p.muted { "State: " (state.path) } }
            }
        }
    }

    fn ago(&self, at: Timestamp) -> String {
        // The clock of a peer may be ahead of ours.
        let age = Duration::try_from(self.now.duration_since(at)).unwrap_or_default();
        format!("{} ago", duration(age))
    }
}

fn figure(what: &str, value: String) -> Markup {
    html! { div { dt { (what) } dd { (value) } } }
}

/// A name of a label: cut to what a page can hold, with line breaks at underscores.
fn name(name: &str) -> Markup {
    let short: String = name.chars().take(NAME_LENGTH).collect();
    html! { bdi { @for part in short.split_inclusive('_') { (part) wbr; } } }
}

/// The most frequent rows.
fn top(title: &str, rows: &[Count]) -> Markup {
    let mut rows: Vec<_> = rows.iter().filter(|row| row.count > 0).collect();
    rows.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
    let rest: u64 = rows.iter().skip(TOP).map(|row| row.count).sum();
    html! {
        section {
            h2 { (title) }
            ol { @for row in rows.iter().take(TOP) { li { (name(&row.name)) span { (count(row.count)) } } } }
            @if rows.is_empty() { p.muted { "None." } }
            @if rest > 0 { p.muted { "All others: " (count(rest)) "." } }
        }
    }
}

/// `1234567` as `1,234,567`.
fn count(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(String::from_utf8_lossy);
    groups.collect::<Vec<_>>().join(",")
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::loops::Failure;
    use crate::web::overview::{DeliveryOverview, OpenTickets, StateOverview};

    fn seconds_ago(seconds: u64) -> Timestamp {
        "2026-03-01T12:00:00Z".parse::<Timestamp>().unwrap() - Duration::from_secs(seconds)
    }

    fn state(up: Option<bool>, failure: Option<&str>) -> LoopState {
        LoopState {
            enabled: true,
            up,
            last_success: (up == Some(true)).then(|| seconds_ago(4)),
            last_failure: failure.map(|message| Failure {
                at: seconds_ago(90),
                summary: "unauthorized, HTTP 401".to_owned(),
                message: message.to_owned(),
            }),
        }
    }

    fn landing() -> Landing<'static> {
        let types = (1..=12).map(|number| Count::new(format!("TYPE_{number}"), number * 1000));
        let ticket = |ticket_type: &str, priority: &str, tickets, deal_amount| OpenTickets {
            ticket_type: ticket_type.to_owned(),
            priority: priority.to_owned(),
            tickets,
            deal_amount,
        };
        Landing {
            now: seconds_ago(0),
            loops: [
                (Loop::Audit, state(Some(true), Some("secret of a peer"))),
                (Loop::Tickets, state(None, None)),
                (Loop::Otlp, state(Some(false), Some("secret of a peer"))),
            ],
            stuck: Vec::new(),
            ready: true,
            overview: Overview {
                audit: Some(AuditOverview {
                    events: 1_234_567,
                    newest: Some(seconds_ago(23)),
                    per_minute: vec![3, 1],
                    activity_types: types.collect(),
                    reading: Some("catching up, 2 open ranges".to_owned()),
                    late: 3,
                    ..AuditOverview::default()
                }),
                tickets: Some(TicketsOverview {
                    taken_at: Some(seconds_ago(35)),
                    consistent: true,
                    states: vec![Count::new("OPEN", 57), Count::new("CLOSED", 1204)],
                    open: vec![
                        ticket("BUG", "HIGH", 12, 1_250_000.4),
                        ticket("BUG", "none", 42, -0.3),
                    ],
                    overdue: 5,
                    oldest_open: Some(seconds_ago(86_400 * 43)),
                }),
                delivery: Some(DeliveryOverview {
                    endpoint: "http://collector:4317 (grpc)".to_owned(),
                    backlog: 5120,
                    oldest_unsent: Some(seconds_ago(310)),
                    sent: 45_210,
                }),
                state: Some(StateOverview {
                    path: "/var/lib/ledger.db".to_owned(),
                    size_bytes: 19_503_104,
                    max_size_bytes: 256 << 20,
                }),
                dead_letters: 2,
            },
            telemetry_path: "/metrics",
        }
    }

    /// Returns the text between the tags.
    fn text(landing: &Landing<'_>) -> String {
        let html = landing.render();
        let body = html.split("</style>").nth(1).unwrap();
        let texts = body.split('<').filter_map(|part| part.split_once('>'));
        texts.map(|(_, text)| text).collect()
    }

    #[test]
    fn the_page_shows_the_state_of_everything_and_no_text_of_a_peer() {
        let landing = landing();
        let text = text(&landing);
        for expected in [
            "Audit logsworkingLast success 4 s ago.Last failure 90 s ago: unauthorized, HTTP 401; the log says more.",
            "Ticketsstarting",
            "Log recordsfailing",
            "catching up, 2 open ranges",
            "Newest event23 s ago",
            "created1,234,567In the last hour4",
            "TYPE_1212,000",
            "All others: 3,000.",
            "By actorNone.",
            "BUGHIGH121,250,000BUGnone420",
            "Overdue5Oldest created43 d agoScanned35 s ago",
            "OPEN 57. CLOSED 1,204.",
            "Backlog5,120Oldest record5 min ago",
            "State file18.6 MiB",
        ] {
            assert!(text.contains(expected), "no {expected:?} in {text}");
        }
        assert!(!text.contains("secret of a peer"), "{text}");
        assert!(landing.render().contains("<title>Failing"));
    }

    #[test]
    fn an_exporter_that_just_started_has_a_page_too() {
        let landing = Landing {
            loops: Loop::ALL.map(|which| (which, LoopState::default())),
            overview: Overview::default(),
            ready: false,
            ..landing()
        };
        assert!(landing.render().contains("<title>Not ready"));
        let text = text(&landing);
        assert!(
            text.contains("Disabled by --audit.enabled=false."),
            "{text}"
        );
        assert!(text.contains("No collector is configured"), "{text}");
    }

    #[test]
    fn a_stuck_loop_and_a_full_state_file_are_shown() {
        let mut landing = landing();
        landing.overview.audit.as_mut().unwrap().paused = true;
        landing.stuck = vec![Stuck {
            which: Loop::Tickets,
            silent: Duration::from_secs(600),
        }];
        assert!(landing.render().contains("<title>Stuck"));
        let text = text(&landing);
        assert!(
            text.contains("TicketsstuckNo progress for 10 min."),
            "{text}"
        );
        assert!(text.contains("paused: the state file is full"), "{text}");
    }

    #[test]
    fn names_are_escaped_and_cut_and_nothing_is_loaded_or_run() {
        let mut landing = landing();
        let evil = "\"><img src=x onload=x>".repeat(5000);
        let audit = landing.overview.audit.as_mut().unwrap();
        audit.actors = vec![Count::new(evil.as_str(), 7)];
        landing.overview.tickets.as_mut().unwrap().open[0].ticket_type = evil;
        let html = landing.render();
        assert!(html.len() < 40_000, "{}", html.len());
        for forbidden in [
            "<script",
            "<img",
            "@import",
            "url(",
            "style=",
            "http-equiv=\"set",
        ] {
            assert!(!html.contains(forbidden), "{forbidden}");
        }
    }
}
