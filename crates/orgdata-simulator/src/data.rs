//! The invented organization: its activity types, users, deals and texts, read from `data.json`.

use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::dice::Dice;

/// The name of the organization at the start.
pub(crate) const ORGANIZATION_NAME: &str = "Example GmbH & Søns";
const FIRST_USER: i64 = 1001;
const FIRST_DEAL: i64 = 5001;
const DEALS: u64 = 180;
/// Every deal has two evaluations.
const FIRST_EVALUATION: i64 = 8001;
/// The first evaluation that belongs to no deal.
const FIRST_FREE_EVALUATION: i64 = 9901;

static DATA: LazyLock<Data> =
    LazyLock::new(|| serde_json::from_str(include_str!("data.json")).expect("data.json is valid"));

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Data {
    activity_types: Vec<Kind>,
    /// First and last names. Either may be unknown.
    people: Vec<(Option<String>, Option<String>)>,
    products: Vec<String>,
    places: Vec<String>,
    titles: Vec<String>,
    metadata: Vec<Value>,
}

/// An activity type.
#[derive(Debug, Deserialize)]
pub(crate) struct Kind {
    pub(crate) name: String,
    /// How often it happens, relative to the others.
    weight: u64,
    /// What it is about, which decides the nested objects of its entries: `task`, `deal`, `evaluation`, `requirement`,
    /// `meeting`, `ticket`, `teamRequest`, `user` (the target), `userChange` (target and modified target), `nothing`, or
    /// `system` (nothing, and no user does it).
    pub(crate) subject: String,
}

/// Returns all activity types.
pub fn kinds() -> impl Iterator<Item = &'static str> {
    DATA.activity_types.iter().map(|kind| kind.name.as_str())
}

/// Draws an activity type by its weight.
pub(crate) fn draw_kind(dice: &mut Dice) -> &'static Kind {
    let kinds = &DATA.activity_types;
    let mut at = dice.below(kinds.iter().map(|kind| kind.weight).sum());
    for kind in kinds {
        match at.checked_sub(kind.weight) {
            Some(rest) => at = rest,
            None => return kind,
        }
    }
    &kinds[0]
}

/// Draws a user; some are more active than others.
pub(crate) fn draw_user(dice: &mut Dice) -> i64 {
    FIRST_USER + dice.skewed(DATA.people.len() as u64) as i64
}

/// Draws a deal; some are more popular than others.
pub(crate) fn draw_deal(dice: &mut Dice) -> i64 {
    FIRST_DEAL + dice.skewed(DEALS) as i64
}

/// Draws one of the two evaluations of a deal, or one that belongs to no deal.
pub(crate) fn draw_evaluation(dice: &mut Dice, deal: Option<i64>) -> i64 {
    match deal {
        Some(deal) => FIRST_EVALUATION + (deal - FIRST_DEAL) * 2 + dice.below(2) as i64,
        None => FIRST_FREE_EVALUATION + dice.below(20) as i64,
    }
}

/// Draws free-form metadata (section 2.1), or null.
pub(crate) fn draw_metadata(dice: &mut Dice) -> Value {
    DATA.metadata[dice.below(DATA.metadata.len() as u64) as usize].clone()
}

/// Returns whether the organization has this deal.
pub(crate) fn is_deal(id: i64) -> bool {
    (FIRST_DEAL..FIRST_DEAL + DEALS as i64).contains(&id)
}

/// Returns the title of a task, requirement, meeting or ticket.
pub(crate) fn title(id: i64) -> &'static str {
    &DATA.titles[id.unsigned_abs() as usize % DATA.titles.len()]
}

/// Returns the name of a deal.
pub(crate) fn deal_name(id: i64) -> String {
    let place = &DATA.places[(id.unsigned_abs() / 10) as usize % DATA.places.len()];
    format!("{} {place} {id}", product(id))
}

/// Returns the nested object of the deal with this id.
pub(crate) fn deal(id: i64) -> Value {
    json!({ "id": id, "name": deal_name(id) })
}

/// Returns the nested object of the evaluation with this id.
pub(crate) fn evaluation(id: i64, deal_id: Option<i64>) -> Value {
    let title = format!("{} proof of concept", product(id));
    json!({ "id": id, "title": title, "deal": deal_id.map(deal) })
}

/// Returns the nested object of an organization.
pub(crate) fn organization(id: i64, name: &str) -> Value {
    json!({ "id": id, "name": name })
}

/// Returns the summary of the user with this id; the name of an unknown one is made of the id.
pub(crate) fn user(id: i64) -> Value {
    let known = DATA.people.get((id - FIRST_USER) as usize).cloned();
    let (first, last) = known.unwrap_or((Some("User".to_owned()), Some(id.to_string())));
    let image = (id % 3 != 0).then(|| format!("https://img.example.com/u/{id}.png"));
    json!({ "id": id, "firstName": first, "lastName": last, "profileImageUrl": image })
}

/// Returns the e-mail address of a user. Every fourth has a `+`, which a client has to encode.
pub(crate) fn mail(id: i64) -> String {
    let plus = if id % 4 == 0 { "+" } else { "" };
    format!("user{plus}{id}@example.com")
}

/// Returns the user with this e-mail address, in upper or lower case.
pub(crate) fn user_of(address: &str) -> Option<i64> {
    let address = address.to_ascii_lowercase();
    let name = address.strip_prefix("user")?.split_once('@')?.0;
    let id = name.trim_start_matches('+').parse().ok()?;
    (mail(id) == address).then_some(id)
}

fn product(id: i64) -> &'static str {
    &DATA.products[id.unsigned_abs() as usize % DATA.products.len()]
}
