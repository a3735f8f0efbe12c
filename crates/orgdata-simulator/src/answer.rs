//! From a request to its response: route, key, query, page, faults.

use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use serde_json::{Value, json};

use crate::fault::Endpoint;
use crate::query::Query;
use crate::server::{Reset, Server};
use crate::sim::Simulator;
use crate::strike::{Ending, Target, with_header};
use crate::{audit, auth};

const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");

/// Answers the two listings, and everything that does not exist.
pub(crate) async fn answer(State(server): State<Server>, request: Request<Body>) -> Response<Body> {
    let (method, path) = (request.method(), request.uri().path());
    let endpoint = match path {
        "/v1/audit-logs" => Endpoint::Audit,
        "/v1/tickets" => Endpoint::Tickets,
        _ => return message(StatusCode::NOT_FOUND, &format!("Cannot {method} {path}")),
    };
    if method != Method::GET {
        let text = format!("Method {method} not allowed");
        let refused = message(StatusCode::METHOD_NOT_ALLOWED, &text);
        return with_header(refused, header::ALLOW, "GET");
    }
    let Server { sim, stopping } = &server;
    let (number, from_hook) = sim.request_came(endpoint, request.uri().query().unwrap_or_default());
    wait(sim.config().latency, &server).await;

    let query = Query::parse(request.uri().query().unwrap_or_default());
    let (status, mut body) = listing(sim, endpoint, request.headers(), &query);
    let target = Target {
        endpoint,
        query: &query,
        now: sim.millis(),
        stopping,
    };
    let strikes = sim.state().faults.strike(&target, from_hook, &mut body);
    wait(strikes.delay, &server).await;
    let response = match strikes.ending {
        None => respond(status, body.to_string()),
        Some(Ending::Response(response)) => response,
        Some(ending) => {
            if matches!(ending, Ending::Hang) {
                stopping.cancelled().await;
            }
            let mut response = Response::new(Body::empty());
            response.extensions_mut().insert(Reset);
            return response;
        }
    };
    sim.state().requests.answered(number, response.status());
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
    if let Err((status, message)) = auth::check(&sim.config().keys, headers, scope) {
        return (status, json!({ "message": message }));
    }
    let state = sim.state();
    let page = match endpoint {
        Endpoint::Audit => audit::page(&state.world, &state.readings, query),
        Endpoint::Tickets => state.tickets.page(&state.readings, query),
    };
    match page {
        Ok(page) => (StatusCode::OK, page),
        Err(issues) => (StatusCode::BAD_REQUEST, issues),
    }
}

/// Returns an error with a message (section 7.1).
pub(crate) fn message(status: StatusCode, message: &str) -> Response<Body> {
    respond(status, json!({ "message": message }).to_string())
}

/// Returns a response with a JSON body.
pub(crate) fn respond(status: StatusCode, body: String) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    response
}

/// Waits, but not longer than the server runs.
async fn wait(time: Duration, server: &Server) {
    if !time.is_zero() {
        // Either way the wait is over.
        let _ = tokio::time::timeout(time, server.stopping.cancelled()).await;
    }
}
