//! The fields of an audit log entry, and the log record that is made of it: the table "Log records" of the public interface.

use jiff::Timestamp;
use orgdata_api::parse_time;
use otlp_logs::{Allowed, Found, Meta, Place as _, RecordWriter, Redaction, Scalar, places};

use crate::ledger::{ActorPrivacy, ActorRef, Encode, RawRecord, RecordKind};

/// The scope of every record.
pub const SCOPE: &str = "orgdata.audit";

/// The version of the semantic conventions that `log.record.uid` and `user.*` are of.
pub(super) const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.37.0";

/// The event name of a gap in the audit trail.
pub const GAP_EVENT: &str = "orgdata.exporter.gap";

/// The beginning of the event names of audit entries.
const EVENT_PREFIX: &str = "orgdata.audit.";

/// The maximum length of an event name. The activity type is an open string.
const MAX_EVENT_NAME: usize = 128;

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

/// The attributes that are ids of users.
const USER_IDS: [(&str, Field); 3] = [
    ("user.id", Field::ActorUserId),
    ("orgdata.target_user.id", Field::TargetUserId),
    (
        "orgdata.modified_target_user.id",
        Field::ModifiedTargetUserId,
    ),
];

places! {
    /// The fields of an entry, and of a gap record, that are in use. Most ids are at two places: `dealId`, and `id` of
    /// `deal`.
    pub(crate) Field {
        Id: Root b"id",
        Type: Root b"type",
        OccurredAt: Root b"occurredAt",
        CreatedAt: Root b"createdAt",
        DetectedAt: Root b"detectedAt",
        Reason: Root b"reason",
        ActorUser: Root b"actorUser",
        ActorUserId: Root b"actorUserId" | ActorUser b"id",
        ActorFirstName: ActorUser b"firstName",
        ActorLastName: ActorUser b"lastName",
        TargetUser: Root b"targetUser",
        TargetUserId: Root b"targetUserId" | TargetUser b"id",
        ModifiedTargetUser: Root b"modifiedTargetUser",
        ModifiedTargetUserId: Root b"modifiedTargetUserId" | ModifiedTargetUser b"id",
        Organization: Root b"organization",
        OrganizationId as "orgdata.organization.id": Root b"organizationId" | Organization b"id",
        OrganizationName as "orgdata.organization.name": Organization b"name",
        Deal: Root b"deal",
        DealId as "orgdata.deal.id": Root b"dealId" | Deal b"id",
        DealName as "orgdata.deal.name": Deal b"name",
        Evaluation: Root b"evaluation",
        EvaluationId as "orgdata.evaluation.id": Root b"evaluationId" | Evaluation b"id",
        EvaluationTitle as "orgdata.evaluation.title": Evaluation b"title",
        Task: Root b"task",
        TaskId as "orgdata.task.id": Task b"id",
        Requirement: Root b"requirement",
        RequirementId as "orgdata.requirement.id": Requirement b"id",
        Meeting: Root b"meeting",
        MeetingId as "orgdata.meeting.id": Meeting b"id",
        Ticket: Root b"ticket",
        TicketId as "orgdata.ticket.id": Ticket b"id",
        TeamRequest: Root b"teamRequest",
        TeamRequestId as "orgdata.team_request.id": TeamRequest b"id",
        TeamRequestStatus as "orgdata.team_request.status": TeamRequest b"status",
    }
}

/// Turns entries and gaps into log records, without what has to be redacted.
#[derive(Clone, Debug, Default)]
pub struct RecordEncoder {
    redaction: Redaction,
    /// Makes the attribute `user.hash`.
    hash: Option<ActorPrivacy>,
}

// === impl RecordEncoder ===

impl RecordEncoder {
    /// Returns an encoder that leaves out the users, and everything that the specification does not name, unless all of the actor is
    /// shown, and replaces the values at these paths in `metadata`.
    pub fn new(actor: ActorPrivacy, paths: &[String]) -> Self {
        let in_metadata = |path: &String| match path.split('.').next() {
            Some("metadata") => path.clone(),
            _ => format!("metadata.{path}"),
        };
        Self {
            redaction: Redaction {
                allowed: match actor {
                    ActorPrivacy::Full => Allowed::All,
                    _ => WITHOUT_USERS,
                },
                replaced: paths.iter().map(in_metadata).collect(),
            },
            hash: Some(actor).filter(|actor| matches!(actor, ActorPrivacy::Hash(_))),
        }
    }

