//! One listing of the service: a page of one item, and then one as large as the exporter asks for.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::asked::Asked;
use super::sample::Sample;
use super::{Finding, LONGEST, What, advice};
use crate::api::{ApiError, AuditQuery, Client, Endpoint, FailureReason};
use crate::cli::Settings;

/// A page of one item that takes longer than this is slow.
const SLOW: Duration = Duration::from_secs(2);

/// What a listing answered.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) endpoint: Endpoint,
    /// The page of one.
    pub(super) result: Result<Sample, ApiError>,
    /// Why an attempt failed, where a later one went well.
    hiccup: Option<ApiError>,
    took: Duration,
    /// How far this machine's clock is ahead of the service's.
    pub(super) ahead: Option<SignedDuration>,
    /// The large page, and for one that failed why a small one at the same place did, where it did.
    large: Option<(Result<Sample, ApiError>, Option<ApiError>)>,
}

// === impl Listing ===

impl Listing {
    pub(super) async fn audit(client: &Client, page_size: u32) -> Self {
        let ask = async |limit, before| {
            let query = AuditQuery {
                limit,
                before,
                after: None,
            };
            client.probe_audit(&query).await.map(Sample::of_audit)
        };
        let first = Asked::of(async || ask(1, None).await).await;
        let Ok(Sample {
            older: Some(older), ..
        }) = &first.result
        else {
            return Self::new(Endpoint::AuditLogs, first, None, None);
        };
        let large = Asked::of(async || ask(page_size, Some(older.clone())).await).await;
        // Whether its size is at fault, or its place.
        let small = match &large.result {
            Err(_) => ask(1, Some(older.clone())).await.err(),
            Ok(_) => None,
        };
        Self::new(Endpoint::AuditLogs, first, Some(large), small)
    }

    pub(super) async fn tickets(client: &Client, page_size: u32) -> Self {
        let ask = async |limit| client.probe_tickets(limit, 0).await.map(Sample::of_tickets);
        let first = Asked::of(async || ask(1).await).await;
        let large = match &first.result {
            Ok(sample) if sample.items > 0 => Some(Asked::of(async || ask(page_size).await).await),
            _ => None,
        };
        Self::new(Endpoint::Tickets, first, large, None)
    }

    fn new(
        endpoint: Endpoint,
        first: Asked,
        large: Option<Asked>,
        small: Option<ApiError>,
    ) -> Self {
        let ahead = first
            .result
            .as_ref()
            .ok()
            .and_then(|sample| ahead(sample.date?, first.arrived, first.took));
        let mut hiccup = first.hiccup;
        let large = large.map(|large| {
            hiccup = hiccup.take().or(large.hiccup);
            (large.result, small)
        });
        Self {
            endpoint,
            result: first.result,
            hiccup,
            took: first.took,
            ahead,
            large,
        }
    }

    pub(super) fn check(&self) -> What {
        match self.endpoint {
            Endpoint::AuditLogs => What::AuditLogs,
            Endpoint::Tickets => What::Tickets,
        }
    }

