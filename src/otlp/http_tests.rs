use std::time::{Duration, SystemTime};

use http::header::{DATE, RETRY_AFTER};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsPartialSuccess;
use tonic_types::{ErrorDetails, StatusExt};

use super::*;
use crate::otlp::verdict::tests::row;

const JSON: &str = "application/json; charset=utf-8";

fn answer(status: u16, kind: &str, body: impl Into<Vec<u8>>) -> Answer {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, kind.parse().expect("a value"));
    Answer {
        status: StatusCode::from_u16(status).expect("a status"),
        headers,
        body: body.into(),
    }
}

fn refusal(answer: &Answer) -> Refusal {
    match answer.verdict(&["t0p-s3cret"]) {
        Verdict::Refused(refusal) => refusal,
        other => panic!("not a refusal: {other:?}"),
    }
}

#[test]
fn a_success_counts_only_if_it_is_empty_or_the_protocols_answer() {
    let partial = ExportLogsServiceResponse {
        partial_success: Some(ExportLogsPartialSuccess {
            rejected_log_records: 3,
            error_message: "too old".to_owned(),
        }),
    };
    let partial = partial.encode_to_vec();
    let json = |text: &str| text.as_bytes().to_vec();
    for (status, kind, body, expected) in [
        (200, PROTOBUF, vec![], "acknowledged"),
        (204, "text/html", vec![], "acknowledged"),
        (200, PROTOBUF, partial.clone(), "partly_rejected"),
        (200, "application/octet-stream", partial, "partly_rejected"),
        (200, JSON, json("{}"), "acknowledged"),
        (200, JSON, json(r#"{"partialSuccess":{}}"#), "acknowledged"),
        (
            200,
            JSON,
            json(r#"{"partialSuccess":{"rejectedLogRecords":"3"}}"#),
            "partly_rejected",
        ),
        (
            200,
            JSON,
            json(r#"{"partialSuccess":{"rejectedLogRecords":3}}"#),
            "partly_rejected",
        ),
        // The JSON of protobuf allows these, and what cannot be read was not accepted.
        (
            200,
            JSON,
            json(r#"{"partialSuccess":{"rejectedLogRecords":3.0}}"#),
            "partly_rejected",
        ),
        (
            200,
            JSON,
            json(r#"{"partialSuccess":{"rejectedLogRecords":"3e0","errorMessage":7}}"#),
            "partly_rejected",
        ),
        (
            200,
            JSON,
            json(r#"{"partialSuccess":{"rejectedLogRecords":"many"}}"#),
            "partly_rejected",
        ),
        (
            200,
            JSON,
            json(r#"{"partialSuccess":{"rejectedLogRecords":"NaN"}}"#),
            "partly_rejected",
        ),
        (
            200,
            JSON,
            json(r#"{"partialSuccess":null}"#),
            "acknowledged",
        ),
        (200, JSON, json(r#"{"error":"no tenant"}"#), "not_otlp"),
        (200, JSON, json("[]"), "not_otlp"),
        (200, "text/html", json("<html>Sign in</html>"), "not_otlp"),
        (200, "text/plain", json("ok"), "not_otlp"),
        (200, PROTOBUF, json("<html>Sign in</html>"), "not_otlp"),
    ] {
        let answer = answer(status, kind, body);
        assert_eq!(row(&answer.verdict(&[])), expected, "{answer:?}");
    }
}

/// The records were accepted, and are sent again in smaller requests.
#[test]
fn an_answer_that_is_too_large_is_for_too_many_records() {
    let answer = answer(200, PROTOBUF, vec![0; MAX_ANSWER]);
    assert_eq!(row(&answer.verdict(&[])), "too_large");
}

#[test]
fn the_words_are_bounded_and_without_secrets() {
    let status = tonic_types::Status {
        code: 3,
        message: "bad record\n3".to_owned(),
        details: Vec::new(),
    };
    for (kind, body, expected) in [
        (PROTOBUF, status.encode_to_vec(), "HTTP 400: bad record 3"),
        (
            "text/plain",
            b"bad record 3\r\n".to_vec(),
            "HTTP 400: bad record 3",
        ),
        (
            "text/plain",
            b"bad token t0p-s3cret!".to_vec(),
            "HTTP 400: bad token [secret]!",
        ),
        ("text/plain", Vec::new(), "HTTP 400"),
    ] {
        assert_eq!(refusal(&answer(400, kind, body)).message, expected);
    }
    let long = refusal(&answer(200, "text/plain", "x".repeat(1_000_000)));
    assert!(long.message.len() < 400, "{}", long.message.len());
}

#[test]
fn a_redirect_shows_scheme_host_and_path() {
    let mut redirect = answer(307, "text/plain", "");
    let address = HeaderValue::from_static("https://me:pw@c.example/v1?api_key=abc#x");
    redirect.headers.insert(LOCATION, address);
    let message = refusal(&redirect).message;
    assert!(
        message.starts_with("HTTP 307: redirected to https://c.example/v1; "),
        "{message}"
    );
}

#[test]
fn the_delay_is_in_the_header_or_in_the_status() {
    let delay = |answer: &Answer| refusal(answer).retry_after;
    let mut busy = answer(503, "text/plain", "busy");
    assert_eq!(delay(&busy), None);
    busy.headers
        .insert(RETRY_AFTER, HeaderValue::from_static("120"));
    assert_eq!(delay(&busy), Some(Duration::from_secs(120)));
    let soon = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(90));
    busy.headers
        .insert(RETRY_AFTER, soon.parse().expect("a value"));
    assert!(delay(&busy).is_some_and(|wait| (80..=90).contains(&wait.as_secs())));
    // By the collector's clock, if it says its time.
    let ahead = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(600));
    busy.headers.insert(DATE, ahead.parse().expect("a value"));
    assert_eq!(delay(&busy), Some(Duration::ZERO));
    let details = ErrorDetails::with_retry_info(Some(Duration::from_secs(7)));
    let status = tonic::Status::with_error_details(tonic::Code::Unavailable, "busy", details);
    let status = answer(503, PROTOBUF, status.details().to_vec());
    assert_eq!(delay(&status), Some(Duration::from_secs(7)));
}
