//! API keys and their scopes (section 5).
//!
//! The specification is silent on rejections. Here a missing or unknown key is answered with 401 and a key without the
//! scope with 403, both with a `message` as in section 7.1.

use std::str::FromStr;

use http::{HeaderMap, StatusCode};

/// An accepted API key with its scopes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKey {
    key: String,
    scopes: Vec<String>,
}

/// Returns the status and message of a rejection unless the request has a key with the scope.
pub(crate) fn check(
    keys: &[ApiKey],
    headers: &HeaderMap,
    scope: &str,
) -> Result<(), (StatusCode, String)> {
    let Some(given) = headers.get("x-api-key") else {
        let message = "Missing API key: send it in the X-API-Key header";
        return Err((StatusCode::UNAUTHORIZED, message.to_owned()));
    };
    let is_given = |key: &&ApiKey| key.key.as_bytes() == given.as_bytes();
    match keys.iter().find(is_given) {
        None => Err((StatusCode::UNAUTHORIZED, "Invalid API key".to_owned())),
        Some(key) if !key.grants(scope) => {
            Err((StatusCode::FORBIDDEN, "Insufficient scope".to_owned()))
        }
        Some(_) => Ok(()),
    }
}

// === impl ApiKey ===

impl ApiKey {
    /// Returns a key with these scopes.
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

/// Parses `KEY`, which has every scope, or `KEY=SCOPE,SCOPE`.
impl FromStr for ApiKey {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (key, scopes) = text.rsplit_once('=').unwrap_or((text, "*"));
        if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("a key consists of visible ASCII characters");
        }
        Ok(Self::scoped(key, &scopes.split(',').collect::<Vec<_>>()))
    }
}
