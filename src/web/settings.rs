//! Where the exporter listens, and under which path it shows its metrics.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::{ListenAddress, WebConfig};

/// The settings of the web surface.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `--web.listen-address`: every address is served alike.
    pub listen_addresses: Vec<ListenAddress>,
    /// `--web.systemd-socket`: the sockets that systemd hands over, instead of the addresses.
    pub systemd_socket: bool,
    /// `--web.config.file`.
    pub config: Option<WebConfig>,
    /// `--web.telemetry-path`.
    pub telemetry_path: TelemetryPath,
    /// What one client, and all of them together, may take.
    pub limits: Limits,
}

/// The path of the metrics; never one that the exporter needs for something else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TelemetryPath(String);

/// Bounds on clients. The defaults suit scrapers and probes; tests make them small.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections open at the same time. Past it the one that has been idle longest gives way.
    pub connections: usize,
    /// From the connection, or from the first byte of a further request, to the end of the request's headers.
    pub header_timeout: Duration,
    /// How long a connection may be silent between two requests. Longer than any usual scrape interval, so that a scraper
    /// keeps its connection.
    pub idle_timeout: Duration,
    /// How long a client may take to read what it asked for.
    pub write_timeout: Duration,
    /// How long answers that are on their way may take when the exporter stops.
    pub shutdown_grace: Duration,
}

/// Why a telemetry path was refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TelemetryPathError {
    /// It does not start with a slash.
    #[error("it must start with /, like /metrics")]
    Relative,
    /// The exporter answers something else there.
    #[error(
        "/ and everything under /-/ are taken by the exporter itself; choose another path, like /metrics"
    )]
    Taken,
    /// A character that a path cannot have, or that would make two paths look the same.
    #[error(
        "it may only hold letters, digits and the characters - . _ ~ /, and no empty or dotted parts"
    )]
    Characters,
}

// === impl TelemetryPath ===

impl TelemetryPath {
    /// The path, with its leading slash.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for TelemetryPath {
    fn default() -> Self {
        Self("/metrics".to_owned())
    }
}

impl FromStr for TelemetryPath {
    type Err = TelemetryPathError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some(path) = text.strip_prefix('/') else {
            return Err(TelemetryPathError::Relative);
        };
        if path.is_empty() || path == "-" || path.starts_with("-/") {
            return Err(TelemetryPathError::Taken);
        }
        let plain = path
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte));
        if !plain || path.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(TelemetryPathError::Characters);
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for TelemetryPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl Limits ===

impl Limits {
    /// How long one answer over HTTP/2 may take, from the request to the last byte read: as long again as a client may take to
    /// read it, for the scrape to have its turn and be encoded.
    pub(super) fn answer_timeout(&self) -> Duration {
        self.write_timeout * 2
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 256,
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(5 * 60),
            write_timeout: Duration::from_secs(30),
            shutdown_grace: Duration::from_secs(3),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_telemetry_path_is_kept() {
        for text in ["/metrics", "/probe/metrics", "/-metrics", "/m.e_t~r-1"] {
            assert_eq!(text.parse::<TelemetryPath>().unwrap().as_str(), text);
        }
    }

    #[test]
    fn a_telemetry_path_is_refused_with_the_reason() {
        use TelemetryPathError as E;
        for (text, error) in [
            ("", E::Relative),
            ("metrics", E::Relative),
            ("/", E::Taken),
            ("/-", E::Taken),
            ("/-/healthy", E::Taken),
            ("/-/metrics", E::Taken),
            ("//", E::Characters),
            ("/metrics/", E::Characters),
            ("/a/../b", E::Characters),
            ("/metrics?x=1", E::Characters),
            ("/{metrics}", E::Characters),
            ("/m%65trics", E::Characters),
            ("/m\u{e9}trics", E::Characters),
        ] {
            assert_eq!(text.parse::<TelemetryPath>(), Err(error), "{text}");
        }
    }
}
