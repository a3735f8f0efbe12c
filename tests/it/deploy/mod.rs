//! What is in `deploy/` agrees with the program, with `dashboards/` and with itself, as far as that can be seen without the
//! tools that it is for; those run in `tests/real_*.rs`.
//!
//! Copies of files of other directories are written anew by `UPDATE=1 cargo test --test deploy`.

mod kubernetes;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use clap::CommandFactory as _;
use orgdata_exporter::cli::Cli;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// A file of the repository.
fn file(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The files below a directory, with their paths.
fn below(directory: &str) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(root().join(directory)).expect("a directory") {
        let path = format!(
            "{directory}/{}",
            entry.expect("an entry").file_name().to_string_lossy()
        );
        if root().join(&path).is_dir() {
            files.extend(below(&path));
        } else {
            files.push((path.clone(), file(&path)));
        }
    }
    files
}

/// A generated file is as its source says; with `UPDATE` in the environment it is made so.
fn generated(path: &str, wanted: &str) {
    if std::env::var_os("UPDATE").is_some() {
        fs::write(root().join(path), wanted).expect("the repository is writable");
    }
    let there = fs::read_to_string(root().join(path)).unwrap_or_default();
    assert!(
        there == wanted,
        "{path} is out of date: UPDATE=1 cargo test --test deploy"
    );
}

/// The groups of the alert rules as they stand in their file, further in by so much.
fn rule_groups(indent: usize) -> String {
    let rules = file("dashboards/alerts.yaml");
    let groups = &rules[rules.find("groups:\n").expect("a rule file")..];
    let indent = " ".repeat(indent);
    groups
        .lines()
        .map(|line| {
            if line.is_empty() {
                "\n".to_owned()
            } else {
                format!("{indent}{line}\n")
            }
        })
        .collect()
}

/// The variables that the program reads for its flags.
fn variables() -> BTreeSet<String> {
    let command = Cli::command();
    let variables = command
        .get_arguments()
        .filter_map(|argument| argument.get_env()?.to_str().map(str::to_owned));
    let variables: BTreeSet<String> = variables.collect();
    assert!(variables.contains("ORGDATA_API_BASE_URL"), "{variables:?}");
    variables
}
