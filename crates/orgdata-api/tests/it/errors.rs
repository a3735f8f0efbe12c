//! Each failure of the API has its own message for people and its own bounded reason for metrics.

use std::time::Duration;

use futures_util::future::join_all;
use orgdata_api::{ClientSettings, KeySource};

use crate::peer::{NO_TICKETS, Peer, Reply, answer, head, json};
use crate::support::{KEY, Subject, fast, settings};

/// Answers (status, content type or `now` for a `Retry-After` of 0, body), and the reason and words of the errors that they
/// must become.
const CASES: &str = r#"
401 json {"message":"No such key"} => unauthorized | API key | No such key
401 html {"message":null,"error":"No access"} => unauthorized | No access
401 json {"message":"Unknown key demo\u002dkey"} => unauthorized | Unknown key [secret]
401 json => blocked | (401, application/json)
401 html <p>Log in => blocked | something in front of the API refuses (401, text/html): check proxy, allow list | Log in
403 json {"error":"Missing scope"} => forbidden | the key may lack the scope activity_logs:read | Missing scope
403 html <p>Bad gateway => blocked | (403, text/html)
403 - Your IP address is not on the allow list => blocked | (403, without a content type) | not on the allow list
403 json "No access" => blocked
403 json ["No access"] => blocked
403 json {"detail":"No access"} => blocked
403 json {"message":{"text":"No access"}} => blocked
403 json {"message":"No acc => blocked
403 json {"message":"API Rate Limit exceeded"} => rate_limited | too many requests | API Rate Limit exceeded
403 now {"message":"Slow down"} => rate_limited | too many requests | Slow down
403 quota {"message":"No quota"} => rate_limited | too many requests | No quota
403 xquota {"message":"No quota"} => rate_limited | too many requests | No quota
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
200 br JSON => malformed | the answer has the encoding br, which was not requested
401 br JSON => blocked | (401, without a content type) | the answer has the encoding br, which was not requested
200 json {"items":[{"id":"a => malformed | cut off after 18 bytes
200 json {"message":"Try later"} => malformed | not a page of this listing | items is missing
"#;

/// Asserts that a client counts an answer under a reason as often as it requests it, and that the error is a short line with
/// these words and without the key.
async fn assert_error(reply: Reply, reason: &str, words: &[&str]) {
    let name = format!("{reply:?}");
    let name = &name[..name.len().min(500)];
    let peer = Peer::always(reply).await;
    let subject = Subject::new(&peer.url());
    let error = subject.failed().await;
    let text = error.to_string();
    assert_eq!(error.reason().as_ref(), reason, "{text}: {name}");
    let attempts = match reason {
        // The loop asks for a smaller page.
        "timeout" => 1,
        _ if error.is_transient() => 4,
        _ => 1,
    };
    let counted = (peer.count(), subject.failures(reason));
    assert_eq!(counted, (attempts, attempts), "{text}: {name}");
    assert!(!text.contains('\n') && text.len() < 500, "{text}");
    assert!(!text.contains(KEY), "{text}");
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
            "html" => &["content-type: text/html; charset=utf-8"],
            "now" => &["retry-after: 0"],
            "quota" => &["ratelimit-remaining: 0"],
            "xquota" => &["x-ratelimit-remaining: 0"],
            "br" => &["content-encoding: br"],
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

/// Answers that break off or never end, and peers that do not speak HTTP.
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_whole_takes_a_bounded_time() {
    let begun = |status: &str| (head(status, &["retry-after: 0"], 99) + "{\"items\":").into_bytes();
    let bytes = |text: &str| Reply::Bytes(text.as_bytes().to_vec());
    let endless = |first: &str, again: &str| Reply::Endless(first.into(), again.into());
    let ok = "HTTP/1.1 200 OK\r\n\r\n";
    let drip = Reply::Drip(ok.into(), b" ".to_vec(), Duration::from_secs(1));
    let chunks = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}";
    let hints = "HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n";
    let long = head("200 OK", &[], usize::MAX) + NO_TICKETS;
    let flood = Reply::Endless(begun("401 No"), vec![b'x'; 65_536]);
    let cases = [
        (Reply::Bytes(begun("200 OK")), "malformed", "after 9 bytes"),
        (Reply::Reset(begun("200 OK")), "malformed", "cut off"),
        (bytes(chunks), "malformed", "cut off"),
        (bytes(&long), "connect", "message head is too large"),
        (bytes("SSH-2.0-OpenSSH_9.2\r\n"), "connect", "HTTP"),
        (bytes(""), "connect", "connection"),
        (
            endless("HTTP/1.1 200 OK\r\n", "x: y\r\n"),
            "connect",
            "head",
        ),
        (endless("", hints), "timeout", "no answer within 10s"),
        (Reply::Held(Vec::new()), "timeout", "no answer within 10s"),
        (Reply::Held(begun("200 OK")), "timeout", "within 10s"),
        (drip, "timeout", "no answer within 10s"),
        // The status says enough.
        (Reply::Bytes(begun("401 No")), "blocked", "HTTP 401"),
        (Reply::Bytes(begun("429 Wait")), "rate_limited", "HTTP 429"),
        (Reply::Held(begun("401 No")), "blocked", "HTTP 401"),
        (flood, "blocked", "HTTP 401"),
    ];
    let check = async |(reply, reason, words)| assert_error(reply, reason, &[words]).await;
    fast(join_all(cases.map(check))).await;
}

#[tokio::test(start_paused = true)]
async fn without_a_key_nothing_is_sent() {
    let peer = Peer::always(json("200 OK", NO_TICKETS)).await;
    let subject = Subject::with(ClientSettings {
        key: KeySource::File("/no/key".into()),
        ..settings(&peer.url())
    });
    let error = fast(subject.failed()).await;
    assert_eq!((error.reason().as_ref(), peer.count()), ("key", 0));
}
