//! What a connection is doing: waiting for headers, answering, idle.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use tokio::time::Instant;

/// What a connection is doing, shared between its stream, its service and the acceptor.
#[derive(Debug)]
pub(super) struct Activity(Mutex<State>);

#[derive(Debug)]
struct State {
    phase: Phase,
    since: Instant,
    /// When each answer that is on its way was begun.
    answers: BTreeMap<u64, Instant>,
    /// How many answers were begun.
    begun: u64,
    /// The client does not read what was written to it.
    blocked: bool,
    /// Bytes are not the beginning of a request: HTTP/2 has others.
    multiplexed: bool,
}

/// What a connection waits for while nothing is being answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The headers of a request: from the connection, or from the first byte of a further request.
    Headers,
    /// A further request.
    Idle,
}

/// One answer, on its way for as long as this lives.
pub(super) struct Answering(Arc<Activity>, u64);

/// An answer's body, which ends the answer when it ends.
struct AnswerBody {
    body: Body,
    _answering: Answering,
}

// === impl Activity ===

impl Activity {
    /// A connection that was just accepted.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(State {
            phase: Phase::Headers,
            since: Instant::now(),
            answers: BTreeMap::new(),
            begun: 0,
            blocked: false,
            multiplexed: false,
        })))
    }

    /// A request arrived; it is being answered until the guard is dropped.
    pub(super) fn answering(self: &Arc<Self>) -> Answering {
        let mut state = self.state();
        let id = state.begun;
        state.begun += 1;
        state.answers.insert(id, Instant::now());
        Answering(self.clone(), id)
    }

    /// The connection speaks HTTP/2.
    pub(super) fn multiplexes(&self) {
        self.state().multiplexed = true;
    }

    /// When the oldest answer was begun that is still on its way.
    pub(super) fn oldest_answer(&self) -> Option<Instant> {
        self.state()
            .answers
            .first_key_value()
            .map(|(_, since)| *since)
    }

    /// Since when nothing would be lost if the connection were closed; `None` while an answer is on its way.
    pub(super) fn disposable_since(&self) -> Option<Instant> {
        let state = self.state();
        (state.answers.is_empty() && !state.blocked).then_some(state.since)
    }

    /// Bytes arrived from the client.
    pub(super) fn received(&self) {
        let mut state = self.state();
        if state.phase == Phase::Idle && state.answers.is_empty() && !state.multiplexed {
            (state.phase, state.since) = (Phase::Headers, Instant::now());
        }
    }

    /// Since when the headers of a request are awaited.
    pub(super) fn headers_since(&self) -> Option<Instant> {
        let state = self.state();
        (state.answers.is_empty() && state.phase == Phase::Headers).then_some(state.since)
    }

    /// Whether the client leaves what was written to it.
    pub(super) fn set_blocked(&self, blocked: bool) {
        self.state().blocked = blocked;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Answering ===

impl Answering {
    /// Ties the guard to a body: hyper drops it when it has written the last of it.
    pub(super) fn until_end_of(self, body: Body) -> Body {
        Body::new(AnswerBody {
            body,
            _answering: self,
        })
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.answers.remove(&self.1);
        (state.phase, state.since) = (Phase::Idle, Instant::now());
    }
}

// === impl AnswerBody ===

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}
