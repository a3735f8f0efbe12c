//! Requests over HTTP.

use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, LOCATION};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceResponse;
use orgdata_api::retry_after;
use prost::Message;
use serde::Deserialize;
use serde_json::value::RawValue;
use tonic_types::RpcStatusExt;

use super::sender::{CONNECT_TIMEOUT, KEEPALIVE, MAX_ANSWER, USER_AGENT};
use super::settings::Connection;
use super::verdict::{self, FailureReason, Refusal, Verdict};
use crate::util::{error_chain, location, sanitize};

/// The media type of the protocol.
const PROTOBUF: &str = "application/x-protobuf";

/// The largest error in the form of the protocol that is decoded.
const MAX_STATUS: usize = 64 * 1024;

/// An answer of any status.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

/// Returns the settings of a client. Redirects are not followed.
///
/// # Errors
/// If a certificate or key cannot be read or used.
pub(crate) fn client(connection: &Connection) -> Result<reqwest::ClientBuilder, String> {
    // Requests are sent one after the other: HTTP/2 has no advantage.
    let mut builder = reqwest::Client::builder()
        .user_agent(USER_AGENT)
        .http1_only()
        .connect_timeout(connection.timeout.min(CONNECT_TIMEOUT))
        .tcp_keepalive(KEEPALIVE)
        // The OpenTelemetry Collector closes a connection that is idle for a minute, which is when the next probe is sent.
        .pool_idle_timeout(KEEPALIVE / 2)
        .redirect(reqwest::redirect::Policy::none());
    if connection.is_loopback() {
        builder = builder.no_proxy();
    }
    if let Some(file) = &connection.certificate {
        let roots = reqwest::Certificate::from_pem_bundle(&file.read_pem()?)
            .map_err(|error| file.error(error_chain(&error)))?;
        builder = builder.tls_certs_only(roots);
    }
    if let Some((certificate, key)) = &connection.client {
        let pem = [certificate.read_pem()?, key.read_pem()?].join(&b'\n');
        let identity = reqwest::Identity::from_pem(&pem)
            .map_err(|error| certificate.error(error_chain(&error)))?;
        builder = builder.identity(identity);
    }
    Ok(builder)
}

/// Sends one encoded request.
pub(super) async fn export(
    client: reqwest::Client,
    connection: &Connection,
    body: Bytes,
) -> Verdict {
    match exchange(client, connection, body).await {
        Ok(answer) => {
            let status = answer.status.as_u16();
            tracing::Span::current().record("http.response.status_code", status);
            answer.verdict(&connection.secrets())
        }
        Err(error) => {
            let (is_connected, error) = (!error.is_connect(), error.without_url());
            let secrets = connection.secrets();
            verdict::disconnected(&error, is_connected, "HTTP (4318 by custom)", &secrets)
        }
    }
}

async fn exchange(
    client: reqwest::Client,
    connection: &Connection,
    body: Bytes,
) -> Result<Answer, reqwest::Error> {
    let mut headers = connection.headers.clone();
    // Whatever describes the body cannot be set from outside.
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROTOBUF));
    headers.remove(CONTENT_ENCODING);
    headers.remove(CONTENT_LENGTH);
    let compressed = connection.gzip.then(|| compress(&body)).flatten();
    if compressed.is_some() {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    let mut response = client
        .post(connection.endpoint.clone())
        .headers(headers)
        .body(compressed.map_or(body, Bytes::from))
        .send()
        .await?;
    let mut answer = Answer {
        status: response.status(),
        headers: std::mem::take(response.headers_mut()),
        body: Vec::new(),
    };
    loop {
        let chunk = match response.chunk().await {
            Ok(Some(chunk)) => chunk,
            // The status of an error says enough.
            Err(error) if answer.status.is_success() => return Err(error),
            _ => break,
        };
        // A longer answer does not belong to the protocol.
        let room = MAX_ANSWER - answer.body.len();
        answer.body.extend(chunk.iter().take(room));
        if chunk.len() >= room {
            break;
        }
    }
    Ok(answer)
}

