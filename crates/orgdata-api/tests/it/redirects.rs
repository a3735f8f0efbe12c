//! Redirects: followed on the same host with the same query, never with the key to another one.

use crate::peer::{NO_ENTRIES, Peer, answer, json};
use crate::support::{KEY, Subject};

fn moved(to: &str) -> crate::peer::Reply {
    answer("307 Temporary Redirect", &[&format!("location: {to}")], "")
}

#[tokio::test]
async fn the_same_host_is_followed() {
    let peer = Peer::start(|seen, _| match seen.target() {
        target if target.starts_with("/v1/") => moved("/moved?limit=100"),
        _ => json("200 OK", NO_ENTRIES),
    })
    .await;
    Subject::new(&peer.url()).audit().await.expect("a page");
    let seen = peer.seen();
    assert_eq!(seen[1].target(), "/moved?limit=100");
    assert_eq!(seen[1].header("x-api-key"), Some(KEY));
}

#[tokio::test]
async fn a_redirect_that_drops_the_query_is_an_error() {
    for to in ["/v1/audit-logs/", "/v1/audit-logs/?limit=1"] {
        let peer = Peer::always(moved(to)).await;
        let error = Subject::new(&peer.url()).refused().await;
        assert_eq!(error.reason().as_str(), "redirect", "{to}");
        assert_eq!(peer.count(), 1, "{to}");
    }
}

#[tokio::test]
async fn another_host_sees_no_request() {
    let other = Peer::always(json("200 OK", NO_ENTRIES)).await;
    for to in [
        format!("{}/v1/audit-logs?api_key=hidden#hidden", other.url()),
        format!("//{}/v1/audit-logs", other.address()),
    ] {
        let peer = Peer::start({
            let to = to.clone();
            move |_, _| moved(&to)
        })
        .await;
        let error = Subject::new(&peer.url()).refused().await;
        assert_eq!(error.reason().as_str(), "redirect");
        let text = error.to_string();
        assert!(
            text.contains(&other.address().to_string())
                && !text.contains("hidden")
                && text.contains("the key is not sent there")
                && text.contains("--api.base-url"),
            "{text}"
        );
        assert_eq!((peer.count(), other.count()), (1, 0));
    }
}

#[tokio::test]
async fn another_host_sees_no_request_after_a_redirect_on_this_one() {
    let other = Peer::always(json("200 OK", NO_ENTRIES)).await;
    let to = other.url();
    let peer = Peer::start(move |_, number| {
        if number == 1 {
            moved("/moved?limit=100")
        } else {
            moved(&to)
        }
    })
    .await;
    assert_eq!(
        Subject::new(&peer.url()).refused().await.reason().as_str(),
        "redirect"
    );
    assert_eq!((peer.count(), other.count()), (2, 0));
}

#[tokio::test]
async fn a_redirect_without_a_valid_target_or_an_end_is_an_error() {
    for headers in [
        &[][..],
        &["location: "],
        &["location: http://[oops"],
        &["location: ftp://127.0.0.1/"],
        &["location: /v1/audit-logs?limit=100"],
    ] {
        let peer = Peer::always(answer("302 Found", headers, "")).await;
        let error = Subject::new(&peer.url()).refused().await;
        assert_eq!(error.reason().as_str(), "redirect", "{headers:?}");
        assert!(peer.count() <= 4, "{headers:?}: {}", peer.count());
    }
}
