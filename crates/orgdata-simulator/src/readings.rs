//! How the silent spots of the specification are read, where a client has to cope with more than one reading.

use serde::{Deserialize, Serialize};

/// How the silent spots of the specification are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Readings {
    /// What `after=` returns if more entries are new than fit on a page.
    pub after: AfterReading,
    /// Whether `after=` also returns the entry of the cursor.
    pub after_inclusive: bool,
    /// Whether `before=` also returns the entry of the cursor.
    pub before_inclusive: bool,
    /// Whether `hasPrevious` is right.
    pub has_previous: FlagReading,
    /// Whether `hasMore` is right.
    pub has_more: FlagReading,
    /// The maximum number of items on a page, whatever limit is requested.
    pub page_cap: Option<u64>,
    /// The order of the audit log. It is fixed at the start.
    pub key: KeyReading,
    /// Whether the `Date` header is missing.
    pub no_date: bool,
    /// The order of the ticket listing.
    pub ticket_order: TicketOrder,
    /// The value of `totalCount` on a ticket page.
    pub total_count: TotalCount,
    /// Whether the ticket listing returns its first page for every offset.
    pub ignore_offset: bool,
}

/// What `after=` returns if more entries are new than fit on the page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AfterReading {
    /// The entries next to the cursor; newer ones follow on later pages.
    #[default]
    Adjacent,
    /// The newest entries, with a hole between them and the cursor.
    Newest,
}

/// Whether a flag of a page is right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlagReading {
    /// It is right.
    #[default]
    Right,
    /// It is always false.
    AlwaysFalse,
    /// It is always true.
    AlwaysTrue,
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

/// The order of the ticket listing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TicketOrder {
    /// Newest first: a new ticket shifts all offsets.
    #[default]
    NewestFirst,
    /// Oldest first: a removed ticket shifts the offsets behind it.
    OldestFirst,
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
    /// Null.
    Null,
    /// The number of tickets plus this number.
    Off(i64),
    /// The number of tickets on the page.
    PageLength,
}
