//! Where the exporter would listen, and whether it is the exporter that listens there already.

use std::time::Duration;

use super::Finding;
use crate::commands::healthcheck::Target;
use crate::web::{BindError, ListenAddress, Settings, WebConfig, try_bind};

const CHECK: &str = "listen";

/// The maximum time for a running exporter to answer.
const MAX_TIME: Duration = Duration::from_secs(2);

/// Tries each address. `held` says that an exporter runs with the state file of these settings.
pub(super) async fn check(settings: &Settings, held: bool, limit: Duration) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(config) = &settings.config {
        let tls = if WebConfig::is_tls(config) {
            "with"
        } else {
            "without"
        };
        let said = format!("the web configuration file is valid, {tls} TLS");
        findings.push(Finding::good("web-config", said));
    }
    if settings.systemd_socket {
        let said = "on the sockets that systemd passes when it starts the exporter";
        findings.push(Finding::good(CHECK, said));
        return findings;
    }
    let tries = tokio::time::timeout(limit, try_bind(&settings.listen_addresses)).await;
    let Ok(tries) = tries else {
        let said = format!(
            "cannot resolve the names within {}",
            humantime::format_duration(limit)
        );
        findings.push(Finding::bad(
            CHECK,
            said,
            "give IP addresses with --web.listen-address",
        ));
        return findings;
    };
    for (address, tried) in settings.listen_addresses.iter().zip(tries) {
        findings.push(match tried {
            Ok(()) => Finding::good(CHECK, format!("{address} is free")),
            Err(BindError::InUse(_)) if held && is_exporter(address).await => {
                Finding::good(CHECK, format!("the running exporter listens on {address}"))
            }
            Err(error) => Finding::error(CHECK, error),
        });
    }
    findings
}

async fn is_exporter(address: &ListenAddress) -> bool {
    match Target::from_listen_address(address) {
        Ok(target) => target.ask(MAX_TIME).await.is_ok(),
        Err(_) => false,
    }
}
