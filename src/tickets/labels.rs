//! Values of the labels `state`, `ticket_type` and `priority`: open sets of the service, bounded here in length and in number.

use std::borrow::Cow;
use std::sync::Arc;

/// The value where a ticket has no state or no type.
pub const UNKNOWN: &str = "unknown";

/// The priority of a ticket without a deal that has one, and of such a deal.
pub const NONE: &str = "none";

/// The value that the ones past [`MAX_VALUES`] are folded into.
pub const OTHER: &str = "other";

/// How many values a label takes besides those that the settings name, [`UNKNOWN`] or [`NONE`], and [`OTHER`].
pub const MAX_VALUES: usize = 32;

/// The longest label value, in characters; a longer one is cut and ends in `…`.
pub const MAX_LABEL_CHARS: usize = 64;

/// How many values the settings may name; the rest of an absurd list counts as unknown.
const MAX_CONFIGURED: usize = 100;

/// Where [`OTHER`] stands.
const OTHER_INDEX: u8 = 1;

/// The values of one label in one scan, each known by a small number: 0 is the missing one, 1 is [`OTHER`].
#[derive(Clone, Debug)]
pub(super) struct Vocabulary {
    values: Vec<Arc<str>>,
    configured: Vec<u8>,
    limit: usize,
    /// Whether a value was folded into [`OTHER`].
    folded: bool,
}

// === impl Vocabulary ===

impl Vocabulary {
    /// A vocabulary of the missing value, [`OTHER`], the configured values in their order, and those that the last snapshot showed: who had a
    /// series keeps it, so that the values past the bound do not take turns.
    pub(super) fn new<'a>(
        missing: &str,
        configured: &[String],
        earlier: impl Iterator<Item = &'a str>,
    ) -> Self {
        let values = vec![missing.into(), OTHER.into()];
        let mut vocabulary = Self {
            values,
            configured: Vec::new(),
            limit: usize::from(u8::MAX),
            folded: false,
        };
        for value in configured
            .iter()
            .filter(|value| !value.trim().is_empty())
            .take(MAX_CONFIGURED)
        {
            let index = vocabulary.index(Some(value));
            if !vocabulary.configured.contains(&index) {
                vocabulary.configured.push(index);
            }
        }
        vocabulary.limit = vocabulary.values.len() + MAX_VALUES;
        for value in earlier {
            vocabulary.index(Some(value));
        }
        vocabulary
    }

    /// The number of a value; of [`OTHER`] where there are too many.
    pub(super) fn index(&mut self, text: Option<&str>) -> u8 {
        let Some(text) = text else { return 0 };
        // Nearly every value is a known one in its clean form.
        if let Some(index) = self.find(text) {
            return index;
        }
        let text = clean(text);
        if text.is_empty() {
            return 0;
        }
        if let Some(index) = self.find(&text) {
            return index;
        }
        if self.values.len() >= self.limit {
            self.folded = true;
            return OTHER_INDEX;
        }
        self.values.push(text.into());
        (self.values.len() - 1) as u8
    }

    /// Whether there were more values than the label takes.
    pub(super) fn folded(&self) -> bool {
        self.folded
    }

    /// The value of a number.
    pub(super) fn value(&self, index: u8) -> &Arc<str> {
        &self.values[usize::from(index)]
    }

    /// The numbers of the values that the settings name, in their order.
    pub(super) fn configured(&self) -> &[u8] {
        &self.configured
    }

    /// Where a priority ranks: smaller is higher. The configured ones in their order, then unknown ones by name, then [`OTHER`], then none.
    pub(super) fn rank(&self, index: u8) -> (usize, &str) {
        match self
            .configured
            .iter()
            .position(|configured| *configured == index)
        {
            Some(position) => (position, ""),
            None if index == 0 => (usize::MAX, ""),
            None if index == OTHER_INDEX => (usize::MAX - 1, ""),
            None => (self.configured.len(), self.value(index)),
        }
    }

    fn find(&self, text: &str) -> Option<u8> {
        self.values
            .iter()
            .position(|value| **value == *text)
            .map(|index| index as u8)
    }
}

/// On one line, without space around it, of bounded length.
fn clean(text: &str) -> Cow<'_, str> {
    let text = text.trim();
    if text.len() <= MAX_LABEL_CHARS && !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let mut cut: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(MAX_LABEL_CHARS)
        .collect();
    if text.chars().nth(MAX_LABEL_CHARS).is_some() {
        cut.pop();
        cut.push('…');
    }
    Cow::Owned(cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(vocabulary: &mut Vocabulary, text: &str) -> String {
        let index = vocabulary.index(Some(text));
        vocabulary.value(index).to_string()
    }

    #[test]
    fn values_past_the_bound_are_other_and_known_ones_stay() {
        let mut vocabulary = Vocabulary::new(UNKNOWN, &["OPEN".to_owned()], ["OLD"].into_iter());
        for n in 0..MAX_VALUES - 1 {
            assert_eq!(value(&mut vocabulary, &format!("S{n}")), format!("S{n}"));
        }
        assert_eq!(value(&mut vocabulary, "one more"), OTHER);
        for known in ["OPEN", "OLD", "S0", UNKNOWN] {
            assert_eq!(value(&mut vocabulary, known), known);
        }
    }

    #[test]
    fn a_value_is_short_and_on_one_line() {
        let mut vocabulary = Vocabulary::new(UNKNOWN, &[], [].into_iter());
        let long = value(&mut vocabulary, &"ü".repeat(500));
        assert_eq!(long.chars().count(), MAX_LABEL_CHARS);
        assert!(long.ends_with("ü…"));
        assert_eq!(value(&mut vocabulary, " a\nb "), "a b");
        assert_eq!(value(&mut vocabulary, " \t "), UNKNOWN);
        assert_eq!(vocabulary.index(None), 0);
    }

    #[test]
    fn unknown_priorities_rank_below_the_configured_and_above_none() {
        let mut vocabulary = Vocabulary::new(
            NONE,
            &["HIGH".to_owned(), String::new(), "LOW".to_owned()],
            [].into_iter(),
        );
        let order = ["HIGH", "LOW", "A", "B", OTHER, NONE].map(|text| vocabulary.index(Some(text)));
        assert!(
            order
                .windows(2)
                .all(|pair| vocabulary.rank(pair[0]) < vocabulary.rank(pair[1]))
        );
    }

    #[test]
    fn an_absurd_number_of_configured_values_fits() {
        let many: Vec<String> = (0..1000).map(|n| format!("P{n}")).collect();
        let mut vocabulary = Vocabulary::new(NONE, &many, [].into_iter());
        assert_eq!(vocabulary.configured().len(), MAX_CONFIGURED);
        for n in 1000..2000 {
            vocabulary.index(Some(&format!("P{n}")));
        }
        assert_eq!(value(&mut vocabulary, "P3000"), OTHER);
    }
}
