use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tonic_types::ErrorDetails;

use super::*;
use crate::verdict::tests::{rejection, row};
use crate::verdict::{Reason, Rejection};

type Pairs = &'static [(&'static str, &'static str)];

/// An answer: status, headers, body, trailers.
type Parts = (u16, Pairs, &'static [u8], Pairs);

const GRPC: Pairs = &[("content-type", "application/grpc")];
const HTML: Pairs = &[("content-type", "text/html")];

fn pairs(pairs: Pairs) -> http::HeaderMap {
    let pair = |(name, value): &(&'static str, &'static str)| {
        let value = http::HeaderValue::from_bytes(value.as_bytes());
        (http::HeaderName::from_static(name), value.expect("a value"))
    };
    pairs.iter().map(pair).collect()
}

/// Sends an empty request to a server that gives this answer.
async fn verdict((status, headers, body, trailers): Parts) -> Verdict {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a port");
    let address = listener.local_addr().expect("bound");
    let answer = move |_| async move {
        let trailers = (!trailers.is_empty()).then(|| Ok(pairs(trailers)));
        let body = Full::new(bytes::Bytes::from_static(body));
        let body = body.with_trailers(std::future::ready(trailers));
        let mut response = http::Response::new(body);
        *response.status_mut() = http::StatusCode::from_u16(status).expect("a status");
        *response.headers_mut() = pairs(headers);
        Ok::<_, std::convert::Infallible>(response)
    };
    tokio::spawn(async move {
        let (socket, _) = listener.accept().await.expect("a connection");
        hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(socket), hyper::service::service_fn(answer))
            .await
    });
    let connection = crate::settings::tests::plain(&format!("http://{address}"));
    let channel = connection.channel().expect("a channel");
    let request = ExportLogsServiceRequest::default();
    export(channel, &connection, HeaderMap::new(), request).await
}

#[tokio::test]
async fn an_answer_is_judged_by_its_grpc_status_and_else_by_its_http_status() {
    const UNAVAILABLE: Pairs = &[
        ("content-type", "application/grpc"),
        ("grpc-status", "14"),
        ("grpc-message", "down%20for é"),
    ];
    const OK: Pairs = &[("grpc-status", "0")];
    let page = b"<html>no</html>";
    for (parts, expected) in [
        ((200, GRPC, &[0; 5][..], OK), "accepted"),
        // What cannot be read is about the records.
        ((200, GRPC, b"\0\0\0\0\x01\xff", OK), "server_error"),
        ((200, GRPC, b"", &[("grpc-status", "3")]), "bad_record"),
        ((200, UNAVAILABLE, b"", &[]), "unavailable"),
        // A proxy in front of the collector.
        ((200, HTML, page, &[]), "wrong_endpoint"),
        ((200, HTML, b"", &[]), "wrong_endpoint"),
        ((400, HTML, page, &[]), "bad_record"),
        ((401, HTML, b"", &[]), "unauthorized"),
        ((413, HTML, page, &[]), "too_large"),
        ((429, HTML, b"", &[]), "rate_limited"),
        ((503, HTML, page, &[]), "unavailable"),
        ((503, HTML, b"", &[]), "unavailable"),
    ] {
        let found = verdict(parts).await;
        assert_eq!(row(&found), expected, "{parts:?}: {found:?}");
    }
}

#[test]
fn a_status_with_a_source_is_a_failed_connection() {
    let broken: Arc<dyn Error + Send + Sync> = Arc::new(std::io::Error::other("Broken pipe"));
    let refused = Arc::new(ConnectError("Connection refused".into()));
    for (source, message) in [
        (
            broken,
            "connection failed: broken pipe; check that this port speaks gRPC (port 4317 by convention), and whether it wants a client certificate",
        ),
        (refused, "connection failed: connection refused"),
    ] {
        let mut status = Status::internal("h2 protocol error: transport error");
        status.set_source(source);
        let expected = Rejection::new(Reason::Connect, message);
        assert_eq!(rejection(of_answer(Err(status))), expected);
    }
}

#[test]
fn a_status_says_when_to_come_again() {
    let details = ErrorDetails::with_retry_info(Some(Duration::from_secs(3)));
    let status = Status::with_error_details(Code::ResourceExhausted, "later", details);
    let delay = rejection(of_answer(Err(status))).retry_after;
    assert_eq!(delay, Some(Duration::from_secs(3)));
}
