//! Query parameters and the validation errors of section 7.2.
//!
//! Ambiguous places of the specification, as read here: a validation error has the status 400 and names the first
//! issue; an unknown parameter is rejected; of a repeated parameter with one value, the first counts; an array parameter takes `name=a`, `name[]=a`,
//! and repeats of both; a number is a whole one in decimal digits.

use serde::Serialize;
use serde_json::{Value, json};
use url::form_urlencoded;

/// The maximum and the default number of items on a page (section 8).
const MAX_LIMIT: i64 = 1000;
const DEFAULT_LIMIT: i64 = 100;

/// The parameters of a request.
#[derive(Clone, Debug, Default, Serialize)]
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

    /// Rejects parameters that are not in one of the lists.
    pub(crate) fn check(&self, single: &str, arrays: &str) -> Result<(), Value> {
        let is_in = |list: &str, name: &str| list.split(' ').any(|known| known == name);
        let is_known = |name: &str| is_in(single, name) || is_in(arrays, array_name(name));
        match self.0.iter().find(|(name, _)| !is_known(name)) {
            None => Ok(()),
            Some((name, value)) => {
                let (code, message) = ("unrecognized_keys", "Unrecognized parameter");
                Err(issue(name, code, message, value))
            }
        }
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
