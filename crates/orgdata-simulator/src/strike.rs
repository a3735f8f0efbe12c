//! The faults in force, and what they make of a request.

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use futures_util::{StreamExt as _, stream};
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::answer::{message, respond};
use crate::clock;
use crate::dice::{Dice, Purpose};
use crate::fault::{Endpoint, Fault, FaultKind, RetryAfter};
use crate::query::{Issues, Query};

/// The last second that an HTTP date can express.
const LAST_SECOND: i64 = 253_402_300_799;

/// The faults in force.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    next_id: u64,
    active: Vec<Active>,
}

#[derive(Debug)]
struct Active {
    id: u64,
    fault: Fault,
    /// The number of requests to its listing.
    seen: u64,
}

/// A request, as faults see it.
#[derive(Debug)]
pub(crate) struct Target<'a> {
    pub(crate) endpoint: Endpoint,
    pub(crate) query: &'a Query,
    /// The time in milliseconds since 1970.
    pub(crate) now: i64,
    /// Ends responses that would take forever.
    pub(crate) stopping: &'a CancellationToken,
}

/// What became of a response.
#[derive(Debug, Default)]
pub(crate) struct Strikes {
    pub(crate) delay: Duration,
    pub(crate) ending: Option<Ending>,
}

/// How a response ends, apart from changes of its page.
#[derive(Debug)]
pub(crate) enum Ending {
    /// With another response.
    Response(Response<Body>),
    /// With a reset of the connection.
    Reset,
    /// With a reset when the server stops.
    Hang,
}

/// What one fault makes of a response.
enum Effect {
    /// The fault is not about this request.
    None,
    Delayed(Duration),
    /// The page was changed.
    Changed,
    Ended(Ending),
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
        let before = self.active.len();
        self.active.retain(|active| active.id != id);
        self.active.len() < before
    }

    pub(crate) fn clear(&mut self) {
        self.active.clear();
    }

    /// Returns the faults in force with their ids. `times` is what is left of it.
    pub(crate) fn list(&self) -> Vec<(u64, Fault)> {
        let active = self.active.iter();
        active
            .map(|active| (active.id, active.fault.clone()))
            .collect()
    }

    /// Applies the faults to a request, oldest first, until one of them ends it. A body that is not a page is a
    /// refusal.
    pub(crate) fn strike(
        &mut self,
        target: &Target<'_>,
        from_hook: Option<Fault>,
        body: &mut Value,
    ) -> Strikes {
        let mut strikes = Strikes::default();
        let (id, seen) = (0, 0);
        let mut from_hook = from_hook.map(|fault| Active { id, fault, seen });
        for Active { id, fault, seen } in from_hook.iter_mut().chain(&mut self.active) {
            if fault.on.is_some_and(|on| on != target.endpoint) {
                continue;
            }
            *seen += 1;
            let mut dice = Dice::new(0, Purpose::Fault, *id, *seen);
            let is_due = fault.every.is_none_or(|every| seen.is_multiple_of(every))
                && fault.chance.is_none_or(|chance| dice.chance(chance));
            let effect = match is_due {
                true => fault.kind.strike(target, body),
                false => Effect::None,
            };
            if !matches!(effect, Effect::None) {
                fault.times = fault.times.map(|times| times.saturating_sub(1));
            }
            match effect {
                Effect::None | Effect::Changed => {}
                Effect::Delayed(delay) => strikes.delay += delay,
                Effect::Ended(ending) => {
                    strikes.ending = Some(ending);
                    break;
                }
            }
        }
        self.active.retain(|active| active.fault.times != Some(0));
        strikes
    }
}

// === impl FaultKind ===

impl FaultKind {
    /// Applies the fault to a request and the body that would answer it.
    fn strike(&self, target: &Target<'_>, body: &mut Value) -> Effect {
        let failed = StatusCode::INTERNAL_SERVER_ERROR;
        let is_page = body["items"].is_array();
        let response = match self {
            Self::Delay(delay) => return Effect::Delayed(*delay),
            Self::Reset => return Effect::Ended(Ending::Reset),
            Self::Hang => return Effect::Ended(Ending::Hang),
            Self::Status(status) => message(*status, &format!("Simulated failure: {status}")),
            Self::TooManyRequests(wait) => too_many_requests(*wait, target.now),
            Self::Redirect(to) => {
                let moved = message(StatusCode::TEMPORARY_REDIRECT, "Moved");
                with_header(moved, header::LOCATION, to)
            }
            Self::Html(status) => {
                let page = format!("<!DOCTYPE html>\n<title>{status}</title>{status}, proxy\n");
                with_header(respond(*status, page), header::CONTENT_TYPE, "text/html")
            }
            Self::Empty(status) => respond(*status, String::new()),
            Self::Body(status, text) => respond(*status, text.clone()),
            Self::TruncatedJson if is_page => {
                respond(StatusCode::OK, half(&body.to_string()).to_owned())
            }
            Self::ResetBody if is_page => unfinished(&body.to_string(), None),
            Self::Stall if is_page => unfinished(&body.to_string(), Some(target.stopping.clone())),
            Self::Oversized(length) if is_page => {
                let page = body.to_string();
                let padding = " ".repeat(length.saturating_sub(page.len()));
                respond(StatusCode::OK, page + &padding)
            }
            Self::ExpiredCursor(status) if target.query.has_cursor() => {
                message(*status, "The cursor has expired")
            }
            Self::TooLarge(limit) if target.query.limit(&mut Issues::default()) > *limit => {
                message(failed, &format!("More than {limit} items are too many"))
            }
            Self::Poison(id) if items(body).iter().any(|item| has_id(item, id)) => {
                message(failed, &format!("Cannot read item {id}"))
            }
            _ if is_page => return self.change(target, body),
            _ => return Effect::None,
        };
        Effect::Ended(Ending::Response(response))
    }