    /// Returns the hash of the actor's id, which the record does not have.
    fn hash(&self, json: &str) -> Option<String> {
        let (label, mut unused) = (self.hash.as_ref()?, Vec::new());
        let mut repaired = String::new();
        let mut writer = RecordWriter::begin(false, &mut unused);
        let found = writer.body::<Field>(json, &Redaction::default(), &mut repaired);
        let id = found.get(Field::ActorUserId).to_text()?.into_owned();
        label.label(Some(&ActorRef { id, name: None }))
    }
}

impl Encode for RecordEncoder {
    fn encode(&self, record: &RawRecord<'_>, out: &mut Vec<u8>) {
        let is_gap = record.kind == RecordKind::Gap;
        let mut writer = RecordWriter::begin(is_gap, out);
        let redaction = if is_gap {
            &Redaction::default()
        } else {
            &self.redaction
        };
        let mut repaired = String::new();
        let found = writer.body::<Field>(record.json, redaction, &mut repaired);
        writer.attribute("log.record.uid", &as_text(&found, Field::Id));
        if is_gap {
            writer.attribute("orgdata.gap.reason", found.get(Field::Reason));
        } else {
            let activity_type = found.text(Field::Type);
            writer.attribute("orgdata.activity.type", &activity_type.into());
            // `user.id` is a string in the semantic conventions, so the other ids of users are strings too.
            for (key, field) in USER_IDS {
                writer.attribute(key, &as_text(&found, field));
            }
            writer.attribute("user.hash", &self.hash(record.json).into());
            writer.attribute("user.full_name", &full_name(&found).into());
            for (key, field) in Field::ATTRIBUTES {
                writer.attribute(key, found.get(*field));
            }
        }
        if found.is_cut {
            writer.attribute("orgdata.record.cut", &Scalar::Bool(true));
        }
        let observed = nanoseconds(record.arrived_at).unwrap_or_default();
        let times: &[Field] = match record.kind {
            RecordKind::Entry => &[Field::OccurredAt, Field::CreatedAt],
            RecordKind::Gap => &[Field::DetectedAt],
        };
        let time = |field| nanoseconds(parse_time(&found.get(field).to_text()?)?);
        writer.end(&Meta {
            time: times.iter().copied().find_map(time).unwrap_or(observed),
            observed,
            event_name: &match record.kind {
                RecordKind::Entry => event_name(found.text(Field::Type).unwrap_or_default()),
                RecordKind::Gap => GAP_EVENT.to_owned(),
            },
            trace: record.trace.map(|trace| (trace.trace_id, trace.span_id)),
        });
    }

    fn redact(&self, json: &str) -> String {
        otlp_logs::redacted::<Field>(json, &self.redaction)
    }

    fn decode(&self, record: &[u8]) -> (RecordKind, String) {
        let (event_name, body) = otlp_logs::decode(record);
        let kind = match event_name == GAP_EVENT {
            true => RecordKind::Gap,
            false => RecordKind::Entry,
        };
        (kind, body.to_string())
    }
}

fn as_text<'a>(found: &'a Found<'_>, field: Field) -> Scalar<'a> {
    found.get(field).to_text().into()
}

/// Returns the actor's first and last name, as far as they are known.
fn full_name(found: &Found<'_>) -> Option<String> {
    let name = |field| found.text(field).map(str::trim).filter(|n| !n.is_empty());
    let names = [Field::ActorFirstName, Field::ActorLastName].map(name);
    let names: Vec<&str> = names.into_iter().flatten().collect();
    (!names.is_empty()).then(|| names.join(" "))
}

/// Returns `orgdata.audit.` and the activity type in lower case, with `_` for anything but letters, digits, `_` and `.`.
fn event_name(activity_type: &str) -> String {
    let tame = |c: char| match c.to_ascii_lowercase() {
        c @ ('a'..='z' | '0'..='9' | '.') => c,
        _ => '_',
    };
    let mut name = EVENT_PREFIX.to_owned();
    match activity_type {
        "" => name.push_str("unknown"),
        known => name.extend(
            known
                .chars()
                .map(tame)
                .take(MAX_EVENT_NAME - EVENT_PREFIX.len()),
        ),
    }
    name
}

/// Returns nanoseconds since the epoch. OTLP has no times before it, and 0 means unknown.
fn nanoseconds(time: Timestamp) -> Option<u64> {
    let nanoseconds = u64::try_from(time.as_nanosecond()).ok()?;
    (nanoseconds > 0).then_some(nanoseconds)
}

#[cfg(test)]
#[path = "fields_tests.rs"]
mod tests;
