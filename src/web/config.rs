//! `--web.config.file`: TLS, client certificates, basic auth, headers and a rate limit, in the
//! format of Prometheus' exporter-toolkit.
//!
//! The file and those it names are read again once a second. A file that cannot be used leaves the
//! one before in force.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{fs, io};

use arc_swap::ArcSwap;
use http::header::{HeaderName, HeaderValue};
use jiff::Timestamp;
use rustls::ServerConfig;
use serde::Deserialize;
use tokio::time::Instant;

use super::auth::{self, PasswordVerifier, Users};
use super::tls::{Tls, TlsFields};
use crate::util::{lock, refuse_months};

/// The time between two readings of the files.
const RECHECK: Duration = Duration::from_secs(1);

/// The headers that can be configured, and the values that they may have; none means any.
const HEADERS: [(&str, &[&str]); 5] = [
    ("Strict-Transport-Security", &[]),
    ("X-Content-Type-Options", &["nosniff"]),
    ("X-Frame-Options", &["deny", "sameorigin"]),
    ("X-XSS-Protection", &[]),
    ("Content-Security-Policy", &[]),
];

/// A web configuration file and what it says at present; every clone is the same handle. The
/// default is no file, which asks for nothing.
#[derive(Clone, Debug, Default)]
pub struct WebConfig(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    current: ArcSwap<Current>,
    files: Mutex<Files>,
    passwords: PasswordVerifier,
}

/// What one file asks for.
#[derive(Debug, Default)]
pub(super) struct Current {
    tls: Option<Tls>,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) users: Users,
    rate: Option<Rate>,
}

/// A token bucket over all requests.
#[derive(Debug)]
struct Rate {
    interval: Duration,
    burst: u32,
    /// When the bucket is full again.
    full_at: Mutex<Option<Instant>>,
}

/// The fields of the file.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Fields {
    tls_server_config: Option<TlsFields>,
    http_server_config: Option<HttpFields>,
    rate_limit: Option<RateFields>,
    basic_auth_users: Option<BTreeMap<String, String>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct HttpFields {
    http2: Option<bool>,
    headers: Option<BTreeMap<String, String>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RateFields {
    interval: String,
    burst: u32,
}

/// The files that were read, each with a hash of its content.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// The configuration file.
    path: PathBuf,
    read: Vec<(PathBuf, u64)>,
}

// === impl Files ===

impl Files {
    /// Reads a file; its path is relative to the configuration file.
    pub(super) fn read(&mut self, path: impl AsRef<OsStr>) -> io::Result<String> {
        // A text without a file can name no others.
        #[cfg(any(test, fuzzing))]
        if self.path.as_os_str().is_empty() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let path = self.path.with_file_name(path);
        let (content, hash) = read(&path);
        self.read.push((path, hash));
        content
    }

    fn have_changed(&self) -> bool {
        let mut files = self.read.iter();
        files.any(|(path, before)| read(path).1 != *before)
    }
}

/// Reads a file, and returns a hash of its content too.
fn read(path: &Path) -> (io::Result<String>, u64) {
    let (content, mut hasher) = (fs::read_to_string(path), DefaultHasher::new());
    content.as_ref().ok().hash(&mut hasher);
    (content, hasher.finish())
}

// === impl Current ===

impl Current {
    /// Reads a configuration file and all that it names.
    fn read(path: &Path) -> (Files, Result<Self, String>) {
        let mut files = Files {
            path: path.to_owned(),
            read: Vec::new(),
        };
        let text = files.read(path.file_name().unwrap_or_default());
        let text = text.map_err(|error| format!("cannot read the file: {error}"));
        let current = text.and_then(|text| Self::parse(&text, &mut files));
        (files, current)
    }

