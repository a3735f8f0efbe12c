//! What goes into the ledger and comes out of it.

use jiff::Timestamp;

/// Where a record stands in the outbox: positions grow from the oldest to the newest record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OutboxPosition {
    /// The page, in the order of commits.
    pub page: i64,
    /// The record inside the page.
    pub index: u32,
}

/// What an outbox record stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// An audit log entry as the service wrote it.
    Entry,
    /// A hole in the audit trail that cannot be filled, as JSON of the exporter's own making.
    Gap,
}

/// The trace and span of the poll that fetched a record, where tracing is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// W3C trace id.
    pub trace_id: [u8; 16],
    /// W3C span id.
    pub span_id: [u8; 8],
}

/// A record that waits for a collector.
#[derive(Clone, Debug, PartialEq)]
pub struct OutboxRecord {
    /// Where it stands.
    pub position: OutboxPosition,
    /// What it stands for.
    pub kind: RecordKind,
    /// When its page arrived.
    pub arrived_at: Timestamp,
    /// The poll that fetched it.
    pub trace: Option<TraceContext>,
    /// The JSON.
    pub raw: String,
}

/// How much waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Records not yet acknowledged.
    pub records: u64,
    /// When the oldest of them arrived.
    pub oldest: Option<Timestamp>,
}

/// Why a record is a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadReason {
    /// An entry of the service that cannot be read well enough to be counted.
    Malformed,
    /// The collector refused this very record for good.
    Refused,
    /// The record alone is larger than the collector takes.
    TooLarge,
    /// It was in a batch of which the collector refused some records without saying which.
    PartlyRejected,
}

/// A record that could not be delivered, kept for an operator.
#[derive(Clone, Debug, PartialEq)]
pub struct DeadLetter {
    /// Why.
    pub reason: DeadReason,
    /// The collector's or the parser's own words.
    pub message: String,
    /// What the record stands for.
    pub kind: RecordKind,
    /// When its page arrived.
    pub arrived_at: Timestamp,
    /// The JSON, already redacted as records are.
    pub raw: String,
}

// === impl RecordKind ===

impl RecordKind {
    /// Reads what the file holds: the kind as a number.
    pub(super) fn from_code(code: i64) -> Self {
        if code == Self::Gap as i64 {
            Self::Gap
        } else {
            Self::Entry
        }
    }
}

// === impl DeadReason ===

impl DeadReason {
    /// Every one.
    pub const ALL: [Self; 4] = [
        Self::Malformed,
        Self::Refused,
        Self::TooLarge,
        Self::PartlyRejected,
    ];

    /// The word for it, in the file and in listings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Refused => "refused",
            Self::TooLarge => "too_large",
            Self::PartlyRejected => "partly_rejected",
        }
    }

    /// Reads the word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == word)
    }
}

/// An entry's identity: a hash of its id, or of its bytes where it has no usable one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventId(pub u64);

/// What becomes of an entry that the ledger did not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Only remembered: it is below one of the floors.
    Baseline,
    /// Delivered, not counted: it was there when the ledger began.
    History,
    /// Delivered and counted.
    Live,
    /// Found behind the frontier: delivered, and counted when it was created after the ledger began.
    Late,
}

/// Who did it, as far as the entry says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActorRef {
    /// The user's id as text.
    pub id: String,
    /// First and last name.
    pub name: Option<String>,
}

/// An entry to be written.
#[derive(Clone, Debug)]
pub struct NewEntry {
    /// Its identity.
    pub id: EventId,
    /// When it was created; for one without a readable time, when its page arrived.
    pub created_at: Timestamp,
    /// What becomes of it.
    pub disposition: Disposition,
    /// What is counted; `None` where it cannot be read well enough, with the reason.
    pub event: Result<NewEvent, String>,
    /// The entry as the service wrote it; taken over by the outbox or the dead letters.
    pub raw: String,
}

/// What an entry is counted as.
#[derive(Clone, Debug)]
pub struct NewEvent {
    /// The activity type.
    pub activity_type: String,
    /// The actor; `None` for the system.
    pub actor: Option<ActorRef>,
    /// Whether some other field breaks the contract.
    pub malformed: bool,
}

/// How far the ledger reaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frontier {
    /// The cursor for newer entries; `None` when the service gave none.
    pub cursor: Option<String>,
    /// The newest entry.
    pub id: Option<EventId>,
}

/// Why the audit trail has a hole that cannot be filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GapReason {
    /// The entry that the ledger ended with is gone from the service.
    FrontierGone,
    /// Pages seen on the way down were gone on the way up.
    RetentionOvertook,
    /// A page fails for good, also one entry at a time.
    UnreadablePage,
    /// Paging went in circles.
    NoProgress,
    /// A page of the state file's outbox was damaged: its events are counted, their records are lost.
    DamagedPage,
    /// The state file was damaged as a whole: what happened until the fresh one began is not known of.
    StateRecreated,
}

/// A hole in the audit trail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Why.
    pub reason: GapReason,
    /// After this time, as far as it is known.
    pub from: Option<Timestamp>,
    /// Before this time, as far as it is known.
    pub to: Option<Timestamp>,
    /// A sentence for an operator.
    pub message: String,
}

/// Which kind of walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WalkKind {
    /// From the top down to the start floor, when the ledger is new.
    FirstStart,
    /// Down to the frontier, when more is new than a page holds.
    CatchUp,
    /// Down an hour, for late rows.
    Reread,
    /// Down to the frontier, when the cursor is at fault.
    Recovery,
}

