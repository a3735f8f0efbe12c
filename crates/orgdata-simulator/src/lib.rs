//! A simulated Organization Data API server: the specification as a program, for `simulate`, `demo` and tests.
//!
//! It shares no code with the API client, so that a mistake in one is noticed by the other. If the specification is
//! silent, the module that decides says how it is read: rejected keys in `auth`, parameters in `query`, filters and
//! pages in `audit`, tickets in `tickets`. Readings that a client has to cope with are settings, see [`Readings`].
//!
//! The content of an entry is a function of the seed and its number, so a history of a million takes 24 MB. Live entries
//! are a function of the clock.

mod answer;
mod audit;
mod auth;
mod clock;
mod config;
mod control;
mod data;
mod dice;
mod entry;
mod fault;
mod fields;
mod query;
mod readings;
mod response;
mod server;
mod sim;
mod strike;
mod tickets;
mod truth;
mod world;

pub use crate::auth::ApiKey;
pub use crate::clock::ClockSource;
pub use crate::config::{Args, Config};
pub use crate::data::kinds as activity_types;
pub use crate::fault::{Endpoint, Fault, FaultKind, RetryAfter};
pub use crate::fields::{Fields, NotFound};
pub use crate::readings::{KeyReading, Readings, TimeForm, TotalCount};
pub use crate::server::{Running, serve};
pub use crate::sim::{Hook, RequestInfo, Requests, Simulator};
pub use crate::truth::{Moment, Scope, Served, Truth};
