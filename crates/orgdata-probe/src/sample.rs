//! The newest entries of the audit log listing. Most answers need them.

use std::collections::HashSet;
use std::time::Duration;

use orgdata_api::parse_json_time;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::ask::{Asker, Found, Known, Page, found};

/// The limits to try for a page: a service may fail with large ones.
const LIMITS: [&str; 3] = ["1000", "100", "10"];
/// The maximum number of pages.
const MAX_PAGES: usize = 6;
/// How often the first page is read if entries arrive meanwhile.
const ATTEMPTS: usize = 3;
/// The age of a cursor that still works, when a younger one leads to the end.
const AGE: Duration = Duration::from_secs(5);

/// The newest entries of the listing.
#[derive(Debug)]
pub(crate) struct Sample {
    /// The limit of its pages.
    pub(crate) limit: &'static str,
    /// A page with the first entry alone.
    pub(crate) top: Page,
    /// Whether ids stay the same.
    pub(crate) stability: Known<Found>,
    /// The order of entries within a page. Only the first page is known without it.
    pub(crate) order: Known<Found>,
    pub(crate) pages: Vec<Page>,
    /// The entries in the order of the listing, newest first, and their ids.
    pub(crate) rows: Vec<Value>,
    pub(crate) ids: Vec<String>,
    /// How the listing ends.
    pub(crate) end: Known<Found>,
    /// Flags of pages: name, right value, value.
    flags: Vec<(&'static str, bool, Value)>,
}

// === impl Sample ===

impl Sample {
    /// Reads the first page, and finds the order of its entries.
    pub(crate) async fn read(asker: &mut Asker) -> Known<Self> {
        let mut limits = LIMITS.into_iter();
        let (mut limit, mut left) = (limits.next().unwrap_or_default(), ATTEMPTS);
        loop {
            let top = asker.below("1", None).await?;
            let mut first = match asker.below(limit, None).await {
                Ok(page) => page,
                Err(why) => {
                    limit = limits.next().ok_or(why)?;
                    continue;
                }
            };
            let again = asker.below("1", None).await?;
            left -= 1;
            if top.ids() != again.ids() && left > 0 {
                continue;
            }
            let (stability, order) = (stability(&top, &first, &again), order(&top, &first, &again));
            if order
                .as_ref()
                .is_ok_and(|order| order.answer == "oldest first")
            {
                asker.is_oldest_first = true;
                first.items.reverse();
            }
            return Ok(Self {
                limit,
                top,
                stability,
                order,
                rows: first.items.clone(),
                pages: vec![first],
                ids: Vec::new(),
                end: Err("it was not reached".to_owned()),
                flags: Vec::new(),
            });
        }
    }

    /// Reads the pages below the first one, to the end if it is near.
    pub(crate) async fn read_on(&mut self, asker: &mut Asker) -> Known<()> {
        self.order
            .clone()
            .map_err(|why| format!("the order within a page is not known: {why}"))?;
        let mut known: HashSet<String> = self.pages[0].ids()?.into_iter().collect();
        let mut is_end = false;
        while let Some(above) = self.pages.last().filter(|_| self.pages.len() < MAX_PAGES) {
            let (cursor, last) = (above.cursor("endCursor"), above.ids()?.pop());
            is_end = cursor.is_none();
            let page = match cursor {
                Some(_) => asker.below(self.limit, cursor).await,
                None => break,
            };
            let Ok((ids, page)) = page.and_then(|page| Ok((page.ids()?, page))) else {
                break;
            };
            // An inclusive cursor returns the last entry again. One that has expired may lead back to the top.
            let leads_back = ids
                .iter()
                .any(|id| known.contains(id) && Some(id) != last.as_ref());
            is_end = !leads_back && ids.iter().all(|id| known.contains(id));
            if leads_back || is_end {
                break;
            }
            known.extend(ids);
            self.pages.push(page);
        }
        // Entries that arrived meanwhile, on top or below, could be taken for older ones.
        let now = asker
            .below(self.limit, None)
            .await
            .and_then(|now| now.ids());
        let (now, top) = (now.unwrap_or_default(), self.top.ids()?.concat());
        if !now.contains(&top) || now.len() != self.pages[0].items.len() {
            is_end &= self.pages.len() == 1;
            self.pages.truncate(1);
        }
        self.rows.clear();
        for (i, page) in self.pages.iter().enumerate() {
            self.flags.push(page.flag("hasPrevious", i > 0));
            self.flags
                .extend((i + 1 < self.pages.len()).then(|| page.flag("hasMore", true)));
            for (id, row) in page.ids()?.into_iter().zip(&page.items) {
                if self.ids.last() != Some(&id) {
                    self.ids.push(id);
                    self.rows.push(row.clone());
                }
            }
        }
        if is_end {
            self.end = self.confirm_end(asker).await;
        }
        Ok(())
    }

