//! The control endpoint.

use orgdata_exporter::simulator::{Running, TotalCount};
use reqwest::StatusCode;
use serde_json::{Value, json};

use super::support::{audit, client, get, raw, with_history};

/// A control request with its status and answer.
async fn control(sim: &Running, method: &str, path: &str, body: Value) -> (StatusCode, Value) {
    let url = format!("{}/control/{path}", sim.base_url());
    let request = client()
        .request(method.parse().unwrap(), url)
        .body(if body.is_null() {
            String::new()
        } else {
            body.to_string()
        });
    let response = request.send().await.unwrap();
    let status = response.status();
    (
        status,
        serde_json::from_slice(&response.bytes().await.unwrap()).unwrap(),
    )
}

async fn post(sim: &Running, path: &str, body: Value) -> Value {
    let (status, answer) = control(sim, "POST", path, body).await;
    assert_eq!(status, 200, "{answer}");
    answer
}

#[tokio::test]
async fn the_control_endpoint_changes_the_audit_log() {
    let sim = with_history(10, |_| ()).await;
    let mark = control(&sim, "GET", "truth", Value::Null).await.1["mark"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        post(&sim, "events", json!({ "count": 5 })).await["total"],
        15
    );
    let added = post(
        &sim,
        "events",
        json!({ "entries": [{ "id": "mine", "type": "DEAL_WON", "actorUserId": 77 }] }),
    )
    .await;
    assert_eq!(added["ids"], json!(["mine"]));
    post(
        &sim,
        "events",
        json!({ "count": 2, "createdAt": "2029-12-31T00:00:00Z" }),
    )
    .await;
    post(
        &sim,
        "events",
        json!({ "entries": [{ "type": 5 }], "unchecked": true, "omit": ["id"] }),
    )
    .await;
    assert_eq!(
        post(&sim, "late", json!({ "count": 3, "behind": "10m" })).await["total"],
        22
    );
    let (_, truth) = control(&sim, "GET", &format!("truth?since={mark}"), Value::Null).await;
    assert_eq!(truth["audit"]["total"], 12);
    let counts = truth["audit"]["counts"].as_array().unwrap();
    assert!(
        counts.contains(&json!({ "type": "DEAL_WON", "actorUserId": 77, "count": 1 })),
        "{counts:?}"
    );

    let lines = raw(&sim, "/control/entries")
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    let served: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let mut listed = audit(&sim, "limit=1000").await["items"]
        .as_array()
        .unwrap()
        .clone();
    listed.reverse();
    assert_eq!(served, listed);

    assert_eq!(
        post(&sim, "retention", json!({ "keep": 20 })).await["removed"],
        2
    );
    assert_eq!(
        post(&sim, "retention", json!({ "within": "1s" })).await["total"],
        7
    );
    assert_eq!(
        post(&sim, "restore", json!({ "drop": 4 })).await["total"],
        3
    );
    assert_eq!(post(&sim, "clear", Value::Null).await["total"], 0);
    let (_, truth) = control(
        &sim,
        "GET",
        &format!("truth?since={mark}&removed=true"),
        Value::Null,
    )
    .await;
    assert_eq!(truth["audit"]["total"], 12);
}

