//! The API: every way in which it fails has a line with what to do.

use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use http::StatusCode;
use orgdata_exporter::simulator::{ApiKey, Config, Fault, FaultKind};

use super::{Checked, TLS, check, expect, organization, service};
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

/// Names an answer to a request.
fn reply(name: &str) -> Reply {
    let html = ["content-type: text/html"];
    match name {
        "reset" => Reply::Reset(Vec::new()),
        "silence" => Reply::Held(Vec::new()),
        "nothing" => answer("200 OK", &[], ""),
        "large" => json("200 OK", vec![b' '; 33 << 20]),
        "html" => answer("200 OK", &html, "<html>Sign in</html>"),
        "wait" => answer("429 Wait", &["retry-after: 30"], ""),
        "redirect" => answer("307 Moved", &["location: https://login.example.com/x"], ""),
        error if error.contains("issues") => json("400 Bad Request", error),
        items if items.starts_with('{') => json("200 OK", items),
        status => json(status, r#"{"message":"closed for a day"}"#),
    }
}

/// Answers to both listings, and what the report says.
const OF_BOTH: &str = r#"
500 Error => bad api: HTTP 500: closed for a day | ask its operators
404 Not Found => bad api: HTTP 404 | check --api.base-url
429 Wait => warning api: HTTP 429 | the exporter waits | --api.max-requests-per-second
wait => warning api: asked to wait 30s | the exporter waits
redirect => bad api: https://login.example.com/x | set --api.base-url
401 Unauthorized => bad key: HTTP 401 | create a key that has activity_logs:read and tickets:read | put it into the variable ORGDATA_API_KEY
reset => bad api: check --api.base-url
silence => bad api: no answer within 3s | firewall
nothing => bad api: the answer is empty | check --api.base-url
html => bad api: text/html | Sign in | login page
"#;

/// Answers to one listing while the other one is well.
const OF_ONE: &str = r#"
audit 401 Unauthorized => bad audit-logs: HTTP 401 | a key that has activity_logs:read and tickets:read in | --audit.enabled=false
audit large => warning audit-logs: larger than 33554432 bytes | requests smaller pages
audit {"items":[]} => warning audit-logs: no entries | right organization
audit {"error":"Bad request","issues":[{"path":["activityTypes"],"message":"No such type"}]} => bad audit-logs: activityTypes | No such type | the --audit filters
tickets 403 Forbidden => bad tickets: the scope tickets:read | a key that has activity_logs:read and tickets:read in | --tickets.enabled=false
"#;

#[tokio::test]
async fn each_failure_is_named_with_what_to_do() {
    let lines = OF_BOTH.trim().lines().chain(OF_ONE.trim().lines());
    let runs = lines.map(|line| async move {
        let (answers, expected) = line.split_once(" => ").unwrap();
        let api = match answers.split_once(' ') {
            Some(("audit", answer)) => api(Some(reply(answer)), None).await,
            Some(("tickets", answer)) => api(None, Some(reply(answer))).await,
            _ => api(Some(reply(answers)), Some(reply(answers))).await,
        };
        expect(check(&api.url()).arg("--api.timeout=3s"), expected).await;
    });
    stream::iter(runs).buffer_unordered(4).collect::<()>().await;
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
        checked.assert_good(about, words);
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
    let both = expect(check(&url), scope).await;
    both.assert_good("key", "accepted for activity_logs:read");
    let one = expect(check(&url).arg("--tickets.enabled=false"), "").await;
    one.assert_good("tickets", "off");
    // Not both of the listings can be switched off.
    let other = check(&url).arg("--audit.enabled=false");
    let words =
        "bad key: a key that has tickets:read in | put it into the variable ORGDATA_API_KEY";
    let neither = expect(other, words).await.0;
    assert!(!neither.contains("do without"), "{neither}");
    let file = check(&url)
        .env("ORGDATA_API_KEY", "")
        .arg("--api.key-file=the-key");
    std::fs::write(file.dir().join("the-key"), "not-the-key\n").unwrap();
    expect(file, "bad key: HTTP 401 | put it into the file the-key").await;
    let plain = "bad settings: unencrypted | --api.allow-plain-http | ORGDATA_API_BASE_URL";
    expect(check("http://192.0.2.1"), plain).await;
}

#[tokio::test]
async fn an_address_that_leads_nowhere_says_which_part_is_wrong() {
    let api = service().await;
    let plain = api.base_url().replace("http://", "https://");
    let secure = web_config::Server::start(web_config::TLS).await;
    let tls = secure.url("https", "");
    let unknown = "cannot resolve no-such-host.invalid | --api.base-url";
    let refused = "nothing listens at 127.0.0.1, port | --api.base-url";
    for (url, words) in [
        ("https://no-such-host.invalid", unknown),
        ("http://127.0.0.1:1", refused),
        (&plain, "InvalidContentType | that port speaks plain HTTP"),
        (&tls, "UnknownIssuer | --api.ca-file"),
    ] {
        expect(check(url), &format!("bad api: {words}")).await;
    }
    let no_pem = check(&tls).arg(&format!("--api.ca-file={TLS}server.key"));
    let words = "bad api: --api.ca-file | holds no certificate | PEM";
    expect(no_pem, words).await;
}

/// The exporter would wait longer, so it is not known whether it works.
#[tokio::test]
async fn it_ends_in_time_whatever_hangs_which_is_a_warning() {
    let peer = Peer::always(Reply::Held(Vec::new())).await;
    let started = Instant::now();
    let traces = format!("{}/v1/traces", peer.url());
    let launch = check(&peer.url())
        .args(&["--api.timeout=10m", "--otlp.protocol=http/protobuf"])
        .arg(&format!("--otlp.endpoint={}", peer.url()))
        .env("OTEL_EXPORTER_OTLP_TIMEOUT", "600000")
        .env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &traces);
    let finished = launch.run().await;
    assert!(started.elapsed() < Duration::from_secs(15));
    let words = "no answer within 10s, the longest that check waits; the exporter waits for";
    let silent = finished.stdout.matches(words).count();
    assert_eq!((finished.status, silent), (Some(1), 3), "{finished:?}");
}

