//! Redirects are errors that name their target: the key goes to no other host.

use orgdata_api::FailureReason;

use crate::peer::{NO_ENTRIES, Peer, answer, json};
use crate::support::{KEY, Subject};

#[tokio::test]
async fn a_redirect_is_not_followed_and_names_the_target() {
    let other = Peer::always(json("200 OK", NO_ENTRIES)).await;
    let (url, address) = (other.url(), other.address());
    for (to, shown) in [
        (
            format!("{url}/v1?api_key=hidden#hidden"),
            format!("{url}/v1;"),
        ),
        (
            format!("http://me:hidden@{address}/v1"),
            format!("{url}/v1;"),
        ),
        (format!("//{address}/v1"), format!("{url}/v1;")),
        (format!("/moved/{KEY}"), "/moved/[secret];".to_owned()),
        (String::new(), "/v1/audit-logs;".to_owned()),
        ("http://[oops".to_owned(), "an invalid address".to_owned()),
    ] {
        let headers = format!("location: {to}");
        let peer = Peer::always(answer("307 Temporary Redirect", &[&headers], "")).await;
        let error = Subject::new(&peer.url()).failed().await;
        assert_eq!(error.reason(), FailureReason::Rejected);
        let text = error.to_string();
        for part in [&*shown, "the key is not sent there", "--api.base-url"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains("hidden") && !text.contains(KEY), "{text}");
        assert_eq!((peer.count(), other.count()), (1, 0));
    }
}
