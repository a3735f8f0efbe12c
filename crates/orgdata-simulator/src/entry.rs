//! The generated part of an audit log entry (section 2.1), a function of the seed and the entry's place of arrival. Its id is also one of
//! the start, so that a client that has read an earlier simulator takes the entries for new ones.

use serde_json::{Value, json};

use crate::clock;
use crate::data;
use crate::dice::{Dice, Purpose, hash};

/// The place of an entry in the listing, which a cursor names. It is never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// `createdAt`, in milliseconds since 1970.
    pub(crate) created: i64,
    /// The number in the order of arrival.
    pub(crate) number: u64,
}

/// Returns the entry at this place. `start` is when the simulator started.
pub(crate) fn draw(seed: u64, start: i64, key: Key, (organization, name): (i64, &str)) -> Value {
    let Key { created, number } = key;
    let mut dice = Dice::new(seed, Purpose::Event, number, 0);
    let kind = data::draw_kind(&mut dice);
    let subject = kind.subject.as_str();
    let has_actor = subject != "system" && !dice.one_in(20);
    let actor = has_actor.then(|| data::draw_user(&mut dice));
    let (has_target, has_deal) = match subject {
        "user" | "userChange" => (true, false),
        "nothing" | "system" => (false, false),
        _ => (dice.one_in(6), !dice.one_in(5)),
    };
    let target = has_target.then(|| data::draw_user(&mut dice));
    let deal = has_deal.then(|| data::draw_deal(&mut dice));
    let has_evaluation = !["deal", "nothing", "system"].contains(&subject) && !dice.one_in(5);
    let evaluation = has_evaluation.then(|| data::draw_evaluation(&mut dice, deal));
    // Most entries are recorded at once; some arrive from a queue minutes later.
    let delay = if dice.one_in(10) { 300_000 } else { 900 };
    let occurred = created.saturating_sub_unsigned(dice.below(delay));
    let modified = target.filter(|_| subject == "userChange");
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
        "id": format!("{:016x}-{number:x}", hash(seed, Purpose::EventId, number, start as u64)),
        "type": kind.name,
        "occurredAt": clock::text(occurred),
        "createdAt": clock::text(created),
        "updatedAt": clock::text(created),
        "organizationId": organization,
        "dealId": deal,
        "evaluationId": evaluation,
        "actorUserId": actor,
        "targetUserId": target,
        "modifiedTargetUserId": modified,
    });
    // Added one by one, because the macro copies what it is given.
    let organization = shows_organization.then(|| data::organization(organization, name));
    for (field, object) in [
        ("metadata", Some(data::draw_metadata(&mut dice))),
        ("organization", organization),
        (
            "evaluation",
            evaluation.map(|id| data::evaluation(id, deal)),
        ),
        ("deal", deal.map(data::deal)),
        ("actorUser", actor.map(data::user)),
        ("targetUser", target.map(data::user)),
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::fields::ENTRY;

    #[test]
    fn an_entry_has_every_field_and_its_objects_match_its_ids() {
        let (mut ids, mut nulls) = (BTreeSet::new(), BTreeSet::new());
        for number in 0..3_000 {
            let created = 1_700_000_000_000;
            let entry = draw(9, 0, Key { created, number }, (42, "name"));
            let fields = entry.as_object().unwrap();
            assert!(fields.keys().eq(ENTRY.split(' ')));
            for object in ["deal", "evaluation", "actorUser", "targetUser"] {
                let id = &entry[format!("{object}Id")];
                assert_eq!(*id, entry[object]["id"], "{entry}");
            }
            let deal = entry["evaluation"].get("deal");
            assert!(deal.is_none_or(|deal| *deal == entry["deal"]), "{entry}");
            let null = ENTRY.split(' ').filter(|name| entry[*name].is_null());
            nulls.extend(null);
            ids.insert(entry["id"].to_string());
        }
        assert_eq!(ids.len(), 3_000);
        // Every field that may be null is null sometimes, and no other (section 2.1).
        assert_eq!(nulls, ENTRY.split(' ').skip(6).collect());
    }
}
