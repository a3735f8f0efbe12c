//! How the silent spots of the specification are read, where a client must cope with more than one reading.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How the silent spots of the specification are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Readings {
    /// What `after=` answers when more is new than fits.
    pub after: AfterReading,
    /// Whether `after=` also returns the entry that the cursor was made from.
    pub after_inclusive: bool,
    /// Whether `before=` also returns the entry that the cursor was made from.
    pub before_inclusive: bool,
    /// The order of entries inside a page.
    pub order: Order,
    /// `startCursor` of an empty page.
    pub empty_start_cursor: EmptyCursor,
    /// Whether `hasPrevious` can be trusted.
    pub has_previous: FlagReading,
    /// Whether `hasMore` can be trusted.
    pub has_more: FlagReading,
    /// Most entries or tickets on a page, whatever limit is asked for; `None`: as many as asked.
    pub page_cap: Option<u64>,
    /// What the order of the listing goes by.
    pub key: KeyReading,
    /// What characters a cursor is made of.
    pub cursor: CursorReading,
    /// What happens to query parameters that the specification does not name.
    pub unknown_parameters: UnknownParameters,
    /// Whether answers lack the `Date` header.
    pub no_date: bool,
    /// The order of tickets.
    pub ticket_order: TicketOrder,
    /// What `totalCount` of a ticket page says.
    pub total_count: TotalCount,
    /// Whether the ticket listing answers every offset with its first page.
    pub ignore_offset: bool,
}

/// What `after=` answers when more entries are new than fit on the page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AfterReading {
    /// The entries next to the cursor; the newest ones follow on later pages.
    #[default]
    Adjacent,
    /// The newest entries; between them and the cursor is a hole.
    Newest,
}

/// The order of entries inside a page. `startCursor` is the newest entry's and `endCursor` the oldest one's in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// The newest entry comes first.
    #[default]
    NewestFirst,
    /// The oldest entry comes first.
    OldestFirst,
}

/// `startCursor` of a page without entries, asked for with `after=`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EmptyCursor {
    /// The cursor that was given.
    #[default]
    Echo,
    /// Null.
    Null,
}

/// Whether a flag of a page can be trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlagReading {
    /// It says what is the case.
    #[default]
    Right,
    /// It is always false.
    AlwaysFalse,
    /// It is always true.
    AlwaysTrue,
}

/// What the order of the listing, and so a cursor, goes by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyReading {
    /// `createdAt`, then arrival: an entry that arrives late falls behind cursors already handed out.
    #[default]
    CreatedAt,
    /// Arrival: an entry that arrives late is on top, with a `createdAt` that goes back.
    Arrival,
}

/// What characters a cursor is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CursorReading {
    /// Letters, digits, `-` and `_`: safe in an address as they are.
    #[default]
    UrlSafe,
    /// Also `+`, `/` and `=`, which a client must encode.
    Reserved,
}

/// What happens to query parameters that the specification does not name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnknownParameters {
    /// Nothing.
    #[default]
    Ignore,
    /// The request is refused with a validation error.
    Refuse,
}

/// The order of tickets in the listing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TicketOrder {
    /// The ticket created last comes first: a new one shifts all offsets.
    #[default]
    NewestFirst,
    /// The ticket created first comes first: a removed one shifts the offsets behind it.
    OldestFirst,
}

/// What `totalCount` of a ticket page says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum TotalCount {
    /// How many tickets there are.
    #[default]
    Right,
    /// Nothing: the field is missing.
    Missing,
    /// Null.
    Null,
    /// So many more (fewer, when negative) than there are.
    Off(i64),
    /// How many tickets are on this page.
    PageLength,
}

// === impl TotalCount ===

/// `right`, `missing`, `null`, `page-length`, or a number to add, as `-1`.
impl FromStr for TotalCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "right" => Self::Right,
            "missing" => Self::Missing,
            "null" => Self::Null,
            "page-length" => Self::PageLength,
            _ => Self::Off(text.parse().map_err(|_| {
                format!("{text:?}: right, missing, null, page-length or a number to add")
            })?),
        })
    }
}

impl fmt::Display for TotalCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Right => f.write_str("right"),
            Self::Missing => f.write_str("missing"),
            Self::Null => f.write_str("null"),
            Self::PageLength => f.write_str("page-length"),
            Self::Off(by) => write!(f, "{by:+}"),
        }
    }
}

impl From<TotalCount> for String {
    fn from(count: TotalCount) -> Self {
        count.to_string()
    }
}

impl TryFrom<String> for TotalCount {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}
