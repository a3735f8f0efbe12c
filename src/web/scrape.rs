//! The metrics: rendered off the runtime's threads, once for all requests that wait for it.
//!
//! Clients that do not read must not fill the memory. So a response copies its body piece by piece
//! from a rendered text that all responses share, and the oldest texts are dropped, which ends
//! their responses, when all that are in use are too large together.

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::pin::Pin;
use std::sync::{Arc, Mutex as SyncMutex, PoisonError, Weak};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, VARY};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use hyper::body::{Frame, SizeHint};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::negotiate;
use crate::metrics::Metrics;
use crate::metrics::exposition::Format;

/// The size of the pieces in which a body is sent, in bytes.
const PIECE: usize = 16 * 1024;

/// The maximum size of all rendered texts in use, in bytes. The two newest are always kept.
const MAX_IN_USE: usize = 16 * 1024 * 1024;

/// Renders the metrics and shares what was rendered.
#[derive(Clone, Debug)]
pub(super) struct Scraper {
    metrics: Metrics,
    /// Locked while the metrics are rendered: one rendering at a time.
    rendered: Arc<Mutex<VecDeque<Weak<Rendered>>>>,
}

/// The metrics at one moment.
#[derive(Debug)]
struct Rendered {
    started: Instant,
    form: Form,
    size: usize,
    /// `None` after the text was dropped to save memory.
    text: SyncMutex<Option<Vec<u8>>>,
}

/// The form in which a client wants the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Form {
    format: Format,
    gzip: bool,
}

/// The body of one response.
struct Pieces {
    rendered: Arc<Rendered>,
    position: usize,
    /// The metrics to tell about a complete response to a scraper.
    scraped: Option<Metrics>,
}

/// Answers `GET` and `HEAD`. For `HEAD` nothing is rendered: the response has no length rather than
/// a wrong one.
pub(super) async fn scrape(
    State(scraper): State<Scraper>,
    method: Method,
    headers: HeaderMap,
) -> Response {
    let form = Form {
        format: negotiate::format(&headers),
        gzip: negotiate::gzip(&headers),
    };
    let body = if method == Method::HEAD {
        Body::from_stream(futures_util::stream::empty::<io::Result<Bytes>>())
    } else {
        match scraper.render(form).await {
            Ok(rendered) => Body::new(Pieces {
                rendered,
                position: 0,
                scraped: negotiate::is_scraper(&headers).then_some(scraper.metrics),
            }),
            Err(error) => {
                tracing::error!(%error, "cannot render the metrics");
                let message = "The metrics could not be rendered; see the log.\n";
                return (StatusCode::INTERNAL_SERVER_ERROR, message).into_response();
            }
        }
    };
    let mut response = body.into_response();
    response.headers_mut().extend(form.headers());
    response
}

// === impl Scraper ===

impl Scraper {
    pub(super) fn new(metrics: Metrics) -> Self {
        let rendered = Arc::default();
        Self { metrics, rendered }
    }

    /// Returns metrics that are not older than the call. If other requests waited with this one,
    /// they share them.
    async fn render(&self, form: Form) -> io::Result<Arc<Rendered>> {
        let called = Instant::now();
        let mut shared = self.rendered.clone().lock_owned().await;
        let mut known = shared.iter().filter_map(Weak::upgrade);
        if let Some(rendered) = known.find(|old| old.form == form && old.started >= called) {
            return Ok(rendered);
        }
        let metrics = self.metrics.clone();
        // The lock is held until the end, also if the client disconnects meanwhile.
        let task = tokio::task::spawn_blocking(move || {
            let rendered = Arc::new(Rendered::new(&metrics, form)?);
            shared.retain(|other| other.strong_count() > 0);
            shared.push_back(Arc::downgrade(&rendered));
            drop_oldest(&mut shared);
            Ok(rendered)
        });
        task.await.map_err(io::Error::other)?
    }
}

/// Drops the oldest texts until all are within the limit.
fn drop_oldest(shared: &mut VecDeque<Weak<Rendered>>) {
    let size = |rendered: &Weak<Rendered>| rendered.upgrade().map_or(0, |rendered| rendered.size);
    while shared.len() > 2 && shared.iter().map(size).sum::<usize>() > MAX_IN_USE {
        if let Some(oldest) = shared.pop_front().and_then(|oldest| oldest.upgrade()) {
            oldest
                .text
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
        }
    }
}

// === impl Rendered ===

impl Rendered {
    fn new(metrics: &Metrics, form: Form) -> io::Result<Self> {
        let started = Instant::now();
        let text = form
            .format
            .encode(metrics.registry(), 0)
            .map_err(io::Error::other)?;
        let mut text = text.into_bytes();
        if form.gzip {
            // The lowest level takes an eighth of the time of the default and saves most of the size.
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(&text)?;
            text = encoder.finish()?;
        }
        text.shrink_to_fit();
        Ok(Self {
            started,
            form,
            size: text.len(),
            text: SyncMutex::new(Some(text)),
        })
    }
}

// === impl Form ===

impl Form {
    fn headers(self) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
        let content_type = (CONTENT_TYPE, self.format.content_type());
        let gzip = self.gzip.then_some((CONTENT_ENCODING, "gzip"));
        let all = [content_type, (VARY, "accept, accept-encoding")]
            .into_iter()
            .chain(gzip);
        all.map(|(name, value)| (name, HeaderValue::from_static(value)))
    }
}

// === impl Pieces ===

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let rendered = self.rendered.clone();
        if self.is_end_stream() {
            return Poll::Ready(None);
        }
        let text = rendered.text.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(text) = &*text else {
            return Poll::Ready(Some(Err(io::Error::other("the client reads too slowly"))));
        };
        let end = rendered.size.min(self.position + PIECE);
        let piece = Bytes::copy_from_slice(&text[self.position..end]);
        self.position = end;
        if end == rendered.size
            && let Some(metrics) = self.scraped.take()
        {
            metrics.audit.scraped(rendered.started);
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.position == self.rendered.size
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact((self.rendered.size - self.position) as u64)
    }
}
