//! What one commit writes and what it reports back.

use std::collections::{BTreeMap, HashSet};
use std::ops::{Deref, Range};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use strum::{AsRefStr, EnumString, IntoStaticStr, VariantArray};

/// Two clocks that differ by less are taken for equal: `Date` has whole seconds, and the response took a moment.
const CLOCKS_AGREE: SignedDuration = SignedDuration::from_millis(2500);

/// The beginning of the ids of gaps and checkpoints: no entry has such an id.
pub(crate) const OWN_ID: &str = "orgdata.exporter.";

/// The beginning of the id of every checkpoint.
pub(crate) const CHECKPOINT_ID: &str = "orgdata.exporter.checkpoint-";

/// An entry's identity: a keyed hash of its id, or of its bytes if it has no usable id.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub struct EventId(pub u64);

/// A set of identities, with a hash that is faster than the standard library's.
pub(crate) type EventIds = HashSet<EventId, foldhash::fast::RandomState>;

/// What to do with an entry that the ledger does not hold yet. In every case its id becomes known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Neither delivered nor counted: it was there before.
    Ignored,
    /// Neither delivered nor counted: it is outside the filters, and was sent in spite of them.
    Filtered,
    /// Delivered, not counted: it is not newer than the watermark, and was there before or may have been known once.
    Backdated,
    /// Delivered and counted.
    Live,
    /// Found below entries that are settled; delivered and counted.
    Late,
}

/// What the ledger knows of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Nothing.
    Unknown,
    /// It was met since the last sweep ended.
    Unsettled,
    /// It was met before, and the sweep of this number settled it.
    Settled(u32),
}

/// Known ids that are no longer needed: those of pages that were settled by a sweep, are not newer than a time, and have none of those that are kept.
#[derive(Clone, Debug, Default)]
pub struct Prune {
    /// The number of the sweep.
    pub(crate) sweep: u32,
    /// The time.
    pub(crate) at: Timestamp,
    /// These are kept.
    pub(crate) listed: EventIds,
    /// So many of the newest ones are kept, too.
    pub(crate) newest: u32,
}

/// The actor, if the entry names one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ActorRef {
    /// The user's id as text.
    pub id: String,
    /// First and last name.
    pub name: Option<String>,
}

/// An entry to write.
#[derive(Clone, Debug)]
pub struct NewEntry {
    /// Its identity.
    pub id: EventId,
    /// When it was created; when its page arrived if it has no readable time.
    pub created_at: Timestamp,
    /// What to do with it.
    pub disposition: Disposition,
    /// What it is counted as; `None` if it cannot be counted, and is a dead letter.
    pub activity_type: Option<String>,
    /// The actor; `None` for the system.
    pub actor: Option<ActorRef>,
    /// What in it breaks the contract.
    pub problem: Option<&'static str>,
    /// It matches `--metrics.exclude-activity-types`: not counted.
    pub is_uncounted: bool,
    /// It matches `--otlp.exclude-activity-types`: not sent.
    pub is_unsent: bool,
    /// The keyed hash of the actor, if its record has that.
    pub hash: Option<String>,
    /// The entry as the API wrote it, without what is redacted.
    pub text: SharedText,
}

/// A part of a text, such as an entry of a page, without a copy of it.
#[derive(Clone, Debug)]
pub struct SharedText {
    whole: Arc<String>,
    part: Range<usize>,
}

/// What a log record stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecordKind {
    /// An audit log entry.
    #[default]
    Entry,
    /// A gap in the audit trail.
    Gap,
    /// A [`Checkpoint`].
    Checkpoint,
}

/// Why something is a dead letter; as text, its name in the file and in listings.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    AsRefStr,
    EnumString,
    IntoStaticStr,
    VariantArray,
    serde::Serialize,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum DeadReason {
    /// An entry that cannot be counted.
    Malformed,
    /// The collector rejected this record.
    Rejected,
    /// The record alone is larger than the collector accepts.
    TooLarge,
    /// The collector rejected a part of the request without saying which.
    PartlyRejected,
}

/// Why the audit trail has a gap; as text, a value of the record attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, AsRefStr)]
#[strum(serialize_all = "snake_case")]
pub enum GapReason {
    /// The listing ended before an entry that the ledger holds, and entries may have been deleted in between.
    Retention,
    /// A page could not be read for a day.
    Unreadable,
    /// There are more unread entries than ids can be kept.
    TooMany,
    /// The entries were read while no collector was configured.
    NotRecorded,
}