    /// What is to be said of the listing.
    pub(super) fn findings(&self, settings: &Settings) -> Vec<Finding> {
        let check = self.check();
        let sample = match &self.result {
            Ok(sample) => sample,
            Err(error) => return vec![advice::finding(check, error, settings)],
        };
        let mut findings = Vec::new();
        let mut warn =
            |said: String, advice: &str| findings.push(Finding::warning(check, said, advice));
        if let Some(error) = &self.hiccup {
            warn(
                format!("only another attempt went well: {error}"),
                "the exporter tries again by itself; look at the service, and at what is between, if that is often so",
            );
        }
        if self.took >= SLOW {
            let took = humantime::format_duration(Duration::from_millis(
                u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX),
            ));
            warn(
                format!("slow: a page of one item took {took}"),
                "look at the service and the way to it; --api.timeout bounds each request",
            );
        }
        let whole = match &self.large {
            Some((Ok(large), _)) => large,
            _ => sample,
        };
        if let Some((count, error)) = whole.malformed.as_ref().or(sample.malformed.as_ref()) {
            let items = if *count == 1 {
                "1 item is".to_owned()
            } else {
                format!("{count} items are")
            };
            let kept = match self.endpoint {
                Endpoint::AuditLogs => {
                    "the exporter counts what can be read of it, and keeps what cannot be counted as a dead letter"
                }
                Endpoint::Tickets => {
                    "the exporter counts what can be read of it, and says so in orgdata_tickets_malformed"
                }
            };
            warn(
                format!("{items} not as documented: {error}"),
                &format!("{kept}; tell the service's operators"),
            );
        }
        if sample.repeats + whole.repeats > 0 {
            warn(
                "the same item is twice on a page".to_owned(),
                "the exporter counts it once; tell the service's operators",
            );
        }
        match self.endpoint {
            Endpoint::AuditLogs if sample.items == 0 => warn(
                "there is no entry".to_owned(),
                if settings.api.filters.is_empty() {
                    "is the key one of the right organization?"
                } else {
                    "do the --audit filters let anything through, and is the key one of the right organization?"
                },
            ),
            Endpoint::Tickets => {
                if let Some(said) = wrong_count(sample, whole) {
                    warn(
                        said,
                        "the exporter calls such a snapshot inconsistent; tell the service's operators",
                    );
                }
            }
            Endpoint::AuditLogs => {}
        }
        findings.extend(self.large_page(settings));
        if findings.is_empty() {
            findings.push(Finding::good(
                check,
                self.all_well(sample, whole, page_size(settings, self.endpoint)),
            ));
        }
        findings
    }

    /// What is wrong with a large page where a small one was well.
    fn large_page(&self, settings: &Settings) -> Option<Finding> {
        let check = self.check();
        let size = page_size(settings, self.endpoint);
        let (error, small) = match self.large.as_ref()? {
            (Ok(large), _)
                if self.endpoint == Endpoint::AuditLogs && large.items == 0 && self.says_more() =>
            {
                return Some(Finding::warning(
                    check,
                    "the service says that there are older entries, and sends none for its own cursor",
                    "where there are any, the exporter cannot look back for a late one or after an outage; tell the service's operators",
                ));
            }
            (Ok(_), _) => return None,
            // Neither its size nor its place is at fault.
            (Err(error), _) if !error.may_be_the_request() => {
                return Some(advice::finding(check, error, settings));
            }
            (Err(error), small) => (error, small),
        };
        if let Some(error) = small.as_ref().filter(|error| error.may_be_the_request()) {
            return Some(Finding::warning(
                check,
                format!("the service refuses the cursor that it has just sent: {error}"),
                "the exporter cannot look back for a late entry or after an outage; tell the service's operators",
            ));
        }
        let said = format!("a page of 1 can be read, and one of {size} cannot: {error}");
        let advice = "lower --api.page-size, or ask the service's operators about such a page";
        // The tail makes its pages smaller by itself, the scan only those that are too large to be read; and it may have more time than this.
        let patient = error.reason() == FailureReason::Timeout && settings.api.timeout > LONGEST;
        let copes = self.endpoint == Endpoint::AuditLogs
            || matches!(error, ApiError::TooLarge { .. })
            || patient;
        Some(if copes {
            Finding::warning(check, said, advice)
        } else {
            Finding::bad(check, said, advice)
        })
    }

    fn says_more(&self) -> bool {
        self.result.as_ref().is_ok_and(|sample| sample.has_more)
    }

    fn all_well(&self, sample: &Sample, whole: &Sample, page_size: u32) -> String {
        let mut said = format!("pages of 1 and of {page_size} can be read");
        match (self.endpoint, sample.total, sample.newest) {
            (Endpoint::Tickets, ..) if sample.items == 0 => "there are none".clone_into(&mut said),
            (Endpoint::Tickets, Some(total), _) => said.push_str(&format!("; there are {total}")),
            (Endpoint::AuditLogs, _, Some(newest)) => {
                said.push_str(&format!(
                    "; the newest entry is of {}",
                    newest.strftime("%Y-%m-%dT%H:%M:%SZ")
                ));
            }
            _ => {}
        }
        let unknown = sample.unknown_fields.max(whole.unknown_fields);
        if unknown > 0 {
            said.push_str(&format!(
                "; {unknown} fields that the specification does not name, which do no harm"
            ));
        }
        said
    }
}

/// What is wrong with the service's count of tickets.
fn wrong_count(one: &Sample, whole: &Sample) -> Option<String> {
    let (Some(first), Some(total)) = (one.total, whole.total) else {
        return Some("the service does not say how many tickets there are".to_owned());
    };
    let sent = (whole.items - whole.repeats) as u64;
    if sent == 0 && total > 0 {
        Some(format!("the service counts {total} tickets and sends none"))
    } else if sent > total {
        Some(format!(
            "the service counts {total} tickets and sends {sent}"
        ))
    } else if first == 1 && sent > 1 {
        Some("the service counts the tickets of a page, and not all".to_owned())
    } else {
        None
    }
}

fn page_size(settings: &Settings, endpoint: Endpoint) -> u32 {
    let sizes = (
        settings.audit.as_ref().map(|audit| audit.page_size),
        settings.tickets.as_ref().map(|tickets| tickets.page_size),
    );
    match endpoint {
        Endpoint::AuditLogs => sizes.0,
        Endpoint::Tickets => sizes.1,
    }
    .unwrap_or_default()
}

/// How far this machine's clock is ahead. The date is cut to seconds, and of the middle of the exchange at best.
fn ahead(date: Timestamp, arrived: Timestamp, took: Duration) -> Option<SignedDuration> {
    let half = SignedDuration::try_from(took / 2).ok()?;
    Some(
        arrived
            .duration_since(date)
            .saturating_sub(half)
            .saturating_sub(SignedDuration::from_millis(500)),
    )
}
