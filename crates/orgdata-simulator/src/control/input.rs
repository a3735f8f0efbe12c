//! What a control request says, checked: a wrong field is named.

use std::time::Duration;

use axum::Json;
use axum::body::to_bytes;
use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::super::patch::FieldError;
use super::super::query::Query;

/// Largest body of a control request, in bytes.
const LARGEST: usize = 256 << 20;

/// The body of a control request; no body is `{}`.
#[derive(Debug)]
pub(super) struct Given<T>(pub(super) T);

/// A control request that is not done.
#[derive(Debug)]
pub(super) struct Refused {
    status: StatusCode,
    field: Option<String>,
    message: String,
}

/// What a control request is answered with.
pub(super) type Done = Result<Json<serde_json::Value>, Refused>;

// === impl Given ===

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Given<T> {
    type Rejection = Refused;

    async fn from_request(request: Request, _: &S) -> Result<Self, Refused> {
        let body = to_bytes(request.into_body(), LARGEST)
            .await
            .map_err(|error| Refused::new(None, error.to_string()))?;
        let body = if body.is_empty() {
            b"{}".as_slice()
        } else {
            &body
        };
        match Json::from_bytes(body) {
            Ok(Json(given)) => Ok(Self(given)),
            Err(rejection) => Err(Refused::rejection(&rejection.body_text())),
        }
    }
}

// === impl Refused ===

impl Refused {
    pub(super) fn new(field: Option<String>, message: String) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            field,
            message,
        }
    }

    /// A field is wrong in this way.
    pub(super) fn field(field: &str, problem: &str) -> Self {
        Self::new(Some(field.to_owned()), format!("{field}: {problem}"))
    }

    /// The body was not what it should be. The reason begins with what failed and, when there is one, the path of the
    /// field.
    pub(super) fn rejection(text: &str) -> Self {
        let reason = text.split_once(": ").map_or(text, |(_, reason)| reason);
        let unknown = reason
            .split("unknown field `")
            .nth(1)
            .and_then(|rest| rest.split('`').next());
        let missing = || {
            reason
                .split("missing field `")
                .nth(1)
                .and_then(|rest| rest.split('`').next())
        };
        let path = || reason.split_once(": ").map(|(path, _)| path);
        let field = unknown.or_else(missing).or_else(path);
        Self::new(field.map(str::to_owned), reason.to_owned())
    }

    /// There is no such thing.
    pub(super) fn missing(message: String) -> Self {
        Self {
            status: StatusCode::NOT_FOUND,
            field: None,
            message,
        }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (
            self.status,
            Json(json!({ "message": self.message, "field": self.field })),
        )
            .into_response()
    }
}

impl From<FieldError> for Refused {
    fn from(error: FieldError) -> Self {
        Self::new(Some(error.field.clone()), error.to_string())
    }
}

/// A duration field.
pub(super) fn duration(field: &str, text: &str) -> Result<Duration, Refused> {
    humantime::parse_duration(text)
        .map_err(|error| Refused::field(field, &format!("{text:?}: {error}")))
}

/// A time field.
pub(super) fn time(field: &str, text: &str) -> Result<Timestamp, Refused> {
    text.parse()
        .map_err(|_| Refused::field(field, &format!("{text:?} is no RFC 3339 time")))
}

/// The query of a control request, whose parameters all have to be known.
pub(super) fn query(raw: Option<&str>, known: &[&str]) -> Result<Query, Refused> {
    let query = Query::parse(raw.unwrap_or_default());
    match query
        .pairs()
        .iter()
        .find(|(name, _)| !known.contains(&name.as_str()))
    {
        Some((name, _)) => Err(Refused::field(
            name,
            &format!("no such parameter; there are {}", known.join(", ")),
        )),
        None => Ok(query),
    }
}
