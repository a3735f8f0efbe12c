//! The API: every way in which it fails has a line with what to do.

use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use orgdata_exporter::simulator::{ApiKey, ClockSource, Config, Simulator};

use super::{Checked, Expected, TLS, check, organization, service};
use crate::support::binary::KEY;
use crate::support::collector_peer::https;
use crate::support::http_peer::{NO_ENTRIES, NO_TICKETS, Peer, Reply, answer, head, json};

const OPERATORS: &str = "ask its operators";
const NOT_THE_API: &str = "not an answer of the Organization Data API";
const WAITS: &str = "the exporter waits and continues";
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

fn status(status: &str) -> Reply {
    json(status, r#"{"message":"closed for a day"}"#)
}

fn cut_off() -> Reply {
    let head = head("200 OK", &["content-type: application/json"], 100_000);
    Reply::Bytes((head + "{\"items\":[").into_bytes())
}

#[tokio::test]
async fn each_failure_is_named_with_what_to_do() {
    let issues =
        r#"{"error":"Bad request","issues":[{"path":["limit"],"code":"c","message":"No"}]}"#;
    let both: Vec<(Reply, Expected)> = vec![
        (
            status("500 Error"),
            ("bad", "service", &["HTTP 500: closed for a day", OPERATORS]),
        ),
        (
            status("503 Unavailable"),
            ("bad", "service", &["HTTP 503", OPERATORS]),
        ),
        (
            status("404 Not Found"),
            ("bad", "service", &["HTTP 404", "up to /v1"]),
        ),
        (
            status("418 Teapot"),
            ("bad", "service", &["HTTP 418", NOT_THE_API]),
        ),
        (
            json("400 Bad Request", issues),
            ("bad", "service", &["HTTP 400", "limit: No", NOT_THE_API]),
        ),
        (
            status("429 Too Many"),
            (
                "warning",
                "service",
                &["HTTP 429", WAITS, "--api.max-requests-per-second"],
            ),
        ),
        (
            answer("429 Too Many", &["retry-after: 30"], ""),
            ("warning", "service", &["asked to wait 30s", WAITS]),
        ),
        (
            answer("307 Moved", &["location: https://login.example.com/x"], ""),
            (
                "bad",
                "service",
                &["https://login.example.com/x", "set --api.base-url"],
            ),
        ),
        (
            status("401 Unauthorized"),
            (
                "bad",
                "key",
                &["HTTP 401", "create a key", "put it into ORGDATA_API_KEY"],
            ),
        ),
        (
            Reply::Reset(Vec::new()),
            (
                "bad",
                "service",
                &["the connection was accepted and dropped"],
            ),
        ),
        (
            Reply::Held(Vec::new()),
            (
                "bad",
                "service",
                &["no answer within 3s", "hangs, or a firewall"],
            ),
        ),
        (
            cut_off(),
            ("bad", "service", &["cut off after", NOT_THE_API]),
        ),
        (
            answer("200 OK", &[], ""),
            ("bad", "service", &["the answer is empty", NOT_THE_API]),
        ),
        (
            answer(
                "200 OK",
                &["content-type: text/html"],
                "<html>Sign in</html>",
            ),
            ("bad", "service", &["text/html", "Sign in", "login page"]),
        ),
        (
            json("200 OK", r#"{"items":{}}"#),
            ("bad", "service", &[NOT_THE_API, "--api.base-url"]),
        ),
    ];
    let runs = both.into_iter().map(|(reply, expected)| async move {
        let api = api(Some(reply.clone()), Some(reply)).await;
        (
            expected,
            Checked::of(check(&api.url()).arg("--api.timeout=3s")).await,
        )
    });
    let mut runs = stream::iter(runs).buffer_unordered(4);
    while let Some((expected, checked)) = runs.next().await {
        checked.assert_only(&[expected]);
    }
}

#[tokio::test]
async fn a_failure_of_one_listing_is_its_own() {
    let items = |items: &str| {
        Some(json(
            "200 OK",
            format!(r#"{{"items":[{items}],"totalCount":2}}"#),
        ))
    };
    let ticket = r#"{"id":1,"type":"BUG","createdAt":"2026-01-01T00:00:00Z"}"#;
    for (audit, tickets, expected) in [
        (
            None,
            Some(status("500 Error")),
            ("bad", "tickets", &["HTTP 500", OPERATORS][..]),
        ),
        (
            Some(status("401 Unauthorized")),
            None,
            ("bad", "audit-logs", &["HTTP 401", "create a key"]),
        ),
        (
            None,
            Some(status("403 Forbidden")),
            (
                "bad",
                "tickets",
                &["the scope tickets:read", "--tickets.enabled=false"],
            ),
        ),
        (
            Some(status("403 Forbidden")),
            None,
            (
                "bad",
                "audit-logs",
                &["activity_logs:read", "--audit.enabled=false"],
            ),
        ),
        (
            Some(json("200 OK", NO_ENTRIES)),
            None,
            (
                "warning",
                "audit-logs",
                &["no entries", "right organization"],
            ),
        ),
        (
            items("{\"id\":7},null"),
            None,
            (
                "warning",
                "audit-logs",
                &["2 of 2 items are not as documented"],
            ),
        ),
        (
            None,
            items(""),
            (
                "warning",
                "tickets",
                &["counts 2 tickets and sends 0", "inconsistent"],
            ),
        ),
        (
            None,
            items(&[ticket; 3].join(",")),
            ("warning", "tickets", &["counts 2 tickets and sends 3"]),
        ),
        (
            None,
            Some(json("200 OK", r#"{"items":[]}"#)),
            ("warning", "tickets", &["the number of tickets"]),
        ),
    ] {
        let api = api(audit, tickets).await;
        Checked::of(check(&api.url()))
            .await
            .assert_only(&[expected]);
    }
}

#[tokio::test]
async fn a_page_that_is_too_large_is_told_from_an_unreadable_one() {
    for (large, expected) in [
        ("audit-logs?limit=1000", ("warning", "audit-logs")),
        ("tickets?limit=1000", ("bad", "tickets")),
    ] {
        let api = Peer::start(move |seen, _| match seen.target() {
            target if target.contains(large) => status("500 Error"),
            target if target.contains("tickets") => json("200 OK", NO_TICKETS),
            _ => json("200 OK", ENTRY),
        })
        .await;
        let words = &[
            "cannot read a page of 1000, but one of 1: HTTP 500",
            "--api.page-size",
        ];
        let checked = Checked::of(check(&api.url())).await;
        checked.assert_only(&[(expected.0, expected.1, words)]);
    }
}

#[tokio::test]
async fn a_service_that_is_well_is_all_good() {
    let api = service().await;
    let checked = Checked::of(check(&api.base_url())).await;
    checked.assert_only(&[]);
    for (about, words) in [
        ("service", "answers"),
        (
            "key",
            "from ORGDATA_API_KEY, accepted for activity_logs:read and tickets:read",
        ),
        (
            "audit-logs",
            "a page of 1000 can be read; the newest entry is of 20",
        ),
        ("tickets", "there are 20"),
        ("clock", "agrees"),
        ("organization", "4711"),
        ("collector", "none"),
        ("state", "does not exist yet and can be created"),
        ("listen", "is free"),
    ] {
        checked.assert_good(about, words);
    }
    assert!(
        checked.text.ends_with("\nAll is well.\n"),
        "{}",
        checked.text
    );
}

#[tokio::test]
async fn keys_are_named_by_their_place_and_scopes() {
    let keys = vec![ApiKey::scoped(KEY, &["activity_logs:read"])];
    let config = Config {
        keys,
        ..organization()
    };
    let api = Simulator::spawn(config).await.expect("a free port");
    let url = api.base_url();
    let both = Checked::of(check(&url)).await;
    both.assert_only(&[(
        "bad",
        "tickets",
        &["the scope tickets:read", "--tickets.enabled=false"],
    )]);
    both.assert_good("key", "accepted for activity_logs:read");
    let one = Checked::of(check(&url).arg("--tickets.enabled=false")).await;
    one.assert_only(&[]);
    one.assert_good("tickets", "off");
    let file = check(&url)
        .without_env("ORGDATA_API_KEY")
        .arg("--api.key-file=the-key");
    std::fs::write(file.dir().join("the-key"), "not-the-key\n").expect("writable");
    let wrong = Checked::of(file).await;
    wrong.assert_only(&[("bad", "key", &["HTTP 401", "put it into the-key"])]);
    let plain = Checked::of(check("http://192.0.2.1")).await;
    plain.assert_only(&[(
        "bad",
        "settings",
        &[
            "unencrypted",
            "--api.allow-plain-http",
            "ORGDATA_API_BASE_URL",
        ],
    )]);
}

#[tokio::test]
async fn an_address_that_leads_nowhere_says_which_part_is_wrong() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let closed = format!("http://{}", listener.local_addr().expect("bound"));
    drop(listener);
    let api = service().await;
    let plain = api.base_url().replace("http://", "https://");
    let table: [(&str, &'static [&'static str]); 3] = [
        (
            "https://no-such-host.invalid",
            &[
                "failed to lookup",
                "check the name",
                "DNS",
                "--api.base-url",
            ],
        ),
        (
            &closed,
            &[
                "Connection refused",
                "nothing listens there",
                "--api.base-url",
            ],
        ),
        (
            &plain,
            &["InvalidContentType", "does not speak TLS", "http://"],
        ),
    ];
    for (url, words) in table {
        Checked::of(check(url))
            .await
            .assert_only(&[("bad", "service", words)]);
    }
    let proxy = Peer::always(answer("407 Proxy Authentication Required", &[], "")).await;
    let through = check("https://api.example.com").env("https_proxy", &proxy.url());
    let words = &["cannot connect", "the proxy refuses", "HTTPS_PROXY"];
    Checked::of(through)
        .await
        .assert_only(&[("bad", "service", words)]);
}

#[tokio::test]
async fn an_untrusted_certificate_is_named_with_the_flag_that_trusts_it() {
    let url = format!("https://localhost:{}", https(TLS).port());
    let untrusted = Checked::of(check(&url)).await;
    untrusted.assert_only(&[("bad", "service", &["UnknownIssuer", "--api.ca-file"])]);
    let no_pem = check(&url).arg(&format!("--api.ca-file={TLS}server.key"));
    let words = &["--api.ca-file", "holds no certificate", "PEM"];
    Checked::of(no_pem)
        .await
        .assert_only(&[("bad", "service", words)]);
}

#[tokio::test]
async fn a_filter_that_the_service_refuses_is_named() {
    let body = r#"{"error":"Bad request","issues":[{"path":["activityTypes"],"code":"invalid_enum_value","message":"No such type"}]}"#;
    let api = api(Some(json("400 Bad Request", body)), None).await;
    let checked = Checked::of(check(&api.url()).arg("--audit.activity-types=NOTHING")).await;
    let words = &[
        "activityTypes: No such type",
        "correct the filter",
        "--audit.activity-types",
    ];
    checked.assert_only(&[("bad", "audit-logs", words)]);
}

#[tokio::test]
async fn a_clock_that_differs_is_a_warning() {
    for (shift, side) in [(3600, "behind the API's"), (-3600, "ahead of the API's")] {
        let now = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(shift);
        let clock = ClockSource::Manual(now);
        let api = Simulator::spawn(Config {
            clock,
            ..organization()
        })
        .await
        .expect("a free port");
        let checked = Checked::of(check(&api.base_url())).await;
        checked.assert_only(&[(
            "warning",
            "clock",
            &["this machine's clock is", "synchronize"],
        )]);
        let said = checked.line("clock").1;
        assert!(
            said.contains(side) && (said.contains("1h") || said.contains("59m")),
            "{said}"
        );
    }
}

#[tokio::test]
async fn it_ends_in_time_whatever_hangs() {
    let peer = Peer::always(Reply::Held(Vec::new())).await;
    let started = Instant::now();
    let launch = check(&peer.url())
        .args(&["--api.timeout=10m", "--otlp.protocol=http/protobuf"])
        .arg(&format!("--otlp.endpoint={}", peer.url()));
    let checked = Checked::of(launch).await;
    assert!(
        started.elapsed() < Duration::from_secs(15),
        "{:?}",
        started.elapsed()
    );
    for about in ["service", "collector"] {
        assert!(
            checked.line(about).1.contains("no answer within 10s"),
            "{}",
            checked.text
        );
    }
}
