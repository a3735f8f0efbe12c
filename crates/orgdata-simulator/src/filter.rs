//! The filters of the audit log listing (section 4.1).
//!
//! Silent spots of the specification, as read here: filters combine with AND, the values of one with OR. "Invalid ids
//! are silently ignored" is taken by the word: a deal id that is not a number, or that the organization does not have,
//! is as if it had not been sent, so that a filter in which no id is valid filters nothing. An unknown e-mail address
//! matches nothing; an unknown activity type is a validation error.

use std::collections::HashSet;

use serde_json::json;

use super::people;
use super::query::{Issues, Query};
use super::world::{View, World};

/// What entries a request wants; `None` means all.
#[derive(Debug, Default)]
pub(super) struct Filter {
    kinds: Option<HashSet<String>>,
    deals: Option<HashSet<i64>>,
    actors: Option<HashSet<i64>>,
    targets: Option<HashSet<i64>>,
}

// === impl Filter ===

impl Filter {
    pub(super) fn parse(query: &Query, world: &World, issues: &mut Issues) -> Self {
        let kinds: HashSet<String> = query.many("activityTypes").map(str::to_owned).collect();
        for kind in query
            .many("activityTypes")
            .filter(|kind| !world.kinds().any(|known| known == *kind))
        {
            let options: Vec<_> = world.kinds().collect();
            let text = format!("Invalid enum value. Received '{kind}'");
            issues.add(
                "activityTypes",
                "invalid_enum_value",
                &text,
                json!(kind),
                &[("options", json!(options))],
            );
        }
        let deals: HashSet<i64> = query
            .many("dealIds")
            .filter_map(|id| id.parse().ok())
            .filter(|&id| world.has_deal(id))
            .collect();
        Self {
            kinds: (!kinds.is_empty()).then_some(kinds),
            deals: (!deals.is_empty()).then_some(deals),
            actors: users(query, "actorUserEmails"),
            targets: users(query, "targetUserEmails"),
        }
    }

    /// Whether there is nothing to look at.
    pub(super) fn takes_all(&self) -> bool {
        self.kinds.is_none()
            && self.deals.is_none()
            && self.actors.is_none()
            && self.targets.is_none()
    }

    pub(super) fn takes(&self, view: &View<'_>) -> bool {
        let within = |wanted: &Option<HashSet<i64>>, id: Option<i64>| match (wanted, id) {
            (None, _) => true,
            (Some(wanted), Some(id)) => wanted.contains(&id),
            (Some(_), None) => false,
        };
        self.kinds
            .as_ref()
            .is_none_or(|kinds| kinds.contains(view.kind))
            && within(&self.deals, view.deal)
            && within(&self.actors, view.actor)
            && within(&self.targets, view.target)
    }
}

fn users(query: &Query, name: &str) -> Option<HashSet<i64>> {
    query.many(name).next()?;
    Some(query.many(name).filter_map(people::by_mail).collect())
}
