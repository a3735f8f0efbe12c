//! All documented fields of an audit log entry (specification, section 2.1), as the floor of the tail benchmark parses
//! them.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Number;
use serde_json::value::RawValue;

/// A JSON string, borrowed if it has no escapes.
#[derive(Clone, Debug)]
pub(crate) struct Text<'a>(#[expect(dead_code, reason = "only parsed")] Cow<'a, str>);

struct TextVisitor;

/// One audit log entry with every documented field. Nullable fields may also be missing.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(dead_code, reason = "only parsed")]
pub(crate) struct Entry<'a> {
    #[serde(borrow)]
    pub(crate) id: Text<'a>,
    /// The activity type: an open set.
    #[serde(borrow)]
    pub(crate) r#type: Text<'a>,
    #[serde(borrow)]
    pub(crate) occurred_at: Text<'a>,
    #[serde(borrow)]
    pub(crate) created_at: Text<'a>,
    #[serde(borrow)]
    pub(crate) updated_at: Text<'a>,
    pub(crate) organization_id: Number,
    pub(crate) deal_id: Option<Number>,
    pub(crate) evaluation_id: Option<Number>,
    pub(crate) actor_user_id: Option<Number>,
    pub(crate) target_user_id: Option<Number>,
    pub(crate) modified_target_user_id: Option<Number>,
    /// An object with free keys and any values, left as the service wrote it.
    #[serde(borrow)]
    pub(crate) metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) organization: Option<Organization<'a>>,
    #[serde(borrow)]
    pub(crate) evaluation: Option<Evaluation<'a>>,
    #[serde(borrow)]
    pub(crate) deal: Option<Deal<'a>>,
    #[serde(borrow)]
    pub(crate) actor_user: Option<UserSummary<'a>>,
    #[serde(borrow)]
    pub(crate) target_user: Option<UserSummary<'a>>,
    #[serde(borrow)]
    pub(crate) modified_target_user: Option<UserSummary<'a>>,
    #[serde(borrow)]
    pub(crate) task: Option<Task<'a>>,
    #[serde(borrow)]
    pub(crate) requirement: Option<Requirement<'a>>,
    #[serde(borrow)]
    pub(crate) meeting: Option<Meeting<'a>>,
    #[serde(borrow)]
    pub(crate) ticket: Option<TicketRef<'a>>,
    #[serde(borrow)]
    pub(crate) team_request: Option<TeamRequest<'a>>,
}

// A macro, because these structs differ in the name of a field.
macro_rules! titled {
    ($(#[$doc:meta])* $name:ident, $title:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Deserialize)]
        #[allow(dead_code, reason = "only parsed")]
        pub(crate) struct $name<'a> {
            pub(crate) id: Number,
            #[serde(borrow)]
            pub(crate) $title: Text<'a>,
        }
    };
}

titled!(
    /// The organization an entry belongs to.
    Organization,
    name
);
titled!(
    /// A deal.
    Deal,
    name
);
titled!(
    /// A requirement.
    Requirement,
    title
);
titled!(
    /// A meeting.
    Meeting,
    title
);
titled!(
    /// A ticket, as an audit log entry names it.
    TicketRef,
    title
);

/// A user as an entry shows one: `actorUser`, `targetUser`, `modifiedTargetUser`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(dead_code, reason = "only parsed")]
pub(crate) struct UserSummary<'a> {
    pub(crate) id: Number,
    #[serde(borrow)]
    pub(crate) first_name: Option<Text<'a>>,
    #[serde(borrow)]
    pub(crate) last_name: Option<Text<'a>>,
    #[serde(borrow)]
    pub(crate) profile_image_url: Option<Text<'a>>,
}

/// An evaluation, perhaps of a deal.
#[derive(Clone, Debug, Deserialize)]
#[allow(dead_code, reason = "only parsed")]
pub(crate) struct Evaluation<'a> {
    pub(crate) id: Number,
    #[serde(borrow)]
    pub(crate) title: Text<'a>,
    #[serde(borrow)]
    pub(crate) deal: Option<Deal<'a>>,
}

/// A task.
#[derive(Clone, Debug, Deserialize)]
#[allow(dead_code, reason = "only parsed")]
pub(crate) struct Task<'a> {
    pub(crate) id: Number,
    #[serde(borrow)]
    pub(crate) title: Text<'a>,
    #[serde(borrow)]
    pub(crate) r#type: Option<Text<'a>>,
}

/// A team request.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(dead_code, reason = "only parsed")]
pub(crate) struct TeamRequest<'a> {
    pub(crate) id: Number,
    #[serde(borrow)]
    pub(crate) status: Text<'a>,
    #[serde(borrow)]
    pub(crate) team_request_type: Option<TeamRequestType<'a>>,
}

titled!(
    /// The kind of a team request.
    TeamRequestType,
    name
);

// === impl Entry ===

impl<'a> Entry<'a> {
    /// Parses an entry and counts the fields that the specification does not document.
    pub(crate) fn parse(raw: &'a str) -> Result<(Self, u64), serde_json::Error> {
        let mut unknown = 0;
        let mut deserializer = serde_json::Deserializer::from_str(raw);
        let entry = serde_ignored::deserialize(&mut deserializer, |_| unknown += 1)?;
        deserializer.end()?;
        Ok((entry, unknown))
    }
}

// === impl Text ===

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor).map(Text)
    }
}

// === impl TextVisitor ===

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}
