//! The members of an entry that its log record shows beside the body, found in one pass.

use super::node::{Content, Node, siblings};

/// A member of an entry or a gap.
#[derive(Clone, Copy, Debug)]
pub(super) enum Field {
    Id,
    Type,
    OccurredAt,
    CreatedAt,
    DetectedAt,
    Reason,
    ActorUserId,
    ActorUser,
    TargetUserId,
    TargetUser,
    ModifiedTargetUserId,
    ModifiedTargetUser,
    OrganizationId,
    Organization,
    DealId,
    Deal,
    EvaluationId,
    Evaluation,
    Task,
    Requirement,
    Meeting,
    Ticket,
    TeamRequest,
}

/// A member, or a member of that.
pub(super) type Place = (Field, Option<&'static str>);

/// Where the members are.
#[derive(Debug, Default)]
pub(super) struct Fields<'t, 'a> {
    places: [Option<&'t [Node<'a>]>; Field::TeamRequest as usize + 1],
}

// === impl Field ===

impl Field {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "id" => Self::Id,
            "type" => Self::Type,
            "occurredAt" => Self::OccurredAt,
            "createdAt" => Self::CreatedAt,
            "detectedAt" => Self::DetectedAt,
            "reason" => Self::Reason,
            "actorUserId" => Self::ActorUserId,
            "actorUser" => Self::ActorUser,
            "targetUserId" => Self::TargetUserId,
            "targetUser" => Self::TargetUser,
            "modifiedTargetUserId" => Self::ModifiedTargetUserId,
            "modifiedTargetUser" => Self::ModifiedTargetUser,
            "organizationId" => Self::OrganizationId,
            "organization" => Self::Organization,
            "dealId" => Self::DealId,
            "deal" => Self::Deal,
            "evaluationId" => Self::EvaluationId,
            "evaluation" => Self::Evaluation,
            "task" => Self::Task,
            "requirement" => Self::Requirement,
            "meeting" => Self::Meeting,
            "ticket" => Self::Ticket,
            "teamRequest" => Self::TeamRequest,
            _ => return None,
        })
    }
}

// === impl Fields ===

impl<'t, 'a> Fields<'t, 'a> {
    /// The members of a value; none where it is no map.
    pub(super) fn of(nodes: &'t [Node<'a>]) -> Self {
        let mut fields = Self::default();
        let members = nodes.get(1..).unwrap_or_default();
        for (index, member) in siblings(members) {
            if let Some(field) = member.key.as_deref().and_then(Field::named) {
                // Of two of a name the first counts.
                fields.places[field as usize].get_or_insert(&members[index..]);
            }
        }
        fields
    }

    /// What is at a place.
    pub(super) fn at(&self, (field, member): Place) -> Option<&'t Content<'a>> {
        let (value, rest) = self.places[field as usize]?.split_first()?;
        let Some(name) = member else {
            return Some(&value.content);
        };
        let (_, member) = siblings(rest.get(..value.inside)?)
            .find(|(_, member)| member.key.as_deref() == Some(name))?;
        Some(&member.content)
    }

    /// The string at a place.
    pub(super) fn string(&self, place: Place) -> Option<&'t str> {
        match self.at(place)? {
            Content::Text(text) => Some(text),
            _ => None,
        }
    }
}
