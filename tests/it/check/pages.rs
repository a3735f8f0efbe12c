//! Each command line in the documentation is one of the program.

use clap::CommandFactory as _;
use clap::error::ErrorKind;
use orgdata_exporter::commands::Cli;

use crate::support::files::{below, file};

/// Returns what follows the program's name on a page, up to the end of the command line.
fn command_lines(page: &str) -> Vec<String> {
    let page = page.replace("\\\n", " ");
    let lines = page.split("orgdata-exporter ").skip(1);
    let end = ['\n', '`', ';', '|', '>', '<', '#', '&', '"', '…', '$', '['];
    let lines = lines.map(|rest| rest.split(end).next().unwrap_or_default().to_owned());
    lines.collect()
}

#[test]
fn every_command_line_in_the_documentation_is_one() {
    let mut pages = ["docs", "deploy", "dashboards"].map(below).concat();
    pages.retain(|(name, _)| [".md", ".txt"].iter().any(|end| name.ends_with(end)));
    pages.push(("README.md".to_owned(), file("README.md")));
    let program = Cli::command();
    let mut count = 0;
    for (page, text) in pages {
        for line in command_lines(&text) {
            let first = line.split(' ').next().unwrap_or_default();
            let is_ours = first.starts_with("--") && first.contains('.')
                || program.find_subcommand(first).is_some();
            if !is_ours || line.contains("SHELL") {
                continue;
            }
            count += 1;
            let words = ["orgdata-exporter"].into_iter();
            let words = words.chain(line.split_whitespace());
            let Err(error) = program.clone().try_get_matches_from(words) else {
                continue;
            };
            // A sentence may name a command or a flag without what it needs.
            let is_incomplete = [
                ErrorKind::MissingSubcommand,
                ErrorKind::InvalidSubcommand,
                ErrorKind::MissingRequiredArgument,
                ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
            ]
            .contains(&error.kind());
            let is_incomplete = is_incomplete || error.to_string().contains("a value is required");
            assert!(is_incomplete, "{page}: {line}: {error}");
        }
    }
    assert!(count > 30, "{count}");
}
