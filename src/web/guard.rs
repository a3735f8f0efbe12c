//! What stands before every route: the rate limit, basic authentication, and the headers of every answer.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue,
    REFERRER_POLICY, RETRY_AFTER, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderMap, StatusCode};
use secrecy::{ExposeSecret as _, SecretString};

use super::config::{Current, Peer, Verdict, WebConfig};

/// Asks a browser, and tells a scraper's owner, for a user and a password.
const CHALLENGE: &str = "Basic realm=\"orgdata-exporter\", charset=\"UTF-8\"";

/// Lets a request through, or answers it. Health and readiness are no exception, as in the toolkit.
pub(super) async fn guard(
    State(config): State<Option<WebConfig>>,
    request: Request,
    next: Next,
) -> Response {
    let Some(config) = config else {
        return secured(next.run(request).await, &[]);
    };
    let current = config.current().await;
    let peer = request
        .extensions()
        .get::<Peer>()
        .copied()
        .unwrap_or(Peer(None));
    let response = match refusal(&config, &current, credentials(request.headers()), peer).await {
        Some(refusal) => refusal,
        None => next.run(request).await,
    };
    secured(response, current.headers())
}

async fn refusal(
    config: &WebConfig,
    current: &Current,
    credentials: Option<(String, SecretString)>,
    peer: Peer,
) -> Option<Response> {
    if !current.admits() {
        return Some((StatusCode::TOO_MANY_REQUESTS, "Too Many Requests\n").into_response());
    }
    if current.is_open() {
        return None;
    }
    let verdict = match credentials {
        Some((user, password)) => config.check(current, &user, password, peer).await,
        None => Verdict::Refused,
    };
    match verdict {
        Verdict::Welcome => None,
        Verdict::Refused => Some(
            (
                StatusCode::UNAUTHORIZED,
                [(WWW_AUTHENTICATE, CHALLENGE)],
                "Unauthorized\n",
            )
                .into_response(),
        ),
        Verdict::Busy => {
            let answer = (
                StatusCode::TOO_MANY_REQUESTS,
                [(RETRY_AFTER, "5")],
                "Too many passwords are being checked.\n",
            );
            Some(answer.into_response())
        }
    }
}

/// User and password of a request (RFC 7617).
fn credentials(headers: &HeaderMap) -> Option<(String, SecretString)> {
    let (scheme, encoded) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded =
        SecretString::from(String::from_utf8(BASE64_STANDARD.decode(encoded.trim()).ok()?).ok()?);
    let (user, password) = decoded.expose_secret().split_once(':')?;
    Some((user.to_owned(), password.into()))
}

/// Headers of every answer: nothing here is to be kept, framed, guessed at or told to others. What the configuration file says
/// comes before that, and after what a page needs for itself, as in the toolkit.
fn secured(mut response: Response, configured: &[(HeaderName, HeaderValue)]) -> Response {
    const HEADERS: [(HeaderName, HeaderValue); 5] = [
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (
            CONTENT_SECURITY_POLICY,
            HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"),
        ),
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    ];
    let headers = response.headers_mut();
    for (name, value) in configured.iter().cloned().chain(HEADERS) {
        headers.entry(name).or_insert(value);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &str) -> Option<(String, String)> {
        let headers =
            HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_str(value).unwrap())]);
        credentials(&headers).map(|(user, password)| (user, password.expose_secret().to_owned()))
    }

    #[test]
    fn credentials_are_read() {
        let pair = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        assert_eq!(read("Basic YWxpY2U6YTpi"), pair("alice", "a:b"));
        assert_eq!(read("basic YWxpY2U6"), pair("alice", ""));
        for nothing in [
            "Basic",
            "Basic !",
            "Basic YWxpY2U=",
            "Bearer YWxpY2U6YTpi",
            "Basic /w==",
            "",
        ] {
            assert_eq!(read(nothing), None, "{nothing}");
        }
    }
}
