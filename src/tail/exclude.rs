//! The flags `--metrics.exclude-activity-types` and `--otlp.exclude-activity-types`.

/// Patterns of activity types, in which `*` stands for any text.
#[derive(Clone, Debug, Default)]
pub struct Exclude {
    patterns: Vec<String>,
    has_matched: Vec<bool>,
}

/// What is known, but not counted or not sent.
#[derive(Clone, Debug, Default)]
pub struct Excluded {
    /// `--metrics.exclude-activity-types`.
    pub metrics: Exclude,
    /// `--otlp.exclude-activity-types`.
    pub records: Exclude,
}

// === impl Exclude ===

impl Exclude {
    /// Returns what these patterns exclude.
    pub fn new(patterns: Vec<String>) -> Self {
        Self {
            has_matched: vec![false; patterns.len()],
            patterns,
        }
    }

    /// Reports whether an activity type is excluded.
    pub(super) fn matches(&mut self, activity_type: &str) -> bool {
        let mut is_excluded = false;
        for (pattern, has_matched) in self.patterns.iter().zip(&mut self.has_matched) {
            let is_match = matches(pattern, activity_type);
            *has_matched |= is_match;
            is_excluded |= is_match;
        }
        is_excluded
    }

    fn unmatched(&self) -> impl Iterator<Item = &str> {
        let patterns = self.patterns.iter().zip(&self.has_matched);
        patterns.filter_map(|(pattern, has_matched)| (!has_matched).then_some(pattern.as_str()))
    }
}

// === impl Excluded ===

impl Excluded {
    /// Returns the patterns that have matched nothing so far.
    pub(super) fn unmatched(&self) -> impl Iterator<Item = &str> {
        self.metrics.unmatched().chain(self.records.unmatched())
    }
}

fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(mut text) = text.strip_prefix(start) else {
        return false;
    };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    for part in middle.split('*') {
        let Some(at) = text.find(part) else {
            return false;
        };
        text = &text[at + part.len()..];
    }
    text.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, text, expected) in [
            ("TASK_UPDATED", "TASK_UPDATED", true),
            ("TASK_UPDATED", "TASK_UPDATED_TWICE", false),
            ("DOCUMENT_*", "DOCUMENT_VIEWED", true),
            ("DOCUMENT_*", "DOCUMENT_", true),
            ("DOCUMENT_*", "A_DOCUMENT_VIEWED", false),
            ("*_VIEWED", "DOCUMENT_VIEWED", true),
            ("*_VIEWED", "VIEWED", false),
            ("*", "", true),
            ("A*B*C", "A1B2B3C", true),
            ("A*BC*C", "ABC", false),
            ("*É*", "CAFÉ", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn a_pattern_that_matches_nothing_is_named() {
        let mut exclude = Exclude::new(vec!["DOCUMENT_*".to_owned(), "TASK_*".to_owned()]);
        assert!(exclude.matches("DOCUMENT_VIEWED") && !exclude.matches("DEAL_CREATED"));
        assert_eq!(exclude.unmatched().collect::<Vec<_>>(), ["TASK_*"]);
    }
}
