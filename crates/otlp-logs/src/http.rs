//! Requests over HTTP.

use std::io::Read;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use connections::error_chain;
use flate2::Compression;
use flate2::bufread::GzEncoder;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, DATE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceResponse;
use prost::Message;
use serde_json::{Map, Value};
use tonic_types::RpcStatusExt;

use crate::settings::{CONNECT_TIMEOUT, Connection, KEEPALIVE, MAX_ANSWER};
use crate::verdict::{self, Reason, Rejection, Verdict};

/// The media type of the protocol.
const PROTOBUF: &str = "application/x-protobuf";

/// The maximum number of header fields of an answer.
const MAX_FIELDS: usize = 512;

/// How much of the body of an error is read, and for how long: the status says most.
const MAX_ERROR: usize = 64 * 1024;
const ERROR_TIME: Duration = Duration::from_secs(1);

/// An answer of any status.
#[derive(Debug)]
pub struct HttpAnswer {
    /// Its status.
    pub status: StatusCode,
    /// Its header fields.
    pub headers: HeaderMap,
    /// The beginning of its body.
    pub body: Vec<u8>,
}

impl Connection {
    /// Returns the settings of a client. Redirects are not followed.
    ///
    /// # Errors
    /// If a certificate or key cannot be read or used.
    pub fn http_client(&self) -> Result<reqwest::ClientBuilder, String> {
        // Requests are sent one after the other: HTTP/2 has no advantage.
        let mut builder = reqwest::Client::builder()
            .user_agent(self.user_agent)
            .http1_only()
            .http1_max_headers(MAX_FIELDS)
            .connect_timeout(self.timeout.min(CONNECT_TIMEOUT))
            .tcp_keepalive(KEEPALIVE)
            // The OpenTelemetry Collector closes a connection that is idle for a minute.
            .pool_idle_timeout(KEEPALIVE / 2)
            .redirect(reqwest::redirect::Policy::none());
        if self.is_loopback() {
            builder = builder.no_proxy();
        } else {
            connections::check_proxy(self.endpoint.as_str())?;
        }
        if let Some(file) = &self.certificate {
            let roots = reqwest::Certificate::from_pem_bundle(&file.read_pem(self.read_file)?)
                .map_err(|error| file.error(error_chain(&error)))?;
            builder = builder.tls_certs_only(roots);
        }
        if let Some((certificate, key)) = &self.client {
            let [pem, key] = [certificate, key].map(|file| file.read_pem(self.read_file));
            let pem = [pem?, key?].join(&b'\n');
            let identity = reqwest::Identity::from_pem(&pem)
                .map_err(|error| certificate.error(error_chain(&error)))?;
            builder = builder.identity(identity);
        }
        Ok(builder)
    }
}

/// Sends one encoded request.
pub(crate) async fn export(
    client: reqwest::Client,
    connection: &Connection,
    headers: HeaderMap,
    body: Bytes,
) -> Verdict {
    match exchange(client, connection, headers, body).await {
        Ok(answer) => {
            let status = answer.status.as_u16();
            tracing::Span::current().record("http.response.status_code", status);
            answer.verdict()
        }
        Err(error) => {
            let (is_connected, error) = (!error.is_connect(), error.without_url());
            verdict::disconnected(&error, is_connected, "HTTP (port 4318 by convention)")
        }
    }
}

async fn exchange(
    client: reqwest::Client,
    connection: &Connection,
    mut headers: HeaderMap,
    body: Bytes,
) -> Result<HttpAnswer, reqwest::Error> {
    // Whatever describes the body cannot be set from outside.
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROTOBUF));
    headers.remove(CONTENT_ENCODING);
    headers.remove(CONTENT_LENGTH);
    let mut zipped = Vec::new();
    let body = if body.is_empty() {
        // hyper leaves it out, and some servers answer 411 then.
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        body
    } else if connection.gzip {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        // Reading from memory does not fail.
        let _ = GzEncoder::new(&body[..], Compression::default()).read_to_end(&mut zipped);
        zipped.into()
    } else {
        body
    };
    let mut response = client
        .post(connection.endpoint.clone())
        .headers(headers)
        .body(body)
        .send()
        .await?;
    let mut answer = HttpAnswer {
        status: response.status(),
        headers: std::mem::take(response.headers_mut()),
        body: Vec::new(),
    };
    if answer.status.is_success() {
        read(&mut response, &mut answer.body, MAX_ANSWER).await?;
    } else {
        let body = read(&mut response, &mut answer.body, MAX_ERROR);
        let _ = tokio::time::timeout(ERROR_TIME, body).await;
    }
    Ok(answer)
}

