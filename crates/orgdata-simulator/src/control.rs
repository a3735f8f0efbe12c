//! The control endpoint: shows what is set, and changes it while the simulator runs. It needs no key.
//!
//! A command is a JSON object with one field, as in `{"late": {"count": 3, "behind": "10m"}}`. Durations are written
//! `90s` or `1h 30m`. A rejected command is answered with 400 and a message.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::response::{Html, IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::config::checked_rate;
use crate::fault::{Fault, duration};
use crate::fields::Fields;
use crate::response::message;
use crate::sim::Simulator;

/// A page with what is set now, and a button for each command.
const INDEX: &str = include_str!("index.html");

/// A change of the simulator.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum Command {
    Events(u64),
    Entry(Fields),
    Late {
        count: u64,
        #[serde(with = "duration")]
        behind: Duration,
    },
    Retain(u64),
    Rate(f64),
    Fault(Fault),
    ClearFaults,
    Readings(Map<String, Value>),
    Ticket(Fields),
    Advance(#[serde(with = "duration")] Duration),
}

/// Returns the routes apart from the listings.
pub(crate) fn routes() -> Router<Arc<Simulator>> {
    let show = async |State(sim): State<Arc<Simulator>>| Json(settings(&sim));
    let requests = async |State(sim): State<Arc<Simulator>>| Json(sim.requests());
    Router::new()
        .route("/", get(async || Html(INDEX)))
        .route("/control", get(show).post(change))
        .route("/control/", get(show).post(change))
        .route("/control/requests", get(requests))
}

async fn change(State(sim): State<Arc<Simulator>>, body: Bytes) -> Response {
    let command = serde_json::from_slice(&body).map_err(text);
    match command.and_then(|command| run(&sim, command)) {
        Ok(()) => Json(settings(&sim)).into_response(),
        Err(error) => message(StatusCode::BAD_REQUEST, &error),
    }
}

fn run(sim: &Simulator, command: Command) -> Result<(), String> {
    match command {
        Command::Events(count) => sim.add_events(count),
        Command::Entry(fields) => drop(sim.add_entry(&fields).map_err(text)?),
        Command::Late { count, behind } => sim.add_late(count, behind),
        Command::Retain(keep) => sim.retain(keep),
        Command::Rate(rate) => sim.set_rate(checked_rate(rate)?),
        Command::Fault(fault) => sim.fault(fault),
        Command::ClearFaults => sim.clear_faults(),
        Command::Readings(changes) => {
            let readings = sim.readings().with(&changes.into()).map_err(text)?;
            sim.change_readings(|held| *held = readings);
        }
        Command::Ticket(fields) => drop(sim.add_ticket(fields).map_err(text)?),
        Command::Advance(by) => sim.advance(by),
    }
    Ok(())
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Returns what is set now.
fn settings(sim: &Simulator) -> Value {
    let (now, state) = (sim.now(), sim.state());
    json!({
        "now": now,
        "events": state.world.rows.len(),
        "rate": state.world.rate,
        "tickets": state.tickets.all.len(),
        "ticket-change-rate": state.tickets.rate,
        "readings": state.readings,
        "faults": state.faults,
        "statuses": state.requests.statuses,
    })
}
