//! Questions about filters. Their meaning follows from the entries that come and the known ones that do not.

use std::collections::HashMap;

use serde_json::Value;

use crate::Report;
use crate::ask::{Asker, Found, Known, found};
use crate::sample::Sample;

const TYPES: &str = "activityTypes";
const TYPE_LIST: &str = "activityTypes[]";
const DEALS: &str = "dealIds";

/// What a filter may do: the answer, and whether an entry comes that has the first and the second value of the request.
type Meaning = (&'static str, fn(bool, bool) -> bool);

const OF_ONE: &[Meaning] = &[
    ("the filter applies", |one, _| one),
    ("ignored", |_, _| true),
];
const OF_TYPES: &[Meaning] = &[
    ("either type", |one, other| one || other),
    ("only the first type", |one, _| one),
    ("only the last type", |_, other| other),
    ("ignored", |_, _| true),
];
const OF_BOTH: &[Meaning] = &[
    ("both filters apply", |kind, deal| kind && deal),
    ("either filter applies", |kind, deal| kind || deal),
    ("only the type applies", |kind, _| kind),
    ("only the deal applies", |_, deal| deal),
    ("ignored", |_, _| true),
];

/// Asks about all filters.
pub(crate) async fn ask(asker: &mut Asker, report: &mut Report, sample: &Sample) {
    let kinds = others(sample, TYPES);
    let deals = others(sample, DEALS);
    let mut questions = Vec::new();
    if let [one, ..] = &*kinds {
        questions.push(("filter by one type", vec![(TYPES, &**one)], OF_ONE));
    }
    if let [one, other, ..] = &*kinds {
        let query = |name| vec![(name, &**one), (name, &**other)];
        questions.push(("filter by types, repeated", query(TYPES), OF_TYPES));
        questions.push((
            "filter by types, repeated with []",
            query(TYPE_LIST),
            OF_TYPES,
        ));
    }
    if let [one, ..] = &*deals {
        questions.push(("filter by one deal", vec![(DEALS, &**one)], OF_ONE));
    }
    let pair = pair(sample);
    if let Some((kind, deal)) = &pair {
        let query = vec![(TYPES, &**kind), (DEALS, &**deal)];
        questions.push(("filter by type and deal", query, OF_BOTH));
    }
    for (question, query, meanings) in questions {
        report.add(question, filtered(asker, sample, &query, meanings).await);
    }
}

/// Returns the value of an entry that a parameter filters by.
fn value(row: &Value, name: &str) -> Option<String> {
    match name {
        DEALS => row["dealId"].as_u64().map(|id| id.to_string()),
        _ => row["type"].as_str().map(str::to_owned),
    }
}

/// Returns values that the newest entry does not have, which comes if a filter is ignored.
fn others(sample: &Sample, name: &str) -> Vec<String> {
    let newest = sample.rows.first().and_then(|row| value(row, name));
    let mut values = Vec::new();
    for other in sample.rows.iter().filter_map(|row| value(row, name)) {
        if newest.as_ref() != Some(&other) && !values.contains(&other) {
            values.push(other);
        }
    }
    values
}

/// Returns type and deal of an entry below one of the same type and another deal, and one of the same deal and another type.
fn pair(sample: &Sample) -> Option<(String, String)> {
    let pairs = sample
        .rows
        .iter()
        .map(|row| (value(row, TYPES), value(row, DEALS)));
    let pairs: Vec<_> = pairs.collect();
    let mut found = pairs.iter().enumerate().filter(|(at, (kind, deal))| {
        let above = || pairs[..*at].iter();
        above().any(|it| it.0 == *kind && it.1 != *deal)
            && above().any(|it| it.0 != *kind && it.1 == *deal)
    });
    found.find_map(|(_, (kind, deal))| kind.clone().zip(deal.clone()))
}

async fn filtered(
    asker: &mut Asker,
    sample: &Sample,
    query: &[(&str, &str)],
    meanings: &[Meaning],
) -> Known<Found> {
    let page = asker
        .audit(&[&[("limit", sample.limit)], query].concat())
        .await?;
    let evidence = format!("status {}, {} entries", page.status, page.items.len());
    if page.status != 200 {
        return found("refused", evidence);
    }
    let has = |row: &Value, at: usize| {
        let pair = query.get(at);
        pair.is_some_and(|(name, wanted)| value(row, name).as_deref() == Some(*wanted))
    };
    let seen: HashMap<String, &Value> = page.ids()?.into_iter().zip(&page.items).collect();
    // All that a filter lets through has to come, down to the last entry that is known.
    let known = sample.ids.iter().rposition(|id| seen.contains_key(id));
    let known = known.ok_or("no entry came that is known")? + 1;
    let missing = sample.ids.iter().zip(&sample.rows).take(known);
    let missing: Vec<_> = missing.filter(|(id, _)| !seen.contains_key(*id)).collect();
    let mut fitting = meanings.iter().filter(|(_, comes)| {
        let comes = |row: &Value| comes(has(row, 0), has(row, 1));
        seen.values().all(|row| comes(row)) && !missing.iter().any(|(_, row)| comes(row))
    });
    match (fitting.next(), fitting.next()) {
        (Some((meaning, _)), None) => found(*meaning, evidence),
        (None, _) => Err("the entries fit no meaning".to_owned()),
        _ => Err("the entries fit several meanings".to_owned()),
    }
}
