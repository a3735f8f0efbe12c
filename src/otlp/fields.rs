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

/// Defines the places of an entry or of a gap record: a name, the attribute that it becomes, and the members that lead to
/// it from other places. Most ids are at two of them: `dealId`, and `id` of `deal`.
macro_rules! places {
    ($($place:ident $(as $attribute:literal)?: $($parent:ident $key:literal)|+,)+) => {
        /// A place in an entry or in a gap record.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Place {
            /// Anything else.
            Other,
            /// The entry itself.
            Entry,
            $($place,)+
        }

        impl Place {
            /// The number of places.
            const COUNT: usize = [Self::Other, Self::Entry, $(Self::$place),+].len();

            /// Attributes that are the scalar of a place, unchanged.
            pub(super) const ATTRIBUTES: &[(&str, Self)] = &[$($(($attribute, Self::$place),)?)+];

            /// Returns the place of a member. (Patterns of bytes are compared much faster than patterns of strings.)
            pub(super) fn below(self, key: &str) -> Self {
                match (self, key.as_bytes()) {
                    $($((Self::$parent, $key))|+ => Self::$place,)+
                    _ => Self::Other,
                }
            }
        }
    };
}

places! {
    Id: Entry b"id",
    Type: Entry b"type",
    OccurredAt: Entry b"occurredAt",
    CreatedAt: Entry b"createdAt",
    DetectedAt: Entry b"detectedAt",
    Reason: Entry b"reason",
    Metadata: Entry b"metadata",
    ActorUser: Entry b"actorUser",
    ActorUserId: Entry b"actorUserId" | ActorUser b"id",
    ActorFirstName: ActorUser b"firstName",
    ActorLastName: ActorUser b"lastName",
    TargetUser: Entry b"targetUser",
    TargetUserId as "orgdata.target_user.id": Entry b"targetUserId" | TargetUser b"id",
    ModifiedTargetUser: Entry b"modifiedTargetUser",
    ModifiedTargetUserId as "orgdata.modified_target_user.id": Entry b"modifiedTargetUserId" | ModifiedTargetUser b"id",
    OtherUserName: TargetUser b"firstName" | TargetUser b"lastName" | ModifiedTargetUser b"firstName" | ModifiedTargetUser b"lastName",
    UserPicture: ActorUser b"profileImageUrl" | TargetUser b"profileImageUrl" | ModifiedTargetUser b"profileImageUrl",
    Organization: Entry b"organization",
    OrganizationId as "orgdata.organization.id": Entry b"organizationId" | Organization b"id",
    OrganizationName as "orgdata.organization.name": Organization b"name",
    Deal: Entry b"deal",
    DealId as "orgdata.deal.id": Entry b"dealId" | Deal b"id",
    DealName as "orgdata.deal.name": Deal b"name",
    Evaluation: Entry b"evaluation",
    EvaluationId as "orgdata.evaluation.id": Entry b"evaluationId" | Evaluation b"id",
    EvaluationTitle as "orgdata.evaluation.title": Evaluation b"title",
    Task: Entry b"task",
    TaskId as "orgdata.task.id": Task b"id",
    Requirement: Entry b"requirement",
    RequirementId as "orgdata.requirement.id": Requirement b"id",
    Meeting: Entry b"meeting",
    MeetingId as "orgdata.meeting.id": Meeting b"id",
    Ticket: Entry b"ticket",
    TicketId as "orgdata.ticket.id": Ticket b"id",
    TeamRequest: Entry b"teamRequest",
    TeamRequestId as "orgdata.team_request.id": TeamRequest b"id",
    TeamRequestStatus as "orgdata.team_request.status": TeamRequest b"status",
}

/// The scalars found at the places.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    values: [Scalar<'a>; Place::COUNT],
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
            Self::ActorFirstName | Self::ActorLastName | Self::OtherUserName | Self::UserPicture
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
