//! From a request to its response: route, key, query, page, faults.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use http::header::ALLOW;
use http::{HeaderMap, Method, StatusCode};
use serde_json::{Value, json};

use crate::fault::Endpoint;
use crate::query::Query;
use crate::response::{Reset, message, respond};
use crate::sim::Simulator;
use crate::strike::strike;
use crate::{audit, auth};

/// Answers the two listings, and everything that does not exist.
pub(crate) async fn answer(State(sim): State<Arc<Simulator>>, request: Request) -> Response {
    let (method, path) = (request.method(), request.uri().path());
    let endpoint = match path {
        "/v1/audit-logs" => Endpoint::Audit,
        "/v1/tickets" => Endpoint::Tickets,
        _ => return message(StatusCode::NOT_FOUND, &format!("Cannot {method} {path}")),
    };
    if method != Method::GET {
        let text = format!("Method {method} not allowed");
        let rejected = message(StatusCode::METHOD_NOT_ALLOWED, &text);
        return ([(ALLOW, "GET")], rejected).into_response();
    }
    let query = Query::parse(request.uri().query().unwrap_or_default());
    let from_hook = sim.request_came(endpoint, &query);
    wait(sim.config.latency).await;

    let (status, mut body) = listing(&sim, endpoint, request.headers(), &query);
    let (now, target) = (sim.clock.now(), (endpoint, &query));
    let strikes = strike(&mut sim.state().faults, target, now, from_hook, &mut body);
    wait(strikes.delay).await;
    let response = strikes
        .response
        .unwrap_or_else(|| respond(status, body.to_string()));
    if response.extensions().get::<Reset>().is_none() {
        let status = response.status().as_u16();
        *sim.state().requests.statuses.entry(status).or_default() += 1;
    }
    response
}

/// Returns the response of a listing when no fault strikes.
fn listing(
    sim: &Simulator,
    endpoint: Endpoint,
    headers: &HeaderMap,
    query: &Query,
) -> (StatusCode, Value) {
    let scope = match endpoint {
        Endpoint::Audit => "activity_logs:read",
        Endpoint::Tickets => "tickets:read",
    };
    if let Err((status, message)) = auth::check(&sim.config.keys, headers, scope) {
        return (status, json!({ "message": message }));
    }
    let state = sim.state();
    let page = match endpoint {
        Endpoint::Audit => audit::page(&state.world, &state.readings, query, sim.clock.now()),
        Endpoint::Tickets => state.tickets.page(&state.readings, query),
    };
    match page {
        Ok(page) => (StatusCode::OK, page),
        Err(issues) => (StatusCode::BAD_REQUEST, issues),
    }
}

/// Waits; never returns if the time is `Duration::MAX`.
async fn wait(time: Duration) {
    match time {
        Duration::ZERO => {}
        Duration::MAX => std::future::pending().await,
        time => tokio::time::sleep(time).await,
    }
}
