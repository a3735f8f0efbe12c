//! The web surface: metrics for scrapers, health for probes, and a page for people.

mod activity;
pub mod address;
pub mod config;
mod connection;
mod format;
mod guard;
mod landing;
pub mod listen;
pub mod overview;
mod pool;
mod protocol;
mod scrape;
pub mod server;
pub mod settings;

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::middleware::from_fn_with_state;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use http::header::{CONTENT_SECURITY_POLICY, HeaderValue};
use http::{Method, StatusCode, Uri};

pub use crate::health::Health;
pub use address::{ListenAddress, ListenAddressError};
pub use config::{ConfigError, WebConfig};
pub use listen::{BindError, Bound, bind, try_bind};
pub use overview::Overview;
pub use server::serve;
pub use settings::{Limits, Settings, TelemetryPath, TelemetryPathError};

use crate::metrics::Metrics;

/// Answers whether the process turns.
pub(crate) const HEALTHY_PATH: &str = "/-/healthy";

/// Answers whether the exporter is set up.
const READY_PATH: &str = "/-/ready";

/// What the web surface shows.
#[derive(Clone)]
pub struct WebState {
    /// The metrics of a scrape, and the state of each loop for the landing page.
    pub metrics: Metrics,
    /// What the probes ask for.
    pub health: Health,
    /// Gathers the rows of the landing page. Called off the runtime's threads, once a page: it may lock, or read the ledger.
    pub overview: Arc<dyn Fn() -> Overview + Send + Sync>,
}

#[derive(Clone)]
struct Page {
    state: WebState,
    telemetry_path: TelemetryPath,
}

// === impl WebState ===

impl fmt::Debug for WebState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebState")
            .field("health", &self.health)
            .finish_non_exhaustive()
    }
}

/// The routes. A `HEAD` of the metrics has its own handler: axum would run the one of `GET`, and that counts as a scrape.
fn router(state: WebState, telemetry_path: &TelemetryPath, config: Option<WebConfig>) -> Router {
    let nowhere = not_found(telemetry_path);
    Router::new()
        .route(telemetry_path.as_str(), get(scrape::get).head(scrape::head))
        .with_state(scrape::Scraper::new(state.metrics.clone()))
        .route(HEALTHY_PATH, get(healthy))
        .route(READY_PATH, get(ready))
        .with_state(state.health.clone())
        .route("/", get(page))
        .with_state(Page {
            state,
            telemetry_path: telemetry_path.clone(),
        })
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(move |uri: Uri| async move {
            (
                StatusCode::NOT_FOUND,
                format!("There is nothing at {}. {nowhere}", uri.path()),
            )
        })
        .layer(from_fn_with_state(config, guard::guard))
}

async fn healthy(State(health): State<Health>) -> Response {
    let stuck = health.stuck();
    if stuck.is_empty() {
        return "orgdata-exporter is healthy.\n".into_response();
    }
    let stuck: String = stuck
        .iter()
        .map(|stuck| {
            format!(
                "The loop {} has not turned for {}.\n",
                stuck.which.as_str(),
                format::duration(stuck.silent)
            )
        })
        .collect();
    (StatusCode::SERVICE_UNAVAILABLE, stuck).into_response()
}

async fn ready(State(health): State<Health>) -> Response {
    if health.is_ready() {
        "orgdata-exporter is ready.\n".into_response()
    } else {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "orgdata-exporter is starting or stopping.\n",
        )
            .into_response()
    }
}

async fn page(State(page): State<Page>) -> Response {
    // A nonce for the one style sheet, so that a name that slipped through the escaping could not bring its own.
    let nonce = uuid::Uuid::new_v4().simple().to_string();
    let policy = format!(
        "default-src 'none'; style-src 'nonce-{nonce}'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let rendered = tokio::task::spawn_blocking(move || {
        let overview = (page.state.overview)();
        landing::Landing {
            now: jiff::Timestamp::now(),
            loops: crate::metrics::Loop::ALL
                .map(|which| (which, page.state.metrics.loops.state(which))),
            stuck: page.state.health.stuck(),
            ready: page.state.health.is_ready(),
            overview,
            telemetry_path: page.telemetry_path.as_str(),
            nonce: &nonce,
        }
        .render()
    });
    match (rendered.await, HeaderValue::try_from(policy)) {
        (Ok(html), Ok(policy)) => ([(CONTENT_SECURITY_POLICY, policy)], Html(html)).into_response(),
        (failed, _) => {
            tracing::error!(failed = ?failed.err(), "the landing page could not be made");
            (
                StatusCode::INTERNAL_SERVER_ERROR,
                "The page could not be made; the log says more.\n",
            )
                .into_response()
        }
    }
}

async fn method_not_allowed(method: Method) -> Response {
    // Nothing here changes anything, so there is nothing to POST.
    (
        StatusCode::METHOD_NOT_ALLOWED,
        [(http::header::ALLOW, "GET, HEAD")],
        format!("{method} is not possible here; GET and HEAD are.\n"),
    )
        .into_response()
}

fn not_found(telemetry_path: &TelemetryPath) -> String {
    format!(
        "The metrics are at {telemetry_path}, probes at {HEALTHY_PATH} and {READY_PATH}, a page for people at /.\n"
    )
}
