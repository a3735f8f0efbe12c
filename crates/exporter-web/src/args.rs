//! The flags of the web surface, with the names that all exporters use.

use std::path::PathBuf;

use clap::Args;
use url::Url;

use crate::{ListenAddress, WebConfig};

/// `--web.*`, to be flattened into the flags of an exporter.
///
/// The exporter sets its default port itself: `mut_arg("web.listen-address", |arg| arg.default_value(":9999"))`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Web")]
pub struct WebArgs {
    /// The addresses to listen on.
    #[arg(id = "web.listen-address", long, value_name = "ADDRESS")]
    #[arg(help = "Address to listen on: :PORT, HOST:PORT or [IPV6]:PORT; repeatable")]
    #[arg(value_delimiter = ',')]
    pub listen_addresses: Vec<ListenAddress>,
    /// TLS, client certificates, basic auth and headers, in the format of Prometheus' exporter-toolkit; read again if it changes
    #[arg(id = "web.config.file", long, value_name = "FILE")]
    pub config_file: Option<PathBuf>,
    /// Path of the metrics
    #[arg(id = "web.telemetry-path", long, value_name = "PATH")]
    #[arg(default_value = "/metrics", value_parser = telemetry_path)]
    pub telemetry_path: String,
}

// === impl WebArgs ===

impl WebArgs {
    /// Reads `--web.config.file`. This blocks for at most a few seconds.
    ///
    /// # Errors
    /// One line that says what cannot be used in the file, or in a file that it names, and what to write instead.
    pub fn config(&self) -> Result<WebConfig, String> {
        // As in exporter-toolkit, an empty name means no file.
        match &self.config_file {
            Some(path) if !path.as_os_str().is_empty() => WebConfig::load(path).map_err(|error| {
                let path = path.display().to_string();
                format!("--web.config.file {path:?}: {error}")
            }),
            _ => Ok(WebConfig::default()),
        }
    }
}

/// Parses `--web.telemetry-path`: a path that clients request as it is written, and never `/` or a path below `/-/`, where
/// exporters have pages and probes.
fn telemetry_path(text: &str) -> Result<String, &'static str> {
    // A client normalizes it: `/..` is another path, and `//metrics` another host.
    let url = Url::parse("http://localhost").and_then(|base| base.join(text));
    if !url.is_ok_and(|url| url.path() == text) {
        return Err("it is not a plain path; write it like /metrics");
    }
    match text == "/" || text == "/-" || text.starts_with("/-/") {
        true => Err("the exporter itself uses / and everything under /-/; choose another path"),
        false => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_telemetry_path_is_plain_and_not_used_otherwise() {
        for text in [
            "/metrics",
            "/probe/metrics/",
            "/-metrics",
            "/m.e_t~r-1",
            "/..m",
        ] {
            assert_eq!(telemetry_path(text).as_deref(), Ok(text));
        }
        for (text, reason) in [
            ("", "plain path"),
            ("metrics", "plain path"),
            ("http://localhost/metrics", "plain path"),
            ("/metrics?x=1", "plain path"),
            ("/metrics#x", "plain path"),
            ("/{m}", "plain path"),
            ("/m x", "plain path"),
            ("/m\u{e9}", "plain path"),
            ("//metrics", "plain path"),
            ("/..", "plain path"),
            ("/.", "plain path"),
            ("/a/../-/ready", "plain path"),
            ("/%2e%2e", "plain path"),
            ("/", "itself uses"),
            ("/-", "itself uses"),
            ("/-/healthy", "itself uses"),
        ] {
            let error = telemetry_path(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
