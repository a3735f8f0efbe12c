//! The addresses of the web server: free, or held by an exporter that answers.

use std::io::ErrorKind;

use exporter_web::{WebArgs, bind};
use http::StatusCode;
use tokio::time::timeout;
use url::Url;

use super::{MAX_TIME, Outcome, bad, good, warning};
use crate::cli::ExporterSettings;
use crate::commands::healthcheck::{Answer, get, url_of};

/// How often an exporter is asked: the alert of one that wants a certificate may be lost when it closes the connection.
const TRIES: u32 = 5;

/// The program that has the addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// None: they are free.
    None,
    /// An exporter, or a server that asks for a password or a certificate as it may do.
    Exporter,
    /// Something else, or they cannot be used; the text says why.
    Other(String),
}

/// Binds the addresses as the exporter does, and asks who has them if they are in use.
pub(super) async fn find(settings: &ExporterSettings) -> Holder {
    let web = &settings.web;
    let Err(error) = bind(web, settings.web_config.clone()).await else {
        return Holder::None;
    };
    for address in &web.listen_addresses {
        if error.kind() != ErrorKind::AddrInUse || !is_exporter(address).await {
            return Holder::Other(error.to_string());
        }
    }
    Holder::Exporter
}

/// Asks for the landing page.
async fn is_exporter(address: &str) -> bool {
    let Ok(url) = Url::parse(&url_of(address)) else {
        return false;
    };
    let look = async {
        for _ in 0..TRIES {
            match get(url.clone()).await {
                Ok(Answer::NeedsCertificate) => return true,
                Ok(Answer::Response(mut page)) => {
                    let start = page.chunk().await.ok().flatten().unwrap_or_default();
                    let is_named = String::from_utf8_lossy(&start).contains("orgdata-exporter");
                    return page.status() == StatusCode::UNAUTHORIZED || is_named;
                }
                Err(_) => {}
            }
        }
        false
    };
    timeout(MAX_TIME, look).await.unwrap_or(false)
}

/// Says who has the addresses. `is_locked` says whether another process has the state file; `None` if that is not known.
pub(super) fn judge(web: &WebArgs, holder: &Holder, is_locked: Option<bool>) -> Outcome {
    let addresses = web.listen_addresses.join(", ");
    let (outcome, said): (fn(String) -> Outcome, _) = match holder {
        Holder::None => (good, "free"),
        Holder::Other(why) => return bad(why),
        Holder::Exporter if is_locked == Some(false) => (
            warning,
            "held by an exporter that does not use this state file; if that is the one that you mean, give this command its --state.path, else choose another --web.listen-address",
        ),
        Holder::Exporter => (good, "held by an exporter that answers"),
    };
    outcome(format!("{addresses}: {said}"))
}
