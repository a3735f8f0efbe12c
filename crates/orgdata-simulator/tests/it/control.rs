//! The control endpoint.

use orgdata_simulator::{Running, TotalCount};
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
async fn commands_change_the_audit_log() {
    let sim = with_history(10, |_| ()).await;
    for (command, events) in [
        (json!({ "events": 5 }), 15),
        (
            json!({ "entry": { "id": "mine", "type": "DEAL_WON", "actorUserId": 77 } }),
            16,
        ),
        (json!({ "late": { "count": 3, "behind": "10m" } }), 19),
        (json!({ "retain": 12 }), 12),
        (json!({ "restore": 4 }), 8),
    ] {
        assert_eq!(
            set(&sim, command.clone()).await["events"],
            events,
            "{command}"
        );
    }
    set(
        &sim,
        json!({ "entry": { "type": "DEAL_WON", "actorUserId": 78 } }),
    )
    .await;
    let (_, truth) = get(&sim, "/control/truth").await;
    assert_eq!(truth["audit"]["total"], 9);
    let counts = truth["audit"]["counts"].as_array().unwrap();
    let count = json!({ "type": "DEAL_WON", "actor": 78, "count": 1 });
    assert!(counts.contains(&count), "{counts:?}");
    assert_eq!(audit(&sim, "").await["items"][0]["actorUser"]["id"], 78);
}

#[tokio::test]
async fn commands_change_faults_tickets_clock_and_readings() {
    let sim = with_history(10, |_| ()).await;
    set(
        &sim,
        json!({ "fault": { "kind": { "status": 500 }, "on": "tickets" } }),
    )
    .await;
    let settings = set(&sim, json!({ "fault": { "kind": "hang", "times": 1 } })).await;
    assert_eq!(settings["faults"][0]["fault"]["kind"]["status"], 500);
    assert_eq!(get(&sim, "/v1/tickets").await.0, 500);
    set(&sim, json!({ "clear-faults": null })).await;
    assert_eq!(get(&sim, "/v1/audit-logs").await.0, 200);

    set(&sim, json!({ "ticket": {} })).await;
    let ticket = json!({ "type": "BUG", "linkedDeals": [], "dealAmountSum": 12.34 });
    assert_eq!(set(&sim, json!({ "ticket": ticket })).await["tickets"], 2);
    let (_, truth) = get(&sim, "/control/truth").await;
    let groups = truth["tickets"]["groups"].as_array().unwrap();
    let mut bugs = groups.iter().filter(|group| group["cents"] == "1234");
    let bug = bugs.next().unwrap();
    assert_eq!(
        (&bug["type"], &bug["priority"]),
        (&json!("BUG"), &json!("none"))
    );

    let settings = set(&sim, json!({ "advance": "1h" })).await;
    assert_eq!(settings["now"], "2030-01-01T01:00:00Z");
    let settings = set(&sim, json!({ "clock": "2031-01-01T00:00:00Z" })).await;
    assert_eq!(settings["now"], "2031-01-01T00:00:00Z");
    set(&sim, json!({ "rate": 10 })).await;
    set(&sim, json!({ "ticket-change-rate": 0.5 })).await;
    let settings = set(&sim, json!({ "advance": "10s" })).await;
    assert!(settings["events"].as_u64().unwrap() > 100);
    // Nothing is made up for a jump, which may be one of years.
    let jumped = set(&sim, json!({ "clock": "2041-01-01T00:00:00Z" })).await;
    assert_eq!(jumped["events"], settings["events"]);
    let later = set(&sim, json!({ "advance": "10s" })).await;
    let [before, after] = [settings, later].map(|s| s["events"].as_u64().unwrap());
    assert!((99..=101).contains(&(after - before)), "{before}, {after}");
    let readings = json!({ "after": "newest", "total-count": { "off": -1 }, "page-cap": 3 });
    let settings = set(&sim, json!({ "readings": readings })).await;
    assert_eq!(settings["readings"]["after"], "newest");
    assert_eq!(sim.readings().total_count, TotalCount::Off(-1));
    let (_, requests) = get(&sim, "/control/requests").await;
    assert_eq!(
        (&requests["audit"], &requests["statuses"]["500"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(get(&sim, "/control/").await.1["statuses"]["500"], 1);
}

#[tokio::test]
async fn a_wrong_command_is_refused_with_the_reason() {
    let sim = with_history(10, |_| ()).await;
    for (command, reason) in [
        (json!({ "evnts": 5 }), "evnts"),
        (json!({ "events": "x" }), "string \"x\""),
        (json!({}), "expected value"),
        (json!({ "entry": { "dealid": 5 } }), "dealid"),
        (json!({ "late": { "count": 5 } }), "behind"),
        (
            json!({ "late": { "count": 5, "behind": "soon" } }),
            "number",
        ),
        (json!({ "rate": -1 }), "from 0 to a million"),
        (json!({ "clock": 5 }), "integer `5`"),
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
        assert!(names.len() > 10, "{message}");
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
