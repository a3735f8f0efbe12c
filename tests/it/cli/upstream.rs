//! The API from outside: away, behind a path, behind a proxy.

use std::sync::Arc;

use super::{ONE_ENTRY, TICKETS_UP, UP, organization};
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
async fn the_exporter_waits_for_an_api_that_is_away() {
    let api = organization().await;
    let (address, base_url) = (api.address(), api.base_url());
    let world = Arc::clone(api.simulator());
    api.stop().await;
    let mut exporter = exporter(&base_url).start();
    let words = "level=warn | cannot connect | retry_in";
    exporter.logs(words).await;
    exporter.until_value(UP, 0.0).await;
    for path in ["/-/healthy", "/-/ready"] {
        assert_eq!(exporter.get(path).await.0, 200, "{path}");
    }
    let _api = world.run_on(address).await.unwrap();
    exporter.until_value(UP, 1.0).await;
    exporter.until_value(TICKETS_UP, 1.0).await;
    assert_eq!(exporter.sum("orgdata_tickets").await, 3.0);
    assert_eq!(exporter.stop().await, Some(0));
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
