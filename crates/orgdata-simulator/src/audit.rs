//! The audit log listing (sections 2.2 and 4.1).
//!
//! Ambiguous places of the specification, as read here (see [`Readings`] for those with settings):
//!
//! - The newest entry of a page comes first. `startCursor` is the cursor of the newest entry, `endCursor` that of the
//!   oldest.
//! - `before` and `after` together return the entries between the two, those next to `before` first.
//! - `hasPrevious` and `hasMore` say whether newer and older entries match the filter. Above and below an empty page
//!   means above and below the cursor.
//! - On an empty page `endCursor` is null and `startCursor` repeats `after`.
//! - What cannot be a cursor is a validation error.
//! - Filters combine with AND, the values of one filter with OR. "Invalid ids are silently ignored": a deal id that is
//!   not a number or not known is as if it had not been sent, so a filter without any valid id filters nothing. An
//!   unknown e-mail address matches nothing. An unknown activity type is a validation error.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::data;
use crate::entry::Key;
use crate::query::{Query, issue};
use crate::readings::Readings;
use crate::world::{Row, World};

/// The parameters with one value.
const SINGLE: &str = "limit before after";
/// The parameters with any number of values.
const ARRAYS: &str = "activityTypes dealIds actorUserEmails targetUserEmails";

/// The filters of a request: a field of an entry, and the values that match.
#[derive(Debug, Default)]
struct Filter(Vec<(&'static str, Vec<Value>)>);

/// Returns the page for a request, or the body of a validation error.
pub(crate) fn page(
    world: &World,
    readings: &Readings,
    query: &Query,
    now: i64,
) -> Result<Value, Value> {
    query.check(SINGLE, ARRAYS)?;
    let cap = readings.page_cap.unwrap_or(u64::MAX);
    let limit = query.limit()?.min(cap) as usize;
    let oldest_valid = readings
        .cursor_ttl
        .map_or(i64::MIN, |ttl| now - ttl as i64 * 1000);
    let cursor = |name: &str| {
        let Some(text) = query.get(name) else {
            return Ok(None);
        };
        let rejected = issue(name, "invalid_cursor", "Malformed or expired cursor", text);
        let Some((key, issued)) = read_cursor(text) else {
            return Err(rejected);
        };
        match issued < oldest_valid {
            true if readings.expired_is_newest => Ok(None),
            true => Err(rejected),
            false => Ok(Some(key)),
        }
    };
    let (before, after) = (cursor("before")?, cursor("after")?);
    let filter = Filter::parse(query, world)?;

    let rows = &world.rows[..world.rows.len().saturating_sub(readings.behind)];
    let below = |key, inclusive| world.count_below(key, inclusive).min(rows.len());
    let low = after.map_or(0, |key| below(key, true));
    let high = before.map_or(rows.len(), |key| below(key, readings.before_inclusive));
    let between = rows[low.min(high)..high].iter();
    let matches = |row: &&Row| filter.0.is_empty() || filter.matches(&world.entry(row));
    let is_candidate = |row: &&Row| readings.filter_after_limit || matches(row);
    let mut page: Vec<&Row> = if after.is_some() && before.is_none() {
        between.filter(is_candidate).take(limit).collect()
    } else {
        between.rev().filter(is_candidate).take(limit).collect()
    };
    // The newest entry comes first.
    page.sort_by_key(|row| std::cmp::Reverse(world.rank(row.key)));

    let key = |row: Option<&&Row>| row.map(|row| row.key);
    let (newest, oldest) = (key(page.first()), key(page.last()));
    let above = newest.map_or(high.max(low), |key| world.count_below(key, true));
    let below = oldest.map_or(low.min(high), |key| world.count_below(key, false));
    // Without a time limit, a place has one cursor.
    let issued = readings.cursor_ttl.map_or(0, |_| now);
    let cursor = |key: Key| write_cursor(key, issued);
    let start_cursor = newest.map(cursor);
    let mut body = json!({
        // Set below, because the macro copies what it is given.
        "items": null,
        "startCursor": start_cursor.as_deref().or(query.get("after")),
        "endCursor": oldest.map(cursor),
        "hasPrevious": rows[above..].iter().any(|row| matches(&row)),
        "hasMore": readings.has_more.unwrap_or_else(|| rows[..below].iter().any(|row| matches(&row))),
    });
    let items = page.into_iter().filter(matches).map(|row| {
        let mut entry = world.entry(row);
        readings.write_times(&mut entry);
        entry
    });
    let mut items: Vec<Value> = items.collect();
    if readings.oldest_first {
        items.reverse();
    }
    body["items"] = items.into();
    Ok(body)
}

/// Returns the cursor of a place, which is opaque and says when it was issued.
fn write_cursor(key: Key, issued: i64) -> String {
    let numbers = [key.created as u64, key.number, issued as u64].map(u64::to_be_bytes);
    URL_SAFE_NO_PAD.encode(numbers.as_flattened())
}

/// Returns the place of a cursor and when it was issued, or nothing if it is not a cursor.
fn read_cursor(text: &str) -> Option<(Key, i64)> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let (numbers, []) = bytes.as_chunks() else {
        return None;
    };
    let [created, number, issued] = *numbers else {
        return None;
    };
    let created = i64::from_be_bytes(created);
    let number = u64::from_be_bytes(number);
    Some((Key { created, number }, i64::from_be_bytes(issued)))
}

// === impl Filter ===

impl Filter {
    fn parse(query: &Query, world: &World) -> Result<Self, Value> {
        for kind in query.all("activityTypes") {
            if !data::kinds().any(|known| known == kind) && !world.was_given("type", &kind.into()) {
                let (code, message) = ("invalid_enum_value", "Invalid enum value");
                let mut rejected = issue("activityTypes", code, message, kind);
                rejected["issues"][0]["options"] = data::kinds().collect();
                return Err(rejected);
            }
        }
        let number = |id: &str| id.parse::<i64>().ok().map(Value::from);
        let user = |mail: &str| data::user_of(mail).map(Value::from);
        let is_known =
            |id: &Value| id.as_i64().is_some_and(data::is_deal) || world.was_given("dealId", id);
        let text = |kind: &str| Some(kind.into());
        let mut filter = Self::default();
        for (name, field, read) in [
            ("activityTypes", "type", text as fn(&str) -> Option<Value>),
            ("dealIds", "dealId", number),
            ("actorUserEmails", "actorUserId", user),
            ("targetUserEmails", "targetUserId", user),
        ] {
            let mut values: Vec<Value> = query.all(name).filter_map(read).collect();
            let is_of_deals = name == "dealIds";
            values.retain(|value| !is_of_deals || is_known(value));
            // Without any valid id a filter of deals filters nothing; an unknown address matches nothing.
            if !values.is_empty() || !is_of_deals && query.all(name).next().is_some() {
                filter.0.push((field, values));
            }
        }
        Ok(filter)
    }

    fn matches(&self, entry: &Value) -> bool {
        let mut filters = self.0.iter();
        filters.all(|(field, values)| values.contains(&entry[*field]))
    }
}
