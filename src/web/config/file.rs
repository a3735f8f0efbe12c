//! The fields of a web configuration file, as they are written.

use std::collections::BTreeMap;
use std::fmt;

use secrecy::SecretString;
use serde::de::{self, Deserialize, Deserializer, Visitor};

use super::rate::{Interval, parse_interval};

/// The whole file. An empty one is valid, and asks for nothing.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) tls_server_config: Tls,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) http_server_config: Http,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) rate_limit: RateLimit,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) basic_auth_users: BTreeMap<String, Secret>,
}

/// `tls_server_config`.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tls {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) cert: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) key: Secret,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) client_ca: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) cert_file: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) key_file: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) client_auth_type: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) client_ca_file: String,
    #[serde(default)]
    pub(super) client_allowed_sans: Option<Vec<String>>,
    #[serde(default)]
    pub(super) min_version: Option<String>,
    #[serde(default)]
    pub(super) max_version: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) cipher_suites: Vec<String>,
    #[serde(default)]
    pub(super) prefer_server_cipher_suites: Option<bool>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) curve_preferences: Vec<String>,
}

/// `http_server_config`.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Http {
    #[serde(default)]
    pub(super) http2: Option<bool>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) headers: BTreeMap<String, String>,
}

/// `rate_limit`.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RateLimit {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) interval: Interval,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) burst: i64,
}

/// A text that no message shows.
#[derive(Clone, Debug, Default)]
pub(super) struct Secret(pub(super) SecretString);

/// A key without a value means the default, as in the toolkit.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

// === impl File ===

impl File {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// One line: what is wrong, and where. Nothing of the file is quoted but names of fields and short values: it holds secrets.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut options = serde_saphyr::Options::default();
        options.with_snippet = false;
        match serde_saphyr::from_str_with_options::<Option<Self>>(text, options) {
            Ok(file) => Ok(file.unwrap_or_default()),
            Err(error) => Err(error
                .render()
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")),
        }
    }
}

// === impl Tls ===

impl Tls {
    /// Whether any of the fields is given that turn TLS on.
    pub(super) fn is_on(&self) -> bool {
        use secrecy::ExposeSecret as _;
        let given = [
            &self.cert,
            &self.cert_file,
            &self.key_file,
            &self.client_ca,
            &self.client_ca_file,
            &self.client_auth_type,
        ];
        given.into_iter().any(|text| !text.is_empty()) || !self.key.0.expose_secret().is_empty()
    }
}

// === impl Secret ===

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(text.into()))
    }
}

// === impl Interval ===

impl<'de> Deserialize<'de> for Interval {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Duration;

        impl Visitor<'_> for Duration {
            type Value = Interval;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration like 1s, 250ms or 1m30s")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Interval, E> {
                parse_interval(text)
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
            }

            // A bare number is nanoseconds, as in every Go program.
            fn visit_u64<E: de::Error>(self, nanoseconds: u64) -> Result<Interval, E> {
                Ok(Interval(std::time::Duration::from_nanos(nanoseconds)))
            }

            fn visit_i64<E: de::Error>(self, nanoseconds: i64) -> Result<Interval, E> {
                match u64::try_from(nanoseconds) {
                    Ok(nanoseconds) => self.visit_u64(nanoseconds),
                    Err(_) => Err(E::invalid_value(de::Unexpected::Signed(nanoseconds), &self)),
                }
            }
        }

        deserializer.deserialize_any(Duration)
    }
}
