//! Which answers are right, by the settings of the simulator.

use orgdata_probe::Question;
use orgdata_simulator::{ExpiredReading, FaultKind, KeyReading, TimeForm, TotalCount};

use crate::service::Case;

/// The fields that the simulator writes as null, or as null or missing.
const NULLABLE: &str = "dealId evaluationId actorUserId targetUserId modifiedTargetUserId metadata \
    organization evaluation evaluation.deal deal actorUser actorUser.firstName actorUser.lastName \
    actorUser.profileImageUrl targetUser targetUser.firstName targetUser.lastName \
    targetUser.profileImageUrl modifiedTargetUser modifiedTargetUser.firstName \
    modifiedTargetUser.lastName modifiedTargetUser.profileImageUrl task task.type requirement meeting \
    ticket teamRequest teamRequest.teamRequestType closedAt description vendorEntityId vendorEntityKey \
    vendorEntityUrl integrationInstallationId targetDueDate linkedDeals dealAmountSum";

/// Returns whether an answer is right.
pub(crate) fn is_right(case: &Case, question: &str, answer: &str) -> bool {
    let readings = &case.config.readings;
    let fault = case.config.faults.first().map(|fault| &fault.kind);
    let is = |right: &str| answer == right;
    let all_in = |list: &str| {
        let mut parts = answer.split(", ");
        parts.all(|part| list.split(' ').any(|known| known == part.replace(' ', "_")))
    };
    let by_fault = match fault {
        Some(FaultKind::ExpiredCursor(_)) => is("refused"),
        _ => readings.row_cursors && readings.keep.is_some() && is("refused"),
    };
    let by_reading = readings.cursor_ttl.is_some()
        && match readings.expired {
            ExpiredReading::Refused => is("refused"),
            ExpiredReading::Empty => is("an empty page"),
            ExpiredReading::Newest => is("the first page"),
        };
    // In the order of arrival, a time is above all entries.
    let is_above = readings.time_cursors && readings.key == KeyReading::Arrival;
    let expired = by_fault || by_reading || is_above && is("the first page");
    // A cursor that names all entries of its time returns its own again.
    let is_inclusive = readings.before_inclusive || readings.time_cursors;
    let flag = |constant: Option<bool>| is(if constant.is_none() { "right" } else { "wrong" });
    let cap = readings.page_cap.unwrap_or(1000).min(1000).to_string();
    match question {
        "ids" => is("stable"),
        "order within a page" if readings.oldest_first => is("oldest first"),
        "order within a page" => is("newest first"),
        "order of the listing" => answer.split(' ').any(|part| match readings.key {
            KeyReading::CreatedAt => part == "createdAt",
            KeyReading::Arrival => part == "arrival",
        }),
        "end of the listing" if is_inclusive => {
            is("the last endCursor leads to the last entry again")
        }
        "end of the listing" => is("the last endCursor leads to an empty page"),
        "hasMore" => flag(readings.has_more),
        "hasPrevious" => flag(readings.has_previous),
        "largest page" | "tickets: largest page" => is(&cap),
        "limit of 0" | "limit of 1001" | "made-up cursor" | "unknown type" => is("refused"),
        "unknown deal" => is("the first page"),
        "unknown e-mail address" => is("an empty page"),
        "before" if is_inclusive => is("inclusive") || expired,
        "before" => is("exclusive") || expired,
        "before and after together" => is("both apply"),
        "after with more than a page" if readings.after_newest => is("the newest entries"),
        "after with more than a page" => is("the nearest entries"),
        "form of cursors" => is("opaque: without id and createdAt"),
        "cursor after the watch" => {
            let may_be_valid = readings.cursor_ttl.is_none_or(|ttl| ttl >= 120);
            expired || may_be_valid && is("valid")
        }
        "late entries" => {
            let are_late = readings.node_ahead > 0 && readings.key == KeyReading::CreatedAt;
            is("none seen") || are_late && is("entries appear below newer ones")
        }
        "filter by one type" | "filter by one deal" => is("the filter applies"),
        "filter by types, repeated" | "filter by types, repeated with []" => is("either type"),
        "filter by type and deal" => is("both filters apply"),
        "null fields" | "tickets: null fields" => is("none") || all_in(NULLABLE),
        "deviations from the contract" | "tickets: deviations from the contract" => {
            let is_number = is_number(readings.times) && !question.starts_with("tickets");
            let rest = answer.split(", ").filter(|part| {
                !(is_number
                    && [
                        "createdAt (number)",
                        "occurredAt (number)",
                        "updatedAt (number)",
                    ]
                    .contains(part))
            });
            let rest: Vec<&str> = rest.collect();
            match fault {
                _ if rest.is_empty() || is("none") && !is_number => true,
                Some(FaultKind::UnknownFields) => rest == ["futureField (unknown)"],
                _ => false,
            }
        }
        "form of createdAt" => is(form(readings.times)),
        "equal times in a row" => answer.parse::<u64>().is_ok_and(|length| length > 0),
        "clock" => clock(case, answer),
        "compression" | "rate-limit headers" => is("none"),
        "ETag" => is("no"),
        "tickets: order" if readings.tickets_oldest_first => is("oldest first"),
        "tickets: order" => is("newest first"),
        "tickets: totalCount" => match readings.total_count {
            TotalCount::Right | TotalCount::Off(0) => is("right"),
            TotalCount::Missing => is("missing"),
            TotalCount::Off(_) => is("wrong"),
            TotalCount::PageLength => is("the number of tickets on the page"),
        },
        "tickets: offset" if readings.ignore_offset => is("ignored"),
        "tickets: offset" => is("honoured"),
        "tickets: offset beyond the end" if readings.ignore_offset => is("the first page"),
        "tickets: offset beyond the end" => is("an empty page"),
        "tickets: types" => all_in("BUG FEATURE_REQUEST QUESTION no_text"),
        "tickets: states" => all_in("OPEN IN_PROGRESS CLOSED REJECTED no_text"),
        "tickets: priorities" => is("none") || all_in("BLOCKER HIGH MEDIUM LOW"),
        "tickets: without deals" => answer.parse::<u64>().is_ok(),
        _ if question.starts_with("tickets: form of ") => {
            let mut parts = answer.split(", ");
            parts.all(|part| ["ISO 8601 in UTC", "null or missing"].contains(&part))
        }
        _ => {
            assert!(
                Question::all().all(|known| known.name != question),
                "{question} has no truth"
            );
            false
        }
    }
}

fn is_number(form: TimeForm) -> bool {
    matches!(form, TimeForm::Seconds | TimeForm::Millis)
}

fn form(form: TimeForm) -> &'static str {
    match form {
        TimeForm::Iso => "ISO 8601 in UTC",
        TimeForm::NoZone => "ISO 8601 without a zone",
        TimeForm::Seconds => "seconds since 1970",
        TimeForm::Millis => "milliseconds since 1970",
        TimeForm::Rfc2822 => "another readable form",
    }
}

/// The simulated clock begins with this machine's, and is ahead of it by a few requests.
fn clock(case: &Case, answer: &str) -> bool {
    let readings = &case.config.readings;
    if readings.no_date {
        return answer == "no Date header";
    }
    let shown = answer
        .strip_prefix("it is ")
        .and_then(|rest| rest.split_once(" ahead"));
    let ahead = match shown {
        Some((time, _)) => humantime::parse_duration(time).unwrap().as_secs() as i64,
        None => 0,
    };
    (shown.is_some() || answer == "it agrees with this machine's")
        && (readings.date_ahead - 3..readings.date_ahead + 60).contains(&ahead)
}
