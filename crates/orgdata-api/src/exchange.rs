//! One HTTP exchange: the key goes to one host only, and time and body are bounded.

use std::time::Duration;

use futures_util::StreamExt;
use http::{HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect;
use tokio::time::Instant;
use url::Url;

use super::client::Settings;
use super::error::{ApiError, FailureReason};
use super::sanitize::{MAX_EXAMINED, error_chain};

/// The header of the key (specification, section 5).
const KEY_HEADER: HeaderName = HeaderName::from_static("x-api-key");

/// The maximum size of a page in bytes, after decompression. A larger page is requested again in halves.
const MAX_BODY_BYTES: usize = 32 * 1024 * 1024;

/// The maximum number of redirects that are followed on the same host.
const MAX_REDIRECTS: usize = 3;

/// A response. The body of an error may be incomplete: it is empty if it did not arrive, and cut after the part that
/// is examined.
pub(super) struct Response {
    pub(super) status: u16,
    /// The address that responded, after redirects on the same host.
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

// === impl Response ===

impl Response {
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    pub(super) fn header(&self, name: HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// Returns an HTTP client that follows redirects on the same host only.
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
            let is_same_host = attempt
                .previous()
                .last()
                .is_some_and(|last| last.origin() == attempt.url().origin());
            if is_same_host && attempt.previous().len() <= MAX_REDIRECTS {
                attempt.follow()
            } else {
                attempt.stop()
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

/// Sends a request with the key and reads the response until `deadline`, which is `limit` after the request began. `bytes` is set to the bytes of the body that
/// arrived, also if the exchange fails.
pub(super) async fn send(
    request: reqwest::RequestBuilder,
    key: &HeaderValue,
    limit: Duration,
    deadline: Instant,
    bytes: &mut usize,
) -> Result<Response, ApiError> {
    let request = request
        .header(KEY_HEADER, key)
        .header("accept", "application/json");
    let mut received = None;
    let result = tokio::time::timeout_at(deadline, exchange(request, &mut received)).await;
    *bytes = received.as_ref().map_or(0, |response| response.body.len());
    match (result, received) {
        (Ok(Ok(())), Some(response)) => Ok(response),
        // The status says enough, and an incomplete body could end within a secret.
        (_, Some(response)) if !response.is_success() => Ok(Response {
            body: Vec::new(),
            ..response
        }),
        (Ok(Err(error)), _) => Err(error),
        _ => {
            let limit = humantime::format_duration(limit);
            let message = match *bytes {
                0 => format!("no answer within {limit}"),
                bytes => format!("the answer stopped: only {bytes} bytes came within {limit}"),
            };
            Err(ApiError::new(FailureReason::Timeout, message))
        }
    }
}

async fn exchange(
    request: reqwest::RequestBuilder,
    received: &mut Option<Response>,
) -> Result<(), ApiError> {
    let response = request.send().await;
    let response = response.map_err(not_connected)?;
    // A body that grows by doubling takes up to twice its size.
    let announced = response.content_length().unwrap_or(0);
    let capacity = usize::try_from(announced).unwrap_or(usize::MAX);
    let received = received.insert(Response {
        status: response.status().as_u16(),
        url: response.url().clone(),
        headers: response.headers().clone(),
        body: Vec::new(),
    });
    let is_success = received.is_success();
    let max = if is_success {
        MAX_BODY_BYTES
    } else {
        MAX_EXAMINED
    };
    let body = &mut received.body;
    body.reserve_exact(capacity.min(max));
    let mut stream = response.bytes_stream();
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|_| ApiError::truncated(body.len()))?;
        match body.len() + chunk.len() > max {
            false => body.extend_from_slice(&chunk),
            true if is_success => {
                let message = format!("the answer is larger than {max} bytes");
                return Err(ApiError::new(FailureReason::TooLarge, message));
            }
            true => {
                body.extend_from_slice(&chunk);
                break;
            }
        }
    }
    Ok(())
}

/// Returns why there is no connection, and what to do if that is known.
fn not_connected(error: reqwest::Error) -> ApiError {
    let mut text = format!("cannot connect: {}", error_chain(&error.without_url()));
    if text.contains("UnknownIssuer") {
        text.push_str("; the service's certificate is from an authority that this machine does not trust: if it is a private one, set --api.ca-file to its root certificate");
    }
    ApiError::new(FailureReason::Connect, text)
}
