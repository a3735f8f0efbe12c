use std::time::Duration;

use super::*;
use crate::metrics::loops::Failure;
use crate::web::overview::OpenTickets;

fn now() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

fn seconds_ago(seconds: u64) -> Timestamp {
    now() - Duration::from_secs(seconds)
}

fn state(up: Option<bool>, failure: Option<&str>) -> LoopState {
    LoopState {
        enabled: true,
        up,
        last_success: (up == Some(true)).then(|| seconds_ago(4)),
        last_failure: failure.map(|message| Failure {
            at: seconds_ago(90),
            message: message.to_owned(),
        }),
    }
}

/// Every part of the page, with made-up rows.
fn overview() -> Overview {
    Overview {
        audit: Some(AuditOverview {
            events: 1_234_567,
            newest: Some(seconds_ago(23)),
            per_minute: (0..60).map(|minute| minute * 37 % 23).collect(),
            activity_types: [
                "TARGET_USER_LOGGED_IN",
                "DEAL_UPDATED",
                "EVALUATION_SHARED_WITH_EXTERNAL_USER",
                "TICKET_CREATED",
                "TASK_COMPLETED",
                "DEAL_CREATED",
                "USER_INVITED",
                "REQUIREMENT_UPDATED",
                "MEETING_SCHEDULED",
                "TEAM_REQUEST_APPROVED",
                "TICKET_LINKED",
                "DEAL_DELETED",
            ]
            .into_iter()
            .zip([
                512_004, 301_220, 150_002, 92_001, 60_010, 44_000, 30_111, 20_000, 15_000, 9000,
                800, 19,
            ])
            .map(|(name, count)| Count::new(name, count))
            .collect(),
            actors: (0..25)
                .map(|id| Count::new(format!("{}", 1000 + id * 7), 90_000 / (id + 1)))
                .chain([Count::new("none", 40_000)])
                .collect(),
            walk: Some("catch-up, 12 pages to go".to_owned()),
            late: 3,
            ..AuditOverview::default()
        }),
        tickets: Some(TicketsOverview {
            taken_at: Some(seconds_ago(35)),
            consistent: true,
            states: vec![Count::new("OPEN", 57), Count::new("CLOSED", 1204)],
            open: [
                ("FEATURE_REQUEST", "BLOCKER", 3, 1_250_000.0),
                ("FEATURE_REQUEST", "HIGH", 12, 830_500.5),
                ("BUG", "none", 42, 0.0),
            ]
            .map(
                |(ticket_type, priority, tickets, deal_amount)| OpenTickets {
                    ticket_type: ticket_type.to_owned(),
                    priority: priority.to_owned(),
                    tickets,
                    deal_amount,
                },
            )
            .to_vec(),
            overdue: 5,
            oldest_open: Some(seconds_ago(86_400 * 43)),
        }),
        delivery: Some(DeliveryOverview {
            endpoint: "http://collector.observability:4317 (grpc)".to_owned(),
            backlog: 5120,
            oldest_unsent: Some(seconds_ago(310)),
            sent: 45_210,
        }),
        state: Some(StateOverview {
            path: "/var/lib/orgdata-exporter/ledger.db".to_owned(),
            size_bytes: 19_503_104,
            max_size_bytes: 256 << 20,
        }),
        dead_letters: 2,
    }
}

fn landing() -> Landing<'static> {
    Landing {
        now: now(),
        loops: [
            (
                Loop::Audit,
                state(
                    Some(true),
                    Some(
                        "the service answered 502 (an HTML page, from a proxy most likely); trying again",
                    ),
                ),
            ),
            (Loop::Tickets, state(Some(true), None)),
            (
                Loop::Otlp,
                state(
                    Some(false),
                    Some(
                        "cannot connect to http://collector.observability:4317: connection refused; the records wait in the state file and are sent when it is back",
                    ),
                ),
            ),
        ],
        stuck: Vec::new(),
        ready: true,
        overview: overview(),
        telemetry_path: "/metrics",
        nonce: "0",
    }
}

/// The text between the tags, with single spaces.
fn text(html: &str) -> String {
    let body = html.split("</style>").nth(1).unwrap();
    let mut text = String::new();
    let mut tag = false;
    for c in body.chars() {
        match c {
            '<' => tag = true,
            '>' => tag = false,
            _ if tag => continue,
            c => text.push(c),
        }
    }
    text
}

