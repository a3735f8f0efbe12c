//! `--otlp.actor` and `--otlp.redact`: takes what must not leave from the text of an entry, and leaves every other byte as it is.
//!
//! The text is walked by its objects and arrays, each of which is a slice of it. What is replaced or left out is noted by its place, so that numbers,
//! escapes and white space elsewhere stay as the API wrote them.

use std::fmt;

use orgdata_api::Text;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::from_str;
use serde_json::value::RawValue;

use crate::audit::Redact;

/// The maximum nesting. What is deeper is replaced as a whole: each level is read again by those above it.
const MAX_DEPTH: usize = 64;

/// Replaces a redacted value.
const REDACTED: &str = "\"[REDACTED]\"";

/// No member has this name. With this path, a string in place of the whole entry is replaced.
const WHOLE: &[&str] = &["\0"];

/// What must not leave.
#[derive(Clone, Debug)]
pub struct Redaction {
    /// What may leave.
    allowed: Allowed,
    /// Paths whose values become `[REDACTED]`, wherever in an entry they begin. A path is the keys of members joined with dots; every
    /// element of an array is searched. A key that continues a path after a dot is on it too. A string in place of an object on
    /// such a path becomes `[REDACTED]`, because it may contain the value.
    replaced: Vec<String>,
}

/// What may leave of a value.
#[derive(Clone, Copy, Debug)]
enum Allowed {
    /// Everything.
    All,
    /// A scalar. An array or object becomes null.
    Scalar,
    /// Nothing: it becomes null.
    Null,
    /// These members of an object. Others are left out, and anything but an object becomes null.
    Members(&'static [(&'static str, Self)]),
}

/// The objects of an entry (specification, section 2.1).
const NAMED: Allowed = Allowed::Members(&[("id", Allowed::Scalar), ("name", Allowed::Scalar)]);
const TITLED: Allowed = Allowed::Members(&[("id", Allowed::Scalar), ("title", Allowed::Scalar)]);
const EVALUATION: Allowed = Allowed::Members(&[
    ("id", Allowed::Scalar),
    ("title", Allowed::Scalar),
    ("deal", NAMED),
]);
const TASK: Allowed = Allowed::Members(&[
    ("id", Allowed::Scalar),
    ("title", Allowed::Scalar),
    ("type", Allowed::Scalar),
]);
const TEAM_REQUEST: Allowed = Allowed::Members(&[
    ("id", Allowed::Scalar),
    ("status", Allowed::Scalar),
    ("teamRequestType", NAMED),
]);

/// The fields of an entry that remain without its users: those that the specification names.
const WITHOUT_USERS: Allowed = Allowed::Members(&[
    ("id", Allowed::Scalar),
    ("type", Allowed::Scalar),
    ("occurredAt", Allowed::Scalar),
    ("createdAt", Allowed::Scalar),
    ("updatedAt", Allowed::Scalar),
    ("organizationId", Allowed::Scalar),
    ("dealId", Allowed::Scalar),
    ("evaluationId", Allowed::Scalar),
    ("actorUserId", Allowed::Null),
    ("targetUserId", Allowed::Null),
    ("modifiedTargetUserId", Allowed::Null),
    ("metadata", Allowed::All),
    ("organization", NAMED),
    ("evaluation", EVALUATION),
    ("deal", NAMED),
    ("actorUser", Allowed::Null),
    ("targetUser", Allowed::Null),
    ("modifiedTargetUser", Allowed::Null),
    ("task", TASK),
    ("requirement", TITLED),
    ("meeting", TITLED),
    ("ticket", TITLED),
    ("teamRequest", TEAM_REQUEST),
]);

/// A text that is copied, but for what is replaced or left out.
struct Copy<'t, 'r> {
    text: &'t str,
    redaction: &'r Redaction,
    out: String,
    /// The text is copied, or left out, up to here.
    done: usize,
}

/// The members of an object, in their order.
struct Members<'t>(Vec<(&'t RawValue, &'t RawValue)>);

struct MembersVisitor;

// === impl Redaction ===

impl Redaction {
    /// Returns a redaction that leaves out the users, and everything that the specification does not name, unless it `keeps_users`, and replaces
    /// the values at these paths in `metadata`; `None` if it would change nothing.
    pub fn new(keeps_users: bool, paths: &[String]) -> Option<Self> {
        let in_metadata = |path: &String| match path.split('.').next() {
            Some("metadata") => path.clone(),
            _ => format!("metadata.{path}"),
        };
        let allowed = match keeps_users {
            true => Allowed::All,
            false => WITHOUT_USERS,
        };
        (!keeps_users || !paths.is_empty()).then(|| Self {
            allowed,
            replaced: paths.iter().map(in_metadata).collect(),
        })
    }

