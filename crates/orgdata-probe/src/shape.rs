//! Answers from items and headers as they are: fields, times, clock. No value of the organization is part of one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use http::header::{DATE, ETAG};
use orgdata_api::{parse_json_time, parse_time};
use serde_json::Value;

use crate::ask::{Found, Known, Page, found};

/// The fields of an audit log entry (specification, section 2.1): path, type (string, number, boolean, object, list, * for any), and `?` if it may
/// be null. `user` stands for the three users.
pub(crate) const ENTRY: &str = "id s, type s, occurredAt s, createdAt s, updatedAt s, organizationId n, dealId n?, evaluationId n?,
    actorUserId n?, targetUserId n?, modifiedTargetUserId n?, metadata *?, organization o?, organization.id n, organization.name s,
    evaluation o?, evaluation.id n, evaluation.title s, evaluation.deal o?, evaluation.deal.id n, evaluation.deal.name s,
    deal o?, deal.id n, deal.name s, user o?,
    task o?, task.id n, task.title s, task.type s?, requirement o?, requirement.id n, requirement.title s,
    meeting o?, meeting.id n, meeting.title s, ticket o?, ticket.id n, ticket.title s,
    teamRequest o?, teamRequest.id n, teamRequest.status s, teamRequest.teamRequestType o?,
    teamRequest.teamRequestType.id n, teamRequest.teamRequestType.name s,
    user.id n, user.firstName s?, user.lastName s?, user.profileImageUrl s?";
/// The fields of a ticket (section 2.3), which does not say what may be null.
pub(crate) const TICKET: &str = "id n, type s, state s, createdAt s, updatedAt s?, closedAt s?, organizationId n?, createdByUserId n?, title s?,
    description s?, vendorEntityId s?, vendorEntityKey s?, integrationInstallationId n?, targetDueDate s?, linkedDeals l?,
    linkedDeals.id n?, linkedDeals.evaluationId n?, linkedDeals.name s?, linkedDeals.priority s?, linkedDeals.sharedWithBuyer b?,
    dealAmountSum n?, vendorEntityUrl s?";

/// How long a response may take to tell the time by it.
const SLOW: Duration = Duration::from_secs(2);

const USERS: [&str; 3] = ["actorUser", "targetUser", "modifiedTargetUser"];

/// The types of fields by their paths.
type Fields<'a> = BTreeMap<String, &'a str>;

/// Calls `see` with the path and the value of each field, and goes into those that are in the specification.
fn visit(item: &Value, above: &str, known: &Fields<'_>, see: &mut dyn FnMut(&str, &Value)) {
    match item {
        Value::Array(items) => items.iter().for_each(|item| visit(item, above, known, see)),
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = format!("{above}{name}");
                see(&path, value);
                if ["o", "o?", "l?"].contains(known.get(&path).unwrap_or(&"")) {
                    visit(value, &format!("{path}."), known, see);
                }
            }
        }
        _ => {}
    }
}

/// Names fields that are null, and fields that deviate from the specification: unknown, missing, of another type.
pub(crate) fn fields(items: &[Value], table: &str) -> [Known<Found>; 2] {
    let fields = table
        .split(',')
        .filter_map(|field| field.trim().split_once(' '));
    let known: Fields<'_> = fields
        .flat_map(|(path, kind)| match path.strip_prefix("user") {
            Some(rest) => USERS
                .iter()
                .map(|user| (format!("{user}{rest}"), kind))
                .collect(),
            None => vec![(path.to_owned(), kind)],
        })
        .collect();
    let (mut nulls, mut deviations) = (BTreeSet::new(), BTreeSet::new());
    let required = known
        .iter()
        .filter(|(path, kind)| !path.contains('.') && !kind.ends_with('?'));
    for item in items {
        visit(item, "", &known, &mut |path, value| {
            let found = match value {
                Value::Null => "null",
                Value::Bool(_) => "boolean",
                Value::Number(_) => "number",
                Value::String(_) => "string",
                Value::Array(_) => "list",
                Value::Object(_) => "object",
            };
            let path: Vec<&str> = path.split('.').map(word).collect();
            let path = path.join(".");
            let (kind, may_be_null) = known
                .get(&path)
                .map_or(("unknown", false), |kind| (&kind[..1], kind.ends_with('?')));
            if found == "null" && may_be_null {
                nulls.insert(path);
            } else if kind == "unknown" {
                deviations.insert(format!("{path} (unknown)"));
            } else if kind != "*" && !found.starts_with(kind) {
                deviations.insert(format!("{path} ({found})"));
            }
        });
        let missing = required
            .clone()
            .filter(|(path, _)| item.get(path).is_none());
        deviations.extend(missing.map(|(path, _)| format!("{path} (missing)")));
    }
    [list(nulls, items.len()), list(deviations, items.len())]
}

