//! What every response is made of: a status, a body, a date, or no response at all.

use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use jiff::fmt::rfc2822::DateTimePrinter;
use serde_json::json;

use crate::clock;

/// Marks a response in place of which the connection ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reset;

/// Returns an error with a message (section 7.1).
pub(crate) fn message(status: StatusCode, message: &str) -> Response {
    respond(status, json!({ "message": message }).to_string())
}

/// Returns a response with a JSON body.
pub(crate) fn respond(status: StatusCode, body: String) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], body).into_response()
}

/// Returns a time as HTTP writes it, bounded by what HTTP can express.
pub(crate) fn http_date(millis: i64) -> String {
    let time = clock::timestamp(millis.max(0));
    let written = DateTimePrinter::new().timestamp_to_rfc9110_string(&time);
    written.unwrap_or_default()
}
