//! `--web.config.file`: TLS, client certificates, basic auth and headers, in the format of Prometheus' exporter-toolkit.
//!
//! The file and those it names are read again once a second. A file that cannot be used leaves the one before in force.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use axum::http::header::{HeaderName, HeaderValue};
use serde::Deserialize;

use crate::auth::{self, PasswordVerifier, Users};
use crate::tls::{ClientAuth, Tls, TlsSection};
use crate::{lock, read_file};

/// The time between two readings of the files.
const RECHECK: Duration = Duration::from_secs(1);

/// A web configuration file and what it says at present; every clone is the same handle. The default is no file, which asks
/// for nothing.
#[derive(Clone, Default)]
pub struct WebConfig(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// `None` without a file.
    path: Option<PathBuf>,
    current: ArcSwap<Current>,
    files: Mutex<Files>,
    passwords: PasswordVerifier,
}

/// What one file asks for.
#[derive(Debug, Default)]
pub(crate) struct Current {
    pub(crate) tls: Option<Tls>,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) users: Users,
}

/// The sections of the file.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Sections {
    tls_server_config: Option<TlsSection>,
    http_server_config: Option<HttpSection>,
    basic_auth_users: Option<BTreeMap<String, String>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct HttpSection {
    /// It has no effect.
    #[serde(rename = "http2")]
    _http2: Option<bool>,
    headers: Option<BTreeMap<String, String>>,
}

/// The files that were read, each with its content if it could be read.
#[derive(Default, PartialEq)]
pub(crate) struct Files {
    /// Where relative paths begin; `None` for a text that may name no files.
    directory: Option<PathBuf>,
    read: Vec<(PathBuf, Option<Vec<u8>>)>,
}

// === impl Files ===

impl Files {
    /// Reads a file; its path is relative to the configuration file.
    pub(crate) fn read(&mut self, name: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        let directory = self.directory.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let path = directory.join(name);
        let content = read_file(&path);
        self.read.push((path, content.as_ref().ok().cloned()));
        content
    }
}

// === impl Current ===

impl Current {
    /// Reads a configuration file and all that it names.
    fn read(path: &Path) -> (Files, Result<Self, String>) {
        let mut files = Files {
            directory: Some(path.parent().unwrap_or(Path::new("")).to_owned()),
            read: Vec::new(),
        };
        let text = files.read(path.file_name().unwrap_or_default());
        let text = text.and_then(|text| String::from_utf8(text).map_err(io::Error::other));
        let text = text.map_err(|error| format!("cannot read the file: {error}"));
        let current = text.and_then(|text| Self::parse(&text, &mut files));
        (files, current)
    }

    fn parse(text: &str, files: &mut Files) -> Result<Self, String> {
        let mut options = serde_saphyr::Options::default();
        // A snippet could show a secret.
        options.with_snippet = false;
        let sections: Option<Sections> = serde_saphyr::from_str_with_options(text, options)
            .map_err(|error| {
                let error = error.render();
                let error = error.split_whitespace().collect::<Vec<_>>().join(" ");
                format!(
                    "cannot use the file: {error}; other fields and values of Prometheus' exporter-toolkit are not supported"
                )
            })?;
        let sections = sections.unwrap_or_default();
        let http = sections.http_server_config.unwrap_or_default();
        let tls = sections.tls_server_config;
        let users = sections.basic_auth_users.unwrap_or_default().into_iter();
        let users = users.map(|(name, hash)| (name, hash.into())).collect();
        auth::check_hashes(&users)?;
        Ok(Self {
            tls: tls.map(|tls| Tls::new(&tls, files)).transpose()?,
            headers: headers(http.headers.unwrap_or_default())?,
            users,
        })
    }

    /// Returns what keeps clients out: TLS, passwords, and certificates.
    fn protections(&self) -> (bool, bool, ClientAuth) {
        let tls = self.tls.as_ref();
        let client_auth = tls.map_or(ClientAuth::Off, |tls| tls.client_auth);
        (tls.is_some(), !self.users.is_empty(), client_auth)
    }

