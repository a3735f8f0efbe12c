//! `basic_auth_users`: names, and passwords behind bcrypt.

use std::collections::BTreeMap;
use std::str::FromStr as _;

use secrecy::{ExposeSecret as _, SecretString};

use super::ConfigError;
use super::file::Secret;

/// The highest cost of a hash. Each step doubles the time: 10 takes some 70 ms, 18 some 20 s, and a scraper gives up after 10.
const MAX_COST: u32 = 18;

/// The users of one configuration file.
#[derive(Debug, Default)]
pub(super) struct Users {
    hashes: BTreeMap<String, SecretString>,
    /// What the password of an unknown user is compared with: as dear as the dearest of the known.
    decoy: SecretString,
}

// === impl Users ===

impl Users {
    pub(super) fn new(given: &BTreeMap<String, Secret>) -> Result<Self, ConfigError> {
        let mut hashes = BTreeMap::new();
        let mut decoy = (0, SecretString::default());
        for (user, Secret(hash)) in given {
            let field = format!("basic_auth_users.{user}");
            let way_out = "make one with `htpasswd -nBC 10 \"\" | tr -d ':\\n'`";
            let parts = bcrypt::HashParts::from_str(hash.expose_secret()).map_err(|_| {
                ConfigError::new(
                    field.clone(),
                    format!("the password is not hashed with bcrypt; {way_out}"),
                )
            })?;
            let cost = parts.get_cost();
            if !(4..=MAX_COST).contains(&cost) {
                return Err(ConfigError::new(
                    field,
                    format!(
                        "the hash has a cost of {cost}, and 4 to {MAX_COST} can be checked; {way_out}"
                    ),
                ));
            }
            if cost > decoy.0 {
                decoy = (cost, hash.clone());
            }
            hashes.insert(user.clone(), hash.clone());
        }
        Ok(Self {
            hashes,
            decoy: decoy.1,
        })
    }

    /// What a user's password is compared with, and whether there is such a user.
    pub(super) fn hash(&self, user: &str) -> (&SecretString, bool) {
        let hash = self.hashes.get(user);
        (hash.unwrap_or(&self.decoy), hash.is_some())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_decoy_is_as_dear_as_the_dearest() {
        let hash = |cost| Secret(bcrypt::hash("x", cost).unwrap().into());
        let users = Users::new(&BTreeMap::from([
            ("a".to_owned(), hash(5)),
            ("b".to_owned(), hash(4)),
        ]))
        .unwrap();
        assert!(users.decoy.expose_secret().starts_with("$2b$05$"));
    }

    #[test]
    fn a_password_that_is_not_hashed_is_refused_and_not_shown() {
        for wrong in [
            "doe",
            "",
            "$2y$10$short",
            "$2y$31$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG",
        ] {
            let error = Users::new(&BTreeMap::from([("john".to_owned(), Secret(wrong.into()))]))
                .unwrap_err()
                .to_string();
            assert!(
                error.contains("basic_auth_users.john") && error.contains("htpasswd"),
                "{error}"
            );
            assert!(wrong.is_empty() || !error.contains(wrong), "{error}");
        }
    }
}
