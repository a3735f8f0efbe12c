//! Shared by all modules: delays between attempts, text that is safe to log, and throttled warnings.

pub mod backoff;
pub mod text;
pub mod throttle;

pub use orgdata_api::{error_chain, labels};
