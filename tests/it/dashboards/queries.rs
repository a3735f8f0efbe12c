//! The metrics in a PromQL expression. The real servers test whether an expression parses.

/// A metric and what stands around it.
#[derive(Debug)]
pub(super) struct Selector<'a> {
    pub(super) metric: &'a str,
    /// Label, operator and value.
    pub(super) matchers: Vec<(&'a str, &'a str, &'a str)>,
    /// The text in the brackets behind it.
    pub(super) range: Option<&'a str>,
    /// The function whose argument it is.
    pub(super) function: &'a str,
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

impl Selector<'_> {
    pub(super) fn is_counter(&self) -> bool {
        let ends = ["_total", "_bucket", "_count", "_sum"];
        ends.iter().any(|end| self.metric.ends_with(end))
    }
}

/// Returns the selectors of an expression: the words that begin as our metrics do, and `up`.
pub(super) fn selectors(expression: &str) -> Vec<Selector<'_>> {
    let mut selectors = Vec::new();
    let mut start = 0;
    while let Some(found) = expression[start..].find(is_word) {
        let at = start + found;
        let metric = expression[at..].split(|c| !is_word(c)).next().unwrap();
        start = at + metric.len();
        if metric != "up" && !metric.starts_with("orgdata_") && !metric.starts_with("process_") {
            continue;
        }
        let mut rest = &expression[start..];
        let mut matchers = Vec::new();
        if let Some(braces) = rest.strip_prefix('{') {
            let (inside, behind) = braces.split_once('}').expect("a closing brace");
            for matcher in inside.split("\",") {
                let (label, value) = matcher.split_once('"').expect("a matcher has a value");
                let operator = label.find(['=', '!']).expect("a matcher has an operator");
                let (label, operator) = label.split_at(operator);
                matchers.push((label, operator, value.trim_end_matches('"')));
            }
            rest = behind;
        }
        let range = rest.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        let call = expression[..at].strip_suffix('(').unwrap_or_default();
        let function = call.rsplit(|c| !is_word(c)).next().unwrap_or_default();
        selectors.push(Selector {
            metric,
            matchers,
            range: range.map(|(range, _)| range),
            function,
        });
        start = expression.len() - rest.len();
    }
    selectors
}
