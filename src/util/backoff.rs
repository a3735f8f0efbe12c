//! Delays between attempts. The API client needs them too, so its crate has the implementation.

pub use orgdata_api::Backoff;
