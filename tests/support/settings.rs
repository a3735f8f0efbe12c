//! Settings of the parts that tests and benchmarks put together by themselves; what matters to one of them it sets itself.

#![allow(dead_code, reason = "each test crate uses what it needs")]

use std::sync::Arc;
use std::time::Duration;

use orgdata_exporter::api::{self, BaseUrl, Filters, KeySource};
use orgdata_exporter::ledger::{self, ActorLabel, StatePath};

const DAY: Duration = Duration::from_secs(86_400);

/// Of a client with the simulator's key, which is not held back.
pub(crate) fn api(base_url: &str) -> api::Settings {
    api::Settings {
        base_url: BaseUrl::parse(base_url).expect("a base address"),
        key: KeySource::Value("demo-key".into()),
        timeout: Duration::from_secs(10),
        max_requests_per_second: 1e6,
        ca_file: None,
        filters: Filters::default(),
    }
}

/// Of a ledger that keeps records for a collector, as the flags have it unless they are given.
pub(crate) fn ledger(path: StatePath, base_url: impl Into<String>) -> ledger::Settings {
    ledger::Settings {
        path,
        max_size: 256 << 20,
        base_url: base_url.into(),
        filters: Filters::default().fingerprint(),
        outbox: true,
        actor_label: ActorLabel::Id,
        max_actors: 1000,
        actor_idle: 30 * DAY,
        reread_window: Duration::from_secs(3600),
        id_retention: DAY,
        max_dead_letters: 1000,
        redact: Arc::new(str::to_owned),
    }
}
