//! The generated part of an audit log entry (section 2.1), a function of the seed and the entry's place of arrival.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::clock;
use crate::data::{self, Kind, Subject};
use crate::dice::{Dice, Purpose, hash};
use crate::world::Seq;

/// What filters and counts look at.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) kind: Cow<'static, str>,
    pub(crate) actor: Option<i64>,
    pub(crate) target: Option<i64>,
    pub(crate) deal: Option<i64>,
}

/// The part of an entry that is drawn first, so that counting millions of entries draws nothing else.
struct Facets {
    kind: &'static Kind,
    actor: Option<i64>,
    target: Option<i64>,
    deal: Option<i64>,
    evaluation: Option<i64>,
}

/// Returns what filters and counts look at in a generated entry.
pub(crate) fn view(seed: u64, seq: Seq) -> View {
    let (facets, _) = Facets::draw(seed, seq);
    View {
        kind: Cow::Borrowed(&facets.kind.name),
        actor: facets.actor,
        target: facets.target,
        deal: facets.deal,
    }
}

/// Returns the id of the entry at this place. It looks like a UUID and is never repeated.
pub(crate) fn id(seed: u64, seq: Seq) -> String {
    let high = hash(seed, Purpose::EventId, seq.generated, seq.added);
    let low = hash(seed, Purpose::EventId, seq.added, !seq.generated);
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xfff,
        0x8000 | (low >> 50),
        low & 0xffff_ffff_ffff
    )
}

/// Returns the entry at this place, created at this time.
pub(crate) fn draw(seed: u64, seq: Seq, created: i64, organization: i64) -> Value {
    let (facets, mut dice) = Facets::draw(seed, seq);
    let subject = facets.kind.subject;
    // Most entries are recorded at once; some arrive from a queue minutes later.
    let delay = if dice.one_in(10) { 300_000 } else { 900 };
    let occurred = created.saturating_sub_unsigned(dice.below(delay));
    let modified = facets.target.filter(|_| subject == Subject::UserChange);
    let shows_organization = !dice.one_in(30);
    let thing = 20_000 + dice.below(4_000) as i64;
    let titled = |wanted: Subject| {
        (subject == wanted).then(|| json!({ "id": thing, "title": data::title(thing) }))
    };
    let mut task = titled(Subject::Task);
    if let Some(task) = &mut task {
        task["type"] = dice.pick(&[None, Some("TODO"), Some("MILESTONE")]).into();
    }
    let team_request = (subject == Subject::TeamRequest).then(|| {
        let kind = dice.pick(&[None, Some("Presales"), Some("Legal"), Some("Sécurité")]);
        json!({
            "id": thing,
            "status": dice.pick(&["PENDING", "APPROVED", "REJECTED"]),
            "teamRequestType": kind.map(|name| json!({ "id": name.len(), "name": name })),
        })
    });
    json!({
        "id": id(seed, seq),
        "type": facets.kind.name,
        "occurredAt": clock::text(occurred),
        "createdAt": clock::text(created),
        "updatedAt": clock::text(created),
        "organizationId": organization,
        "dealId": facets.deal,
        "evaluationId": facets.evaluation,
        "actorUserId": facets.actor,
        "targetUserId": facets.target,
        "modifiedTargetUserId": modified,
        "metadata": data::draw_metadata(&mut dice),
        "organization": shows_organization.then(|| data::organization(organization)),
        "evaluation": facets.evaluation.map(|id| data::evaluation(id, facets.deal)),
        "deal": facets.deal.map(data::deal),
        "actorUser": facets.actor.map(data::user),
        "targetUser": facets.target.map(data::user),
        "modifiedTargetUser": modified.map(data::user),
        "task": task,
        "requirement": titled(Subject::Requirement),
        "meeting": titled(Subject::Meeting),
        "ticket": titled(Subject::Ticket),
        "teamRequest": team_request,
    })
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

// === impl Facets ===

impl Facets {
    /// Draws the facets of the entry at this place. The rest of the entry is drawn with the returned dice.
    fn draw(seed: u64, seq: Seq) -> (Self, Dice) {
        let mut dice = Dice::new(seed, Purpose::Event, seq.generated, seq.added);
        let kind = data::draw_kind(&mut dice);
        let has_actor = kind.subject != Subject::System && !dice.one_in(20);
        let actor = has_actor.then(|| data::draw_user(&mut dice));
        let (has_deal, has_evaluation, has_target) = match kind.subject {
            Subject::User | Subject::UserChange => (false, false, true),
            Subject::Nothing | Subject::System => (false, false, false),
            Subject::Deal => (true, false, dice.one_in(6)),
            _ => (!dice.one_in(5), !dice.one_in(5), dice.one_in(6)),
        };
        let deal = has_deal.then(|| data::draw_deal(&mut dice));
        let evaluation = has_evaluation.then(|| match deal {
            Some(deal) => data::draw_evaluation(&mut dice, deal),
            None => data::draw_free_evaluation(&mut dice),
        });
        let target = has_target.then(|| data::draw_user(&mut dice));
        let facets = Self {
            kind,
            actor,
            target,
            deal,
            evaluation,
        };
        (facets, dice)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::fields::ENTRY;

    #[test]
    fn an_entry_has_every_field_and_its_objects_match_its_ids() {
        for generated in 0..2_000 {
            let seq = Seq {
                generated,
                added: 0,
            };
            let entry = draw(9, seq, 1_700_000_000_000, 42);
            let fields = entry.as_object().unwrap().keys();
            assert!(fields.eq(ENTRY.split(' ')));
            for (id, object) in [
                ("dealId", "deal"),
                ("evaluationId", "evaluation"),
                ("actorUserId", "actorUser"),
                ("targetUserId", "targetUser"),
            ] {
                assert_eq!(entry[id], entry[object]["id"], "{entry:?}");
            }
            if entry["evaluation"].is_object() {
                assert_eq!(entry["evaluation"]["deal"], entry["deal"]);
            }
            let (quick, slow) = (view(9, seq), View::of(&entry));
            assert_eq!((&quick.kind, quick.actor), (&slow.kind, slow.actor));
            assert_eq!((quick.target, quick.deal), (slow.target, slow.deal));
        }
    }

    #[test]
    fn ids_do_not_repeat() {
        let places =
            (0..300).flat_map(|generated| (0..30).map(move |added| Seq { generated, added }));
        let ids: HashSet<String> = places.map(|seq| id(1, seq)).collect();
        assert_eq!(ids.len(), 9_000);
        assert!(ids.iter().all(|id| id.len() == 36));
    }
}
