//! Requests over HTTP, and what its answers mean.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::StreamExt;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, LOCATION, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceResponse;
use prost::Message;
use tonic_types::RpcStatusExt;

use super::FailureReason;
use super::settings::{Connection, SettingsError};
use super::verdict::{Refusal, Verdict, chain, one_line, speaks_of_size};
use crate::api::parse_retry_after;

/// The media type of the protocol.
const PROTOBUF: &str = "application/x-protobuf";

/// The largest answer that is read: it is a count and a message.
pub(super) const MAX_ANSWER_BYTES: usize = 1024 * 1024;

/// The longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A client of one collector.
#[derive(Debug)]
pub struct HttpSender {
    connection: Connection,
    client: ArcSwap<reqwest::Client>,
}

/// An answer, whatever its status.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

// === impl HttpSender ===

impl HttpSender {
    /// A client that connects when the first request is sent.
    ///
    /// # Errors
    /// Where certificates cannot be read, or make no TLS configuration.
    pub fn new(connection: &Connection) -> Result<Self, SettingsError> {
        Ok(Self {
            connection: connection.clone(),
            client: ArcSwap::from_pointee(client(connection)?),
        })
    }

    /// Sends one encoded request.
    pub async fn export(&self, body: Bytes) -> Verdict {
        let result = tokio::time::timeout(self.connection.timeout, self.exchange(body)).await;
        let refusal = match result {
            Ok(Ok(answer)) => {
                tracing::Span::current().record("http.response.status_code", answer.status);
                return verdict(&answer);
            }
            Ok(Err(error)) => {
                // What a server of another protocol, or one that wants a certificate, does to the connection that it took.
                let hint = "; does this port speak HTTP (4318 by custom), and does it want a client certificate?";
                let hint = if error.is_connect() { "" } else { hint };
                Refusal::new(
                    FailureReason::Connect,
                    format!("connection failed: {}{hint}", chain(&error.without_url())),
                )
            }
            Err(_) => Refusal::new(
                FailureReason::Timeout,
                format!("no answer within {:?}", self.connection.timeout),
            ),
        };
        // The certificates may have changed in their files.
        if self.connection.certificate.is_some() || self.connection.client.is_some() {
            match client(&self.connection) {
                Ok(client) => self.client.store(Arc::new(client)),
                Err(error) => {
                    tracing::warn!(%error, "certificates cannot be read again, keeping those read before")
                }
            }
        }
        Verdict::Hold(refusal)
    }

    async fn exchange(&self, body: Bytes) -> Result<Answer, reqwest::Error> {
        let client = reqwest::Client::clone(&self.client.load());
        let mut headers = self.connection.headers.clone();
        // What describes the body is said by whoever makes it.
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROTOBUF));
        headers.remove(CONTENT_ENCODING);
        headers.remove(CONTENT_LENGTH);
        let compressed = if self.connection.gzip {
            compress(&body)
        } else {
            None
        };
        if compressed.is_some() {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        let body = compressed.map_or(body, Bytes::from);
        let response = client
            .post(self.connection.endpoint.clone())
            .headers(headers)
            .body(body)
            .send()
            .await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let mut body = Vec::new();
        let mut stream = response.bytes_stream();
        while let Some(chunk) = stream.next().await {
            // What is longer is not the protocol's; its beginning tells enough.
            let room = MAX_ANSWER_BYTES - body.len();
            let chunk = chunk?;
            body.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if chunk.len() > room {
                break;
            }
        }
        Ok(Answer {
            status,
            headers,
            body,
        })
    }
}

fn client(connection: &Connection) -> Result<reqwest::Client, SettingsError> {
    // Requests go one after the other, so that HTTP/2 would bring nothing but connections that hang unseen.
    let mut builder = reqwest::Client::builder()
        .user_agent(super::USER_AGENT)
        .http1_only()
        .connect_timeout(connection.timeout.min(CONNECT_TIMEOUT))
        .tcp_keepalive(Duration::from_secs(60))
        .redirect(reqwest::redirect::Policy::none());
    if connection.is_loopback() {
        builder = builder.no_proxy();
    }
    if let Some(file) = &connection.certificate {
        let certificates = reqwest::Certificate::from_pem_bundle(&file.read()?)
            .map_err(|error| SettingsError::new(&file.variable, chain(&error)))?;
        builder = builder.tls_certs_merge(certificates);
    }
    if let Some((certificate, key)) = &connection.client {
        let mut pem = certificate.read()?;
        pem.push(b'\n');
        pem.extend(key.read()?);
        let identity = reqwest::Identity::from_pem(&pem)
            .map_err(|error| SettingsError::new(&certificate.variable, chain(&error)))?;
        builder = builder.identity(identity);
    }
    builder.build().map_err(|error| {
        SettingsError::new(
            "OTLP endpoint",
            format!("'{}': {}", connection.endpoint, chain(&error)),
        )
    })
}

