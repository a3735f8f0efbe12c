//! What a PromQL expression names: enough to judge our own queries by; whether they parse is for the real servers to say.

/// A selector and what stands around it.
#[derive(Debug)]
pub(crate) struct Selector {
    pub(crate) metric: String,
    /// Label, operator, value.
    pub(crate) matchers: Vec<(String, String, String)>,
    /// What stands in the brackets behind it.
    pub(crate) range: Option<String>,
    /// The function or aggregation whose argument it is in.
    pub(crate) inside: String,
}

/// The names in an expression.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) selectors: Vec<Selector>,
    /// The labels of `by`, `on`, `group_left` and their like.
    pub(crate) grouping: Vec<String>,
}

const GROUPING: [&str; 6] = [
    "by",
    "without",
    "on",
    "ignoring",
    "group_left",
    "group_right",
];

/// Reads an expression.
pub(crate) fn names(expression: &str) -> Names {
    let mut names = Names::default();
    let mut calls: Vec<String> = Vec::new();
    let mut rest = expression;
    while let Some(first) = rest.chars().next() {
        if first.is_ascii_alphabetic() || first == '_' {
            let (word, behind) =
                rest.split_at(rest.find(|c: char| !is_word(c)).unwrap_or(rest.len()));
            let next = behind.trim_start();
            rest = behind;
            if GROUPING.contains(&word) {
                let Some(list) = next.strip_prefix('(') else {
                    continue;
                };
                let (list, behind) = list.split_once(')').expect("a list of labels ends");
                names.grouping.extend(
                    list.split(',')
                        .map(|label| label.trim().to_owned())
                        .filter(|label| !label.is_empty()),
                );
                rest = behind;
            } else if let Some(behind) = next.strip_prefix('(') {
                calls.push(word.to_owned());
                rest = behind;
            } else if ![
                "and", "or", "unless", "offset", "bool", "sum", "max", "min", "count", "topk",
            ]
            .contains(&word)
            {
                let (matchers, behind) = braces(next);
                let (range, behind) = brackets(behind);
                names.selectors.push(Selector {
                    metric: word.to_owned(),
                    matchers,
                    range,
                    inside: calls.last().cloned().unwrap_or_default(),
                });
                rest = behind;
            }
        } else if first.is_ascii_digit() || first == '$' {
            rest = rest[1..].trim_start_matches(|c: char| is_word(c) || c == '.');
        } else if first == '"' {
            rest = &rest[1 + string(rest).len() + 1..];
        } else if first == '[' {
            rest = brackets(rest).1;
        } else {
            match first {
                '(' => calls.push(
                    calls
                        .last()
                        .filter(|call| ["sum", "max", "min", "count"].contains(&call.as_str()))
                        .cloned()
                        .unwrap_or_default(),
                ),
                ')' => drop(calls.pop()),
                _ => {}
            }
            rest = &rest[first.len_utf8()..];
        }
    }
    names
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The inside of a string in double quotes.
fn string(text: &str) -> &str {
    text[1..].split('"').next().expect("a string ends")
}

fn braces(text: &str) -> (Vec<(String, String, String)>, &str) {
    let Some(mut rest) = text.strip_prefix('{') else {
        return (Vec::new(), text);
    };
    let mut matchers = Vec::new();
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(behind) = rest.strip_prefix('}') {
            return (matchers, behind);
        }
        let quote = rest.find('"').expect("a matcher has a value");
        let (label, operator) =
            rest[..quote].split_at(rest.find(['=', '!']).expect("a matcher has an operator"));
        let value = string(&rest[quote..]);
        matchers.push((
            label.trim().to_owned(),
            operator.trim().to_owned(),
            value.to_owned(),
        ));
        rest = &rest[quote + 1 + value.len() + 1..];
    }
}

fn brackets(text: &str) -> (Option<String>, &str) {
    match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((range, behind)) => (Some(range.to_owned()), behind),
        None => (None, text),
    }
}

#[test]
fn an_expression_is_read() {
    let names = names(
        r#"sum by (a, le) (round(increase(x_total{job=~"$job",b!="1"}[$__range]))) and on () (hour() < $h) or 0 * max(y{c="d"}) > 3e2"#,
    );
    let read: Vec<_> = names
        .selectors
        .iter()
        .map(|one| {
            (
                one.metric.as_str(),
                one.inside.as_str(),
                one.range.as_deref(),
            )
        })
        .collect();
    assert_eq!(
        read,
        [
            ("x_total", "increase", Some("$__range")),
            ("y", "max", None)
        ]
    );
    assert_eq!(names.grouping, ["a", "le"]);
    assert_eq!(
        names.selectors[0].matchers[1],
        ("b".to_owned(), "!=".to_owned(), "1".to_owned())
    );
}
