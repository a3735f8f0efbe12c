//! The audit log page that answers a request (sections 2.2 and 4.1).
//!
//! Silent spots of the specification, as read here (those with a name of their own are settings, see
//! [`Readings`](super::Readings)):
//!
//! - Without a cursor: the newest entries. `before`: those next below the cursor. `startCursor` is the newest entry's
//!   of the page and `endCursor` the oldest one's, whatever the order inside the page.
//! - `before` and `after` together: the entries between the two, those next to `before` first.
//! - `hasPrevious`: there are newer entries than the page's; `hasMore`: there are older ones; both within the filter.
//!   On an empty page they say whether anything lies above or below the cursor.
//! - On an empty page `endCursor` is null; so is `startCursor`, unless `after` was given and is echoed.
//! - A cursor that this simulator did not make is a validation error with the code `invalid_cursor`.

use std::ops::Bound;

use serde_json::json;

use super::cursor::Cursors;
use super::filter::Filter;
use super::query::{Issues, Query};
use super::readings::{AfterReading, EmptyCursor, FlagReading, Order, Readings};
use super::walk::Between;
use super::world::{Key, Row, World};

/// Parameters of the listing.
const PARAMETERS: &[&str] = &[
    "limit",
    "before",
    "after",
    "activityTypes",
    "dealIds",
    "actorUserEmails",
    "targetUserEmails",
];

/// What is asked of the listing, checked.
#[derive(Debug)]
pub(super) struct AuditQuery {
    limit: u64,
    before: Option<Key>,
    after: Option<Key>,
    after_text: Option<String>,
    filter: Filter,
}

/// A page, its entries already as JSON.
#[derive(Clone, Debug, Default)]
pub(super) struct AuditPage {
    pub(super) ids: Vec<String>,
    pub(super) items: Vec<String>,
    pub(super) start_cursor: Option<String>,
    pub(super) end_cursor: Option<String>,
    pub(super) has_previous: bool,
    pub(super) has_more: bool,
}

// === impl AuditQuery ===

impl AuditQuery {
    pub(super) fn parse(
        query: &Query,
        world: &World,
        readings: &Readings,
        cursors: Cursors,
    ) -> Result<Self, Issues> {
        let mut issues = Issues::default();
        let limit = query.limit(&mut issues);
        let mut cursor = |name: &str| {
            let text = query.one(name, &mut issues)?;
            let key = cursors.read(text);
            if key.is_none() {
                issues.add(
                    name,
                    "invalid_cursor",
                    "Malformed or expired cursor",
                    json!(text),
                    &[],
                );
            }
            key.map(|key| (key, text.to_owned()))
        };
        let before = cursor("before");
        let after = cursor("after");
        let filter = Filter::parse(query, world, &mut issues);
        if readings.unknown_parameters == super::readings::UnknownParameters::Refuse {
            query.refuse_unknown(PARAMETERS, &mut issues);
        }
        if issues.body().is_some() {
            return Err(issues);
        }
        let (after, after_text) = after.unzip();
        Ok(Self {
            limit,
            before: before.map(|(key, _)| key),
            after,
            after_text,
            filter,
        })
    }

    /// The page.
    pub(super) fn answer(&self, world: &World, readings: &Readings, cursors: Cursors) -> AuditPage {
        let limit = usize::try_from(self.limit.min(readings.page_cap.unwrap_or(u64::MAX)))
            .unwrap_or(usize::MAX);
        let seed = world.seed();
        let wanted = |row: &Row| self.filter.takes_all() || self.filter.takes(&row.view(seed));
        let low = match self.after {
            None => Bound::Unbounded,
            Some(key) if readings.after_inclusive => Bound::Included(key),
            Some(key) => Bound::Excluded(key),
        };
        let high = match self.before {
            None => Bound::Unbounded,
            Some(key) if readings.before_inclusive => Bound::Included(key),
            Some(key) => Bound::Excluded(key),
        };
        let between = Between { low, high };
        let from_below = self.after.is_some()
            && self.before.is_none()
            && readings.after == AfterReading::Adjacent;
        let mut rows: Vec<Row> = if from_below {
            let mut rows: Vec<Row> = world.up(between).filter(wanted).take(limit).collect();
            rows.reverse();
            rows
        } else {
            world.down(between).filter(wanted).take(limit).collect()
        };

        // From here on the rows are newest first.
        let (newest, oldest) = (
            rows.first().map(|row| row.key),
            rows.last().map(|row| row.key),
        );
        let above = newest
            .or(self.after)
            .map(Bound::Excluded)
            .or(self.before.map(Bound::Included));
        let below = oldest
            .or(self.before)
            .map(Bound::Excluded)
            .or(self.after.map(Bound::Included));
        let newer = || {
            above.is_some_and(|low| {
                world
                    .up(Between {
                        low,
                        high: Bound::Unbounded,
                    })
                    .any(|row| wanted(&row))
            })
        };
        let older = || {
            below.is_some_and(|high| {
                world
                    .down(Between {
                        low: Bound::Unbounded,
                        high,
                    })
                    .any(|row| wanted(&row))
            })
        };
        let has_previous = flag(readings.has_previous, newer);
        let has_more = flag(readings.has_more, older);

        if readings.order == Order::OldestFirst {
            rows.reverse();
        }
        let echo = self
            .after_text
            .clone()
            .filter(|_| readings.empty_start_cursor == EmptyCursor::Echo);
        AuditPage {
            ids: rows.iter().map(|row| world.id(row)).collect(),
            items: rows.iter().map(|row| world.json(row)).collect(),
            start_cursor: newest.map(|key| cursors.write(key)).or(echo),
            end_cursor: oldest.map(|key| cursors.write(key)),
            has_previous,
            has_more,
        }
    }
}

// === impl AuditPage ===

impl AuditPage {
    /// The page as it is served.
    pub(super) fn body(&self) -> String {
        let quoted = |cursor: &Option<String>| json!(cursor).to_string();
        let length = self.items.iter().map(|item| item.len() + 1).sum::<usize>() + 256;
        let mut body = String::with_capacity(length);
        body.push_str("{\"items\":[");
        for (i, item) in self.items.iter().enumerate() {
            if i > 0 {
                body.push(',');
            }
            body.push_str(item);
        }
        body.push_str("],\"startCursor\":");
        body.push_str(&quoted(&self.start_cursor));
        body.push_str(",\"endCursor\":");
        body.push_str(&quoted(&self.end_cursor));
        body.push_str(",\"hasPrevious\":");
        body.push_str(if self.has_previous { "true" } else { "false" });
        body.push_str(",\"hasMore\":");
        body.push_str(if self.has_more { "true" } else { "false" });
        body.push('}');
        body
    }
}

fn flag(reading: FlagReading, right: impl FnOnce() -> bool) -> bool {
    match reading {
        FlagReading::Right => right(),
        FlagReading::AlwaysFalse => false,
        FlagReading::AlwaysTrue => true,
    }
}
