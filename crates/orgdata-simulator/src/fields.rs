//! Fields given by hand for a new entry or ticket. The others are generated.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::data;

/// The fields of an audit log entry (section 2.1).
pub(crate) const ENTRY: &str = "id type occurredAt createdAt updatedAt organizationId dealId \
    evaluationId actorUserId targetUserId modifiedTargetUserId metadata organization evaluation \
    deal actorUser targetUser modifiedTargetUser task requirement meeting ticket teamRequest";
/// The fields of a ticket (section 2.3).
pub(crate) const TICKET: &str = "id type state createdAt updatedAt closedAt organizationId \
    createdByUserId title description vendorEntityId vendorEntityKey integrationInstallationId \
    targetDueDate linkedDeals dealAmountSum vendorEntityUrl";

/// A field, ticket or fault that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no {0}")]
pub struct NotFound(pub(crate) String);

/// Some fields of an entry or ticket with their values, which may have any type.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Fields {
    pub(crate) values: Map<String, Value>,
    #[serde(skip)]
    unchecked: bool,
}

// === impl Fields ===

impl Fields {
    /// Returns no fields: everything is generated.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives a field a value.
    #[must_use]
    pub fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.values.insert(field.to_owned(), value.into());
        self
    }

    /// Allows fields that the specification does not have.
    #[must_use]
    pub fn unchecked(mut self) -> Self {
        self.unchecked = true;
        self
    }

    /// Returns an error for a field that is not in the list, unless the fields are unchecked.
    pub(crate) fn check(&self, known: &str) -> Result<(), NotFound> {
        let is_unknown = |field: &&String| !known.split(' ').any(|known| known == *field);
        match self.values.keys().find(is_unknown) {
            Some(field) if !self.unchecked => Err(NotFound(format!("field {field}"))),
            _ => Ok(()),
        }
    }

    /// Returns the value of a field.
    pub(crate) fn get(&self, field: &str) -> Option<&Value> {
        self.values.get(field)
    }

    /// Replaces fields of a ticket.
    pub(crate) fn apply(&self, object: &mut Value) {
        for (field, value) in &self.values {
            object[field] = value.clone();
        }
    }

    /// Replaces fields of an entry. An id brings its nested object along, unless that is given as well.
    pub(crate) fn apply_to_entry(&self, entry: &mut Value) {
        for (field, value) in &self.values {
            let Some(object) = field.strip_suffix("Id") else {
                continue;
            };
            let shown = |id| match object {
                "organization" => data::organization(id, data::ORGANIZATION_NAME),
                "deal" => data::deal(id),
                "evaluation" => data::evaluation(id, None),
                _ => data::user(id),
            };
            entry[object] = value.as_i64().map(shown).into();
        }
        self.apply(entry);
        if entry["evaluation"].is_object() {
            entry["evaluation"]["deal"] = entry["deal"].clone();
        }
    }
}
