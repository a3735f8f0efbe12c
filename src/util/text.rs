//! Text from peers made safe to show. The API client needs it too, so its crate has the implementation.

pub use orgdata_api::{MAX_EXAMINED, MAX_SHOWN, location, one_line, sanitize};
