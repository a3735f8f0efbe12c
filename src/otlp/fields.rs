//! The members of an entry that become attributes of its log record.

use std::borrow::Cow;

/// A scalar value.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Scalar<'a> {
    /// Missing, null, or not a scalar.
    #[default]
    Absent,
    Text(Cow<'a, str>),
    Bool(bool),
    Int(i64),
    Double(f64),
}

/// A place in an entry or in a gap record. An id such as `dealId` has the same place as the `id` of `deal`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Anything not listed here.
    Other,
    /// The entry itself.
    Entry,
    Id,
    Type,
    OccurredAt,
    CreatedAt,
    DetectedAt,
    Reason,
    Metadata,
    ActorUser,
    ActorUserId,
    ActorFirstName,
    ActorLastName,
    TargetUser,
    TargetUserId,
    ModifiedTargetUser,
    ModifiedTargetUserId,
    /// A name or picture that does not become an attribute.
    Personal,
    OrganizationId,
    Organization,
    OrganizationName,
    DealId,
    Deal,
    DealName,
    EvaluationId,
    Evaluation,
    EvaluationTitle,
    Task,
    TaskId,
    Requirement,
    RequirementId,
    Meeting,
    MeetingId,
    Ticket,
    TicketId,
    TeamRequest,
    TeamRequestId,
    TeamRequestStatus,
}

/// The scalars found at the places.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    values: [Scalar<'a>; Place::TeamRequestStatus as usize + 1],
    /// Whether something was cut.
    pub(super) is_cut: bool,
}

// === impl Scalar ===

impl Scalar<'_> {
    /// Returns the value as text.
    pub(super) fn to_text(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Absent => None,
            Self::Text(text) => Some(Cow::Borrowed(text)),
            Self::Bool(value) => Some(value.to_string().into()),
            Self::Int(value) => Some(value.to_string().into()),
            Self::Double(value) => Some(value.to_string().into()),
        }
    }
}

// === impl Place ===

impl Place {
    /// Returns the place of a member. (Patterns of bytes are compared much faster than patterns of strings.)
    pub(super) fn below(self, key: &str) -> Self {
        match (self, key.as_bytes()) {
            (Self::Entry, b"id") => Self::Id,
            (Self::Entry, b"type") => Self::Type,
            (Self::Entry, b"occurredAt") => Self::OccurredAt,
            (Self::Entry, b"createdAt") => Self::CreatedAt,
            (Self::Entry, b"detectedAt") => Self::DetectedAt,
            (Self::Entry, b"reason") => Self::Reason,
            (Self::Entry, b"metadata") => Self::Metadata,
            (Self::Entry, b"actorUserId") => Self::ActorUserId,
            (Self::Entry, b"actorUser") => Self::ActorUser,
            (Self::Entry, b"targetUserId") => Self::TargetUserId,
            (Self::Entry, b"targetUser") => Self::TargetUser,
            (Self::Entry, b"modifiedTargetUserId") => Self::ModifiedTargetUserId,
            (Self::Entry, b"modifiedTargetUser") => Self::ModifiedTargetUser,
            (Self::Entry, b"organizationId") => Self::OrganizationId,
            (Self::Entry, b"organization") => Self::Organization,
            (Self::Entry, b"dealId") => Self::DealId,
            (Self::Entry, b"deal") => Self::Deal,
            (Self::Entry, b"evaluationId") => Self::EvaluationId,
            (Self::Entry, b"evaluation") => Self::Evaluation,
            (Self::Entry, b"task") => Self::Task,
            (Self::Entry, b"requirement") => Self::Requirement,
            (Self::Entry, b"meeting") => Self::Meeting,
            (Self::Entry, b"ticket") => Self::Ticket,
            (Self::Entry, b"teamRequest") => Self::TeamRequest,
            (Self::ActorUser, b"id") => Self::ActorUserId,
            (Self::ActorUser, b"firstName") => Self::ActorFirstName,
            (Self::ActorUser, b"lastName") => Self::ActorLastName,
            (Self::TargetUser, b"id") => Self::TargetUserId,
            (Self::ModifiedTargetUser, b"id") => Self::ModifiedTargetUserId,
            (user, b"firstName" | b"lastName" | b"profileImageUrl") if user.is_user() => {
                Self::Personal
            }
            (Self::Organization, b"id") => Self::OrganizationId,
            (Self::Organization, b"name") => Self::OrganizationName,
            (Self::Deal, b"id") => Self::DealId,
            (Self::Deal, b"name") => Self::DealName,
            (Self::Evaluation, b"id") => Self::EvaluationId,
            (Self::Evaluation, b"title") => Self::EvaluationTitle,
            (Self::Task, b"id") => Self::TaskId,
            (Self::Requirement, b"id") => Self::RequirementId,
            (Self::Meeting, b"id") => Self::MeetingId,
            (Self::Ticket, b"id") => Self::TicketId,
            (Self::TeamRequest, b"id") => Self::TeamRequestId,
            (Self::TeamRequest, b"status") => Self::TeamRequestStatus,
            _ => Self::Other,
        }
    }

    /// Returns whether it is a user.
    pub(super) fn is_user(self) -> bool {
        matches!(
            self,
            Self::ActorUser | Self::TargetUser | Self::ModifiedTargetUser
        )
    }

    /// Returns whether it is the name or picture of a user.
    pub(super) fn is_personal(self) -> bool {
        matches!(
            self,
            Self::ActorFirstName | Self::ActorLastName | Self::Personal
        )
    }
}

// === impl Fields ===

impl Default for Fields<'_> {
    fn default() -> Self {
        Self {
            values: [const { Scalar::Absent }; _],
            is_cut: false,
        }
    }
}

impl<'a> Fields<'a> {
    /// Stores the value of a place. The first of several counts.
    pub(super) fn set(&mut self, place: Place, value: Scalar<'a>) {
        let slot = &mut self.values[place as usize];
        if *slot == Scalar::Absent {
            *slot = value;
        }
    }

    /// Returns the value of a place.
    pub(super) fn get(&self, place: Place) -> &Scalar<'a> {
        &self.values[place as usize]
    }

    /// Returns the text of a place.
    pub(super) fn text(&self, place: Place) -> Option<&str> {
        match self.get(place) {
            Scalar::Text(text) => Some(text),
            _ => None,
        }
    }
}
