//! Values of the labels `state`, `ticket_type` and `priority`: open sets of the API, bounded here in length and number.

use std::collections::BTreeSet;

use crate::metrics::tickets::Label;
use crate::util::one_line;

/// The value for a ticket without a state or type.
pub const UNKNOWN: &str = "unknown";

/// The priority of a ticket without a deal that has one, and of such a deal.
pub const NONE: &str = "none";

/// The value that replaces those beyond [`MAX_VALUES`].
pub const OTHER: &str = "other";

/// The maximum number of values of a label besides those in the settings, [`UNKNOWN`] or [`NONE`], and [`OTHER`].
pub const MAX_VALUES: usize = 32;

/// The maximum length of a value in characters; a longer one is cut and ends in `…`.
pub const MAX_LABEL_CHARS: usize = 64;

/// The values of one label in one scan.
#[derive(Clone, Debug)]
pub(super) struct LabelValues {
    missing: Label,
    other: Label,
    /// From the settings, in their order.
    configured: Vec<Label>,
    values: BTreeSet<Label>,
    limit: usize,
}

// === impl LabelValues ===

impl LabelValues {
    /// Returns a set with the `configured` values. `missing` stands for a missing value.
    pub(super) fn new(missing: &str, configured: &[String]) -> Self {
        let (missing, other) = (Label::from(missing), Label::from(OTHER));
        let mut labels = Self {
            values: BTreeSet::from([missing.clone(), other.clone()]),
            missing,
            other,
            configured: Vec::new(),
            limit: usize::MAX,
        };
        for value in configured.iter().filter(|value| !value.trim().is_empty()) {
            let label = labels.label(Some(value));
            if !labels.configured.contains(&label) {
                labels.configured.push(label);
            }
        }
        labels.limit = labels.values.len() + MAX_VALUES;
        labels
    }

    /// Returns the label for a value: [`OTHER`] if there are too many.
    pub(super) fn label(&mut self, value: Option<&str>) -> Label {
        let value = value.unwrap_or_default();
        // Nearly every value is known.
        if let Some(label) = self.values.get(value) {
            return label.clone();
        }
        let value = one_line(value, MAX_LABEL_CHARS);
        match self.values.get(&*value) {
            Some(label) => label.clone(),
            None if value.is_empty() => self.missing(),
            None if self.values.len() >= self.limit => self.other.clone(),
            None => {
                let label = Label::from(value);
                self.values.insert(label.clone());
                label
            }
        }
    }

    /// Returns the label for a missing value.
    pub(super) fn missing(&self) -> Label {
        self.missing.clone()
    }

    /// Returns the labels of the values in the settings.
    pub(super) fn configured(&self) -> &[Label] {
        &self.configured
    }

    /// Returns the rank of a priority; a smaller one is higher. Priorities in the settings come first, in their order,
    /// then others by name, then [`OTHER`], then the missing one.
    pub(super) fn rank<'a>(&self, label: &'a Label) -> (usize, &'a str) {
        let known = self.configured.iter().position(|known| known == label);
        match known {
            Some(position) => (position, ""),
            None if *label == self.missing => (usize::MAX, ""),
            None if *label == self.other => (usize::MAX - 1, ""),
            None => (self.configured.len(), label),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_priorities_rank_below_the_configured_and_above_none() {
        let configured = ["HIGH", "", "LOW"].map(str::to_owned);
        let mut labels = LabelValues::new(NONE, &configured);
        let order = ["HIGH", "LOW", "A", "B", OTHER, NONE].map(|text| labels.label(Some(text)));
        assert!(order.is_sorted_by(|a, b| labels.rank(a) < labels.rank(b)));
    }
}