/// Reads at most `max` bytes.
async fn read(
    response: &mut reqwest::Response,
    body: &mut Vec<u8>,
    max: usize,
) -> Result<(), reqwest::Error> {
    while body.len() < max
        && let Some(chunk) = response.chunk().await?
    {
        body.extend(chunk.iter().take(max - body.len()));
    }
    Ok(())
}

// === impl HttpAnswer ===

impl HttpAnswer {
    /// Returns what it means.
    pub fn verdict(&self) -> Verdict {
        let status = self.status.as_u16();
        let said = String::from_utf8_lossy(&self.body[..self.body.len().min(MAX_ERROR)]);
        if self.status.is_success() {
            return match self.partial_success() {
                Some((rejected, message)) => Verdict::of_success(rejected, &message),
                // It may be a message for each record.
                None if self.body.len() >= MAX_ANSWER && !self.has_type("text/") => {
                    let message = "the answer is larger than 4 MiB";
                    Verdict::Rejected(Rejection::new(Reason::TooLarge, message))
                }
                // Something else accepted the request, and may have dropped it.
                None => verdict::of_http(status, &said, self.retry_after()),
            };
        }
        let decoded = self.has_type(PROTOBUF);
        let decoded = decoded.then(|| tonic_types::Status::decode(self.body.as_slice()).ok());
        match decoded.flatten() {
            Some(decoded) => {
                let delay = decoded.get_details_retry_info().and_then(|i| i.retry_delay);
                verdict::of_http(status, &decoded.message, self.retry_after().or(delay))
            }
            None => verdict::of_http(status, &said, self.retry_after()),
        }
    }

    /// Returns the number of rejected records and the message of a success; `None` if it is not the protocol's answer.
    fn partial_success(&self) -> Option<(i64, String)> {
        // Of something in front of the collector, also without a body.
        if self.has_type("text/") {
            return None;
        }
        if self.has_type("application/json") {
            let answer: Map<String, Value> = serde_json::from_slice(&self.body).ok()?;
            let is_ours = |key: &str| answer.contains_key(key);
            // `{"code":401}` or `{"success":false}` is somebody else's.
            if !(answer.is_empty() || is_ours("partialSuccess") || is_ours("partial_success")) {
                return None;
            }
            let member = |object: &Value, name, original| {
                let value = object.get(name).or_else(|| object.get(original));
                value.cloned().unwrap_or_default()
            };
            let partial = member(&answer.into(), "partialSuccess", "partial_success");
            // 64-bit integers may be strings in the JSON of protobuf, and fractions. All is rejected if the number cannot be read.
            let rejected = match member(&partial, "rejectedLogRecords", "rejected_log_records") {
                Value::Null => Some(0.0),
                Value::String(text) => text.parse().ok(),
                number => number.as_f64(),
            };
            let rejected = rejected.filter(|number| !number.is_nan());
            let rejected = rejected.map_or(i64::MAX, |number| number.ceil() as i64);
            let message = member(&partial, "errorMessage", "error_message");
            return Some((rejected, message.as_str().unwrap_or_default().to_owned()));
        }
        let answer = ExportLogsServiceResponse::decode(self.body.as_slice()).ok()?;
        let partial = answer.partial_success.unwrap_or_default();
        Some((partial.rejected_log_records, partial.error_message))
    }

    /// Returns the delay of `Retry-After`: seconds, or a date by the collector's clock.
    fn retry_after(&self) -> Option<Duration> {
        let text = self.header(RETRY_AFTER)?.trim();
        if let Ok(seconds) = text.parse() {
            return Duration::try_from_secs_f64(seconds).ok();
        }
        let date = |text| httpdate::parse_http_date(text).ok();
        let now = self.header(DATE).and_then(date);
        let wait = date(text)?.duration_since(now.unwrap_or_else(SystemTime::now));
        // A date in the past is no delay.
        Some(wait.unwrap_or_default())
    }

    /// Returns whether the media type begins like this.
    fn has_type(&self, start: &str) -> bool {
        let kind = self.header(CONTENT_TYPE).unwrap_or_default();
        kind.get(..start.len())
            .is_some_and(|kind| kind.eq_ignore_ascii_case(start))
    }

    fn header(&self, name: HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
