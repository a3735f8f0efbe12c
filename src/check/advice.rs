//! What to do about each failure of the service, and how bad it is.

use super::{Finding, Level, What};
use crate::api::{ApiError, KEY_VARIABLE, KeySource};
use crate::cli::Settings;

const SILENCE: &str = "the service hangs or is slow, or a firewall swallows the way to it: see whether --api.base-url answers from this machine at all";

/// A failure of the service, or on the way to it, as a finding.
pub(super) fn finding(check: What, error: &ApiError, settings: &Settings) -> Finding {
    let level = if matches!(error, ApiError::RateLimited { .. }) {
        Level::Warning
    } else {
        Level::Bad
    };
    match error {
        // These messages hold what to do.
        ApiError::Redirect { .. } => return Finding::told(check, level, &error.to_string()),
        ApiError::Connect(said) if said.contains("; ") => {
            return Finding::told(check, level, &error.to_string());
        }
        _ => {}
    }
    Finding {
        check,
        level,
        said: error.to_string(),
        advice: Some(advice(error, settings)),
    }
}

/// Where the key is from.
pub(super) fn place_of_the_key(settings: &Settings) -> String {
    match &settings.api.key {
        KeySource::File(path) => path.display().to_string(),
        KeySource::Value(_) => KEY_VARIABLE.to_owned(),
    }
}

fn advice(error: &ApiError, settings: &Settings) -> String {
    match error {
        ApiError::Key(_) => "put the key into it, on one line, and let this user read it".to_owned(),
        ApiError::Connect(said) => connect(said, settings),
        ApiError::Timeout(_) => SILENCE.to_owned(),
        ApiError::Stalled { .. } => {
            "the service, or something on the way, stops in the middle: look at both, or allow more with --api.timeout if it is only slow"
                .to_owned()
        }
        ApiError::Unauthorized(_) => {
            format!("make a key in the service's settings, under API keys, and put it into {}", place_of_the_key(settings))
        }
        ApiError::Forbidden { scope, .. } => {
            let flag = if *scope == crate::api::Endpoint::Tickets.scope() { "--tickets.enabled=false" } else { "--audit.enabled=false" };
            format!("give the key that scope in the service's settings, or do without: {flag}")
        }
        ApiError::NotFound(_) => "--api.base-url is the address up to, and without, /v1".to_owned(),
        ApiError::Validation { .. } if !settings.api.filters.is_empty() => {
            "correct the filter that it names: --audit.activity-types, --audit.deal-ids, --audit.actor-emails, --audit.target-emails"
                .to_owned()
        }
        ApiError::Validation { .. } | ApiError::Status { .. } => {
            "this is not how the service is documented to answer: check --api.base-url, and ask the service's operators".to_owned()
        }
        ApiError::RateLimited { .. } | ApiError::Paused(_) => {
            "the exporter waits and goes on by itself; lower --api.max-requests-per-second if it lasts, or see who else uses the key"
                .to_owned()
        }
        ApiError::Server { .. } => "the service itself fails: ask its operators; the exporter goes on by itself once it works".to_owned(),
        ApiError::NotJson { .. } => {
            "something else answers in the service's place: check --api.base-url, and the proxy or login page before it".to_owned()
        }
        ApiError::Truncated { .. } => {
            "something on the way cuts answers short: look at the proxy or load balancer between, and at the service".to_owned()
        }
        ApiError::Empty { .. } => {
            "something on the way swallows the answer: check --api.base-url, and the proxy or load balancer between".to_owned()
        }
        ApiError::TooLarge { .. } => "no page of one item is so large: check --api.base-url, and ask the service's operators".to_owned(),
        ApiError::Malformed(_) => "this is not the Organization Data API, or it has changed: check --api.base-url".to_owned(),
        // A redirect says what to do itself.
        ApiError::Redirect { .. } => "set --api.base-url to the right address".to_owned(),
    }
}

fn connect(said: &str, settings: &Settings) -> String {
    let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
    if has(&["dns error", "failed to lookup"]) {
        "the host has no address: check the name in --api.base-url, and this machine's DNS"
    } else if has(&["timed out"]) {
        SILENCE
    } else if has(&["tunnel", "proxy"]) {
        "the proxy does not let it through: check HTTPS_PROXY and NO_PROXY"
    } else if has(&["InvalidContentType", "WrongVersion", "corrupt message"]) {
        "what listens there does not speak TLS: check the port, or use http:// if it is on this machine"
    } else if has(&["certificate"]) {
        "the service's certificate is not right for this address: check the host in --api.base-url, and the certificate's names and dates"
    } else if has(&["refused"]) {
        "nothing listens there: check host and port in --api.base-url, and whether the service runs"
    } else if has(&["reset", "closed", "Broken pipe", "IncompleteMessage"]) && settings.api.base_url.to_string().starts_with("http://") {
        "something took the connection and dropped it: look at the service and at what is between; does the port want https?"
    } else if has(&["reset", "closed", "eof"]) {
        "something took the connection and dropped it: look at the service, and at the proxy or firewall between"
    } else {
        "see whether --api.base-url can be reached from this machine"
    }
    .to_owned()
}
