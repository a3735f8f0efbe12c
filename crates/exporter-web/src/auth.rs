//! Basic authentication: passwords are checked one at a time off the runtime's threads, and the right ones are cached, so
//! that a flood of wrong passwords does not stall a scraper.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use axum::http::header::{AUTHORIZATION, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bcrypt::HashParts;
use ring::digest;
use secrecy::{ExposeSecret as _, SecretString};

use crate::lock;

/// The maximum cost of a hash. Each step doubles the time: 10 takes 70 ms, 18 takes 20 s.
const MAX_COST: u32 = 18;

/// The maximum number of checks that wait, for one client and for all.
const MAX_WAITING: (usize, usize) = (4, 64);

/// The header that asks for a password.
const CHALLENGE: &str = "Basic realm=\"metrics\", charset=\"UTF-8\"";

/// The users of a configuration file, with their bcrypt hashes.
pub(crate) type Users = BTreeMap<String, SecretString>;

/// Checks passwords.
#[derive(Debug, Default)]
pub(crate) struct PasswordVerifier(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// For each user a digest of the right password.
    allowed: Mutex<HashMap<String, Vec<u8>>>,
    /// bcrypt uses a whole processor; a second check at a time would leave a small machine none.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// The clients whose checks wait.
    waiting: Mutex<Vec<IpAddr>>,
}

/// A place among the checks that wait.
struct Waiting(Arc<Inner>, IpAddr);

/// Checks the hashes of users.
pub(crate) fn check_hashes(users: &Users) -> Result<(), String> {
    let is_wrong = |hash: &SecretString| !(4..=MAX_COST).contains(&cost(hash));
    let Some((user, _)) = users.iter().find(|(_, hash)| is_wrong(hash)) else {
        return Ok(());
    };
    Err(format!(
        "basic_auth_users.{user}: this is not a bcrypt hash with a cost of 4 to {MAX_COST}; create one with `htpasswd -nBC 10 \"\" | tr -d ':\\n'`",
        user = user.escape_debug()
    ))
}

/// Returns the cost of a bcrypt hash, 0 if it is none.
fn cost(hash: &SecretString) -> u32 {
    let parts = hash.expose_secret().parse::<HashParts>();
    parts.map_or(0, |parts| parts.get_cost())
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

/// Returns whether the password is right, after the time that a hash of cost `longest` takes.
fn verify(password: &SecretString, hash: &SecretString, longest: u32) -> bool {
    let password = password.expose_secret();
    let is_right = bcrypt::verify(password, hash.expose_secret()).unwrap_or(false);
    // A check takes twice as long with each step of the cost: these add up to the difference.
    for cost in cost(hash)..longest {
        let _ = std::hint::black_box(bcrypt::hash_with_salt(password, cost, [0; 16]));
    }
    is_right
}

fn denied() -> Response {
    let challenge = [(WWW_AUTHENTICATE, CHALLENGE)];
    (StatusCode::UNAUTHORIZED, challenge, "Unauthorized\n").into_response()
}

fn busy() -> Response {
    let text = "Too many passwords are being checked.\n";
    (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, "5")], text).into_response()
}

// === impl PasswordVerifier ===

