//! What stands in front of the API is not the API: a page of a firewall says nothing of the key.

use crate::support::binary::{Scrape, exporter};
use crate::support::http_peer::{Peer, answer};

const FAILURES: &str = "orgdata_api_request_failures_total";

#[tokio::test]
async fn only_the_api_s_own_json_concerns_the_key() {
    let html = &["content-type: text/html; charset=utf-8"][..];
    let json = &["content-type: application/json"][..];
    let front = "something in front of the API refuses";
    for (status, headers, body, reason, said) in [
        (
            "403 Forbidden",
            html,
            "<h1>Request blocked",
            "blocked",
            "(403, text/html): check proxy, allow list",
        ),
        ("403 Forbidden", &[], "", "blocked", front),
        (
            "403 Forbidden",
            &["content-type: text/plain"],
            "Your IP address is not on the allow list",
            "blocked",
            "not on the allow list",
        ),
        (
            "401 Unauthorized",
            html,
            "<h1>Log in",
            "blocked",
            "(401, text/html): check proxy, allow list",
        ),
        (
            "403 Forbidden",
            json,
            r#"{"message":"No scope"}"#,
            "forbidden",
            "the key may lack the scope tickets:read: No scope",
        ),
        (
            "401 Unauthorized",
            json,
            r#"{"error":"Expired"}"#,
            "unauthorized",
            "Expired",
        ),
    ] {
        let peer = Peer::always(answer(status, headers, body)).await;
        let exporter = exporter(&peer.url()).start();
        let fails = |scrape: &Scrape| {
            ["audit", "tickets"].iter().all(|of| {
                let info =
                    format!("orgdata_last_failure_info{{loop=\"{of}\",reason=\"{reason}\"}}");
                scrape.value(&info) == Some(1.0)
            })
        };
        let scrape = exporter.until(body, fails).await;
        for other in ["key", "unauthorized", "forbidden", "blocked"] {
            let series = format!("{FAILURES}{{endpoint=\"audit-logs\",reason=\"{other}\"}}");
            let counted = scrape.value(&series) > Some(0.0);
            assert_eq!(counted, other == reason, "{series}: {body}");
        }
        exporter.logs(&format!("ticket scan failed | {said}")).await;
    }
}
