//! Redirects: not followed, so that the key goes to the given address only.

use crate::peer::{NO_ENTRIES, Peer, answer, json};
use crate::support::Subject;

fn moved(to: &str) -> crate::peer::Reply {
    answer("307 Temporary Redirect", &[&format!("location: {to}")], "")
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let other = Peer::always(json("200 OK", NO_ENTRIES)).await;
    for to in [
        format!("{}/v1/audit-logs?api_key=hidden#hidden", other.url()),
        format!("//{}/v1/audit-logs", other.address()),
        "/v1/logs?api_key=hidden".to_owned(),
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
            !text.contains("hidden")
                && text.contains("the key is not sent there")
                && text.contains("--api.base-url"),
            "{text}"
        );
        let host = match to.contains(&other.address().to_string()) {
            true => other.address(),
            false => peer.address(),
        };
        assert!(text.contains(&host.to_string()), "{text}");
        assert_eq!((peer.count(), other.count()), (1, 0));
    }
}

#[tokio::test]
async fn a_redirect_without_a_valid_target_is_an_error() {
    for headers in [
        &[][..],
        &["location: "],
        &["location: http://[oops"],
        &["location: ftp://127.0.0.1/"],
    ] {
        let peer = Peer::always(answer("302 Found", headers, "")).await;
        let error = Subject::new(&peer.url()).refused().await;
        assert_eq!(error.reason().as_str(), "redirect", "{headers:?}");
        assert!(peer.count() == 1, "{headers:?}: {}", peer.count());
    }
}