impl PasswordVerifier {
    /// Checks the password of a request, or returns the response that refuses it. If the client disconnects, the check
    /// goes on and its outcome is cached.
    pub(crate) async fn check(
        &self,
        users: &Users,
        headers: &HeaderMap,
        client: IpAddr,
    ) -> Result<(), Response> {
        // The password of an unknown user is compared with the slowest hash, so that the time of the answer does not tell
        // which users exist.
        let Some(slowest) = users.values().max_by_key(|hash| cost(hash)) else {
            return Ok(());
        };
        let (user, password) = credentials(headers).ok_or_else(denied)?;
        let (exists, longest) = (users.contains_key(&user), cost(slowest));
        let hash = users.get(&user).unwrap_or(slowest).clone();
        // A hash has a fixed length, so it acts as salt.
        let text = SecretString::from([hash.expose_secret(), password.expose_secret()].concat());
        let digest = digest::digest(&digest::SHA256, text.expose_secret().as_bytes());
        let digest = digest.as_ref().to_vec();
        let inner = self.0.clone();
        let is_cached = || exists && lock(&inner.allowed).get(&user) == Some(&digest);
        if is_cached() {
            return Ok(());
        }
        let waiting = Waiting::new(&inner, client).ok_or_else(busy)?;
        let turn = inner.turn.clone().lock_owned().await;
        // Another request may have checked the same password meanwhile.
        if is_cached() {
            return Ok(());
        }
        let check = tokio::task::spawn_blocking(move || {
            let Waiting(inner, _) = &waiting;
            let is_right = verify(&password, &hash, longest) && exists;
            if is_right {
                lock(&inner.allowed).insert(user, digest);
            }
            drop((turn, waiting));
            is_right
        });
        match check.await {
            Ok(true) => Ok(()),
            _ => Err(denied()),
        }
    }
}

// === impl Waiting ===

impl Waiting {
    /// Returns a place, if there is one for this client.
    fn new(inner: &Arc<Inner>, client: IpAddr) -> Option<Self> {
        let (of_client, of_all) = MAX_WAITING;
        let mut waiting = lock(&inner.waiting);
        let count = waiting.iter().filter(|other| **other == client).count();
        if count >= of_client || waiting.len() >= of_all {
            return None;
        }
        waiting.push(client);
        Some(Self(inner.clone(), client))
    }
}

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
    use std::time::Instant;

    use axum::http::HeaderValue;

    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn users(hashes: &[(&str, &str)]) -> Users {
        let users = hashes.iter();
        users
            .map(|(user, hash)| ((*user).to_owned(), (*hash).into()))
            .collect()
    }

    fn headers(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_str(value).unwrap())])
    }

    fn basic(user: &str, password: &str) -> HeaderMap {
        let encoded = BASE64_STANDARD.encode(format!("{user}:{password}"));
        headers(&format!("Basic {encoded}"))
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
            let parsed = credentials(&headers(value));
            let parsed = parsed.map(|(user, word)| format!("{user} {}", word.expose_secret()));
            assert_eq!(parsed.as_deref(), expected, "{value}");
        }
    }

    #[tokio::test]
    async fn a_wrong_password_takes_as_long_for_a_cheap_hash_as_for_the_slowest_and_for_unknown_users()
     {
        let [cheap, dear] = [4, 11].map(|cost| bcrypt::hash("right", cost).unwrap());
        let users = users(&[("cheap", &cheap), ("dear", &dear)]);
        let verifier = PasswordVerifier::default();
        // The shortest of a few, which a busy machine disturbs least.
        let mut times = [f64::MAX; 3];
        for number in 0..5 {
            for (time, user) in times.iter_mut().zip(["dear", "cheap", "unknown"]) {
                let (begun, given) = (Instant::now(), basic(user, &format!("wrong {number}")));
                assert!(verifier.check(&users, &given, CLIENT).await.is_err());
                *time = time.min(begun.elapsed().as_secs_f64());
            }
        }
        let [dear, others @ ..] = times;
        for time in others {
            // Without the difference it would be a hundredth.
            assert!((0.3..3.0).contains(&(time / dear)), "{times:?}");
        }
    }

    #[test]
    fn waiting_checks_are_bounded_for_each_client_and_together() {
        let inner = PasswordVerifier::default().0;
        let begin = |last: u8| Waiting::new(&inner, IpAddr::from([127, 0, 0, last]));
        let of_one: Vec<Waiting> = std::iter::from_fn(|| begin(1)).collect();
        let others: Vec<Waiting> = (2..200).filter_map(begin).collect();
        let counts = (of_one.len(), of_one.len() + others.len());
        assert_eq!(counts, MAX_WAITING);
        drop((of_one, others));
        assert!(begin(1).is_some());
    }
}
