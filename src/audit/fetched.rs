//! The commit that a page becomes.

use std::collections::BTreeMap;

use opentelemetry::trace::TraceContextExt as _;
use orgdata_api::{AuditPage, Filters};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use super::entry::Entry;
use super::exclude::{Exclude, Excluded};
use super::sweep::{Page, Row, Step};
use crate::ledger::{
    Commit, Disposition, EventIds, LedgerHandle, NewEntry, OtherOrganization, SharedText,
    TraceContext, label_value,
};

/// An organization's id and name.
pub(super) type Organization = (String, Option<String>);

/// The entries of a page without repetitions, each with its index.
pub(super) struct Entries<'a>(Vec<(usize, Entry<'a>)>);

/// An entry that is not as documented: its id and what is wrong.
pub(super) type Odd = (String, &'static str);

// === impl Entries ===

impl<'a> Entries<'a> {
    /// Reads the entries of a page.
    pub(super) fn read(page: &'a AuditPage) -> Self {
        let mut ids = EventIds::default();
        let entries = page.items().map(Entry::read).enumerate();
        Self(entries.filter(|(_, entry)| ids.insert(entry.id)).collect())
    }

    /// Returns what decides what becomes of them.
    pub(super) fn rows(&self, ledger: &LedgerHandle) -> Vec<Row> {
        let seen = ledger.seen(self.0.iter().map(|(_, entry)| entry.id));
        let rows = self.0.iter().zip(seen);
        let row = |((_, entry), seen): (&(usize, Entry<'_>), _)| Row {
            id: entry.id,
            at: entry.created_at,
            seen,
        };
        rows.map(row).collect()
    }

    /// Refuses a page of another organization. A few odd entries do not make it another organization's.
    pub(super) fn check(&self, stored: Option<&Organization>) -> Result<(), OtherOrganization> {
        let Some((expected, _)) = stored else {
            return Ok(());
        };
        let id = expected.parse().ok();
        match self.organization() {
            Some(found)
                if !self
                    .0
                    .iter()
                    .any(|(_, entry)| entry.organization_id() == id) =>
            {
                Err(OtherOrganization {
                    found: found.to_string(),
                    expected: expected.clone(),
                })
            }
            _ => Ok(()),
        }
    }

    /// Returns the commit of what a step takes, and the entries in it that are not as documented.
    pub(super) fn commit(
        &self,
        answer: &AuditPage,
        page: &Page,
        step: &Step,
        stored: Option<&Organization>,
        filters: &Filters,
        exclude: &mut Excluded,
    ) -> (Commit, Vec<Odd>) {
        let mut commit = Commit {
            trace: current_trace(),
            ..Commit::new(page.now)
        };
        let organization = stored
            .and_then(|(id, _)| id.parse().ok())
            .or_else(|| self.organization());
        let mut odd = Vec::new();
        // Oldest first: that is the order of delivery.
        for (index, taken) in step.take.iter().rev() {
            let ((item, entry), row) = (&self.0[*index], &page.rows[*index]);
            let is_others = entry
                .organization_id()
                .is_some_and(|id| Some(id) != organization);
            let problem = match is_others {
                true => Some("the entry belongs to another organization"),
                false => entry.problem(),
            };
            let event = entry.event(problem.is_some());
            let event = event.ok_or_else(|| entry.problem().unwrap_or_default().to_owned());
            let is_filtered = !entry.matches(filters);
            commit.filtered += u64::from(is_filtered);
            let disposition = if is_filtered {
                Disposition::Ignored
            } else {
                *taken
            };
            if let Some(problem) = problem
                && disposition != Disposition::Ignored
            {
                odd.push((entry.shown_id(), problem));
            }
            let activity_type = event.as_ref().map(|event| &*event.activity_type);
            let is_in =
                |exclude: &mut Exclude| activity_type.is_ok_and(|kind| exclude.matches(kind));
            commit.entries.push(NewEntry {
                is_uncounted: is_in(&mut exclude.metrics),
                is_unsent: is_in(&mut exclude.records),
                id: row.id,
                created_at: row.at.unwrap_or(page.now),
                disposition,
                event,
                raw: SharedText::new(answer.body().clone(), answer.position(*item)),
            });
        }
        if !commit.entries.is_empty() {
            commit.duplicates = (answer.len() - self.0.len()) as u64;
            commit.organization = organization.and_then(|id| self.renamed(id, stored));
        }
        (commit, odd)
    }

    /// Returns the id of the organization of most entries.
    fn organization(&self) -> Option<i64> {
        let mut counts: BTreeMap<i64, usize> = BTreeMap::new();
        for id in self
            .0
            .iter()
            .filter_map(|(_, entry)| entry.organization_id())
        {
            *counts.entry(id).or_default() += 1;
        }
        let most = counts.into_iter().max_by_key(|(_, count)| *count);
        most.map(|(id, _)| id)
    }

    /// Returns the id and the name of the organization, if its newest entry has another name than is known.
    fn renamed(&self, id: i64, stored: Option<&Organization>) -> Option<Organization> {
        let mut entries = self.0.iter().map(|(_, entry)| entry);
        let name = entries
            .find(|entry| entry.organization_id() == Some(id))
            .and_then(Entry::organization_name)
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