/// Entries that cannot be delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Why.
    pub(crate) reason: GapReason,
    /// The beginning of the gap, if known.
    pub(crate) from: Option<Timestamp>,
    /// The end of the gap, if known.
    pub(crate) to: Option<Timestamp>,
    /// A sentence for an operator.
    pub(crate) message: String,
}

/// What the exporter says about its own log records once an hour, as JSON the body of a record.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Checkpoint {
    /// Its own id.
    pub(crate) id: String,
    /// The number of the record before it.
    pub(crate) last_sequence: i64,
    /// Every entry that was listed by this time had been taken.
    pub(crate) complete_through: Option<Timestamp>,
    /// The number of dead letters.
    pub(crate) dead_letters: u64,
    /// The numbers of their records, such as `3-5,9`; absent if there are too many.
    pub(crate) dead_letter_sequences: Option<String>,
    /// The version of the exporter.
    pub(crate) version: String,
}

/// What one transaction changes. Everything that is `None` or empty stays as it is.
#[derive(Clone, Debug, Default)]
pub struct Commit {
    /// When the page arrived, by this machine's clock.
    pub(crate) arrived_at: Timestamp,
    /// The API's clock when it answered.
    pub(crate) server_time: Timestamp,
    /// The poll that fetched the page, as in `traceparent`.
    pub(crate) trace: Option<String>,
    /// Entries that the ledger does not hold, oldest first.
    pub entries: Vec<NewEntry>,
    /// The number of the sweep that settles them.
    pub(crate) sweep: u32,
    /// The number of the last sweep that ended: all that has this number or a lower one is settled.
    pub(crate) settled: u32,
    /// Since when log records wait for older entries that are still to be read, by this machine's clock; `None` if they do not.
    pub(crate) held_since: Option<Timestamp>,
    /// The state of the tail after this commit, as JSON.
    pub(crate) tail: Option<String>,
    /// Every entry that was listed by this time is in the file.
    pub(crate) complete_through: Option<Timestamp>,
    /// The organization's id and name.
    pub(crate) organization: Option<(String, Option<String>)>,
    /// Entries repeated within a page.
    pub(crate) duplicates: u64,
    /// Gaps found.
    pub(crate) gaps: Vec<Gap>,
    /// A sweep takes these entries. Their ids are always kept, because the next one meets them again.
    pub(crate) is_sweep: bool,
    /// A sweep was cut.
    pub(crate) is_cut: bool,
    /// Ids that are no longer needed.
    pub(crate) prune: Option<Prune>,
}

/// The key belongs to another organization than the state file.
#[derive(Debug, thiserror::Error)]
#[error(
    "the API key belongs to organization {found}, but the state file to {expected}; use a key of organization {expected}, or set --state.path to another file"
)]
pub struct OtherOrganization {
    /// The key's organization.
    pub(crate) found: String,
    /// The file's organization.
    pub(crate) expected: String,
}

/// A counter without labels; as text, its name in the state file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, AsRefStr, EnumString, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Total {
    /// Events found by a re-read.
    Late,
    /// Entries that came again as new.
    Duplicate,
    /// Entries that violate the contract.
    Malformed,
    /// Events counted under `other`.
    Folded,
    /// Sweeps that a pass has to complete.
    Cut,
    /// Gaps.
    Gaps,
    /// Entries outside the configured filters.
    Filtered,
    /// Entries older than the watermark.
    Backdated,
    /// Events that match `--metrics.exclude-activity-types`.
    Uncounted,
    /// Log records that match `--otlp.exclude-activity-types`.
    Unsent,
}

/// The labels of an event counter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventLabels {
    /// The activity type.
    pub activity_type: Arc<str>,
    /// The actor as `--metrics.actor-label` shows it; `None` if it shows none.
    pub actor: Option<Arc<str>>,
}

/// What a transaction changed, for the caller to publish.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Label sets that may be new, and the values they had before this transaction.
    pub introduced: Vec<(EventLabels, u64)>,
    /// Increases.
    pub events: Vec<(EventLabels, u64)>,
    /// Increases of the counters without labels.
    pub totals: Vec<(Total, u64)>,
    /// Actors and their current names.
    pub names: Vec<(Arc<str>, String)>,
    /// Creation time of the newest entry.
    pub newest: Option<Timestamp>,
    /// Seconds from creation to counting, for live events.
    pub delays: Vec<f64>,
    /// The newest creation time of the ids that were pruned so far.
    pub pruned: Option<Timestamp>,
}

