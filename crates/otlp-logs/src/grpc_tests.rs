use std::sync::Arc;
use std::time::Duration;

use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tonic_types::ErrorDetails;

use super::*;
use crate::verdict::Reason;
use crate::verdict::tests::row;

/// An answer: status, headers, body, trailers.
type Parts = (
    u16,
    &'static [(&'static str, &'static str)],
    &'static [u8],
    &'static [(&'static str, &'static str)],
);

const GRPC: (&str, &str) = ("content-type", "application/grpc");
const HTML: (&str, &str) = ("content-type", "text/html");

fn pairs(pairs: &[(&'static str, &'static str)]) -> http::HeaderMap {
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
        let mut frames = vec![Ok::<_, std::convert::Infallible>(Frame::data(
            Bytes::from_static(body),
        ))];
        if !trailers.is_empty() {
            frames.push(Ok(Frame::trailers(pairs(trailers))));
        }
        let body = StreamBody::new(futures_util::stream::iter(frames));
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
    export(channel, &connection, Bytes::new()).await
}

#[tokio::test]
async fn a_proxy_in_front_of_the_collector_is_judged_by_its_http_status() {
    for (status, expected) in [
        (400, "bad_record"),
        (401, "unauthorized"),
        (404, "wrong_endpoint"),
        (413, "too_large"),
        (429, "rate_limited"),
        (502, "unavailable"),
        (503, "unavailable"),
        (200, "wrong_endpoint"),
    ] {
        for body in [&b"<html>no</html>"[..], b""] {
            let found = verdict((status, &[HTML], body, &[])).await;
            assert_eq!(row(&found), expected, "{status}: {found:?}");
        }
    }
}

#[tokio::test]
async fn a_status_in_headers_or_trailers_is_a_status() {
    let unavailable = &[
        GRPC,
        ("grpc-status", "14"),
        ("grpc-message", "down%20for é"),
    ];
    for (parts, expected) in [
        (
            (200, &[GRPC][..], &[0; 5][..], &[("grpc-status", "0")][..]),
            "accepted",
        ),
        ((200, unavailable, b"", &[]), "unavailable"),
        ((200, &[GRPC], b"", &[("grpc-status", "3")]), "bad_record"),
        (
            (200, &[GRPC], b"\0\0\0\0\x01\xff", &[("grpc-status", "0")]),
            "wrong_endpoint",
        ),
    ] {
        let found = verdict(parts).await;
        assert_eq!(row(&found), expected, "{found:?}");
    }
}

#[test]
fn a_status_with_a_source_was_made_here() {
    for (source, hint) in [
        (
            Arc::new(std::io::Error::other("broken pipe")) as Arc<dyn Error + Send + Sync>,
            true,
        ),
        (Arc::new(ConnectError("Connection refused".into())), false),
    ] {
        let mut status = Status::internal("h2 protocol error: transport error");
        status.set_source(source.clone());
        let Verdict::Rejected(rejection) = of_answer(Err(status)) else {
            panic!("rejected")
        };
        assert_eq!(rejection.reason, Reason::Connect);
        let cause = source.to_string().to_lowercase();
        assert!(rejection.message.contains(&cause), "{rejection:?}");
        assert_eq!(
            rejection.message.contains("does this port speak gRPC"),
            hint
        );
    }
}

#[test]
fn a_status_says_when_to_come_again() {
    let details = ErrorDetails::with_retry_info(Some(Duration::from_secs(3)));
    let status = Status::with_error_details(Code::ResourceExhausted, "later", details);
    let Verdict::Rejected(rejection) = of_answer(Err(status)) else {
        panic!("rejected")
    };
    assert_eq!(rejection.reason, Reason::RateLimited);
    assert_eq!(rejection.retry_after, Some(Duration::from_secs(3)));
}
