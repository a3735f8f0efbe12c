//! The endpoints: metrics for scrapers, health for probes, and a page for people.
//!
//! Texts are rendered off the runtime's threads, one at a time, and once for all requests that wait for the same one. So in
//! a flood of requests a scrape waits for two texts at most. It never waits until another client has read: if there are too
//! many texts, the oldest one goes, and the connections of those that still read it are closed.

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::stream;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, VARY};
use http::{HeaderMap, StatusCode, Uri};
use jiff::Timestamp;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::health::{HEALTHY_PATH, Health, READY_PATH};
use crate::landing::{self, Landing, STYLE, STYLE_PATH};
use crate::metrics::Metrics;
use crate::metrics::exposition::Format;
use crate::metrics::negotiate;
use crate::util::{lock, shown_wait};

/// The size of the pieces in which a text is sent, in bytes.
const PIECE: usize = 16 * 1024;

/// The maximum number of texts in memory. One stays there until all clients that share it have it, or it is the oldest one.
const MAX_TEXTS: usize = 8;

/// How long a response waits for the start of the exporter. It is shorter than the time limit of a scrape.
const START_WAIT: Duration = Duration::from_secs(5);

/// The answer before the state file is open.
const STARTING: (StatusCode, &str) = (
    StatusCode::SERVICE_UNAVAILABLE,
    "orgdata-exporter is starting.\n",
);

/// Renders texts and shares them.
#[derive(Clone, Debug)]
struct Renderer {
    landing: Arc<Landing>,
    /// The texts that clients read, the oldest first. Locked while a text is rendered.
    texts: Arc<Mutex<VecDeque<Weak<Rendered>>>>,
}

/// A response body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct View {
    audience: Audience,
    gzip: bool,
}

/// The kind of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Audience {
    /// A scraper, which sees the first increase of a series after the hold.
    Scraper(Format),
    /// Any other reader of the metrics.
    Anybody(Format),
    /// A reader of the landing page.
    Reader,
}

/// A text at one moment.
#[derive(Debug)]
struct Rendered {
    view: View,
    begun: Instant,
    size: usize,
    /// Empty once it had to go.
    bytes: std::sync::Mutex<Vec<u8>>,
}

/// Returns the endpoints of an exporter.
pub fn router(metrics: Metrics, health: Health, telemetry_path: &str) -> Router {
    let paths = format!(
        "The metrics are at {telemetry_path}, probes at {HEALTHY_PATH} and {READY_PATH}, a page for people at /.\n"
    );
    let landing = Landing {
        metrics,
        health: health.clone(),
        telemetry_path: telemetry_path.to_owned(),
        started: Timestamp::now(),
    };
    let renderer = Renderer {
        landing: Arc::new(landing),
        texts: Arc::default(),
    };
    Router::new()
        .route(telemetry_path, get(scrape))
        .route("/", get(page))
        .route(STYLE_PATH, get(([(CONTENT_TYPE, "text/css")], STYLE)))
        .with_state(renderer)
        .route(HEALTHY_PATH, get(healthy))
        .route(READY_PATH, get(ready))
        .with_state(health)
        .fallback(async move |uri: Uri| {
            let body = format!("There is nothing at {}. {paths}", uri.path());
            (StatusCode::NOT_FOUND, body)
        })
}

async fn scrape(State(renderer): State<Renderer>, headers: HeaderMap) -> Response {
    // Before the state file is open every counter is 0, and Prometheus would take that for a restart of the counters.
    if !renderer.landing.health.ready_within(START_WAIT).await {
        return STARTING.into_response();
    }
    let format = negotiate::format(&headers);
    let audience = match negotiate::is_scraper(&headers) {
        true => Audience::Scraper(format),
        false => Audience::Anybody(format),
    };
    let gzip = negotiate::accepts_gzip(&headers);
    let view = View { audience, gzip };
    let response = renderer.response(view, format.content_type()).await;
    ([(VARY, "accept, accept-encoding")], response).into_response()
}

async fn page(State(renderer): State<Renderer>) -> Response {
    renderer.landing.health.ready_within(START_WAIT).await;
    let view = View {
        audience: Audience::Reader,
        gzip: false,
    };
    renderer.response(view, "text/html; charset=utf-8").await
}

