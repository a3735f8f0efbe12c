//! Everything about a generated entry but its time: drawn from the seed and its place in the order of arrival.

use serde::Serialize;
use serde_json::{Map, Value};

use super::catalogue::{self, Kind, Subject};
use super::clock;
use super::dice::{Dice, Purpose, hash};
use super::world::Seq;
use super::{metadata, people};

/// What filters and counts look at; drawn first, so that filtering millions of entries draws nothing else.
#[derive(Clone, Debug)]
pub(super) struct Facets {
    pub(super) kind: &'static Kind,
    pub(super) actor: Option<i64>,
    pub(super) target: Option<i64>,
    pub(super) deal: Option<i64>,
    evaluation: Option<i64>,
}

/// An audit log entry (section 2.1), every field of it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Entry {
    id: String,
    r#type: &'static str,
    occurred_at: String,
    created_at: String,
    updated_at: String,
    organization_id: i64,
    deal_id: Option<i64>,
    evaluation_id: Option<i64>,
    actor_user_id: Option<i64>,
    target_user_id: Option<i64>,
    modified_target_user_id: Option<i64>,
    metadata: Option<Map<String, Value>>,
    organization: Option<Named>,
    evaluation: Option<Evaluation>,
    deal: Option<Named>,
    actor_user: Option<people::Summary>,
    target_user: Option<people::Summary>,
    modified_target_user: Option<people::Summary>,
    task: Option<Task>,
    requirement: Option<Titled>,
    meeting: Option<Titled>,
    ticket: Option<Titled>,
    team_request: Option<TeamRequest>,
}

/// A nested object with a name: an organization, a deal.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Named {
    id: i64,
    name: String,
}

/// A nested object with a title: a requirement, a meeting, a ticket.
#[derive(Debug, Serialize)]
struct Titled {
    id: i64,
    title: String,
}

#[derive(Debug, Serialize)]
pub(super) struct Evaluation {
    id: i64,
    title: String,
    deal: Option<Named>,
}

#[derive(Debug, Serialize)]
struct Task {
    id: i64,
    title: String,
    r#type: Option<&'static str>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TeamRequest {
    id: i64,
    status: &'static str,
    team_request_type: Option<Named>,
}

// === impl Facets ===

impl Facets {
    /// The facets of the entry at this place, and the dice to draw the rest with.
    pub(super) fn draw(seed: u64, seq: Seq) -> (Self, Dice) {
        let mut dice = Dice::new(seed, Purpose::Event, seq.generated, seq.added);
        let kind = catalogue::draw_kind(&mut dice);
        let actor =
            (!kind.system && !dice.one_in(20)).then(|| people::id(dice.skewed(people::count())));
        let (deal, evaluation) = match kind.subject {
            Subject::User | Subject::UserChange | Subject::Nothing => (None, None),
            Subject::Deal => (Some(catalogue::draw_deal(&mut dice)), None),
            _ => match dice.below(10) {
                0 => (None, Some(catalogue::draw_free_evaluation(&mut dice))),
                1 => (None, None),
                2 => (Some(catalogue::draw_deal(&mut dice)), None),
                _ => {
                    let deal = catalogue::draw_deal(&mut dice);
                    (
                        Some(deal),
                        Some(catalogue::draw_evaluation(&mut dice, deal)),
                    )
                }
            },
        };
        let targeted = match kind.subject {
            Subject::User | Subject::UserChange => true,
            Subject::Nothing => false,
            _ => dice.one_in(6),
        };
        let target = targeted.then(|| people::id(dice.below(people::count())));
        (
            Self {
                kind,
                actor,
                target,
                deal,
                evaluation,
            },
            dice,
        )
    }
}

// === impl Entry ===

