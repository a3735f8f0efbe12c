//! Basic authentication: passwords are checked one at a time off the runtime's threads, and the
//! right ones are cached, so that a flood of wrong passwords does not stall a scraper.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::str::FromStr as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use ring::hmac;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::Semaphore;

use super::config::ConfigError;

/// The maximum cost of a hash. Each step doubles the time: 10 takes 70 ms, 18 takes 20 s.
const MAX_COST: u32 = 18;

/// The maximum number of checks that wait, for one client and for all.
const MAX_WAITING: (usize, usize) = (4, 64);

/// The users of a configuration file, with their bcrypt hashes.
#[derive(Debug, Default)]
pub(super) struct Users {
    hashes: BTreeMap<String, SecretString>,
    /// The hash that the password of an unknown user is compared with. It has the highest cost of
    /// all, so that the time of the answer does not tell which users exist.
    decoy: SecretString,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Allowed,
    Denied,
    /// Too many other checks are waiting.
    Busy,
}

/// Checks passwords. The key of the cached hashes lives as long as the process.
#[derive(Debug)]
pub(super) struct PasswordVerifier {
    key: hmac::Key,
    /// For each user the keyed hash of the right password.
    allowed: Mutex<HashMap<String, [u8; 32]>>,
    /// bcrypt uses a whole processor; a second check at a time would leave a small machine none.
    turn: Arc<Semaphore>,
    /// The clients of the checks that wait.
    waiting: Mutex<Vec<Option<IpAddr>>>,
}

/// A place among the checks that wait.
struct Waiting(Arc<PasswordVerifier>, Option<IpAddr>);

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

// === impl Users ===

impl Users {
    pub(super) fn new(hashes: BTreeMap<String, SecretString>) -> Result<Self, ConfigError> {
        let mut highest = 0;
        let mut decoy = SecretString::default();
        for (user, hash) in &hashes {
            let parts = bcrypt::HashParts::from_str(hash.expose_secret());
            let cost = parts.map_or(0, |parts| parts.get_cost());
            if !(4..=MAX_COST).contains(&cost) {
                let message = format!(
                    "this is not a bcrypt hash with a cost of 4 to {MAX_COST}; create one with \
                     `htpasswd -nBC 10 \"\" | tr -d ':\\n'`"
                );
                return Err(ConfigError::new(
                    format!("basic_auth_users.{user}"),
                    message,
                ));
            }
            if cost > highest {
                (highest, decoy) = (cost, hash.clone());
            }
        }
        Ok(Self { hashes, decoy })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }
}

// === impl PasswordVerifier ===

