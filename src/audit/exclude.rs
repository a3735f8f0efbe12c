//! The flags `--metrics.exclude-activity-types` and `--otlp.exclude-activity-types`.

use wildmatch::WildMatchPattern;

/// `*` stands for any text, and no character for any other character.
type Pattern = WildMatchPattern<'*', '\0'>;

/// Patterns of activity types, each with whether it has matched one.
#[derive(Clone, Debug, Default)]
pub struct Exclude(Vec<(Pattern, bool)>);

/// What is known, but not counted or not sent.
#[derive(Clone, Debug, Default)]
pub struct Excluded {
    /// `--metrics.exclude-activity-types`.
    pub(crate) metrics: Exclude,
    /// `--otlp.exclude-activity-types`.
    pub(crate) records: Exclude,
}

// === impl Exclude ===

impl Exclude {
    /// Returns what these patterns exclude.
    pub(crate) fn new(patterns: &[String]) -> Self {
        let patterns = patterns.iter().map(|pattern| Pattern::new(pattern));
        Self(patterns.map(|pattern| (pattern, false)).collect())
    }

    /// Reports whether an activity type is excluded.
    pub(crate) fn matches(&mut self, activity_type: &str) -> bool {
        let mut is_excluded = false;
        for (pattern, has_matched) in &mut self.0 {
            let is_match = pattern.matches(activity_type);
            *has_matched |= is_match;
            is_excluded |= is_match;
        }
        is_excluded
    }

    /// Returns the patterns, separated by commas; `None` if there are none.
    pub(crate) fn patterns(&self) -> Option<String> {
        let patterns: Vec<String> = self
            .0
            .iter()
            .map(|(pattern, _)| pattern.pattern())
            .collect();
        (!patterns.is_empty()).then(|| patterns.join(","))
    }

    fn unmatched(&self) -> impl Iterator<Item = String> {
        let patterns = self.0.iter().filter(|(_, has_matched)| !has_matched);
        patterns.map(|(pattern, _)| pattern.pattern())
    }
}

// === impl Excluded ===

impl Excluded {
    /// Returns the patterns that have matched nothing so far.
    pub(super) fn unmatched(&self) -> impl Iterator<Item = String> {
        self.metrics.unmatched().chain(self.records.unmatched())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text_and_a_question_mark_for_itself() {
        for (pattern, text, expected) in [
            ("TASK_UPDATED", "TASK_UPDATED", true),
            ("TASK_UPDATED", "TASK_UPDATED_TWICE", false),
            ("DOCUMENT_*", "DOCUMENT_", true),
            ("DOCUMENT_*", "A_DOCUMENT_VIEWED", false),
            ("*_VIEWED", "DOCUMENT_VIEWED", true),
            ("*", "", true),
            ("A?", "AB", false),
        ] {
            let mut exclude = Exclude::new(&[pattern.to_owned()]);
            assert_eq!(exclude.matches(text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn a_pattern_that_matches_nothing_is_named() {
        let mut exclude = Exclude::new(&["DOCUMENT_*".to_owned(), "TASK_*".to_owned()]);
        assert!(exclude.matches("DOCUMENT_VIEWED") && !exclude.matches("DEAL_CREATED"));
        assert_eq!(exclude.unmatched().collect::<Vec<_>>(), ["TASK_*"]);
    }
}
