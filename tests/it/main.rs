//! The fast tests: everything a user would notice that needs nothing but Rust.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

#[allow(dead_code, reason = "each test program uses what it needs")]
#[path = "../support"]
mod support {
    pub(crate) mod binary;
    pub(crate) mod busy;
    pub(crate) mod captured;
    pub(crate) mod collector_peer;
    #[cfg(target_os = "linux")]
    pub(crate) mod disk_faults;
    pub(crate) mod files;
    #[path = "../../crates/orgdata-api/tests/it/peer.rs"]
    pub(crate) mod http_peer;
    pub(crate) mod openmetrics;
    pub(crate) mod scrape;
    pub(crate) mod service;
    pub(crate) mod settings;
}

mod check;
mod cli;
mod corpus;
mod dead_letters;
mod deploy;
#[cfg(target_os = "linux")]
mod disk;
#[cfg(target_os = "linux")]
mod disk_images;
mod docs;
mod excluded;
mod exposition;
mod field;
mod health;
mod healthcheck;
mod histories;
mod otlp;
mod self_metrics;
mod standins;
mod stdout;
mod structure;
mod switches;
mod tickets;
mod verify;
mod web;
mod web_config;