fn compress(body: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::default());
    encoder.write_all(body).ok()?;
    encoder.finish().ok()
}

/// The table of verdicts, for HTTP.
fn verdict(answer: &Answer) -> Verdict {
    let status = answer.status;
    if (200..300).contains(&status) {
        return acknowledgement(answer);
    }
    let (words, retry_info) = words(answer);
    let retry_after = header(&answer.headers, RETRY_AFTER)
        .and_then(|text| parse_retry_after(text, SystemTime::now()))
        .or(retry_info);
    let said = if words.is_empty() {
        format!("HTTP {status}")
    } else {
        format!("HTTP {status}: {words}")
    };
    let hold = |reason| Verdict::Hold(Refusal::new(reason, said.clone()).after(retry_after));
    let configuration =
        |reason| Verdict::Hold(Refusal::configuration(reason, said.clone()).after(retry_after));
    match status {
        413 => Verdict::TooLarge(Refusal::new(FailureReason::TooLarge, said)),
        // The collector's HTTP server says 400 when a request is longer than it reads.
        400 | 422 if speaks_of_size(&words) => {
            Verdict::TooLarge(Refusal::new(FailureReason::TooLarge, said))
        }
        400 | 422 => Verdict::Suspect(Refusal::new(FailureReason::BadRecord, said)),
        500 => Verdict::Suspect(Refusal::new(FailureReason::ServerError, said)),
        401 | 403 | 407 => configuration(FailureReason::Unauthorized),
        404 | 405 | 410 => configuration(FailureReason::NotFound),
        408 => hold(FailureReason::Timeout),
        429 => hold(FailureReason::RateLimited),
        415 | 421 | 426 | 501 | 505 => configuration(FailureReason::NotOtlp),
        501..600 => hold(FailureReason::Unavailable),
        300..400 => {
            let place = one_line(header(&answer.headers, LOCATION).unwrap_or("an unnamed place"));
            let message = format!(
                "HTTP {status}: redirected to {place}; redirects are not followed, set the endpoint to the right address"
            );
            Verdict::Hold(Refusal::configuration(FailureReason::NotFound, message))
        }
        _ => configuration(FailureReason::Other),
    }
}

/// The same where gRPC was asked for: no such answer is a success.
pub(super) fn verdict_behind_grpc(answer: &Answer) -> Verdict {
    if (200..300).contains(&answer.status) {
        no_otlp(answer)
    } else {
        verdict(answer)
    }
}

/// A success counts only when the answer is empty or the protocol's own.
fn acknowledgement(answer: &Answer) -> Verdict {
    if answer.body.is_empty() {
        return Verdict::Acknowledged { warning: None };
    }
    let content_type = header(&answer.headers, CONTENT_TYPE)
        .unwrap_or_default()
        .to_ascii_lowercase();
    let decoded = if content_type.starts_with("application/json") {
        json_partial_success(&answer.body)
    } else if content_type.starts_with("text/html") {
        None
    } else {
        ExportLogsServiceResponse::decode(answer.body.as_slice())
            .ok()
            .map(|decoded| {
                decoded
                    .partial_success
                    .map(|partial| (partial.rejected_log_records, partial.error_message))
            })
    };
    match decoded {
        Some(partial) => Verdict::from_partial_success(partial),
        None => no_otlp(answer),
    }
}

/// Something else took the request, and nobody knows what it did with it.
fn no_otlp(answer: &Answer) -> Verdict {
    let kind = header(&answer.headers, CONTENT_TYPE)
        .unwrap_or_default()
        .to_ascii_lowercase();
    let kind = if kind.is_empty() {
        "an answer without a content type".to_owned()
    } else {
        one_line(&kind)
    };
    let start = one_line(&String::from_utf8_lossy(
        &answer.body[..answer.body.len().min(200)],
    ));
    let message = format!(
        "HTTP {} with {kind}, which is no OTLP answer: is the endpoint a collector's? It begins: {start}",
        answer.status
    );
    Verdict::Hold(Refusal::configuration(FailureReason::NotOtlp, message))
}

