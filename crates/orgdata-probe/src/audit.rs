//! Questions about the audit log listing (specification, sections 2.1, 2.2 and 4.1).

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use orgdata_api::{Endpoint, parse_json_time};
use serde_json::Value;

use crate::ask::{Asker, Found, Known, Page, found};
use crate::sample::Sample;
use crate::{Report, cursors, filters, shape, watch};

/// Requests that the contract does not describe. The values are ones that no organization has.
const ODD: [(&str, &[(&str, &str)]); 6] = [
    ("limit of 0", &[("limit", "0")]),
    ("limit of 1001", &[("limit", "1001")]),
    ("made-up cursor", &[("before", "orgdata-exporter-probe")]),
    (
        "unknown type",
        &[("activityTypes", "ORGDATA_EXPORTER_PROBE")],
    ),
    ("unknown deal", &[("dealIds", "999999999999")]),
    (
        "unknown e-mail address",
        &[("actorUserEmails", "probe@orgdata-exporter.invalid")],
    ),
];

/// The least length of a value to be found in a cursor by intention.
const MIN_VALUE: usize = 6;

/// Asks everything about the audit logs.
pub(crate) async fn ask(
    asker: &mut Asker,
    report: &mut Report,
    watch: Option<Duration>,
) -> Known<()> {
    let mut sample = Sample::read(asker).await?;
    report.add("ids", sample.stability.clone());
    report.add("order within a page", sample.order.clone());
    let sorted = sample.read_on(asker).await;
    let rows = &sample.rows;
    let [nulls, deviations] = shape::fields(rows, shape::ENTRY);
    report.add("null fields", nulls);
    report.add("deviations from the contract", deviations);
    report.add("form of createdAt", shape::times(rows, "createdAt"));
    report.add("form of cursors", form_of_cursors(&sample.pages[0]));
    report.add("clock", shape::clock(&sample.top));
    for (question, known) in shape::headers(&sample.pages[0]) {
        report.add(question, known);
    }
    for (question, query) in ODD {
        let known = asker.outcome(Endpoint::AuditLogs, query, &sample.top).await;
        report.add(question, known);
    }
    sorted?;
    report.add(
        "order of the listing",
        order_of_the_listing(&rows[..sample.pages[0].items.len()]),
    );
    report.add("end of the listing", sample.end.clone());
    report.add("hasMore", sample.flag("hasMore"));
    report.add("hasPrevious", sample.flag("hasPrevious"));
    report.add(
        "largest page",
        largest_page(&sample.lengths(), sample.limit),
    );
    report.add("equal times in a row", equal_times(rows));
    if let Err(why) = cursors::ask(asker, report, &mut sample).await {
        report.fill(&why, |question| cursors::QUESTIONS.contains(&question.name));
    }
    filters::ask(asker, report, &sample).await;
    if let Some(wait) = watch {
        let [late, expired] = watch::ask(asker, &sample, wait).await?;
        report.add("late entries", late);
        report.add("cursor after the watch", expired);
    }
    Ok(())
}

/// Names what may decide the order: what no entry of a page contradicts. Arrival cannot be seen.
fn order_of_the_listing(rows: &[Value]) -> Known<Found> {
    let fields = ["createdAt", "occurredAt", "updatedAt", "id"];
    let (not, may): (Vec<&str>, Vec<&str>) = fields
        .into_iter()
        .partition(|field| shape::descends(rows, field) == Some(false));
    match not.is_empty() {
        true => Err("the entries fit every order".to_owned()),
        false => found(
            format!("by {}", [may, vec!["arrival"]].concat().join(" or ")),
            format!("{} entries contradict {}", rows.len(), not.join(", ")),
        ),
    }
}

/// A page that is shorter than its limit, with more below, shows the largest one.
pub(crate) fn largest_page(lengths: &[usize], limit: &str) -> Known<Found> {
    let evidence = format!("a limit of {limit} brought {}", lengths[0]);
    match lengths {
        _ if limit != "1000" => Err(format!("{evidence}, and larger limits failed")),
        [1000, ..] => found("1000", evidence),
        [first, second, ..] if first == second && *first > 0 => found(first.to_string(), evidence),
        _ => Err(format!("{evidence}, and there are not enough items")),
    }
}

fn equal_times(rows: &[Value]) -> Known<Found> {
    let times = rows
        .iter()
        .map(|row| parse_json_time(&row["createdAt"].to_string()));
    let times: Option<Vec<_>> = times.collect();
    let times = times.ok_or("a createdAt cannot be read")?;
    let runs = times.chunk_by(|one, other| one == other);
    let longest = runs.map(<[_]>::len).max().unwrap_or(0);
    found(longest.to_string(), format!("of {} entries", rows.len()))
}

/// Looks for ids and times of a page's entries in its cursor.
fn form_of_cursors(page: &Page) -> Known<Found> {
    let cursor = page.cursor("endCursor").ok_or("there is no cursor")?;
    let bare = cursor.trim_end_matches('=');
    let decoded = [STANDARD_NO_PAD.decode(bare), URL_SAFE_NO_PAD.decode(bare)];
    let decoded = decoded
        .into_iter()
        .flatten()
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let texts: Vec<String> = decoded.chain([cursor.to_owned()]).collect();
    let mut is_tested = false;
    for item in &page.items {
        let [id, time] = ["id", "createdAt"].map(|field| item[field].to_string());
        let millis = parse_json_time(&time).map(|time| time.as_millisecond().to_string());
        for (field, value) in [
            ("id", Some(id)),
            ("createdAt", Some(time)),
            ("createdAt", millis),
        ] {
            let value = value.as_deref().unwrap_or_default().trim_matches('"');
            // A short one may be there by chance.
            let is_long = value.len() >= MIN_VALUE;
            is_tested |= is_long && field == "id";
            if is_long && texts.iter().any(|text| text.contains(value)) {
                return found(format!("readable: with {field}"), "as it is or as base64");
            }
        }
    }
    match is_tested {
        true => found("opaque: without id and createdAt", "as it is and as base64"),
        false => Err("ids are too short to be found in a cursor".to_owned()),
    }
}
