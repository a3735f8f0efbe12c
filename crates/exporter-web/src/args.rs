//! The flags of the web surface, with the names that all exporters use.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use url::Url;

use crate::WebConfig;

/// `--web.*`, to be flattened into the flags of an exporter.
///
/// The exporter sets its default port itself: `mut_arg("web.listen-address", |arg| arg.default_value(":9999"))`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Web")]
pub struct WebArgs {
    /// The addresses to listen on.
    #[arg(id = "web.listen-address", long, value_name = "ADDRESS")]
    #[arg(help = "Address to listen on: :PORT, HOST:PORT or [IPV6]:PORT; repeatable")]
    #[arg(value_delimiter = ',', value_parser = listen_address)]
    pub listen_addresses: Vec<String>,
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
        let Some(path) = &self.config_file else {
            return Ok(WebConfig::default());
        };
        WebConfig::load(path).map_err(|error| {
            let path = path.display().to_string();
            format!("--web.config.file {path:?}: {error}")
        })
    }
}

/// Parses `--web.listen-address`: `127.0.0.1:9999`, `[::1]:9999`, `localhost:9999`, or `:9999` for every interface. Port 0
/// means a free one.
///
/// # Errors
/// If it is something else, with the forms that are right.
pub fn listen_address(text: &str) -> Result<String, &'static str> {
    const HELP: &str = "it is not an address and a port; write it like :PORT, 127.0.0.1:PORT, [::1]:PORT or localhost:PORT, where port 0 means any free one";
    let (host, port) = text.rsplit_once(':').ok_or(HELP)?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let is_right = host.chars().all(is_name) || text.parse::<SocketAddr>().is_ok();
    match port.parse::<u16>() {
        Ok(_) if is_right && !port.starts_with('+') => Ok(text.to_owned()),
        _ => Err(HELP),
    }
}

/// Parses `--web.telemetry-path`: a path that clients request as it is written, and never `/` or a path below `/-/`, where
/// exporters have pages and probes.
fn telemetry_path(text: &str) -> Result<String, &'static str> {
    // A client normalizes it: `/..` is another path, and `//metrics` another host.
    let url = Url::parse("http://localhost").and_then(|base| base.join(text));
    // axum takes a part that begins like that for a pattern.
    let is_pattern = text.contains("/:") || text.contains("/*");
    if is_pattern || !url.is_ok_and(|url| url.path() == text) {
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
    fn a_listen_address_has_a_host_or_none_and_a_port() {
        let right = ":9999 :0 127.0.0.1:0 [::]:9999 [::1]:65535 exporter.example.org:1";
        for text in right.split(' ') {
            assert_eq!(listen_address(text).as_deref(), Ok(text));
        }
        let wrong = "|9999|127.0.0.1|localhost|:|:http|:65536|:-1|:+80|[::1]|::1|::1:9999|[::g]:80|local host:80|\
            http://localhost:9999|localhost:9999/metrics|unix:/run/x.sock";
        for text in wrong.split('|') {
            let error = listen_address(text).unwrap_err();
            assert!(error.contains("localhost:PORT"), "{text}: {error}");
        }
    }

    #[test]
    fn a_telemetry_path_is_plain_and_not_used_otherwise() {
        for text in ["/metrics", "/probe/m.e_t~r-1/", "/-metrics", "/..m"] {
            assert_eq!(telemetry_path(text).as_deref(), Ok(text));
        }
        for (text, reason) in [
            ("", "plain path"),
            ("metrics", "plain path"),
            ("/metrics?x=1", "plain path"),
            ("/{m}", "plain path"),
            ("/:x", "plain path"),
            ("/a/*x", "plain path"),
            ("/m\u{e9}", "plain path"),
            ("//metrics", "plain path"),
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