#[tokio::test]
async fn the_control_endpoint_changes_faults_tickets_clock_and_readings() {
    let sim = with_history(10, |_| ()).await;
    let added = post(
        &sim,
        "faults",
        json!({ "faults": ["500,on=tickets", "503,on=audit,times=1"] }),
    )
    .await;
    assert_eq!(get(&sim, "/v1/tickets").await.0, 500);
    let (_, listed) = control(&sim, "GET", "faults", Value::Null).await;
    assert_eq!(
        listed["faults"][0]["fault"],
        "500=Simulated failure: 500 Internal Server Error,on=tickets"
    );
    assert_eq!(
        control(
            &sim,
            "DELETE",
            &format!("faults/{}", added["ids"][0]),
            Value::Null
        )
        .await
        .0,
        200
    );
    assert_eq!(
        control(&sim, "DELETE", "faults/99", Value::Null).await.0,
        404
    );
    assert_eq!(control(&sim, "DELETE", "faults", Value::Null).await.0, 200);
    assert_eq!(get(&sim, "/v1/audit-logs").await.0, 200);

    let tickets = post(
        &sim,
        "tickets",
        json!({ "count": 2, "tickets": [{ "id": 900, "state": "OPEN", "dealAmountSum": 12.34 }] }),
    )
    .await;
    assert_eq!(tickets["ids"], json!([900, 901, 902]));
    assert_eq!(
        control(
            &sim,
            "PATCH",
            "tickets/900",
            json!({ "fields": { "type": "BUG" }, "omit": ["linkedDeals"] })
        )
        .await
        .0,
        200
    );
    assert_eq!(
        control(&sim, "DELETE", "tickets/901", Value::Null).await.0,
        200
    );
    assert_eq!(
        control(&sim, "DELETE", "tickets/901", Value::Null).await.0,
        404
    );
    post(&sim, "tickets/shuffle", json!({ "seed": 5 })).await;
    let (_, truth) = control(&sim, "GET", "truth", Value::Null).await;
    assert_eq!(truth["tickets"]["total"], 2);
    let group = truth["tickets"]["groups"]
        .as_array()
        .unwrap()
        .iter()
        .find(|group| group["priority"] == "none")
        .unwrap();
    assert_eq!(
        (&group["type"], &group["amountCents"]),
        (&json!("BUG"), &json!("1234"))
    );
    assert_eq!(control(&sim, "DELETE", "tickets", Value::Null).await.0, 200);

    assert_eq!(
        post(&sim, "clock", json!({ "advance": "1h" })).await["now"],
        "2030-01-01T01:00:00.000Z"
    );
    assert_eq!(
        post(&sim, "clock", json!({ "back": "2h" })).await["now"],
        "2029-12-31T23:00:00.000Z"
    );
    assert_eq!(
        post(&sim, "clock", json!({ "set": "2031-01-01T00:00:00Z" })).await["now"],
        "2031-01-01T00:00:00.000Z"
    );
    post(&sim, "rate", json!({ "events": 10, "ticketChanges": 0 })).await;
    post(&sim, "clock", json!({ "advance": "10s" })).await;
    assert!(sim.event_count() > 100);
    let (status, readings) = control(
        &sim,
        "PATCH",
        "readings",
        json!({ "order": "oldest-first", "totalCount": "-1", "pageCap": 3 }),
    )
    .await;
    assert_eq!(
        (
            status.as_u16(),
            &readings["order"],
            sim.readings().total_count
        ),
        (200, &json!("oldest-first"), TotalCount::Off(-1))
    );
    let (_, requests) = control(&sim, "GET", "requests", Value::Null).await;
    assert_eq!(
        (&requests["audit"], &requests["statuses"]["500"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(
        control(&sim, "DELETE", "requests", Value::Null).await.0,
        200
    );
    assert_eq!(sim.requests().audit, 0);
    let (_, users) = control(&sim, "GET", "users", Value::Null).await;
    assert_eq!(users["users"][0]["email"], "user1001@example.com");
}

#[tokio::test]
async fn a_wrong_control_request_is_refused_and_names_the_field() {
    let sim = with_history(10, |_| ()).await;
    for (method, path, body, field) in [
        ("POST", "events", json!({ "cuont": 5 }), "cuont"),
        ("POST", "events", json!({ "count": "x" }), "count"),
        ("POST", "events", json!({}), "count"),
        (
            "POST",
            "events",
            json!({ "entries": [{ "dealid": 5 }] }),
            "dealid",
        ),
        (
            "POST",
            "events",
            json!({ "entries": [{ "dealId": "5" }] }),
            "dealId",
        ),
        (
            "POST",
            "events",
            json!({ "count": 1, "createdAt": "yesterday" }),
            "createdAt",
        ),
        ("POST", "late", json!({ "count": 5 }), "behind"),
        (
            "POST",
            "late",
            json!({ "count": 5, "behind": "soon" }),
            "behind",
        ),
        ("POST", "retention", json!({}), "keep"),
        ("POST", "restore", json!({ "drop": -1 }), "drop"),
        ("POST", "rate", json!({ "events": -1 }), "events"),
        ("POST", "clock", json!({ "set": 5 }), "set"),
        ("POST", "faults", json!({ "fault": "explode" }), "fault"),
        ("PATCH", "readings", json!({ "order": "sideways" }), "order"),
        ("PATCH", "readings", json!({ "ordre": "x" }), "ordre"),
        (
            "POST",
            "tickets",
            json!({ "tickets": [{ "state": 5 }] }),
            "state",
        ),
        (
            "PATCH",
            "tickets/1",
            json!({ "fields": { "stat": "OPEN" } }),
            "stat",
        ),
        ("GET", "truth?sicne=1", Value::Null, "sicne"),
        ("GET", "entries?since=x", Value::Null, "since"),
    ] {
        let (status, answer) = control(&sim, method, path, body.clone()).await;
        assert_eq!(
            (status.as_u16(), &answer["field"]),
            (400, &json!(field)),
            "{path} {body} {answer}"
        );
        assert!(
            answer["message"].as_str().unwrap().contains(field),
            "{answer}"
        );
    }
    assert_eq!(sim.event_count(), 10);
    assert_eq!(control(&sim, "POST", "truth", Value::Null).await.0, 405);
    assert_eq!(control(&sim, "GET", "nothing", Value::Null).await.0, 404);
    assert!(
        raw(&sim, "/control/")
            .await
            .unwrap()
            .text()
            .await
            .unwrap()
            .contains("/control/truth")
    );
    assert!(
        raw(&sim, "/")
            .await
            .unwrap()
            .text()
            .await
            .unwrap()
            .contains("/openapi.json")
    );
}