    fn parse(text: &str, files: &mut Files) -> Result<Self, String> {
        let mut options = serde_saphyr::Options::default();
        // A snippet could show a secret.
        options.with_snippet = false;
        let fields: Option<Fields> =
            serde_saphyr::from_str_with_options(text, options).map_err(|error| {
                let error = error.render();
                let error = error.split_whitespace().collect::<Vec<_>>().join(" ");
                format!(
                    "cannot parse the file: {error}; the fields are those of Prometheus' \
                     exporter-toolkit"
                )
            })?;
        let fields = fields.unwrap_or_default();
        let http = fields.http_server_config.unwrap_or_default();
        let tls = fields.tls_server_config.unwrap_or_default();
        let users = fields.basic_auth_users.unwrap_or_default().into_iter();
        let users = users.map(|(name, hash)| (name, hash.into())).collect();
        auth::check_hashes(&users)?;
        Ok(Self {
            tls: Tls::new(tls, http.http2.unwrap_or(true), files)?,
            headers: headers(http.headers.unwrap_or_default())?,
            users,
            rate: Rate::new(&fields.rate_limit.unwrap_or_default())?,
        })
    }

    /// Returns whether one more request is within the rate limit.
    pub(super) fn within_rate(&self) -> bool {
        self.rate.as_ref().is_none_or(Rate::take)
    }

    /// Returns what keeps clients out: TLS, a password, and the policies for certificates.
    fn protections(&self) -> [bool; 5] {
        let tls = self.tls.as_ref();
        let [required, verified, names] = tls.map(|tls| tls.protections).unwrap_or_default();
        let users = !self.users.is_empty();
        [tls.is_some(), users, required, verified, names]
    }

    /// Refuses a file that protects less: one that is being written looks like a shorter one.
    fn unless_it_removes_a_protection(self, before: &Self) -> Result<Self, String> {
        let mut both = before.protections().into_iter().zip(self.protections());
        if both.any(|(before, now)| before && !now) {
            let message = "the changed file removes a protection: restart the exporter to switch \
                           off TLS, passwords or client certificates";
            return Err(message.to_owned());
        }
        Ok(self)
    }

    fn log(&self, path: &Path) {
        if self.tls.as_ref().is_some_and(|tls| tls.ignored) {
            tracing::warn!(
                file = %path.display(),
                "cipher_suites, prefer_server_cipher_suites and curve_preferences are ignored: \
                 the exporter uses the secure ones of rustls"
            );
        }
        let [tls, basic_auth, client_certificates, ..] = self.protections();
        tracing::info!(
            file = %path.display(), tls, client_certificates, basic_auth,
            "web configuration loaded"
        );
    }
}

fn headers(given: BTreeMap<String, String>) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let given = given.into_iter().filter(|(_, value)| !value.is_empty());
    let headers = given.map(|(name, value)| {
        let is_known = HEADERS.iter().any(|(known, values)| {
            *known == name && (values.is_empty() || values.contains(&value.as_str()))
        });
        match (HeaderName::try_from(&name), HeaderValue::try_from(&value)) {
            (Ok(name), Ok(value)) if is_known => Ok((name, value)),
            _ => Err(format!(
                "http_server_config.headers.{name}: {value:?} cannot be configured; write \
                 X-Frame-Options: deny or sameorigin, X-Content-Type-Options: nosniff, or any \
                 Strict-Transport-Security, X-XSS-Protection or Content-Security-Policy",
                name = name.escape_debug()
            )),
        }
    });
    headers.collect()
}

// === impl Rate ===

impl Rate {
    fn new(fields: &RateFields) -> Result<Option<Self>, String> {
        let interval = match fields.interval.as_str() {
            "" | "0" => return Ok(None),
            text => refuse_months(text)
                .and_then(|()| humantime::parse_duration(text).map_err(|error| error.to_string()))
                .map_err(|error| {
                    format!(
                        "rate_limit.interval: {text:?}: {error}; write a duration like 1s or 250ms"
                    )
                })?,
        };
        Ok((!interval.is_zero()).then(|| Self {
            interval,
            burst: fields.burst,
            full_at: Mutex::default(),
        }))
    }

