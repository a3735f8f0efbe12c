//! Faults: what goes wrong, on which listing, how often.
//!
//! As JSON a fault is `{"kind": {"status": 503}, "on": "audit", "times": 3}`, or `{"kind": "hang"}` for a kind without a
//! value. On the command line a kind is `status=503` or `hang`.

use std::str::FromStr;
use std::time::Duration;

use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// One of the two listings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Endpoint {
    /// `GET /v1/audit-logs`.
    Audit,
    /// `GET /v1/tickets`.
    Tickets,
}

/// The `Retry-After` header of a 429, as JSON null, a number of seconds, or a duration like `"90s"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RetryAfter {
    /// No header.
    Absent,
    /// A number of seconds.
    Seconds(u64),
    /// An HTTP date, this long after now.
    Date(#[serde(with = "duration")] Duration),
}

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// A status with a message body.
    Status(#[serde(with = "status")] StatusCode),
    /// Status 429.
    #[serde(rename = "retry-after")]
    TooManyRequests(RetryAfter),
    /// The response comes later. Another fault may strike as well.
    Delay(#[serde(with = "duration")] Duration),
    /// The connection ends before the response.
    Reset,
    /// The connection ends in the middle of the body.
    ResetBody,
    /// Half of the body, with a `Content-Length` that says so.
    TruncatedJson,
    /// No response.
    Hang,
    /// An HTML page.
    Html(#[serde(with = "status")] StatusCode),
    /// No body.
    Empty(#[serde(with = "status")] StatusCode),
    /// Cursors are rejected.
    ExpiredCursor(#[serde(with = "status")] StatusCode),
    /// Limits above this one fail with 500.
    TooLarge(u64),
    /// Pages with the item of this id fail with 500.
    Poison(String),
    /// A page without items.
    EmptyPage,
    /// Fields that the specification does not have.
    UnknownFields,
    /// The first item comes twice.
    Duplicate,
}

/// A fault, and when it strikes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// What goes wrong.
    pub kind: FaultKind,
    /// The listing it strikes; `None` for both.
    pub on: Option<Endpoint>,
    /// The number of requests it strikes; `None` until it is removed.
    pub times: Option<u64>,
    /// It strikes only every n-th request that it could strike.
    pub every: Option<u64>,
    /// The number of requests that it could strike so far.
    #[serde(skip)]
    pub(crate) seen: u64,
}

// === impl Fault ===

impl Fault {
    /// Returns a fault that strikes every request until it is removed.
    pub fn new(kind: FaultKind) -> Self {
        Self {
            kind,
            on: None,
            times: None,
            every: None,
            seen: 0,
        }
    }

    /// Returns a fault with this status.
    pub fn status(status: StatusCode) -> Self {
        Self::new(FaultKind::Status(status))
    }

    /// Limits the fault to one listing.
    #[must_use]
    pub fn on(mut self, endpoint: Endpoint) -> Self {
        self.on = Some(endpoint);
        self
    }

    /// Limits the fault to this number of requests.
    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.times = Some(times);
        self
    }

    /// Limits the fault to every n-th request that it could strike.
    #[must_use]
    pub fn every(mut self, every: u64) -> Self {
        self.every = Some(every);
        self
    }

    /// Limits the fault to one request.
    #[must_use]
    pub fn once(self) -> Self {
        self.times(1)
    }
}

/// Parses a kind: `KIND` or `KIND=VALUE`. A value that is not JSON is a string.
impl FromStr for Fault {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> Result<Self, serde_json::Error> {
        let kind = match text.split_once('=') {
            None => text.into(),
            Some((name, value)) => {
                let value: Value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
                json!({ name: value })
            }
        };
        serde_json::from_value(kind).map(Self::new)
    }
}

/// A status as its number.
mod status {
    use http::StatusCode;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(status: &StatusCode, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u16(status.as_u16())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<StatusCode, D::Error> {
        StatusCode::from_u16(u16::deserialize(from)?).map_err(D::Error::custom)
    }
}

/// A duration as text like `90s` or `1h 30m`.
pub(crate) mod duration {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&humantime::format_duration(*duration))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        parse(&String::deserialize(from)?).map_err(D::Error::custom)
    }

    /// Parses a duration. humantime reads `M` as months, which is hardly ever meant.
    pub(crate) fn parse(text: &str) -> Result<Duration, String> {
        let mut units = text.split(|letter: char| !letter.is_alphabetic());
        if units.any(|unit| unit == "M") {
            return Err("M would be months; write 1m for a minute".to_owned());
        }
        humantime::parse_duration(text).map_err(|error| error.to_string())
    }
}