    /// Requests the last two pages again. A younger cursor than one that works has not expired.
    async fn confirm_end(&mut self, asker: &mut Asker) -> Known<Found> {
        let [top, .., last] = &*self.ids else {
            return Err("there are fewer than two entries".to_owned());
        };
        let above = self.pages.len().checked_sub(3).map(|i| &self.pages[i]);
        let all_but_one = (self.ids.len() - 1).to_string();
        let limit = match self.pages.len() {
            1 => &all_but_one,
            _ => self.limit,
        };
        let cursor = above.and_then(|page| page.cursor("endCursor"));
        let upper = asker.below(limit, cursor).await?;
        sleep(AGE).await;
        let asked = Instant::now();
        let lower = asker.below(self.limit, upper.cursor("endCursor")).await?;
        let (ids, cursor) = (lower.ids()?, lower.cursor("endCursor"));
        let mut is_same = ids.contains(last) && !ids.contains(top) && !upper.ids()?.contains(last);
        let how = match cursor {
            None => "the last page has no endCursor",
            cursor => {
                let page = asker.below(self.limit, cursor).await?;
                let next = page.ids()?;
                let is_empty = next.is_empty() && page.cursor("endCursor").is_none();
                is_same &= is_empty || ids.len() > 1 && next == [last.clone()];
                match is_empty {
                    true => "the last endCursor leads to an empty page",
                    false => "the last endCursor leads to the last entry again",
                }
            }
        };
        if !is_same || asked.elapsed() > AGE {
            return Err("the last pages were not the same again, or came slowly".to_owned());
        }
        self.flags.extend([
            upper.flag("hasMore", true),
            lower.flag("hasPrevious", true),
            lower.flag("hasMore", false),
        ]);
        found(how, format!("after {} entries", self.ids.len()))
    }

    /// Judges a flag by pages for which the right value is known.
    pub(crate) fn flag(&self, name: &str) -> Known<Found> {
        let flags = || self.flags.iter().filter(|(other, ..)| *other == name);
        if let Some((_, right, _)) = flags().find(|(_, right, value)| *value != *right) {
            return found(
                "wrong",
                format!("it is not {right} on a page for which that is right"),
            );
        }
        match [true, false]
            .iter()
            .find(|value| !flags().any(|(_, right, _)| right == *value))
        {
            None => found(
                "right",
                format!(
                    "on {} pages, some with true and some with false",
                    flags().count()
                ),
            ),
            Some(value) => Err(format!("no page was seen for which {value} is right")),
        }
    }

    /// Adds new entries on top.
    pub(crate) fn add(&mut self, page: &Page) -> Known<()> {
        let ids = page.ids()?;
        let count = ids.iter().position(|id| Some(id) == self.ids.first());
        let count = count.ok_or("many entries arrived")?;
        self.rows.splice(..0, page.items[..count].iter().cloned());
        self.ids.splice(..0, ids.into_iter().take(count));
        Ok(())
    }

    /// Returns the number of entries on each page.
    pub(crate) fn lengths(&self) -> Vec<usize> {
        self.pages.iter().map(|page| page.items.len()).collect()
    }
}

/// Tells the order of the first page by the entry that is a page of one, before and after.
fn order(top: &Page, first: &Page, again: &Page) -> Known<Found> {
    let (top, again, ids) = (top.ids()?.concat(), again.ids()?.concat(), first.ids()?);
    let times = first
        .items
        .iter()
        .map(|item| parse_json_time(&item["createdAt"].to_string()));
    let times: Vec<_> = times.collect();
    let (&[newer, .., older], [one, .., other]) = (&*times, &*ids) else {
        return Err("there are fewer than two entries".to_owned());
    };
    let evidence = format!("{} entries, and a page with one", ids.len());
    match (*one == top, *other == top) {
        _ if top != again => Err("entries arrive all the time".to_owned()),
        _ if newer.is_none() || older.is_none() => Err("a createdAt cannot be read".to_owned()),
        (true, false) if newer > older => found("newest first", evidence),
        (false, true) if newer < older => found("oldest first", evidence),
        _ => Err("createdAt does not confirm what a page with one entry shows".to_owned()),
    }
}

/// Tells whether ids stay the same, by the newest entry.
fn stability(top: &Page, first: &Page, again: &Page) -> Known<Found> {
    let missing = first
        .items
        .iter()
        .filter(|item| item["id"].is_null())
        .count();
    if missing > 0 {
        return found(
            "missing",
            format!("{missing} of {} entries have none", first.items.len()),
        );
    }
    let newest = |page: &Page| {
        let mut newest = page.items.first()?.as_object()?.clone();
        newest
            .remove("id")
            .filter(|id| !id.is_null())
            .map(|id| (id, newest))
    };
    match (newest(top), newest(again)) {
        (Some((id, _)), Some((other, _))) if id == other => {
            found("stable", "the newest entry had the same one twice")
        }
        (Some((_, rest)), Some((_, other))) if rest == other => found(
            "not stable",
            "the newest entry had another one the second time",
        ),
        _ => Err("there is no entry, or entries arrive all the time".to_owned()),
    }
}
