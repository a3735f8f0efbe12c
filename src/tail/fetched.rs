//! A page with its entries read, and the commit that it becomes.

use std::collections::BTreeMap;
use std::time::Duration;

use opentelemetry::trace::TraceContextExt as _;
use orgdata_api::{AuditPage, Filters};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use super::event::{Event, Head, entry_id, organization_id, organization_name};
use super::exclude::{Exclude, Excluded};
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
    /// The indices of the entries in the page, without repetitions.
    items: Vec<usize>,
    pub(super) view: Page,
}

/// An entry that is not as documented: its id and what is wrong.
pub(super) type Odd = (String, &'static str);

// === impl Fetched ===

impl Fetched {
    /// Reads the heads of the entries of a page. `requested` and `at` are as in [`Page`], and `number` is that of the current sweep.
    pub(super) fn new(
        page: AuditPage,
        ledger: &LedgerHandle,
        number: i64,
        [requested, at]: [Duration; 2],
    ) -> Self {
        let mut ids = EventIds::default();
        let (items, heads): (Vec<usize>, Vec<Head>) = page
            .items()
            .map(Head::read)
            .enumerate()
            .filter(|(_, head)| ids.insert(head.id))
            .unzip();
        let standing = ledger.standing(heads.iter().map(|head| head.id), number);
        let rows = heads.iter().zip(standing).map(|(head, standing)| Row {
            id: head.id,
            at: head.created_at,
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
            items,
            page,
        }
    }

    /// Returns the commit of what a step takes, and the entries in it that are not as documented.
    pub(super) fn commit(
        self,
        step: &Step,
        gaps: Vec<Gap>,
        stored: Option<&Organization>,
        filters: &Filters,
        exclude: &mut Excluded,
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
            let (item, row) = (self.items[*index], &self.view.rows[*index]);
            let head = Head {
                id: row.id,
                created_at: row.at,
            };
            let mut event = Event::read(self.page.item(item), head, filters);
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
                odd.push((entry_id(self.page.item(item)), problem));
            }
            let activity_type = event.event.as_ref().map(|event| &*event.activity_type);
            let is_in =
                |exclude: &mut Exclude| activity_type.is_ok_and(|kind| exclude.matches(kind));
            let (is_uncounted, is_unsent) =
                (is_in(&mut exclude.metrics), is_in(&mut exclude.records));
            commit.entries.push(NewEntry {
                is_uncounted,
                is_unsent,
                id: row.id,
                created_at: row.at.unwrap_or(commit.server_time),
                disposition,
                event: event.event.map_err(str::to_owned),
                raw: SharedText::new(self.page.body().clone(), self.page.position(item)),
            });
        }
        if !commit.entries.is_empty() {
            commit.duplicates = (self.page.len() - self.items.len()) as u64;
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
        if self.page.items().any(|raw| organization_id(raw) == id) {
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
        for id in self.page.items().filter_map(organization_id) {
            *counts.entry(id).or_default() += 1;
        }
        let most = counts.into_iter().max_by_key(|(_, count)| *count);
        most.map(|(id, _)| id)
    }

    /// Returns the id and the name of the organization, if its newest entry has another name than is known.
    fn renamed(&self, id: i64, stored: Option<&Organization>) -> Option<Organization> {
        let mut items = self.page.items();
        let name = items
            .find(|raw| organization_id(raw) == Some(id))
            .and_then(organization_name)
            .map(|name| label_value(&name))
            .filter(|name| !name.is_empty());
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
