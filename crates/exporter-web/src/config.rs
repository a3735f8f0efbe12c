//! `--web.config.file`: TLS, client certificates, basic auth and headers, in the format of Prometheus' exporter-toolkit.
//!
//! The file and those it names are read again once a second. Files that cannot be used, or that protect less, leave those
//! before in force.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;

use crate::auth::Users;
use crate::tls::{ClientAuth, Tls, TlsSection};
use crate::{lock, read_file};

/// The time between two readings of the files.
const RECHECK: Duration = Duration::from_secs(1);

/// Why a change is refused that would open a server.
const WEAKER: &str = "it removes TLS, client certificates or all users, which takes a restart";

/// A web configuration file and what it says at present; every clone is the same handle. The default is no file, which asks
/// for nothing.
#[derive(Clone, Default)]
pub struct WebConfig(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// `None` without a file.
    path: Option<PathBuf>,
    current: ArcSwap<Current>,
    /// What was in the files when they were last used, or reported as wrong.
    content: Mutex<Vec<u8>>,
}

/// What the file asks for.
#[derive(Default)]
pub(crate) struct Current {
    pub(crate) tls: Option<Tls>,
    pub(crate) headers: HeaderMap,
    pub(crate) users: Users,
}

/// The file, as it is written.
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
    #[serde(rename = "http2")]
    _without_effect: Option<bool>,
    headers: Option<BTreeMap<String, String>>,
}

// === impl Sections ===

impl Sections {
    fn parse(text: &str) -> Result<Self, String> {
        let mut options = serde_saphyr::Options::default();
        // A snippet could show a secret.
        options.with_snippet = false;
        match serde_saphyr::from_str_with_options::<Option<Self>>(text, options) {
            Ok(sections) => Ok(sections.unwrap_or_default()),
            Err(error) => {
                let rendered = error.render();
                let words: Vec<_> = rendered.split_whitespace().collect();
                Err(format!(
                    "cannot use the file: {}; other fields and values of Prometheus' exporter-toolkit are not supported",
                    words.join(" ")
                ))
            }
        }
    }
}

// === impl HttpSection ===

impl HttpSection {
    fn headers(&self) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        let given = self.headers.iter().flatten();
        for (name, text) in given.filter(|(_, text)| !text.is_empty()) {
            match (HeaderName::try_from(name), HeaderValue::try_from(text)) {
                (Ok(name), Ok(value)) => headers.insert(name, value),
                _ => {
                    return Err(format!(
                        "http_server_config.headers.{}: a header needs a name of letters, digits and -, and a value of one line",
                        name.escape_debug()
                    ));
                }
            };
        }
        Ok(headers)
    }
}

// === impl Current ===

impl Current {
    /// Reads the file and those that it names, and adds what is in them to `content`.
    fn read(path: &Path, content: &mut Vec<u8>) -> Result<Self, String> {
        let mut read = |path: &Path| {
            let bytes = read_file(path)?;
            content.extend_from_slice(&bytes);
            Ok(bytes)
        };
        let text = read(path)
            .and_then(|text| String::from_utf8(text).map_err(io::Error::other))
            .map_err(|error| format!("cannot read the file: {error}"))?;
        let sections = Sections::parse(&text)?;
        let directory = path.parent().unwrap_or(Path::new(""));
        let load = |section: TlsSection| section.load(|name| read(&directory.join(name)));
        let tls = sections.tls_server_config.map(load).transpose()?;
        let http = sections.http_server_config.unwrap_or_default();
        Ok(Self {
            tls,
            headers: http.headers()?,
            users: Users::new(sections.basic_auth_users.unwrap_or_default())?,
        })
    }

    /// Returns whether this protects less than what was before: a file that is emptied by mistake must not open a server.
    fn is_weaker(&self, before: &Self) -> bool {
        let client_auth = |of: &Self| of.tls.as_ref().map(|tls| tls.client_auth);
        let loses_users = self.users.is_empty() && !before.users.is_empty();
        client_auth(self) < client_auth(before) || loses_users
    }

    fn log(&self, path: &Path) {
        if self.tls.is_none() && self.users.is_empty() && self.headers.is_empty() {
            tracing::warn!(file = %path.display(), "the web configuration is empty, so anybody can read the metrics");
        }
        // An auditor looks for this line.
        tracing::info!(
            file = %path.display(),
            tls = self.tls.is_some(),
            client_certificates = ?self.tls.as_ref().map_or(ClientAuth::Off, |tls| tls.client_auth),
            basic_auth = !self.users.is_empty(),
            "web configuration loaded"
        );
    }
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
        let mut content = Vec::new();
        let current = Current::read(path, &mut content)?;
        Ok(Self(Arc::new(Shared {
            path: Some(path.to_owned()),
            current: ArcSwap::from_pointee(current),
            content: content.into(),
        })))
    }

    /// Returns from when until when the server's certificate is valid; `None` without TLS. It was read with the file.
    pub fn certificate_validity(&self) -> Option<Range<SystemTime>> {
        self.current().tls.as_ref()?.validity.clone()
    }

    /// Reads the files again, and uses them if they changed. This blocks: not for a thread of the runtime.
    pub fn reload(&self) {
        let Some(path) = &self.0.path else { return };
        let mut last = lock(&self.0.content);
        let mut content = Vec::new();
        let next = Current::read(path, &mut content);
        if *last == content {
            return;
        }
        *last = content;
        let refuse = |error: &str| {
            tracing::error!(
                file = %path.display(), error,
                "cannot use the changed web configuration; the previous one stays in use"
            );
        };
        match next {
            Ok(next) if next.is_weaker(&self.current()) => refuse(WEAKER),
            Ok(next) => {
                next.log(path);
                self.0.current.store(Arc::new(next));
            }
            Err(error) => refuse(&error),
        }
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
}
