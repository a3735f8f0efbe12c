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

/// A place in an entry or in a gap record.
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
    ActorId,
    ActorFirstName,
    ActorLastName,
    TargetUser,
    TargetUserId,
    TargetId,
    ModifiedTargetUser,
    ModifiedTargetUserId,
    ModifiedTargetId,
    /// A name or picture that does not become an attribute.
    Personal,
    OrganizationId,
    Organization,
    InnerOrganizationId,
    OrganizationName,
    DealId,
    Deal,
    InnerDealId,
    DealName,
    EvaluationId,
    Evaluation,
    InnerEvaluationId,
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
    /// Returns the place of a member.
    pub(super) fn below(self, key: &str) -> Self {
        match (self, key) {
            (Self::Entry, "id") => Self::Id,
            (Self::Entry, "type") => Self::Type,
            (Self::Entry, "occurredAt") => Self::OccurredAt,
            (Self::Entry, "createdAt") => Self::CreatedAt,
            (Self::Entry, "detectedAt") => Self::DetectedAt,
            (Self::Entry, "reason") => Self::Reason,
            (Self::Entry, "metadata") => Self::Metadata,
            (Self::Entry, "actorUserId") => Self::ActorUserId,
            (Self::Entry, "actorUser") => Self::ActorUser,
            (Self::Entry, "targetUserId") => Self::TargetUserId,
            (Self::Entry, "targetUser") => Self::TargetUser,
            (Self::Entry, "modifiedTargetUserId") => Self::ModifiedTargetUserId,
            (Self::Entry, "modifiedTargetUser") => Self::ModifiedTargetUser,
            (Self::Entry, "organizationId") => Self::OrganizationId,
            (Self::Entry, "organization") => Self::Organization,
            (Self::Entry, "dealId") => Self::DealId,
            (Self::Entry, "deal") => Self::Deal,
            (Self::Entry, "evaluationId") => Self::EvaluationId,
            (Self::Entry, "evaluation") => Self::Evaluation,
            (Self::Entry, "task") => Self::Task,
            (Self::Entry, "requirement") => Self::Requirement,
            (Self::Entry, "meeting") => Self::Meeting,
            (Self::Entry, "ticket") => Self::Ticket,
            (Self::Entry, "teamRequest") => Self::TeamRequest,
            (Self::ActorUser, "id") => Self::ActorId,
            (Self::ActorUser, "firstName") => Self::ActorFirstName,
            (Self::ActorUser, "lastName") => Self::ActorLastName,
            (Self::TargetUser, "id") => Self::TargetId,
            (Self::ModifiedTargetUser, "id") => Self::ModifiedTargetId,
            (user, "firstName" | "lastName" | "profileImageUrl") if user.is_user() => {
                Self::Personal
            }
            (Self::Organization, "id") => Self::InnerOrganizationId,
            (Self::Organization, "name") => Self::OrganizationName,
            (Self::Deal, "id") => Self::InnerDealId,
            (Self::Deal, "name") => Self::DealName,
            (Self::Evaluation, "id") => Self::InnerEvaluationId,
            (Self::Evaluation, "title") => Self::EvaluationTitle,
            (Self::Task, "id") => Self::TaskId,
            (Self::Requirement, "id") => Self::RequirementId,
            (Self::Meeting, "id") => Self::MeetingId,
            (Self::Ticket, "id") => Self::TicketId,
            (Self::TeamRequest, "id") => Self::TeamRequestId,
            (Self::TeamRequest, "status") => Self::TeamRequestStatus,
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

    /// Returns the value of the first place that has one.
    pub(super) fn first(&self, places: &[Place]) -> &Scalar<'a> {
        let value = |place: &Place| &self.values[*place as usize];
        let mut values = places.iter().map(value);
        values
            .find(|value| **value != Scalar::Absent)
            .unwrap_or(&Scalar::Absent)
    }

    /// Returns the text of a place.
    pub(super) fn text(&self, place: Place) -> Option<&str> {
        match &self.values[place as usize] {
            Scalar::Text(text) => Some(text),
            _ => None,
        }
    }
}
