//! A simulated Organization Data API server: the specification as a program, for `simulate`, `demo` and tests.
//!
//! It shares no code with the API client, so that a mistake in one is noticed by the other. Where the specification is
//! silent, the module that decides says how it is read: refused keys in `auth`, parameters in `query`, filters and
//! pages in `audit`, tickets in `tickets`. Readings that a client has to cope with are settings, see [`Readings`].
//!
//! Generated entries are a function of the seed and their number, so a history of millions takes no memory. Live
//! entries are a function of the clock. Only entries that are added by hand are stored.

mod answer;
mod args;
mod audit;
mod auth;
mod clock;
mod config;
mod control;
mod cursor;
mod data;
mod dice;
mod entry;
mod fault;
mod fields;
mod log;
mod query;
mod readings;
mod server;
mod sim;
mod strike;
mod ticket_truth;
mod tickets;
mod timeline;
mod truth;
mod world;

pub use crate::args::Args;
pub use crate::auth::ApiKey;
pub use crate::clock::ClockSource;
pub use crate::config::Config;
pub use crate::fault::{Endpoint, Fault, FaultKind, RetryAfter};
pub use crate::fields::{FieldError, Fields};
pub use crate::log::{RequestInfo, Requests};
pub use crate::readings::{
    AfterReading, CursorReading, FlagReading, KeyReading, Readings, TicketOrder, TotalCount,
};
pub use crate::server::{Running, serve};
pub use crate::sim::{Hook, Simulator};
pub use crate::ticket_truth::{TicketGroup, TicketSums, TicketTruth};
pub use crate::tickets::TicketError;
pub use crate::truth::{Mark, Scope, Served, Truth};
