//! The tests against real servers and tools. `.ci/setup` installs them; run the tests with `--ignored`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "each test program uses what it needs")]
#[path = "../support"]
mod support {
    pub(crate) mod binary;
    pub(crate) mod busy;
    pub(crate) mod collector_peer;
    pub(crate) mod files;
    #[path = "../../crates/orgdata-api/tests/it/peer.rs"]
    pub(crate) mod http_peer;
    pub(crate) mod openmetrics;
    pub(crate) mod parts;
    pub(crate) mod scrape;
    pub(crate) mod service;
    pub(crate) mod tap;
}

mod alerts;
mod collector;
mod crash;
mod dashboards;
mod disk;
mod examples;
mod formats;
mod helm;
mod image;
mod kubernetes;
mod manifests;
mod prometheus;
mod recipes;
mod records;
mod rejections;
mod release;
mod soak;
mod stdout;
mod systemd;
mod verify;
mod web;

use orgdata_simulator::{ClockSource, Config, Running};
use support::binary::{Launch, exporter};
use support::service::spawn;

/// Simulates an organization with a past, in which nothing happens but what the test does. Its clock is the machine's.
async fn organization(history: u64, tickets: u64) -> Running {
    let config = Config {
        history,
        tickets,
        clock: ClockSource::Real,
        ..Config::quiet()
    };
    spawn(config).await
}

/// Returns an exporter that sends all entries of an organization, also those of the past.
fn sending(simulator: &Running, protocol: &str, endpoint: &str) -> Launch {
    exporter(&simulator.base_url())
        .flag("--audit.start", "oldest")
        .otlp(protocol, endpoint)
}
