//! The attributes of a log record, found in the entry that is its body.

use std::borrow::Cow;

use super::fields::{Field, Fields, Place};
use super::node::{Content, Node};
use super::value::shortened;

/// The longest attribute, in bytes; the body has the whole text.
const MAX_ATTRIBUTE_BYTES: usize = 4096;

/// Ids and names: the attribute, and where the entry holds it. The first place that is neither null nor missing counts.
const ATTRIBUTES: [(&str, &[Place]); 14] = [
    (
        "orgdata.target_user.id",
        &[(Field::TargetUserId, None), (Field::TargetUser, Some("id"))],
    ),
    (
        "orgdata.modified_target_user.id",
        &[
            (Field::ModifiedTargetUserId, None),
            (Field::ModifiedTargetUser, Some("id")),
        ],
    ),
    (
        "orgdata.organization.id",
        &[
            (Field::OrganizationId, None),
            (Field::Organization, Some("id")),
        ],
    ),
    (
        "orgdata.organization.name",
        &[(Field::Organization, Some("name"))],
    ),
    (
        "orgdata.deal.id",
        &[(Field::DealId, None), (Field::Deal, Some("id"))],
    ),
    ("orgdata.deal.name", &[(Field::Deal, Some("name"))]),
    (
        "orgdata.evaluation.id",
        &[(Field::EvaluationId, None), (Field::Evaluation, Some("id"))],
    ),
    (
        "orgdata.evaluation.title",
        &[(Field::Evaluation, Some("title"))],
    ),
    ("orgdata.task.id", &[(Field::Task, Some("id"))]),
    (
        "orgdata.requirement.id",
        &[(Field::Requirement, Some("id"))],
    ),
    ("orgdata.meeting.id", &[(Field::Meeting, Some("id"))]),
    ("orgdata.ticket.id", &[(Field::Ticket, Some("id"))]),
    (
        "orgdata.team_request.id",
        &[(Field::TeamRequest, Some("id"))],
    ),
    (
        "orgdata.team_request.status",
        &[(Field::TeamRequest, Some("status"))],
    ),
];

/// The attributes of an entry.
pub(super) fn of_entry<'t>(entry: &Fields<'t, '_>) -> Vec<Node<'t>> {
    let mut attributes = Vec::with_capacity(ATTRIBUTES.len() + 5);
    let mut add = |key, value: Option<Content<'t>>| {
        attributes.extend(value.map(|value| attribute(key, value)))
    };
    add(
        "log.record.uid",
        scalar(entry.at((Field::Id, None))).map(into_text),
    );
    add(
        "orgdata.activity.type",
        entry.string((Field::Type, None)).map(text),
    );
    let actor = scalar(entry.at((Field::ActorUserId, None)))
        .or_else(|| scalar(entry.at((Field::ActorUser, Some("id")))));
    add("user.id", actor.map(into_text));
    add("user.full_name", full_name(entry).map(Content::Text));
    for (key, places) in ATTRIBUTES {
        add(
            key,
            places.iter().find_map(|place| scalar(entry.at(*place))),
        );
    }
    attributes
}

/// The attributes of a gap.
pub(super) fn of_gap<'t>(gap: &Fields<'t, '_>) -> Vec<Node<'t>> {
    let uid =
        scalar(gap.at((Field::Id, None))).map(|id| attribute("log.record.uid", into_text(id)));
    let reason =
        scalar(gap.at((Field::Reason, None))).map(|reason| attribute("orgdata.gap.reason", reason));
    uid.into_iter().chain(reason).collect()
}

/// One attribute.
pub(super) fn attribute<'t>(key: &'static str, value: Content<'t>) -> Node<'t> {
    let value = match value {
        Content::Text(text) if text.len() > MAX_ATTRIBUTE_BYTES => {
            Content::Text(shortened(&text, MAX_ATTRIBUTE_BYTES).into())
        }
        value => value,
    };
    Node::new(Some(Cow::Borrowed(key)), value)
}

/// First and last name of the actor, as far as they are known.
fn full_name<'t>(entry: &Fields<'t, '_>) -> Option<Cow<'t, str>> {
    let name = |field| {
        entry
            .string((Field::ActorUser, Some(field)))
            .map(str::trim)
            .filter(|name| !name.is_empty())
    };
    match (name("firstName"), name("lastName")) {
        (Some(first), Some(last)) => Some(Cow::Owned(format!("{first} {last}"))),
        (first, last) => first.or(last).map(Cow::Borrowed),
    }
}

/// A string, number or truth value; null is absent, and anything else is a mistake of the service that the body shows.
fn scalar<'t>(value: Option<&'t Content<'_>>) -> Option<Content<'t>> {
    match value? {
        Content::Text(value) => Some(text(value)),
        Content::Int(number) => Some(Content::Int(*number)),
        Content::Double(number) => Some(Content::Double(*number)),
        Content::Bool(value) => Some(Content::Bool(*value)),
        Content::Null | Content::Array(_) | Content::Map(_) => None,
    }
}

fn text(text: &str) -> Content<'_> {
    Content::Text(Cow::Borrowed(text))
}

fn into_text(value: Content<'_>) -> Content<'_> {
    match value {
        Content::Int(number) => Content::Text(number.to_string().into()),
        Content::Double(number) => Content::Text(number.to_string().into()),
        Content::Bool(value) => Content::Text(value.to_string().into()),
        value => value,
    }
}
