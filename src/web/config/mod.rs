//! The web configuration file: TLS, client certificates, basic authentication, headers and a rate limit, in the format of
//! Prometheus' exporter-toolkit.

mod client;
mod doorman;
mod file;
mod headers;
mod names;
mod rate;
mod tls;
mod users;
mod watch;

use std::borrow::Cow;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::header::{HeaderName, HeaderValue};
use rustls::ServerConfig;

use rate::Bucket;
use tls::Tls;
use users::Users;

pub(super) use doorman::Verdict;
pub use watch::WebConfig;

/// What is wrong with a web configuration file: the field, and what would be right.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{field}: {message}")]
pub struct ConfigError {
    /// The field, with the sections above it.
    field: Cow<'static, str>,
    message: String,
}

/// What one file asks for.
#[derive(Debug)]
pub(super) struct Current {
    tls: Option<Tls>,
    headers: Vec<(HeaderName, HeaderValue)>,
    users: Users,
    bucket: Option<Arc<Bucket>>,
    /// Every file that was read for it, itself first.
    files: Vec<PathBuf>,
}

// === impl ConfigError ===

impl ConfigError {
    fn new(field: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            message: message.into(),
        }
    }
}

// === impl Current ===

impl Current {
    /// Reads a file and what it names. `files` collects what was read, also where that fails.
    fn read(path: &Path, files: &mut Vec<PathBuf>) -> Result<Self, ConfigError> {
        files.push(path.to_owned());
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError::new("the file cannot be read", error.to_string()))?;
        let file = file::File::parse(&text).map_err(|error| {
            ConfigError::new(
                "the file is not as it should be",
                format!("{error}; the fields are those of Prometheus' exporter-toolkit"),
            )
        })?;
        let headers = headers::headers(&file.http_server_config.headers)?;
        let users = Users::new(&file.basic_auth_users)?;
        let burst = u32::try_from(file.rate_limit.burst).map_err(|_| {
            ConfigError::new(
                "rate_limit.burst",
                format!(
                    "{} is out of range; write a number from 1 up",
                    file.rate_limit.burst
                ),
            )
        })?;
        let bucket = Bucket::new(file.rate_limit.interval, burst).map(Arc::new);
        let directory = path.parent().unwrap_or(Path::new(""));
        let tls = tls::tls(
            &file.tls_server_config,
            file.http_server_config.http2.unwrap_or(true),
            directory,
            files,
        )?;
        Ok(Self {
            tls,
            headers,
            users,
            bucket,
            files: files.clone(),
        })
    }

    /// TLS, where it is on.
    pub(super) fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.tls.as_ref().map(|tls| tls.server.clone())
    }

    /// The headers that every answer gets.
    pub(super) fn headers(&self) -> &[(HeaderName, HeaderValue)] {
        &self.headers
    }

    /// Whether one more request is within the rate limit.
    pub(super) fn admits(&self) -> bool {
        self.bucket.as_ref().is_none_or(|bucket| bucket.take())
    }

    /// Whether anybody may ask.
    pub(super) fn is_open(&self) -> bool {
        self.users.is_empty()
    }

    /// What `self` protects and `next` does not. A file that is being written looks like a shorter one: nothing that keeps
    /// strangers out is given up for what may be half a file.
    fn given_up_by(&self, next: &Self) -> Option<&'static str> {
        let certificates = |current: &Self| {
            current.tls.as_ref().map_or((false, false, false), |tls| {
                (
                    tls.client_auth.is_mandatory(),
                    tls.client_auth.verifies(),
                    tls.names_restricted,
                )
            })
        };
        let ((asked, verified, restricted), next_certificates) =
            (certificates(self), certificates(next));
        if self.tls.is_some() && next.tls.is_none() {
            Some("tls_server_config")
        } else if !self.users.is_empty() && next.users.is_empty() {
            Some("basic_auth_users")
        } else if (asked && !next_certificates.0) || (verified && !next_certificates.1) {
            Some("tls_server_config.client_auth_type")
        } else if restricted && !next_certificates.2 {
            Some("tls_server_config.client_allowed_sans")
        } else {
            None
        }
    }
}

/// Who asks, as far as that is known: nothing is known of a client of a Unix socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) Option<IpAddr>);
