//! The tests against real servers and tools, which `.ci/setup` installs; run them with `--ignored`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

#[path = "../support"]
mod support {
    pub(crate) mod binary;
    pub(crate) mod busy;
    pub(crate) mod collector_peer;
    pub(crate) mod exporter;
    pub(crate) mod http_peer;
    pub(crate) mod manifests;
    pub(crate) mod openmetrics;
    pub(crate) mod parts;
    pub(crate) mod tap;
}

mod backfill;
mod backlog;
mod collector;
mod compose;
mod crash;
mod dashboards;
mod disk;
mod examples;
mod formats;
mod helm;
mod image;
mod kubernetes;
mod prometheus;
mod refusals;
mod rotel;
mod systemd;
mod web;
