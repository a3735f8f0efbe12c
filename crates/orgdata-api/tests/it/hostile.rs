//! Servers that do not speak HTTP, or too much of it: each takes a bounded time.

use std::time::Duration;

use futures_util::future::join_all;
use orgdata_api::Settings;

use crate::peer::{Peer, Reply, json};
use crate::support::{Subject, settings};

/// The time limit of a request.
const LIMIT: Duration = Duration::from_millis(150);

#[tokio::test]
async fn a_server_that_does_not_speak_http_takes_a_bounded_time() {
    let bytes = |text: &str| Reply::Bytes(text.as_bytes().to_vec());
    let endless = |first: &str, again: &str| Reply::Endless(first.into(), again.into());
    let cases = [
        (bytes("SSH-2.0-OpenSSH_9.2\r\n"), "connect"),
        (
            bytes("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}"),
            "malformed",
        ),
        (bytes(""), "connect"),
        (
            endless("HTTP/1.1 200 OK\r\n", "x-more: of this\r\n"),
            "connect",
        ),
        (
            endless("", "HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"),
            "timeout",
        ),
        (Reply::Held(Vec::new()), "timeout"),
        (Reply::Held(b"HTTP/1.1 200 OK\r\n\r\n{".to_vec()), "timeout"),
        (
            Reply::Drip(
                b"HTTP/1.1 200 OK\r\n\r\n".to_vec(),
                b" ".to_vec(),
                LIMIT / 10,
            ),
            "timeout",
        ),
    ];
    join_all(cases.map(|(reply, reason)| async move {
        let peer = Peer::always(reply.clone()).await;
        let subject = Subject::with(Settings {
            timeout: LIMIT,
            ..settings(&peer.url())
        });
        let error = tokio::time::timeout(Duration::from_secs(10), subject.failed())
            .await
            .unwrap_or_else(|_| panic!("hangs: {reply:?}"));
        // On a busy machine the time limit may come first.
        let found = error.reason().as_str();
        assert!(found == reason || found == "timeout", "{reply:?}: {error}");
        assert!(error.to_string().len() < 500, "{error}");
    }))
    .await;
}

#[tokio::test]
async fn nesting_of_any_depth_does_no_harm() {
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    let page = format!(r#"{{"items":[{{"id":"a","metadata":{{"x":{deep}}}}}],"more":{deep}}}"#);
    let peer = Peer::always(json("200 OK", page)).await;
    let subject = Subject::new(&peer.url());
    assert_eq!(subject.audit().await.expect("a page").len(), 1);
    let peer = Peer::always(json(
        "400 Bad Request",
        format!(r#"{{"error":"deep","issues":[{{"path":{deep}}}]}}"#),
    ))
    .await;
    assert!(
        Subject::new(&peer.url())
            .failed()
            .await
            .to_string()
            .starts_with("HTTP 400")
    );
}
