//! Control of the faults.

use axum::Json;
use axum::extract::{Path, State};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::fault::Fault;
use super::super::server::Server;
use super::input::{Done, Given, Refused};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Add {
    fault: Option<String>,
    #[serde(default)]
    faults: Vec<String>,
}

pub(super) async fn list(State(server): State<Server>) -> Json<Value> {
    let faults: Vec<_> = server
        .sim
        .faults()
        .into_iter()
        .map(|(id, fault)| json!({ "id": id, "fault": fault.to_string() }))
        .collect();
    Json(json!({ "faults": faults }))
}

pub(super) async fn add(State(server): State<Server>, Given(add): Given<Add>) -> Done {
    let specs: Vec<String> = add.fault.into_iter().chain(add.faults).collect();
    if specs.is_empty() {
        return Err(Refused::field("fault", "give fault or faults"));
    }
    let faults = specs
        .iter()
        .map(|spec| spec.parse::<Fault>())
        .collect::<Result<Vec<_>, _>>();
    let faults =
        faults.map_err(|error| Refused::new(Some("fault".to_owned()), error.to_string()))?;
    let ids: Vec<u64> = faults
        .into_iter()
        .map(|fault| server.sim.fault(fault))
        .collect();
    Ok(Json(json!({ "ids": ids })))
}

pub(super) async fn remove(State(server): State<Server>, Path(id): Path<u64>) -> Done {
    if server.sim.remove_fault(id) {
        Ok(Json(json!({})))
    } else {
        Err(Refused::missing(format!("no fault has the id {id}")))
    }
}

pub(super) async fn clear(State(server): State<Server>) -> Json<Value> {
    server.sim.clear_faults();
    Json(json!({}))
}
