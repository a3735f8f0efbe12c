//! The commands `check`, `completions` and `man` of the built binary: each fault is named with what to do, and nothing is changed.

mod collector;
mod deadline;
mod faults;
mod readme;
mod report;
mod service;
mod shell;
mod state;
mod support;
mod web;