/// Returns a name of the API, which consists of letters; anything else may be data of the organization.
fn word(name: &str) -> &str {
    let is_letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    match name.len() <= 40 && name.chars().all(is_letter) {
        true => name,
        false => "another name",
    }
}

/// Lists the values of a field that are names of the API.
pub(crate) fn values<'a>(of: usize, values: impl Iterator<Item = &'a Value>) -> Known<Found> {
    let name = |value: &'a Value| value.as_str().map_or("no text", word).to_owned();
    list(values.map(name).collect(), of)
}

/// Lists the forms in which the times of a field are written.
pub(crate) fn times(items: &[Value], field: &str) -> Known<Found> {
    let forms = items.iter().map(|item| form(&item[field]).to_owned());
    list(forms.collect(), items.len())
}

fn list(names: BTreeSet<String>, of: usize) -> Known<Found> {
    let names: Vec<String> = names.into_iter().collect();
    match names.is_empty() {
        _ if of == 0 => Err("there is nothing to list".to_owned()),
        true => found("none", format!("in {of} items")),
        false => found(names.join(", "), format!("in {of} items")),
    }
}

fn form(time: &Value) -> &'static str {
    let text = match time {
        Value::Null => return "null or missing",
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return "another type",
    };
    let digits = text.split('.').next().unwrap_or_default();
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    let is_iso = text.as_bytes().get(10) == Some(&b'T');
    let zone = text.get(19..).unwrap_or_default();
    match digits.len() {
        _ if parse_time(&text).is_none() => "unreadable",
        ..=11 if is_number => "seconds since 1970",
        12..=14 if is_number => "milliseconds since 1970",
        15..=17 if is_number => "microseconds since 1970",
        _ if is_number => "nanoseconds since 1970",
        _ if is_iso && zone.ends_with('Z') => "ISO 8601 in UTC",
        _ if is_iso && zone.contains(['+', '-']) => "ISO 8601 with an offset",
        _ if is_iso => "ISO 8601 without a zone",
        _ => "another readable form",
    }
}

/// Returns whether no item has a higher value of a field than the one before, or `None` if times cannot be read. Ids may be texts or numbers.
pub(crate) fn descends(items: &[Value], field: &str) -> Option<bool> {
    let texts = items.iter().map(|item| item[field].to_string());
    if field != "id" {
        let times: Option<Vec<_>> = texts.map(|time| parse_json_time(&time)).collect();
        return Some(times?.is_sorted_by(|one, other| one >= other));
    }
    let mut ids: Vec<(usize, String)> = texts.map(|id| (id.len(), id)).collect();
    let are_numbers = ids.is_sorted_by(|one, other| one >= other);
    ids.iter_mut().for_each(|(length, _)| *length = 0);
    Some(are_numbers || ids.is_sorted_by(|one, other| one >= other))
}

/// Compares the API's clock, which has whole seconds, with this machine's, during the whole request.
pub(crate) fn clock(page: &Page) -> Known<Found> {
    let Some(date) = page.headers.get(DATE) else {
        return found("no Date header", "in a response");
    };
    let date = date.to_str().map(httpdate::parse_http_date);
    let Ok(Ok(date)) = date else {
        return Err("the Date header cannot be read".to_owned());
    };
    let apart = |one: SystemTime, other: SystemTime| {
        let apart = one.duration_since(other).unwrap_or_default();
        let shown = humantime::format_duration(Duration::from_secs(apart.as_secs()));
        (apart > SLOW).then_some(shown)
    };
    if apart(page.received, page.sent).is_some() {
        return Err("the response was slow".to_owned());
    }
    let answer = match (apart(date, page.received), apart(page.sent, date)) {
        (Some(ahead), _) => format!("it is {ahead} ahead of this machine's"),
        (_, Some(behind)) => format!("it is {behind} behind this machine's"),
        _ => "it agrees with this machine's".to_owned(),
    };
    found(answer, "by the Date header")
}

/// Tells what the headers of a response say: compression, rate limits, ETag.
pub(crate) fn headers(page: &Page) -> [(&'static str, Known<Found>); 3] {
    let names = page.headers.keys().map(|name| name.as_str());
    let limits = names.filter(|name| name.contains("ratelimit") || name.contains("rate-limit"));
    let limits: Vec<&str> = limits.collect();
    let answers = [
        (
            "compression",
            if page.is_compressed() { "gzip" } else { "none" },
        ),
        (
            "rate-limit headers",
            if limits.is_empty() {
                "none"
            } else {
                &limits.join(", ")
            },
        ),
        (
            "ETag",
            if page.headers.contains_key(ETAG) {
                "yes"
            } else {
                "no"
            },
        ),
    ];
    answers.map(|(question, answer)| (question, found(answer, "in a response")))
}
