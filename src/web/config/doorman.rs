//! Checks passwords off the runtime's threads, one at a time, and remembers the outcomes.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ring::hmac;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::Semaphore;

use super::users::Users;

/// How many wrong passwords are remembered, so that a scraper with a wrong one costs nothing.
const REMEMBERED: usize = 100;

/// How many requests of one client may wait for their check.
const WAITING_PER_CLIENT: usize = 4;

/// How many requests of all clients may wait for their check.
const WAITING: usize = 64;

/// What a check comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::web) enum Verdict {
    Welcome,
    Refused,
    /// Too many others are being checked.
    Busy,
}

/// Checks passwords, and remembers the outcomes under a key that dies with the process: no password is kept.
#[derive(Debug)]
pub(super) struct Doorman {
    key: hmac::Key,
    known: Mutex<Known>,
    /// bcrypt takes a whole processor; a second one at the same time would leave none on a small machine.
    turn: Arc<Semaphore>,
    waiting: Mutex<HashMap<Option<IpAddr>, usize>>,
}

#[derive(Debug, Default)]
struct Known {
    /// One for each user, so that no flood of wrong passwords drives out the right one.
    good: HashMap<String, [u8; 32]>,
    bad: VecDeque<[u8; 32]>,
}

/// A place among those that wait.
struct Waiting(Arc<Doorman>, Option<IpAddr>);

// === impl Doorman ===