fn compress(body: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::default());
    encoder.write_all(body).ok()?;
    encoder.finish().ok()
}

/// The protocol's answer in JSON, which some servers send whatever they are asked in.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct JsonAnswer<'a> {
    #[serde(borrow)]
    partial_success: Option<JsonPartial<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct JsonPartial<'a> {
    #[serde(borrow)]
    rejected_log_records: Option<&'a RawValue>,
    #[serde(borrow)]
    error_message: Option<&'a RawValue>,
}

// === impl Answer ===

impl Answer {
    pub(crate) fn verdict(&self, secrets: &[&str]) -> Verdict {
        if self.status.is_success() {
            return match self.partial_success() {
                Some((rejected, words)) => Verdict::of_success(rejected, sanitize(&words, secrets)),
                // It may be a message for each record.
                None if self.body.len() >= MAX_ANSWER
                    && !self.content_type().starts_with("text/") =>
                {
                    let message = "the answer is larger than 4 MiB";
                    Verdict::Refused(Refusal::new(FailureReason::TooLarge, message))
                }
                None => self.not_otlp(secrets),
            };
        }
        let is_status = self.content_type().starts_with(PROTOBUF) && self.body.len() <= MAX_STATUS;
        let status = is_status.then(|| tonic_types::Status::decode(self.body.as_slice()));
        let (words, delay) = match (status, self.header(LOCATION)) {
            (_, Some(address)) if self.status.is_redirection() => {
                let place = location(address, secrets);
                let words = format!(
                    "redirected to {place}; redirects are not followed, set the endpoint to the right address"
                );
                (words, None)
            }
            (Some(Ok(status)), _) => {
                let delay = status.get_details_retry_info().and_then(|i| i.retry_delay);
                (sanitize(&status.message, secrets), delay)
            }
            _ => (sanitize(&self.text(), secrets), None),
        };
        let delay = retry_after(&self.headers).or(delay);
        verdict::of_http(self.status.as_u16(), &words, delay)
    }

    /// Returns the number of rejected records and the message of a success; `None` if it is not the protocol's answer.
    fn partial_success(&self) -> Option<(i64, String)> {
        if self.body.is_empty() {
            return Some((0, String::new()));
        }
        match self.content_type().as_str() {
            kind if kind.starts_with("application/json") => {
                let answer: JsonAnswer<'_> = serde_json::from_slice(&self.body).ok()?;
                let partial = answer.partial_success.unwrap_or_default();
                // 64-bit integers may be strings in the JSON of protobuf, and fractions. All is rejected if the number cannot be read.
                let rejected = partial.rejected_log_records.map_or(0, |number| {
                    let number: Option<f64> = number.get().trim_matches('"').parse().ok();
                    let number = number.filter(|number| number.is_finite());
                    number.map_or(i64::MAX, |number| number.ceil() as i64)
                });
                let message = partial.error_message.map(RawValue::get).unwrap_or_default();
                Some((rejected, serde_json::from_str(message).unwrap_or_default()))
            }
            kind if kind.starts_with("text/") => None,
            _ => {
                let answer = ExportLogsServiceResponse::decode(self.body.as_slice()).ok()?;
                let partial = answer.partial_success.unwrap_or_default();
                Some((partial.rejected_log_records, partial.error_message))
            }
        }
    }

    /// Something else accepted the request, and may have dropped it.
    fn not_otlp(&self, secrets: &[&str]) -> Verdict {
        let kind = sanitize(&self.content_type(), secrets);
        let start: String = sanitize(&self.text(), secrets).chars().take(60).collect();
        let message = format!(
            "HTTP {}: {kind}, not an OTLP answer: is the endpoint a collector's? It begins: {start}",
            self.status.as_u16()
        );
        Verdict::Refused(Refusal::new(FailureReason::NotOtlp, message))
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body[..self.body.len().min(4096)]).into_owned()
    }

    fn content_type(&self) -> String {
        self.header(CONTENT_TYPE)
            .unwrap_or_default()
            .to_ascii_lowercase()
    }

    fn header(&self, name: HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
