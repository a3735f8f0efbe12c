use std::time::Duration;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsPartialSuccess;
use tonic_types::{ErrorDetails, StatusExt};

use super::*;
use crate::verdict::tests::{rejection, row};

const JSON: &str = "application/json; charset=utf-8";

fn answer(status: u16, kind: &'static str, body: impl Into<Vec<u8>>) -> HttpAnswer {
    HttpAnswer {
        status: StatusCode::from_u16(status).expect("a status"),
        headers: HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]),
        body: body.into(),
    }
}

/// Successes in JSON, and the verdict. Protobuf's own names of fields are read as well.
const JSON_BODIES: &str = r#"
{} => accepted
{"partialSuccess":null} => accepted
{"partial_success":{"rejected_log_records":3,"error_message":"no"}} => bad_record
{"took":3} => wrong_endpoint
{"code":401,"message":"no"} => wrong_endpoint
{"code":16} => wrong_endpoint
{"error":"no"} => wrong_endpoint
{"success":false} => wrong_endpoint
[] => wrong_endpoint
"#;

#[test]
fn a_success_counts_only_if_it_is_empty_or_the_protocols_answer() {
    let partial = ExportLogsServiceResponse {
        partial_success: Some(ExportLogsPartialSuccess {
            rejected_log_records: 3,
            error_message: "too old".to_owned(),
        }),
    };
    let partial = partial.encode_to_vec();
    let others = [
        (200, PROTOBUF, vec![], "accepted"),
        (204, "", vec![], "accepted"),
        (200, "text/plain", vec![], "wrong_endpoint"),
        (200, JSON, vec![], "wrong_endpoint"),
        (204, "text/html", vec![], "wrong_endpoint"),
        (200, PROTOBUF, partial.clone(), "bad_record"),
        (200, "application/octet-stream", partial, "bad_record"),
        (200, "text/html", b"<html>Hi".to_vec(), "wrong_endpoint"),
        (200, PROTOBUF, b"<html>Hi".to_vec(), "wrong_endpoint"),
        // The records were accepted, and are sent again in smaller requests.
        (200, PROTOBUF, vec![0; MAX_ANSWER], "too_large"),
    ];
    let json = JSON_BODIES.trim().lines().map(|line| {
        let (body, expected) = line.split_once(" => ").expect(line);
        (200, JSON, body.into(), expected)
    });
    // The JSON of protobuf allows many forms of a number, and what cannot be read was not accepted.
    let numbers = [r#""3""#, "3", "3.0", r#""3e0""#, r#""many""#, r#""NaN""#];
    let numbers = numbers.map(|number| {
        let body = format!(r#"{{"partialSuccess":{{"rejectedLogRecords":{number}}}}}"#);
        (200, JSON, body.into_bytes(), "bad_record")
    });
    for (status, kind, body, expected) in others.into_iter().chain(json).chain(numbers) {
        let shown = String::from_utf8_lossy(&body[..body.len().min(99)]).into_owned();
        let verdict = answer(status, kind, body).verdict();
        assert_eq!(row(&verdict), expected, "{kind}: {shown}");
        let is_partial = matches!(verdict, Verdict::PartlyRejected { .. });
        assert_eq!(is_partial, expected == "bad_record", "{verdict:?}");
    }
}

#[test]
fn the_words_of_an_error_are_in_a_status_or_plain() {
    let words = "line 3: request body too large\n";
    let status = tonic_types::Status {
        code: 3,
        message: words.to_owned(),
        details: Vec::new(),
    };
    for (kind, body) in [
        (PROTOBUF, status.encode_to_vec()),
        ("text/plain", words.into()),
    ] {
        let expected = Rejection::new(Reason::TooLarge, "HTTP 400: too large");
        assert_eq!(rejection(answer(400, kind, body).verdict()), expected);
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
    let verdict = export(
        client.expect("a client"),
        &connection,
        HeaderMap::new(),
        Bytes::new(),
    )
    .await;
    let expected = Rejection::new(Reason::BadRecord, "HTTP 400: too old");
    assert_eq!(rejection(verdict), expected);
}

#[test]
fn the_delay_is_in_the_header_or_in_the_status() {
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    for (text, expected) in [
        ("120", seconds(120)),
        ("-5", None),
        ("soon", None),
        // By the collector's clock.
        ("Wed, 21 Oct 2015 07:29:30 GMT", seconds(90)),
        ("Wed, 21 Oct 2015 07:27:00 GMT", seconds(0)),
    ] {
        let mut busy = answer(503, "text/plain", "busy");
        let date = HeaderValue::from_static("Wed, 21 Oct 2015 07:28:00 GMT");
        busy.headers.insert(DATE, date);
        let delay = HeaderValue::from_static(text);
        busy.headers.insert(RETRY_AFTER, delay);
        let found = rejection(busy.verdict()).retry_after;
        assert_eq!(found, expected, "{text}");
    }
    let details = ErrorDetails::with_retry_info(seconds(7));
    let status = tonic::Status::with_error_details(tonic::Code::Unavailable, "busy", details);
    let answer = answer(503, PROTOBUF, status.details());
    assert_eq!(rejection(answer.verdict()).retry_after, seconds(7));
}
