//! API keys and their scopes (section 5).
//!
//! The specification is silent on refusals: a missing or unknown key is answered with 401, a key without the scope
//! with 403, both with a body of one property `message` as section 7.1 has it.

use std::convert::Infallible;
use std::str::FromStr;

use http::{HeaderMap, StatusCode};

/// A key that is accepted, with what it may do.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey {
    key: String,
    scopes: Vec<String>,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("Missing API key: send it in the X-API-Key header")]
    Missing,
    #[error("Invalid API key")]
    Unknown,
    #[error("The API key lacks the scope {0}")]
    Scope(&'static str),
}

// === impl ApiKey ===

impl ApiKey {
    /// A key with every right.
    pub fn full(key: &str) -> Self {
        Self::scoped(key, &["*"])
    }

    /// A key with these scopes.
    pub fn scoped(key: &str, scopes: &[&str]) -> Self {
        Self {
            key: key.to_owned(),
            scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
        }
    }

    fn grants(&self, scope: &str) -> bool {
        self.scopes.iter().any(|held| {
            held == "*" || held == scope || (held == "*:read" && scope.ends_with(":read"))
        })
    }
}

/// A key is a secret, also a made-up one: it never reaches a log by way of `Debug`.
impl std::fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiKey")
            .field("scopes", &self.scopes)
            .finish_non_exhaustive()
    }
}

/// `KEY` with every right, or `KEY=scope,scope`.
impl FromStr for ApiKey {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text.rsplit_once('=') {
            Some((key, scopes)) => {
                Self::scoped(key, &scopes.split(',').map(str::trim).collect::<Vec<_>>())
            }
            None => Self::full(text),
        })
    }
}

// === impl Refusal ===

impl Refusal {
    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::Missing | Self::Unknown => StatusCode::UNAUTHORIZED,
            Self::Scope(_) => StatusCode::FORBIDDEN,
        }
    }
}

/// Lets a request pass whose key has the scope.
pub(super) fn check(
    keys: &[ApiKey],
    headers: &HeaderMap,
    scope: &'static str,
) -> Result<(), Refusal> {
    let given = headers.get("x-api-key").ok_or(Refusal::Missing)?;
    let key = keys
        .iter()
        .find(|key| key.key.as_bytes() == given.as_bytes())
        .ok_or(Refusal::Unknown)?;
    if key.grants(scope) {
        Ok(())
    } else {
        Err(Refusal::Scope(scope))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_grant_what_the_specification_says() {
        let key = |text: &str| text.parse::<ApiKey>().unwrap();
        assert!(key("k").grants("tickets:read") && key("k=*").grants("activity_logs:read"));
        assert!(key("k=*:read").grants("tickets:read"));
        assert!(
            key("k=tickets:read").grants("tickets:read")
                && !key("k=tickets:read").grants("activity_logs:read")
        );
        assert!(key("k=activity_logs:read, tickets:read").grants("tickets:read"));
        assert!(!key("k=").grants("tickets:read"));
        assert_eq!(key("a=b=*").key, "a=b");
    }
}
