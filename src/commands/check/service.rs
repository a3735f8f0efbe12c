//! The API: whether it can be reached, accepts the key, and lists audit logs and tickets; and what its clock says.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use orgdata_api::FailureReason as R;
use orgdata_api::{
    ApiError, AuditPage, Client, Endpoint, Filters, KEY_VARIABLE, KeySource, Page, Ticket,
    TicketPage,
};

use super::{Finding, bad, failed, good, warning};
use crate::audit::Event;
use crate::cli::Settings;
use crate::metrics::Metrics;
use crate::util::shown_duration;

/// The largest difference between two clocks that needs no warning.
const MAX_CLOCK_DIFFERENCE: SignedDuration = SignedDuration::from_secs(5);

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

/// What the newest page of a listing says: a finding, the organizations of its items, and how far this machine's clock is
/// ahead of the API's; `None` if the listing is off.
type Probe = Option<Result<(Finding, Vec<String>, Option<SignedDuration>), ApiError>>;

/// Requests a page of each listing that is on. Returns also the organizations of their items.
pub(super) async fn check(settings: &Settings, limit: Duration) -> (Vec<Finding>, Vec<String>) {
    let mut api = settings.api.clone();
    api.timeout = limit;
    // The observer is not read.
    let client = match Client::new(api, Metrics::new(Duration::ZERO).api.clone()) {
        Ok(client) => client,
        Err(error) => {
            let advice = "give a file with certificates (PEM)";
            return (vec![bad("api", error, advice)], Vec::new());
        }
    };
    let audit = settings.audit.as_ref().map(|audit| audit.page_size);
    let tickets = settings.tickets.as_ref().map(|tickets| tickets.page_size);
    let size = audit.or(tickets).unwrap_or_default();
    let filters = &settings.api.filters;
    let (audit, tickets) = tokio::join!(
        probe(
            audit,
            async |limit| client.probe_audit(limit).await,
            |page| audit_logs(page, size, filters)
        ),
        probe(
            tickets,
            async |limit| client.probe_tickets(limit).await,
            |page| self::tickets(page, size)
        ),
    );
    let listings = [(Endpoint::AuditLogs, audit), (Endpoint::Tickets, tickets)];
    let base_url = &settings.api.base_url;
    let reached = match base_url.is_plain_remote() {
        true => warning(
            "api",
            format!("{base_url} answers, but the API key crosses the network unencrypted"),
            "use https://",
        ),
        false => good("api", format!("{base_url} answers")),
    };
    if let Some(error) = shared_error(&listings) {
        return (
            match error.reason() {
                R::Key => vec![advise("key", error, settings, limit, false)],
                R::Unauthorized => vec![reached, advise("key", error, settings, limit, false)],
                _ => vec![advise("api", error, settings, limit, false)],
            },
            Vec::new(),
        );
    }
    let accepted = listings
        .iter()
        .filter(|(_, page)| matches!(page, Some(Ok(_))));
    let scopes: Vec<&str> = accepted.map(|(endpoint, _)| endpoint.scope()).collect();
    let accepted = match scopes.is_empty() {
        true => String::new(),
        false => format!(", accepted for {}", scopes.join(" and ")),
    };
    let key = good("key", format!("from {}{accepted}", place_of_key(settings)));
    let mut findings = vec![reached, key];
    let (mut organizations, mut ahead) = (Vec::new(), None);
    for (endpoint, probe) in &listings {
        findings.push(match probe {
            Some(Ok((finding, of_page, page_ahead))) => {
                organizations.extend_from_slice(of_page);
                ahead = ahead.or(*page_ahead);
                finding.clone()
            }
            Some(Err(error)) => {
                let is_dispensable = !scopes.is_empty();
                advise(endpoint.as_str(), error, settings, limit, is_dispensable)
            }
            None => good(endpoint.as_str(), "off"),
        });
    }
    findings.extend(ahead.map(clock));
    (findings, organizations)
}

async fn probe<F>(
    size: Option<u32>,
    request: impl AsyncFn(u32) -> Result<Page<F>, ApiError>,
    read: impl Fn(&Page<F>) -> (Finding, Vec<String>),
) -> Probe {
    let mut asked = Timestamp::now();
    let mut page = request(size?).await;
    let may_pass = |error: &ApiError| matches!(error.reason(), R::ServerError | R::Malformed);
    // The exporter repeats such a request up to four times.
    if page.as_ref().is_err_and(may_pass) {
        asked = Timestamp::now();
        page = request(size?).await;
    }
    Some(page.map(|page| {
        // The service's clock was read at some time between the two.
        let at = page.server_time.max(asked).min(Timestamp::now());
        let ahead = page.has_date.then(|| at.duration_since(page.server_time));
        let (finding, organizations) = read(&page);
        (finding, organizations, ahead)
    }))
}

/// Returns an error that the listings share, which is reported once. A missing scope is that of one listing.
fn shared_error(listings: &[(Endpoint, Probe)]) -> Option<&ApiError> {
    let mut pages = listings.iter().filter_map(|(_, page)| page.as_ref());
    let first = pages.next()?.as_ref().err()?;
    let is_same = |error: &ApiError| error.reason() == first.reason();
    let is_shared = pages.all(|page| page.as_ref().is_err_and(is_same));
    (is_shared && first.reason() != R::Forbidden).then_some(first)
}

