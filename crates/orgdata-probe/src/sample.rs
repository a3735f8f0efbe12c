//! The newest entries of the audit log listing. Most answers need them.

use std::collections::HashSet;
use std::time::Duration;

use jiff::Timestamp;
use orgdata_api::parse_json_time;
use serde_json::Value;
use tokio::time::sleep;

use crate::ask::{Asker, Found, Page, Told, found};

/// The limits to try for a page: a service may fail with large ones.
const LIMITS: [&str; 3] = ["1000", "100", "10"];
/// The maximum number of pages below the first one.
const MAX_PAGES: usize = 5;
/// How often the first page is read if entries arrive meanwhile.
const ATTEMPTS: usize = 3;
/// The age of a cursor that still works, when a younger one leads to the end.
const AGE: Duration = Duration::from_secs(2);

/// The newest entries of the listing.
#[derive(Debug)]
pub(crate) struct Sample {
    /// The limit of its pages.
    pub(crate) limit: &'static str,
    /// A page with the first entry alone.
    pub(crate) top: Page,
    /// The first page.
    pub(crate) first: Page,
    /// The pages below it.
    pages: Vec<Page>,
    /// Whether ids stay the same.
    pub(crate) stability: Told<Found>,
    /// The order of entries within a page. The entries below the first page are known only with it.
    pub(crate) order: Told<Found>,
    /// The entries in the order of the listing, and their ids.
    pub(crate) rows: Vec<Value>,
    pub(crate) ids: Vec<String>,
    /// The number of entries on each page.
    pub(crate) lengths: Vec<usize>,
    /// How the listing ends.
    pub(crate) end: Told<Found>,
    /// Flags of pages: name, right value, value.
    flags: Vec<(&'static str, bool, Value)>,
}

// === impl Sample ===

impl Sample {
    /// Reads the first page, and finds the order of its entries.
    pub(crate) async fn read(asker: &mut Asker) -> Told<Self> {
        let mut limits = LIMITS.into_iter();
        let (mut limit, mut left) = (limits.next().unwrap_or_default(), ATTEMPTS);
        loop {
            let top = asker.audit(&[("limit", "1")]).await?;
            let first = match asker
                .audit(&[("limit", limit)])
                .await
                .and_then(Page::succeeded)
            {
                Ok(page) => page,
                Err(why) => {
                    limit = limits.next().ok_or(why)?;
                    continue;
                }
            };
            let again = asker.audit(&[("limit", "1")]).await?;
            left -= 1;
            if top.ids() == again.ids() || left == 0 {
                return Ok(Self {
                    limit,
                    stability: stability(&top, &first, &again),
                    order: order(&top, &first, &again),
                    rows: first.items.clone(),
                    ids: Vec::new(),
                    lengths: vec![first.items.len()],
                    end: Err("it was not reached".to_owned()),
                    flags: vec![("hasPrevious", false, first.body["hasPrevious"].clone())],
                    pages: Vec::new(),
                    top,
                    first,
                });
            }
        }
    }

