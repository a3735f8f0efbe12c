//! The control endpoint.

use orgdata_simulator::Running;
use reqwest::StatusCode;
use serde_json::Value;

use crate::support::{KEY, audit, client, get, items, request, with_history};

/// Posts a command and returns the status and the body of the response.
async fn post(sim: &Running, command: &str) -> (StatusCode, Value) {
    let request = client().post(format!("{}/control/", sim.base_url()));
    let response = request.body(command.to_owned()).send().await.unwrap();
    let status = response.status();
    let body = response.bytes().await.unwrap();
    (status, serde_json::from_slice(&body).unwrap())
}

/// Commands, and what the settings show then, by a pointer.
const COMMANDS: &str = r#"
{"events":5} => /events 15
{"late":{"count":3,"behind":"10m"}} => /events 18
{"retain":12} => /events 12
{"entry":{"actorUserId":77}} => /events 13
{"ticket":{"type":"BUG"}} => /tickets 1
{"advance":"1h"} => /now "2026-01-01T01:00:00Z"
{"rate":10} => /rate 10.0
{"readings":{"page-cap":3}} => /readings/page-cap 3
{"fault":{"kind":{"status":500},"on":"tickets"}} => /faults/0/kind/status 500
"#;

#[tokio::test]
async fn commands_change_the_simulator_and_show_what_is_set() {
    let sim = with_history(10, |_| ()).await;
    for line in COMMANDS.trim().lines() {
        let (command, shown) = line.split_once(" => ").unwrap();
        let (status, settings) = post(&sim, command).await;
        assert_eq!(status, 200, "{command}: {settings}");
        let (pointer, expected) = shown.split_once(' ').unwrap();
        let found = settings.pointer(pointer).map(Value::to_string);
        assert_eq!(found.as_deref(), Some(expected), "{command}");
    }
    assert_eq!(get(&sim, "/v1/tickets").await.0, 500);
    post(&sim, r#"{"clear-faults":null}"#).await;
    assert_eq!(get(&sim, "/v1/tickets").await.0, 200);
    assert_eq!(items(&audit(&sim, "").await).len(), 3);
    let (_, requests) = get(&sim, "/control/requests").await;
    assert_eq!(requests["statuses"]["500"], 1);
}

#[tokio::test]
async fn a_wrong_command_is_rejected_with_the_reason() {
    let sim = with_history(10, |_| ()).await;
    for (command, reason) in [
        (r#"{"evnts":5}"#, "evnts"),
        (r#"{"late":{"count":5,"behind":"soon"}}"#, "number"),
        (r#"{"rate":-1}"#, "from 0 to a million"),
        (r#"{"fault":{"kind":"explode"}}"#, "explode"),
        (r#"{"readings":{"ordre":1}}"#, "ordre"),
        (r#"{"ticket":{"stat":"OPEN"}}"#, "stat"),
    ] {
        let (status, body) = post(&sim, command).await;
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
    let index = request(&sim, "/", KEY).await.text().await.unwrap();
    for command in [r#"{"x":1}"#, r#"{"fault":{"kind":"x"}}"#] {
        let (_, body) = post(&sim, command).await;
        let message = body["message"].as_str().unwrap();
        let names: Vec<&str> = message.split('`').skip(3).step_by(2).collect();
        assert!(names.len() >= 10, "{message}");
        for name in names {
            assert!(index.contains(&format!("\"{name}\"")), "{name}");
        }
    }
    let examples = index.split("<td>{").skip(1);
    for example in examples.map(|rest| rest.split_once("</td>").unwrap().0) {
        let (status, body) = post(&sim, &format!("{{{example}")).await;
        assert_eq!(status, 200, "{example}: {body}");
    }
}