/// Returns the finding for a request to the API that failed within a limit. The exporter can do without a listing if another one can be
/// read.
fn advise(
    check: &'static str,
    error: &ApiError,
    settings: &Settings,
    limit: Duration,
    is_dispensable: bool,
) -> Finding {
    let said = error.to_string();
    let (loop_name, scope) = match check == Endpoint::Tickets.as_str() {
        true => ("tickets", Endpoint::Tickets.scope()),
        false => ("audit", Endpoint::AuditLogs.scope()),
    };
    let advice = match error.reason() {
        // The message itself says what to do.
        R::Refused if matches!(error.status(), Some(300..400)) => return failed(check, error),
        R::Connect if said.contains("; ") => return failed(check, error),
        R::Connect => connect(&said, "--api.base-url"),
        R::TooLarge => "the exporter requests smaller pages; lower --api.page-size".to_owned(),
        R::Timeout if said.starts_with("HTTP ") => {
            "the API, or a proxy before it, gave up: lower --api.page-size if it lasts".to_owned()
        }
        R::Timeout if settings.api.timeout > limit => format!(
            "the exporter waits for {}; check whether the address answers from this machine, and lower --api.page-size if it does",
            shown_duration(settings.api.timeout)
        ),
        R::Timeout => SILENCE.to_owned(),
        R::Key => "put the key into it, on one line, readable for this user".to_owned(),
        R::Unauthorized if !is_dispensable => format!(
            "create a key in the API's settings, under API keys, and put it into {}",
            place_of_key(settings)
        ),
        R::Forbidden | R::Unauthorized if is_dispensable => format!(
            "give the key the scope {scope} in the API's settings, or do without: --{loop_name}.enabled=false"
        ),
        R::Forbidden => format!(
            "give the key that scope in the API's settings, or put the right key into {}",
            place_of_key(settings)
        ),
        R::Refused if error.status() == Some(404) => "--api.base-url is the URL up to /v1, without it".to_owned(),
        R::Refused if !settings.api.filters.is_empty() => {
            "correct the filter that it names: --audit.activity-types, --audit.deal-ids, --audit.actor-emails, --audit.target-emails".to_owned()
        }
        R::RateLimited => "the exporter waits and continues; lower --api.max-requests-per-second if it lasts, or see what else uses the key".to_owned(),
        R::ServerError => {
            "the API itself fails: ask its operators; the exporter continues once it works".to_owned()
        }
        _ => "this is not an answer of the Organization Data API: check --api.base-url, and any proxy or login page in between".to_owned(),
    };
    match error.reason() {
        R::RateLimited | R::TooLarge => warning(check, said, advice),
        _ => bad(check, said, advice),
    }
}

/// Returns where the key comes from.
fn place_of_key(settings: &Settings) -> String {
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

fn clock(ahead: SignedDuration) -> Finding {
    if ahead.abs() <= MAX_CLOCK_DIFFERENCE {
        return good("clock", "agrees with the API's within a few seconds");
    }
    let difference = Duration::from_secs(ahead.as_secs().unsigned_abs());
    let side = match ahead.is_negative() {
        true => "behind",
        false => "ahead of",
    };
    let said = format!(
        "this machine's clock is {} {side} the API's",
        shown_duration(difference)
    );
    let advice = "synchronize it; delays and ages are computed with it";
    warning("clock", said, advice)
}

/// Returns a finding, and the organizations of the entries.
fn audit_logs(page: &AuditPage, size: u32, filters: &Filters) -> (Finding, Vec<String>) {
    const CHECK: &str = "audit-logs";
    let read = |item| Event::read(item, page.server_time, filters);
    let events: Vec<Event> = page.items().map(read).collect();
    let malformed = events.iter().filter(|event| event.event.is_err()).count();
    let newest = events.iter().map(|event| event.created_at).max();
    let finding = match newest {
        _ if malformed > 0 => as_undocumented(CHECK, malformed, events.len()),
        Some(newest) => {
            let said =
                format!("a page of {size} can be read; the newest entry is from {newest:.0}");
            good(CHECK, said)
        }
        None => warning(
            CHECK,
            "there are no entries",
            "check that the key is one of the right organization, and that the --audit filters match anything",
        ),
    };
    let organizations = events.iter().filter_map(|event| event.organization);
    (finding, organizations.map(|id| id.to_string()).collect())
}

/// Returns a finding, and the organizations of the tickets.
fn tickets(page: &TicketPage, size: u32) -> (Finding, Vec<String>) {
    const CHECK: &str = "tickets";
    const ADVICE: &str =
        "tell the API's operators; the exporter reports such a snapshot as inconsistent";
    let items = page.len();
    let tickets = page.items().filter_map(|item| Ticket::parse(item).ok());
    let tickets: Vec<Ticket<'_>> = tickets.collect();
    let finding = match page.total_count {
        _ if tickets.len() < items => as_undocumented(CHECK, items - tickets.len(), items),
        None => warning(CHECK, "the API does not send the number of tickets", ADVICE),
        Some(total) if items as u64 > total || (items == 0 && total > 0) => {
            let said = format!("the API counts {total} tickets and sends {items}");
            warning(CHECK, said, ADVICE)
        }
        Some(total) => {
            let said = format!("a page of {size} can be read; there are {total}");
            good(CHECK, said)
        }
    };
    let ids = tickets
        .iter()
        .filter_map(|ticket| ticket.organization_id.as_ref()?.as_count());
    (finding, ids.map(|id| id.to_string()).collect())
}

fn as_undocumented(check: &'static str, malformed: usize, items: usize) -> Finding {
    warning(
        check,
        format!("{malformed} of {items} items are not as documented"),
        "tell the API's operators; the exporter counts what it can read of them",
    )
}
