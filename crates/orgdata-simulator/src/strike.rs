//! The faults in force, and what they make of a request.

use std::io;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::response::{Html, IntoResponse as _, Response};
use futures_util::{StreamExt as _, stream};
use http::StatusCode;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use jiff::fmt::rfc2822::DateTimePrinter;
use serde_json::{Value, json};

use crate::answer::{message, respond};
use crate::clock;
use crate::fault::{Endpoint, Fault, FaultKind, RetryAfter};
use crate::query::Query;

/// The faults in force.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    next_id: u64,
    pub(crate) active: Vec<Active>,
}

/// A fault in force.
#[derive(Debug)]
pub(crate) struct Active {
    id: u64,
    fault: Fault,
    /// The number of requests to its listing.
    seen: u64,
}

/// Marks a response in place of which the connection is reset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reset;

/// What the faults made of a response, apart from changes of its page.
#[derive(Debug, Default)]
pub(crate) struct Strikes {
    /// The maximum one means that there is no response.
    pub(crate) delay: Duration,
    /// The response that is sent instead.
    pub(crate) response: Option<Response>,
}

// === impl Faults ===

impl Faults {
    pub(crate) fn add(&mut self, fault: Fault) -> u64 {
        self.next_id += 1;
        let id = self.next_id;
        self.active.push(Active { id, fault, seen: 0 });
        id
    }

    pub(crate) fn remove(&mut self, id: u64) -> bool {
        let mut removed = self.active.extract_if(.., |active| active.id == id);
        removed.next().is_some()
    }

    /// Returns the faults in force with their ids. `times` is what is left of it.
    pub(crate) fn list(&self) -> Vec<(u64, Fault)> {
        let pair = |active: &Active| (active.id, active.fault.clone());
        self.active.iter().map(pair).collect()
    }

    /// Applies the faults to a request, oldest first, until one of them ends it. A body that is not a page is a
    /// refusal.
    pub(crate) fn strike(
        &mut self,
        (endpoint, query): (Endpoint, &Query),
        now: i64,
        from_hook: Option<Fault>,
        body: &mut Value,
    ) -> Strikes {
        let mut strikes = Strikes::default();
        let (id, seen) = (0, 0);
        let mut from_hook = from_hook.map(|fault| Active { id, fault, seen });
        for Active { fault, seen, .. } in from_hook.iter_mut().chain(&mut self.active) {
            if fault.on.is_some_and(|on| on != endpoint) {
                continue;
            }
            *seen += 1;
            let is_due = fault.every.is_none_or(|every| seen.is_multiple_of(every));
            if !is_due || !fault.kind.strike(query, now, body, &mut strikes) {
                continue;
            }
            fault.times = fault.times.map(|times| times.saturating_sub(1));
            if strikes.response.is_some() {
                break;
            }
        }
        self.active.retain(|active| active.fault.times != Some(0));
        strikes
    }
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
            Self::Reset => Extension(Reset).into_response(),
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
            (Self::WrongTypes, Some(Value::Object(item))) => {
                let fields = item
                    .iter_mut()
                    .filter(|(name, _)| *name != "id" && *name != "type");
                fields.for_each(|(_, value)| *value = json!({ "unexpected": true }));
            }
            (Self::MissingId, Some(Value::Object(item))) => drop(item.shift_remove("id")),
            (Self::NotAnObject, Some(item)) => *item = json!("not an object"),
            (Self::Duplicate, Some(item)) => {
                let copy = item.clone();
                items.insert(0, copy);
            }
            (Self::ExpiredCursorEmpty, _) if !query.has_cursor() => return false,
            (Self::EmptyPage | Self::ExpiredCursorEmpty, _) => {
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

/// Returns a time as HTTP writes it, bounded by what HTTP can express.
pub(crate) fn http_date(millis: i64) -> String {
    let time = clock::timestamp(millis.max(0));
    let written = DateTimePrinter::new().timestamp_to_rfc9110_string(&time);
    written.unwrap_or_default()
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

/// Promises a whole body and sends half of it. The connection is reset then.
fn unfinished(whole: &str) -> Response {
    let begun = half(whole).to_owned();
    let end = async {
        // One turn for the connection to send what it has, or the client would see no response at all.
        tokio::task::yield_now().await;
        Err(io::Error::from(io::ErrorKind::ConnectionAborted))
    };
    let body = Body::from_stream(stream::iter([Ok(begun)]).chain(stream::once(end)));
    // A response that names its encoding is not compressed, so the length stays right.
    let headers = [
        (CONTENT_TYPE, "application/json".to_owned()),
        (CONTENT_ENCODING, "identity".to_owned()),
        (CONTENT_LENGTH, whole.len().to_string()),
    ];
    (headers, body).into_response()
}

/// Returns whether a page has an item with this id, which is a string or a number.
fn has_item(page: &Value, id: &str) -> bool {
    let number: Option<Value> = id.parse().ok();
    let is_it = |item: &Value| item["id"] == id || Some(&item["id"]) == number.as_ref();
    page["items"]
        .as_array()
        .is_some_and(|items| items.iter().any(is_it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absurd_times_have_a_date_too() {
        for (millis, date) in [
            (1_893_456_000_999, "Tue, 01 Jan 2030 00:00:00 GMT"),
            (i64::MIN, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (i64::MAX, "Thu, 30 Dec 9999 22:00:00 GMT"),
        ] {
            assert_eq!(http_date(millis), date);
        }
    }

    #[test]
    fn a_text_is_cut_between_two_characters() {
        assert_eq!(half("äöü"), "ä");
        assert_eq!(half(""), "");
    }
}
