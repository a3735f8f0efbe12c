//! Basic authentication: passwords are checked one at a time off the runtime's threads, and the
//! right ones are cached, so that a flood of wrong passwords does not stall a scraper.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, Weak};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use ring::digest;
use secrecy::{ExposeSecret as _, SecretString};

use crate::util::lock;

/// The maximum cost of a hash. Each step doubles the time: 10 takes 70 ms, 18 takes 20 s.
const MAX_COST: u32 = 18;

/// The maximum number of checks that wait, for one client and for all.
const MAX_WAITING: (usize, usize) = (4, 64);

/// The users of a configuration file, with their bcrypt hashes.
pub(super) type Users = BTreeMap<String, SecretString>;

/// Whether a request is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Allowed,
    Denied,
    /// The rate limit is reached.
    Limited,
    /// Too many other checks are waiting.
    Busy,
}

/// Checks passwords.
#[derive(Debug, Default)]
pub(super) struct PasswordVerifier(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// For each user a digest of the right password.
    allowed: Mutex<HashMap<String, Vec<u8>>>,
    /// bcrypt uses a whole processor; a second check at a time would leave a small machine none.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// The checks that wait.
    waiting: Mutex<Vec<Weak<Waiting>>>,
}

/// A place among the checks that wait: that of this client, until it is dropped.
type Waiting = Option<IpAddr>;

/// A user and a password.
pub(super) type Credentials = (String, SecretString);

/// Returns user and password of a request (RFC 7617).
pub(super) fn credentials(headers: &HeaderMap) -> Option<Credentials> {
    let (scheme, encoded) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = BASE64_STANDARD.decode(encoded.trim()).ok()?;
    let decoded = SecretString::from(String::from_utf8(decoded).ok()?);
    let (user, password) = decoded.expose_secret().split_once(':')?;
    Some((user.to_owned(), password.into()))
}

/// Checks the hashes of users.
pub(super) fn check_hashes(users: &Users) -> Result<(), String> {
    let is_wrong = |hash: &SecretString| !(4..=MAX_COST).contains(&cost(hash));
    let Some((user, _)) = users.iter().find(|(_, hash)| is_wrong(hash)) else {
        return Ok(());
    };
    Err(format!(
        "basic_auth_users.{user}: this is not a bcrypt hash with a cost of 4 to {MAX_COST}; create \
         one with `htpasswd -nBC 10 \"\" | tr -d ':\\n'`",
        user = user.escape_debug()
    ))
}

/// Returns the cost of a bcrypt hash, 0 if it is none.
fn cost(hash: &SecretString) -> u32 {
    let parts = hash.expose_secret().parse::<bcrypt::HashParts>();
    parts.map_or(0, |parts| parts.get_cost())
}

// === impl PasswordVerifier ===

impl PasswordVerifier {
    /// Checks a password. If the client disconnects, the check goes on and its outcome is cached.
    pub(super) async fn check(
        &self,
        users: &Users,
        given: Option<Credentials>,
        client: Option<IpAddr>,
    ) -> Verdict {
        let Some((user, password)) = given else {
            return Verdict::Denied;
        };
        let inner = self.0.clone();
        let known = users.get(&user);
        // The password of an unknown user is compared with the most expensive hash, so that the time
        // of the answer does not tell which users exist.
        let decoy = users.values().max_by_key(|hash| cost(hash));
        let Some(hash) = known.or(decoy).cloned() else {
            return Verdict::Denied;
        };
        let exists = known.is_some();
        // A hash has a fixed length, so it acts as salt.
        let text = [hash.expose_secret(), password.expose_secret()].concat();
        let text = SecretString::from(text);
        let digest = digest::digest(&digest::SHA256, text.expose_secret().as_bytes());
        let digest = digest.as_ref().to_vec();
        let is_cached = || exists && lock(&inner.allowed).get(&user) == Some(&digest);
        if is_cached() {
            return Verdict::Allowed;
        }
        let Some(waiting) = inner.wait(client) else {
            return Verdict::Busy;
        };
        let turn = inner.turn.clone().lock_owned().await;
        // Another request may have checked the same password meanwhile.
        if is_cached() {
            return Verdict::Allowed;
        }
        let check = tokio::task::spawn_blocking(move || {
            let _held = (turn, waiting);
            let matches = bcrypt::verify(password.expose_secret(), hash.expose_secret());
            if !exists || !matches.unwrap_or(false) {
                return Verdict::Denied;
            }
            lock(&inner.allowed).insert(user, digest);
            Verdict::Allowed
        });
        check.await.unwrap_or(Verdict::Busy)
    }
}

