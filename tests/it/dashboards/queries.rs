//! The metrics in a PromQL expression. The real servers test whether an expression parses.

/// A metric and what stands around it.
#[derive(Debug)]
pub(super) struct Selector {
    pub(super) metric: String,
    /// Label, operator and value.
    pub(super) matchers: Vec<(String, String, String)>,
    /// The text in the brackets behind it.
    pub(super) range: Option<String>,
    /// The function whose argument it is.
    pub(super) function: String,
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

impl Selector {
    pub(super) fn is_counter(&self) -> bool {
        let ends = ["_total", "_bucket", "_count", "_sum"];
        ends.iter().any(|end| self.metric.ends_with(end))
    }
}

/// Returns the selectors of an expression: the words that begin as our metrics do, and `up`.
pub(super) fn selectors(expression: &str) -> Vec<Selector> {
    let mut selectors = Vec::new();
    let mut start = 0;
    while let Some(found) = expression[start..].find(is_word) {
        let at = start + found;
        let word = expression[at..].split(|c| !is_word(c)).next().unwrap();
        start = at + word.len();
        if word != "up" && !word.starts_with("orgdata_") && !word.starts_with("process_") {
            continue;
        }
        let mut rest = &expression[start..];
        let mut matchers = Vec::new();
        if let Some((inside, behind)) = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'))
        {
            for matcher in inside.split("\",") {
                let (label, value) = matcher.split_once('"').expect("a matcher has a value");
                let operator = label.find(['=', '!']).expect("a matcher has an operator");
                let (label, operator) = label.split_at(operator);
                matchers.push((label, operator, value.trim_end_matches('"')));
            }
            rest = behind;
        }
        let matchers = matchers
            .into_iter()
            .map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned()));
        let range = rest.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        let call = expression[..at].strip_suffix('(').unwrap_or_default();
        let function = call.rsplit(|c| !is_word(c)).next().unwrap_or_default();
        selectors.push(Selector {
            metric: word.to_owned(),
            matchers: matchers.collect(),
            range: range.map(|(range, _)| range.to_owned()),
            function: function.to_owned(),
        });
        start = expression.len() - rest.len();
    }
    selectors
}

/// Returns the labels of `by`, `on` and their like.
pub(super) fn grouping(expression: &str) -> Vec<&str> {
    let mut labels = Vec::new();
    for keyword in [
        "by (",
        "without (",
        "on (",
        "ignoring (",
        "group_left (",
        "group_right (",
    ] {
        for list in expression
            .split(keyword)
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            labels.extend(
                list.split(',')
                    .map(str::trim)
                    .filter(|label| !label.is_empty()),
            );
        }
    }
    labels
}

#[test]
fn an_expression_is_read() {
    let expression = r#"sum by (a, le) (round(increase(orgdata_x_total{job=~"$job",b!="1"}[$__range]))) or 0 * max(up{c="d"})"#;
    let read = selectors(expression);
    let read: Vec<_> = read
        .iter()
        .map(|one| {
            (
                one.metric.as_str(),
                one.function.as_str(),
                one.range.as_deref(),
            )
        })
        .collect();
    assert_eq!(
        read,
        [
            ("orgdata_x_total", "increase", Some("$__range")),
            ("up", "max", None)
        ]
    );
    let matcher = &selectors(expression)[0].matchers[1];
    assert_eq!(*matcher, ("b".to_owned(), "!=".to_owned(), "1".to_owned()));
    assert_eq!(grouping(expression), ["a", "le"]);
}
