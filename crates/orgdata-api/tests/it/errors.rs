//! Each failure of the API has its own message for people and its own bounded reason for metrics.

use futures_util::future::join_all;

use crate::peer::{NO_TICKETS, Peer, Reply, answer, head, json};
use crate::support::fast;
use crate::support::{KEY, Subject};

/// Answers (status, content type or `now` for a `Retry-After` of 0, body), and the reason and words of the errors that they
/// must become.
const CASES: &str = r#"
401 json {"message":"No such key"} => unauthorized | API key | No such key
401 json => blocked | (401, application/json)
401 html <p>Log in => blocked | something in front of the API refuses (401, text/html): check proxy, allow list | Log in
403 json {"error":"Missing scope"} => forbidden | the key may lack the scope activity_logs:read | Missing scope
403 html <p>Bad gateway => blocked | (403, text/html)
403 - Your IP address is not on the allow list => blocked | (403, without a content type) | not on the allow list
404 json {"message":"No route"} => rejected | --api.base-url | No route
418 json {"message":"Short and stout"} => rejected | Short and stout
408 json {"message":"Too slow"} => timeout | not answered in time | Too slow
400 json upstream said no => rejected | upstream said no
422 json {"error":"Bad","issues":[{"path":["a",0],"received":"X"}]} => rejected | HTTP 422: Bad; [{"path":["a",0],"received":"X"}]
500 json {"message":"a\nb"} => server_error | HTTP 500: a b
502 html <p>Bad gateway => server_error | Bad gateway
503 - {"a":1e400} => server_error | HTTP 503: {"a":1e400}
429 now {} => rate_limited | too many requests
200 html <p>Hello => malformed | text/html | not JSON | login page
200 - upstream gone => malformed | login page: upstream gone
200 - Unknown key demo-key => malformed | Unknown key [secret]
200 json => malformed | the answer is empty
200 json {"items":[{"id":"a => malformed | cut off after 18 bytes
200 json {"message":"Try later"} => malformed | not a page of this listing | items is missing
200 json {"items":1} => malformed | items is a number instead of an array
200 json [{"id":"a"}] => malformed | not a page of this listing
"#;

/// Asserts that a client counts an answer under a reason as often as it requests it, and that the error is a line with these
/// words.
async fn assert_error(reply: Reply, reason: &str, words: &[&str]) {
    let name = format!("{reply:?}");
    let peer = Peer::always(reply).await;
    let subject = Subject::new(&peer.url());
    let error = subject.failed().await;
    assert_eq!(error.reason().as_str(), reason, "{error}");
    let attempts = match reason {
        // The loop asks for a smaller page.
        "timeout" => 1,
        _ if error.is_transient() => 4,
        _ => 1,
    };
    let counted = (peer.count(), subject.failures(reason));
    assert_eq!(counted, (attempts, attempts), "{error}");
    let text = error.to_string();
    assert!(!text.contains('\n') && text.len() < 1000, "{text}");
    for part in words {
        assert!(text.contains(part), "no {part:?} in {text:?}: {name}");
    }
}

#[tokio::test(start_paused = true)]
async fn failures_are_distinguished_and_say_what_to_do() {
    let check = async |case: &'static str| {
        let (reply, error) = case.split_once(" => ").unwrap();
        let mut reply = reply.splitn(3, ' ');
        let (status, kind) = (reply.next().unwrap(), reply.next().unwrap());
        let headers: &[&str] = match kind {
            "json" => &["content-type: application/json"],
            "html" => &["content-type: text/html"],
            "now" => &["retry-after: 0"],
            _ => &[],
        };
        let body = reply.next().unwrap_or_default();
        let mut words: Vec<&str> = error.split(" | ").collect();
        let reason = words.remove(0);
        let status_is_shown = format!("HTTP {status}");
        words.push(&status_is_shown);
        assert_error(answer(status, headers, body), reason, &words).await;
    };
    fast(join_all(CASES.trim().lines().map(check))).await;
}

#[tokio::test(start_paused = true)]
async fn answers_that_break_off_are_distinguished() {
    let cut = head("200 OK", &["content-type: application/json"], 100) + r#"{"items":["#;
    let begun =
        |status: &str| (head(status, &["retry-after: 0"], 1000) + r#"{"message":"#).into_bytes();
    let flood = Reply::Endless(begun("401 Unauthorized"), vec![b'x'; 65_536]);
    let long = (head("200 OK", &[], usize::MAX) + NO_TICKETS).into_bytes();
    let cut_off = &["cut off after 10 bytes"];
    fast(async {
        tokio::join!(
            assert_error(Reply::Bytes(cut.clone().into()), "malformed", cut_off),
            assert_error(Reply::Reset(cut.into()), "malformed", &["cut off"]),
            assert_error(
                Reply::Bytes(long),
                "connect",
                &["message head is too large"]
            ),
            // The status says enough.
            assert_error(Reply::Bytes(begun("401 Un")), "blocked", &["HTTP 401"]),
            assert_error(Reply::Reset(begun("403 No")), "blocked", &["HTTP 403"]),
            assert_error(Reply::Bytes(begun("429 Wait")), "rate_limited", &[]),
            assert_error(flood, "blocked", &["HTTP 401"]),
        )
    })
    .await;
    // A silent one takes the time limit once and has the same reason.
    let peer = Peer::always(Reply::Held(begun("401 Unauthorized"))).await;
    let mut settings = crate::support::settings(&peer.url());
    settings.timeout = std::time::Duration::from_millis(200);
    let error = Subject::with(settings).failed().await;
    assert_eq!((error.reason().as_str(), peer.count()), ("blocked", 1));
}

#[tokio::test]
async fn a_key_that_the_api_repeats_is_not_shown() {
    let location = format!("location: https://login.example/{KEY}");
    for reply in [
        json("401 No", r#"{"message":"Unknown key demo\u002dkey"}"#),
        answer("307 Temporary Redirect", &[&location], ""),
    ] {
        let peer = Peer::always(reply).await;
        let text = Subject::new(&peer.url()).failed().await.to_string();
        assert!(!text.contains("demo"), "{text}");
    }
}
