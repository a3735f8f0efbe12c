//! From a request to its answer: route, key, query, page.

use axum::body::Body;
use axum::extract::State;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use serde_json::json;

use super::auth;
use super::fault::Endpoint;
use super::page::AuditQuery;
use super::query::{Issues, Query};
use super::server::Server;
use super::sim::Simulator;
use super::ticket_page::TicketQuery;

const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");

/// Answers any request that has no route of its own: the two listings, and everything that does not exist.
pub(super) async fn answer(State(server): State<Server>, request: Request<Body>) -> Response<Body> {
    let endpoint = match request.uri().path() {
        "/v1/audit-logs" => Endpoint::Audit,
        "/v1/tickets" => Endpoint::Tickets,
        path => return message(StatusCode::NOT_FOUND, &format!("Cannot {} {path}", request.method())),
    };
    if request.method() != Method::GET {
        let mut refusal = message(StatusCode::METHOD_NOT_ALLOWED, &format!("Method {} not allowed", request.method()));
        refusal.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET"));
        return refusal;
    }
    let raw = request.uri().query().unwrap_or_default();
    let query = Query::parse(raw);
    let (info, _fault) = server.sim.request_came(endpoint, raw, query.pairs());
    let response = listing(&server.sim, endpoint, &request, &query);
    server.sim.request_answered(info.number, response.status().as_u16());
    response
}

fn listing(sim: &Simulator, endpoint: Endpoint, request: &Request<Body>, query: &Query) -> Response<Body> {
    let scope = match endpoint {
        Endpoint::Audit => "activity_logs:read",
        Endpoint::Tickets => "tickets:read",
    };
    if let Err(refusal) = auth::check(&sim.config().keys, request.headers(), scope) {
        return message(refusal.status(), &refusal.to_string());
    }
    let page = match endpoint {
        Endpoint::Audit => audit_page(sim, query),
        Endpoint::Tickets => ticket_page(sim, query),
    };
    match page {
        Ok(body) => with_body(StatusCode::OK, body),
        Err(issues) => with_body(StatusCode::BAD_REQUEST, issues.body().unwrap_or_default()),
    }
}

fn audit_page(sim: &Simulator, query: &Query) -> Result<String, Issues> {
    let (world, readings, cursors) = (sim.world(), sim.readings(), sim.cursors());
    let asked = AuditQuery::parse(query, &world, &readings, cursors)?;
    Ok(asked.answer(&world, &readings, cursors).body())
}

fn ticket_page(sim: &Simulator, query: &Query) -> Result<String, Issues> {
    let readings = sim.readings();
    let asked = TicketQuery::parse(query, &readings)?;
    Ok(asked.answer(&sim.desk(), &readings).body())
}

/// An error body of one property (section 7.1).
pub(super) fn message(status: StatusCode, message: &str) -> Response<Body> {
    with_body(status, json!({ "message": message }).to_string())
}

pub(super) fn with_body(status: StatusCode, body: String) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    response
}
