use std::time::{Duration, SystemTime};

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsPartialSuccess;
use tonic_types::{ErrorDetails, StatusExt};

use super::*;
use crate::verdict::tests::row;

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

fn rejection(answer: &Answer) -> Rejection {
    match answer.verdict() {
        Verdict::Rejected(rejection) => rejection,
        other => panic!("not a rejection: {other:?}"),
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
    let json = |partial: &str| format!(r#"{{"partialSuccess":{partial}}}"#).into_bytes();
    let text = |text: &str| text.as_bytes().to_vec();
    // The JSON of protobuf allows many forms of a number, and what cannot be read was not accepted.
    let numbers = [r#""3""#, "3", "3.0", r#""3e0""#, r#""many""#, r#""NaN""#];
    let numbers = numbers.map(|number| {
        let body = json(&format!(
            r#"{{"rejectedLogRecords":{number},"errorMessage":7}}"#
        ));
        (200, JSON, body, "bad_record")
    });
    let original = r#"{"partial_success":{"rejected_log_records":3,"error_message":"no"}}"#;
    let others = [
        (200, PROTOBUF, vec![], "accepted"),
        (204, "text/html", vec![], "accepted"),
        (200, PROTOBUF, partial.clone(), "bad_record"),
        (200, "application/octet-stream", partial, "bad_record"),
        (200, JSON, text("{}"), "accepted"),
        (200, JSON, json("{}"), "accepted"),
        (200, JSON, json("null"), "accepted"),
        // Unknown fields are ignored, and protobuf's own names of fields are read as well.
        (200, JSON, text(r#"{"took":3}"#), "accepted"),
        (200, JSON, json(r#"{"x":[]}"#), "accepted"),
        (200, JSON, text(original), "bad_record"),
        (200, JSON, text("[]"), "wrong_endpoint"),
        (200, "text/html", text("<html>Hi"), "wrong_endpoint"),
        (200, "text/plain", text("ok"), "wrong_endpoint"),
        (200, PROTOBUF, text("<html>Hi"), "wrong_endpoint"),
    ];
    for (status, kind, body, expected) in others.into_iter().chain(numbers) {
        let answer = answer(status, kind, body);
        let verdict = answer.verdict();
        assert_eq!(row(&verdict), expected, "{answer:?}");
        let is_partial = matches!(verdict, Verdict::PartlyRejected { .. });
        assert_eq!(is_partial, expected == "bad_record", "{verdict:?}");
    }
}

/// The records were accepted, and are sent again in smaller requests.
#[test]
fn an_answer_that_is_too_large_is_for_too_many_records() {
    let answer = answer(200, PROTOBUF, vec![0; MAX_ANSWER]);
    assert_eq!(row(&answer.verdict()), "too_large");
}

#[test]
fn the_words_of_an_error_are_in_a_status_or_plain() {
    let status = tonic_types::Status {
        code: 3,
        message: "line 3: request body too large\n".to_owned(),
        details: Vec::new(),
    };
    for (kind, body) in [
        (PROTOBUF, status.encode_to_vec()),
        ("text/plain", b"line 3: request body too large\n".to_vec()),
    ] {
        let rejection = rejection(&answer(400, kind, body));
        assert_eq!(rejection.reason, Reason::TooLarge);
        assert_eq!(rejection.message, "HTTP 400: too large");
    }
}

/// A server that sends a status and never the end of its body.
#[tokio::test]
async fn a_rejection_whose_body_never_ends_is_a_rejection() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.expect("a connection");
        let _ = tokio::io::AsyncReadExt::read(&mut socket, &mut [0; 4096]).await;
        let head = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 99\r\n\r\ntoo old";
        tokio::io::AsyncWriteExt::write_all(&mut socket, head)
            .await
            .expect("sent");
        std::future::pending::<()>().await;
    });
    let connection = crate::settings::tests::plain(&format!("http://{address}"));
    let client = connection.http_client().expect("settings").build();
    let verdict = export(client.expect("a client"), &connection, Bytes::new()).await;
    let rejection = Rejection::new(Reason::BadRecord, "HTTP 400: too old");
    assert_eq!(verdict, Verdict::Rejected(rejection));
}

#[test]
fn the_delay_is_in_the_header_or_in_the_status() {
    let delay = |answer: &Answer| rejection(answer).retry_after;
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
