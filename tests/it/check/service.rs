//! The API: every way in which it fails has a line with what to do.

use http::StatusCode;
use orgdata_exporter::simulator::{ApiKey, Fault, FaultKind};

use super::{check, expect, organization, service};
use crate::support::binary::KEY;
use crate::support::http_peer::{NO_TICKETS, Peer, Reply, answer, json};
use crate::support::service::spawn;
use crate::web_config;

const ENTRY: &str = r#"{"items":[{"id":"a","type":"T","createdAt":"2026-01-01T00:00:00Z","organizationId":1}],"startCursor":"s","endCursor":"e","hasPrevious":false,"hasMore":false}"#;

/// An API with these answers to audit logs and to tickets.
async fn api(audit: Reply, tickets: Reply) -> Peer {
    Peer::start(move |seen, _| match seen.target().contains("/v1/tickets") {
        true => tickets.clone(),
        false => audit.clone(),
    })
    .await
}

fn closed(status: &str) -> Reply {
    json(status, r#"{"message":"closed for a day"}"#)
}

#[tokio::test]
async fn a_failure_is_named_once_with_what_to_do() {
    let html = answer("200 OK", &["content-type: text/html"], "<p>Log in");
    let later = answer("429 Wait", &["retry-after: 30"], "");
    let moved = ["location: https://login.example.com/x"];
    let moved = answer("307 Moved", &moved, "");
    let no_such_type =
        r#"{"error":"Bad request","issues":[{"path":["activityTypes"],"message":"No such type"}]}"#;
    let no_such_type = json("400 No", no_such_type);
    // In both listings.
    let both = [
        (closed("500 Error"), "bad api: ask its operators"),
        (closed("404 Not Found"), "bad api: check --api.base-url"),
        (later, "warning api: wait 30s"),
        (moved, "bad api: login.example.com"),
        (html, "bad api: login page"),
        (closed("401 No"), "bad key: tickets:read | ORGDATA_API_KEY"),
    ];
    // Only in the audit logs.
    let one = [
        (closed("401 No"), "bad audit-logs: --audit.enabled=false"),
        (no_such_type, "bad audit-logs: No such type"),
    ];
    let both = both.map(|(reply, expected)| (reply.clone(), reply, expected));
    let one = one.map(|(reply, expected)| (reply, json("200 OK", NO_TICKETS), expected));
    for (audit, tickets, expected) in both.into_iter().chain(one) {
        expect(check(&api(audit, tickets).await.url()), expected).await;
    }
}

/// The transcript in the documentation has the other lines.
#[tokio::test]
async fn an_api_as_documented_is_all_good() {
    let api = service().await;
    let checked = expect(check(&api.base_url()), "").await;
    checked.assert("good", "tickets", "can be read");
    for about in ["open-states", "offset", "last-page", "total-count"] {
        checked.assert("good", about, "holds: ");
    }
    assert!(checked.0.ends_with("\nAll is well.\n"), "{}", checked.0);
}

#[tokio::test]
async fn keys_are_named_by_their_place_and_scopes() {
    let mut config = organization();
    config.keys = vec![ApiKey::scoped(KEY, &["activity_logs:read"])];
    let api = spawn(config).await;
    let url = api.base_url();
    let one = check(&url).arg("--tickets.enabled=false");
    expect(one, "good key: accepted for activity_logs:read").await;
    let other = check(&url).arg("--audit.enabled=false");
    let words =
        "bad key: a key that has tickets:read in | put it into the variable ORGDATA_API_KEY";
    expect(other, words).await;
    let file = check(&url)
        .env("ORGDATA_API_KEY", "")
        .arg("--api.key-file=the-key");
    std::fs::write(file.dir().join("the-key"), "not-the-key\n").unwrap();
    expect(file, "bad key: HTTP 401 | put it into the file the-key").await;
}

#[tokio::test]
async fn an_address_that_leads_nowhere_says_which_part_is_wrong() {
    let server = web_config::Server::start(web_config::TLS).await;
    let secure = server.url("https", "");
    for (url, expected) in [
        ("http://127.0.0.1:1", "bad api: nothing listens at"),
        (&secure, "bad api: UnknownIssuer | --api.ca-file"),
        ("http://192.0.2.1", "bad settings: allow-plain-http"),
    ] {
        expect(check(url), expected).await;
    }
}

/// The exporter would wait longer, so it is not known whether it works.
#[tokio::test]
async fn it_ends_in_time_whatever_hangs_which_is_a_warning() {
    let peer = Peer::always(Reply::Held(Vec::new())).await;
    let launch = check(&peer.url())
        .arg("--api.timeout=10m")
        .otlp("http/protobuf", &peer.url())
        .env("OTEL_EXPORTER_OTLP_TIMEOUT", "600000");
    let finished = launch.run().await;
    let words = "no answer within 10s, the longest that check waits; the exporter waits for";
    let silent = finished.stdout.matches(words).count();
    assert_eq!((finished.status, silent), (Some(1), 2), "{finished:?}");
}

#[tokio::test]
async fn at_most_25_requests_are_sent_however_many_fail() {
    let api = service().await;
    api.fault(Fault::new(FaultKind::Status(StatusCode::BAD_GATEWAY)).every(2));
    let launch = check(&api.base_url()).arg("--api.max-requests-per-second=1000");
    let finished = launch.run().await;
    assert_ne!(finished.status, Some(2), "{}", finished.stdout);
    let requests = api.requests();
    assert!(requests.audit + requests.tickets <= 25, "{requests:?}");
}

#[tokio::test]
async fn clocks_that_differ_by_more_than_two_minutes_are_a_warning() {
    let behind = "warning clock: does not hold | behind the API's | NTP";
    let ahead = "warning clock: does not hold | ahead of the API's | NTP";
    let api = service().await;
    for (date_ahead, expected) in [(100, ""), (3600, behind), (-3600, ahead)] {
        api.change_readings(|readings| readings.date_ahead = date_ahead);
        expect(check(&api.base_url()), expected).await;
    }
}

#[tokio::test]
async fn header_fields_about_rate_limits_are_named_with_their_numbers() {
    let fields = [
        "x-ratelimit-remaining: 98",
        "RateLimit-Policy: \"team-of-ada\";q=100",
        "content-type: application/json",
    ];
    let tickets = answer("200 OK", &fields, NO_TICKETS);
    let api = api(json("200 OK", ENTRY), tickets).await;
    let words = "good rate-limit: ratelimit-policy: (not a number), x-ratelimit-remaining: 98";
    let checked = expect(check(&api.url()), words).await;
    assert!(!checked.0.contains("ada"));
    // Without a Date nothing is claimed.
    checked.assert("unknown", "clock", "cannot tell: no response has a Date");
}