impl Doorman {
    pub(super) fn new() -> Arc<Self> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &ring::rand::SystemRandom::new())
            .expect("the system gives random bytes");
        Arc::new(Self {
            key,
            known: Mutex::default(),
            turn: Arc::new(Semaphore::new(1)),
            waiting: Mutex::default(),
        })
    }

    /// Checks one password. Whoever asked and goes away has it checked all the same: the next request then has its answer.
    pub(super) async fn check(
        self: &Arc<Self>,
        users: &Users,
        user: &str,
        password: SecretString,
        client: Option<IpAddr>,
    ) -> Verdict {
        let (hash, exists) = users.hash(user);
        let hash = hash.clone();
        // A user who is gone shares nothing with the one whose hash is the decoy.
        let kind = if exists { "known" } else { "unknown" };
        let tag = self.tag([kind, user, hash.expose_secret(), password.expose_secret()]);
        if let Some(verdict) = self.recall(user, &tag) {
            return verdict;
        }
        let Some(place) = self.wait(client) else {
            return Verdict::Busy;
        };
        let Ok(turn) = self.turn.clone().acquire_owned().await else {
            return Verdict::Busy;
        };
        // Another request may have brought the same password meanwhile.
        if let Some(verdict) = self.recall(user, &tag) {
            return verdict;
        }
        let (doorman, user) = (self.clone(), user.to_owned());
        let checked = tokio::task::spawn_blocking(move || {
            let _held = (turn, place);
            let fits =
                bcrypt::verify(password.expose_secret(), hash.expose_secret()).unwrap_or(false);
            doorman.remember(user, tag, fits && exists)
        });
        checked.await.unwrap_or(Verdict::Busy)
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

    fn recall(&self, user: &str, tag: &[u8; 32]) -> Option<Verdict> {
        let known = self.known();
        if known.good.get(user) == Some(tag) {
            return Some(Verdict::Welcome);
        }
        known.bad.contains(tag).then_some(Verdict::Refused)
    }

    fn remember(&self, user: String, tag: [u8; 32], good: bool) -> Verdict {
        let mut known = self.known();
        if good {
            known.good.insert(user, tag);
            return Verdict::Welcome;
        }
        if known.bad.len() >= REMEMBERED {
            known.bad.pop_front();
        }
        known.bad.push_back(tag);
        Verdict::Refused
    }

    fn wait(self: &Arc<Self>, client: Option<IpAddr>) -> Option<Waiting> {
        let mut waiting = self.waiting();
        if waiting.values().sum::<usize>() >= WAITING
            || waiting
                .get(&client)
                .is_some_and(|count| *count >= WAITING_PER_CLIENT)
        {
            return None;
        }
        *waiting.entry(client).or_default() += 1;
        Some(Waiting(self.clone(), client))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<Option<IpAddr>, usize>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Waiting ===

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut waiting = self.0.waiting();
        if let Some(count) = waiting.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                waiting.remove(&self.1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::file::Secret;
    use super::*;

    fn users() -> Users {
        let hash = |password: &str| Secret(bcrypt::hash(password, 4).unwrap().into());
        Users::new(&BTreeMap::from([
            ("alice".to_owned(), hash("right")),
            ("bob".to_owned(), hash("other")),
        ]))
        .unwrap()
    }

    async fn check(doorman: &Arc<Doorman>, user: &str, password: &str) -> Verdict {
        doorman.check(&users(), user, password.into(), None).await
    }

    #[tokio::test]
    async fn only_the_user_s_own_password_opens() {
        let doorman = Doorman::new();
        assert_eq!(check(&doorman, "alice", "right").await, Verdict::Welcome);
        for (user, password) in [
            ("alice", "other"),
            ("alice", ""),
            ("", ""),
            ("carol", "other"),
            ("carol", "right"),
            ("Alice", "right"),
        ] {
            assert_eq!(
                check(&doorman, user, password).await,
                Verdict::Refused,
                "{user} {password}"
            );
        }
    }

    #[tokio::test]
    async fn a_user_who_was_removed_is_a_stranger_also_with_the_hash_of_another() {
        let (doorman, hash) = (
            Doorman::new(),
            Secret(bcrypt::hash("shared", 4).unwrap().into()),
        );
        let users = |names: &[&str]| {
            Users::new(
                &names
                    .iter()
                    .map(|name| ((*name).to_owned(), hash.clone()))
                    .collect(),
            )
            .unwrap()
        };
        let (both, one) = (users(&["alice", "bob"]), users(&["bob"]));
        assert_eq!(
            doorman.check(&both, "alice", "shared".into(), None).await,
            Verdict::Welcome
        );
        assert_eq!(
            doorman.check(&one, "alice", "shared".into(), None).await,
            Verdict::Refused
        );
        assert_eq!(
            doorman.check(&both, "alice", "shared".into(), None).await,
            Verdict::Welcome
        );
    }

    #[tokio::test]
    async fn a_flood_of_wrong_passwords_does_not_drive_out_the_right_one() {
        let (doorman, users) = (Doorman::new(), users());
        assert_eq!(
            doorman.check(&users, "alice", "right".into(), None).await,
            Verdict::Welcome
        );
        for attempt in 0..2 * REMEMBERED {
            doorman.remember(
                "alice".to_owned(),
                doorman.tag(["known", "alice", "", &attempt.to_string()]),
                false,
            );
        }
        assert_eq!(doorman.known().bad.len(), REMEMBERED);
        // Nobody gets a turn, and the known one needs none.
        let _turn = doorman.turn.acquire().await.unwrap();
        assert_eq!(
            doorman.check(&users, "alice", "right".into(), None).await,
            Verdict::Welcome
        );
    }

    #[tokio::test]
    async fn what_waits_is_bounded_for_each_client_and_together() {
        let doorman = Doorman::new();
        let client = |last: u8| Some(IpAddr::from([127, 0, 0, last]));
        let of_one: Vec<Waiting> = std::iter::from_fn(|| doorman.wait(client(1))).collect();
        assert_eq!(of_one.len(), WAITING_PER_CLIENT);
        let others: Vec<Waiting> = (2..200)
            .filter_map(|last| doorman.wait(client(last)))
            .collect();
        assert_eq!(others.len(), WAITING - WAITING_PER_CLIENT);
        drop((of_one, others));
        assert!(doorman.waiting().is_empty());
        assert!(doorman.wait(client(1)).is_some());
    }

    #[tokio::test]
    async fn a_client_that_leaves_has_its_password_checked_for_the_next_request() {
        let (doorman, users) = (Doorman::new(), users());
        let turn = doorman.turn.clone().acquire_owned().await.unwrap();
        let mut asked = Box::pin(doorman.check(&users, "alice", "right".into(), None));
        assert!(futures_util::poll!(asked.as_mut()).is_pending());
        drop(turn);
        // It begins now; on a busy machine it may even be done.
        let _ = futures_util::poll!(asked.as_mut());
        drop(asked);
        // The turn is free again once the check is done.
        let _turn = doorman.turn.acquire().await.unwrap();
        assert_eq!(
            doorman.check(&users, "alice", "right".into(), None).await,
            Verdict::Welcome
        );
    }
}
