//! Redirects are errors that name their target: the key goes to no other host.

use orgdata_api::FailureReason;

use crate::peer::{NO_ENTRIES, Peer, answer, json};
use crate::support::Subject;

#[tokio::test]
async fn a_redirect_is_not_followed_and_names_the_target() {
    let other = Peer::always(json("200 OK", NO_ENTRIES)).await;
    for (to, shown) in [
        (
            format!("{}/v1/audit-logs?api_key=hidden#hidden", other.url()),
            format!("{}/v1/audit-logs;", other.url()),
        ),
        (
            format!("//{}/v1", other.address()),
            format!("{}/v1;", other.url()),
        ),
        ("/moved?limit=100".to_owned(), "/moved;".to_owned()),
        (String::new(), "/v1/audit-logs;".to_owned()),
        ("http://[oops".to_owned(), "an invalid address".to_owned()),
    ] {
        let headers = format!("location: {to}");
        let peer = Peer::always(answer("307 Temporary Redirect", &[&headers], "")).await;
        let error = Subject::new(&peer.url()).failed().await;
        assert_eq!(error.reason(), FailureReason::Rejected);
        let text = error.to_string();
        for part in [&*shown, "the key is not sent there", "--api.base-url"] {
            assert!(text.contains(part) && !text.contains("hidden"), "{text}");
        }
        assert_eq!((peer.count(), other.count()), (1, 0));
    }
}