impl PasswordVerifier {
    pub(super) fn new() -> Arc<Self> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &ring::rand::SystemRandom::new());
        Arc::new(Self {
            key: key.expect("the system provides random bytes"),
            allowed: Mutex::default(),
            turn: Arc::new(Semaphore::new(1)),
            waiting: Mutex::default(),
        })
    }

    /// Checks a password. If the client disconnects, the check goes on and its outcome is cached.
    pub(super) async fn check(
        self: &Arc<Self>,
        users: &Users,
        user: &str,
        password: SecretString,
        client: Option<IpAddr>,
    ) -> Verdict {
        let known = users.hashes.get(user);
        let (hash, exists) = (known.unwrap_or(&users.decoy).clone(), known.is_some());
        // `exists`: a removed user must not share the outcome of the user whose hash is the decoy.
        let parts = [
            &exists.to_string(),
            user,
            hash.expose_secret(),
            password.expose_secret(),
        ];
        let tag = self.tag(parts);
        if self.is_cached(user, &tag) {
            return Verdict::Allowed;
        }
        let Some(waiting) = self.wait(client) else {
            return Verdict::Busy;
        };
        let Ok(turn) = self.turn.clone().acquire_owned().await else {
            return Verdict::Busy;
        };
        // Another request may have checked the same password meanwhile.
        if self.is_cached(user, &tag) {
            return Verdict::Allowed;
        }
        let (verifier, user) = (self.clone(), user.to_owned());
        let check = tokio::task::spawn_blocking(move || {
            let _held = (turn, waiting);
            let matches = bcrypt::verify(password.expose_secret(), hash.expose_secret());
            if !exists || !matches.unwrap_or(false) {
                return Verdict::Denied;
            }
            lock(&verifier.allowed).insert(user, tag);
            Verdict::Allowed
        });
        check.await.unwrap_or(Verdict::Busy)
    }

    fn tag(&self, parts: [&str; 4]) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&self.key);
        for part in parts {
            context.update(&part.len().to_le_bytes());
            context.update(part.as_bytes());
        }
        let mut tag = [0; 32];
        tag.copy_from_slice(context.sign().as_ref());
        tag
    }

    fn is_cached(&self, user: &str, tag: &[u8; 32]) -> bool {
        lock(&self.allowed).get(user) == Some(tag)
    }

    fn wait(self: &Arc<Self>, client: Option<IpAddr>) -> Option<Waiting> {
        let (of_client, of_all) = MAX_WAITING;
        let mut waiting = lock(&self.waiting);
        let count = waiting.iter().filter(|other| **other == client).count();
        if count >= of_client || waiting.len() >= of_all {
            return None;
        }
        waiting.push(client);
        Some(Waiting(self.clone(), client))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl Waiting ===

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut waiting = lock(&self.0.waiting);
        if let Some(index) = waiting.iter().position(|client| *client == self.1) {
            waiting.swap_remove(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn users(passwords: &[(&str, &str)]) -> Users {
        let hash = |password: &str| bcrypt::hash(password, 4).unwrap().into();
        let users = passwords
            .iter()
            .map(|(user, password)| ((*user).to_owned(), hash(password)));
        Users::new(users.collect()).unwrap()
    }

    async fn check(
        verifier: &Arc<PasswordVerifier>,
        users: &Users,
        user: &str,
        password: &str,
    ) -> Verdict {
        verifier.check(users, user, password.into(), None).await
    }

    #[test]
    fn credentials_are_parsed() {
        let parsed = |value: &str| {
            let value = HeaderValue::from_str(value).unwrap();
            let (user, password) = credentials(&HeaderMap::from_iter([(AUTHORIZATION, value)]))?;
            Some(format!("{user} {}", password.expose_secret()))
        };
        assert_eq!(parsed("Basic YWxpY2U6YTpi").as_deref(), Some("alice a:b"));
        assert_eq!(parsed("basic YWxpY2U6").as_deref(), Some("alice "));
        for invalid in [
            "Basic",
            "Basic !",
            "Basic YWxpY2U=",
            "Bearer YWxpY2U6YTpi",
            "Basic /w==",
            "",
        ] {
            assert_eq!(parsed(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn a_password_that_is_not_hashed_is_refused_and_not_shown() {
        let expensive = "$2y$31$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG";
        for wrong in ["doe", "", "$2y$10$short", expensive] {
            let users = BTreeMap::from([("john".to_owned(), wrong.into())]);
            let error = Users::new(users).unwrap_err().to_string();
            assert!(
                error.contains("basic_auth_users.john") && error.contains("htpasswd"),
                "{error}"
            );
            assert!(wrong.is_empty() || !error.contains(wrong), "{error}");
        }
    }

    #[tokio::test]
    async fn only_the_password_of_the_user_is_allowed() {
        let (verifier, users) = (
            PasswordVerifier::new(),
            users(&[("alice", "right"), ("bob", "other")]),
        );
        for _ in 0..2 {
            assert_eq!(
                check(&verifier, &users, "alice", "right").await,
                Verdict::Allowed
            );
            for (user, password) in [
                ("alice", "other"),
                ("alice", ""),
                ("", ""),
                ("carol", "other"),
                ("carol", "right"),
                ("Alice", "right"),
            ] {
                assert_eq!(
                    check(&verifier, &users, user, password).await,
                    Verdict::Denied,
                    "{user} {password}"
                );
            }
        }
    }

    #[tokio::test]
    async fn a_removed_user_is_denied_also_with_the_hash_of_another() {
        let verifier = PasswordVerifier::new();
        let hash: SecretString = bcrypt::hash("shared", 4).unwrap().into();
        let users = |names: &[&str]| {
            Users::new(
                names
                    .iter()
                    .map(|name| ((*name).to_owned(), hash.clone()))
                    .collect(),
            )
            .unwrap()
        };
        for (names, verdict) in [
            (&["alice", "bob"][..], Verdict::Allowed),
            (&["bob"], Verdict::Denied),
            (&["alice", "bob"], Verdict::Allowed),
        ] {
            assert_eq!(
                check(&verifier, &users(names), "alice", "shared").await,
                verdict
            );
        }
    }

    #[tokio::test]
    async fn waiting_checks_are_bounded_for_each_client_and_together() {
        let verifier = PasswordVerifier::new();
        let client = |last: u8| Some(IpAddr::from([127, 0, 0, last]));
        let of_one: Vec<Waiting> = std::iter::from_fn(|| verifier.wait(client(1))).collect();
        assert_eq!(of_one.len(), MAX_WAITING.0);
        let others: Vec<Waiting> = (2..200)
            .filter_map(|last| verifier.wait(client(last)))
            .collect();
        assert_eq!(of_one.len() + others.len(), MAX_WAITING.1);
        drop((of_one, others));
        assert!(lock(&verifier.waiting).is_empty());
        assert!(verifier.wait(client(1)).is_some());
    }

    #[tokio::test]
    async fn the_outcome_for_a_client_that_disconnects_is_cached() {
        let (verifier, users) = (PasswordVerifier::new(), users(&[("alice", "right")]));
        let turn = verifier.turn.clone().acquire_owned().await.unwrap();
        let mut request = Box::pin(check(&verifier, &users, "alice", "right"));
        assert!(futures_util::poll!(request.as_mut()).is_pending());
        drop(turn);
        // The check begins now; on a busy machine it may even be done.
        let _ = futures_util::poll!(request.as_mut());
        drop(request);
        // The turn is free again once the check is done, and the cached outcome needs none.
        let _turn = verifier.turn.acquire().await.unwrap();
        assert_eq!(
            check(&verifier, &users, "alice", "right").await,
            Verdict::Allowed
        );
    }
}