impl Entry {
    /// The entry at this place, created at this time.
    pub(super) fn draw(seed: u64, seq: Seq, created: i64, organization: (i64, &str)) -> Self {
        let (facets, mut dice) = Facets::draw(seed, seq);
        // Most things are recorded at once; some arrive from a queue seconds or minutes later.
        let delay = if dice.one_in(10) {
            dice.below(300_000)
        } else {
            dice.below(900)
        };
        let touched = if dice.one_in(25) {
            dice.below(3_600_000)
        } else {
            0
        };
        let modified = (facets.kind.subject == Subject::UserChange)
            .then_some(facets.target)
            .flatten();
        let about = |subject: Subject| facets.kind.subject == subject;
        let thing = 20_000 + i64::try_from(dice.below(4_000)).unwrap_or(0);
        Self {
            id: id(seed, seq),
            r#type: facets.kind.name,
            occurred_at: clock::text(created.saturating_sub_unsigned(delay)),
            created_at: clock::text(created),
            updated_at: clock::text(created.saturating_add_unsigned(touched)),
            organization_id: organization.0,
            deal_id: facets.deal,
            evaluation_id: facets.evaluation,
            actor_user_id: facets.actor,
            target_user_id: facets.target,
            modified_target_user_id: modified,
            metadata: metadata::draw(&mut dice),
            organization: (!dice.one_in(30)).then(|| Named {
                id: organization.0,
                name: organization.1.to_owned(),
            }),
            evaluation: facets.evaluation.map(|id| evaluation(id, facets.deal)),
            deal: facets.deal.map(deal),
            actor_user: facets.actor.map(people::summary),
            target_user: facets.target.map(people::summary),
            modified_target_user: modified.map(people::summary),
            task: about(Subject::Task).then(|| Task {
                id: thing,
                title: catalogue::title(thing),
                r#type: dice.pick(&[None, Some("TODO"), Some("MILESTONE"), Some("QUESTION")]),
            }),
            requirement: about(Subject::Requirement).then(|| titled(thing)),
            meeting: about(Subject::Meeting).then(|| titled(thing)),
            ticket: about(Subject::Ticket).then(|| titled(thing)),
            team_request: about(Subject::TeamRequest).then(|| TeamRequest {
                id: thing,
                status: dice.pick(&["PENDING", "APPROVED", "REJECTED"]),
                team_request_type: (!dice.one_in(4)).then(|| Named {
                    id: 1 + thing % 3,
                    name: dice.pick(&["Presales", "Legal", "Sécurité"]).to_owned(),
                }),
            }),
        }
    }
}

/// The id of the entry at this place: the form of a UUID, never repeated.
pub(super) fn id(seed: u64, seq: Seq) -> String {
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

/// The nested object of a deal.
pub(super) fn deal(id: i64) -> Named {
    Named {
        id,
        name: catalogue::deal_name(id),
    }
}

/// The nested object of an evaluation and its deal.
pub(super) fn evaluation(id: i64, deal_id: Option<i64>) -> Evaluation {
    Evaluation {
        id,
        title: catalogue::evaluation_title(id),
        deal: deal_id.map(deal),
    }
}

fn titled(id: i64) -> Titled {
    Titled {
        id,
        title: catalogue::title(id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_every_field_and_its_objects_match_its_ids() {
        for i in 0..2_000 {
            let entry = Entry::draw(
                9,
                Seq {
                    generated: i,
                    added: 0,
                },
                1_700_000_000_000,
                (42, "Org"),
            );
            let json = serde_json::to_value(&entry).unwrap();
            assert_eq!(json.as_object().unwrap().len(), 23);
            for (id, object) in [
                ("dealId", "deal"),
                ("evaluationId", "evaluation"),
                ("actorUserId", "actorUser"),
            ] {
                assert_eq!(json[id], json[object]["id"], "{json}");
            }
            if !json["evaluation"]["deal"].is_null() {
                assert_eq!(json["evaluation"]["deal"], json["deal"]);
            }
        }
    }

    #[test]
    fn ids_do_not_repeat() {
        let ids: std::collections::HashSet<_> = (0..300)
            .flat_map(|g| {
                (0..30).map(move |n| {
                    id(
                        1,
                        Seq {
                            generated: g,
                            added: n,
                        },
                    )
                })
            })
            .collect();
        assert_eq!(ids.len(), 9_000);
        assert!(ids.iter().all(|id| id.len() == 36));
    }
}
