//! The ticket scan through its public surface: scripted pages, changes between any two requests, and a real socket.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

#[path = "../support/captured.rs"]
mod captured;
#[path = "../support/cases.rs"]
mod cases;
#[path = "../support/fast.rs"]
mod fast;
#[path = "../support/settings.rs"]
mod settings;

mod meaning;
mod movement;
mod properties;
mod publishing;
mod servers;
mod socket;
mod support;
