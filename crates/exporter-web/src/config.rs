//! `--web.config.file`: TLS, client certificates, basic auth and headers, in the format of Prometheus' exporter-toolkit.
//!
//! The file and those it names are read again once a second. Files that cannot be used leave those before in force.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use axum::http::header::{HeaderName, HeaderValue};
use serde::Deserialize;

use crate::auth::{self, PasswordVerifier, Users};
use crate::tls::{ClientAuth, PemFiles, Tls, TlsSection};
use crate::{lock, read_file};

/// The time between two readings of the files.
const RECHECK: Duration = Duration::from_secs(1);

/// How long files have to be the same after a change.
const SETTLING: Duration = Duration::from_millis(200);

/// A web configuration file and what it says at present; every clone is the same handle. The default is no file, which asks
/// for nothing.
#[derive(Clone, Default)]
pub struct WebConfig(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// `None` without a file.
    path: Option<PathBuf>,
    current: ArcSwap<Current>,
    /// The files as they were last used, or reported as wrong.
    last: Mutex<Option<Result<Content, String>>>,
    passwords: PasswordVerifier,
}

/// What one file asks for.
#[derive(Debug, Default)]
pub(crate) struct Current {
    pub(crate) tls: Option<Tls>,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) users: Users,
}

/// The configuration file and the files that it names.
#[derive(Default, PartialEq)]
struct Content {
    sections: Sections,
    pem_files: PemFiles,
}

/// The sections of the file.
#[derive(Default, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
struct Sections {
    tls_server_config: Option<TlsSection>,
    http_server_config: Option<HttpSection>,
    basic_auth_users: Option<BTreeMap<String, String>>,
}

#[derive(Default, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
struct HttpSection {
    /// It has no effect.
    http2: Option<bool>,
    headers: Option<BTreeMap<String, String>>,
}

// === impl Content ===

impl Content {
    fn read(path: &Path) -> Result<Self, String> {
        let text = read_file(path);
        let text = text.and_then(|text| String::from_utf8(text).map_err(io::Error::other));
        let text = text.map_err(|error| format!("cannot read the file: {error}"))?;
        let sections = Sections::parse(&text)?;
        let directory = path.parent().unwrap_or(Path::new(""));
        let tls = sections.tls_server_config.as_ref();
        let pem_files = tls.map(|tls| tls.read(directory)).transpose()?;
        Ok(Self {
            sections,
            pem_files: pem_files.unwrap_or_default(),
        })
    }
}

// === impl Sections ===

impl Sections {
    fn parse(text: &str) -> Result<Self, String> {
        let mut options = serde_saphyr::Options::default();
        // A snippet could show a secret.
        options.with_snippet = false;
        let sections: Result<Option<Self>, _> = serde_saphyr::from_str_with_options(text, options);
        let sections = sections.map_err(|error| {
            let error = error.render();
            let error = error.split_whitespace().collect::<Vec<_>>().join(" ");
            format!(
                "cannot use the file: {error}; other fields and values of Prometheus' exporter-toolkit are not supported"
            )
        })?;
        Ok(sections.unwrap_or_default())
    }
}

// === impl Current ===

impl Current {
    fn new(
        Content {
            sections,
            pem_files,
        }: &Content,
    ) -> Result<Self, String> {
        let tls = sections.tls_server_config.as_ref();
        let http = sections.http_server_config.as_ref();
        let headers = http.and_then(|http| http.headers.as_ref());
        let users = sections.basic_auth_users.iter().flatten();
        let current = Self {
            tls: tls.map(|tls| Tls::new(tls, pem_files)).transpose()?,
            headers: headers.map_or(Ok(Vec::new()), parse_headers)?,
            users: users
                .map(|(name, hash)| (name.clone(), hash.as_str().into()))
                .collect(),
        };
        auth::check_hashes(&current.users)?;
        Ok(current)
    }

    fn log(&self, path: &Path) {
        let client_auth = self.tls.as_ref().map(|tls| tls.client_auth);
        tracing::info!(
            file = %path.display(),
            tls = client_auth.is_some(),
            client_certificates = client_auth.is_some_and(|it| it != ClientAuth::Off),
            basic_auth = !self.users.is_empty(),
            "web configuration loaded"
        );
    }
}

fn parse_headers(
    given: &BTreeMap<String, String>,
) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let given = given.iter().filter(|(_, value)| !value.is_empty());
    let headers = given.map(|(name, value)| {
        match (HeaderName::try_from(name), HeaderValue::try_from(value)) {
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
    /// Reads a file. This blocks for at most a few seconds; call it inside a tokio runtime.
    ///
    /// # Errors
    /// One line that says what cannot be used in it, or in a file that it names, and what to write instead.
    pub fn load(path: &Path) -> Result<Self, String> {
        let content = Content::read(path)?;
        let current = Current::new(&content)?;
        Ok(Self(Arc::new(Shared {
            path: Some(path.to_owned()),
            current: ArcSwap::from_pointee(current),
            last: Mutex::new(Some(Ok(content))),
            passwords: PasswordVerifier::default(),
        })))
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
        let mut last = lock(&self.0.last);
        let content = Content::read(path);
        if last.as_ref() == Some(&content) {
            return;
        }
        // A file that is being written looks like a shorter one.
        thread::sleep(SETTLING);
        if Content::read(path) != content {
            return;
        }
        let next = content.as_ref().map_err(Clone::clone);
        match next.and_then(Current::new) {
            Ok(next) => {
                next.log(path);
                self.0.current.store(Arc::new(next));
            }
            Err(error) => tracing::error!(
                file = %path.display(), %error,
                "cannot use the changed web configuration; the previous one stays in force"
            ),
        }
        *last = Some(content);
    }

    /// Logs the settings, and applies each change of the files. Never returns.
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
