//! The API: whether it can be reached and accepts the key, its clock and its limits, and what the exporter assumes of its listings.

use orgdata_api::{ApiError, Endpoint, FailureReason as R};

use super::ask::{Asked, Asker, MAX_CLOCK, Problem, Seen};
use super::{Finding, Outcome, audit, bad, good, tickets, unknown, warning};
use crate::audit::Entry;
use crate::cli::ExporterSettings;
use crate::util::{counted, shown_duration};

/// What is known of the API.
#[derive(Debug, Default)]
pub(super) struct Api {
    pub(super) findings: Vec<Finding>,
    /// The organizations that entries and tickets name.
    pub(super) entries: Vec<i64>,
    pub(super) tickets: Vec<i64>,
}

/// Requests the first page of each listing that is on and, if it comes, asks more about the listing.
pub(super) async fn check(settings: &ExporterSettings) -> Api {
    let mut api = Api::default();
    let asker = match Asker::new(settings) {
        Ok(asker) => asker,
        Err(error) => {
            let outcome = bad(error).in_json("the client cannot be made");
            api.findings.push(("api", outcome));
            return api;
        }
    };
    let (audit, tickets) = tokio::join!(
        async {
            let limit = audit::top(settings.audit.as_ref()?.page_size);
            Some(asker.audit(limit, None).await)
        },
        async {
            let limit = tickets::limit(settings.tickets.as_ref()?);
            Some(asker.tickets(limit, 0).await)
        },
    );
    if let Some(Ok(page)) = &audit {
        let named = page.items().map(|raw| Entry::read(raw).organization_id());
        api.entries = named.flatten().collect();
    }
    if let Some(Ok(page)) = &tickets {
        let named = page.items().map(crate::tickets::organization);
        api.tickets = named.flatten().collect();
    }
    let readable = [matches!(audit, Some(Ok(_))), matches!(tickets, Some(Ok(_)))];
    if !readable.contains(&true) {
        let problems = [problem(&audit), problem(&tickets)];
        api.findings = unreadable(&asker, problems);
        return api;
    }
    let scopes = Endpoint::ALL.into_iter().zip(readable);
    let scopes = scopes.filter_map(|(endpoint, is)| is.then_some(endpoint.scope()));
    let scopes = scopes.collect::<Vec<_>>().join(" and ");
    let (accepted, place) = (format!("accepted for {scopes}"), asker.place_of_key());
    let (audit, tickets) = tokio::join!(
        async {
            match audit {
                None => vec![(Endpoint::AuditLogs.as_str(), good("off"))],
                Some(page) => audit::ask(&asker, page).await,
            }
        },
        async {
            match tickets {
                None => vec![(Endpoint::Tickets.as_str(), good("off"))],
                Some(page) => tickets::ask(&asker, page).await,
            }
        },
    );
    let answers = good(format!("{} answers", settings.api.base_url)).in_json("answers");
    let key = good(format!("from {place}, {accepted}")).in_json(accepted);
    api.findings = vec![("api", answers), ("key", key)];
    api.findings.extend(audit);
    api.findings.extend(tickets);
    api.findings.push(("clock", clock(&asker.seen)));
    api.findings.push(("rate-limit", limits(&asker.seen)));
    api
}

fn problem<T>(asked: &Option<Asked<T>>) -> Option<&Problem> {
    asked.as_ref()?.as_ref().err()
}

/// Says why nothing can be read, once if both listings have the same problem.
fn unreadable(asker: &Asker<'_>, problems: [Option<&Problem>; 2]) -> Vec<Finding> {
    let problems = Endpoint::ALL.into_iter().zip(problems);
    let mut problems = problems.filter_map(|(endpoint, problem)| Some((endpoint, problem?)));
    let Some((endpoint, first)) = problems.next() else {
        return Vec::new();
    };
    let is_about_key =
        |error: &ApiError| matches!(error.reason(), R::Key | R::Unauthorized | R::Forbidden);
    let check = match first {
        Problem::Api(error) if is_about_key(error) => "key",
        _ => "api",
    };
    let others = problems.filter(|(_, problem)| problem.kind() != first.kind());
    let others = others
        .map(|(endpoint, problem)| (endpoint.as_str(), asker.advise(endpoint, problem, true)));
    let first = (check, asker.advise(endpoint, first, true));
    std::iter::once(first).chain(others).collect()
}

/// Compares this machine's clock with the API's.
fn clock(seen: &Seen) -> Outcome {
    let Some(ahead) = seen.clock() else {
        return unknown("cannot tell: no response has a Date");
    };
    let by = shown_duration(ahead.unsigned_abs());
    match ahead.abs() > MAX_CLOCK {
        false => good(format!(
            "holds: this machine's and the API's differ by {by}"
        )),
        true => warning(format!(
            "does not hold: this machine's clock is {by} {} the API's, and the exporter uses the earlier one; correct it, for example with NTP",
            if ahead.is_negative() {
                "ahead of"
            } else {
                "behind"
            }
        )),
    }
}

/// Names the header fields about a rate limit.
fn limits(seen: &Seen) -> Outcome {
    let limits = seen.limits().into_iter();
    let limits: Vec<String> = limits
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    let responses = counted(seen.responses().into(), "response", "responses");
    good(match limits.is_empty() {
        true => format!("no header field names one in {responses}"),
        false => format!("named in {responses}: {}", limits.join(", ")),
    })
}
