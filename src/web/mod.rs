//! The web surface: metrics for scrapers, health for probes, and a page for people.

mod auth;
mod config;
mod connections;
mod landing;
mod listen;
pub mod negotiate;
mod scrape;
mod server;
mod settings;
mod tls;

use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue,
    REFERRER_POLICY, RETRY_AFTER, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{Method, StatusCode, Uri};
use std::time::Duration;
use tower_http::timeout::TimeoutLayer;

pub use crate::health::Health;
use crate::metrics::Metrics;
use auth::Verdict;
pub use config::WebConfig;
pub use listen::{Bound, bind, try_bind};
pub use server::serve;
pub use settings::{Limits, ListenAddress, Settings, telemetry_path};

/// Whether the loops make progress.
pub(crate) const HEALTHY_PATH: &str = "/-/healthy";

/// Whether the exporter is set up.
const READY_PATH: &str = "/-/ready";

/// The style sheet of the landing page.
const STYLE_PATH: &str = "/-/style.css";

const STYLE: &str = include_str!("landing.css");

/// The maximum time to compute a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);

/// The header that asks for a password.
const CHALLENGE: &str = "Basic realm=\"orgdata-exporter\", charset=\"UTF-8\"";

/// The answer before the state file is open.
const STARTING: (StatusCode, &str) = (
    StatusCode::SERVICE_UNAVAILABLE,
    "orgdata-exporter is starting.\n",
);

/// Headers of every response, unless the configuration file sets them.
const HEADERS: [(HeaderName, &str); 5] = [
    (CACHE_CONTROL, "no-store"),
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'self'; img-src data:; frame-ancestors 'none'",
    ),
    (REFERRER_POLICY, "no-referrer"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
];

/// What the web surface shows.
#[derive(Clone, Debug)]
pub struct WebState {
    /// The metrics, and the state of each loop for the landing page.
    pub metrics: Metrics,
    /// The answers to probes.
    pub health: Health,
}

fn router(state: WebState, settings: &Settings) -> Router {
    let metrics_path = &*settings.telemetry_path;
    let paths = format!(
        "The metrics are at {metrics_path}, probes at {HEALTHY_PATH} and {READY_PATH}, a page for \
         people at /.\n"
    );
    let health = state.health.clone();
    let renderer = scrape::Renderer::new(state, metrics_path.to_owned());
    Router::new()
        .route(metrics_path, get(scrape::metrics))
        .route("/", get(scrape::page))
        .route(STYLE_PATH, get(([(CONTENT_TYPE, "text/css")], STYLE)))
        .with_state(renderer)
        .route(HEALTHY_PATH, get(healthy).with_state(health.clone()))
        .route(READY_PATH, get(ready).with_state(health))
        .method_not_allowed_fallback(async |method: Method| {
            let body = format!("{method} is not supported here; use GET or HEAD.\n");
            (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "GET, HEAD")], body)
        })
        .fallback(async move |uri: Uri| {
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
    State(config): State<WebConfig>,
    Extension(client): Extension<server::Client>,
    request: Request,
    next: Next,
) -> Response {
    let under_way = client.connection.begin_response();
    let current = config.current();
    let verdict = match () {
        () if !current.within_rate() => Verdict::Limited,
        () if current.users.is_empty() => Verdict::Allowed,
        () => {
            let given = auth::credentials(request.headers());
            let passwords = config.passwords();
            passwords.check(&current.users, given, client.address).await
        }
    };
    let mut response = match verdict {
        Verdict::Allowed => next.run(request).await,
        Verdict::Denied => {
            let challenge = [(WWW_AUTHENTICATE, CHALLENGE)];
            (StatusCode::UNAUTHORIZED, challenge, "Unauthorized\n").into_response()
        }
        Verdict::Limited => (StatusCode::TOO_MANY_REQUESTS, "Too many requests.\n").into_response(),
        Verdict::Busy => {
            let message = "Too many passwords are being checked.\n";
            (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, "5")], message).into_response()
        }
    };
    let usual = HEADERS.map(|(name, value)| (name, HeaderValue::from_static(value)));
    let headers = current.headers.iter().cloned().chain(usual);
    for (name, value) in headers {
        response.headers_mut().entry(name).or_insert(value);
    }
    response.map(|body| under_way.attach(body))
}

async fn healthy(State(health): State<Health>) -> Response {
    let stuck = health.stuck();
    if stuck.is_empty() {
        return "orgdata-exporter is healthy.\n".into_response();
    }
    let lines = stuck.iter().map(|stuck| {
        let (name, silent) = (stuck.which.as_str(), stuck.silent.as_secs());
        format!("The {name} loop has made no progress for {silent} s.\n")
    });
    (StatusCode::SERVICE_UNAVAILABLE, lines.collect::<String>()).into_response()
}

async fn ready(State(health): State<Health>) -> (StatusCode, &'static str) {
    match health.is_ready() {
        true => (StatusCode::OK, "orgdata-exporter is ready.\n"),
        false => STARTING,
    }
}
