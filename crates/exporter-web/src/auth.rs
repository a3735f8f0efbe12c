//! Basic authentication: passwords are checked one at a time off the runtime's threads, and the right ones are cached, so
//! that a flood of wrong passwords does not stall a scraper.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bcrypt::HashParts;
use ring::digest::{SHA256, digest};

use crate::lock;

/// Locked during a check: bcrypt uses a whole processor, and a second check at a time would leave a small machine none.
static CHECKING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Digests of credentials that were found right, with the hash. So a change of the file that leaves the hash costs no new
/// check.
static ALLOWED: Mutex<BTreeSet<Vec<u8>>> = Mutex::new(BTreeSet::new());

/// The bcrypt hash of each user's password.
#[derive(Default)]
pub(crate) struct Users(BTreeMap<String, String>);

/// Returns user and password of a request (RFC 7617), with a colon between them.
fn credentials(headers: &HeaderMap) -> Option<String> {
    let (scheme, encoded) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = BASE64_STANDARD.decode(encoded.trim()).ok()?;
    String::from_utf8(decoded).ok()
}

// === impl Users ===

impl Users {
    pub(crate) fn new(hashes: BTreeMap<String, String>) -> Result<Self, String> {
        for (user, hash) in &hashes {
            if hash.parse::<HashParts>().is_err() {
                return Err(format!(
                    "basic_auth_users.{}: this is not a bcrypt hash; create one with `htpasswd -nBC 10 \"\" | tr -d ':\\n'`",
                    user.escape_debug()
                ));
            }
        }
        Ok(Self(hashes))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether a request has the password of a user, or needs none. If the client disconnects, a check that has
    /// begun goes on, and its outcome is cached.
    pub(crate) async fn allow(&self, headers: &HeaderMap) -> bool {
        let Some(any) = self.0.values().next() else {
            return true;
        };
        let credentials = credentials(headers).unwrap_or_default();
        let Some((user, password)) = credentials.split_once(':') else {
            return false;
        };
        // The password of an unknown user is compared with a hash too: an answer at once would tell which users exist.
        let exists = self.0.contains_key(user);
        let hash = self.0.get(user).unwrap_or(any).clone();
        let text = format!("{hash}\n{credentials}");
        let checked = digest(&SHA256, text.as_bytes()).as_ref().to_vec();
        let is_cached = || lock(&ALLOWED).contains(&checked);
        if is_cached() {
            return true;
        }
        let turn = CHECKING.lock().await;
        // Another request may have checked the same password meanwhile.
        if is_cached() {
            return true;
        }
        let password = password.to_owned();
        let check = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let is_right = bcrypt::verify(password, &hash).unwrap_or(false) && exists;
            if is_right {
                lock(&ALLOWED).insert(checked);
            }
            is_right
        });
        check.await.unwrap_or(false)
    }
}