    /// Reads the pages below the first one, to the end if it is near.
    pub(crate) async fn read_on(&mut self, asker: &mut Asker) -> Told<()> {
        self.ids = self.in_order(&self.first)?;
        let top = self.top.ids()?.concat();
        let mut known: HashSet<String> = self.ids.iter().cloned().collect();
        let mut leads_to_end = false;
        while let Some(cursor) = self.lowest().cursor("endCursor") {
            let Ok(page) = self.below(asker, cursor).await else {
                break;
            };
            let (Ok(ids), last) = (self.in_order(&page), self.in_order(self.lowest())?.pop())
            else {
                break;
            };
            let old: Vec<&String> = ids.iter().filter(|id| known.contains(*id)).collect();
            leads_to_end = old.len() == ids.len();
            // An inclusive cursor returns the last entry again. One that has expired may lead back to the top.
            let leads_back = !old.is_empty() && old != Vec::from_iter(&last);
            if leads_back || leads_to_end || self.pages.len() == MAX_PAGES {
                leads_to_end &= !leads_back;
                break;
            }
            known.extend(ids);
            self.pages.push(page);
        }
        leads_to_end |= self.lowest().cursor("endCursor").is_none();
        // Entries that arrived meanwhile, on top or below, could be taken for older ones.
        if !self.pages.is_empty() {
            let now = asker.audit(&[("limit", self.limit)]).await;
            let ids = now.and_then(|now| now.ids()).unwrap_or_default();
            if !ids.contains(&top) || ids.len() != self.first.items.len() {
                self.pages.clear();
                leads_to_end = false;
            }
        }
        for i in 0..self.pages.len() {
            let above = i.checked_sub(1).map_or(&self.first, |i| &self.pages[i]);
            let has_more = above.body["hasMore"].clone();
            let has_previous = self.pages[i].body["hasPrevious"].clone();
            let flags = [
                ("hasMore", true, has_more),
                ("hasPrevious", true, has_previous),
            ];
            self.flags.extend(flags);
            self.lengths.push(self.pages[i].items.len());
        }
        self.ids.clear();
        self.rows.clear();
        for page in std::iter::once(&self.first).chain(&self.pages) {
            let mut items = page.items.clone();
            if self.is_oldest_first() {
                items.reverse();
            }
            for row in items {
                let id = row["id"].to_string();
                if self.ids.last() != Some(&id) {
                    self.ids.push(id);
                    self.rows.push(row);
                }
            }
        }
        if leads_to_end {
            self.end = self.confirm_end(asker).await;
        }
        Ok(())
    }

    /// Requests the last two pages again. A younger cursor than one that works has not expired.
    async fn confirm_end(&mut self, asker: &mut Asker) -> Told<Found> {
        let (top, last) = match &*self.ids {
            [top, .., last] => (top, last),
            _ => return Err("there are fewer than two entries".to_owned()),
        };
        let upper = match &*self.pages {
            [] => {
                let all_but_one = (self.ids.len() - 1).to_string();
                asker.audit(&[("limit", &all_but_one)]).await?
            }
            [_] => asker.audit(&[("limit", self.limit)]).await?,
            [.., above, _, _] => {
                let cursor = above.cursor("endCursor").unwrap_or_default();
                self.below(asker, cursor).await?
            }
            [_, _] => {
                let cursor = self.first.cursor("endCursor").unwrap_or_default();
                self.below(asker, cursor).await?
            }
        };
        let no_cursor = || "there is no cursor".to_owned();
        sleep(AGE).await;
        let lower = self
            .below(asker, upper.cursor("endCursor").ok_or_else(no_cursor)?)
            .await?;
        let ids = lower.ids()?;
        if upper.ids()?.contains(last) || !ids.contains(last) || ids.contains(top) {
            return Err("the last pages were not the same again".to_owned());
        }
        let how = match lower.cursor("endCursor") {
            None => "the last page has no endCursor",
            Some(cursor) => {
                let next = self.below(asker, cursor).await?;
                match &*next.ids()? {
                    _ if next.received.1 - lower.sent.1 > AGE => {
                        return Err("an answer took too long".to_owned());
                    }
                    [] if next.cursor("endCursor").is_none() => {
                        "the last endCursor leads to an empty page"
                    }
                    [again] if again == last && ids.len() > 1 => {
                        "the last endCursor leads to the last entry again"
                    }
                    _ => return Err("the last endCursor leads to other entries".to_owned()),
                }
            }
        };
        let evidence = format!("after {} entries", self.ids.len());
        let flag = |page: &Page, name: &'static str, right| (name, right, page.body[name].clone());
        let flags = [
            flag(&upper, "hasMore", true),
            flag(&lower, "hasPrevious", true),
            flag(&lower, "hasMore", false),
        ];
        self.flags.extend(flags);
        found(how, evidence)
    }

    /// Judges a flag by pages for which the right value is known.
    pub(crate) fn flag(&self, name: &str) -> Told<Found> {
        let flags = || self.flags.iter().filter(|(other, ..)| *other == name);
        let (total, mut wrong) = (
            flags().count(),
            flags().filter(|(_, right, value)| *value != *right),
        );
        if let Some((_, right, value)) = wrong.next() {
            let value = value
                .as_bool()
                .map_or("no boolean".to_owned(), |it| it.to_string());
            return found(
                "wrong",
                format!("it is {value} on a page for which {right} is right"),
            );
        }
        match [true, false]
            .iter()
            .find(|value| !flags().any(|(_, right, _)| right == *value))
        {
            None => found(
                "right",
                format!("on {total} pages, some with true and some with false"),
            ),
            Some(value) => Err(format!("no page was seen for which {value} is right")),
        }
    }