/// The protocol's answer in JSON, which some servers give whatever they were asked in. `None` when it is something else.
fn json_partial_success(body: &[u8]) -> Option<Option<(i64, String)>> {
    let serde_json::Value::Object(answer) = serde_json::from_slice(body).ok()? else {
        return None;
    };
    let partial = answer
        .get("partialSuccess")
        .or_else(|| answer.get("partial_success"));
    let Some(partial) = partial else {
        return answer.is_empty().then_some(None);
    };
    let rejected = partial
        .get("rejectedLogRecords")
        .or_else(|| partial.get("rejected_log_records"));
    // 64-bit integers are strings in protobuf's JSON.
    let rejected = match rejected {
        Some(serde_json::Value::String(digits)) => digits.parse().ok()?,
        Some(number) => number.as_i64()?,
        None => 0,
    };
    let message = partial
        .get("errorMessage")
        .or_else(|| partial.get("error_message"))
        .and_then(|message| message.as_str());
    Some(Some((rejected, message.unwrap_or_default().to_owned())))
}

/// The server's own words: of a `google.rpc.Status` in protobuf or JSON, else the text itself; and the delay such a status asks for.
fn words(answer: &Answer) -> (String, Option<Duration>) {
    let content_type = header(&answer.headers, CONTENT_TYPE).unwrap_or_default();
    let is_protobuf =
        content_type.starts_with(PROTOBUF) || content_type.starts_with("application/protobuf");
    if let (true, Ok(status)) = (
        is_protobuf,
        tonic_types::Status::decode(answer.body.as_slice()),
    ) {
        let retry = status
            .get_details_retry_info()
            .and_then(|info| info.retry_delay);
        return (one_line(&status.message), retry);
    }
    if let Ok(serde_json::Value::Object(object)) = serde_json::from_slice(&answer.body)
        && let Some(message) = ["message", "error"]
            .iter()
            .find_map(|field| object.get(*field)?.as_str())
    {
        return (one_line(message), None);
    }
    (one_line(&String::from_utf8_lossy(&answer.body)), None)
}

