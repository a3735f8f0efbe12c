//! What the organization consists of: activity types, deals, evaluations and the things that happen in them.

use super::dice::Dice;

/// Number of the first deal.
const FIRST_DEAL: i64 = 5001;
/// How many deals there are.
const DEALS: u64 = 180;
/// Number of the first evaluation; every deal has two.
const FIRST_EVALUATION: i64 = 8001;
/// Number of the first evaluation that belongs to no deal.
const FIRST_FREE_EVALUATION: i64 = 9901;

const PRODUCTS: &[&str] = &[
    "Atlas",
    "Borealis",
    "Çınar",
    "Δ-Line",
    "Ember",
    "Fjord",
    "Gamma",
    "雲 Cloud",
    "Iris",
    "Jade",
];
const PLACES: &[&str] = &[
    "Nord",
    "Süd",
    "Łódź",
    "São Paulo",
    "東京",
    "Genève",
    "Århus",
    "Malmö",
    "Zürich",
    "Île-de-France",
];
const TITLES: &[&str] = &[
    "Review the security questionnaire",
    "Prepare the demo environment",
    "Agree on success criteria",
    "Connect single sign-on",
    "Load test with 1\u{202f}000 users",
    "Prüfung der Datenschutz-Anforderungen",
    "Überblick für den Vorstand 📈",
    "Sign \"order form\" & return",
    "契約の確認",
    "Négociation – dernière étape",
    "Import\nlegacy data",
    "Call back: pricing (50 % off?)",
    "Backup C:\\data\\2024",
    "Kick-off <b>call</b>",
];

/// What an activity is about: it decides which nested objects an entry has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Task,
    Deal,
    Evaluation,
    Requirement,
    Meeting,
    Ticket,
    TeamRequest,
    /// About another user, who is the target.
    User,
    /// About another user whose rights change: target and modified target.
    UserChange,
    Nothing,
}

/// An activity type.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// How often it happens, relative to the others.
    weight: u64,
    pub(super) subject: Subject,
    /// Done by the system, never by a user.
    pub(super) system: bool,
}

const fn kind(name: &'static str, weight: u64, subject: Subject) -> Kind {
    Kind {
        name,
        weight,
        subject,
        system: false,
    }
}

/// All activity types of the organization, most of them rare.
pub(super) const KINDS: &[Kind] = &[
    kind("TASK_COMPLETED", 180, Subject::Task),
    kind("TASK_CREATED", 140, Subject::Task),
    kind("TASK_UPDATED", 120, Subject::Task),
    kind("TASK_REOPENED", 15, Subject::Task),
    kind("DEAL_CREATED", 20, Subject::Deal),
    kind("DEAL_UPDATED", 90, Subject::Deal),
    kind("DEAL_STAGE_CHANGED", 40, Subject::Deal),
    kind("DEAL_WON", 6, Subject::Deal),
    kind("DEAL_LOST", 5, Subject::Deal),
    kind("EVALUATION_CREATED", 12, Subject::Evaluation),
    kind("EVALUATION_COMPLETED", 8, Subject::Evaluation),
    kind("REQUIREMENT_ADDED", 50, Subject::Requirement),
    kind("REQUIREMENT_STATUS_CHANGED", 60, Subject::Requirement),
    kind("MEETING_SCHEDULED", 45, Subject::Meeting),
    kind("MEETING_COMPLETED", 35, Subject::Meeting),
    kind("MEETING_CANCELLED", 8, Subject::Meeting),
    kind("USER_INVITED", 12, Subject::User),
    kind("USER_JOINED", 10, Subject::User),
    kind("USER_ROLE_CHANGED", 4, Subject::UserChange),
    kind("USER_REMOVED", 2, Subject::User),
    kind("TICKET_LINKED", 18, Subject::Ticket),
    kind("TICKET_STATE_CHANGED", 25, Subject::Ticket),
    kind("TEAM_REQUEST_CREATED", 7, Subject::TeamRequest),
    kind("TEAM_REQUEST_APPROVED", 5, Subject::TeamRequest),
    kind("DOCUMENT_VIEWED", 60, Subject::Deal),
    kind("API_KEY_CREATED", 1, Subject::Nothing),
    Kind {
        name: "INTEGRATION_SYNCED",
        weight: 30,
        subject: Subject::Nothing,
        system: true,
    },
];

const fn total_weight() -> u64 {
    let (mut sum, mut i) = (0, 0);
    while i < KINDS.len() {
        sum += KINDS[i].weight;
        i += 1;
    }
    sum
}

/// An activity type, by its weight.
pub(super) fn draw_kind(dice: &mut Dice) -> &'static Kind {
    let mut at = dice.below(total_weight());
    for kind in KINDS {
        match at.checked_sub(kind.weight) {
            Some(rest) => at = rest,
            None => return kind,
        }
    }
    &KINDS[0]
}

/// A deal, some more popular than others.
pub(super) fn draw_deal(dice: &mut Dice) -> i64 {
    FIRST_DEAL.saturating_add_unsigned(dice.skewed(DEALS))
}

/// One of the two evaluations of a deal.
pub(super) fn draw_evaluation(dice: &mut Dice, deal: i64) -> i64 {
    FIRST_EVALUATION + (deal - FIRST_DEAL) * 2 + i64::from(dice.one_in(2))
}

/// An evaluation that belongs to no deal.
pub(super) fn draw_free_evaluation(dice: &mut Dice) -> i64 {
    FIRST_FREE_EVALUATION.saturating_add_unsigned(dice.below(20))
}

/// Whether the organization has had this deal from the beginning.
pub(super) fn is_deal(id: i64) -> bool {
    usize::try_from(id - FIRST_DEAL).is_ok_and(|place| place < DEALS as usize)
}

/// The name of any deal, a function of its number.
pub(super) fn deal_name(id: i64) -> String {
    let place = usize::try_from(id.unsigned_abs()).unwrap_or(0);
    format!(
        "{} {} {}",
        PRODUCTS[place % PRODUCTS.len()],
        PLACES[(place / 10) % PLACES.len()],
        id
    )
}

/// The title of any evaluation, a function of its number.
pub(super) fn evaluation_title(id: i64) -> String {
    let place = usize::try_from(id.unsigned_abs()).unwrap_or(0);
    format!("{} proof of concept", PRODUCTS[place % PRODUCTS.len()])
}

/// The title of a task, requirement, meeting or ticket, a function of its number.
pub(super) fn title(id: i64) -> String {
    let place = usize::try_from(id.unsigned_abs()).unwrap_or(0);
    TITLES[place % TITLES.len()].to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::dice::Purpose;
    use super::*;

    #[test]
    fn every_type_happens_and_the_common_ones_most() {
        let mut dice = Dice::new(1, Purpose::Event, 0, 0);
        let mut seen = std::collections::HashMap::new();
        for _ in 0..20_000 {
            *seen.entry(draw_kind(&mut dice).name).or_insert(0) += 1;
        }
        assert_eq!(seen.len(), KINDS.len());
        assert!(seen["TASK_COMPLETED"] > 50 * seen["API_KEY_CREATED"]);
    }

    #[test]
    fn drawn_deals_belong_to_the_organization() {
        let mut dice = Dice::new(1, Purpose::Event, 0, 1);
        assert!((0..1000).all(|_| is_deal(draw_deal(&mut dice))));
        assert!(!is_deal(FIRST_DEAL - 1) && !is_deal(FIRST_DEAL + 180));
    }
}