#[tokio::test]
async fn a_large_page_that_takes_longer_than_check_waits_is_no_verdict() {
    let api = Peer::start(|seen, _| match seen.target() {
        large if large.contains("limit=1000") => Reply::Held(Vec::new()),
        _ => json("200 OK", ENTRY),
    })
    .await;
    let launch = check(&api.url()).arg("--tickets.enabled=false");
    let words = "warning page-size: a page of 1000 has no answer within 10s | the exporter waits for --api.timeout (30s)";
    expect(launch, words).await;
}

#[tokio::test]
async fn at_most_25_requests_are_sent_however_many_fail() {
    let (kind, quiet) = (FaultKind::Status(StatusCode::BAD_GATEWAY), organization());
    for every in [2, 3, 4] {
        let api = spawn(quiet.clone()).await;
        let mut fault = Fault::new(kind.clone());
        fault.every = Some(every);
        api.fault(fault);
        let launch = check(&api.base_url()).arg("--api.max-requests-per-second=1000");
        let finished = launch.run().await;
        assert_ne!(finished.status, Some(2), "{}", finished.stdout);
        let requests = api.requests();
        assert!(requests.audit + requests.tickets <= 25, "{requests:?}");
    }
}

/// One that both listings have is one line.
#[tokio::test]
async fn each_problem_is_named_once() {
    let both = json("403 Forbidden", r#"{"message":"no"}"#);
    let same = api(Some(both.clone()), Some(both.clone())).await;
    expect(
        check(&same.url()),
        "bad key: HTTP 403 | activity_logs:read and tickets:read",
    )
    .await;
    let other = api(Some(both), Some(json("404 Not Found", "{}"))).await;
    let finished = check(&other.url()).run().await;
    let checked = Checked(finished.stdout);
    checked.assert("bad", "key", "HTTP 403");
    checked.assert("bad", "tickets", "HTTP 404");
}

#[tokio::test]
async fn clocks_that_differ_by_more_than_two_minutes_are_a_warning() {
    for (ahead, expected) in [
        (100, ""),
        (-100, ""),
        (
            3600,
            "warning clock: does not hold | behind the API's | NTP",
        ),
        (
            -3600,
            "warning clock: does not hold | ahead of the API's | NTP",
        ),
    ] {
        let api = service().await;
        api.change_readings(|readings| readings.date_ahead = ahead);
        expect(check(&api.base_url()), expected).await;
    }
    // Without a Date nothing is claimed.
    let silent = api(None, None).await;
    let checked = expect(check(&silent.url()), "").await;
    checked.assert("unknown", "clock", "cannot tell: no response has a Date");
}

#[tokio::test]
async fn header_fields_about_rate_limits_are_named_with_their_numbers() {
    let fields = [
        "x-ratelimit-remaining: 98",
        "RateLimit-Policy: \"team-of-ada\";q=100",
        "content-type: application/json",
    ];
    let tickets = answer("200 OK", &fields, NO_TICKETS);
    let checked = expect(check(&api(None, Some(tickets)).await.url()), "").await;
    checked.assert_good(
        "rate-limit",
        "ratelimit-policy: (not a number), x-ratelimit-remaining: 98",
    );
    assert!(!checked.0.contains("ada"));
}
