//! What stands in front of the API is not the API: a page of a firewall says nothing of the key. `crates/orgdata-api` has more answers.

use crate::support::binary::{Scrape, exporter};
use crate::support::http_peer::{Peer, answer};

#[tokio::test]
async fn only_the_api_s_own_json_concerns_the_key() {
    let html = "content-type: text/html; charset=utf-8";
    let json = "content-type: application/json";
    let own = r#"{"message":"No scope"}"#;
    for (kind, body, reason, said) in [
        (html, "<h1>Blocked", "blocked", "check proxy, allow list"),
        (json, own, "forbidden", "scope tickets:read: No scope"),
    ] {
        let peer = Peer::always(answer("403 Forbidden", &[kind], body)).await;
        let exporter = exporter(&peer.url()).start();
        let fails = |scrape: &Scrape| {
            ["audit", "tickets"].iter().all(|of| {
                let labels = format!("loop=\"{of}\",reason=\"{reason}\"");
                scrape.value(&format!("orgdata_last_failure_info{{{labels}}}")) == Some(1.0)
            })
        };
        let scrape = exporter.until(body, fails).await;
        for other in ["key", "unauthorized", "forbidden", "blocked"] {
            let labels = format!("endpoint=\"audit-logs\",reason=\"{other}\"");
            let series = format!("orgdata_api_request_failures_total{{{labels}}}");
            let counted = scrape.value(&series) > Some(0.0);
            assert_eq!(counted, other == reason, "{series}: {body}");
        }
        exporter.logs(&format!("ticket scan failed | {said}")).await;
    }
}
