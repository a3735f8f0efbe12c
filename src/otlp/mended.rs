//! Answers as tonic can take them: what is no gRPC is judged as HTTP, and a status in a wrong encoding is mended.
//!
//! tonic panics at `grpc-status-details-bin` that is no base64, and gives up a status whose message is no UTF-8 (0.14.9,
//! `Status::from_header_map`); the page of a proxy it reads as a message.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Buf;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode, utf8_percent_encode};
use tonic::body::Body;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tower::Service;

use super::http::{Answer, MAX_ANSWER_BYTES};

const STATUS: &str = "grpc-status";
const MESSAGE: &str = "grpc-message";
const DETAILS: &str = "grpc-status-details-bin";

/// A channel.
#[derive(Clone, Debug)]
pub(super) struct Mended(pub(super) Channel);

/// The answer of something that does not speak gRPC.
#[derive(Debug, thiserror::Error)]
#[error("HTTP {} without a gRPC status", .0.status)]
pub(super) struct NoGrpc(pub(super) Answer);

type BoxError = Box<dyn std::error::Error + Send + Sync>;

// === impl Mended ===

impl Service<Request<Body>> for Mended {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Service::<Request<Body>>::poll_ready(&mut self.0, context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let answer = self.0.call(request);
        Box::pin(async move {
            let mut answer = answer.await?;
            if !is_grpc(&answer) {
                return Err(NoGrpc(read(answer).await).into());
            }
            mend(answer.headers_mut());
            Ok(answer.map(|body| {
                Body::new(body.map_frame(|mut frame| {
                    if let Some(trailers) = frame.trailers_mut() {
                        mend(trailers);
                    }
                    frame
                }))
            }))
        })
    }
}

/// Whether there is, or may come, a status of gRPC ("PROTOCOL-HTTP2", Responses).
fn is_grpc(answer: &Response<Body>) -> bool {
    let kind = answer.headers().get(CONTENT_TYPE);
    let other_kind = kind.is_some_and(|kind| !kind.as_bytes().starts_with(b"application/grpc"));
    answer.headers().contains_key(STATUS) || answer.status() == StatusCode::OK && !other_kind
}

async fn read(answer: Response<Body>) -> Answer {
    let (parts, mut stream) = answer.into_parts();
    let mut body = Vec::new();
    // What cannot be read of it is not missed: the status says the most.
    while let Some(Ok(frame)) = stream.frame().await {
        let Ok(mut data) = frame.into_data() else {
            break;
        };
        let data = data.copy_to_bytes(data.remaining().min(MAX_ANSWER_BYTES - body.len()));
        if data.is_empty() {
            break;
        }
        body.extend_from_slice(&data);
    }
    Answer {
        status: parts.status.as_u16(),
        headers: parts.headers,
        body,
    }
}