    /// Adds new entries on top.
    pub(crate) fn add(&mut self, page: &Page) -> Told<()> {
        let ids = self.in_order(page)?;
        let count = ids
            .iter()
            .take_while(|id| Some(*id) != self.ids.first())
            .count();
        if count == ids.len() {
            return Err("many entries arrived".to_owned());
        }
        let mut items = page.items.clone();
        if self.is_oldest_first() {
            items.reverse();
        }
        self.rows.splice(..0, items.into_iter().take(count));
        self.ids.splice(..0, ids.into_iter().take(count));
        Ok(())
    }

    /// Returns the ids of a page in the order of the listing.
    pub(crate) fn in_order(&self, page: &Page) -> Told<Vec<String>> {
        let mut ids = page.ids()?;
        self.order
            .as_ref()
            .map_err(|why| format!("the order within a page is not known: {why}"))?;
        if self.is_oldest_first() {
            ids.reverse();
        }
        Ok(ids)
    }

    fn is_oldest_first(&self) -> bool {
        self.order
            .as_ref()
            .is_ok_and(|order| order.answer == "oldest first")
    }

    /// Returns the last page.
    fn lowest(&self) -> &Page {
        self.pages.last().unwrap_or(&self.first)
    }

    /// Requests the page below a cursor.
    async fn below(&self, asker: &mut Asker, cursor: &str) -> Told<Page> {
        let page = asker
            .audit(&[("limit", self.limit), ("before", cursor)])
            .await;
        page.and_then(Page::succeeded)
    }
}

/// Tells the order of the first page by the entry that is a page of one, before and after.
fn order(top: &Page, first: &Page, again: &Page) -> Told<Found> {
    let (top, again, ids) = (top.ids()?, again.ids()?, first.ids()?);
    let time = |item: &Value| parse_json_time(&item["createdAt"].to_string());
    let (upper, lower) = match (&*first.items, &*ids, &*top) {
        _ if top != again => return Err("entries arrive all the time".to_owned()),
        ([upper, .., lower], [one, .., other], [top]) if one != other => {
            match (one == top, other == top) {
                (true, false) => (upper, lower),
                (false, true) => (lower, upper),
                _ => {
                    return Err(
                        "the entry of a page of one is in the middle of a longer page".to_owned(),
                    );
                }
            }
        }
        _ => return Err("there are fewer than two entries".to_owned()),
    };
    let times: [Option<Timestamp>; 2] = [time(upper), time(lower)];
    match times {
        [Some(upper), Some(lower)] if upper > lower => {}
        _ => return Err("createdAt does not confirm what a page of one shows".to_owned()),
    }
    let answer = if ids.first() == top.first() {
        "newest first"
    } else {
        "oldest first"
    };
    found(
        answer,
        format!("{} entries, and a page with one", ids.len()),
    )
}

/// Tells whether ids stay the same, by the newest entry.
fn stability(top: &Page, first: &Page, again: &Page) -> Told<Found> {
    let missing = first
        .items
        .iter()
        .filter(|item| item["id"].is_null())
        .count();
    let ids: Vec<&Value> = [top, again]
        .into_iter()
        .flat_map(|page| &page.items)
        .map(|item| &item["id"])
        .collect();
    let without_id = |page: &Page| {
        let mut item = page.items.first()?.as_object()?.clone();
        item.remove("id");
        Some(item)
    };
    match &*ids {
        _ if missing > 0 => found(
            "missing",
            format!("{missing} of {} entries have none", first.items.len()),
        ),
        [one, other] if one.is_null() || other.is_null() => {
            Err("the newest entry has no id at times".to_owned())
        }
        [one, other] if one == other => found("stable", "the newest entry had the same one twice"),
        [_, _] if without_id(top) == without_id(again) => found(
            "not stable",
            "the newest entry had another one the second time",
        ),
        _ => Err("there is no entry, or entries arrive all the time".to_owned()),
    }
}
