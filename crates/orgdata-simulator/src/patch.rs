//! Entries given by hand: a generated entry with some fields replaced or left out.

use serde_json::{Map, Value};

use super::fields::{ENTRY, TICKET};
use super::{catalogue, draw, people};

/// Ids and the nested objects that show the same thing.
const PAIRS: &[(&str, &str)] = &[
    ("dealId", "deal"),
    ("evaluationId", "evaluation"),
    ("actorUserId", "actorUser"),
    ("targetUserId", "targetUser"),
    ("modifiedTargetUserId", "modifiedTargetUser"),
    ("organizationId", "organization"),
];

/// What is wrong with a value given by hand.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct FieldError {
    /// The name of the field.
    pub field: String,
    /// What is wrong with it.
    pub problem: String,
}

/// Some fields of a new entry or ticket; the others are generated.
///
/// `id`, `createdAt` and every other field of section 2.1 (or 2.3) can be given. A given id brings its nested object
/// along (`dealId` makes `deal`, `actorUserId` makes `actorUser`) and the other way round.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fields {
    pub(super) values: Map<String, Value>,
    pub(super) omitted: Vec<String>,
    pub(super) unchecked: bool,
}

// === impl FieldError ===

impl FieldError {
    pub(super) fn new(field: &str, problem: &str) -> Self {
        Self {
            field: field.to_owned(),
            problem: problem.to_owned(),
        }
    }
}

// === impl Fields ===

impl Fields {
    /// No field given: everything is generated.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives a field its value.
    #[must_use]
    pub fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.values.insert(field.to_owned(), value.into());
        self
    }

    /// Leaves a field out of the JSON. A ticket may lack any; an entry has to be [`Fields::unchecked`] for it.
    #[must_use]
    pub fn without(mut self, field: &str) -> Self {
        self.omitted.push(field.to_owned());
        self
    }

    /// Accepts any field with any value: for malformed entries.
    #[must_use]
    pub fn unchecked(mut self) -> Self {
        self.unchecked = true;
        self
    }

    /// Fields from a JSON object.
    pub fn from_map(values: Map<String, Value>) -> Self {
        Self {
            values,
            ..Self::default()
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty() && self.omitted.is_empty()
    }

    /// Refuses what an entry of the specification cannot hold.
    pub(super) fn check_entry(&self) -> Result<(), FieldError> {
        if self.unchecked {
            return Ok(());
        }
        if let Some(field) = self.omitted.first() {
            return Err(FieldError::new(
                field,
                "an entry has every field; say \"unchecked\" for a malformed one",
            ));
        }
        for (field, value) in &self.values {
            let Some(&(_, shape, nullable)) = ENTRY.iter().find(|(name, _, _)| name == field)
            else {
                return Err(FieldError::new(
                    field,
                    "no such field in an audit log entry",
                ));
            };
            if !(nullable && value.is_null()) {
                shape.check(field, value)?;
            }
        }
        Ok(())
    }

    /// `entry` with these fields, and with the nested objects that their ids ask for.
    pub(super) fn apply_to_entry(&self, entry: &mut Map<String, Value>) {
        for (field, value) in &self.values {
            entry.insert(field.clone(), value.clone());
        }
        for (id, object) in PAIRS {
            match (self.values.get(*id), self.values.get(*object)) {
                (Some(given), None) => {
                    let shown = given
                        .as_i64()
                        .map_or(Value::Null, |id| nested(object, id, entry));
                    entry.insert((*object).to_owned(), shown);
                }
                (None, Some(given)) => {
                    let shown = given.get("id").cloned().unwrap_or(Value::Null);
                    entry.insert((*id).to_owned(), shown);
                }
                _ => {}
            }
        }
        if !self.values.contains_key("evaluation") {
            let deal = entry.get("deal").cloned().unwrap_or(Value::Null);
            if let Some(Value::Object(evaluation)) = entry.get_mut("evaluation") {
                evaluation.insert("deal".to_owned(), deal);
            }
        }
        self.omit(entry);
    }

    /// `object` with these fields and no others touched.
    pub(super) fn apply(&self, object: &mut Map<String, Value>) {
        for (field, value) in &self.values {
            object.insert(field.clone(), value.clone());
        }
        self.omit(object);
    }

    fn omit(&self, object: &mut Map<String, Value>) {
        for field in &self.omitted {
            object.shift_remove(field);
        }
    }
}

/// The nested object that shows the thing with this id.
fn nested(object: &str, id: i64, entry: &Map<String, Value>) -> Value {
    let json = match object {
        "deal" => serde_json::to_value(draw::deal(id)),
        "evaluation" => serde_json::to_value(draw::evaluation(
            id,
            entry.get("dealId").and_then(Value::as_i64),
        )),
        "organization" => {
            let mut organization = entry.get("organization").cloned().unwrap_or(Value::Null);
            if let Some(held) = organization.get_mut("id") {
                *held = Value::from(id);
            }
            return organization;
        }
        _ => serde_json::to_value(people::summary(id)),
    };
    json.unwrap_or(Value::Null)
}

/// Whether a type is one of the organization's own.
pub(super) fn is_known_kind(name: &str) -> bool {
    catalogue::KINDS.iter().any(|kind| kind.name == name)
}

/// Refuses what a ticket of the specification cannot hold.
pub(super) fn check_ticket(fields: &Fields) -> Result<(), FieldError> {
    for (field, value) in fields.values.iter().filter(|_| !fields.unchecked) {
        let Some((_, shape)) = TICKET.iter().find(|(name, _)| name == field) else {
            return Err(FieldError::new(field, "no such field in a ticket"));
        };
        if !value.is_null() {
            shape.check(field, value)?;
        }
    }
    Ok(())
}
