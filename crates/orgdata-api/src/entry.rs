//! An audit log entry (specification, section 2.1), borrowed from its page.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::number::Number;
use super::text::Text;

/// One audit log entry with every documented field. Nullable fields may also be missing.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(
    missing_docs,
    reason = "the fields are those of the specification's table, under the same names"
)]
pub struct Entry<'a> {
    #[serde(borrow)]
    pub id: Text<'a>,
    /// The activity type: an open set.
    #[serde(borrow)]
    pub r#type: Text<'a>,
    #[serde(borrow)]
    pub occurred_at: Text<'a>,
    #[serde(borrow)]
    pub created_at: Text<'a>,
    #[serde(borrow)]
    pub updated_at: Text<'a>,
    pub organization_id: Number,
    pub deal_id: Option<Number>,
    pub evaluation_id: Option<Number>,
    pub actor_user_id: Option<Number>,
    pub target_user_id: Option<Number>,
    pub modified_target_user_id: Option<Number>,
    /// An object with free keys and any values, left as the service wrote it.
    #[serde(borrow)]
    pub metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    pub organization: Option<Organization<'a>>,
    #[serde(borrow)]
    pub evaluation: Option<Evaluation<'a>>,
    #[serde(borrow)]
    pub deal: Option<Deal<'a>>,
    #[serde(borrow)]
    pub actor_user: Option<UserSummary<'a>>,
    #[serde(borrow)]
    pub target_user: Option<UserSummary<'a>>,
    #[serde(borrow)]
    pub modified_target_user: Option<UserSummary<'a>>,
    #[serde(borrow)]
    pub task: Option<Task<'a>>,
    #[serde(borrow)]
    pub requirement: Option<Requirement<'a>>,
    #[serde(borrow)]
    pub meeting: Option<Meeting<'a>>,
    #[serde(borrow)]
    pub ticket: Option<TicketRef<'a>>,
    #[serde(borrow)]
    pub team_request: Option<TeamRequest<'a>>,
}

macro_rules! titled {
    ($(#[$doc:meta])* $name:ident, $title:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Deserialize)]
        #[expect(missing_docs, reason = "the fields are those of the specification's table, under the same names")]
        pub struct $name<'a> {
            pub id: Number,
            #[serde(borrow)]
            pub $title: Text<'a>,
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
#[expect(
    missing_docs,
    reason = "the fields are those of the specification's table, under the same names"
)]
pub struct UserSummary<'a> {
    pub id: Number,
    #[serde(borrow)]
    pub first_name: Option<Text<'a>>,
    #[serde(borrow)]
    pub last_name: Option<Text<'a>>,
    #[serde(borrow)]
    pub profile_image_url: Option<Text<'a>>,
}

/// An evaluation, perhaps of a deal.
#[derive(Clone, Debug, Deserialize)]
#[expect(
    missing_docs,
    reason = "the fields are those of the specification's table, under the same names"
)]
pub struct Evaluation<'a> {
    pub id: Number,
    #[serde(borrow)]
    pub title: Text<'a>,
    #[serde(borrow)]
    pub deal: Option<Deal<'a>>,
}

/// A task.
#[derive(Clone, Debug, Deserialize)]
#[expect(
    missing_docs,
    reason = "the fields are those of the specification's table, under the same names"
)]
pub struct Task<'a> {
    pub id: Number,
    #[serde(borrow)]
    pub title: Text<'a>,
    #[serde(borrow)]
    pub r#type: Option<Text<'a>>,
}

/// A team request.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(
    missing_docs,
    reason = "the fields are those of the specification's table, under the same names"
)]
pub struct TeamRequest<'a> {
    pub id: Number,
    #[serde(borrow)]
    pub status: Text<'a>,
    #[serde(borrow)]
    pub team_request_type: Option<TeamRequestType<'a>>,
}

titled!(
    /// The kind of a team request.
    TeamRequestType,
    name
);

// === impl Entry ===

