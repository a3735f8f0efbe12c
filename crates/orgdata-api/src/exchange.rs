//! One HTTP exchange: the key goes to one host only, and time and body are bounded.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Response};
use reqwest::redirect;
use tokio::time::{Instant, timeout_at};

use super::client::Settings;
use super::error::{ApiError, FailureReason};
use super::sanitize::{MAX_EXAMINED, error_chain};

/// The header of the key (specification, section 5).
const KEY_HEADER: HeaderName = HeaderName::from_static("x-api-key");

/// The maximum size of a page in bytes, after decompression. A larger page is requested again in halves.
const MAX_BODY_BYTES: usize = 32 * 1024 * 1024;

/// The maximum number of redirects that are followed on the same host.
const MAX_REDIRECTS: usize = 3;

/// For tests: answers requests in this process; `None` stands for a connection that is reset.
#[derive(Clone)]
pub struct Transport(pub Arc<dyn Fn(reqwest::Request) -> Answer + Send + Sync>);

type Answer = Pin<Box<dyn Future<Output = Option<reqwest::Response>> + Send>>;

// === impl Transport ===

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Transport")
    }
}

/// Returns an HTTP client that follows redirects on the same host with the same query only.
pub(super) fn http_client(settings: &Settings) -> Result<reqwest::Client, String> {
    let mut builder = reqwest::Client::builder();
    // The key may go to this machine in plain text, but not through a proxy.
    if settings.base_url.is_loopback() {
        builder = builder.no_proxy();
    }
    builder = builder
        .user_agent(concat!("orgdata-exporter/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(settings.timeout.min(Duration::from_secs(10)))
        .redirect(redirect::Policy::custom(|attempt| {
            let last = attempt.previous().last();
            // Without its query, a request would be another one.
            let is_same = last.is_some_and(|last| {
                let url = attempt.url();
                last.origin() == url.origin() && last.query_pairs().eq(url.query_pairs())
            });
            match is_same && attempt.previous().len() <= MAX_REDIRECTS {
                true => attempt.follow(),
                false => attempt.stop(),
            }
        }));
    if let Some(path) = &settings.ca_file {
        let name = path.display();
        let pem = std::fs::read(path).map_err(|error| format!("cannot read {name}: {error}"))?;
        let certificates = reqwest::Certificate::from_pem_bundle(&pem)
            .map_err(|error| format!("{name}: {}", error_chain(&error)))?;
        if certificates.is_empty() {
            return Err(format!("{name} holds no certificate in PEM form"));
        }
        builder = builder.tls_certs_merge(certificates);
    }
    builder.build().map_err(|error| error_chain(&error))
}

/// Sends a request with the key and reads the response until a deadline, which is a limit after the key was asked for.
/// `bytes` is set to the bytes of the body that arrived, also if the exchange fails.
///
/// The body of an error may be incomplete: it is empty if it did not arrive, and cut after the part that is examined.
pub(super) async fn send(
    request: reqwest::RequestBuilder,
    transport: Option<&Transport>,
    key: &HeaderValue,
    (limit, deadline): (Duration, Instant),
    bytes: &mut usize,
) -> Result<Response<Vec<u8>>, ApiError> {
    let request = request
        .header(KEY_HEADER, key)
        .header("accept", "application/json");
    let sent = async {
        let Some(Transport(answer)) = transport else {
            return request.send().await.map_err(not_connected);
        };
        let answer = answer(request.build().map_err(not_connected)?).await;
        answer.ok_or_else(|| ApiError::new(FailureReason::Connect, "connection reset"))
    };
    let response = timeout_at(deadline, sent).await;
    let response = response.map_err(|_| timed_out(limit, 0))??;
    let mut received = Response::new(Vec::new());
    *received.status_mut() = response.status();
    *received.headers_mut() = response.headers().clone();
    let (is_success, body) = (response.status().is_success(), received.body_mut());
    let read = timeout_at(deadline, read(response, is_success, body)).await;
    *bytes = body.len();
    match read.unwrap_or_else(|_| Err(timed_out(limit, *bytes))) {
        Err(error) if is_success => return Err(error),
        // The status says enough, and an incomplete body could end within a secret.
        Err(_) => body.clear(),
        Ok(()) => {}
    }
    Ok(received)
}

/// Reads a body; that of an error only as far as it is examined.
async fn read(
    mut response: reqwest::Response,
    is_success: bool,
    body: &mut Vec<u8>,
) -> Result<(), ApiError> {
    let max = match is_success {
        true => MAX_BODY_BYTES,
        false => MAX_EXAMINED,
    };
    // A body that grows by doubling takes up to twice its size.
    let announced = response.content_length().unwrap_or(0);
    body.reserve_exact(announced.min(max as u64) as usize);
    loop {
        let chunk = response.chunk().await;
        let Some(chunk) = chunk.map_err(|_| ApiError::truncated(body.len()))? else {
            return Ok(());
        };
        let is_too_large = body.len() + chunk.len() > max;
        if is_too_large && is_success {
            let message = format!("the answer is larger than {max} bytes");
            return Err(ApiError::new(FailureReason::TooLarge, message));
        }
        body.extend_from_slice(&chunk);
        if is_too_large {
            return Ok(());
        }
    }
}

fn timed_out(limit: Duration, bytes: usize) -> ApiError {
    let limit = humantime::format_duration(limit);
    let message = match bytes {
        0 => format!("no answer within {limit}"),
        bytes => format!("the answer stopped: only {bytes} bytes came within {limit}"),
    };
    ApiError::new(FailureReason::Timeout, message)
}

/// Returns why there is no connection, and what to do if that is known.
fn not_connected(error: reqwest::Error) -> ApiError {
    let problem = match error.is_connect() {
        true => "cannot connect",
        false => "the connection broke before an answer",
    };
    let mut text = format!("{problem}: {}", error_chain(&error.without_url()));
    if text.contains("UnknownIssuer") {
        text.push_str("; the API's certificate is from an authority that this machine does not trust: if it is a private one, set --api.ca-file to its root certificate");
    }
    ApiError::new(FailureReason::Connect, text)
}
