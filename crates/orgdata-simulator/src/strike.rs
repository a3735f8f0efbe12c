//! The faults in force, and what they make of a request.

use std::io;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::response::{Html, IntoResponse as _, Response};
use futures_util::{StreamExt as _, stream};
use http::StatusCode;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use serde_json::{Value, json};

use crate::clock;
use crate::fault::{Endpoint, Fault, FaultKind, RetryAfter};
use crate::query::Query;
use crate::response::{Reset, http_date, message, respond};

/// What the faults made of a response, apart from changes of its page.
#[derive(Debug, Default)]
pub(crate) struct Strikes {
    /// The maximum one means that there is no response.
    pub(crate) delay: Duration,
    /// The response that is sent instead.
    pub(crate) response: Option<Response>,
}

/// Applies faults to a request, oldest first, until one of them ends it. A body that is not a page is a rejection.
pub(crate) fn strike(
    faults: &mut Vec<Fault>,
    (endpoint, query): (Endpoint, &Query),
    now: i64,
    mut from_hook: Option<Fault>,
    body: &mut Value,
) -> Strikes {
    let mut strikes = Strikes::default();
    for fault in from_hook.iter_mut().chain(&mut *faults) {
        if fault.on.is_some_and(|on| on != endpoint) {
            continue;
        }
        fault.seen += 1;
        let is_due = |every| fault.seen.is_multiple_of(every);
        let is_due = fault.every.is_none_or(is_due);
        if !is_due || !fault.kind.strike(query, now, body, &mut strikes) {
            continue;
        }
        fault.times = fault.times.map(|times| times.saturating_sub(1));
        if strikes.response.is_some() {
            break;
        }
    }
    faults.retain(|fault| fault.times != Some(0));
    strikes
}

// === impl FaultKind ===

impl FaultKind {
    /// Applies the fault to a request and the body that would answer it. Returns whether it is about this request.
    fn strike(&self, query: &Query, now: i64, body: &mut Value, strikes: &mut Strikes) -> bool {
        let failed = StatusCode::INTERNAL_SERVER_ERROR;
        let is_page = body["items"].is_array();
        let response = match self {
            Self::Delay(delay) => {
                strikes.delay = strikes.delay.saturating_add(*delay);
                return true;
            }
            Self::Hang => {
                strikes.delay = Duration::MAX;
                return true;
            }
            Self::Reset => (Extension(Reset), cut("")).into_response(),
            Self::Status(status) => message(*status, &format!("Simulated failure: {status}")),
            Self::TooManyRequests(wait) => too_many_requests(*wait, now),
            Self::Html(status) => {
                let page = format!("<!DOCTYPE html>\n<title>{status}</title>{status}, proxy\n");
                (*status, Html(page)).into_response()
            }
            Self::Empty(status) => respond(*status, String::new()),
            Self::ExpiredCursor(status) if query.has_cursor() => {
                message(*status, "The cursor has expired")
            }
            Self::TooLarge(limit) if query.limit().is_ok_and(|asked| asked > *limit) => {
                message(failed, &format!("More than {limit} items are too many"))
            }
            _ if !is_page => return false,
            Self::Poison(id) if has_item(body, id) => {
                message(failed, &format!("Cannot read item {id}"))
            }
            Self::TruncatedJson => respond(StatusCode::OK, half(&body.to_string()).to_owned()),
            Self::ResetBody => unfinished(&body.to_string()),
            _ => return self.change(query, body),
        };
        strikes.response = Some(response);
        true
    }

    /// Changes a page. Returns whether the fault does that.
    fn change(&self, query: &Query, page: &mut Value) -> bool {
        let Some(Value::Array(items)) = page.get_mut("items") else {
            return false;
        };
        match (self, items.first_mut()) {
            (Self::UnknownFields, _) => {
                for item in items {
                    item["futureField"] = json!({ "nested": [1, "zwei", null] });
                }
                (page["generatedBy"], page["warnings"]) = (json!({ "node": 7 }), json!([]));
            }
            (Self::Duplicate, Some(item)) => {
                let copy = item.clone();
                items.insert(0, copy);
            }
            (Self::EmptyPage, _) => {
                items.clear();
                // A page of tickets has none.
                if page.get("endCursor").is_some() {
                    page["startCursor"] = query.get("after").into();
                    (page["endCursor"], page["hasMore"]) = (Value::Null, false.into());
                }
            }
            _ => return false,
        }
        true
    }
}

fn too_many_requests(wait: RetryAfter, now: i64) -> Response {
    let value = match wait {
        RetryAfter::Absent => None,
        RetryAfter::Seconds(seconds) => Some(seconds.to_string()),
        RetryAfter::Date(wait) => Some(http_date(now.saturating_add(clock::millis(wait)))),
    };
    let response = message(StatusCode::TOO_MANY_REQUESTS, "Too many requests");
    (value.map(|value| [(RETRY_AFTER, value)]), response).into_response()
}

/// Returns half of a text, cut between two characters.
fn half(text: &str) -> &str {
    let middle = (0..=text.len() / 2).rfind(|&at| text.is_char_boundary(at));
    &text[..middle.unwrap_or(0)]
}

/// Promises a whole body and sends half of it. The connection ends then.
fn unfinished(whole: &str) -> Response {
    let headers = [
        (CONTENT_TYPE, "application/json".to_owned()),
        (CONTENT_LENGTH, whole.len().to_string()),
    ];
    (headers, cut(half(whole))).into_response()
}

/// Returns a body after whose beginning the connection ends. If there is none, the client sees no response at all.
fn cut(begun: &str) -> Body {
    let begun = (!begun.is_empty()).then(|| Ok(begun.to_owned()));
    let is_begun = begun.is_some();
    let end = async move {
        // One turn for the connection to send what it has.
        if is_begun {
            tokio::task::yield_now().await;
        }
        Err(io::Error::from(io::ErrorKind::ConnectionAborted))
    };
    Body::from_stream(stream::iter(begun).chain(stream::once(end)))
}

/// Returns whether a page has an item with this id, which is a string or a number.
fn has_item(page: &Value, id: &str) -> bool {
    let number: Option<Value> = id.parse().ok();
    let is_it = |item: &Value| item["id"] == id || Some(&item["id"]) == number.as_ref();
    page["items"]
        .as_array()
        .is_some_and(|items| items.iter().any(is_it))
}
