//! The command `healthcheck`: asks a running exporter whether it is healthy, for a container engine that can only run a program.

use std::error::Error as _;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use http::StatusCode;
use reqwest::{Client, Response};
use url::Url;

use crate::cli;
use crate::web::{HEALTHY_PATH, ListenAddress};

/// Characters of an answer that are shown.
const SHOWN: usize = 200;

/// `healthcheck`.
#[derive(Clone, Debug, Args)]
pub struct HealthcheckArgs {
    /// Where the exporter listens; of several addresses the first is asked
    #[arg(
        id = "web.listen-address",
        long = "web.listen-address",
        env = "ORGDATA_WEB_LISTEN_ADDRESS",
        value_name = "ADDRESS",
        default_value = ":10917",
        value_delimiter = ','
    )]
    pub listen_addresses: Vec<ListenAddress>,
    /// Ask this address instead; one without a path is asked for /-/healthy
    // Checked here and not by clap, which would repeat a password that stands in it.
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// Longest time for all of it
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = cli::values::duration)]
    pub timeout: Duration,
}

/// Why the exporter is not known to be healthy.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// Nobody can be asked with these settings.
    #[error("{0}")]
    Setting(String),
    /// It does not answer, or says that it is not well.
    #[error("{asked}: {reason}")]
    Unhealthy {
        /// Who was asked.
        asked: String,
        /// What happened.
        reason: String,
    },
}

/// Who is asked.
#[derive(Debug)]
struct Target {
    url: Url,
    socket: Option<PathBuf>,
}

/// Asks once. What is returned is a line for whoever reads the log of the checks.
///
/// Neither a proxy nor a redirect is followed, and no certificate is checked: nothing secret is sent, and a loopback address is
/// in no certificate.
///
/// # Errors
/// Where the settings name nobody, or the exporter is not healthy.
pub async fn run(args: &HealthcheckArgs) -> Result<String, CheckError> {
    let target = Target::new(args)?;
    let answer = match tokio::time::timeout(args.timeout, target.ask()).await {
        Ok(answer) => answer,
        Err(_) => Err(format!(
            "no answer within {}",
            humantime::format_duration(args.timeout)
        )),
    };
    let asked = target.to_string();
    answer
        .map(|said| format!("{asked}: {said}"))
        .map_err(|reason| CheckError::Unhealthy { asked, reason })
}

// === impl CheckError ===

impl CheckError {
    /// The process's exit status.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Unhealthy { .. } => 1,
            Self::Setting(_) => 2,
        }
    }
}

// === impl Target ===

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.socket {
            Some(path) => write!(f, "unix:{}", path.display()),
            // A query may hold a token.
            None => f.write_str(&self.url[..url::Position::AfterPath]),
        }
    }
}

impl Target {
    fn new(args: &HealthcheckArgs) -> Result<Self, CheckError> {
        match (&args.url, args.listen_addresses.first()) {
            (Some(url), _) => {
                Self::given(url).map_err(|reason| CheckError::Setting(format!("--url: {reason}")))
            }
            (None, Some(address)) => Self::listening(address).map_err(|reason| {
                CheckError::Setting(format!("--web.listen-address {address}: {reason}"))
            }),
            (None, None) => Err(CheckError::Setting(
                "--web.listen-address is empty; give it like :10917".to_owned(),
            )),
        }
    }

    fn given(text: &str) -> Result<Self, String> {
        let mut url = Url::parse(text)
            .map_err(|error| format!("{error}; give an address like http://localhost:10917"))?;
        if !["http", "https"].contains(&url.scheme()) {
            return Err("only http:// and https:// can be asked".to_owned());
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("it holds a user or a password, and command lines are public; leave them out: a 401 counts as healthy".to_owned());
        }
        if url.path() == "/" {
            url.set_path(HEALTHY_PATH);
        }
        Ok(Self { url, socket: None })
    }

    /// Where an exporter with this listen address is found from its own machine.
    fn listening(address: &ListenAddress) -> Result<Self, String> {
        let (host, socket) = match address {
            ListenAddress::Unix(path) => ("localhost".to_owned(), Some(path.clone())),
            _ if address.port() == 0 => {
                return Err(
                    "port 0 is any free one, which nobody else knows; give --url".to_owned(),
                );
            }
            // `[::]` takes IPv4 too, or another listen address does.
            ListenAddress::Any(port) => (format!("{}:{port}", Ipv4Addr::LOCALHOST), None),
            ListenAddress::Socket(address) if address.ip().to_canonical().is_unspecified() => {
                (format!("{}:{}", Ipv4Addr::LOCALHOST, address.port()), None)
            }
            ListenAddress::Socket(_) | ListenAddress::Name(..) => (address.to_string(), None),
        };
        let url = Url::parse(&format!("http://{host}{HEALTHY_PATH}"))
            .map_err(|error| format!("{error}; give --url"))?;
        Ok(Self { url, socket })
    }

    async fn ask(&self) -> Result<String, String> {
        let mut builder = Client::builder()
            .user_agent(concat!(
                "orgdata-exporter-healthcheck/",
                env!("CARGO_PKG_VERSION")
            ))
            .http1_only()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .tls_danger_accept_invalid_certs(true);
        if let Some(path) = &self.socket {
            builder = builder.unix_socket(path.as_path());
        }
        let client = builder.build().map_err(|error| cause(&error))?;
        let mut answer = client.get(self.url.clone()).send().await;
        // A server that speaks TLS says so. What its configuration file says by now may not be in force.
        if answer
            .as_ref()
            .is_ok_and(|response| response.status() == StatusCode::BAD_REQUEST)
        {
            let mut url = self.url.clone();
            // Between http and https a change is always possible.
            let _ = url.set_scheme("https");
            answer = client.get(url).send().await;
        }
        match answer {
            Ok(response) => judge(response).await,
            Err(error) if is_alert(&error) => {
                Ok("it answers, and asks for a client certificate: taken for healthy".to_owned())
            }
            Err(error) => Err(cause(&error)),
        }
    }
}

async fn judge(mut response: Response) -> Result<String, String> {
    let status = response.status();
    match status {
        _ if status.is_success() => Ok("healthy".to_owned()),
        StatusCode::UNAUTHORIZED | StatusCode::TOO_MANY_REQUESTS => {
            Ok(format!("it answers {status}: taken for healthy"))
        }
        StatusCode::SERVICE_UNAVAILABLE => {
            // Its beginning is enough, and what arrives at once is all of ours.
            let text = response.chunk().await.ok().flatten().unwrap_or_default();
            let text = String::from_utf8_lossy(&text)
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ");
            Err(text
                .chars()
                .filter(|c| !c.is_control())
                .take(SHOWN)
                .collect())
        }
        _ => Err(format!("it answers {status}; is that an orgdata-exporter?")),
    }
}

/// Whether the server ended a TLS handshake in good order: that takes a process that turns.
fn is_alert(error: &reqwest::Error) -> bool {
    let mut causes = std::iter::successors(error.source(), |&error| {
        match error.downcast_ref::<std::io::Error>() {
            // An error inside of one of these is not its source, but itself.
            Some(error) => error.get_ref().map(|inner| inner as &dyn std::error::Error),
            None => error.source(),
        }
    });
    causes.any(|error| matches!(error.downcast_ref(), Some(rustls::Error::AlertReceived(_))))
}

/// The innermost error: the outer ones only repeat the address.
fn cause(error: &reqwest::Error) -> String {
    let causes = std::iter::successors(error.source(), |&error| error.source());
    causes
        .last()
        .map_or_else(|| "no answer".to_owned(), ToString::to_string)
}
