//! The probe against the simulator, which knows the truth.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod plain;
mod service;
mod truth;
mod truths;
