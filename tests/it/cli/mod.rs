//! The built binary as its users meet it: wrong settings, keys, state files, signals, the demo, and an API that misbehaves.

mod demo;
mod key;
mod process;
mod state;
mod usage;

use orgdata_exporter::simulator::Running;

const UP: &str = "orgdata_up{loop=\"audit\"}";

const TICKETS_UP: &str = "orgdata_up{loop=\"tickets\"}";

/// A simulated organization with some tickets, in which nothing else happens.
async fn organization() -> Running {
    crate::support::service::organization(3, 3).await
}

/// A listing that is read within seconds: an empty one is believed after a minute.
const ONE_ENTRY: &str = r#"{"items":[{"id":"1","type":"T","createdAt":"2026-01-01T00:00:00Z"}],"startCursor":"a","endCursor":null,"hasPrevious":false,"hasMore":false}"#;
