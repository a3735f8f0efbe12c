//! How an answer ends: whole, or as a fault has it.

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, Response, StatusCode, header};
use tokio_util::sync::CancellationToken;

use super::answer::{message, with_body};
use super::fault::{FaultKind, RetryAfter};
use super::mangle::refused_cursor;
use super::query::Query;
use super::wire::Cut;

/// The last second that an HTTP date can name.
const LAST_SECOND: i64 = 253_402_300_799;

/// Marks a response that must go out as it is, without compression.
#[derive(Clone, Copy, Debug)]
pub(super) struct AsIs;

/// How a body that was begun ends.
#[derive(Clone, Copy, Debug)]
enum Broken {
    Closed,
    Reset,
    Stalled,
}

/// The answer to a request that such a fault hit. `whole` is what would have been answered.
pub(super) async fn broken_answer(
    kind: &FaultKind,
    whole: (StatusCode, String),
    query: &Query,
    now: i64,
    cut: &Cut,
    stopping: &CancellationToken,
) -> Response<Body> {
    match kind {
        FaultKind::Status(status, text) => message(*status, text),
        FaultKind::TooLarge(limit) => message(
            StatusCode::INTERNAL_SERVER_ERROR,
            &format!("More than {limit} items is too much"),
        ),
        FaultKind::Poison(id) => message(
            StatusCode::INTERNAL_SERVER_ERROR,
            &format!("Cannot read item {id}"),
        ),
        FaultKind::TooManyRequests(wait) => too_many_requests(*wait, now),
        FaultKind::Redirect(to) => redirect(to),
        FaultKind::Html(status) => html(*status),
        FaultKind::Empty(status) => with_body(*status, String::new()),
        FaultKind::ExpiredCursor(status) => with_body(*status, refused_cursor(*status, query)),
        FaultKind::TruncatedJson => as_is(with_body(whole.0, half(&whole.1).to_owned())),
        FaultKind::TruncatedTransfer => unfinished(whole, Broken::Closed, cut, stopping),
        FaultKind::ResetBody => unfinished(whole, Broken::Reset, cut, stopping),
        FaultKind::Stall => unfinished(whole, Broken::Stalled, cut, stopping),
        FaultKind::Hang => {
            stopping.cancelled().await;
            cut.reset();
            Response::new(Body::empty())
        }
        FaultKind::Reset => {
            cut.reset();
            Response::new(Body::empty())
        }
        _ => with_body(whole.0, whole.1),
    }
}

/// A time as HTTP writes it, bounded by what HTTP can write.
pub(super) fn http_date(millis: i64) -> HeaderValue {
    let seconds = u64::try_from(millis.div_euclid(1000).clamp(0, LAST_SECOND)).unwrap_or(0);
    let time: SystemTime = UNIX_EPOCH + Duration::from_secs(seconds);
    HeaderValue::try_from(httpdate::fmt_http_date(time)).unwrap_or(HeaderValue::from_static(""))
}

fn too_many_requests(wait: RetryAfter, now: i64) -> Response<Body> {
    let mut response = message(StatusCode::TOO_MANY_REQUESTS, "Too many requests");
    let value = match wait {
        RetryAfter::Absent => return response,
        RetryAfter::Seconds(seconds) => HeaderValue::from(seconds),
        RetryAfter::Date(wait) => {
            http_date(now.saturating_add(super::clock::duration_millis(wait)))
        }
    };
    response.headers_mut().insert(header::RETRY_AFTER, value);
    response
}

fn redirect(to: &str) -> Response<Body> {
    let mut response = message(StatusCode::TEMPORARY_REDIRECT, "Moved");
    if let Ok(to) = HeaderValue::from_str(to) {
        response.headers_mut().insert(header::LOCATION, to);
    }
    response
}

fn html(status: StatusCode) -> Response<Body> {
    let page = format!(
        "<!DOCTYPE html>\n<html><head><title>{status}</title></head><body><h1>{status}</h1>proxy</body></html>\n"
    );
    let mut response = with_body(status, page);
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/html; charset=utf-8"),
    );
    response
}

fn as_is(mut response: Response<Body>) -> Response<Body> {
    response.extensions_mut().insert(AsIs);
    response
}

/// Half of a text, cut between two characters.
fn half(text: &str) -> &str {
    let middle = (0..=text.len() / 2)
        .rev()
        .find(|&at| text.is_char_boundary(at))
        .unwrap_or(0);
    &text[..middle]
}

/// A response that promises the whole body and sends half of it.
fn unfinished(
    whole: (StatusCode, String),
    broken: Broken,
    cut: &Cut,
    stopping: &CancellationToken,
) -> Response<Body> {
    let (status, text) = whole;
    let (cut, stopping) = (cut.clone(), stopping.clone());
    let begun = Bytes::copy_from_slice(half(&text).as_bytes());
    let body = Body::from_stream(stream::unfold(Some(begun), move |begun| {
        let (cut, stopping) = (cut.clone(), stopping.clone());
        async move {
            if let Some(begun) = begun {
                return Some((Ok::<_, io::Error>(begun), None));
            }
            // One turn for the connection to send what it has: otherwise the client would see no answer at all.
            tokio::task::yield_now().await;
            match broken {
                Broken::Closed => {}
                Broken::Reset => cut.reset(),
                Broken::Stalled => stopping.cancelled().await,
            }
            Some((Err(io::ErrorKind::ConnectionAborted.into()), None))
        }
    }));
    let mut response = as_is(Response::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json; charset=utf-8"),
    );
    response
        .headers_mut()
        .insert(header::CONTENT_LENGTH, HeaderValue::from(text.len()));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absurd_times_have_a_date_too() {
        assert_eq!(
            http_date(1_893_456_000_999),
            "Tue, 01 Jan 2030 00:00:00 GMT"
        );
        assert_eq!(http_date(i64::MIN), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(http_date(i64::MAX), "Fri, 31 Dec 9999 23:59:59 GMT");
    }

    #[test]
    fn a_text_is_cut_between_two_characters() {
        assert_eq!(half("äöü"), "ä");
        assert_eq!(half(""), "");
    }
}