    /// Returns whether it lets clients in that were kept out before.
    fn protects_less_than(&self, before: &Self) -> bool {
        let (before, now) = (before.protections(), self.protections());
        (before.0 && !now.0) || (before.1 && !now.1) || before.2 > now.2
    }

    fn log(&self, path: &Path) {
        let (tls, basic_auth, client_auth) = self.protections();
        tracing::info!(
            file = %path.display(), tls, client_certificates = client_auth != ClientAuth::Off, basic_auth,
            "web configuration loaded"
        );
    }
}

fn headers(given: BTreeMap<String, String>) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let given = given.into_iter().filter(|(_, value)| !value.is_empty());
    let headers = given.map(|(name, value)| {
        match (HeaderName::try_from(&name), HeaderValue::try_from(&value)) {
            (Ok(name), Ok(value)) => Ok((name, value)),
            _ => Err(format!(
                "http_server_config.headers.{}: a header has a name of letters, digits and -, and one line of text",
                name.escape_debug()
            )),
        }
    });
    headers.collect()
}

// === impl WebConfig ===

impl fmt::Debug for WebConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The files contain secrets.
        f.debug_tuple("WebConfig").field(&self.0.path).finish()
    }
}

impl WebConfig {
    /// Reads a file. This blocks for at most a few seconds.
    ///
    /// # Errors
    /// One line that says what cannot be used in it, or in a file that it names, and what to write instead.
    pub fn load(path: &Path) -> Result<Self, String> {
        let (files, current) = Current::read(path);
        Ok(Self(Arc::new(Shared {
            path: Some(path.to_owned()),
            current: ArcSwap::from_pointee(current?),
            files: Mutex::new(files),
            passwords: PasswordVerifier::default(),
        })))
    }

    /// Checks a text as a file that can name no others.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn check(text: &str) -> Result<(), String> {
        Current::parse(text, &mut Files::default()).map(drop)
    }

    /// Returns whether TLS is on at present.
    pub(crate) fn is_tls(&self) -> bool {
        self.current().tls.is_some()
    }

    /// Returns when the server's certificate expires; `None` without TLS. It was read with the file.
    pub fn certificate_not_after(&self) -> Option<SystemTime> {
        self.current().tls.as_ref()?.not_after
    }

    /// Reads the files again, and uses them if they changed. This blocks: not for a thread of the runtime.
    pub fn reload(&self) {
        let Some(path) = &self.0.path else { return };
        let mut files = lock(&self.0.files);
        let (read, next) = Current::read(path);
        if *files == read {
            return;
        }
        *files = read;
        // A file that is being written looks like a shorter one.
        let next = next.and_then(|next| match next.protects_less_than(&self.current()) {
            true => Err("the changed file removes a protection: restart the exporter to switch off TLS, passwords or client certificates".to_owned()),
            false => Ok(next),
        });
        match next {
            Ok(next) => {
                next.log(path);
                self.0.current.store(Arc::new(next));
            }
            Err(error) => tracing::error!(
                file = %path.display(), %error,
                "cannot use the changed web configuration; the previous one stays in force"
            ),
        }
    }

    /// Logs what is in force, and uses what changes, for ever.
    pub(crate) async fn follow(&self) {
        let Some(path) = &self.0.path else {
            return std::future::pending().await;
        };
        self.current().log(path);
        loop {
            tokio::time::sleep(RECHECK).await;
            let config = self.clone();
            let _ = tokio::task::spawn_blocking(move || config.reload()).await;
        }
    }

    /// Returns what is in force.
    pub(crate) fn current(&self) -> Arc<Current> {
        self.0.current.load_full()
    }

    /// Returns what checks the passwords of users.
    pub(crate) fn passwords(&self) -> &PasswordVerifier {
        &self.0.passwords
    }
}