// === impl OtherOrganization ===

impl OtherOrganization {
    /// What is wrong, as a label value.
    pub(crate) const REASON: &str = "other_organization";

    /// Returns the organization of a page whose items name these ones: that of the state file, else that of most items.
    ///
    /// # Errors
    /// If the items name others and not that of the state file. A few odd items do not make it another organization's.
    pub(crate) fn check(named: &[i64], expected: Option<&str>) -> Result<Option<i64>, Self> {
        let known = expected.and_then(|id| id.parse().ok());
        let mut counts: BTreeMap<i64, usize> = BTreeMap::new();
        for id in named {
            *counts.entry(*id).or_default() += 1;
        }
        let is_ours = known.is_some_and(|id| counts.contains_key(&id));
        let most = counts.into_iter().max_by_key(|(_, count)| *count);
        match (most, expected) {
            (Some((found, _)), Some(expected)) if !is_ours => Err(Self {
                found: found.to_string(),
                expected: expected.to_owned(),
            }),
            (most, _) => Ok(known.or(most.map(|(id, _)| id))),
        }
    }
}

// === impl Gap ===

impl Gap {
    /// Returns the gap of the entries created from `from` to `to` that were read while no collector was configured.
    pub(super) fn not_recorded(from: Timestamp, to: Timestamp) -> Self {
        Self {
            reason: GapReason::NotRecorded,
            from: Some(from),
            to: Some(to),
            message: format!(
                "no collector was configured when entries created from {from} to {to} were read; their log records were not made"
            ),
        }
    }

    /// Returns the JSON that becomes the body of the gap's log record.
    pub(super) fn to_json(&self, detected_at: Timestamp) -> String {
        serde_json::json!({
            "id": format!("{OWN_ID}gap-{}", uuid::Uuid::new_v4()),
            "type": "gap",
            "detectedAt": detected_at.to_string(),
            "reason": self.reason.as_ref(),
            "from": self.from.map(|at| at.to_string()),
            "to": self.to.map(|at| at.to_string()),
            "message": self.message,
        })
        .to_string()
    }
}

// === impl NewEntry ===

impl NewEntry {
    /// Reports whether the entry is taken: delivered, or kept as a dead letter.
    pub(super) fn is_taken(&self) -> bool {
        !matches!(
            self.disposition,
            Disposition::Ignored | Disposition::Filtered
        )
    }

    /// Reports whether the entry is an event that has not been there before.
    pub(super) fn is_event(&self) -> bool {
        self.activity_type.is_some()
            && matches!(self.disposition, Disposition::Live | Disposition::Late)
    }

    /// Reports whether the entry counts as an event.
    pub(super) fn is_counted(&self) -> bool {
        self.is_event() && !self.is_uncounted
    }

    /// Reports whether the entry is to become a log record, if it is not excluded.
    pub(super) fn is_record(&self) -> bool {
        self.is_taken() && self.activity_type.is_some()
    }
}

// === impl SharedText ===

impl SharedText {
    /// Returns a part of a text.
    pub(crate) fn new(whole: Arc<String>, part: Range<usize>) -> Self {
        Self { whole, part }
    }
}

impl From<String> for SharedText {
    fn from(text: String) -> Self {
        let all = 0..text.len();
        Self::new(Arc::new(text), all)
    }
}

impl Deref for SharedText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.whole[self.part.clone()]
    }
}

// === impl Commit ===

impl Commit {
    /// Returns a commit that changes nothing yet, for a page that the API sent at `server_time`, and that arrived then.
    pub fn new(server_time: Timestamp) -> Self {
        Self {
            arrived_at: server_time,
            server_time,
            ..Self::default()
        }
    }

    /// Returns the present by the API's clock. If this machine's clock agrees with it, it has the fractions.
    pub(super) fn present(&self) -> Timestamp {
        let ahead = self.arrived_at.duration_since(self.server_time);
        if ahead >= SignedDuration::ZERO && ahead <= CLOCKS_AGREE {
            self.arrived_at
        } else {
            self.server_time
        }
    }
}
