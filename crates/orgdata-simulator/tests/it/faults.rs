//! Every fault, as a client sees it.

use std::time::Duration;

use orgdata_simulator::{Endpoint, Fault, FaultKind, Running};
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::support::{audit, client, get, ids, raw, text, with_history};

/// A simulator with 20 entries and 20 tickets and this fault.
async fn faulty(fault: &str) -> Running {
    with_history(20, |config| {
        config.tickets = 20;
        config.faults = vec![fault.parse().unwrap()];
    })
    .await
}

#[tokio::test]
async fn a_fault_answers_with_a_status_so_often_and_on_that_listing_only() {
    let sim = with_history(20, |config| config.tickets = 20).await;
    let fault = Fault::status(StatusCode::SERVICE_UNAVAILABLE);
    sim.fault(fault.on(Endpoint::Audit).times(2));
    for expected in [503, 503, 200] {
        assert_eq!(get(&sim, "/v1/tickets").await.0, 200);
        let (status, body) = get(&sim, "/v1/audit-logs").await;
        assert_eq!(status, expected);
        if expected == 503 {
            assert_eq!(
                body,
                json!({ "message": "Simulated failure: 503 Service Unavailable" })
            );
        }
    }
    for status in [401, 403, 404, 500] {
        sim.fault(Fault::status(StatusCode::from_u16(status).unwrap()));
        assert_eq!(get(&sim, "/v1/tickets").await.0, status);
        sim.clear_faults();
    }
    assert_eq!(sim.requests().statuses[&503], 2);
}

#[tokio::test]
async fn a_fault_can_hit_every_nth_request() {
    let sim = with_history(20, |_| ()).await;
    sim.fault(Fault::status(StatusCode::INTERNAL_SERVER_ERROR).every(3));
    let mut statuses = Vec::new();
    for _ in 0..6 {
        statuses.push(get(&sim, "/v1/tickets").await.0.as_u16());
    }
    assert_eq!(statuses, [200, 200, 500, 200, 200, 500]);
}

#[tokio::test]
async fn a_429_says_when_to_come_back_in_every_form() {
    for (fault, expected) in [
        ("retry-after=null", None),
        ("retry-after=30", Some("30")),
        ("retry-after=90s", Some("Tue, 01 Jan 2030 00:01:30 GMT")),
    ] {
        let response = raw(&faulty(fault).await, "/v1/audit-logs").await.unwrap();
        assert_eq!(response.status(), 429);
        assert_eq!(
            response
                .headers()
                .get("retry-after")
                .map(|value| value.to_str().unwrap()),
            expected
        );
    }
}

#[tokio::test]
async fn a_proxy_in_between_answers_with_html_or_nothing() {
    for (fault, status) in [("html=200", 200), ("html=502", 502)] {
        let response = raw(&faulty(fault).await, "/v1/audit-logs").await.unwrap();
        assert_eq!(response.status(), status);
        assert!(
            response.headers()["content-type"]
                .to_str()
                .unwrap()
                .starts_with("text/html")
        );
        assert!(
            response
                .text()
                .await
                .unwrap()
                .starts_with("<!DOCTYPE html>")
        );
    }
    for (fault, status) in [("empty=200", 200), ("empty=500", 500)] {
        let response = raw(&faulty(fault).await, "/v1/tickets").await.unwrap();
        assert_eq!(response.status(), status);
        assert!(response.bytes().await.unwrap().is_empty());
    }
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

#[tokio::test]
async fn hanging_answers_end_with_the_server() {
    let sim = faulty("hang").await;
    let hanging = tokio::spawn(
        client()
            .get(format!("{}/v1/tickets", sim.base_url()))
            .send(),
    );
    while sim.requests().tickets == 0 {
        tokio::task::yield_now().await;
    }
    assert!(!hanging.is_finished());
    sim.stop().await;
    assert!(hanging.await.unwrap().is_err());
}

#[tokio::test]
async fn a_delayed_answer_is_right_and_goes_together_with_another_fault() {
    let sim = faulty("delay=30ms").await;
    let began = std::time::Instant::now();
    assert_eq!(get(&sim, "/v1/tickets").await.0, 200);
    sim.fault("status=500".parse().unwrap());
    assert_eq!(get(&sim, "/v1/tickets").await.0, 500);
    assert!(began.elapsed() >= Duration::from_millis(60));
}

#[tokio::test]
async fn cursors_can_expire_with_any_status() {
    let sim = faulty("expired-cursor=410").await;
    let page = audit(&sim, "limit=5").await;
    let (start, end) = (
        text(&page, "startCursor").to_owned(),
        text(&page, "endCursor").to_owned(),
    );
    assert_eq!(
        get(&sim, &format!("/v1/audit-logs?after={start}")).await.0,
        410
    );
    assert_eq!(
        get(&sim, &format!("/v1/audit-logs?before={end}")).await.0,
        410
    );
    assert_eq!(get(&sim, "/v1/tickets").await.0, 200);
}

#[tokio::test]
async fn a_page_fails_when_it_is_too_large_or_holds_a_poisoned_item() {
    let sim = faulty("too-large=10").await;
    assert_eq!(get(&sim, "/v1/audit-logs?limit=11").await.0, 500);
    let page = audit(&sim, "limit=10").await;
    sim.clear_faults();
    sim.fault(Fault::new(FaultKind::Poison(ids(&page)[4].clone())));
    assert_eq!(get(&sim, "/v1/audit-logs?limit=5").await.0, 500);
    assert_eq!(get(&sim, "/v1/audit-logs?limit=4").await.0, 200);
    assert_eq!(get(&sim, "/v1/tickets").await.0, 200);
    sim.fault("poison=\"20\"".parse().unwrap());
    assert_eq!(get(&sim, "/v1/tickets?limit=1").await.0, 500);
    assert_eq!(get(&sim, "/v1/tickets?offset=1").await.0, 200);
}

#[tokio::test]
async fn items_can_be_doubled_unknown_or_missing() {
    let first = |page: &Value| page["items"][0].clone();
    let doubled = audit(&faulty("duplicate").await, "limit=5").await;
    assert_eq!(
        (doubled["items"].as_array().unwrap().len(), first(&doubled)),
        (6, doubled["items"][1].clone())
    );
    let unknown = audit(&faulty("unknown-fields").await, "limit=20").await;
    assert!(unknown.get("generatedBy").is_some() && first(&unknown).get("futureField").is_some());
    let empty = audit(&faulty("empty-page").await, "").await;
    assert_eq!(
        (&empty["items"], &empty["hasMore"]),
        (&json!([]), &json!(false))
    );
}

#[tokio::test]
async fn a_hook_can_strike_one_request() {
    let sim = with_history(5, |_| ()).await;
    sim.on_request(Box::new(|info, _| {
        (info.number == 2).then(|| "status=500".parse().unwrap())
    }));
    for expected in [200, 500, 200] {
        assert_eq!(get(&sim, "/v1/audit-logs").await.0, expected);
    }
}
