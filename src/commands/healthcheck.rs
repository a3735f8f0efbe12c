//! The command `healthcheck`: asks a running exporter whether it is healthy, for container engines that can only run a program.

use std::error::Error as _;
use std::time::Duration;

use clap::Args;
use http::StatusCode;
use reqwest::Client;
use url::{Position, Url};

use super::{Failure, print};
use crate::cli::{values, with_variable};
use crate::health::HEALTHY_PATH;
use crate::util::{one_line, shown_duration};

/// The maximum length of the exporter's own words in the output, in characters.
const MAX_WORDS: usize = 200;

/// The number of requests over TLS. A server that wants a client certificate closes the connection, and if it does so with a request unread, its
/// words about the certificate may be lost.
const TLS_ATTEMPTS: u32 = 5;

/// `healthcheck`.
#[derive(Clone, Debug, Args)]
#[command(mut_args = with_variable)]
pub struct HealthcheckArgs {
    /// The exporter's listen address; if there are several, the first is used
    #[arg(id = "web.listen-address", long, value_name = "ADDRESS")]
    #[arg(value_delimiter = ',', value_parser = exporter_web::listen_address)]
    listen_addresses: Vec<String>,
    /// Ask this address instead; /-/healthy is added if it has no path
    // Not parsed by clap, whose error would repeat a password in it.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Maximum time for the whole check
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = values::duration)]
    timeout: Duration,
}

/// Asks once, and prints a line for the log of the checks.
///
/// Proxies and redirects are not followed. Certificates are not checked: nothing secret is sent, and a certificate does
/// not cover a loopback address.
///
/// # Errors
/// If the settings name no address, or the exporter is not healthy.
pub async fn run(args: &HealthcheckArgs) -> Result<(), Failure> {
    let url = args.target().map_err(Failure::in_settings)?;
    // User information and queries may be secret.
    let address = &url[Position::BeforeHost..Position::AfterPath];
    let shown = format!("{}://{address}", url.scheme());
    let late = || format!("no answer within {}", shown_duration(args.timeout));
    let answer = tokio::time::timeout(args.timeout, ask(url)).await;
    match answer.unwrap_or_else(|_| Err(late())) {
        Ok(state) => print(format!("{shown}: {state}\n")),
        Err(problem) => Err(Failure::at_run_time(format!("{shown}: {problem}"))),
    }
}

// === impl HealthcheckArgs ===

impl HealthcheckArgs {
    /// Returns where an exporter with these settings can be reached from its own machine.
    fn target(&self) -> Result<Url, String> {
        let (flag, text) = match (&self.url, self.listen_addresses.first()) {
            (Some(url), _) => ("--url", url.clone()),
            (None, Some(address)) if !address.ends_with(":0") => {
                ("--web.listen-address", url_of(address))
            }
            _ => return Err("--web.listen-address has no port to ask; give --url".to_owned()),
        };
        let url = Url::parse(&text).ok();
        let url = url.filter(|url| ["http", "https"].contains(&url.scheme()));
        let mut url = url.ok_or_else(|| {
            format!("{flag} is not a URL to ask; give --url like http://localhost:10917 or https://localhost:10917")
        })?;
        if url.path() == "/" {
            url.set_path(HEALTHY_PATH);
        }
        Ok(url)
    }
}

/// What answers at an address.
#[derive(Debug)]
enum Peer {
    /// A server.
    Response(reqwest::Response),
    /// A TLS server that wants a client certificate.
    NeedsCertificate,
}

/// Returns where a server with this listen address can be reached from its own machine.
fn url_of(address: &str) -> String {
    let mut every_interface = ["0.0.0.0:", "[::]:", ":"].into_iter();
    let port = every_interface.find_map(|host| address.strip_prefix(host));
    match port {
        Some(port) => format!("http://127.0.0.1:{port}"),
        None => format!("http://{address}"),
    }
}

/// Sends a request over HTTP, and over TLS if the server does not speak it.
async fn get(mut url: Url) -> Result<Peer, String> {
    let client = Client::builder()
        .http1_only()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .tls_danger_accept_invalid_certs(true)
        .build()
        .map_err(|error| cause(&error))?;
    let mut answer = client.get(url.clone()).send().await;
    // A TLS server answers plain HTTP with an alert. A change from http to https never fails.
    if let Err(error) = &answer
        && url.scheme() == "http"
        && !error.is_connect()
    {
        let first = cause(error);
        let _ = url.set_scheme("https");
        for _ in 0..TLS_ATTEMPTS {
            answer = client.get(url.clone()).send().await;
            match &answer {
                Err(error) if cause(error).contains("CertificateRequired") => {
                    return Ok(Peer::NeedsCertificate);
                }
                Err(error) if !error.is_connect() => {}
                _ => break,
            }
        }
        if answer.is_err() {
            return Err(first);
        }
    }
    answer.map(Peer::Response).map_err(|error| cause(&error))
}

/// Asks for the health; an error says why it is not known to be good.
async fn ask(url: Url) -> Result<String, String> {
    let mut answer = match get(url).await? {
        // The server is alive: it answered.
        Peer::NeedsCertificate => {
            let said = "it accepts TLS only with a client certificate, which counts as healthy";
            return Ok(said.to_owned());
        }
        Peer::Response(answer) => answer,
    };
    match answer.status() {
        status if status.is_success() => Ok("healthy".to_owned()),
        status @ (StatusCode::UNAUTHORIZED | StatusCode::TOO_MANY_REQUESTS) => {
            Ok(format!("HTTP {status}, which counts as healthy"))
        }
        StatusCode::SERVICE_UNAVAILABLE => {
            let words = answer.chunk().await.ok().flatten().unwrap_or_default();
            Err(one_line(&String::from_utf8_lossy(&words), MAX_WORDS))
        }
        status => Err(format!("HTTP {status}; is that an orgdata-exporter?")),
    }
}

/// Returns the innermost error; the outer ones repeat the address.
fn cause(error: &reqwest::Error) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    let innermost = causes.last();
    innermost.map_or_else(|| error.to_string(), ToString::to_string)
}
