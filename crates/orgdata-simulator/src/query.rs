//! Query parameters: taken apart, checked, and refused with the body of section 7.2.
//!
//! Silent spots of the specification, as read here: a validation error has the status 400; a parameter that takes one
//! value is refused when given twice; an array parameter takes `name=a`, `name[]=a`, both, and repeats of both; a
//! number is a whole one in decimal digits; an address is compared without regard to case.

use serde_json::{Map, Value, json};
use url::form_urlencoded;

/// Smallest, largest and default number of items on a page (section 8).
const LIMITS: (u64, u64, u64) = (1, 1000, 100);

/// The parameters of a request as they came.
#[derive(Clone, Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

/// What is wrong with a request: the issues of section 7.2.
#[derive(Clone, Debug, Default)]
pub(super) struct Issues(Vec<Value>);

// === impl Query ===

impl Query {
    pub(super) fn parse(raw: &str) -> Self {
        Self(
            form_urlencoded::parse(raw.as_bytes())
                .into_owned()
                .collect(),
        )
    }

    pub(super) fn pairs(&self) -> &[(String, String)] {
        &self.0
    }

    /// The value of a parameter that takes one.
    pub(super) fn one<'a>(&'a self, name: &str, issues: &mut Issues) -> Option<&'a str> {
        let mut values = self
            .0
            .iter()
            .filter(|(given, _)| given == name)
            .map(|(_, value)| value.as_str());
        let first = values.next()?;
        if values.next().is_some() {
            let all: Vec<_> = self
                .0
                .iter()
                .filter(|(given, _)| given == name)
                .map(|(_, value)| value)
                .collect();
            issues.add(
                name,
                "invalid_type",
                "Expected a single value, received several",
                json!(all),
                &[],
            );
            return None;
        }
        Some(first)
    }

    /// The values of a parameter that takes several, in either form.
    pub(super) fn many<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        let array = format!("{name}[]");
        let name = name.to_owned();
        self.0
            .iter()
            .filter(move |(given, _)| *given == name || *given == array)
            .map(|(_, value)| value.as_str())
    }

    /// The `limit`, or its default.
    pub(super) fn limit(&self, issues: &mut Issues) -> u64 {
        let (least, most, default) = LIMITS;
        let Some(limit) = self.number("limit", issues) else {
            return default;
        };
        if limit < i128::from(least) {
            let text = format!("Number must be greater than or equal to {least}");
            issues.add(
                "limit",
                "too_small",
                &text,
                json!(shown(limit)),
                &[("minimum", json!(least)), ("inclusive", json!(true))],
            );
        } else if limit > i128::from(most) {
            let text = format!("Number must be less than or equal to {most}");
            issues.add(
                "limit",
                "too_big",
                &text,
                json!(shown(limit)),
                &[("maximum", json!(most)), ("inclusive", json!(true))],
            );
        }
        u64::try_from(limit).unwrap_or(default)
    }

    /// The `offset`, or 0.
    pub(super) fn offset(&self, issues: &mut Issues) -> u64 {
        let Some(offset) = self.number("offset", issues) else {
            return 0;
        };
        if offset < 0 {
            let text = "Number must be greater than or equal to 0";
            issues.add(
                "offset",
                "too_small",
                text,
                json!(shown(offset)),
                &[("minimum", json!(0)), ("inclusive", json!(true))],
            );
        }
        u64::try_from(offset).unwrap_or(0)
    }

    /// Refuses every parameter that is not in the list.
    pub(super) fn refuse_unknown(&self, known: &[&str], issues: &mut Issues) {
        for (name, _) in &self.0 {
            if !known.contains(&name.strip_suffix("[]").unwrap_or(name)) {
                issues.add(
                    name,
                    "unrecognized_keys",
                    "Unrecognized query parameter",
                    json!(name),
                    &[],
                );
            }
        }
    }

    fn number(&self, name: &str, issues: &mut Issues) -> Option<i128> {
        let text = self.one(name, issues)?;
        match text.parse() {
            Ok(number) if !text.starts_with('+') => Some(number),
            _ if text.parse::<f64>().is_ok_and(f64::is_finite) => {
                issues.add(
                    name,
                    "invalid_type",
                    "Expected integer, received float",
                    json!(text),
                    &[("expected", json!("integer"))],
                );
                None
            }
            _ => {
                issues.add(
                    name,
                    "invalid_type",
                    "Expected number, received nan",
                    json!(text),
                    &[("expected", json!("number"))],
                );
                None
            }
        }
    }
}

fn shown(number: i128) -> Value {
    i64::try_from(number).map_or_else(|_| json!(number.to_string()), |number| json!(number))
}

// === impl Issues ===

impl Issues {
    /// Adds an issue; `more` are the further details that an error type has.
    pub(super) fn add(
        &mut self,
        path: &str,
        code: &str,
        message: &str,
        received: Value,
        more: &[(&str, Value)],
    ) {
        let mut issue = Map::new();
        issue.insert("path".to_owned(), json!([path]));
        issue.insert("code".to_owned(), json!(code));
        issue.insert("message".to_owned(), json!(message));
        issue.insert("received".to_owned(), received);
        issue.extend(
            more.iter()
                .map(|(name, value)| ((*name).to_owned(), value.clone())),
        );
        self.0.push(Value::Object(issue));
    }

    /// The body of a refusal, when there is anything to refuse.
    pub(super) fn body(&self) -> Option<String> {
        (!self.0.is_empty())
            .then(|| json!({ "error": "Validation error", "issues": self.0 }).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(raw: &str) -> Result<u64, Value> {
        let mut issues = Issues::default();
        let limit = Query::parse(raw).limit(&mut issues);
        match issues.0.first() {
            None => Ok(limit),
            Some(issue) => Err(issue["code"].clone()),
        }
    }

    #[test]
    fn a_limit_is_a_whole_number_between_1_and_1000() {
        assert_eq!(
            [limit(""), limit("limit=1"), limit("limit=1000")],
            [Ok(100), Ok(1), Ok(1000)]
        );
        assert_eq!(limit("limit=0"), Err(json!("too_small")));
        assert_eq!(
            limit("limit=-99999999999999999999"),
            Err(json!("too_small"))
        );
        assert_eq!(limit("limit=1001"), Err(json!("too_big")));
        for raw in [
            "limit=x",
            "limit=",
            "limit=10.5",
            "limit=1e2",
            "limit=5&limit=6",
            "limit=%2B5",
        ] {
            assert_eq!(limit(raw), Err(json!("invalid_type")), "{raw}");
        }
    }

    #[test]
    fn array_parameters_come_in_both_forms() {
        let query = Query::parse("a=1&a%5B%5D=2&a[]=3&b=4&a%5b%5d=%C3%BC+x");
        assert_eq!(query.many("a").collect::<Vec<_>>(), ["1", "2", "3", "ü x"]);
    }
}