// === impl Inner ===

impl Inner {
    /// Returns a place among the checks that wait, if there is one for this client.
    fn wait(&self, client: Option<IpAddr>) -> Option<Arc<Waiting>> {
        let (of_client, of_all) = MAX_WAITING;
        let mut waiting = lock(&self.waiting);
        waiting.retain(|other| other.strong_count() > 0);
        let clients = waiting.iter().filter_map(Weak::upgrade);
        let count = clients.filter(|other| **other == client).count();
        if count >= of_client || waiting.len() >= of_all {
            return None;
        }
        let place = Arc::new(client);
        waiting.push(Arc::downgrade(&place));
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn users(hashes: &[(&str, &str)]) -> Users {
        let users = hashes.iter();
        users
            .map(|(user, hash)| ((*user).to_owned(), (*hash).into()))
            .collect()
    }

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
            let header = (AUTHORIZATION, HeaderValue::from_static(value));
            let parsed = credentials(&HeaderMap::from_iter([header]));
            let parsed = parsed.map(|(user, word)| format!("{user} {}", word.expose_secret()));
            assert_eq!(parsed.as_deref(), expected, "{value}");
        }
    }

    #[test]
    fn a_password_that_is_not_hashed_is_refused_and_not_shown() {
        let expensive = "$2y$31$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG";
        for wrong in ["doe", "", "$2y$10$short", expensive] {
            let error = check_hashes(&users(&[("john", wrong)])).unwrap_err();
            let error = error.to_string();
            assert!(error.contains("basic_auth_users.john") && error.contains("htpasswd"));
            assert!(wrong.is_empty() || !error.contains(wrong), "{error}");
        }
    }

    #[tokio::test]
    async fn only_the_password_of_a_user_is_allowed_and_of_a_removed_one_none() {
        let hash = bcrypt::hash("right", 4).unwrap();
        let (both, one) = (
            users(&[("alice", &hash), ("bob", &hash)]),
            users(&[("bob", &hash)]),
        );
        let verifier = PasswordVerifier::default();
        for (users, user, password, verdict) in [
            (&both, "alice", "right", Verdict::Allowed),
            (&both, "alice", "right", Verdict::Allowed),
            (&both, "alice", "other", Verdict::Denied),
            (&both, "alice", "", Verdict::Denied),
            (&both, "Alice", "right", Verdict::Denied),
            (&both, "carol", "right", Verdict::Denied),
            (&both, "", "", Verdict::Denied),
            // The hash is that of another user.
            (&one, "alice", "right", Verdict::Denied),
            (&both, "alice", "right", Verdict::Allowed),
        ] {
            let given = (user.to_owned(), password.into());
            assert_eq!(
                verifier.check(users, Some(given), None).await,
                verdict,
                "{user} {password}"
            );
        }
    }

    #[test]
    fn waiting_checks_are_bounded_for_each_client_and_together() {
        let inner = PasswordVerifier::default().0;
        let begin = |last: u8| inner.wait(Some(IpAddr::from([127, 0, 0, last])));
        let of_one: Vec<Arc<Waiting>> = std::iter::from_fn(|| begin(1)).collect();
        let others: Vec<Arc<Waiting>> = (2..200).filter_map(begin).collect();
        let counts = (of_one.len(), of_one.len() + others.len());
        assert_eq!(counts, MAX_WAITING);
        drop((of_one, others));
        assert!(begin(1).is_some());
    }

    #[tokio::test]
    async fn the_outcome_for_a_client_that_disconnects_is_cached() {
        let hash = bcrypt::hash("right", 4).unwrap();
        let (verifier, users) = (PasswordVerifier::default(), users(&[("alice", &hash)]));
        let check = || verifier.check(&users, Some(("alice".to_owned(), "right".into())), None);
        let turn = verifier.0.turn.clone().lock_owned().await;
        let mut request = Box::pin(check());
        assert!(futures_util::poll!(request.as_mut()).is_pending());
        drop(turn);
        // The check begins now; on a busy machine it may even be done.
        let _ = futures_util::poll!(request.as_mut());
        drop(request);
        // The turn is free again once the check is done, and the cached outcome needs none.
        let _turn = verifier.0.turn.lock().await;
        assert_eq!(check().await, Verdict::Allowed);
    }
}
