//! The API: every way in which it fails has a line with what to do.

use futures_util::{StreamExt as _, stream};
use http::StatusCode;
use orgdata_exporter::simulator::{ApiKey, Config, Fault, FaultKind};

use super::{TLS, check, expect, organization, service};
use crate::support::binary::KEY;
use crate::support::http_peer::{NO_TICKETS, Peer, Reply, answer, json};
use crate::support::service::spawn;
use crate::web_config;

const ENTRY: &str = r#"{"items":[{"id":"a","type":"T","createdAt":"2026-01-01T00:00:00Z","organizationId":1}],"startCursor":"s","endCursor":"e","hasPrevious":false,"hasMore":false}"#;

/// An API with this answer to audit logs and to tickets. Without an answer it is well.
async fn api(audit: Option<Reply>, tickets: Option<Reply>) -> Peer {
    let audit = audit.unwrap_or_else(|| json("200 OK", ENTRY));
    let tickets = tickets.unwrap_or_else(|| json("200 OK", NO_TICKETS));
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
async fn a_failure_of_both_listings_is_named_once_with_what_to_do() {
    let html = ["content-type: text/html"];
    let away = ["retry-after: 30"];
    let moved = ["location: https://login.example.com/x"];
    let cases = [
        (closed("500 Error"), "bad api: ask its operators"),
        (closed("404 Not Found"), "bad api: check --api.base-url"),
        (closed("429 Wait"), "warning api: max-requests-per-second"),
        (answer("429 Wait", &away, ""), "warning api: wait 30s"),
        (
            answer("307 Moved", &moved, ""),
            "bad api: login.example.com",
        ),
        (closed("401 No"), "bad key: tickets:read | ORGDATA_API_KEY"),
        (closed("403 No"), "bad key: tickets:read"),
        (Reply::Reset(Vec::new()), "bad api: check --api.base-url"),
        (Reply::Held(Vec::new()), "bad api: no answer within 3s"),
        (answer("200 OK", &html, "<p>Log in"), "bad api: login page"),
    ];
    let runs = cases.map(async |(reply, expected)| {
        let api = api(Some(reply.clone()), Some(reply)).await;
        expect(check(&api.url()).arg("--api.timeout=3s"), expected).await;
    });
    stream::iter(runs).buffer_unordered(4).collect::<()>().await;
}

#[tokio::test]
async fn a_failure_of_one_listing_is_named_with_what_to_do() {
    let unknown =
        r#"{"error":"Bad request","issues":[{"path":["activityTypes"],"message":"No such type"}]}"#;
    let large = json("200 OK", vec![b' '; 33 << 20]);
    for (answer, expected) in [
        (closed("401 No"), "bad audit-logs: --audit.enabled=false"),
        (large, "warning audit-logs: requests smaller pages"),
        (
            json("200 OK", r#"{"items":[]}"#),
            "warning audit-logs: organization",
        ),
        (json("400 No", unknown), "bad audit-logs: No such type"),
    ] {
        expect(check(&api(Some(answer), None).await.url()), expected).await;
    }
    let tickets = api(None, Some(closed("403 No"))).await;
    let words = "bad tickets: the scope tickets:read | --tickets.enabled=false";
    expect(check(&tickets.url()), words).await;
}

#[tokio::test]
async fn a_service_that_is_well_is_all_good() {
    let api = service().await;
    let checked = expect(check(&api.base_url()), "").await;
    let scopes =
        "from the variable ORGDATA_API_KEY, accepted for activity_logs:read and tickets:read";
    for (about, words) in [
        ("api", "answers"),
        ("key", scopes),
        ("audit-logs", "can be read"),
        ("tickets", "can be read"),
        ("port", "127.0.0.1:0: free"),
        ("clock", "holds"),
        ("rate-limit", "no header field names one in 10 responses"),
        ("organization", "4711"),
        ("collector", "none"),
        ("state", "does not exist yet and can be created"),
    ] {
        checked.assert("good", about, words);
    }
    assert!(checked.0.ends_with("\nAll is well.\n"), "{}", checked.0);
}

#[tokio::test]
async fn keys_are_named_by_their_place_and_scopes() {
    let keys = vec![ApiKey::scoped(KEY, &["activity_logs:read"])];
    let config = Config {
        keys,
        ..organization()
    };
    let api = spawn(config).await;
    let url = api.base_url();
    let scope = "bad tickets: a key that has activity_logs:read and tickets:read in | --tickets.enabled=false";
    expect(check(&url), scope).await;
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
    let api = service().await;
    let plain = api.base_url().replace("http://", "https://");
    let secure = web_config::Server::start(web_config::TLS).await;
    let tls = secure.url("https", "");
    for (url, expected) in [
        ("https://no-such-host.invalid", "bad api: cannot resolve"),
        ("http://127.0.0.1:1", "bad api: nothing listens at"),
        (&plain, "bad api: that port speaks plain HTTP"),
        (&tls, "bad api: UnknownIssuer | --api.ca-file"),
        ("http://192.0.2.1", "bad settings: allow-plain-http"),
    ] {
        expect(check(url), expected).await;
    }
    let no_pem = check(&tls).arg(&format!("--api.ca-file={TLS}server.key"));
    let words = "bad api: --api.ca-file | holds no certificate | PEM";
    expect(no_pem, words).await;
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
    let api = spawn(organization()).await;
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
    for (date_ahead, expected) in [(100, ""), (-100, ""), (3600, behind), (-3600, ahead)] {
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
    let api = api(None, Some(tickets)).await;
    let words = "good rate-limit: ratelimit-policy: (not a number), x-ratelimit-remaining: 98";
    let checked = expect(check(&api.url()), words).await;
    assert!(!checked.0.contains("ada"));
    // Without a Date nothing is claimed.
    checked.assert("unknown", "clock", "cannot tell: no response has a Date");
}
