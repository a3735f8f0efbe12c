//! How the specification is read where it is ambiguous, where a client has to cope with more than one reading.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// How the specification is read where it is ambiguous.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Readings {
    /// Whether `before=` also returns the entry of the cursor.
    pub before_inclusive: bool,
    /// The constant value of `hasMore`; `None` if it is right.
    pub has_more: Option<bool>,
    /// The maximum number of items on a page, whatever limit is requested.
    pub page_cap: Option<u64>,
    /// The order of the audit log. It is fixed at the start.
    pub key: KeyReading,
    /// Whether filters apply to a page after it was cut, so that it may be empty with more below.
    pub filter_after_limit: bool,
    /// The number of newest entries that a page does not show, because a replica is behind.
    pub behind: usize,
    /// The number of seconds for which a cursor is valid.
    pub cursor_ttl: Option<u64>,
    /// Whether a cursor that is older than that leads to the newest page instead of a validation error.
    pub expired_is_newest: bool,
    /// Whether the items of a page are listed oldest first.
    pub oldest_first: bool,
    /// How an entry's times are written.
    pub times: TimeForm,
    /// The number of seconds by which `Date` is ahead.
    pub date_ahead: i64,
    /// Whether tickets are listed oldest first, so that a removed one shifts the offsets behind it. Otherwise the newest one
    /// comes first, and a new one shifts all offsets.
    pub tickets_oldest_first: bool,
    /// The value of `totalCount` on a ticket page.
    pub total_count: TotalCount,
    /// Whether the ticket listing returns its first page for every offset.
    pub ignore_offset: bool,
}

/// The order of the audit log, and so of its cursors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyReading {
    /// By `createdAt`, then by arrival: a late entry is listed below cursors that were already handed out.
    #[default]
    CreatedAt,
    /// By arrival: a late entry is listed on top, with an older `createdAt`.
    Arrival,
}

/// How an entry's times are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimeForm {
    /// `2026-11-24T21:03:26.123Z`.
    #[default]
    Iso,
    /// `2026-11-24T21:03:26.123`.
    NoZone,
    /// A number of seconds since 1970.
    Seconds,
    /// A number of milliseconds since 1970.
    Millis,
}

/// The value of `totalCount` on a ticket page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TotalCount {
    /// The number of tickets.
    #[default]
    Right,
    /// The field is missing.
    Missing,
    /// The number of tickets plus this number.
    Off(i64),
    /// The number of tickets on the page.
    PageLength,
}

// === impl Readings ===

impl Readings {
    /// Returns these readings with changes, a JSON object.
    pub(crate) fn with(self, changes: &Value) -> Result<Self, serde_json::Error> {
        let mut readings = json!(self);
        for (name, value) in Map::deserialize(changes)? {
            readings[name] = value;
        }
        serde_json::from_value(readings)
    }

    /// Writes the times of an entry in their form.
    pub(crate) fn write_times(&self, entry: &mut Value) {
        if self.times == TimeForm::Iso {
            return;
        }
        for field in ["occurredAt", "createdAt", "updatedAt"] {
            let time: Option<Timestamp> = entry[field].as_str().and_then(|time| time.parse().ok());
            if let Some(time) = time {
                entry[field] = self.times.write(time);
            }
        }
    }
}

// === impl TimeForm ===

impl TimeForm {
    fn write(self, time: Timestamp) -> Value {
        let format = match self {
            Self::Iso => "%Y-%m-%dT%H:%M:%S%.3fZ",
            Self::NoZone => "%Y-%m-%dT%H:%M:%S%.3f",
            Self::Seconds => return time.as_second().into(),
            Self::Millis => return time.as_millisecond().into(),
        };
        time.strftime(format).to_string().into()
    }
}
