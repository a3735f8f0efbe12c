//! Requests over gRPC.

use std::error::Error;

use bytes::{BufMut, Bytes};
use connections::error_chain;
use http::uri::PathAndQuery;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceResponse;
use prost::Message;
use tonic::codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::MetadataMap;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, ConnectError, Request, Response, Status};
use tonic_types::StatusExt;

use crate::sender::{CONNECT_TIMEOUT, KEEPALIVE, MAX_ANSWER};
use crate::settings::{Connection, Signal};
use crate::verdict::{self, Verdict};

/// The methods of the protocol. Their answers have the same form.
const LOGS: &str = "/opentelemetry.proto.collector.logs.v1.LogsService/Export";
const TRACES: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// Sends requests that are already encoded, and decodes responses.
struct Encoded;

impl Connection {
    /// Returns a channel that connects when the first request is sent. Call it inside a tokio runtime.
    ///
    /// # Errors
    /// If a certificate or key cannot be read or used.
    pub fn channel(&self) -> Result<Channel, String> {
        let wrong = |error: &dyn Error| format!("OTLP endpoint: {}", error_chain(error));
        let mut endpoint = Endpoint::from_shared(self.endpoint.as_str().to_owned())
            .and_then(|endpoint| endpoint.user_agent(self.user_agent))
            .map_err(|error| wrong(&error))?
            .connect_timeout(self.timeout.min(CONNECT_TIMEOUT))
            .tcp_keepalive(Some(KEEPALIVE));
        if self.endpoint.scheme() == "https" {
            let host = self.endpoint.host_str().unwrap_or_default();
            let host = host.trim_start_matches('[').trim_end_matches(']');
            let mut tls = ClientTlsConfig::new().domain_name(host);
            tls = match &self.certificate {
                Some(file) => {
                    tls.ca_certificate(Certificate::from_pem(file.read_pem(self.read_file)?))
                }
                None => tls.with_native_roots(),
            };
            if let Some((certificate, key)) = &self.client {
                let [certificate, key] =
                    [certificate, key].map(|file| file.read_pem(self.read_file));
                tls = tls.identity(Identity::from_pem(certificate?, key?));
            }
            endpoint = endpoint.tls_config(tls).map_err(|error| wrong(&error))?;
        }
        Ok(endpoint.connect_lazy())
    }
}

/// Sends one encoded request.
pub(crate) async fn export(channel: Channel, connection: &Connection, body: Bytes) -> Verdict {
    let mut request = Request::from_parts(
        MetadataMap::from_headers(connection.headers.clone()),
        http::Extensions::new(),
        body,
    );
    request.set_timeout(connection.timeout);
    let mut client = tonic::client::Grpc::new(channel)
        .max_decoding_message_size(MAX_ANSWER)
        .accept_compressed(CompressionEncoding::Gzip);
    if connection.gzip {
        client = client.send_compressed(CompressionEncoding::Gzip);
    }
    let exchange = async {
        client
            .ready()
            .await
            .map_err(|e| Status::from_error(e.into()))?;
        let method = PathAndQuery::from_static(match connection.signal {
            Signal::TRACES => TRACES,
            _ => LOGS,
        });
        client.unary(request, method, Encoded).await
    };
    let answer = exchange.await;
    let code = answer.as_ref().map_or_else(Status::code, |_| Code::Ok);
    tracing::Span::current().record("rpc.grpc.status_code", i32::from(code));
    of_answer(answer.map(Response::into_inner))
}

/// Returns the verdict for a collector's answer.
pub fn of_answer(answer: Result<ExportLogsServiceResponse, Status>) -> Verdict {
    let status = match answer {
        Ok(answer) => {
            let partial = answer.partial_success.unwrap_or_default();
            return Verdict::of_success(partial.rejected_log_records, &partial.error_message);
        }
        Err(status) => status,
    };
    let said = status.message();
    let is_timeout = status.code() == Code::DeadlineExceeded || said.contains("Timeout expired");
    // A status with a source was made here: the connection failed, or was too slow.
    match status.source() {
        Some(source) if !is_timeout => {
            let mut sources =
                std::iter::successors(Some(source as &dyn Error), |&source| source.source());
            let is_connected = !sources.any(|source| source.is::<ConnectError>());
            verdict::disconnected(source, is_connected, "gRPC (4317 by custom)")
        }
        _ => {
            let retry_after = status.get_details_retry_info().and_then(|i| i.retry_delay);
            verdict::of_grpc(status.code(), said, retry_after)
        }
    }
}

// === impl Encoded ===

impl Codec for Encoded {
    type Encode = Bytes;
    type Decode = ExportLogsServiceResponse;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Encoded {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.reserve(item.len());
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Encoded {
    type Item = ExportLogsServiceResponse;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Self::Item>, Status> {
        let answer = ExportLogsServiceResponse::decode(buffer);
        let not_otlp =
            |error| Status::unknown(format!("not an OTLP answer (grpc-status 0): {error}"));
        answer.map(Some).map_err(not_otlp)
    }
}

#[cfg(test)]
#[path = "grpc_tests.rs"]
mod tests;
