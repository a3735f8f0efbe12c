//! The generated part of an audit log entry (section 2.1), a function of the seed and the entry's place of arrival.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::clock;
use crate::data::{self, Kind};
use crate::dice::{Dice, Purpose, hash};
use crate::world::Key;

/// What filters and counts look at. It is drawn first, so that counting millions of entries draws nothing else.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) kind: Cow<'static, str>,
    pub(crate) actor: Option<i64>,
    pub(crate) target: Option<i64>,
    pub(crate) deal: Option<i64>,
}

/// Returns what filters and counts look at in a generated entry.
pub(crate) fn view(seed: u64, number: u64) -> View {
    draw_view(seed, number).0
}

/// Returns the entry at this place.
pub(crate) fn draw(seed: u64, key: Key, (organization, name): (i64, &str)) -> Value {
    let Key { created, number } = key;
    let (view, subject, mut dice) = draw_view(seed, number);
    let has_evaluation = !["deal", "nothing", "system"].contains(&subject) && !dice.one_in(5);
    let evaluation = has_evaluation.then(|| data::draw_evaluation(&mut dice, view.deal));
    // Most entries are recorded at once; some arrive from a queue minutes later.
    let delay = if dice.one_in(10) { 300_000 } else { 900 };
    let occurred = created.saturating_sub_unsigned(dice.below(delay));
    let modified = view.target.filter(|_| subject == "userChange");
    let shows_organization = !dice.one_in(30);
    let thing = 20_000 + dice.below(4_000) as i64;
    let titled = |wanted: &str| {
        (subject == wanted).then(|| json!({ "id": thing, "title": data::title(thing) }))
    };
    let mut task = titled("task");
    if let Some(task) = &mut task {
        task["type"] = dice.pick(&[None, Some("TODO"), Some("MILESTONE")]).into();
    }
    let team_request = (subject == "teamRequest").then(|| {
        let kind = dice.pick(&[None, Some("Presales"), Some("Legal"), Some("Sécurité")]);
        json!({
            "id": thing,
            "status": dice.pick(&["PENDING", "APPROVED", "REJECTED"]),
            "teamRequestType": kind.map(|name| json!({ "id": name.len(), "name": name })),
        })
    });
    let mut entry = json!({
        "id": format!("{:016x}-{number:x}", hash(seed, Purpose::EventId, number, 0)),
        "type": view.kind,
        "occurredAt": clock::text(occurred),
        "createdAt": clock::text(created),
        "updatedAt": clock::text(created),
        "organizationId": organization,
        "dealId": view.deal,
        "evaluationId": evaluation,
        "actorUserId": view.actor,
        "targetUserId": view.target,
        "modifiedTargetUserId": modified,
    });
    // Added one by one, because the macro copies what it is given.
    let organization = shows_organization.then(|| data::organization(organization, name));
    for (field, object) in [
        ("metadata", Some(data::draw_metadata(&mut dice))),
        ("organization", organization),
        (
            "evaluation",
            evaluation.map(|id| data::evaluation(id, view.deal)),
        ),
        ("deal", view.deal.map(data::deal)),
        ("actorUser", view.actor.map(data::user)),
        ("targetUser", view.target.map(data::user)),
        ("modifiedTargetUser", modified.map(data::user)),
        ("task", task),
        ("requirement", titled("requirement")),
        ("meeting", titled("meeting")),
        ("ticket", titled("ticket")),
        ("teamRequest", team_request),
    ] {
        entry[field] = object.into();
    }
    entry
}

/// Draws the view of the entry with this number and the subject of its type. The rest is drawn with the returned dice.
fn draw_view(seed: u64, number: u64) -> (View, &'static str, Dice) {
    let mut dice = Dice::new(seed, Purpose::Event, number, 0);
    let Kind { name, subject, .. } = data::draw_kind(&mut dice);
    let has_actor = subject != "system" && !dice.one_in(20);
    let actor = has_actor.then(|| data::draw_user(&mut dice));
    let (has_target, has_deal) = match subject.as_str() {
        "user" | "userChange" => (true, false),
        "nothing" | "system" => (false, false),
        _ => (dice.one_in(6), !dice.one_in(5)),
    };
    let view = View {
        kind: Cow::Borrowed(name),
        actor,
        target: has_target.then(|| data::draw_user(&mut dice)),
        deal: has_deal.then(|| data::draw_deal(&mut dice)),
    };
    (view, subject, dice)
}

// === impl View ===

impl View {
    /// Returns what filters and counts look at in any entry.
    pub(crate) fn of(entry: &Value) -> Self {
        let kind = entry["type"].as_str().unwrap_or_default();
        Self {
            kind: Cow::Owned(kind.to_owned()),
            actor: entry["actorUserId"].as_i64(),
            target: entry["targetUserId"].as_i64(),
            deal: entry["dealId"].as_i64(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::fields::ENTRY;

    #[test]
    fn an_entry_has_every_field_and_its_objects_match_its_ids() {
        let mut ids = HashSet::new();
        let mut nulls = HashSet::new();
        for number in 0..3_000 {
            let created = 1_700_000_000_000;
            let entry = draw(9, Key { created, number }, (42, "name"));
            let fields = entry.as_object().unwrap();
            assert!(fields.keys().eq(ENTRY.split(' ')));
            for (id, object) in [
                ("dealId", "deal"),
                ("evaluationId", "evaluation"),
                ("actorUserId", "actorUser"),
                ("targetUserId", "targetUser"),
            ] {
                assert_eq!(entry[id], entry[object]["id"], "{entry}");
            }
            if entry["evaluation"].is_object() {
                assert_eq!(entry["evaluation"]["deal"], entry["deal"]);
            }
            let (quick, slow) = (view(9, number), View::of(&entry));
            assert_eq!((&quick.kind, quick.actor), (&slow.kind, slow.actor));
            assert_eq!((quick.target, quick.deal), (slow.target, slow.deal));
            let null = fields.iter().filter(|(_, value)| value.is_null());
            nulls.extend(null.map(|(name, _)| name.clone()));
            ids.insert(entry["id"].to_string());
        }
        assert_eq!(ids.len(), 3_000);
        // Every field that may be null is null sometimes, and no other (section 2.1).
        let nullable = ENTRY.split(' ').skip(6).collect::<HashSet<_>>();
        assert_eq!(
            nulls.iter().map(String::as_str).collect::<HashSet<_>>(),
            nullable
        );
    }
}