/// Details that cannot be read are left out, and letters of a message that are none are replaced.
fn mend(headers: &mut HeaderMap) {
    if headers.contains_key(DETAILS) {
        let details = MetadataMap::from_headers(headers.clone());
        if details
            .get_bin(DETAILS)
            .is_none_or(|details| details.to_bytes().is_err())
        {
            headers.remove(DETAILS);
        }
    }
    if let Some(message) = headers.get(MESSAGE) {
        let decoded = percent_decode(message.as_bytes());
        if decoded.clone().decode_utf8().is_err() {
            let readable =
                utf8_percent_encode(&decoded.decode_utf8_lossy(), NON_ALPHANUMERIC).to_string();
            let readable = HeaderValue::try_from(readable).unwrap_or(HeaderValue::from_static("?"));
            headers.insert(MESSAGE, readable);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use http_body_util::StreamBody;
    use hyper::body::Frame;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceResponse;
    use prost::Message;

    use crate::otlp::FailureReason;
    use crate::otlp::grpc::GrpcSender;
    use crate::otlp::settings::{Connection, Protocol};
    use crate::otlp::verdict::Verdict;

    type Parts = (
        u16,
        &'static [(&'static str, &'static str)],
        &'static [u8],
        &'static [(&'static str, &'static str)],
    );

    /// What a server says that answers with these: status, headers, body, trailers.
    async fn verdict((status, headers, body, trailers): Parts) -> Verdict {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let address = listener.local_addr().expect("bound");
        let answer = move |_| async move {
            let mut response = http::Response::builder().status(status);
            for (name, value) in headers {
                response = response.header(
                    *name,
                    http::HeaderValue::from_bytes(value.as_bytes()).expect("a value"),
                );
            }
            let mut frames = vec![Ok::<_, std::convert::Infallible>(Frame::data(
                Bytes::from_static(body),
            ))];
            let map = trailers.iter().map(|(name, value)| {
                let name = http::HeaderName::from_static(name);
                (
                    name,
                    http::HeaderValue::from_bytes(value.as_bytes()).expect("a value"),
                )
            });
            if !trailers.is_empty() {
                frames.push(Ok(Frame::trailers(map.collect())));
            }
            response.body(StreamBody::new(futures_util::stream::iter(frames)))
        };
        tokio::spawn(async move {
            let (socket, _) = listener.accept().await.expect("a connection");
            let service = hyper::service::service_fn(answer);
            hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(socket), service)
                .await
        });
        let connection = Connection {
            endpoint: format!("http://{address}").parse().expect("an address"),
            protocol: Protocol::Grpc,
            headers: http::HeaderMap::new(),
            timeout: Duration::from_secs(20),
            gzip: false,
            certificate: None,
            client: None,
        };
        GrpcSender::new(&connection)
            .expect("a sender")
            .export(Bytes::new())
            .await
    }

    /// The verdict's kind, its label and the words.
    async fn row(parts: Parts) -> (&'static str, Option<FailureReason>, String) {
        let verdict = verdict(parts).await;
        let (kind, words) = match &verdict {
            Verdict::Acknowledged { .. } => ("acknowledged", String::new()),
            Verdict::PartlyRejected { message, .. } => ("partly", message.clone()),
            Verdict::TooLarge(refusal) => ("too large", refusal.message.clone()),
            Verdict::Suspect(refusal) => ("suspect", refusal.message.clone()),
            Verdict::Hold(refusal) => (
                "hold",
                format!("{} {:?}", refusal.message, refusal.retry_after),
            ),
        };
        (kind, verdict.reason(), words)
    }

    const GRPC: (&str, &str) = ("content-type", "application/grpc");

    #[tokio::test]
    async fn a_status_in_a_wrong_encoding_is_a_status() {
        // An empty answer of the protocol behind its five bytes of frame.
        assert_eq!(ExportLogsServiceResponse::default().encoded_len(), 0);
        for details in ["!!!!", "-_-_", "CAg=, CAg=", "é"] {
            let details: &'static str = details;
            let trailers: &'static [_] = Box::leak(Box::new([
                ("grpc-status", "0"),
                ("grpc-status-details-bin", details),
            ]));
            assert_eq!(
                row((200, &[GRPC], &[0; 5], trailers)).await.0,
                "acknowledged",
                "{details}"
            );
            let only: &'static [_] = Box::leak(Box::new([
                GRPC,
                ("grpc-status", "14"),
                ("grpc-status-details-bin", details),
            ]));
            assert_eq!(
                row((200, only, b"", &[])).await.1,
                Some(FailureReason::Unavailable),
                "{details}"
            );
        }
        let (kind, reason, words) = row((
            200,
            &[
                GRPC,
                ("grpc-status", "14"),
                ("grpc-message", "down%FF for é"),
            ],
            b"",
            &[],
        ))
        .await;
        assert_eq!((kind, reason), ("hold", Some(FailureReason::Unavailable)));
        assert!(words.contains("Unavailable: down\u{fffd} for é"), "{words}");
    }

    #[tokio::test]
    async fn what_is_before_the_collector_is_judged_as_http() {
        use FailureReason as R;
        const HTML: (&str, &str) = ("content-type", "text/html");
        const PAGE: &[u8] = b"<html>no</html>";
        for (status, kind, reason) in [
            (400, "suspect", R::BadRecord),
            (401, "hold", R::Unauthorized),
            (404, "hold", R::NotFound),
            (413, "too large", R::TooLarge),
            (429, "hold", R::RateLimited),
            (502, "hold", R::Unavailable),
            (503, "hold", R::Unavailable),
        ] {
            for body in [PAGE, b""] {
                let (found, why, words) =
                    row((status, &[HTML, ("retry-after", "7")], body, &[])).await;
                assert_eq!((found, why), (kind, Some(reason)), "{status}: {words}");
                assert!(
                    words.contains(&format!("HTTP {status}"))
                        && (body.is_empty() || words.contains("<html>no")),
                    "{words}"
                );
                assert!(kind != "hold" || words.contains("Some(7s)"), "{words}");
            }
        }
        let (kind, reason, words) = row((200, &[HTML], PAGE, &[])).await;
        assert_eq!((kind, reason), ("hold", Some(R::NotOtlp)));
        assert!(words.contains("text/html"), "{words}");
    }
}
