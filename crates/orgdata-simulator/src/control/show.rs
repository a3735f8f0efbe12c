//! What is the case, for a test in another process.

use std::convert::Infallible;

use axum::Json;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use http::header;
use serde_json::{Value, json};

use super::super::clock;
use super::super::people;
use super::super::query::Query;
use super::super::server::Server;
use super::super::sim::Simulator;
use super::super::truth::Scope;
use super::input::{Done, Refused, query};

/// Bytes of lines that are sent at once.
const CHUNK: usize = 64 << 10;

pub(super) async fn truth(State(server): State<Server>, RawQuery(raw): RawQuery) -> Done {
    let query = query(raw.as_deref(), &["since", "removed", "open"])?;
    let scope = scope(&query)?;
    let open = param(&query, "open").unwrap_or("OPEN").to_owned();
    // Counting millions of entries takes a while, during which the listings are still answered.
    let sim = std::sync::Arc::clone(&server.sim);
    let counted = tokio::task::spawn_blocking(move || {
        json!({
            "now": clock::text(sim.millis()),
            "mark": sim.mark().to_string(),
            "audit": audit(&sim, scope),
            "tickets": tickets_truth(&sim, &open.split(',').collect::<Vec<_>>()),
        })
    });
    counted
        .await
        .map(Json)
        .map_err(|error| Refused::new(None, error.to_string()))
}

pub(super) async fn entries(
    State(server): State<Server>,
    RawQuery(raw): RawQuery,
) -> Result<Response, Refused> {
    let query = query(raw.as_deref(), &["since", "removed"])?;
    Ok(lines(
        server
            .sim
            .entries_of(scope(&query)?)
            .map(|entry| entry.json),
    ))
}

pub(super) async fn tickets(State(server): State<Server>) -> Response {
    lines(server.sim.tickets().into_iter())
}

pub(super) async fn users() -> Json<Value> {
    let users: Vec<_> = people::ids()
        .map(|id| json!({ "email": people::mail(id), "user": people::summary(id) }))
        .collect();
    Json(json!({ "users": users }))
}

fn audit(sim: &Simulator, scope: Scope) -> Value {
    let truth = sim.truth_of(scope);
    let counts: Vec<_> = truth
        .counts
        .iter()
        .map(|((kind, actor), count)| json!({ "type": kind, "actorUserId": actor, "count": count }))
        .collect();
    let (oldest, newest) = truth
        .created
        .map(|(old, new)| (format!("{old:.3}"), format!("{new:.3}")))
        .unzip();
    json!({ "total": truth.total, "oldestCreatedAt": oldest, "newestCreatedAt": newest, "counts": counts })
}

fn tickets_truth(sim: &Simulator, open: &[&str]) -> Value {
    let truth = sim.ticket_truth(open);
    let groups: Vec<_> = truth
        .groups
        .iter()
        .map(|(group, sums)| {
            json!({
                "state": group.state,
                "type": group.ticket_type,
                "priority": group.priority,
                "tickets": sums.tickets,
                // A text: more cents than a float holds exactly must not be rounded on the way.
                "amountCents": sums.cents.to_string(),
                "overdue": sums.overdue,
                "oldestCreatedAt": sums.oldest_created_ms.map(clock::text),
            })
        })
        .collect();
    json!({
        "total": truth.total,
        "withoutAmount": truth.without_amount,
        "groups": groups,
        "openDeals": truth.open_deals,
        "openDealsByLink": truth.open_deals_by_link,
    })
}

fn scope(query: &Query) -> Result<Scope, Refused> {
    let mut scope = Scope::default();
    if let Some(since) = param(query, "since") {
        match (since.parse(), since.parse()) {
            (Ok(mark), _) => scope.since = Some(mark),
            (_, Ok(time)) => scope.created_since = Some(time),
            _ => {
                return Err(Refused::field(
                    "since",
                    "a mark as 5000.1, or an RFC 3339 time",
                ));
            }
        }
    }
    scope.removed = match param(query, "removed") {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(Refused::field("removed", "true or false")),
    };
    Ok(scope)
}

fn param<'a>(query: &'a Query, name: &str) -> Option<&'a str> {
    query
        .pairs()
        .iter()
        .find(|(given, _)| given == name)
        .map(|(_, value)| value.as_str())
}

/// Lines of JSON, sent as they are made.
fn lines(all: impl Iterator<Item = String> + Send + 'static) -> Response {
    let chunks = stream::unfold(all, |mut all| async move {
        let mut chunk = String::new();
        while chunk.len() < CHUNK {
            let Some(line) = all.next() else { break };
            chunk.push_str(&line);
            chunk.push('\n');
        }
        // Drawing entries must not keep other requests from their turn.
        tokio::task::yield_now().await;
        (!chunk.is_empty()).then_some((Ok::<_, Infallible>(chunk), all))
    });
    (
        [(header::CONTENT_TYPE, "application/x-ndjson")],
        Body::from_stream(chunks),
    )
        .into_response()
}
