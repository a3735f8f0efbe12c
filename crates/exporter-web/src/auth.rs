//! Basic authentication: passwords are checked one at a time off the runtime's threads, and the right ones are cached, so
//! that a flood of wrong passwords does not stall a scraper.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};

use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bcrypt::HashParts;
use ring::digest;
use secrecy::{ExposeSecret as _, SecretString};

use crate::lock;

/// The header that asks for a password.
const CHALLENGE: &str = "Basic realm=\"metrics\", charset=\"UTF-8\"";

/// The users of a configuration file, with their bcrypt hashes.
pub(crate) type Users = BTreeMap<String, SecretString>;

/// Checks passwords.
#[derive(Debug, Default)]
pub(crate) struct PasswordVerifier {
    /// Digests of right passwords with their hashes.
    allowed: Arc<Mutex<HashSet<Vec<u8>>>>,
    /// bcrypt uses a whole processor; a second check at a time would leave a small machine none.
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// Checks the hashes of users.
pub(crate) fn check_hashes(users: &Users) -> Result<(), String> {
    let is_wrong = |hash: &SecretString| hash.expose_secret().parse::<HashParts>().is_err();
    let Some((user, _)) = users.iter().find(|(_, hash)| is_wrong(hash)) else {
        return Ok(());
    };
    Err(format!(
        "basic_auth_users.{}: this is not a bcrypt hash; create one with `htpasswd -nBC 10 \"\" | tr -d ':\\n'`",
        user.escape_debug()
    ))
}

/// Returns user and password of a request (RFC 7617).
fn credentials(headers: &HeaderMap) -> Option<(String, SecretString)> {
    let (scheme, encoded) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = BASE64_STANDARD.decode(encoded.trim()).ok()?;
    let decoded = SecretString::from(String::from_utf8(decoded).ok()?);
    let (user, password) = decoded.expose_secret().split_once(':')?;
    Some((user.to_owned(), password.into()))
}

fn denied() -> Response {
    let challenge = [(WWW_AUTHENTICATE, CHALLENGE)];
    (StatusCode::UNAUTHORIZED, challenge, "Unauthorized\n").into_response()
}

// === impl PasswordVerifier ===

impl PasswordVerifier {
    /// Checks the password of a request, or returns the response that denies it. If the client disconnects, a check that has
    /// begun goes on, and its outcome is cached.
    pub(crate) async fn check(&self, users: &Users, headers: &HeaderMap) -> Result<(), Response> {
        // The password of an unknown user is compared with a hash too, so that an answer at once does not tell which users
        // exist.
        let Some(any) = users.values().next() else {
            return Ok(());
        };
        let (user, password) = credentials(headers).ok_or_else(denied)?;
        let exists = users.contains_key(&user);
        let hash = users.get(&user).unwrap_or(any).clone();
        // A hash has a fixed length, so it acts as salt.
        let text = SecretString::from([hash.expose_secret(), password.expose_secret()].concat());
        let digest = digest::digest(&digest::SHA256, text.expose_secret().as_bytes());
        let digest = digest.as_ref().to_vec();
        let allowed = self.allowed.clone();
        let is_cached = || exists && lock(&allowed).contains(&digest);
        if is_cached() {
            return Ok(());
        }
        let turn = self.turn.clone().lock_owned().await;
        // Another request may have checked the same password meanwhile.
        if is_cached() {
            return Ok(());
        }
        let check = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let verified = bcrypt::verify(password.expose_secret(), hash.expose_secret());
            let is_right = verified.unwrap_or(false) && exists;
            if is_right {
                lock(&allowed).insert(digest);
            }
            is_right
        });
        match check.await {
            Ok(true) => Ok(()),
            _ => Err(denied()),
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn credentials_are_parsed() {
        for (value, expected) in [
            ("Basic YWxpY2U6YTpi", Some("alice a:b")),
            ("basic YWxpY2U6", Some("alice ")),
            ("Basic", None),
            ("Basic !", None),
            ("Basic YWxpY2U=", None),
            ("Bearer YWxpY2U6YTpi", None),
            ("Basic /w==", None),
            ("", None),
        ] {
            let value = HeaderValue::from_static(value);
            let parsed = credentials(&HeaderMap::from_iter([(AUTHORIZATION, value.clone())]));
            let parsed = parsed.map(|(user, word)| format!("{user} {}", word.expose_secret()));
            assert_eq!(parsed.as_deref(), expected, "{value:?}");
        }
    }
}
