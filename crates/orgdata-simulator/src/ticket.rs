//! A ticket (section 2.3), drawn from the seed and its number.
//!
//! The specification is silent on which fields a ticket must have. Here `id`, `type`, `state`, `createdAt`, `updatedAt`,
//! `organizationId`, `createdByUserId` and `title` are always there; any other may be missing or null.

use serde::Serialize;
use serde_json::Number;

use super::catalogue;
use super::clock;
use super::dice::{Dice, Purpose};
use super::people;

/// Milliseconds of a day.
const DAY: u64 = 86_400_000;

/// Types of tickets, the frequent ones more than once; the specification names only `BUG`.
const KINDS: &[&str] = &[
    "BUG",
    "BUG",
    "BUG",
    "FEATURE_REQUEST",
    "FEATURE_REQUEST",
    "QUESTION",
    "INTEGRATION",
    "SUPPORT_REQUEST",
];
/// States of tickets; the specification names only `OPEN`.
pub(super) const STATES: &[&str] = &["OPEN", "IN_PROGRESS", "ON_HOLD", "CLOSED", "REJECTED"];
/// Priorities of linked deals, highest first; the specification names only `BLOCKER`.
pub(super) const PRIORITIES: &[&str] = &["BLOCKER", "HIGH", "MEDIUM", "LOW"];

/// The part of a ticket that changes.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) state: &'static str,
    /// Milliseconds since 1970, as the other two.
    pub(super) created: i64,
    pub(super) updated: i64,
    pub(super) closed: Option<i64>,
    /// `dealAmountSum` in cents, when it is not the sum of the linked deals.
    pub(super) cents: Option<i64>,
}

/// A field that may be missing (`None`) or null (`Some(None)`).
type Maybe<T> = Option<Option<T>>;

/// The JSON of a ticket.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Ticket {
    id: u64,
    pub(super) r#type: &'static str,
    pub(super) state: &'static str,
    created_at: String,
    updated_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    closed_at: Maybe<String>,
    organization_id: i64,
    created_by_user_id: i64,
    title: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Maybe<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    vendor_entity_id: Maybe<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    vendor_entity_key: Maybe<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    integration_installation_id: Maybe<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_due_date: Maybe<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    linked_deals: Maybe<Vec<LinkedDeal>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deal_amount_sum: Maybe<Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    vendor_entity_url: Maybe<String>,
    /// What the truth needs beside the JSON.
    #[serde(skip)]
    pub(super) due: Option<i64>,
    #[serde(skip)]
    pub(super) cents: Option<i64>,
    #[serde(skip)]
    pub(super) created: i64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LinkedDeal {
    pub(super) id: i64,
    evaluation_id: i64,
    name: String,
    pub(super) priority: &'static str,
    shared_with_buyer: bool,
}

// === impl Facts ===

impl Facts {
    /// What a ticket is like that existed at the start.
    pub(super) fn draw(seed: u64, id: u64, created: i64, start: i64) -> Self {
        let mut dice = Dice::new(seed, Purpose::Ticket, id, 1);
        let state = dice.pick(&[
            "OPEN",
            "OPEN",
            "OPEN",
            "IN_PROGRESS",
            "IN_PROGRESS",
            "ON_HOLD",
            "CLOSED",
            "CLOSED",
            "REJECTED",
        ]);
        let age = u64::try_from(start.saturating_sub(created)).unwrap_or(0);
        let updated = created.saturating_add_unsigned(dice.below(age + 1));
        Self {
            state,
            created,
            updated,
            closed: is_closed(state).then_some(updated),
            cents: None,
        }
    }
}

// === impl Ticket ===

