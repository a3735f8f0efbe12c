//! A page with its entries read, and the commit that it becomes.

use std::collections::BTreeMap;
use std::time::Duration;

use opentelemetry::trace::TraceContextExt as _;
use orgdata_api::{AuditPage, Filters};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use super::event::{Event, entry_id, organization_name};
use super::step::{Page, Row, Step};
use crate::ledger::{
    Commit, Disposition, EventIds, Gap, LedgerHandle, NewEntry, OtherOrganization, SharedText,
    TraceContext, label_value,
};

/// An organization's id and name.
pub(super) type Organization = (String, Option<String>);

/// A page with what it is made of.
pub(super) struct Fetched {
    page: AuditPage,
    /// The entries without repetitions, with their indices in the page.
    events: Vec<(usize, Event)>,
    pub(super) view: Page,
}

/// An entry that is not as documented: its id and what is wrong.
pub(super) type Odd = (String, &'static str);

// === impl Fetched ===

impl Fetched {
    /// Reads the entries of a page. `requested` and `at` are as in [`Page`], and `number` is that of the current sweep.
    pub(super) fn new(
        page: AuditPage,
        filters: &Filters,
        ledger: &LedgerHandle,
        number: i64,
        [requested, at]: [Duration; 2],
    ) -> Self {
        let mut ids = EventIds::default();
        let events: Vec<(usize, Event)> = page
            .items()
            .map(|raw| Event::read(raw, filters))
            .enumerate()
            .filter(|(_, event)| ids.insert(event.id))
            .collect();
        let standing = ledger.standing(events.iter().map(|(_, event)| event.id), number);
        let rows = events.iter().zip(standing);
        let rows = rows.map(|((_, event), standing)| Row {
            id: event.id,
            at: event.created_at,
            standing,
        });
        Self {
            view: Page {
                rows: rows.collect(),
                end: page.end_cursor.clone(),
                now: page.server_time,
                requested,
                at,
            },
            events,
            page,
        }
    }

    /// Returns the commit of what a step takes, and the entries in it that are not as documented.
    pub(super) fn commit(
        mut self,
        step: &Step,
        gaps: Vec<Gap>,
        stored: Option<&Organization>,
    ) -> (Commit, Vec<Odd>) {
        let mut commit = Commit {
            trace: current_trace(),
            sweep: step.number,
            prune_before: step.prune_before,
            gaps,
            ..Commit::new(self.page.server_time)
        };
        let organization = stored
            .and_then(|(id, _)| id.parse().ok())
            .or_else(|| self.organization());
        let mut odd = Vec::new();
        // Oldest first: that is the order of delivery.
        for (index, taken) in step.take.iter().rev() {
            let (item, event) = &mut self.events[*index];
            if event.organization.is_some() && event.organization != organization {
                event.mark("the entry belongs to another organization");
            }
            let disposition = match event.filtered {
                true => Disposition::Ignored,
                false => *taken,
            };
            commit.filtered += u64::from(event.filtered);
            if let Some(problem) = event.problem
                && disposition != Disposition::Ignored
            {
                odd.push((entry_id(self.page.item(*item)), problem));
            }
            commit.entries.push(NewEntry {
                id: event.id,
                created_at: event.created_at.unwrap_or(commit.server_time),
                disposition,
                event: std::mem::replace(&mut event.event, Err("")).map_err(str::to_owned),
                raw: SharedText::new(self.page.body().clone(), self.page.position(*item)),
            });
        }
        if !commit.entries.is_empty() {
            commit.duplicates = (self.page.len() - self.events.len()) as u64;
            commit.organization = organization.and_then(|id| self.renamed(id, stored));
        }
        (commit, odd)
    }

    /// Refuses a page of another organization. A few odd entries do not make it another organization's.
    pub(super) fn check(&self, stored: Option<&Organization>) -> Result<(), OtherOrganization> {
        let Some((expected, _)) = stored else {
            return Ok(());
        };
        let id = expected.parse().ok();
        let is_ours = |(_, event): &(usize, Event)| event.organization == id;
        if self.events.iter().any(is_ours) {
            return Ok(());
        }
        match self.organization() {
            Some(found) => Err(OtherOrganization {
                found: found.to_string(),
                expected: expected.clone(),
            }),
            None => Ok(()),
        }
    }

    /// Returns the id of the organization of most entries.
    fn organization(&self) -> Option<i64> {
        let mut counts: BTreeMap<i64, usize> = BTreeMap::new();
        let ids = self
            .events
            .iter()
            .filter_map(|(_, event)| event.organization);
        for id in ids {
            *counts.entry(id).or_default() += 1;
        }
        let most = counts.into_iter().max_by_key(|(_, count)| *count);
        most.map(|(id, _)| id)
    }

    /// Returns the id and the name of the organization, if its newest entry has another name than is known.
    fn renamed(&self, id: i64, stored: Option<&Organization>) -> Option<Organization> {
        let mut events = self.events.iter();
        let newest = events.find(|(_, event)| event.organization == Some(id));
        let name = newest
            .and_then(|(item, _)| organization_name(self.page.item(*item)))
            .filter(|name| !name.trim().is_empty())
            .map(|name| label_value(&name));
        match stored {
            Some((_, known)) if name.is_none() || *known == name => None,
            _ => Some((id.to_string(), name)),
        }
    }
}

/// Returns the trace and span of the current work, if it is sampled.
fn current_trace() -> Option<TraceContext> {
    let context = tracing::Span::current().context();
    let span = context.span();
    let span = span.span_context();
    (span.is_valid() && span.is_sampled()).then(|| TraceContext {
        trace_id: span.trace_id().to_bytes(),
        span_id: span.span_id().to_bytes(),
    })
}
