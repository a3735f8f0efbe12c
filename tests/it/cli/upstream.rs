//! The API behind a proxy.

use super::{ONE_ENTRY, UP};
use crate::support::binary::exporter;
use crate::support::http_peer::{NO_TICKETS, Peer, json};

/// Answers with the same pages at any host.
async fn quiet_api() -> Peer {
    Peer::start(move |seen, _| match seen.target().contains("/v1/tickets") {
        true => json("200 OK", NO_TICKETS),
        false => json("200 OK", ONE_ENTRY),
    })
    .await
}

#[tokio::test]
async fn a_proxy_is_used_unless_the_host_is_excepted_or_is_this_machine() {
    // 0.0.0.0 is the only address of this machine that does not look like one.
    for (host, no_proxy, proxied) in [
        ("0.0.0.0", "", true),
        ("0.0.0.0", "example.com,0.0.0.0", false),
        ("127.0.0.1", "", false),
        ("localhost", "", false),
    ] {
        let (api, proxy) = (quiet_api().await, quiet_api().await);
        let exporter = exporter(&format!("http://{host}:{}", api.address().port()))
            .arg("--api.allow-plain-http")
            .env("HTTP_PROXY", &proxy.url())
            .env("ALL_PROXY", &proxy.url())
            .env("NO_PROXY", no_proxy)
            .start();
        exporter.until_value(UP, 1.0).await;
        let used = (api.count() > 0, proxy.count() > 0);
        assert_eq!(used, (!proxied, proxied), "{host} except {no_proxy}");
    }
}
