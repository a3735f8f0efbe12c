//! The fields of entries and tickets, and what their values must be (sections 2.1 and 2.3).

use serde_json::Value;

use super::patch::FieldError;

/// The JSON type that a field must have.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    Text,
    Time,
    Number,
    Object,
    List,
}

/// Fields of an audit log entry (section 2.1): type, and whether null is allowed.
pub(super) const ENTRY: &[(&str, Shape, bool)] = &[
    ("id", Shape::Text, false),
    ("type", Shape::Text, false),
    ("occurredAt", Shape::Time, false),
    ("createdAt", Shape::Time, false),
    ("updatedAt", Shape::Time, false),
    ("organizationId", Shape::Number, false),
    ("dealId", Shape::Number, true),
    ("evaluationId", Shape::Number, true),
    ("actorUserId", Shape::Number, true),
    ("targetUserId", Shape::Number, true),
    ("modifiedTargetUserId", Shape::Number, true),
    ("metadata", Shape::Object, true),
    ("organization", Shape::Object, true),
    ("evaluation", Shape::Object, true),
    ("deal", Shape::Object, true),
    ("actorUser", Shape::Object, true),
    ("targetUser", Shape::Object, true),
    ("modifiedTargetUser", Shape::Object, true),
    ("task", Shape::Object, true),
    ("requirement", Shape::Object, true),
    ("meeting", Shape::Object, true),
    ("ticket", Shape::Object, true),
    ("teamRequest", Shape::Object, true),
];

/// Fields of a ticket (section 2.3). Which may be null is not shown, so all may.
pub(super) const TICKET: &[(&str, Shape)] = &[
    ("id", Shape::Number),
    ("type", Shape::Text),
    ("state", Shape::Text),
    ("createdAt", Shape::Time),
    ("updatedAt", Shape::Time),
    ("closedAt", Shape::Time),
    ("organizationId", Shape::Number),
    ("createdByUserId", Shape::Number),
    ("title", Shape::Text),
    ("description", Shape::Text),
    ("vendorEntityId", Shape::Text),
    ("vendorEntityKey", Shape::Text),
    ("integrationInstallationId", Shape::Number),
    ("targetDueDate", Shape::Time),
    ("linkedDeals", Shape::List),
    ("dealAmountSum", Shape::Number),
    ("vendorEntityUrl", Shape::Text),
];

// === impl Shape ===

impl Shape {
    /// Refuses a value of another type.
    pub(super) fn check(self, field: &str, value: &Value) -> Result<(), FieldError> {
        let (good, wanted) = match self {
            Self::Text => (value.is_string(), "a string"),
            Self::Time => (
                value
                    .as_str()
                    .is_some_and(|text| text.parse::<jiff::Timestamp>().is_ok()),
                "an RFC 3339 time",
            ),
            Self::Number => (value.is_number(), "a number"),
            Self::Object => (value.is_object(), "an object"),
            Self::List => (value.is_array(), "a list"),
        };
        if good {
            Ok(())
        } else {
            Err(FieldError::new(
                field,
                &format!("must be {wanted}, not {value}"),
            ))
        }
    }
}