    /// Changes a page.
    fn change(&self, target: &Target<'_>, page: &mut Value) -> Effect {
        let query = target.query;
        let contains = |place: &u64| {
            let mut issues = Issues::default();
            let (offset, limit) = (query.offset(&mut issues), query.limit(&mut issues));
            (offset..offset + limit).contains(place)
        };
        let is_empty = match self {
            Self::EmptyPage(None) => true,
            Self::EmptyPage(Some(place)) => target.endpoint == Endpoint::Tickets && contains(place),
            Self::ExpiredCursorEmpty => query.has_cursor(),
            _ => false,
        };
        if is_empty {
            page["items"] = json!([]);
            if target.endpoint == Endpoint::Audit {
                page["startCursor"] = query.get("after").into();
                (page["endCursor"], page["hasMore"]) = (Value::Null, false.into());
            }
            return Effect::Changed;
        }
        let Some(Value::Array(items)) = page.get_mut("items") else {
            return Effect::None;
        };
        match (self, items.first_mut()) {
            (Self::UnknownFields, _) => {
                items.iter_mut().for_each(add_fields);
                page["generatedBy"] = json!({ "node": 7 });
            }
            (Self::WrongTypes, Some(item)) => wrong_types(item),
            (Self::MissingId, Some(Value::Object(item))) => drop(item.shift_remove("id")),
            (Self::NotAnObject, Some(item)) => *item = json!("not an object"),
            (Self::Duplicate, Some(item)) => {
                let copy = item.clone();
                items.insert(0, copy);
            }
            _ => return Effect::None,
        }
        Effect::Changed
    }
}

/// Returns a time as HTTP writes it, bounded by what HTTP can express.
pub(crate) fn http_date(millis: i64) -> String {
    let seconds = millis.div_euclid(1000).clamp(0, LAST_SECOND).unsigned_abs();
    let time: SystemTime = UNIX_EPOCH + Duration::from_secs(seconds);
    httpdate::fmt_http_date(time)
}

/// Sets a header, unless the value is not a valid one.
pub(crate) fn with_header(
    mut response: Response<Body>,
    name: HeaderName,
    value: &str,
) -> Response<Body> {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
    response
}

fn too_many_requests(wait: RetryAfter, now: i64) -> Response<Body> {
    let response = message(StatusCode::TOO_MANY_REQUESTS, "Too many requests");
    let value = match wait {
        RetryAfter::Absent => return response,
        RetryAfter::Seconds(seconds) => seconds.to_string(),
        RetryAfter::Date(wait) => http_date(now.saturating_add(clock::millis(wait))),
    };
    with_header(response, header::RETRY_AFTER, &value)
}

/// Returns half of a text, cut between two characters.
fn half(text: &str) -> &str {
    let middle = (0..=text.len() / 2).rfind(|&at| text.is_char_boundary(at));
    &text[..middle.unwrap_or(0)]
}

/// Promises a whole body and sends half of it. The connection is reset then, or when `until` is cancelled.
fn unfinished(whole: &str, until: Option<CancellationToken>) -> Response<Body> {
    let begun = half(whole).to_owned();
    let end = async move {
        match until {
            Some(until) => until.cancelled().await,
            // One turn for the connection to send what it has, or the client would see no response at all.
            None => tokio::task::yield_now().await,
        }
        Err(io::Error::from(io::ErrorKind::ConnectionAborted))
    };
    let mut response = respond(StatusCode::OK, String::new());
    *response.body_mut() = Body::from_stream(stream::iter([Ok(begun)]).chain(stream::once(end)));
    // A response that names its encoding is not compressed, so the length stays right.
    let response = with_header(response, header::CONTENT_ENCODING, "identity");
    with_header(response, header::CONTENT_LENGTH, &whole.len().to_string())
}

fn items(page: &Value) -> &[Value] {
    page["items"].as_array().map_or(&[], Vec::as_slice)
}

/// Returns whether an item has this id, which is a string or a number.
fn has_id(item: &Value, id: &str) -> bool {
    item["id"] == id || item["id"].to_string() == id
}

/// Adds fields that the specification does not have, to an item and its nested objects.
fn add_fields(item: &mut Value) {
    let Value::Object(fields) = &mut *item else {
        return;
    };
    let nested = fields
        .iter_mut()
        .filter(|(name, value)| *name != "metadata" && value.is_object());
    nested.for_each(|(_, object)| object["futureField"] = true.into());
    item["futureField"] = json!({ "nested": [1, "zwei", null] });
}

fn wrong_types(item: &mut Value) {
    for (field, value) in [
        ("occurredAt", json!(12345)),
        ("createdAt", json!({})),
        ("actorUser", json!("someone")),
        ("dealId", json!("five")),
        ("dealAmountSum", json!("12,50")),
        ("linkedDeals", json!({ "id": 1 })),
        ("state", json!(7)),
    ] {
        if let Some(held) = item.get_mut(field) {
            *held = value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absurd_times_have_a_date_too() {
        for (millis, date) in [
            (1_893_456_000_999, "Tue, 01 Jan 2030 00:00:00 GMT"),
            (i64::MIN, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (i64::MAX, "Fri, 31 Dec 9999 23:59:59 GMT"),
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
