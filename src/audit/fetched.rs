//! The commit that a page becomes.

use std::borrow::Cow;
use std::time::Duration;

use jiff::Timestamp;
use opentelemetry::trace::TraceContextExt as _;
use orgdata_api::{AuditPage, Filters};
use tokio::time::Instant;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use super::entry::Entry;
use super::exclude::{Exclude, Excluded};
use super::privacy::Privacy;
use super::sweep::{ReadPage, Step};
use crate::ledger::{
    Commit, Disposition, EventIds, LedgerHandle, NewEntry, OtherOrganization, Seen, SharedText,
    label_value,
};

/// The rest of a second.
const SECOND: Duration = Duration::from_micros(999_999);

/// An organization's id and name.
pub(super) type Organization = (String, Option<String>);

/// A response with its page.
pub(super) struct Fetched<'a> {
    answer: &'a AuditPage,
    pub(super) page: ReadPage<'a>,
    /// The organization of the page, once it is checked.
    organization: Option<i64>,
}

// === impl Fetched ===

impl<'a> Fetched<'a> {
    /// Reads a response to a request that began then.
    pub(super) fn read(answer: &'a AuditPage, ledger: &LedgerHandle, requested: Instant) -> Self {
        let (mut ids, mut is_unknown) = (EventIds::default(), true);
        let entries = answer.items().enumerate().filter_map(|(index, item)| {
            // Neighbours are alike, mostly. The first one is read as a whole: it has the current name of the organization.
            let is_whole = is_unknown;
            let mut entry = match is_whole {
                true => Entry::read(item),
                false => Entry::begin(item),
            };
            let seen = ledger.seen(entry.id);
            is_unknown = seen == Seen::Unknown;
            if is_unknown && !is_whole {
                entry = Entry::read(item);
            }
            (entry.seen, entry.index) = (seen, index);
            ids.insert(entry.id).then_some(entry)
        });
        let entries = entries.collect();
        let (at, took) = (ledger.now(), requested.elapsed());
        // `Date` has whole seconds: an entry that was created within this second is not dated ahead.
        let end_of_second = answer.server_time.checked_add(SECOND).unwrap_or(at);
        let before = |time: Timestamp| time.checked_sub(took).unwrap_or(time);
        let page = ReadPage {
            entries,
            end: answer.end_cursor.clone(),
            has_more: answer.has_more,
            now: end_of_second.min(at),
            as_of: before(answer.server_time.min(at)),
            requested_at: before(at),
            at,
            is_full: ledger.is_full_of_ids(),
        };
        Self {
            answer,
            page,
            organization: None,
        }
    }

    /// Checks that the page is that of the stored organization; see [`OtherOrganization::check`].
    pub(super) fn check(&mut self, stored: Option<&Organization>) -> Result<(), OtherOrganization> {
        let entries = self.page.entries.iter();
        let named: Vec<i64> = entries.filter_map(Entry::organization_id).collect();
        self.organization = OtherOrganization::check(&named, stored.map(|(id, _)| &**id))?;
        Ok(())
    }

    /// Returns the commit of what a step takes of a checked page.
    pub(super) fn commit(
        &self,
        step: &Step,
        stored: Option<&Organization>,
        filters: &Filters,
        exclude: &mut Excluded,
        privacy: &Privacy,
    ) -> Commit {
        // Oldest first: that is the order of delivery.
        let taken = step.take.iter().rev();
        let entries = taken.map(|(index, taken)| {
            let entry = &self.page.entries[*index];
            let is_others = entry
                .organization_id()
                .is_some_and(|id| Some(id) != self.organization);
            let problem = match is_others {
                true => Some("the entry belongs to another organization"),
                false => entry.problem(),
            };
            let activity_type = entry.activity_type();
            let is_in = |exclude: &mut Exclude| {
                let activity_type = activity_type.as_deref();
                activity_type.is_some_and(|name| exclude.matches(name))
            };
            let actor = entry.actor();
            let raw = SharedText::new(
                self.answer.body().clone(),
                self.answer.position(entry.index),
            );
            NewEntry {
                id: entry.id,
                created_at: entry.at,
                disposition: match entry.matches(filters) {
                    true => *taken,
                    false => Disposition::Filtered,
                },
                is_uncounted: is_in(&mut exclude.metrics),
                is_unsent: is_in(&mut exclude.records),
                activity_type: activity_type.map(Cow::into_owned),
                hash: privacy.hash(actor.as_ref()),
                actor,
                problem,
                text: match privacy.text(&raw) {
                    Cow::Borrowed(_) => raw,
                    Cow::Owned(text) => text.into(),
                },
            }
        });
        let mut commit = Commit {
            trace: current_trace(),
            entries: entries.collect(),
            arrived_at: self.page.at,
            ..Commit::new(self.page.now)
        };
        if !commit.entries.is_empty() {
            commit.duplicates = (self.answer.len() - self.page.entries.len()) as u64;
            commit.organization = self.organization.and_then(|id| self.renamed(id, stored));
        }
        commit
    }

    /// Returns the id and the name of the organization, if its newest entry has another name than is known.
    fn renamed(&self, id: i64, stored: Option<&Organization>) -> Option<Organization> {
        let mut entries = self.page.entries.iter();
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

/// Returns the current work as in `traceparent`, if it is sampled.
fn current_trace() -> Option<String> {
    let context = tracing::Span::current().context();
    let span = context.span();
    let span = span.span_context();
    let is_sampled = span.is_valid() && span.is_sampled();
    is_sampled.then(|| format!("00-{}-{}-01", span.trace_id(), span.span_id()))
}
