//! Each failure of the service has its own message for people and its own bounded reason for metrics.

use futures_util::future::join_all;

use crate::peer::{NO_TICKETS, Peer, Reply, answer, head, json};
use crate::support::fast;
use crate::support::{KEY, Subject};

const HTML: &str = "<!DOCTYPE html><html><body>Bad gateway</body></html>";

/// An answer and the error that it must become.
struct Case {
    reply: Reply,
    reason: &'static str,
    says: Vec<&'static str>,
}

fn case(reply: Reply, reason: &'static str, says: &[&'static str]) -> Case {
    Case {
        reply,
        reason,
        says: says.to_vec(),
    }
}

fn html(status: &str) -> Reply {
    answer(status, &["content-type: text/html"], HTML)
}

async fn check(cases: Vec<Case>) {
    let checks = cases.into_iter().map(
        |Case {
             reply,
             reason,
             says,
         }| async move {
            let name = format!("{reply:?}");
            let peer = Peer::always(reply).await;
            let subject = Subject::new(&peer.url());
            let error = subject.refused().await;
            assert_eq!(error.reason().as_str(), reason, "{error}");
            let attempts = match reason {
                // The loop asks for a smaller page.
                "timeout" => 2,
                _ if error.is_transient() => 4,
                _ => 1,
            };
            assert_eq!(
                (peer.count(), subject.failures(reason)),
                (attempts, attempts),
                "{error}"
            );
            let text = error.to_string();
            assert!(
                !text.contains('\n') && text.len() < 1000,
                "not one readable line: {text}"
            );
            for part in says {
                assert!(
                    text.contains(part),
                    "{part:?} is missing in {text:?}, for {name}"
                );
            }
        },
    );
    fast(join_all(checks)).await;
}

#[tokio::test(start_paused = true)]
async fn refusals_are_distinguished_and_say_what_to_do() {
    check(vec![
        case(
            json("401 Unauthorized", r#"{"message":"No such key"}"#),
            "unauthorized",
            &["HTTP 401", "API key", "No such key"],
        ),
        case(
            json("403 Forbidden", r#"{"error":"Missing scope"}"#),
            "forbidden",
            &["HTTP 403", "activity_logs:read", "Missing scope"],
        ),
        case(
            json("404 Not Found", r#"{"message":"No route"}"#),
            "refused",
            &["HTTP 404", "--api.base-url", "No route"],
        ),
        case(
            json("418 Teapot", r#"{"message":"Short and stout"}"#),
            "refused",
            &["HTTP 418", "Short and stout"],
        ),
        case(
            json("408 Request Timeout", r#"{"message":"Too slow"}"#),
            "timeout",
            &["HTTP 408", "not answered in time", "Too slow"],
        ),
        case(
            json("400 Bad Request", "upstream said no"),
            "refused",
            &["HTTP 400", "upstream said no"],
        ),
        case(json("401 Unauthorized", ""), "unauthorized", &["HTTP 401"]),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn failures_of_the_service_and_of_the_network_are_distinguished() {
    let cut = head("200 OK", &["content-type: application/json"], 100) + r#"{"items":["#;
    check(vec![
        case(
            json(
                "500 Internal Server Error",
                r#"{"message":"An unknown error"}"#,
            ),
            "server_error",
            &["HTTP 500", "An unknown error"],
        ),
        case(
            answer("503 Service Unavailable", &["retry-after: 0"], ""),
            "server_error",
            &["HTTP 503"],
        ),
        case(
            answer("429 Too Many Requests", &["retry-after: 0"], "{}"),
            "rate_limited",
            &["HTTP 429", "asked to wait 0s"],
        ),
        case(
            html("502 Bad Gateway"),
            "server_error",
            &["HTTP 502", "Bad gateway"],
        ),
        case(
            html("200 OK"),
            "malformed",
            &["HTTP 200", "text/html", "login page"],
        ),
        case(
            html("403 Forbidden"),
            "forbidden",
            &["HTTP 403", "activity_logs:read"],
        ),
        case(
            json("200 OK", r#"{"items":[{"id":"a"#),
            "malformed",
            &["cut off after 18 bytes"],
        ),
        case(
            Reply::Bytes(cut.clone().into_bytes()),
            "malformed",
            &["cut off after 10 bytes"],
        ),
        case(Reply::Reset(cut.into_bytes()), "malformed", &["cut off"]),
        case(json("200 OK", ""), "malformed", &["empty"]),
        case(json("204 No Content", ""), "malformed", &["HTTP 204"]),
        case(
            json("200 OK", r#"{"message":"Try later"}"#),
            "malformed",
            &["not a page of this listing", "items is missing"],
        ),
        case(
            json("200 OK", r#"[{"id":"a"}]"#),
            "malformed",
            &["not a page of this listing"],
        ),
        case(
            answer("200 OK", &[], format!("Unknown key {KEY}")),
            "malformed",
            &["Unknown key [secret]"],
        ),
        case(
            Reply::Bytes((head("200 OK", &[], usize::MAX) + NO_TICKETS).into_bytes()),
            "connect",
            &["message head is too large"],
        ),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_refusal_counts_also_when_its_body_never_ends() {
    let begun =
        |status: &str| (head(status, &["retry-after: 0"], 1000) + r#"{"message":"#).into_bytes();
    let endless = |status: &str| Reply::Endless(begun(status), vec![b'x'; 65_536]);
    check(vec![
        case(
            Reply::Bytes(begun("401 Unauthorized")),
            "unauthorized",
            &["HTTP 401"],
        ),
        case(
            Reply::Reset(begun("403 Forbidden")),
            "forbidden",
            &["HTTP 403"],
        ),
        case(
            Reply::Bytes(begun("429 Too Many Requests")),
            "rate_limited",
            &["HTTP 429", "asked to wait 0s"],
        ),
        case(endless("401 Unauthorized"), "unauthorized", &["HTTP 401"]),
    ])
    .await;
    // A silent one takes the time limit once and has the same reason.
    let peer = Peer::always(Reply::Held(begun("401 Unauthorized"))).await;
    let mut settings = crate::support::settings(&peer.url());
    settings.timeout = std::time::Duration::from_millis(200);
    assert_eq!(
        Subject::with(settings).refused().await.reason().as_str(),
        "unauthorized"
    );
    assert_eq!(peer.count(), 1);
}

#[tokio::test]
async fn a_key_that_the_service_repeats_is_not_shown() {
    for reply in [
        json(
            "401 Unauthorized",
            format!(r#"{{"message":"Unknown key {KEY}"}}"#),
        ),
        answer("200 OK", &[], format!("Unknown key {KEY}")),
        json(
            "401 Unauthorized",
            r#"{"message":"Unknown key demo\u002dkey"}"#,
        ),
        json("403 Forbidden", "Unknown key demo%2Dkey"),
        json("403 Forbidden", r#"{"message":"Unknown: ZGVtby1rZXk="}"#),
        answer(
            "502 Bad Gateway",
            &["content-type: text/html"],
            "<p>demo&#45;key",
        ),
        answer(
            "307 Temporary Redirect",
            &[&format!("location: https://login.example/{KEY}")],
            "",
        ),
    ] {
        let peer = Peer::always(reply).await;
        let text = Subject::new(&peer.url()).refused().await.to_string();
        assert!(
            !text.contains("demo") && !text.contains("ZGVt") && !text.contains("key\""),
            "{text}"
        );
    }
}
