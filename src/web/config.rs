//! `--web.config.file`: TLS, client certificates, basic auth, headers and a rate limit, in the
//! format of Prometheus' exporter-toolkit.
//!
//! The file and those it names are read again once a second while there are requests. A file that
//! cannot be used leaves the one before in force.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::header::{HeaderName, HeaderValue};
use jiff::Timestamp;
use rustls::ServerConfig;
use serde::Deserialize;
use tokio::time::Instant;

use super::auth::{Credentials, PasswordVerifier, Users, Verdict};
use super::tls::{Tls, TlsFields};

/// The time between two readings of the files.
const RECHECK: Duration = Duration::from_secs(1);

/// The maximum time that a request waits for a reading: a file system that hangs must not stop it.
const LONGEST_READING: Duration = Duration::from_secs(2);

/// The headers that can be configured, and the values that they may have; none means any.
const HEADERS: [(&str, &[&str]); 5] = [
    ("Strict-Transport-Security", &[]),
    ("X-Content-Type-Options", &["nosniff"]),
    ("X-Frame-Options", &["deny", "sameorigin"]),
    ("X-XSS-Protection", &[]),
    ("Content-Security-Policy", &[]),
];

/// What is wrong with a web configuration file: the field, and what to write instead.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{field}: {message}")]
pub struct ConfigError {
    field: Cow<'static, str>,
    message: String,
}

/// A web configuration file and what it says at present; every clone is the same handle.
#[derive(Clone, Debug)]
pub struct WebConfig {
    shared: Arc<Shared>,
    recheck: Duration,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    current: ArcSwap<Current>,
    /// A hash of all files as they were read last.
    content: Mutex<u64>,
    /// When the files were read; locked meanwhile, since if one reading hangs, the next would too.
    read_at: Arc<tokio::sync::Mutex<Instant>>,
    verifier: Arc<PasswordVerifier>,
}

/// What one file asks for.
#[derive(Debug)]
pub(super) struct Current {
    tls: Option<Tls>,
    headers: Vec<(HeaderName, HeaderValue)>,
    users: Users,
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
struct File {
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
    interval: Option<String>,
    burst: Option<u32>,
}

/// Reads files, and hashes their content to see when they change.
pub(super) struct Reader {
    directory: PathBuf,
    content: DefaultHasher,
}

// === impl ConfigError ===

impl ConfigError {
    pub(super) fn new(field: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        let (field, message) = (field.into(), message.into());
        Self { field, message }
    }
}

// === impl Reader ===

impl Reader {
    /// Reads a file; its path is relative to the configuration file.
    pub(super) fn read(&mut self, path: &str) -> Result<String, String> {
        let path = self.directory.join(path);
        let text = std::fs::read_to_string(&path).map_err(|error| {
            let path = path.display().to_string();
            format!("cannot read {path:?}: {error}; paths are relative to the configuration file")
        })?;
        text.hash(&mut self.content);
        Ok(text)
    }
}

// === impl Current ===

impl Current {
    fn parse(text: &str, reader: &mut Reader) -> Result<Self, ConfigError> {
        let mut options = serde_saphyr::Options::default();
        // A snippet could show a secret.
        options.with_snippet = false;
        let file: Option<File> =
            serde_saphyr::from_str_with_options(text, options).map_err(|error| {
                let error = error.render();
                let error = error.split_whitespace().collect::<Vec<_>>().join(" ");
                let advice = "the fields are those of Prometheus' exporter-toolkit";
                ConfigError::new("cannot parse the file", format!("{error}; {advice}"))
            })?;
        let file = file.unwrap_or_default();
        let http = file.http_server_config.unwrap_or_default();
        let fields = file.tls_server_config.unwrap_or_default();
        let users = file.basic_auth_users.unwrap_or_default().into_iter();
        Ok(Self {
            tls: Tls::new(fields, http.http2.unwrap_or(true), reader)?,
            headers: headers(http.headers.unwrap_or_default())?,
            users: Users::new(users.map(|(name, hash)| (name, hash.into())).collect())?,
            rate: Rate::new(file.rate_limit.unwrap_or_default())?,
        })
    }

    /// Returns the configuration of TLS, if it is on.
    pub(super) fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.tls.as_ref().map(|tls| tls.server.clone())
    }

    /// Returns the headers of every response.
    pub(super) fn headers(&self) -> &[(HeaderName, HeaderValue)] {
        &self.headers
    }

    /// Returns whether one more request is within the rate limit.
    pub(super) fn within_rate(&self) -> bool {
        self.rate.as_ref().is_none_or(Rate::take)
    }

    /// Returns whether requests need no password.
    pub(super) fn is_open(&self) -> bool {
        self.users.is_empty()
    }

    /// Returns what keeps clients out: TLS, a password, and the policies for certificates.
    fn protections(&self) -> [bool; 5] {
        let tls = self.tls.as_ref();
        let [required, verified, names] = tls.map(|tls| tls.protections).unwrap_or_default();
        [tls.is_some(), !self.is_open(), required, verified, names]
    }
}

fn headers(given: BTreeMap<String, String>) -> Result<Vec<(HeaderName, HeaderValue)>, ConfigError> {
    let mut headers = Vec::new();
    for (name, value) in given.into_iter().filter(|(_, value)| !value.is_empty()) {
        let error =
            |message| ConfigError::new(format!("http_server_config.headers.{name}"), message);
        let Some((_, values)) = HEADERS.iter().find(|(known, _)| *known == name) else {
            let known = HEADERS.map(|(name, _)| name).join(", ");
            return Err(error(format!(
                "this header cannot be configured; use one of {known}"
            )));
        };
        if !values.is_empty() && !values.contains(&value.as_str()) {
            let values = values.join(" or ");
            return Err(error(format!(
                "{value:?} is not a value of it; write {values}"
            )));
        }
        match (HeaderName::try_from(&name), HeaderValue::try_from(&value)) {
            (Ok(name), Ok(value)) => headers.push((name, value)),
            _ => {
                return Err(error(
                    "it contains an invalid character; remove it".to_owned(),
                ));
            }
        }
    }
    Ok(headers)
}

