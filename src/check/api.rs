//! The service: whether it can be reached, whether it takes the key, what it lists, and what its clock says.

use std::time::Duration;

use jiff::SignedDuration;
use prometheus_client::registry::Registry;

use super::listing::Listing;
use super::{Finding, What, advice};
use crate::api::{self, ApiError, Client, Endpoint, FailureReason};
use crate::cli::Settings;
use crate::metrics::ApiMetrics;

/// Clocks that differ by more are worth a warning: a scrape interval is not much longer.
const DIFFERENCE: SignedDuration = SignedDuration::from_secs(5);

/// What is known of the service.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) findings: Vec<Finding>,
    /// Whose data the key opens.
    pub(super) organization: Option<String>,
}

/// Asks both listings, side by side.
pub(super) async fn look(settings: &Settings, limit: Duration) -> Service {
    let own = api::Settings {
        timeout: limit,
        ..settings.api.clone()
    };
    let client = match Client::new(own, ApiMetrics::register(&mut Registry::default())) {
        Ok(client) => client,
        Err(error) => {
            let finding = Finding::bad(
                What::Service,
                format!("--api.ca-file: {error}"),
                "give it a file with certificates in PEM form",
            );
            return Service {
                findings: vec![finding],
                organization: None,
            };
        }
    };
    let (audit, tickets) = tokio::join!(
        async {
            match &settings.audit {
                Some(audit) => Some(Listing::audit(&client, audit.page_size).await),
                None => None,
            }
        },
        async {
            match &settings.tickets {
                Some(tickets) => Some(Listing::tickets(&client, tickets.page_size).await),
                None => None,
            }
        },
    );
    let listings: Vec<Listing> = audit.into_iter().chain(tickets).collect();
    let organization = listings
        .iter()
        .find_map(|listing| listing.result.as_ref().ok()?.organization.clone());
    Service {
        findings: findings(&listings, settings),
        organization,
    }
}

fn findings(listings: &[Listing], settings: &Settings) -> Vec<Finding> {
    let errors = || {
        listings
            .iter()
            .filter_map(|listing| listing.result.as_ref().err())
    };
    let all = |test: fn(&ApiError) -> bool| {
        errors().filter(|error| test(error)).count() == listings.len()
    };
    let no_way = |error: &ApiError| {
        matches!(
            error.reason(),
            FailureReason::Connect | FailureReason::Timeout
        )
    };
    if let (true, Some(error)) = (all(no_way), errors().next()) {
        return vec![advice::finding(What::Service, error, settings)];
    }
    if let Some(error) = errors().find(|error| matches!(error, ApiError::Key(_))) {
        return vec![advice::finding(What::Key, error, settings)];
    }
    // What is wrong with both in the same way is said once; a scope is a listing's own.
    if let (true, Some(error)) = (all_alike(listings), errors().next()) {
        return vec![advice::finding(What::Service, error, settings)];
    }
    let mut findings = vec![reached(settings)];
    let refused = |error: &ApiError| matches!(error, ApiError::Unauthorized(_));
    if let (true, Some(error)) = (all(refused), errors().next()) {
        findings.push(advice::finding(What::Key, error, settings));
        return findings;
    }
    // A key that lacks a scope is a known one.
    let known =
        |listing: &Listing| matches!(&listing.result, Ok(_) | Err(ApiError::Forbidden { .. }));
    if listings.iter().any(known) {
        let place = advice::place_of_the_key(settings);
        let scopes = listings
            .iter()
            .filter(|listing| listing.result.is_ok())
            .map(|listing| listing.endpoint.scope());
        let scopes = scopes.collect::<Vec<_>>().join(" and ");
        let said = if scopes.is_empty() {
            String::new()
        } else {
            format!(", for {scopes}")
        };
        findings.push(Finding::good(
            What::Key,
            format!("the service accepts the key in {place}{said}"),
        ));
    }
    for endpoint in Endpoint::ALL {
        match listings.iter().find(|listing| listing.endpoint == endpoint) {
            Some(listing) => findings.extend(listing.findings(settings)),
            None => findings.push(off(endpoint)),
        }
    }
    findings.extend(clock(listings));
    findings
}

fn all_alike(listings: &[Listing]) -> bool {
    let reasons: Vec<_> = listings
        .iter()
        .filter_map(|listing| Some(listing.result.as_ref().err()?.reason()))
        .collect();
    let own = [FailureReason::Unauthorized, FailureReason::Forbidden];
    reasons.len() > 1
        && reasons.len() == listings.len()
        && reasons
            .iter()
            .all(|reason| *reason == reasons[0] && !own.contains(reason))
}

fn reached(settings: &Settings) -> Finding {
    let base_url = &settings.api.base_url;
    if base_url.is_plain_remote() {
        let said = format!("{base_url} answers, and the API key crosses the network unencrypted");
        return Finding::warning(What::Service, said, "use https://");
    }
    let trusted = if base_url.to_string().starts_with("https://") {
        ", and its certificate is trusted"
    } else {
        ""
    };
    Finding::good(What::Service, format!("{base_url} answers{trusted}"))
}

fn off(endpoint: Endpoint) -> Finding {
    match endpoint {
        Endpoint::AuditLogs => Finding::good(What::AuditLogs, "not asked: --audit.enabled=false"),
        Endpoint::Tickets => Finding::good(What::Tickets, "not asked: --tickets.enabled=false"),
    }
}

fn clock(listings: &[Listing]) -> Option<Finding> {
    let answered = listings.iter().any(|listing| listing.result.is_ok());
    // The smaller difference is the one that was disturbed less.
    let Some(ahead) = listings
        .iter()
        .filter_map(|listing| listing.ahead)
        .min_by_key(|ahead| ahead.abs())
    else {
        return answered.then(|| {
            Finding::good(
                What::Clock,
                "the service does not say what time it is; this machine's clock is taken",
            )
        });
    };
    let difference =
        humantime::format_duration(Duration::from_secs(ahead.abs().as_secs().unsigned_abs()));
    let side = if ahead.is_negative() {
        "behind"
    } else {
        "ahead of"
    };
    Some(if ahead.abs() <= DIFFERENCE {
        Finding::good(What::Clock, "as the service's, within a few seconds")
    } else {
        let said = format!("this machine's clock is {difference} {side} the service's");
        Finding::warning(
            What::Clock,
            said,
            "let NTP set it: delays and the age of a state file are reckoned with it",
        )
    })
}
