//! Rendered texts, the metrics and the landing page: made off the runtime's threads, once for all
//! requests that wait for the same one.
//!
//! Clients that do not read must not fill the memory. So a response copies its body piece by piece
//! from a text that all responses share, and the oldest texts are dropped, which ends their
//! responses, when all that are in use are too large together.

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::sync::{Arc, Mutex as SyncMutex, Weak};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse, IntoResponseParts, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::stream;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, VARY};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use jiff::Timestamp;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::{WebState, landing, negotiate};
use crate::metrics::Metrics;
use crate::metrics::exposition::Format;
use crate::util::lock;

/// The size of the pieces in which a body is sent, in bytes.
const PIECE: usize = 16 * 1024;

/// The maximum size of all rendered texts in use, in bytes. The two newest are always kept.
const MAX_IN_USE: usize = 16 * 1024 * 1024;

/// How long a response waits for the start of the exporter. It is shorter than the time limit of a scrape.
const START_WAIT: Duration = Duration::from_secs(5);

/// Renders texts and shares them.
#[derive(Clone, Debug)]
pub(super) struct Renderer {
    state: WebState,
    telemetry_path: String,
    started: Timestamp,
    /// Locked while a text is rendered: one at a time.
    rendered: Arc<Mutex<VecDeque<Weak<Rendered>>>>,
}

/// A text at one moment.
#[derive(Debug)]
struct Rendered {
    started: Instant,
    form: Form,
    size: usize,
    /// `None` after the text was dropped to save memory.
    text: SyncMutex<Option<Vec<u8>>>,
}

/// What a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Metrics { format: Format, gzip: bool },
    Page,
}

/// Answers `GET` and `HEAD` of the metrics. For `HEAD` nothing is rendered: the response has no
/// length rather than a wrong one.
pub(super) async fn metrics(
    State(renderer): State<Renderer>,
    method: Method,
    headers: HeaderMap,
) -> Response {
    // Before the state file is open every counter is 0, and Prometheus would take that for a restart of the counters.
    if !renderer.state.health.ready_within(START_WAIT).await {
        return super::STARTING.into_response();
    }
    let (format, gzip) = (negotiate::format(&headers), negotiate::gzip(&headers));
    let scraped = negotiate::is_scraper(&headers).then(|| renderer.state.metrics.clone());
    let mut about = HeaderMap::new();
    about.insert(
        CONTENT_TYPE,
        HeaderValue::from_static(format.content_type()),
    );
    about.insert(VARY, HeaderValue::from_static("accept, accept-encoding"));
    if gzip {
        about.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    if method == Method::HEAD {
        let body = Body::from_stream(stream::empty::<io::Result<Bytes>>());
        return (about, body).into_response();
    }
    let form = Form::Metrics { format, gzip };
    renderer.response(form, about, scraped).await
}

/// Answers `GET /`.
pub(super) async fn page(State(renderer): State<Renderer>) -> Response {
    renderer.state.health.ready_within(START_WAIT).await;
    let about = [(CONTENT_TYPE, "text/html; charset=utf-8")];
    renderer.response(Form::Page, about, None).await
}

// === impl Renderer ===

impl Renderer {
    pub(super) fn new(state: WebState, telemetry_path: String) -> Self {
        let rendered = Arc::default();
        Self {
            state,
            telemetry_path,
            started: Timestamp::now(),
            rendered,
        }
    }

    /// Returns a response with a text. `scraped` notes when its connection has all of it.
    async fn response(
        &self,
        form: Form,
        about: impl IntoResponseParts,
        scraped: Option<Metrics>,
    ) -> Response {
        let rendered = match self.render(form).await {
            Ok(rendered) => rendered,
            Err(error) => {
                tracing::error!(%error, "cannot render a response");
                let message = "This could not be rendered; see the log.\n";
                return (StatusCode::INTERNAL_SERVER_ERROR, message).into_response();
            }
        };
        let size = rendered.size;
        let pieces = (0..size).step_by(PIECE).map(move |start| {
            let end = size.min(start + PIECE);
            let text = lock(&rendered.text);
            let piece = text.as_deref().and_then(|text| text.get(start..end));
            let piece = piece.map(Bytes::copy_from_slice);
            drop(text);
            if let (Some(_), true, Some(metrics)) = (&piece, end == size, &scraped) {
                metrics.audit.scraped(rendered.started);
            }
            piece.ok_or_else(|| io::Error::other("the client reads too slowly"))
        });
        let body = Body::from_stream(stream::iter(pieces));
        (about, [(CONTENT_LENGTH, size)], body).into_response()
    }

    /// Returns a text that is not older than the call. If other requests waited with this one, they
    /// share it.
    async fn render(&self, form: Form) -> io::Result<Arc<Rendered>> {
        let called = Instant::now();
        let mut shared = self.rendered.clone().lock_owned().await;
        let mut known = shared.iter().filter_map(Weak::upgrade);
        if let Some(rendered) = known.find(|old| old.form == form && old.started >= called) {
            return Ok(rendered);
        }
        let renderer = self.clone();
        // The lock is held until the end, also if the client disconnects meanwhile.
        let task = tokio::task::spawn_blocking(move || {
            let started = Instant::now();
            let text = renderer.text(form)?;
            let rendered = Arc::new(Rendered {
                started,
                form,
                size: text.len(),
                text: SyncMutex::new(Some(text)),
            });
            shared.retain(|other| other.strong_count() > 0);
            shared.push_back(Arc::downgrade(&rendered));
            drop_oldest(&mut shared);
            Ok(rendered)
        });
        task.await.map_err(io::Error::other)?
    }

    fn text(&self, form: Form) -> io::Result<Vec<u8>> {
        let Form::Metrics { format, gzip } = form else {
            return Ok(
                landing::render(&self.state, &self.telemetry_path, self.started).into_bytes(),
            );
        };
        let text = format.encode(self.state.metrics.registry());
        let mut text = text.map_err(io::Error::other)?.into_bytes();
        if gzip {
            // The lowest level takes an eighth of the time of the default and saves most of the size.
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(&text)?;
            text = encoder.finish()?;
        }
        text.shrink_to_fit();
        Ok(text)
    }
}

/// Drops the oldest texts until all are within the limit.
fn drop_oldest(shared: &mut VecDeque<Weak<Rendered>>) {
    let size = |rendered: &Weak<Rendered>| rendered.upgrade().map_or(0, |rendered| rendered.size);
    while shared.len() > 2 && shared.iter().map(size).sum::<usize>() > MAX_IN_USE {
        if let Some(oldest) = shared.pop_front().and_then(|oldest| oldest.upgrade()) {
            lock(&oldest.text).take();
        }
    }
}
