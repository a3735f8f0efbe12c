//! OpenTelemetry log records, delivered with one verdict for each request.
//!
//! - [`Sender`] sends a request over gRPC or HTTP, or writes it to standard output, and returns a [`Verdict`]. Any other [`Export`] can take its place.
//! - [`Connection::from_env`] reads the `OTEL_*` variables as the specification defines them.
//!
//! Records and requests are those of `opentelemetry-proto`. The crate does not queue, repeat or drop records.

#![cfg_attr(doctest, doc = include_str!("../README.md"))]

mod grpc;
mod http;
mod sender;
mod settings;
mod stdout;
mod verdict;

pub use connections::ReadFile;
pub use sender::{Certificate, Export, Sender, Target};
pub use settings::{Connection, Given, Protocol, Signal, resource, wrong_attributes};
pub use stdout::{Render, json_line};
pub use verdict::{Reason, Rejection, Verdict, known_phrases};

/// Checks that must hold for any answer of a collector, for fuzzing.
#[doc(hidden)]
pub mod fuzz {
    pub use crate::grpc::of_answer;
    pub use crate::http::HttpAnswer;
}
