//! Control of everything around the data: pace, clock, readings, and the log of requests.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::super::clock as times;
use super::super::readings::Readings;
use super::super::server::Server;
use super::input::{Done, Given, Refused, duration, time};

/// Most events or changes per second.
const FASTEST: f64 = 1e6;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Rate {
    events: Option<f64>,
    ticket_changes: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SetClock {
    advance: Option<String>,
    back: Option<String>,
    set: Option<String>,
}

pub(super) async fn rate(State(server): State<Server>, Given(rate): Given<Rate>) -> Done {
    for (field, rate) in [
        ("events", rate.events),
        ("ticketChanges", rate.ticket_changes),
    ] {
        if rate.is_some_and(|rate| !(0.0..=FASTEST).contains(&rate)) {
            return Err(Refused::field(field, "from 0 to a million per second"));
        }
    }
    if let Some(rate) = rate.events {
        server.sim.set_rate(rate);
    }
    if let Some(rate) = rate.ticket_changes {
        server.sim.set_ticket_change_rate(rate);
    }
    Ok(Json(json!({})))
}

pub(super) async fn clock(State(server): State<Server>) -> Json<Value> {
    Json(json!({ "now": times::text(server.sim.millis()) }))
}

pub(super) async fn set_clock(State(server): State<Server>, Given(given): Given<SetClock>) -> Done {
    let sim = &server.sim;
    let signed =
        |by: Duration| jiff::SignedDuration::try_from(by).unwrap_or(jiff::SignedDuration::MAX);
    match (given.advance, given.back, given.set) {
        (Some(by), None, None) => sim.advance(duration("advance", &by)?),
        (None, Some(by), None) => {
            let earlier = sim.now().checked_sub(signed(duration("back", &by)?));
            sim.set_clock(earlier.map_err(|_| Refused::field("back", "before all time"))?);
        }
        (None, None, Some(at)) => sim.set_clock(time("set", &at)?),
        _ => {
            return Err(Refused::field(
                "advance",
                "give one of advance, back and set",
            ));
        }
    }
    Ok(clock(State(server)).await)
}

pub(super) async fn readings(State(server): State<Server>) -> Json<Readings> {
    Json(server.sim.readings())
}

pub(super) async fn set_readings(
    State(server): State<Server>,
    Given(given): Given<Map<String, Value>>,
) -> Done {
    let mut changed = json!(server.sim.readings());
    if let Value::Object(changed) = &mut changed {
        for (field, value) in given {
            if field == "key" {
                return Err(Refused::field("key", "is fixed at the start"));
            }
            if changed.insert(field.clone(), value).is_none() {
                return Err(Refused::field(&field, "no such reading"));
            }
        }
    }
    // Deserialized from text, so that the reason names the field.
    let text = changed.to_string();
    let Json(readings) = Json::<Readings>::from_bytes(text.as_bytes())
        .map_err(|rejection| Refused::rejection(&rejection.body_text()))?;
    server.sim.change_readings(|held| *held = readings);
    Ok(Json(json!(readings)))
}

pub(super) async fn requests(State(server): State<Server>) -> Json<Value> {
    let requests = server.sim.requests();
    Json(json!({
        "audit": requests.audit,
        "tickets": requests.tickets,
        "statuses": requests.statuses,
        "last": requests.last,
    }))
}

pub(super) async fn clear_requests(State(server): State<Server>) -> Json<Value> {
    server.sim.clear_requests();
    Json(json!({}))
}
