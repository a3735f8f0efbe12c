//! The API's server side in one process: every rule of the specification, every reading of its silent spots, faults
//! on demand.
//!
//! The simulator shares no code with the client but the specification, so that a mistake in one is seen by the other.
//! It is the executable reading of the specification; where that is silent, each file says at its top how it is read
//! here: refusals in `auth`, parameters in `query`, filters in `filter`, pages and cursors in `page` and `cursor`,
//! tickets in `ticket` and `ticket_page`. Where a client must cope with more than one reading, [`Readings`] chooses.
//!
//! The order of the listing: by `createdAt`, equal times in the order of arrival; or by arrival alone
//! ([`KeyReading`]). Event number i is drawn from the seed and i whenever it is asked for, so a history of millions
//! takes no memory; only what is added by hand is stored. Live events are a function of the clock.

mod answer;
mod args;
mod auth;
mod catalogue;
mod clock;
mod config;
mod control;
mod cursor;
mod desk;
mod dice;
mod draw;
mod ending;
mod fault;
mod fault_text;
mod fields;
mod filter;
mod log;
mod mangle;
mod metadata;
mod operations;
mod page;
mod patch;
mod people;
mod query;
mod readings;
mod server;
mod sim;
mod spans;
mod strike;
mod ticket;
mod ticket_page;
mod ticket_truth;
mod timeline;
mod truth;
mod walk;
mod wire;
mod world;

pub use self::args::{Args, ReadingArgs};
pub use self::auth::ApiKey;
pub use self::clock::ClockSource;
pub use self::config::Config;
pub use self::desk::{NoSuchTicket, TicketError};
pub use self::fault::{Endpoint, Fault, FaultKind, RetryAfter};
pub use self::fault_text::FaultError;
pub use self::log::{RequestInfo, Requests};
pub use self::patch::{FieldError, Fields};
pub use self::readings::{
    AfterReading, CursorReading, EmptyCursor, FlagReading, KeyReading, Order, Readings,
    TicketOrder, TotalCount, UnknownParameters,
};
pub use self::server::{Running, serve};
pub use self::sim::{Hook, Simulator};
pub use self::ticket_truth::{TicketGroup, TicketSums, TicketTruth};
pub use self::truth::{Entries, Mark, MarkError, Scope, Served, Truth};
