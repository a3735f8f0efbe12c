//! From a request to its answer: route, key, query, page, faults.

use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use serde_json::json;

use super::auth;
use super::ending::broken_answer;
use super::fault::{Endpoint, FaultKind};
use super::mangle::{change_body, change_items};
use super::page::{AuditPage, AuditQuery};
use super::query::Query;
use super::readings::EmptyCursor;
use super::server::Server;
use super::sim::Simulator;
use super::strike::Target;
use super::ticket_page::{TicketPage, TicketQuery};
use super::wire::Cut;

const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");

/// What answers a request when no fault hits it.
enum Answer {
    Audit(AuditPage),
    Tickets(TicketPage),
    Refusal(StatusCode, String),
}

/// Answers any request that has no route of its own: the two listings, and everything that does not exist.
pub(super) async fn answer(
    State(server): State<Server>,
    Extension(cut): Extension<Cut>,
    request: Request<Body>,
) -> Response<Body> {
    let endpoint = match request.uri().path() {
        "/v1/audit-logs" => Endpoint::Audit,
        "/v1/tickets" => Endpoint::Tickets,
        path => {
            return message(
                StatusCode::NOT_FOUND,
                &format!("Cannot {} {path}", request.method()),
            );
        }
    };
    if request.method() != Method::GET {
        let mut refusal = message(
            StatusCode::METHOD_NOT_ALLOWED,
            &format!("Method {} not allowed", request.method()),
        );
        refusal
            .headers_mut()
            .insert(header::ALLOW, HeaderValue::from_static("GET"));
        return refusal;
    }
    let raw = request.uri().query().unwrap_or_default();
    let query = Query::parse(raw);
    let sim = &server.sim;
    let (info, from_hook) = sim.request_came(endpoint, raw, query.pairs());
    wait(sim.config().latency, &server).await;

    let mut answer = Answer::find(sim, endpoint, request.headers(), &query);
    let target = Target {
        endpoint,
        number: info.number,
        query: &query,
        ids: answer.ids(),
    };
    let strike = sim.strike(target, from_hook);
    for change in &strike.changes {
        answer.change(change, sim.readings().empty_start_cursor, &query);
    }
    let (status, mut body) = answer.into_body();
    for change in &strike.changes {
        change_body(change, &mut body);
    }
    wait(strike.delay, &server).await;
    let Some(ending) = &strike.ending else {
        sim.request_answered(info.number, status.as_u16());
        return with_body(status, body);
    };
    let response = broken_answer(
        ending,
        (status, body),
        &query,
        sim.millis(),
        &cut,
        &server.stopping,
    )
    .await;
    // Without an answer there is none to count.
    if !matches!(ending, FaultKind::Hang | FaultKind::Reset) {
        sim.request_answered(info.number, response.status().as_u16());
    }
    response
}

// === impl Answer ===

impl Answer {
    fn find(sim: &Simulator, endpoint: Endpoint, headers: &HeaderMap, query: &Query) -> Self {
        let scope = match endpoint {
            Endpoint::Audit => "activity_logs:read",
            Endpoint::Tickets => "tickets:read",
        };
        if let Err(refusal) = auth::check(&sim.config().keys, headers, scope) {
            return Self::Refusal(
                refusal.status(),
                json!({ "message": refusal.to_string() }).to_string(),
            );
        }
        let readings = sim.readings();
        let page = match endpoint {
            Endpoint::Audit => {
                let (world, cursors) = (sim.world(), sim.cursors());
                AuditQuery::parse(query, &world, &readings, cursors)
                    .map(|asked| Self::Audit(asked.answer(&world, &readings, cursors)))
            }
            Endpoint::Tickets => TicketQuery::parse(query, &readings)
                .map(|asked| Self::Tickets(asked.answer(&sim.desk(), &readings))),
        };
        page.unwrap_or_else(|issues| {
            Self::Refusal(StatusCode::BAD_REQUEST, issues.body().unwrap_or_default())
        })
    }

    /// The ids on the page, when it is one.
    fn ids(&self) -> Option<&[String]> {
        match self {
            Self::Audit(page) => Some(&page.ids),
            Self::Tickets(page) => Some(&page.ids),
            Self::Refusal(..) => None,
        }
    }

    fn change(&mut self, fault: &FaultKind, empty_cursor: EmptyCursor, query: &Query) {
        match self {
            Self::Audit(page)
                if matches!(
                    fault,
                    FaultKind::EmptyPage(_) | FaultKind::ExpiredCursorEmpty
                ) =>
            {
                let after = query
                    .pairs()
                    .iter()
                    .find(|(name, _)| name == "after")
                    .map(|(_, cursor)| cursor.clone());
                *page = AuditPage {
                    start_cursor: after.filter(|_| empty_cursor == EmptyCursor::Echo),
                    ..AuditPage::default()
                };
            }
            Self::Audit(page) => change_items(fault, &mut page.items),
            Self::Tickets(page) => change_items(fault, &mut page.items),
            Self::Refusal(..) => {}
        }
    }

    fn into_body(self) -> (StatusCode, String) {
        match self {
            Self::Audit(page) => (StatusCode::OK, page.body()),
            Self::Tickets(page) => (StatusCode::OK, page.body()),
            Self::Refusal(status, body) => (status, body),
        }
    }
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

/// Lets time pass, but never longer than the server runs.
async fn wait(time: Duration, server: &Server) {
    if !time.is_zero() {
        tokio::select! {
            () = server.stopping.cancelled() => {}
            () = tokio::time::sleep(time) => {}
        }
    }
}