impl Ticket {
    /// The ticket with this number.
    pub(super) fn draw(seed: u64, id: u64, facts: &Facts, organization: i64) -> Self {
        let mut dice = Dice::new(seed, Purpose::Ticket, id, 0);
        let r#type = dice.pick(KINDS);
        let by = people::id(dice.skewed(people::count()));
        let title = format!(
            "{} #{id}",
            catalogue::title(by + i64::try_from(id % 997).unwrap_or(0))
        );
        let key = format!("EXT-{}", 100 + id);
        let due = facts.created.saturating_add_unsigned(dice.below(150 * DAY));
        let linked = dice.pick(&[0, 1, 1, 1, 2, 3]);
        let deals: Vec<LinkedDeal> = (0..linked).map(|_| LinkedDeal::draw(&mut dice)).collect();
        let sum = deals.iter().map(|deal| amount(deal.id)).sum();
        let due = maybe(&mut dice, due);
        let linked_deals = maybe(&mut dice, deals);
        let cents = match facts.cents {
            Some(cents) => Some(Some(cents)),
            None => maybe(&mut dice, sum),
        };
        Self {
            id,
            r#type,
            state: facts.state,
            created_at: clock::text(facts.created),
            updated_at: clock::text(facts.updated),
            closed_at: match facts.closed {
                Some(at) => Some(Some(clock::text(at))),
                None => dice.one_in(2).then_some(None),
            },
            organization_id: organization,
            created_by_user_id: by,
            description: maybe(&mut dice, format!("Reported on {title}.\nSteps: 1 → 2 → 3")),
            title,
            vendor_entity_id: maybe(&mut dice, (10_000 + id).to_string()),
            vendor_entity_url: maybe(
                &mut dice,
                format!("https://tracker.example.com/browse/{key}"),
            ),
            vendor_entity_key: maybe(&mut dice, key),
            integration_installation_id: maybe(&mut dice, 12),
            target_due_date: due.map(|due| due.map(clock::text)),
            linked_deals,
            deal_amount_sum: cents.map(|cents| cents.map(money)),
            due: due.flatten(),
            cents: cents.flatten(),
            created: facts.created,
        }
    }

    /// The linked deals, none when the field is missing or null.
    pub(super) fn links(&self) -> &[LinkedDeal] {
        self.linked_deals
            .as_ref()
            .and_then(Option::as_deref)
            .unwrap_or_default()
    }
}

// === impl LinkedDeal ===

impl LinkedDeal {
    fn draw(dice: &mut Dice) -> Self {
        let id = catalogue::draw_deal(dice);
        Self {
            id,
            evaluation_id: catalogue::draw_evaluation(dice, id),
            name: catalogue::deal_name(id),
            priority: dice.pick(&[
                "BLOCKER", "HIGH", "HIGH", "MEDIUM", "MEDIUM", "MEDIUM", "LOW", "LOW",
            ]),
            shared_with_buyer: dice.one_in(3),
        }
    }
}

/// Whether a ticket in this state has a `closedAt`.
pub(super) fn is_closed(state: &str) -> bool {
    matches!(state, "CLOSED" | "REJECTED")
}

/// An amount as a JSON number: whole ones without a fraction.
pub(super) fn money(cents: i64) -> Number {
    if cents % 100 == 0 {
        return Number::from(cents / 100);
    }
    #[expect(
        clippy::cast_precision_loss,
        reason = "amounts are far below the 2^53 cents that are exact"
    )]
    let amount = cents as f64 / 100.0;
    Number::from_f64(amount).unwrap_or_else(|| Number::from(0))
}

/// What a deal is worth, in cents.
fn amount(deal: i64) -> i64 {
    let mut dice = Dice::new(0, Purpose::Ticket, deal.unsigned_abs(), 2);
    let cents = i64::try_from(dice.below(25_000_000)).unwrap_or(0);
    if dice.one_in(5) {
        cents / 100 * 100
    } else {
        cents
    }
}

/// The value most of the time, sometimes null, sometimes nothing at all.
fn maybe<T>(dice: &mut Dice, value: T) -> Maybe<T> {
    match dice.below(10) {
        0 => None,
        1 => Some(None),
        _ => Some(Some(value)),
    }
}
