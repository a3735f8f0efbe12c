//! Requests over gRPC, and what its statuses mean.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::{BufMut, Bytes};
use http::uri::PathAndQuery;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceResponse;
use prost::Message;
use tonic::codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::MetadataMap;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, ConnectError, Request, Status};
use tonic_types::StatusExt;

use super::FailureReason;
use super::http::{self as plain, MAX_ANSWER_BYTES};
use super::mended::{Mended, NoGrpc};
use super::settings::{Connection, SettingsError};
use super::verdict::{Refusal, Verdict, chain, one_line, speaks_of_size};

/// The method of the protocol.
const METHOD: &str = "/opentelemetry.proto.collector.logs.v1.LogsService/Export";

/// The longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A client of one collector.
#[derive(Debug)]
pub struct GrpcSender {
    connection: Connection,
    client: ArcSwap<Channel>,
}

/// Requests that are encoded already.
struct EncodedCodec;

/// Both halves of [`EncodedCodec`].
struct Coder;

// === impl GrpcSender ===

impl GrpcSender {
    /// A client that connects when the first request is sent.
    ///
    /// # Errors
    /// Where certificates cannot be read, or make no TLS configuration.
    pub fn new(connection: &Connection) -> Result<Self, SettingsError> {
        let channel = channel(connection)?;
        Ok(Self {
            connection: connection.clone(),
            client: ArcSwap::from_pointee(channel),
        })
    }

    /// Sends one encoded request.
    pub async fn export(&self, body: Bytes) -> Verdict {
        let mut request = Request::from_parts(
            MetadataMap::from_headers(self.connection.headers.clone()),
            http::Extensions::new(),
            body,
        );
        request.set_timeout(self.connection.timeout);
        let mut client = tonic::client::Grpc::new(Mended(Channel::clone(&self.client.load())))
            .max_decoding_message_size(MAX_ANSWER_BYTES);
        if self.connection.gzip {
            client = client.send_compressed(CompressionEncoding::Gzip);
        }
        let client = client.accept_compressed(CompressionEncoding::Gzip);
        let verdict = match tokio::time::timeout(self.connection.timeout, exchange(client, request))
            .await
        {
            Err(_) => Verdict::Hold(self.timed_out()),
            Ok(Err(status)) => {
                tracing::Span::current().record("rpc.grpc.status_code", i32::from(status.code()));
                verdict(&status)
            }
            Ok(Ok(answer)) => {
                tracing::Span::current().record("rpc.grpc.status_code", i32::from(Code::Ok));
                let partial = answer
                    .partial_success
                    .map(|partial| (partial.rejected_log_records, partial.error_message));
                return Verdict::from_partial_success(partial);
            }
        };
        if matches!(
            verdict.reason(),
            Some(FailureReason::Connect | FailureReason::Timeout)
        ) {
            self.reconnect();
        }
        verdict
    }

    fn timed_out(&self) -> Refusal {
        Refusal::new(
            FailureReason::Timeout,
            format!("no answer within {:?}", self.connection.timeout),
        )
    }

    /// The next request opens a new connection, with the certificates that are in the files by then: a connection through a network
    /// that silently drops everything would otherwise be tried until the kernel gives it up, a quarter of an hour later.
    fn reconnect(&self) {
        match channel(&self.connection) {
            Ok(channel) => self.client.store(Arc::new(channel)),
            Err(error) => {
                tracing::warn!(%error, "certificates cannot be read again, keeping those read before")
            }
        }
    }
}

async fn exchange(
    mut client: tonic::client::Grpc<Mended>,
    request: Request<Bytes>,
) -> Result<ExportLogsServiceResponse, Status> {
    client.ready().await.map_err(Status::from_error)?;
    let answer = client
        .unary(request, PathAndQuery::from_static(METHOD), EncodedCodec)
        .await?;
    Ok(answer.into_inner())
}

fn channel(connection: &Connection) -> Result<Channel, SettingsError> {
    let wrong = |error: &dyn Error| {
        SettingsError::new(
            "OTLP endpoint",
            format!("'{}': {}", connection.endpoint, chain(error)),
        )
    };
    let endpoint = Endpoint::from_shared(connection.endpoint.as_str().to_owned())
        .map_err(|error| wrong(&error))?
        .user_agent(super::USER_AGENT)
        .map_err(|error| wrong(&error))?
        .connect_timeout(connection.timeout.min(CONNECT_TIMEOUT))
        .tcp_keepalive(Some(Duration::from_secs(60)));
    if connection.endpoint.scheme() != "https" {
        return Ok(endpoint.connect_lazy());
    }
    let mut tls = ClientTlsConfig::new();
    if let Some(host) = connection.endpoint.host_str() {
        tls = tls.domain_name(host.trim_start_matches('[').trim_end_matches(']'));
    }
    if let Some((certificate, key)) = &connection.client {
        tls = tls.identity(Identity::from_pem(certificate.read()?, key.read()?));
    }
    let Some(file) = &connection.certificate else {
        let endpoint = endpoint
            .tls_config(tls.with_native_roots())
            .map_err(|error| wrong(&error))?;
        return Ok(endpoint.connect_lazy());
    };
    let tls = tls.ca_certificate(Certificate::from_pem(file.read()?));
    // An image may have no certificates of its own; then those that were named are enough.
    let with_roots = endpoint.clone().tls_config(tls.clone().with_native_roots());
    let endpoint = with_roots
        .or_else(|_| endpoint.tls_config(tls))
        .map_err(|error| SettingsError::new(&file.variable, chain(&error)))?;
    Ok(endpoint.connect_lazy())
}

