//! README names every flag and every metric that the program has, and no flag or metric that it has not.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::CommandFactory;
use orgdata_exporter::commands::Cli;
use orgdata_exporter::metrics::exposition::Format;
use orgdata_exporter::metrics::{Loop, Metrics};

use crate::support::families::ABSENT_AT_FIRST;

const README: &str = include_str!("../../README.md");

/// Words in back quotes that begin like this.
fn quoted(beginning: &str) -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    for piece in README.split('`').skip(1).step_by(2) {
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
        if piece.starts_with(beginning) && piece.chars().all(is_name) {
            words.insert(piece.to_owned());
        }
    }
    words
}

#[test]
fn the_flags_are_those_of_the_program() {
    let command = Cli::command();
    let flags = command
        .get_arguments()
        .filter_map(|argument| argument.get_long());
    let flags = flags.filter(|flag| !["help", "version"].contains(flag));
    let flags: BTreeSet<String> = flags.map(|flag| format!("--{flag}")).collect();
    let mut told = quoted("--");
    told.retain(|flag| flag.contains('.'));
    assert_eq!(flags, told);
}

#[test]
fn the_metrics_are_those_of_the_program() {
    let metrics = Metrics::new(Duration::ZERO);
    metrics.tickets.start();
    for which in Loop::ALL {
        metrics.loops.enable(which);
    }
    let text = Format::Text.encode(metrics.registry(), 0).expect("encodes");
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let names = types.filter_map(|line| line.split(' ').next());
    let mut shown: BTreeSet<String> = names.map(str::to_owned).collect();
    shown.extend(ABSENT_AT_FIRST.map(str::to_owned));
    let mut told = quoted("orgdata_");
    told.extend(quoted("process_"));
    assert_eq!(shown, told);
}