fn header(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsPartialSuccess;
    use tonic_types::{ErrorDetails, StatusExt};

    use super::*;

    fn answer(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Answer {
        let mut headers = HeaderMap::new();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_str(content_type).expect("a value"),
        );
        Answer {
            status,
            headers,
            body: body.into(),
        }
    }

    fn row(status: u16) -> (&'static str, FailureReason, bool) {
        match verdict(&answer(status, "text/plain", "no luck")) {
            Verdict::TooLarge(refusal) => ("too large", refusal.reason, refusal.configuration),
            Verdict::Suspect(refusal) => ("suspect", refusal.reason, refusal.configuration),
            Verdict::Hold(refusal) => ("hold", refusal.reason, refusal.configuration),
            other => panic!("{status} is no success: {other:?}"),
        }
    }

    #[test]
    fn every_status_has_its_row() {
        use FailureReason as R;
        for (status, expected) in [
            (400, ("suspect", R::BadRecord, false)),
            (422, ("suspect", R::BadRecord, false)),
            (500, ("suspect", R::ServerError, false)),
            (413, ("too large", R::TooLarge, false)),
            (401, ("hold", R::Unauthorized, true)),
            (403, ("hold", R::Unauthorized, true)),
            (407, ("hold", R::Unauthorized, true)),
            (404, ("hold", R::NotFound, true)),
            (405, ("hold", R::NotFound, true)),
            (408, ("hold", R::Timeout, false)),
            (415, ("hold", R::NotOtlp, true)),
            (418, ("hold", R::Other, true)),
            (429, ("hold", R::RateLimited, false)),
            (501, ("hold", R::NotOtlp, true)),
            (502, ("hold", R::Unavailable, false)),
            (503, ("hold", R::Unavailable, false)),
            (504, ("hold", R::Unavailable, false)),
            (599, ("hold", R::Unavailable, false)),
            (302, ("hold", R::NotFound, true)),
            (204, ("hold", R::NotOtlp, true)),
        ] {
            assert_eq!(row(status), expected, "{status}");
        }
    }

    #[test]
    fn the_collector_says_400_when_a_request_is_longer_than_it_reads() {
        let verdict = verdict(&answer(400, "text/plain", "http: request body too large"));
        assert!(
            matches!(&verdict, Verdict::TooLarge(refusal) if refusal.names_size()),
            "{verdict:?}"
        );
    }

    #[test]
    fn only_an_empty_answer_or_the_protocol_s_own_is_an_acknowledgement() {
        let partial = ExportLogsPartialSuccess {
            rejected_log_records: 3,
            error_message: "too old".to_owned(),
        };
        let partial = ExportLogsServiceResponse {
            partial_success: Some(partial),
        }
        .encode_to_vec();
        let taken = Verdict::Acknowledged { warning: None };
        let rejected = Verdict::PartlyRejected {
            rejected: 3,
            message: "too old".to_owned(),
        };
        for (status, content_type, body, expected) in [
            (200, PROTOBUF, Vec::new(), taken.clone()),
            (204, "text/html", Vec::new(), taken.clone()),
            (
                202,
                PROTOBUF,
                ExportLogsServiceResponse::default().encode_to_vec(),
                taken.clone(),
            ),
            (200, PROTOBUF, partial.clone(), rejected.clone()),
            (200, "application/octet-stream", partial, rejected.clone()),
            (200, "application/json", b"{}".to_vec(), taken.clone()),
            (
                200,
                "application/json; charset=utf-8",
                br#"{"partialSuccess":{}}"#.to_vec(),
                taken,
            ),
            (
                200,
                "application/json",
                br#"{"partialSuccess":{"rejectedLogRecords":"3","errorMessage":"too old"}}"#
                    .to_vec(),
                rejected,
            ),
        ] {
            assert_eq!(
                verdict(&answer(status, content_type, body)),
                expected,
                "{status} {content_type}"
            );
        }
        for (content_type, body) in [
            ("text/html", "<html>Sign in</html>"),
            ("text/plain", "ok"),
            (PROTOBUF, "<html>Sign in</html>"),
            ("application/json", r#"{"error":"no tenant"}"#),
            ("application/json", "[]"),
        ] {
            let Verdict::Hold(refusal) = verdict(&answer(200, content_type, body)) else {
                panic!("{body} is no acknowledgement")
            };
            assert_eq!(
                (refusal.reason, refusal.configuration),
                (FailureReason::NotOtlp, true)
            );
        }
    }

    #[test]
    fn the_server_s_words_are_read_from_every_kind_of_body() {
        let status = tonic_types::Status {
            code: 3,
            message: "bad record\n3".to_owned(),
            details: Vec::new(),
        }
        .encode_to_vec();
        for (content_type, body, words) in [
            (PROTOBUF, status, "HTTP 400: bad record 3"),
            (
                "application/json",
                br#"{"code":3,"message":"bad record 3"}"#.to_vec(),
                "HTTP 400: bad record 3",
            ),
            (
                "text/plain",
                b"bad record 3\r\n".to_vec(),
                "HTTP 400: bad record 3",
            ),
            ("text/plain", Vec::new(), "HTTP 400"),
        ] {
            let Verdict::Suspect(refusal) = verdict(&answer(400, content_type, body)) else {
                panic!("suspect")
            };
            assert_eq!(refusal.message, words);
        }
    }

    #[test]
    fn the_delay_is_read_from_the_header_in_both_forms_and_from_the_status() {
        let delay = |answer: &Answer| match verdict(answer) {
            Verdict::Hold(refusal) => refusal.retry_after,
            other => panic!("held: {other:?}"),
        };
        let mut busy = answer(503, "text/plain", "busy");
        assert_eq!(delay(&busy), None);
        busy.headers
            .insert(RETRY_AFTER, HeaderValue::from_static("120"));
        assert_eq!(delay(&busy), Some(Duration::from_secs(120)));
        let soon = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(90));
        busy.headers
            .insert(RETRY_AFTER, HeaderValue::from_str(&soon).expect("a value"));
        assert!(delay(&busy).is_some_and(|wait| (80..=90).contains(&wait.as_secs())));
        let details = ErrorDetails::with_retry_info(Some(Duration::from_secs(7)));
        let status = tonic::Status::with_error_details(tonic::Code::Unavailable, "busy", details)
            .details()
            .to_vec();
        assert_eq!(
            delay(&answer(503, PROTOBUF, status)),
            Some(Duration::from_secs(7))
        );
    }
}
