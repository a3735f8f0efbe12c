//! The command `healthcheck`: asks a running exporter whether it is healthy, for container engines that can only run a program.

use std::error::Error as _;
use std::fmt;
use std::time::Duration;

use clap::Args;
use exporter_web::ListenAddress;
use http::StatusCode;
use reqwest::{Client, Response};
use url::{Position, Url};

use super::{Failure, print};
use crate::cli::{values, with_variable};
use crate::health::HEALTHY_PATH;
use crate::util::{one_line, shown_duration};

/// The maximum length of the exporter's own words in the output, in characters.
const MAX_WORDS: usize = 200;

/// `healthcheck`.
#[derive(Clone, Debug, Args)]
#[command(mut_args = with_variable)]
pub struct HealthcheckArgs {
    /// The exporter's listen address; if there are several, the first is used
    #[arg(id = "web.listen-address", long, value_name = "ADDRESS")]
    #[arg(value_delimiter = ',')]
    listen_addresses: Vec<ListenAddress>,
    /// Ask this address instead; /-/healthy is added if it has no path
    // Not parsed by clap, whose error would repeat a password in it.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Maximum time for the whole check
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = values::duration)]
    timeout: Duration,
}

/// The address to ask.
#[derive(Debug)]
pub(crate) struct Target(Url);

/// Asks once, and prints a line for the log of the checks.
///
/// Proxies and redirects are not followed. Certificates are not checked: nothing secret is sent, and a certificate does
/// not cover a loopback address.
///
/// # Errors
/// If the settings name no address, or the exporter is not healthy.
pub async fn run(args: &HealthcheckArgs) -> Result<(), Failure> {
    let target = match (&args.url, args.listen_addresses.first()) {
        (Some(url), _) => Target::from_url(url),
        (None, Some(address)) => Target::from_listen_address(address),
        (None, None) => Err("--web.listen-address is empty; give it like :10917".to_owned()),
    };
    let target = target.map_err(Failure::in_settings)?;
    match target.ask(args.timeout).await {
        Ok(state) => print(&format!("{target}: {state}\n")),
        Err(problem) => Err(Failure::at_run_time(format!("{target}: {problem}"))),
    }
}

// === impl Target ===

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // User information and queries may be secret.
        let address = &self.0[Position::BeforeHost..Position::AfterPath];
        write!(f, "{}://{address}", self.0.scheme())
    }
}

impl Target {
    fn from_url(text: &str) -> Result<Self, String> {
        let mut url = Url::parse(text)
            .map_err(|error| format!("--url: {error}; give it like http://localhost:10917"))?;
        if !["http", "https"].contains(&url.scheme()) {
            return Err("--url: unknown scheme; give an http:// or https:// address".to_owned());
        }
        if url.path() == "/" {
            url.set_path(HEALTHY_PATH);
        }
        Ok(Self(url))
    }

    /// Returns where an exporter with this listen address can be reached from its own machine.
    pub(crate) fn from_listen_address(address: &ListenAddress) -> Result<Self, String> {
        let ListenAddress { host, port } = address;
        if *port == 0 {
            let message = "--web.listen-address has port 0, which is any free port; give --url";
            return Err(message.to_owned());
        }
        let every_interface = ["", "0.0.0.0", "[::]"].contains(&host.as_str());
        let host = if every_interface { "127.0.0.1" } else { host };
        Url::parse(&format!("http://{host}:{port}{HEALTHY_PATH}"))
            .map(Self)
            .map_err(|error| format!("--web.listen-address {address}: {error}; give --url"))
    }

    /// Asks for the health; an error says why it is not known to be good.
    pub(crate) async fn ask(&self, timeout: Duration) -> Result<String, String> {
        let answer = tokio::time::timeout(timeout, self.request()).await;
        let late = || format!("no answer within {}", shown_duration(timeout));
        answer.unwrap_or_else(|_| Err(late()))
    }

    async fn request(&self) -> Result<String, String> {
        let client = Client::builder()
            .user_agent(concat!(
                "orgdata-exporter-healthcheck/",
                env!("CARGO_PKG_VERSION")
            ))
            .http1_only()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .tls_danger_accept_invalid_certs(true)
            .build()
            .map_err(|error| cause(&error))?;
        let answer = client.get(self.0.clone()).send().await;
        let answer = answer.map_err(|error| cause(&error))?;
        // A TLS server answers plain HTTP with a 400.
        if answer.status() != StatusCode::BAD_REQUEST || self.0.scheme() == "https" {
            return judge(answer).await;
        }
        let mut url = self.0.clone();
        // A change from http to https never fails.
        let _ = url.set_scheme("https");
        match client.get(url).send().await {
            Ok(answer) => judge(answer).await,
            // The server is alive: it answered.
            Err(_) => Ok(
                "it accepts TLS only with a client certificate, which counts as healthy".to_owned(),
            ),
        }
    }
}

async fn judge(mut response: Response) -> Result<String, String> {
    match response.status() {
        status if status.is_success() => Ok("healthy".to_owned()),
        status @ (StatusCode::UNAUTHORIZED | StatusCode::TOO_MANY_REQUESTS) => {
            Ok(format!("HTTP {status}, which counts as healthy"))
        }
        StatusCode::SERVICE_UNAVAILABLE => {
            let words = response.chunk().await.ok().flatten().unwrap_or_default();
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
