//! Faults on demand: what goes wrong, on which listing, how often.
//!
//! How faults are written is in `fault_text`.

use std::time::Duration;

use http::StatusCode;

/// One of the two listings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// `GET /v1/audit-logs`.
    Audit,
    /// `GET /v1/tickets`.
    Tickets,
}

/// How a 429 says when to come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryAfter {
    /// Not at all.
    Absent,
    /// In seconds.
    Seconds(u64),
    /// As an HTTP date, so long after now.
    Date(Duration),
}

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// A status with a message body.
    Status(StatusCode, String),
    /// 429.
    TooManyRequests(RetryAfter),
    /// 307 to another address.
    Redirect(String),
    /// The answer comes later.
    Delay(Duration),
    /// The connection is reset before an answer.
    Reset,
    /// The connection is reset in the middle of the body.
    ResetBody,
    /// Half of the body, honestly announced.
    TruncatedJson,
    /// Half of the announced body.
    TruncatedTransfer,
    /// Half of the body, then nothing.
    Stall,
    /// No answer.
    Hang,
    /// An HTML page.
    Html(StatusCode),
    /// No body.
    Empty(StatusCode),
    /// A valid page of at least so many bytes.
    Oversized(u64),
    /// Cursors are refused with a status.
    ExpiredCursor(StatusCode),
    /// Cursors are answered with an empty page.
    ExpiredCursorEmpty,
    /// Limits above this one fail.
    TooLarge(u64),
    /// Pages with this item fail.
    Poison(String),
    /// A page without items; with an offset, the page that holds it.
    EmptyPage(Option<u64>),
    /// Fields that the specification does not name.
    UnknownFields,
    /// The first item has values of the wrong types.
    WrongTypes,
    /// The first item has no id.
    MissingId,
    /// The first item is not an object.
    NotAnObject,
    /// The first item comes twice.
    Duplicate,
}

/// A fault, and when it strikes. It is parsed from and written as `KIND[=VALUE][,on=audit|tickets][,times=N][,every=N][,chance=P]`;
/// the kinds are those of [`FaultKind`], in kebab case, a plain status by its number.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// What goes wrong.
    pub kind: FaultKind,
    /// On which listing; `None`: on both.
    pub on: Option<Endpoint>,
    /// How many requests it hits before it is over; `None`: until it is cleared.
    pub times: Option<u64>,
    /// It hits only every n-th request that it could hit.
    pub every: Option<u64>,
    /// It hits with this probability, by the seed.
    pub chance: Option<f64>,
}

// === impl Fault ===

impl Fault {
    /// A fault that hits every request until it is cleared.
    pub fn new(kind: FaultKind) -> Self {
        Self {
            kind,
            on: None,
            times: None,
            every: None,
            chance: None,
        }
    }

    /// A status with a message.
    pub fn status(status: StatusCode) -> Self {
        Self::new(FaultKind::Status(
            status,
            format!("Simulated failure: {status}"),
        ))
    }

    /// On one listing only.
    #[must_use]
    pub fn on(self, endpoint: Endpoint) -> Self {
        Self {
            on: Some(endpoint),
            ..self
        }
    }

    /// For so many requests.
    #[must_use]
    pub fn times(self, times: u64) -> Self {
        Self {
            times: Some(times),
            ..self
        }
    }

    /// For one request.
    #[must_use]
    pub fn once(self) -> Self {
        self.times(1)
    }

    /// For every n-th request.
    #[must_use]
    pub fn every(self, every: u64) -> Self {
        Self {
            every: Some(every),
            ..self
        }
    }

    /// With this probability.
    #[must_use]
    pub fn chance(self, chance: f64) -> Self {
        Self {
            chance: Some(chance),
            ..self
        }
    }
}