// === impl Rate ===

impl Rate {
    fn new(fields: RateFields) -> Result<Option<Self>, ConfigError> {
        let text = fields.interval.unwrap_or_default();
        let interval = match text.as_str() {
            "" | "0" => Duration::ZERO,
            text => humantime::parse_duration(text).map_err(|error| {
                let message = format!("{text:?}: {error}; write a duration like 1s or 250ms");
                ConfigError::new("rate_limit.interval", message)
            })?,
        };
        Ok((!interval.is_zero()).then(|| Self {
            interval,
            burst: fields.burst.unwrap_or(0),
            full_at: Mutex::default(),
        }))
    }

    /// Takes a token, if there is one.
    fn take(&self) -> bool {
        let now = Instant::now();
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
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
    /// What cannot be used in it, or in a file that it names.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let (current, content) = read(path);
        let shared = Shared {
            path: path.to_owned(),
            current: ArcSwap::from_pointee(current?),
            content: Mutex::new(content),
            read_at: Arc::new(tokio::sync::Mutex::new(Instant::now())),
            verifier: PasswordVerifier::new(),
        };
        let (shared, recheck) = (Arc::new(shared), RECHECK);
        Ok(Self { shared, recheck })
    }

    /// Returns a handle that reads the files again after `recheck`, instead of a second.
    #[must_use]
    pub fn rechecked(self, recheck: Duration) -> Self {
        Self { recheck, ..self }
    }

    /// Returns whether TLS is on at present.
    pub fn is_tls(&self) -> bool {
        self.shared.current.load().tls.is_some()
    }

    /// Returns when the server's certificate expires; `None` without TLS.
    pub fn certificate_not_after(&self) -> Option<Timestamp> {
        self.shared.current.load().tls.as_ref()?.not_after
    }

    /// Logs what is in force.
    pub(super) fn log(&self) {
        let (current, file) = (self.shared.current.load(), self.shared.path.display());
        if current.tls.as_ref().is_some_and(|tls| tls.ignored) {
            tracing::warn!(
                %file,
                "cipher_suites, prefer_server_cipher_suites and curve_preferences are ignored: \
                 the exporter uses the secure ones of rustls"
            );
        }
        tracing::info!(
            %file,
            tls = current.tls.is_some(),
            client_certificates = current.tls.as_ref().is_some_and(|tls| tls.protections[0]),
            basic_auth = !current.is_open(),
            "web configuration loaded"
        );
    }

    /// Reads the files again, and uses them if they changed. This blocks: not for a thread of the
    /// runtime.
    pub fn reload(&self) {
        let (current, content) = read(&self.shared.path);
        let mut known = self
            .shared
            .content
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if *known == content {
            return;
        }
        *known = content;
        let before = self.shared.current.load();
        // A file that is being written looks like a shorter one.
        let removes = |next: &Current| {
            let (before, next) = (before.protections(), next.protections());
            before
                .into_iter()
                .zip(next)
                .any(|(before, next)| before && !next)
        };
        let checked = current.and_then(|next| match removes(&next) {
            true => Err(ConfigError::new(
                "the changed file removes a protection",
                "restart the exporter to switch off TLS, passwords or client certificates",
            )),
            false => Ok(next),
        });
        match checked {
            Ok(next) => {
                self.shared.current.store(Arc::new(next));
                self.log();
            }
            Err(error) => tracing::error!(
                file = %self.shared.path.display(), %error,
                "cannot use the changed web configuration; the previous one stays in force"
            ),
        }
    }

    /// Returns what is in force, after reading the files again if that is due.
    pub(super) async fn current(&self) -> Arc<Current> {
        if let Ok(mut read_at) = self.shared.read_at.clone().try_lock_owned()
            && read_at.elapsed() >= self.recheck
        {
            let config = self.clone();
            let task = tokio::task::spawn_blocking(move || {
                *read_at = Instant::now();
                config.reload();
            });
            let _ = tokio::time::timeout(LONGEST_READING, task).await;
        }
        self.shared.current.load_full()
    }

    /// Checks the password of a user.
    pub(super) async fn check(
        &self,
        current: &Current,
        (user, password): Credentials,
        client: Option<IpAddr>,
    ) -> Verdict {
        let verifier = &self.shared.verifier;
        verifier
            .check(&current.users, &user, password, client)
            .await
    }
}

/// Reads a configuration file and all that it names, and returns a hash of their content as well.
fn read(path: &Path) -> (Result<Current, ConfigError>, u64) {
    let directory = path.parent().unwrap_or(Path::new("")).to_owned();
    let mut reader = Reader {
        directory,
        content: DefaultHasher::new(),
    };
    let current = std::fs::read_to_string(path)
        .map_err(|error| ConfigError::new("cannot read the file", error.to_string()))
        .and_then(|text| {
            text.hash(&mut reader.content);
            Current::parse(&text, &mut reader)
        });
    if let Err(error) = &current {
        error.to_string().hash(&mut reader.content);
    }
    (current, reader.content.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(interval: &str, burst: u32) -> Result<Option<Rate>, ConfigError> {
        let (interval, burst) = (Some(interval.to_owned()), Some(burst));
        Rate::new(RateFields { interval, burst })
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
