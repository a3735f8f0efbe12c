//! The proxy of the environment is used, or refused at the start. `crates/connections` tests which one counts.

use crate::support::binary::{exporter, until};
use crate::support::http_peer::{Peer, answer};

const URL: &str = "https://api.example";

/// The key is for the API alone.
#[tokio::test]
async fn a_tunnel_to_the_api_is_requested_without_the_key() {
    let proxy = Peer::always(answer("502 Bad Gateway", &[], "")).await;
    let _exporter = exporter(URL).env("HTTPS_PROXY", &proxy.url()).start();
    let head = until("a request", async || proxy.seen().pop()).await.head;
    assert!(head.starts_with("CONNECT api.example:443 "), "{head}");
    assert!(!head.to_lowercase().contains("x-api-key"), "{head}");
}

#[tokio::test]
async fn a_proxy_that_opens_no_tunnel_is_named_as_the_proxy() {
    for (status, cause) in [("201 Created", "unsuccessful"), ("407 No", "authorization")] {
        let proxy = Peer::always(answer(status, &[], "")).await;
        let exporter = exporter(URL).env("HTTPS_PROXY", &proxy.url()).start();
        let line =
            "the proxy did not open a tunnel to api.example, port 443 | CONNECT with status 200";
        exporter.logs(&format!("{line} | {cause}")).await;
    }
}

/// The HTTP client would pass over it, and connect directly.
#[tokio::test]
async fn a_proxy_that_cannot_be_used_is_refused_at_the_start() {
    let launch = exporter(URL).env("HTTPS_PROXY", "socks5://user:hush@proxy:1080");
    let line = launch.refused(2, "HTTPS_PROXY | socks5 | http://HOST:PORT");
    let line = line.await;
    assert!(!line.contains("hush"), "{line}");
    let launch = exporter("http://127.0.0.1:1")
        .otlp("http/protobuf", "http://collector.example:4318")
        .env("HTTP_PROXY", "socks5://proxy:1080");
    launch.refused(2, "HTTP_PROXY | socks5").await;
}
