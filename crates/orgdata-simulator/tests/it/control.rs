//! The control endpoint.

use orgdata_simulator::Running;
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::support::{audit, client, get, raw, with_history};

/// Posts a command and returns the status and the body of the response.
async fn post(sim: &Running, command: Value) -> (StatusCode, Value) {
    let request = client().post(format!("{}/control/", sim.base_url()));
    let response = request.body(command.to_string()).send().await.unwrap();
    let status = response.status();
    (
        status,
        serde_json::from_slice(&response.bytes().await.unwrap()).unwrap(),
    )
}

/// Posts a command that must succeed and returns what is set then.
async fn set(sim: &Running, command: Value) -> Value {
    let (status, settings) = post(sim, command).await;
    assert_eq!(status, 200, "{settings}");
    settings
}

#[tokio::test]
async fn commands_change_the_simulator_and_show_what_is_set() {
    let sim = with_history(10, |_| ()).await;
    let readings = json!({ "total-count": { "off": -1 }, "page-cap": 3 });
    for (command, pointer, expected) in [
        (json!({ "events": 5 }), "/events", json!(15)),
        (
            json!({ "late": { "count": 3, "behind": "10m" } }),
            "/events",
            json!(18),
        ),
        (json!({ "retain": 12 }), "/events", json!(12)),
        (
            json!({ "entry": { "actorUserId": 77 } }),
            "/events",
            json!(13),
        ),
        (json!({ "ticket": { "type": "BUG" } }), "/tickets", json!(1)),
        (
            json!({ "advance": "1h" }),
            "/now",
            json!("2030-01-01T01:00:00Z"),
        ),
        (json!({ "rate": 10 }), "/rate", json!(10.0)),
        (
            json!({ "readings": readings }),
            "/readings/total-count/off",
            json!(-1),
        ),
        (
            json!({ "fault": { "kind": { "status": 500 }, "on": "tickets" } }),
            "/faults/0/kind/status",
            json!(500),
        ),
    ] {
        let settings = set(&sim, command.clone()).await;
        assert_eq!(settings.pointer(pointer), Some(&expected), "{command}");
    }
    assert_eq!(get(&sim, "/v1/tickets").await.0, 500);
    set(&sim, json!({ "clear-faults": null })).await;
    assert_eq!(get(&sim, "/v1/tickets").await.0, 200);
    assert_eq!(audit(&sim, "").await["items"].as_array().unwrap().len(), 3);
    let (_, requests) = get(&sim, "/control/requests").await;
    assert_eq!(requests["statuses"]["500"], 1);
}

#[tokio::test]
async fn a_wrong_command_is_rejected_with_the_reason() {
    let sim = with_history(10, |_| ()).await;
    for (command, reason) in [
        (json!({ "evnts": 5 }), "evnts"),
        (
            json!({ "late": { "count": 5, "behind": "soon" } }),
            "number",
        ),
        (json!({ "rate": -1 }), "from 0 to a million"),
        (json!({ "fault": { "kind": "explode" } }), "explode"),
        (json!({ "readings": { "ordre": 1 } }), "ordre"),
        (json!({ "ticket": { "stat": "OPEN" } }), "stat"),
    ] {
        let (status, body) = post(&sim, command.clone()).await;
        let message = body["message"].as_str().unwrap();
        assert_eq!(status, 400, "{command}");
        assert!(message.contains(reason), "{command}: {message}");
    }
    assert_eq!(sim.truth().total, 10);
    assert_eq!(get(&sim, "/control/nothing").await.0, 404);
}

#[tokio::test]
async fn the_index_lists_every_command_and_fault() {
    let sim = with_history(0, |_| ()).await;
    let index = raw(&sim, "/").await.unwrap().text().await.unwrap();
    for (command, name) in [
        (json!({ "x": 1 }), "variant"),
        (json!({ "fault": { "kind": "x" } }), "variant"),
    ] {
        let (_, body) = post(&sim, command).await;
        let message = body["message"].as_str().unwrap();
        assert!(message.contains(name), "{message}");
        let names: Vec<&str> = message.split('`').skip(3).step_by(2).collect();
        assert!(names.len() >= 10, "{message}");
        for name in names {
            assert!(index.contains(&format!("\"{name}\"")), "{name}");
        }
    }
    let examples = index.split("<td>{").skip(1);
    let examples = examples.map(|rest| rest.split_once("</td>").unwrap().0);
    for example in examples.map(|rest| format!("{{{rest}")) {
        let command = serde_json::from_str(&example).expect(&example);
        let (status, body) = post(&sim, command).await;
        assert_eq!(status, 200, "{example}: {body}");
    }
}
