//! Faults, as a client sees them. The tests of the exporter meet the others.

use orgdata_simulator::{Endpoint, Fault, Running};
use reqwest::StatusCode;
use serde_json::Value;

use crate::support::{get, raw, with_history};

/// A simulator with 20 entries and 20 tickets and this fault.
async fn faulty(fault: &str) -> Running {
    with_history(20, |config| {
        config.tickets = 20;
        config.faults = vec![fault.parse().unwrap()];
    })
    .await
}

#[tokio::test]
async fn a_fault_strikes_its_listing_so_often_and_every_nth_request() {
    let sim = with_history(20, |config| config.tickets = 20).await;
    let fault = Fault::status(StatusCode::SERVICE_UNAVAILABLE);
    sim.fault(fault.on(Endpoint::Audit).times(2).every(2));
    for expected in [200, 503, 200, 503, 200, 200] {
        assert_eq!(get(&sim, "/v1/audit-logs").await.0, expected);
        assert_eq!(get(&sim, "/v1/tickets").await.0, 200);
    }
    assert_eq!(sim.requests().statuses[&503], 2);
    // A hook strikes the request that it sees.
    sim.on_request(Box::new(|info, _| {
        (info.endpoint == Endpoint::Tickets).then(|| "status=500".parse().unwrap())
    }));
    assert_eq!(get(&sim, "/v1/tickets").await.0, 500);
    assert_eq!(get(&sim, "/v1/audit-logs").await.0, 200);
}

#[tokio::test]
async fn answers_of_faults_have_status_header_and_body() {
    for (fault, status, header, begin) in [
        ("retry-after=null", 429, None, "{"),
        ("retry-after=30", 429, Some("30"), "{"),
        (
            "retry-after=90s",
            429,
            Some("Tue, 01 Jan 2030 00:01:30 GMT"),
            "{",
        ),
        ("html=200", 200, None, "<!DOCTYPE html>"),
        ("html=502", 502, None, "<!DOCTYPE html>"),
        ("empty=500", 500, None, ""),
        ("expired-cursor=410", 410, None, "{"),
    ] {
        let path = "/v1/audit-logs?before=x";
        let response = raw(&faulty(fault).await, path).await.unwrap();
        assert_eq!(response.status(), status, "{fault}");
        let retry_after = response.headers().get("retry-after");
        assert_eq!(retry_after.map(|value| value.to_str().unwrap()), header);
        let body = response.text().await.unwrap();
        assert!(body.starts_with(begin) && body.is_empty() == begin.is_empty());
    }
    // Without a cursor nothing has expired.
    let sim = faulty("expired-cursor=410").await;
    assert_eq!(get(&sim, "/v1/audit-logs").await.0, 200);
}

#[tokio::test]
async fn a_body_can_be_cut_with_and_without_the_header_saying_so() {
    let response = raw(&faulty("truncated-json").await, "/v1/audit-logs")
        .await
        .unwrap();
    let promised = response.content_length().unwrap();
    let body = response.bytes().await.unwrap();
    assert_eq!(body.len() as u64, promised);
    assert!(body.starts_with(b"{\"items\":[{") && serde_json::from_slice::<Value>(&body).is_err());
    let response = raw(&faulty("reset-body").await, "/v1/audit-logs")
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    assert!(response.bytes().await.is_err());
    assert!(
        raw(&faulty("reset").await, "/v1/audit-logs")
            .await
            .unwrap_err()
            .is_request()
    );
}
