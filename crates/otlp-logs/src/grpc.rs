//! Requests over gRPC.

use std::error::Error;

use connections::error_chain;
use http::HeaderMap;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_client::LogsServiceClient;
use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsServiceRequest, ExportLogsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use tonic::codec::CompressionEncoding;
use tonic::metadata::MetadataMap;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, ConnectError, Request, Response, Status};
use tonic_types::StatusExt;

use crate::settings::{CONNECT_TIMEOUT, Connection, KEEPALIVE, MAX_ANSWER, Signal};
use crate::verdict::{self, Verdict};

/// The maximum size of the header of an answer, in bytes: an error is in it, and some have a text for each record.
const MAX_HEADER: u32 = 256 * 1024;

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
            .tcp_keepalive(Some(KEEPALIVE))
            .http2_max_header_list_size(MAX_HEADER);
        if self.endpoint.scheme() == "https" {
            let host = self.endpoint.host_str().unwrap_or_default();
            let host = host.trim_start_matches('[').trim_end_matches(']');
            // Some servers speak HTTP/2 without saying so in the handshake.
            let mut tls = ClientTlsConfig::new().domain_name(host).assume_http2(true);
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

/// Sends one request. If spans are exported, it has no records, and only asks whether there is a collector.
pub(crate) async fn export(
    channel: Channel,
    connection: &Connection,
    headers: HeaderMap,
    request: ExportLogsServiceRequest,
) -> Verdict {
    let metadata = MetadataMap::from_headers(headers);
    let answer = match connection.signal {
        Signal::TRACES => {
            let request = ExportTraceServiceRequest::default();
            let mut request = Request::from_parts(metadata, http::Extensions::new(), request);
            request.set_timeout(connection.timeout);
            let answer = TraceServiceClient::new(channel).export(request).await;
            answer.map(|_| ExportLogsServiceResponse::default())
        }
        _ => {
            let mut request = Request::from_parts(metadata, http::Extensions::new(), request);
            request.set_timeout(connection.timeout);
            let mut client = LogsServiceClient::new(channel)
                .max_decoding_message_size(MAX_ANSWER)
                .accept_compressed(CompressionEncoding::Gzip);
            if connection.gzip {
                client = client.send_compressed(CompressionEncoding::Gzip);
            }
            client.export(request).await.map(Response::into_inner)
        }
    };
    let code = answer.as_ref().map_or_else(Status::code, |_| Code::Ok);
    tracing::Span::current().record("rpc.grpc.status_code", i32::from(code));
    of_answer(answer)
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
            verdict::disconnected(source, is_connected, "gRPC (port 4317 by convention)")
        }
        _ => {
            let retry_after = status.get_details_retry_info().and_then(|i| i.retry_delay);
            verdict::of_grpc(status.code(), said, retry_after)
        }
    }
}

#[cfg(test)]
#[path = "grpc_tests.rs"]
mod tests;
