//! Delivery of log records: JSON to wire bytes, and the relay from the outbox to the collector.

mod encode;
mod fields;
mod grpc;
mod http;
mod record;
mod relay;
mod sender;
mod settings;
mod spans;
mod stdout;
mod verdict;

pub use encode::Redaction;
#[cfg(any(test, fuzzing))]
pub(crate) use grpc::of_answer;
#[cfg(any(test, fuzzing))]
pub(crate) use http::Answer;
pub use record::{Envelope, GAP_EVENT, RecordEncoder, SCOPE};
pub use relay::{Next, Relay};
pub use sender::{Export, Sender};
pub use settings::{Connection, Flags, Given, Protocol, Settings, Target};
pub use spans::span_provider;
pub use verdict::{FailureReason, Refusal, Verdict};