/// The table of verdicts, for gRPC.
fn verdict(status: &Status) -> Verdict {
    let words = one_line(status.message());
    let retry_after = status
        .get_details_retry_info()
        .and_then(|info| info.retry_delay);
    let said = if words.is_empty() {
        format!("{:?}", status.code())
    } else {
        format!("{:?}: {words}", status.code())
    };
    // Said by the channel or by the collector: both know the time-out, and either may be quicker.
    if status.code() == Code::DeadlineExceeded
        || status.code() == Code::Cancelled && words.contains("Timeout expired")
    {
        return Verdict::Hold(
            Refusal::new(FailureReason::Timeout, format!("no answer in time: {said}"))
                .after(retry_after),
        );
    }
    // A status with a cause was made here, not by the collector: the connection failed.
    if let Some(cause) = status.source() {
        let mut all = std::iter::successors(Some(cause as &dyn Error), |&cause| cause.source());
        if let Some(NoGrpc(answer)) = all.clone().find_map(|cause| cause.downcast_ref()) {
            return plain::verdict_behind_grpc(answer);
        }
        let causes = chain(cause);
        // What a server of another protocol, or one that wants a certificate, does to the connection that it took.
        let refused = all.any(|cause| cause.is::<ConnectError>());
        let hint = if !refused {
            "; does this port speak gRPC (4317 by custom), and does it want a client certificate?"
        } else {
            ""
        };
        return Verdict::Hold(Refusal::new(
            FailureReason::Connect,
            format!("connection failed: {causes}{hint}"),
        ));
    }
    let hold = |reason| Verdict::Hold(Refusal::new(reason, said.clone()).after(retry_after));
    let configuration =
        |reason| Verdict::Hold(Refusal::configuration(reason, said.clone()).after(retry_after));
    match status.code() {
        Code::ResourceExhausted if retry_after.is_some() => hold(FailureReason::RateLimited),
        Code::ResourceExhausted => Verdict::TooLarge(Refusal::new(FailureReason::TooLarge, said)),
        Code::OutOfRange if speaks_of_size(&words) => {
            Verdict::TooLarge(Refusal::new(FailureReason::TooLarge, said))
        }
        Code::InvalidArgument => Verdict::Suspect(Refusal::new(FailureReason::BadRecord, said)),
        Code::Internal if words.contains("h2 protocol error") => hold(FailureReason::Connect),
        Code::Internal => Verdict::Suspect(Refusal::new(FailureReason::ServerError, said)),
        Code::Cancelled => hold(FailureReason::Timeout),
        Code::Unauthenticated | Code::PermissionDenied => {
            configuration(FailureReason::Unauthorized)
        }
        Code::Unimplemented | Code::NotFound => configuration(FailureReason::NotFound),
        Code::Unavailable | Code::Aborted | Code::DataLoss => hold(FailureReason::Unavailable),
        Code::Unknown if words.contains("grpc-status") => configuration(FailureReason::NotOtlp),
        _ => hold(FailureReason::Other),
    }
}

// === impl EncodedCodec ===

impl Codec for EncodedCodec {
    type Encode = Bytes;
    type Decode = ExportLogsServiceResponse;
    type Encoder = Coder;
    type Decoder = Coder;

    fn encoder(&mut self) -> Coder {
        Coder
    }

    fn decoder(&mut self) -> Coder {
        Coder
    }
}

// === impl Coder ===