/// Which way a walk goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Looking.
    Down,
    /// Taking.
    Up,
}

/// A page passed on the way down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The cursor it was asked for with; `None` for the page that the walk began with.
    pub before: Option<String>,
    /// The cursor for what is below it.
    pub end: Option<String>,
    /// Its oldest entry.
    pub bottom: EventId,
}

/// A walk under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walk {
    /// Which kind.
    pub kind: WalkKind,
    /// Which way it goes.
    pub direction: Direction,
    /// The way down ends at a page that was created before this time entirely; `None`: only where nothing is left.
    pub floor: Option<Timestamp>,
    /// When it began, by the service's clock.
    pub started_at: Timestamp,
    /// On the way up: what is above is new for sure, since the way down ended on something the ledger holds; of a first start, since the
    /// page that it began with was passed.
    pub joined: bool,
    /// The pages passed, the deepest last.
    pub marks: Vec<Mark>,
}

/// How the ledger came to be, kept from its first answer on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Birth {
    /// The service's clock at the first answer.
    pub born_at: Timestamp,
    /// Nothing created before it is ever taken.
    pub start_floor: Option<Timestamp>,
    /// Events created before it are not counted.
    pub count_floor: Option<Timestamp>,
}

// === impl NewEntry ===

impl NewEntry {
    /// Whether it becomes a log record.
    pub(super) fn is_record(&self) -> bool {
        self.disposition != Disposition::Baseline && self.event.is_ok()
    }
}

// === impl GapReason ===

impl GapReason {
    /// The word for it, in the log record.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FrontierGone => "frontier_gone",
            Self::RetentionOvertook => "retention_overtook",
            Self::UnreadablePage => "unreadable_page",
            Self::NoProgress => "no_progress",
            Self::DamagedPage => "damaged_page",
            Self::StateRecreated => "state_recreated",
        }
    }
}

// === impl WalkKind ===

impl WalkKind {
    /// Every kind.
    pub const ALL: [Self; 4] = [
        Self::FirstStart,
        Self::CatchUp,
        Self::Reread,
        Self::Recovery,
    ];

    /// The label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FirstStart => "first_start",
            Self::CatchUp => "catch_up",
            Self::Reread => "reread",
            Self::Recovery => "recovery",
        }
    }

    /// Whether its way up moves the frontier.
    pub fn moves_frontier(self) -> bool {
        self != Self::Reread
    }
}

// === impl Direction ===

impl Direction {
    /// The label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Up => "up",
        }
    }
}

/// What one transaction changes. Everything that is `None` or empty stays as it is.
#[derive(Clone, Debug)]
pub struct Commit {
    /// When the page arrived, by this machine's clock.
    pub arrived_at: Timestamp,
    /// The service's clock when it answered.
    pub server_time: Timestamp,
    /// The poll that fetched the page.
    pub trace: Option<TraceContext>,
    /// Entries that the ledger did not hold, oldest first.
    pub entries: Vec<NewEntry>,
    /// Entries served again as new.
    pub duplicates: u64,
    /// Late events created before it are not counted ([`Birth::count_floor`]).
    pub count_floor: Option<Timestamp>,
    /// The first answer of the service.
    pub birth: Option<Birth>,
    /// The organization, when it is first known.
    pub organization: Option<String>,
    /// New filters, and the floor they raise.
    pub filters: Option<(String, Option<Timestamp>)>,
    /// Where the next poll goes on.
    pub frontier: Option<Frontier>,
    /// Creation time of the newest entry, never later than `server_time`.
    pub frontier_at: Option<Timestamp>,
    /// A re-read that began then is complete.
    pub reread_at: Option<Timestamp>,
    /// The walk.
    pub walk: Option<WalkChange>,
    /// Holes found.
    pub gaps: Vec<Gap>,
    /// The cursor was at fault.
    pub recovered: bool,
}

/// How a walk goes on.
#[derive(Clone, Debug)]
pub enum WalkChange {
    /// A walk begins.
    Begin {
        /// The walk, with its first mark.
        walk: Walk,
        /// The body of its first page, where that cannot be asked for again.
        top: Option<String>,
    },
    /// On the way down, a page was passed; or a page passed earlier ends elsewhere now. Deeper marks are gone.
    Mark {
        /// How many pages are above it.
        depth: usize,
        /// The page.
        mark: Mark,
    },
    /// On the way up, the page at this depth, and everything below it, was taken.
    Up {
        /// How many pages are left above it.
        depth: usize,
        /// Whether all of them are new for sure.
        joined: bool,
    },
    /// The walk is over.
    End,
}

// === impl Commit ===

impl Commit {
    /// How many records it adds to the outbox, where there is one.
    pub(super) fn records(&self, outbox: bool) -> i64 {
        let entries = self
            .entries
            .iter()
            .filter(|entry| entry.is_record())
            .count();
        if outbox {
            (entries + self.gaps.len()).try_into().unwrap_or(i64::MAX)
        } else {
            0
        }
    }

    /// A commit that changes nothing yet, for a page that the service sent at `server_time`.
    pub fn new(server_time: Timestamp) -> Self {
        Self {
            arrived_at: Timestamp::now(),
            server_time,
            trace: None,
            entries: Vec::new(),
            duplicates: 0,
            count_floor: None,
            birth: None,
            organization: None,
            filters: None,
            frontier: None,
            frontier_at: None,
            reread_at: None,
            walk: None,
            gaps: Vec::new(),
            recovered: false,
        }
    }
}
