//! The command `healthcheck`: asks a running exporter whether it is healthy, for container engines that can only run a program.

use std::error::Error as _;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use http::StatusCode;
use reqwest::{Client, Response};
use url::{Position, Url};

use super::{Failure, print};
use crate::cli::{values, with_variable};
use crate::util::{one_line, shown_duration};
use crate::web::{HEALTHY_PATH, ListenAddress};

/// The maximum length of the exporter's own words in the output, in characters.
const MAX_WORDS: usize = 200;

/// `healthcheck`.
#[derive(Clone, Debug, Args)]
#[command(mut_args = with_variable)]
pub struct HealthcheckArgs {
    /// The exporter's listen address; if there are several, the first is used
    #[arg(id = "web.listen-address", long, value_name = "ADDRESS")]
    #[arg(default_value = ":10917", value_delimiter = ',')]
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
pub(crate) struct Target {
    url: Url,
    socket: Option<PathBuf>,
}

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
        match &self.socket {
            Some(path) => write!(f, "unix:{}", path.display()),
            // User information and queries may be secret.
            None => {
                let address = &self.url[Position::BeforeHost..Position::AfterPath];
                write!(f, "{}://{address}", self.url.scheme())
            }
        }
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
        Ok(Self { url, socket: None })
    }

    /// Returns where an exporter with this listen address can be reached from its own machine.
    pub(crate) fn from_listen_address(address: &ListenAddress) -> Result<Self, String> {
        let (host, socket) = match address {
            ListenAddress::Unix(path) => ("localhost".to_owned(), Some(path.clone())),
            ListenAddress::Tcp(_, 0) => {
                return Err(
                    "--web.listen-address has port 0, which is any free port; give --url"
                        .to_owned(),
                );
            }
            ListenAddress::Tcp(host, port) => {
                let every_interface = ["", "0.0.0.0", "[::]"].contains(&host.as_str());
                let host = if every_interface { "127.0.0.1" } else { host };
                (format!("{host}:{port}"), None)
            }
        };
        let url = Url::parse(&format!("http://{host}{HEALTHY_PATH}"))
            .map_err(|error| format!("--web.listen-address {address}: {error}; give --url"))?;
        Ok(Self { url, socket })
    }

    /// Asks for the health; an error says why it is not known to be good.
    pub(crate) async fn ask(&self, timeout: Duration) -> Result<String, String> {
        let answer = tokio::time::timeout(timeout, self.request()).await;
        let late = || format!("no answer within {}", shown_duration(timeout));
        answer.unwrap_or_else(|_| Err(late()))
    }

    async fn request(&self) -> Result<String, String> {
        let mut client = Client::builder()
            .user_agent(concat!(
                "orgdata-exporter-healthcheck/",
                env!("CARGO_PKG_VERSION")
            ))
            .http1_only()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .tls_danger_accept_invalid_certs(true);
        if let Some(path) = &self.socket {
            client = client.unix_socket(path.as_path());
        }
        let client = client.build().map_err(|error| cause(&error))?;
        let (mut answer, mut is_tls) = (client.get(self.url.clone()).send().await, false);
        // A TLS server answers plain HTTP with a 400.
        if matches!(&answer, Ok(response) if response.status() == StatusCode::BAD_REQUEST) {
            let mut url = self.url.clone();
            // A change between http and https never fails.
            let _ = url.set_scheme("https");
            (answer, is_tls) = (client.get(url).send().await, true);
        }
        match answer {
            Ok(response) => judge(response).await,
            // A TLS alert is the answer of a living server. The end of the connection may come first.
            Err(error)
                if format!("{error:?}").contains("AlertReceived")
                    || is_tls && error.is_request() && !error.is_connect() =>
            {
                Ok("it requires a client certificate, which counts as healthy".to_owned())
            }
            Err(error) => Err(cause(&error)),
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