impl Encoder for Coder {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.reserve(item.len());
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Coder {
    type Item = ExportLogsServiceResponse;
    type Error = Status;

    fn decode(
        &mut self,
        buffer: &mut DecodeBuf<'_>,
    ) -> Result<Option<ExportLogsServiceResponse>, Status> {
        // An answer that is not the protocol's is no acknowledgement.
        let decoded = ExportLogsServiceResponse::decode(buffer);
        decoded.map(Some).map_err(|error| {
            Status::unknown(format!("the answer is no OTLP (grpc-status 0): {error}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use tonic_types::ErrorDetails;

    use super::*;

    /// The verdict's kind and label, for a table.
    fn row(status: &Status) -> (&'static str, FailureReason, bool) {
        match verdict(status) {
            Verdict::TooLarge(refusal) => ("too large", refusal.reason, refusal.configuration),
            Verdict::Suspect(refusal) => ("suspect", refusal.reason, refusal.configuration),
            Verdict::Hold(refusal) => ("hold", refusal.reason, refusal.configuration),
            other => panic!("a status is no success: {other:?}"),
        }
    }

    #[test]
    fn every_status_has_its_row() {
        use FailureReason as R;
        for (code, expected) in [
            (Code::InvalidArgument, ("suspect", R::BadRecord, false)),
            (Code::Internal, ("suspect", R::ServerError, false)),
            (Code::ResourceExhausted, ("too large", R::TooLarge, false)),
            (Code::Cancelled, ("hold", R::Timeout, false)),
            (Code::DeadlineExceeded, ("hold", R::Timeout, false)),
            (Code::Unavailable, ("hold", R::Unavailable, false)),
            (Code::Aborted, ("hold", R::Unavailable, false)),
            (Code::DataLoss, ("hold", R::Unavailable, false)),
            (Code::Unauthenticated, ("hold", R::Unauthorized, true)),
            (Code::PermissionDenied, ("hold", R::Unauthorized, true)),
            (Code::Unimplemented, ("hold", R::NotFound, true)),
            (Code::NotFound, ("hold", R::NotFound, true)),
            (Code::Unknown, ("hold", R::Other, false)),
            (Code::OutOfRange, ("hold", R::Other, false)),
            (Code::FailedPrecondition, ("hold", R::Other, false)),
            (Code::AlreadyExists, ("hold", R::Other, false)),
        ] {
            assert_eq!(row(&Status::new(code, "no luck")), expected, "{code:?}");
        }
    }

    #[test]
    fn real_words_decide_where_the_code_does_not() {
        use FailureReason as R;
        let large = "Error, decoded message length too large: found 5000000 bytes, the limit is: 4194304 bytes";
        for (code, words, expected) in [
            (Code::OutOfRange, large, ("too large", R::TooLarge, false)),
            (
                Code::ResourceExhausted,
                "grpc: received message larger than max (5 vs. 4)",
                ("too large", R::TooLarge, false),
            ),
            (
                Code::Unknown,
                "protocol error: missing grpc-status trailer, stream was terminated",
                ("hold", R::NotOtlp, true),
            ),
            (
                Code::Internal,
                "h2 protocol error: http2 error",
                ("hold", R::Connect, false),
            ),
        ] {
            assert_eq!(row(&Status::new(code, words)), expected, "{words}");
        }
    }

    #[test]
    fn retry_info_makes_exhaustion_a_matter_of_time() {
        let details = ErrorDetails::with_retry_info(Some(Duration::from_secs(7)));
        for code in [Code::ResourceExhausted, Code::Unavailable] {
            let status = Status::with_error_details(code, "busy", details.clone());
            let Verdict::Hold(refusal) = verdict(&status) else {
                panic!("{code:?} is held")
            };
            assert_eq!(refusal.retry_after, Some(Duration::from_secs(7)));
        }
    }

    #[test]
    fn a_status_with_a_cause_was_made_here() {
        let mut status =
            Status::internal("h2 protocol error: error reading a body from connection");
        status.set_source(Arc::new(std::io::Error::other("connection reset by peer")));
        let Verdict::Hold(refusal) = verdict(&status) else {
            panic!("held")
        };
        assert_eq!(refusal.reason, FailureReason::Connect);
        assert!(
            refusal.message.contains("connection reset by peer"),
            "{}",
            refusal.message
        );
    }

    #[test]
    fn a_connection_that_was_taken_and_dropped_asks_for_the_protocol() {
        let message = |cause: Arc<dyn Error + Send + Sync>| {
            let mut status = Status::unknown("transport error");
            status.set_source(cause);
            let Verdict::Hold(refusal) = verdict(&status) else {
                panic!("held")
            };
            refusal.message
        };
        for words in [
            "broken pipe",
            "connection reset by peer",
            "frame with invalid size",
        ] {
            let said = message(Arc::new(std::io::Error::other(words)));
            assert!(
                said.contains(words) && said.contains("does this port speak gRPC"),
                "{said}"
            );
        }
        let said = message(Arc::new(ConnectError("Connection refused".into())));
        assert_eq!(said, "connection failed: Connection refused");
    }

    #[test]
    fn the_server_s_words_are_in_the_message() {
        let Verdict::Suspect(refusal) = verdict(&Status::invalid_argument("bad\nrecord 3")) else {
            panic!("suspect")
        };
        assert_eq!(refusal.message, "InvalidArgument: bad record 3");
    }
}
