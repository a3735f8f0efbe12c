//! Query parameters and the validation errors of section 7.2.
//!
//! Ambiguous places of the specification, as read here: a validation error has the status 400 and names the first
//! issue; an unknown parameter is refused; a parameter with one value is refused if it is repeated; an array parameter takes `name=a`, `name[]=a`,
//! and repeats of both; a number is a whole one in decimal digits.

use serde_json::{Value, json};
use url::form_urlencoded;

/// The maximum and the default number of items on a page (section 8).
const MAX_LIMIT: i64 = 1000;
const DEFAULT_LIMIT: i64 = 100;

/// The parameters of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

// === impl Query ===

impl Query {
    pub(crate) fn parse(raw: &str) -> Self {
        let pairs = form_urlencoded::parse(raw.as_bytes());
        Self(pairs.into_owned().collect())
    }

    /// Returns the first value of a parameter.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(given, _)| given == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the values of an array parameter in either form.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let values = self.0.iter();
        let values = values.filter(move |(given, _)| array_name(given) == name);
        values.map(|(_, value)| value.as_str())
    }

    /// Returns whether the request names a place in the audit log.
    pub(crate) fn has_cursor(&self) -> bool {
        self.get("before").or(self.get("after")).is_some()
    }

    /// Returns the `limit`, or its default.
    pub(crate) fn limit(&self) -> Result<u64, Value> {
        self.number("limit", (1, MAX_LIMIT), DEFAULT_LIMIT)
    }

    /// Returns the `offset`, or 0.
    pub(crate) fn offset(&self) -> Result<u64, Value> {
        self.number("offset", (0, i64::MAX), 0)
    }

    /// Refuses parameters that are not in one of the lists, and repeats of those that take a single value.
    pub(crate) fn check(&self, single: &str, arrays: &str) -> Result<(), Value> {
        for (i, (name, value)) in self.0.iter().enumerate() {
            let is_repeated = self.0[..i].iter().any(|(other, _)| other == name);
            let is_single = single.split(' ').any(|known| known == name);
            let is_known = is_single || arrays.split(' ').any(|known| known == array_name(name));
            let (code, message) = match (is_known, is_single && is_repeated) {
                (true, false) => continue,
                (true, true) => ("invalid_type", "Expected a single value"),
                (false, _) => ("unrecognized_keys", "Unrecognized parameter"),
            };
            return Err(issue(name, code, message, value));
        }
        Ok(())
    }

    fn number(&self, name: &str, (min, max): (i64, i64), default: i64) -> Result<u64, Value> {
        let Some(text) = self.get(name) else {
            return Ok(default as u64);
        };
        // A number may have a minus sign but no plus sign.
        match text.parse::<i64>().ok().filter(|_| !text.starts_with('+')) {
            None => Err(issue(name, "invalid_type", "Expected an integer", text)),
            Some(number) if number < min => Err(issue(name, "too_small", "Too small", text)),
            Some(number) if number > max => Err(issue(name, "too_big", "Too big", text)),
            Some(number) => Ok(number as u64),
        }
    }
}

/// Returns the body of a validation error with one issue.
pub(crate) fn issue(path: &str, code: &str, message: &str, received: &str) -> Value {
    let path = [array_name(path)];
    let issue = json!({ "path": path, "code": code, "message": message, "received": received });
    json!({ "error": "Validation error", "issues": [issue] })
}

fn array_name(name: &str) -> &str {
    name.strip_suffix("[]").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(raw: &str) -> Option<Value> {
        let query = Query::parse(raw);
        let checked = query.check("limit", "a").and_then(|()| query.limit());
        checked.err().map(|body| body["issues"][0]["code"].clone())
    }

    #[test]
    fn parameters_are_checked() {
        for (raw, expected) in [
            ("limit=0", "too_small"),
            ("limit=-5", "too_small"),
            ("limit=1001", "too_big"),
            ("limit=x", "invalid_type"),
            ("limit=", "invalid_type"),
            ("limit=10.5", "invalid_type"),
            ("limit=%2B5", "invalid_type"),
            ("limit=5&limit=6", "invalid_type"),
            ("sort=up", "unrecognized_keys"),
            ("limit[]=5", "unrecognized_keys"),
        ] {
            assert_eq!(code(raw), Some(expected.into()), "{raw}");
        }
        for raw in ["", "limit=1", "limit=1000", "a=1&a[]=2"] {
            assert_eq!(code(raw), None, "{raw}");
        }
    }

    #[test]
    fn array_parameters_come_in_both_forms() {
        let query = Query::parse("a=1&a%5B%5D=2&a[]=3&b=4&a%5b%5d=%C3%BC+x");
        assert_eq!(query.all("a").collect::<Vec<_>>(), ["1", "2", "3", "ü x"]);
    }
}
