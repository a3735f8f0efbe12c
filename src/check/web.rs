//! Where the exporter would listen, and who is there already.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use super::{Finding, Level, What};
use crate::web::{BindError, ListenAddress, Settings, WebConfig, try_bind};

/// How long somebody who listens may take to say who it is.
const PATIENCE: Duration = Duration::from_secs(2);

/// Who listens at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listener {
    /// An exporter of this program.
    Exporter,
    /// Something else.
    Stranger,
    /// It does not tell: TLS, or a password, is before it.
    Unknown,
}

/// Looks at each address. `held`: an exporter runs with the state file of these settings.
pub(super) async fn look(settings: &Settings, held: bool, limit: Duration) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(config) = &settings.config {
        let tls = if config.is_tls() {
            "with TLS"
        } else {
            "without TLS"
        };
        findings.push(Finding::good(
            What::WebConfig,
            format!("the web configuration file is valid, {tls}"),
        ));
    }
    if settings.systemd_socket {
        findings.push(Finding::good(
            What::Listen,
            "on the sockets that systemd hands over when it starts the exporter",
        ));
        return findings;
    }
    let Ok(tried) = tokio::time::timeout(limit, try_bind(&settings.listen_addresses)).await else {
        let said = format!(
            "the addresses cannot be looked up within {}",
            humantime::format_duration(limit)
        );
        findings.push(Finding::bad(
            What::Listen,
            said,
            "give IP addresses with --web.listen-address",
        ));
        return findings;
    };
    for (address, tried) in settings.listen_addresses.iter().zip(tried) {
        findings.push(match tried {
            Ok(()) => Finding::good(What::Listen, format!("{address} is free")),
            Err(error @ (BindError::InUse { .. } | BindError::Taken { .. })) => taken(
                &error,
                address,
                held,
                who(address, settings.config.as_ref()).await,
            ),
            Err(error) => Finding::told(What::Listen, Level::Bad, &error.to_string()),
        });
    }
    findings
}

fn taken(error: &BindError, address: &ListenAddress, held: bool, who: Listener) -> Finding {
    match (who, held) {
        (Listener::Exporter, true) => Finding::good(
            What::Listen,
            format!("the running exporter listens on {address}"),
        ),
        (Listener::Unknown, true) => Finding::good(
            What::Listen,
            format!("{address} is in use, by the running exporter as it seems"),
        ),
        (Listener::Exporter, false) => Finding::warning(
            What::Listen,
            format!("another exporter, with another state file, listens on {address}"),
            "a second one beside it needs another --web.listen-address",
        ),
        (Listener::Stranger, _) | (Listener::Unknown, false) => {
            Finding::told(What::Listen, Level::Bad, &error.to_string())
        }
    }
}

/// Asks for the readiness probe, which needs no password unless everything does.
async fn who(address: &ListenAddress, config: Option<&WebConfig>) -> Listener {
    let (host, port) = match address {
        ListenAddress::Any(port) => (Ipv4Addr::LOCALHOST.to_string(), *port),
        ListenAddress::Socket(address) if address.ip() == Ipv6Addr::UNSPECIFIED => {
            (Ipv4Addr::LOCALHOST.to_string(), address.port())
        }
        ListenAddress::Socket(address) if address.ip() == Ipv4Addr::UNSPECIFIED => {
            (Ipv4Addr::LOCALHOST.to_string(), address.port())
        }
        ListenAddress::Socket(address) if address.is_ipv6() => {
            (format!("[{}]", address.ip()), address.port())
        }
        ListenAddress::Socket(address) => (address.ip().to_string(), address.port()),
        ListenAddress::Name(name, port) => (name.clone(), *port),
        ListenAddress::Unix(_) => return Listener::Unknown,
    };
    if config.is_some_and(WebConfig::is_tls) {
        return Listener::Unknown;
    }
    let Ok(client) = reqwest::Client::builder()
        .no_proxy()
        .timeout(PATIENCE)
        .build()
    else {
        return Listener::Unknown;
    };
    let Ok(response) = client
        .get(format!("http://{host}:{port}/-/ready"))
        .send()
        .await
    else {
        return Listener::Stranger;
    };
    if response.status() == http::StatusCode::UNAUTHORIZED {
        return Listener::Unknown;
    }
    match response.text().await {
        Ok(text) if text.starts_with("orgdata-exporter ") => Listener::Exporter,
        _ => Listener::Stranger,
    }
}
