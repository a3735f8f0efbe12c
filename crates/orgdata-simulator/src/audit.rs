//! The audit log listing (sections 2.2 and 4.1).
//!
//! Silent spots of the specification, as read here (see [`Readings`] for those with settings):
//!
//! - The newest entry of a page comes first. `startCursor` is the cursor of the newest entry, `endCursor` that of the
//!   oldest.
//! - `before` and `after` together return the entries between the two, those next to `before` first.
//! - `hasPrevious` and `hasMore` say whether newer and older entries match the filter. Above and below an empty page
//!   means above and below the cursor.
//! - On an empty page `endCursor` is null and `startCursor` repeats `after`.
//! - A cursor that this simulator did not write is a validation error.
//! - Filters combine with AND, the values of one filter with OR. "Invalid ids are silently ignored": a deal id that is
//!   not a number or not known is as if it had not been sent, so a filter without any valid id filters nothing. An
//!   unknown e-mail address matches nothing. An unknown activity type is a validation error.

use std::collections::HashSet;
use std::ops::Bound;

use serde_json::{Value, json};

use crate::cursor;
use crate::data;
use crate::entry::View;
use crate::query::{Issues, Query};
use crate::readings::{AfterReading, FlagReading, Readings};
use crate::world::{Key, Row, World};

/// The filters of a request. `None` means all.
#[derive(Debug)]
struct Filter {
    kinds: Option<HashSet<String>>,
    deals: Option<HashSet<i64>>,
    actors: Option<HashSet<i64>>,
    targets: Option<HashSet<i64>>,
}

/// Returns the page for a request, or the body of a validation error.
pub(crate) fn page(world: &World, readings: &Readings, query: &Query) -> Result<Value, Value> {
    let mut issues = Issues::default();
    let limit = query
        .limit(&mut issues)
        .min(readings.page_cap.unwrap_or(u64::MAX)) as usize;
    let mut cursor = |name: &str| -> Option<Key> {
        let text = query.get(name)?;
        let key = cursor::read(world.seed, readings.cursor, text);
        if key.is_none() {
            issues.add(name, "invalid_cursor", "Malformed or expired cursor", text);
        }
        key
    };
    let (before, after) = (cursor("before"), cursor("after"));
    let filter = Filter::parse(query, world, &mut issues);
    query.check(
        &["limit", "before", "after"],
        &[
            "activityTypes",
            "dealIds",
            "actorUserEmails",
            "targetUserEmails",
        ],
        &mut issues,
    );
    issues.into_result()?;

    let matches = |row: &Row| filter.is_empty() || filter.matches(&world.view(row));
    let low = bound(after, readings.after_inclusive);
    let high = bound(before, readings.before_inclusive);
    let above_low = |row: &Row| match low {
        Bound::Included(key) => row.key >= key,
        Bound::Excluded(key) => row.key > key,
        Bound::Unbounded => true,
    };
    let from_below = before.is_none() && readings.after == AfterReading::Adjacent;
    let mut rows: Vec<Row> = if after.is_some() && from_below {
        world.up(low, false).filter(matches).take(limit).collect()
    } else {
        let rows = world.down(high).take_while(above_low);
        rows.filter(matches).take(limit).collect()
    };
    rows.sort_by_key(|row| std::cmp::Reverse(row.key));

    let (newest, oldest) = (
        rows.first().map(|row| row.key),
        rows.last().map(|row| row.key),
    );
    let is_above = newest
        .or(after)
        .map(Bound::Excluded)
        .or(before.map(Bound::Included));
    let is_below = oldest
        .or(before)
        .map(Bound::Excluded)
        .or(after.map(Bound::Included));
    let has_newer = || is_above.is_some_and(|from| world.up(from, false).any(|row| matches(&row)));
    let has_older = || is_below.is_some_and(|from| world.down(from).any(|row| matches(&row)));
    let items: Vec<Value> = rows.iter().map(|row| world.entry(row)).collect();
    let cursor = |key: Key| cursor::write(world.seed, readings.cursor, key);
    let start_cursor = newest.map(cursor);
    Ok(json!({
        "items": items,
        "startCursor": start_cursor.as_deref().or(query.get("after")),
        "endCursor": oldest.map(cursor),
        "hasPrevious": flag(readings.has_previous, has_newer),
        "hasMore": flag(readings.has_more, has_older),
    }))
}

fn bound(key: Option<Key>, inclusive: bool) -> Bound<Key> {
    match key {
        None => Bound::Unbounded,
        Some(key) if inclusive => Bound::Included(key),
        Some(key) => Bound::Excluded(key),
    }
}

fn flag(reading: FlagReading, right: impl FnOnce() -> bool) -> bool {
    match reading {
        FlagReading::Right => right(),
        FlagReading::AlwaysFalse => false,
        FlagReading::AlwaysTrue => true,
    }
}

// === impl Filter ===

impl Filter {
    fn parse(query: &Query, world: &World, issues: &mut Issues) -> Self {
        for kind in query
            .all("activityTypes")
            .filter(|kind| !world.has_kind(kind))
        {
            issues.add_enum("activityTypes", kind, data::kinds().collect());
        }
        let kinds: HashSet<String> = query.all("activityTypes").map(str::to_owned).collect();
        let deals = query.all("dealIds").filter_map(|id| id.parse().ok());
        let deals: HashSet<i64> = deals.filter(|id| world.has_deal(*id)).collect();
        let users = |name| {
            query.all(name).next()?;
            Some(query.all(name).filter_map(data::user_of).collect())
        };
        Self {
            kinds: (!kinds.is_empty()).then_some(kinds),
            deals: (!deals.is_empty()).then_some(deals),
            actors: users("actorUserEmails"),
            targets: users("targetUserEmails"),
        }
    }

    fn is_empty(&self) -> bool {
        let ids = [&self.deals, &self.actors, &self.targets];
        self.kinds.is_none() && ids.iter().all(|wanted| wanted.is_none())
    }

    fn matches(&self, view: &View) -> bool {
        let matches = |wanted: &Option<HashSet<i64>>, id: Option<i64>| {
            wanted
                .as_ref()
                .is_none_or(|wanted| id.is_some_and(|id| wanted.contains(&id)))
        };
        let kinds = self.kinds.as_ref();
        kinds.is_none_or(|kinds| kinds.contains(view.kind.as_ref()))
            && matches(&self.deals, view.deal)
            && matches(&self.actors, view.actor)
            && matches(&self.targets, view.target)
    }
}
