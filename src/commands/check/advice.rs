//! What to do about a failed request to the API or to the collector.

use orgdata_api::{ApiError, Endpoint, FailureReason, KEY_VARIABLE, KeySource};

use super::Finding;
use crate::cli::Settings;

/// Advice about a peer that does not answer.
pub(super) const SILENCE: &str = "it hangs, or a firewall drops the packets: check whether the address answers from this machine";

/// Words of the errors of connections, and what to do about them. The first line that matches counts.
const CONNECT: &str = "\
dns error|failed to lookup => the host has no address: check the name, and this machine's DNS
timed out => it hangs, or a firewall drops the packets: check whether the address answers from this machine
tunnel|proxy => the proxy refuses the connection: check HTTPS_PROXY and NO_PROXY
InvalidContentType|WrongVersion|corrupt message => the port does not speak TLS: check the port, or use http://
CertificateRequired|HandshakeFailure => it requires a client certificate: give OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and OTEL_EXPORTER_OTLP_CLIENT_KEY if it is a collector
UnknownIssuer => the issuer of its certificate is not trusted on this machine: give its root certificate in OTEL_EXPORTER_OTLP_CERTIFICATE
certificate => its certificate is not valid for this address: check the host, and the certificate's names and dates
refused => nothing listens there: check host and port, and whether the server runs
reset|closed|eof|Broken pipe|IncompleteMessage => the connection was accepted and dropped: check the server, any proxy or firewall in between, and whether the port wants https
 => check whether the address can be reached from this machine";

/// Returns the finding for a failed request to the API.
pub(super) fn for_api(check: &'static str, error: &ApiError, settings: &Settings) -> Finding {
    use FailureReason as R;
    let said = error.to_string();
    let loop_name = match said.contains(Endpoint::Tickets.scope()) {
        true => "tickets",
        false => "audit",
    };
    let advice = match error.reason() {
        // The message itself says what to do.
        R::Redirect => return Finding::error(check, error),
        R::Connect if said.contains("; ") => return Finding::error(check, error),
        R::Connect => connect(&said, "--api.base-url"),
        R::Timeout => SILENCE.to_owned(),
        R::Key => "put the key into it, on one line, readable for this user".to_owned(),
        R::Unauthorized => format!(
            "create a key in the API's settings, under API keys, and put it into {}",
            place_of_key(settings)
        ),
        R::Forbidden => format!(
            "give the key that scope in the API's settings, or do without: --{loop_name}.enabled=false"
        ),
        R::NotFound => "--api.base-url is the URL up to /v1, without it".to_owned(),
        R::Validation if !settings.api.filters.is_empty() => {
            "correct the filter that it names: --audit.activity-types, --audit.deal-ids, --audit.actor-emails, --audit.target-emails".to_owned()
        }
        R::RateLimited => "the exporter waits and continues; lower --api.max-requests-per-second if it lasts, or see what else uses the key".to_owned(),
        R::ServerError => {
            "the API itself fails: ask its operators; the exporter continues once it works".to_owned()
        }
        _ => "this is not an answer of the Organization Data API: check --api.base-url, and any proxy or login page in between".to_owned(),
    };
    match error.reason() {
        R::RateLimited => Finding::warning(check, said, advice),
        _ => Finding::bad(check, said, advice),
    }
}

/// Returns where the key comes from.
pub(super) fn place_of_key(settings: &Settings) -> String {
    match &settings.api.key {
        KeySource::File(path) => path.display().to_string(),
        KeySource::Value(_) => KEY_VARIABLE.to_owned(),
    }
}

/// Returns what to do about a connection that failed; `setting` holds the address.
pub(super) fn connect(error: &str, setting: &str) -> String {
    let matches = |(words, _): &(&str, &str)| words.split('|').any(|word| error.contains(word));
    let mut lines = CONNECT.lines().filter_map(|line| line.split_once(" => "));
    let (_, advice) = lines.find(matches).unwrap_or_default();
    format!("{advice} ({setting})")
}
