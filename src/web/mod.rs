//! The web surface: metrics for scrapers, health for probes, and a page for people.

mod auth;
pub mod config;
mod connections;
mod landing;
pub mod listen;
pub mod negotiate;
pub mod overview;
mod scrape;
pub mod server;
pub mod settings;
mod tls;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY,
    RETRY_AFTER, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{Method, StatusCode, Uri};
use tower_http::timeout::TimeoutLayer;

pub use crate::health::Health;
use crate::health::Stuck;
pub use config::{ConfigError, WebConfig};
pub use listen::{BindError, Bound, bind, try_bind};
pub use overview::Overview;
pub use server::serve;
pub use settings::{Limits, ListenAddress, Settings, TelemetryPath};

use crate::metrics::Metrics;
use auth::Verdict;

/// Whether the loops make progress.
pub(crate) const HEALTHY_PATH: &str = "/-/healthy";

/// Whether the exporter is set up.
const READY_PATH: &str = "/-/ready";

/// The maximum time to compute a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);

/// The header that asks for a password.
const CHALLENGE: &str = "Basic realm=\"orgdata-exporter\", charset=\"UTF-8\"";

/// Headers of every response, unless the configuration file or the page sets them.
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

/// What the web surface shows.
#[derive(Clone)]
pub struct WebState {
    /// The metrics, and the state of each loop for the landing page.
    pub metrics: Metrics,
    /// The answers to probes.
    pub health: Health,
    /// Collects the rows of the landing page. Called off the runtime's threads.
    pub overview: Arc<dyn Fn() -> Overview + Send + Sync>,
}

// === impl WebState ===

impl fmt::Debug for WebState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebState").finish_non_exhaustive()
    }
}

fn router(state: WebState, settings: &Settings) -> Router {
    let metrics_path = settings.telemetry_path.as_str();
    let paths = format!(
        "The metrics are at {metrics_path}, probes at {HEALTHY_PATH} and {READY_PATH}, a page for \
         people at /.\n"
    );
    let scraper = scrape::Scraper::new(state.metrics.clone());
    Router::new()
        .route(metrics_path, get(scrape::scrape).with_state(scraper))
        .route(HEALTHY_PATH, get(healthy).with_state(state.health.clone()))
        .route(READY_PATH, get(ready).with_state(state.health.clone()))
        .route(
            "/",
            get(landing::page).with_state(landing::Pages::new(state, metrics_path)),
        )
        .method_not_allowed_fallback(async |method: Method| {
            let body = format!("{method} is not supported here; use GET or HEAD.\n");
            (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "GET, HEAD")], body)
        })
        .fallback(move |uri: Uri| async move {
            let body = format!("There is nothing at {}. {paths}", uri.path());
            (StatusCode::NOT_FOUND, body)
        })
        .layer(TimeoutLayer::with_status_code(
            StatusCode::SERVICE_UNAVAILABLE,
            RESPONSE_TIMEOUT,
        ))
        .layer(from_fn_with_state(settings.config.clone(), guard))
}

/// Checks every request, and completes every response. Probes are no exception, as in the toolkit.
async fn guard(
    State(config): State<Option<WebConfig>>,
    Extension(client): Extension<server::Client>,
    request: Request,
    next: Next,
) -> Response {
    let under_way = client.connection.respond();
    let credentials = auth::credentials(request.headers());
    let mut headers = Vec::new();
    let mut refusal = None;
    if let Some(config) = config {
        let current = config.current().await;
        headers.extend_from_slice(current.headers());
        refusal = refuse(&config, &current, credentials, &client).await;
    }
    let mut response = match refusal {
        Some(refusal) => refusal,
        None => next.run(request).await,
    };
    for (name, value) in headers.into_iter().chain(HEADERS) {
        response.headers_mut().entry(name).or_insert(value);
    }
    response.map(|body| under_way.attach(body))
}

/// Returns the response to a request that the configuration file does not allow.
async fn refuse(
    config: &WebConfig,
    current: &config::Current,
    credentials: Option<auth::Credentials>,
    client: &server::Client,
) -> Option<Response> {
    let too_many = StatusCode::TOO_MANY_REQUESTS;
    if !current.within_rate() {
        return Some((too_many, "Too many requests.\n").into_response());
    }
    if current.is_open() {
        return None;
    }
    let verdict = match credentials {
        Some(credentials) => config.check(current, credentials, client.address).await,
        None => Verdict::Denied,
    };
    match verdict {
        Verdict::Allowed => None,
        Verdict::Denied => {
            let challenge = [(WWW_AUTHENTICATE, CHALLENGE)];
            Some((StatusCode::UNAUTHORIZED, challenge, "Unauthorized\n").into_response())
        }
        Verdict::Busy => {
            let message = "Too many passwords are being checked.\n";
            Some((too_many, [(RETRY_AFTER, "5")], message).into_response())
        }
    }
}

async fn healthy(State(health): State<Health>) -> Response {
    let stuck = health.stuck();
    if stuck.is_empty() {
        return "orgdata-exporter is healthy.\n".into_response();
    }
    let line = |stuck: &Stuck| {
        let (name, silent) = (stuck.which.as_str(), stuck.silent.as_secs());
        format!("The {name} loop has made no progress for {silent} s.\n")
    };
    let lines: String = stuck.iter().map(line).collect();
    (StatusCode::SERVICE_UNAVAILABLE, lines).into_response()
}

async fn ready(State(health): State<Health>) -> Response {
    match health.is_ready() {
        true => "orgdata-exporter is ready.\n".into_response(),
        false => {
            let message = "orgdata-exporter is starting or stopping.\n";
            (StatusCode::SERVICE_UNAVAILABLE, message).into_response()
        }
    }
}