impl<'a> Entry<'a> {
    /// Reads one entry and counts the fields that the specification does not name.
    ///
    /// # Errors
    /// Where the entry breaks the contract; the error says which field and how.
    pub fn parse(raw: &'a str) -> Result<(Self, u64), serde_json::Error> {
        let mut unknown = 0;
        let mut deserializer = serde_json::Deserializer::from_str(raw);
        let entry = serde_ignored::deserialize(&mut deserializer, |_| unknown += 1)?;
        deserializer.end()?;
        Ok((entry, unknown))
    }
}

// === impl UserSummary ===

impl UserSummary<'_> {
    /// First and last name, as far as they are known; `None` without either.
    pub fn full_name(&self) -> Option<String> {
        let names: Vec<&str> = [&self.first_name, &self.last_name]
            .into_iter()
            .flatten()
            .map(|name| name.trim())
            .filter(|name| !name.is_empty())
            .collect();
        (!names.is_empty()).then(|| names.join(" "))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const FULL: &str = r#"{"id":"a1","type":"TASK_COMPLETED","occurredAt":"2026-03-01T10:00:00.000Z","createdAt":"2026-03-01T10:00:01.000Z",
        "updatedAt":"2026-03-01T10:00:01.000Z","organizationId":7,"dealId":11,"evaluationId":12,"actorUserId":13,"targetUserId":14,
        "modifiedTargetUserId":15,"metadata":{"b":1,"a":[null,{"x":1.5}]},"organization":{"id":7,"name":"Example"},
        "evaluation":{"id":12,"title":"Pilot","deal":{"id":11,"name":"Big \"deal\""}},"deal":{"id":11,"name":"Big"},
        "actorUser":{"id":13,"firstName":"Ada","lastName":null,"profileImageUrl":null},
        "targetUser":{"id":14,"firstName":null,"lastName":null,"profileImageUrl":"https://img.example/14"},
        "modifiedTargetUser":{"id":15,"firstName":"B","lastName":"C","profileImageUrl":null},
        "task":{"id":1,"title":"T","type":null},"requirement":{"id":2,"title":"R"},"meeting":{"id":3,"title":"M"},
        "ticket":{"id":4,"title":"K"},"teamRequest":{"id":5,"status":"OPEN","teamRequestType":{"id":6,"name":"Legal"}}}"#;

    #[test]
    fn every_documented_field_is_read_and_none_is_unknown() {
        let (entry, unknown) = Entry::parse(FULL).expect("valid");
        assert_eq!(unknown, 0);
        assert_eq!(&*entry.id, "a1");
        assert_eq!(
            entry
                .evaluation
                .expect("present")
                .deal
                .expect("present")
                .name
                .0,
            "Big \"deal\""
        );
        assert_eq!(
            entry.metadata.expect("present").get(),
            r#"{"b":1,"a":[null,{"x":1.5}]}"#
        );
        assert_eq!(
            entry
                .team_request
                .expect("present")
                .team_request_type
                .expect("present")
                .name
                .0,
            "Legal"
        );
        assert_eq!(
            entry.actor_user.expect("present").full_name().as_deref(),
            Some("Ada")
        );
        assert_eq!(entry.target_user.expect("present").full_name(), None);
    }

    #[test]
    fn null_and_missing_are_the_same_where_null_is_allowed() {
        let raw = r#"{"id":"a","type":"X","occurredAt":"t","createdAt":"t","updatedAt":"t","organizationId":1.5,"dealId":null}"#;
        let (entry, _) = Entry::parse(raw).expect("valid");
        assert!(entry.deal_id.is_none() && entry.actor_user.is_none() && entry.metadata.is_none());
        assert_eq!(entry.organization_id.to_string(), "1.5");
    }

    #[test]
    fn unknown_fields_are_counted_at_every_depth() {
        let raw = FULL
            .replacen("{\"id\":\"a1\"", "{\"extra\":{\"deep\":1},\"id\":\"a1\"", 1)
            .replacen(
                "\"firstName\":\"Ada\"",
                "\"nick\":1,\"firstName\":\"Ada\"",
                1,
            );
        assert_eq!(Entry::parse(&raw).expect("valid").1, 2);
    }

    #[test]
    fn an_entry_that_breaks_the_contract_is_an_error_that_names_the_field() {
        let error = Entry::parse(r#"{"id":"a"}"#).expect_err("incomplete");
        assert!(error.to_string().contains("type"), "{error}");
    }
}