    /// Returns what is left of the paths below a member, or `None` if its value is replaced.
    fn below<'r>(&'r self, paths: &[&'r str], key: &str) -> Option<Vec<&'r str>> {
        let mut below = Vec::new();
        let begin = self.replaced.iter().map(String::as_str);
        for path in begin.chain(paths.iter().copied()) {
            if let Some(rest) = path.strip_prefix(key) {
                if rest.is_empty() {
                    return None;
                }
                below.extend(rest.strip_prefix('.'));
            } else if key
                .strip_prefix(path)
                .is_some_and(|rest| rest.starts_with('.'))
            {
                return None;
            }
        }
        Some(below)
    }
}

impl Redact for Redaction {
    fn redact(&self, text: &str) -> String {
        let Ok(value) = from_str::<&RawValue>(text) else {
            return format!("\"[REDACTED] {} bytes that are not JSON\"", text.len());
        };
        let paths = if self.replaced.is_empty() { &[] } else { WHOLE };
        let mut copy = Copy {
            text,
            redaction: self,
            out: String::with_capacity(text.len()),
            done: 0,
        };
        copy.value(value, self.allowed, paths, MAX_DEPTH);
        copy.up_to(text.len());
        copy.out
    }
}

// === impl Copy ===

impl<'t> Copy<'t, '_> {
    /// Copies the text up to here.
    fn up_to(&mut self, end: usize) {
        self.out.push_str(&self.text[self.done..end]);
        self.done = end;
    }

    fn replace(&mut self, value: &RawValue, with: &str) {
        let start = self.start(value);
        self.up_to(start);
        self.out.push_str(with);
        self.done = start + value.get().len();
    }

    /// Returns where a slice of the text begins.
    fn start(&self, value: &RawValue) -> usize {
        value.get().as_ptr().addr() - self.text.as_ptr().addr()
    }

    fn end(&self, value: &RawValue) -> usize {
        self.start(value) + value.get().len()
    }

    /// Looks for what is redacted in a value. `paths` are the rests of those that lead here.
    fn value(&mut self, value: &'t RawValue, allowed: Allowed, paths: &[&str], depth: usize) {
        let kind = value.get().as_bytes().first();
        match (allowed, kind) {
            (Allowed::Null, _)
            | (Allowed::Scalar, Some(b'{' | b'['))
            | (Allowed::Members(_), Some(b'[' | b'"' | b't' | b'f' | b'-' | b'0'..=b'9')) => {
                self.replace(value, "null");
            }
            (_, Some(b'"')) if !paths.is_empty() => self.replace(value, REDACTED),
            // There is nothing to look for.
            (Allowed::All, _) if self.redaction.replaced.is_empty() => {}
            (_, Some(b'{' | b'[')) if depth == 0 => self.replace(value, REDACTED),
            (_, Some(b'{')) => self.object(value, allowed, paths, depth - 1),
            (_, Some(b'[')) => match from_str::<Vec<&RawValue>>(value.get()) {
                Ok(elements) => {
                    for element in elements {
                        self.value(element, allowed, paths, depth - 1);
                    }
                }
                Err(_) => self.replace(value, REDACTED),
            },
            _ => {}
        }
    }

    fn object(&mut self, object: &'t RawValue, allowed: Allowed, paths: &[&str], depth: usize) {
        let Ok(Members(members)) = from_str(object.get()) else {
            return self.replace(object, REDACTED);
        };
        // The end of the last member that stays, and of the last one that is left out behind it.
        let (mut kept, mut left_out) = (None, None);
        for (name, value) in members {
            let key = from_str::<Text<'_>>(name.get()).unwrap_or_default();
            let Some(allowed) = allowed.member(&key) else {
                if left_out.is_none() {
                    self.up_to(kept.unwrap_or(self.start(name)));
                }
                left_out = Some(self.end(value));
                continue;
            };
            if let Some(end) = left_out.take() {
                // The comma before this member is that of the one before.
                self.done = kept.map_or(self.start(name), |_| end);
            }
            match (allowed, self.redaction.below(paths, &key)) {
                (Allowed::Null, _) => self.replace(value, "null"),
                (_, None) => self.replace(value, REDACTED),
                (allowed, Some(paths)) => self.value(value, allowed, &paths, depth),
            }
            kept = Some(self.end(value));
        }
        self.done = left_out.unwrap_or(self.done);
    }
}

// === impl Allowed ===

impl Allowed {
    /// Returns what may leave of a member of an object, or `None` if it is left out.
    fn member(self, key: &str) -> Option<Self> {
        let Self::Members(members) = self else {
            return Some(self);
        };
        let mut members = members.iter();
        let member = members.find(|(name, _)| *name == key);
        member.map(|(_, allowed)| *allowed)
    }
}

// === impl Members ===

impl<'de: 't, 't> Deserialize<'de> for Members<'t> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Members(members))
    }
}

#[cfg(test)]
#[path = "redact_tests.rs"]
mod tests;