#[test]
fn the_page_says_how_things_are() {
    let html = landing().render();
    let text = text(&html);
    for expected in [
        "Last success 4 s ago.",
        "Failure 1 min 30 s ago: cannot connect to http://collector.observability:4317",
        "Last failure 1 min 30 s ago: the service answered 502",
        "catch-up, 12 pages to go",
        "23 s ago",
        "1,234,567",
        "TARGET_USER_LOGGED_IN512,004",
        "and 2 more with 819 events",
        "FEATURE_REQUESTBLOCKER31,250,000HIGH12830,500.50BUGnone420",
        "All572,080,500.50",
        "5 overdue, the oldest opened 43 d ago. Read 35 s ago.",
        "OPEN 57, CLOSED 1,204.",
        "5,120oldest 5 min 10 s ago",
        "18.5 MiBof 256 MiB",
        "orgdata-exporter dead-letters list",
        "as of 12:00:00 UTC",
    ] {
        assert!(text.contains(expected), "no {expected:?} in {text}");
    }
    assert!(html.contains("<title>Failing \u{b7} orgdata-exporter</title>"));
}

#[test]
fn a_process_that_just_started_has_a_page_too() {
    let html = Landing {
        loops: Loop::ALL.map(|which| (which, LoopState::default())),
        overview: Overview::default(),
        ready: false,
        ..landing()
    }
    .render();
    let text = text(&html);
    assert!(html.contains("<title>Not ready"));
    for expected in [
        "not ready",
        "Switched off with --audit.enabled=false.",
        "No collector is set",
    ] {
        assert!(text.contains(expected), "no {expected:?} in {text}");
    }
}

#[test]
fn a_loop_is_starting_until_its_first_round() {
    let mut landing = landing();
    landing.loops[0].1 = state(None, None);
    assert!(text(&landing.render()).contains("Audit logsstartingNo success yet."));
}

#[test]
fn without_labels_for_actors_the_page_says_why() {
    let mut landing = landing();
    landing.overview.audit.as_mut().unwrap().actors.clear();
    assert!(
        text(&landing.render())
            .contains("By actorNo actor has a label: --metrics.actor-label is none")
    );
    landing.overview.audit = Some(AuditOverview::default());
    assert!(text(&landing.render()).contains("By actorNothing counted yet."));
}

#[test]
fn the_minutes_of_a_young_process_are_at_the_right_of_the_hour() {
    let mut landing = landing();
    landing.overview.audit.as_mut().unwrap().per_minute = vec![3, 1];
    let html = landing.render();
    assert!(
        html.contains("viewBox=\"0 0 600 1000\"") && html.contains("<rect class=\"bar\" x=\"591\""),
        "{html}"
    );
    assert!(text(&html).contains("60 min ago4 events, 3 in the busiest minutenow"));
}

#[test]
fn a_stuck_loop_is_named() {
    let html = Landing {
        stuck: vec![Stuck {
            which: Loop::Tickets,
            silent: Duration::from_secs(600),
        }],
        ..landing()
    }
    .render();
    assert!(html.contains("<title>Stuck"));
    assert!(text(&html).contains("TicketsstuckHas not turned for 10 min."));
}

#[test]
fn a_full_state_file_is_said_before_anything_else() {
    let mut landing = landing();
    landing.overview.audit.as_mut().unwrap().paused = true;
    let text = text(&landing.render());
    assert!(text.contains("paused: the state file is full") && !text.contains("catch-up"));
}

#[test]
fn the_page_fetches_nothing_and_runs_nothing() {
    let html = landing().render();
    for forbidden in [
        "<script",
        "src=",
        "http://fonts",
        "@import",
        "url(",
        "style=",
        "onload",
    ] {
        assert!(!html.contains(forbidden), "{forbidden}");
    }
    assert!(html.contains("<meta http-equiv=\"refresh\" content=\"10\">"));
}

#[test]
fn long_and_odd_names_are_cut_and_escaped() {
    let mut landing = landing();
    let audit = landing.overview.audit.as_mut().unwrap();
    audit.actors = vec![Count::new("<b>".repeat(50_000), 7)];
    landing.overview.tickets.as_mut().unwrap().open[0].ticket_type = "\"><img src=x>".to_owned();
    let html = landing.render();
    assert!(html.len() < 40_000, "{}", html.len());
    assert!(!html.contains("<b>") && !html.contains("<img"));
}

/// Writes the page with made-up rows, for looking at it in a browser.
#[test]
#[ignore = "writes a file to look at: cargo test --lib landing_page_to_look_at -- --ignored"]
fn landing_page_to_look_at() {
    std::fs::write(
        concat!(env!("CARGO_MANIFEST_DIR"), "/target/landing.html"),
        landing().render(),
    )
    .unwrap();
}