    /// Takes a token, if there is one.
    fn take(&self) -> bool {
        let (now, mut full_at) = (Instant::now(), lock(&self.full_at));
        let after = full_at.map_or(now, |full| full.max(now)) + self.interval;
        let taken = after - now <= self.interval.saturating_mul(self.burst);
        if taken {
            *full_at = Some(after);
        }
        taken
    }
}

// === impl WebConfig ===

impl WebConfig {
    /// Reads a file.
    ///
    /// # Errors
    /// What cannot be used in it, or in a file that it names, and what to write instead.
    pub fn load(path: &Path) -> Result<Self, String> {
        let (files, current) = Current::read(path);
        Ok(Self(Arc::new(Shared {
            current: ArcSwap::from_pointee(current?),
            files: Mutex::new(files),
            passwords: PasswordVerifier::default(),
        })))
    }

    /// Checks a text as a file that can name no others.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn parse(text: &str) -> Result<(), String> {
        Current::parse(text, &mut Files::default()).map(drop)
    }

    /// Returns whether TLS is on at present.
    pub fn is_tls(&self) -> bool {
        self.current().tls.is_some()
    }

    /// Returns when the server's certificate expires; `None` without TLS.
    pub fn certificate_not_after(&self) -> Option<Timestamp> {
        self.current().tls.as_ref()?.not_after
    }

    /// Reads the files again, and uses them if they changed. This blocks: not for a thread of the
    /// runtime.
    pub fn reload(&self) {
        let mut files = lock(&self.0.files);
        if !files.have_changed() {
            return;
        }
        let path = files.path.clone();
        let (read, next) = Current::read(&path);
        *files = read;
        match next.and_then(|next| next.unless_it_removes_a_protection(&self.current())) {
            Ok(next) => {
                next.log(&path);
                self.0.current.store(Arc::new(next));
            }
            Err(error) => tracing::error!(
                file = %path.display(), %error,
                "cannot use the changed web configuration; the previous one stays in force"
            ),
        }
    }

    /// Returns whether there is a file.
    pub(crate) fn has_file(&self) -> bool {
        !lock(&self.0.files).read.is_empty()
    }

    /// Logs what is in force, and uses what changes, for ever.
    pub(super) async fn follow(&self) {
        if !self.has_file() {
            return std::future::pending().await;
        }
        self.current().log(&lock(&self.0.files).path);
        loop {
            tokio::time::sleep(RECHECK).await;
            let config = self.clone();
            let _ = tokio::task::spawn_blocking(move || config.reload()).await;
        }
    }

    /// Returns what is in force.
    pub(super) fn current(&self) -> Arc<Current> {
        self.0.current.load_full()
    }

    /// Returns the configuration of TLS, if it is on.
    pub(super) fn tls(&self) -> Option<Arc<ServerConfig>> {
        Some(self.current().tls.as_ref()?.server.clone())
    }

    /// Returns what checks the passwords of users.
    pub(super) fn passwords(&self) -> &PasswordVerifier {
        &self.0.passwords
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(interval: &str, burst: u32) -> Result<Option<Rate>, String> {
        let interval = interval.to_owned();
        Rate::new(&RateFields { interval, burst })
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_allowed_and_then_one_request_an_interval() {
        let limit = rate("10s", 3).unwrap().unwrap();
        let burst = [true, true, true, false, false];
        assert_eq!([(); 5].map(|()| limit.take()), burst);
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!([(); 2].map(|()| limit.take()), [true, false]);
        tokio::time::advance(Duration::from_secs(1000)).await;
        assert_eq!([(); 4].map(|()| limit.take()), [true, true, true, false]);
    }

    #[test]
    fn no_interval_is_no_limit_and_no_burst_allows_nothing() {
        assert!(rate("0", 5).unwrap().is_none());
        assert!(!rate("1h15m", 0).unwrap().unwrap().take());
        assert!(rate("5x", 1).is_err());
    }
}