async fn healthy(State(health): State<Health>) -> Response {
    let stuck = health.stuck();
    if stuck.is_empty() {
        return "orgdata-exporter is healthy.\n".into_response();
    }
    let lines = stuck.iter().map(|stuck| {
        let (name, seconds) = (stuck.which.as_ref(), stuck.silent.as_secs());
        tracing::warn!(loop = name, silent = %shown_wait(stuck.silent), "the loop makes no progress");
        format!("The {name} loop has made no progress for {seconds} s.\n")
    });
    let lines: String = lines.collect();
    (StatusCode::SERVICE_UNAVAILABLE, lines).into_response()
}

async fn ready(State(health): State<Health>) -> (StatusCode, &'static str) {
    match health.is_ready() {
        true => (StatusCode::OK, "orgdata-exporter is ready.\n"),
        false => STARTING,
    }
}

// === impl Renderer ===

impl Renderer {
    /// Returns a response with a text. It notes when the connection of a scraper has all of it.
    async fn response(&self, view: View, content_type: &'static str) -> Response {
        let rendered = match self.render(view).await {
            Ok(rendered) => rendered,
            Err(error) => {
                tracing::error!(%error, "cannot render a response");
                let message = "The page could not be rendered; see the log.\n";
                return (StatusCode::INTERNAL_SERVER_ERROR, message).into_response();
            }
        };
        let size = rendered.size;
        let landing = self.landing.clone();
        let pieces = (0..size).step_by(PIECE).map(move |start| {
            let end = size.min(start + PIECE);
            let bytes = lock(&rendered.bytes);
            let piece = bytes.get(start..end).map(Bytes::copy_from_slice);
            let piece = piece.ok_or_else(|| io::Error::other("the client is too slow"))?;
            if let (Audience::Scraper(_), true) = (view.audience, end == size) {
                landing.metrics.audit.scraped(rendered.begun);
            }
            Ok::<_, io::Error>(piece)
        });
        let headers = [
            (CONTENT_TYPE, content_type.to_owned()),
            (CONTENT_LENGTH, size.to_string()),
        ];
        let encoding = view.gzip.then_some([(CONTENT_ENCODING, "gzip")]);
        let body = Body::from_stream(stream::iter(pieces));
        (headers, encoding, body).into_response()
    }

    /// Returns a text that is not older than the call. If other requests waited with this one, they share it.
    async fn render(&self, view: View) -> io::Result<Arc<Rendered>> {
        let called = Instant::now();
        let mut texts = self.texts.clone().lock_owned().await;
        let mut known = texts.iter().filter_map(Weak::upgrade);
        if let Some(same) = known.find(|known| known.view == view && known.begun >= called) {
            return Ok(same);
        }
        let landing = self.landing.clone();
        // The lock is held until the end, also if the client disconnects meanwhile.
        let task = tokio::task::spawn_blocking(move || {
            let begun = Instant::now();
            let metrics = &landing.metrics;
            let text = match view.audience {
                Audience::Scraper(format) => format.encode(metrics.registry()),
                Audience::Anybody(format) => format.encode(metrics.true_values()),
                Audience::Reader => Ok(landing::render(&landing)),
            };
            let mut bytes = text.map_err(io::Error::other)?.into_bytes();
            if view.gzip {
                // The lowest level takes an eighth of the time of the default and saves most of the size.
                let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
                encoder.write_all(&bytes)?;
                bytes = encoder.finish()?;
            }
            let rendered = Arc::new(Rendered {
                view,
                begun,
                size: bytes.len(),
                bytes: bytes.into(),
            });
            texts.retain(|text| text.strong_count() > 0);
            texts.push_back(Arc::downgrade(&rendered));
            if texts.len() > MAX_TEXTS {
                let oldest = texts.pop_front().and_then(|text| text.upgrade());
                oldest.map(|text| std::mem::take(&mut *lock(&text.bytes)));
            }
            Ok(rendered)
        });
        task.await.map_err(io::Error::other)?
    }
}
