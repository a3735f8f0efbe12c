//! Control of the tickets.

use axum::Json;
use axum::extract::{Path, State};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::super::desk::TicketError;
use super::super::patch::{Fields, check_ticket};
use super::super::server::Server;
use super::input::{Done, Given, Refused};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Add {
    count: Option<u64>,
    tickets: Option<Vec<Map<String, Value>>>,
    #[serde(default)]
    unchecked: bool,
    #[serde(default)]
    omit: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Change {
    #[serde(default)]
    fields: Map<String, Value>,
    #[serde(default)]
    unchecked: bool,
    #[serde(default)]
    omit: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Shuffle {
    #[serde(default)]
    seed: u64,
}

pub(super) async fn add(State(server): State<Server>, Given(add): Given<Add>) -> Done {
    if add.count.is_none() && add.tickets.is_none() {
        return Err(Refused::field("count", "give count, tickets or both"));
    }
    let given = add.tickets.into_iter().flatten();
    let mut tickets: Vec<_> = given
        .map(|values| Fields {
            values,
            omitted: add.omit.clone(),
            unchecked: add.unchecked,
        })
        .collect();
    for fields in &tickets {
        check_ticket(fields)?;
    }
    tickets.extend((0..add.count.unwrap_or(0)).map(|_| Fields::new()));
    let ids = tickets
        .into_iter()
        .map(|fields| server.sim.add_ticket(fields))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Json(json!({ "ids": ids })))
}

pub(super) async fn change(
    State(server): State<Server>,
    Path(id): Path<u64>,
    Given(change): Given<Change>,
) -> Done {
    let fields = Fields {
        values: change.fields,
        omitted: change.omit,
        unchecked: change.unchecked,
    };
    match server.sim.change_ticket(id, fields) {
        Ok(()) => Ok(Json(json!({}))),
        Err(TicketError::Field(error)) => Err(error.into()),
        Err(TicketError::Missing(error)) => Err(Refused::missing(error.to_string())),
    }
}

pub(super) async fn remove(State(server): State<Server>, Path(id): Path<u64>) -> Done {
    server
        .sim
        .remove_ticket(id)
        .map_err(|error| Refused::missing(error.to_string()))?;
    Ok(Json(json!({})))
}

pub(super) async fn clear(State(server): State<Server>) -> Json<Value> {
    server.sim.clear_tickets();
    Json(json!({}))
}

pub(super) async fn shuffle(State(server): State<Server>, Given(shuffle): Given<Shuffle>) -> Done {
    server.sim.shuffle_tickets(shuffle.seed);
    Ok(Json(json!({})))
}
