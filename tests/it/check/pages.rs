//! Each command line in the documentation is one of the program.

use clap::CommandFactory as _;
use clap::error::ErrorKind;
use orgdata_exporter::commands::Cli;

use crate::support::files::{below, file};

/// Returns the command lines in a page: what follows the program's name in a line of code, if it begins with a command or a flag.
fn commands(text: &str) -> Vec<String> {
    let joined = text.replace("\\\n", " ");
    // What is within backticks, which the end of a line may break, and indented lines.
    let spans = joined.split('`').skip(1).step_by(2);
    let spans = spans.flat_map(|span| match span.lines().count() {
        2 => vec![span.replace('\n', " ")],
        _ => span.lines().map(str::to_owned).collect(),
    });
    let indented = joined.lines().filter(|line| line.starts_with("    "));
    let indented = indented
        .filter(|line| !line.contains('`'))
        .map(str::to_owned);
    let commands = Cli::command();
    let names: Vec<&str> = commands
        .get_subcommands()
        .map(|one| one.get_name())
        .collect();
    let command = |line: String| {
        let line = line.trim_start_matches(['$', ' ']);
        let rest = line.strip_prefix("orgdata-exporter ")?;
        // Not a form such as `completions SHELL`.
        let is_form = rest.contains(" SHELL") || rest.contains('[');
        let rest = rest
            .split([';', '|', '>', '<', '#', '&', '"', '…', '$'])
            .next()?
            .trim();
        let first = rest.split(' ').next()?;
        let is_ours = first.starts_with("--") || names.contains(&first);
        (is_ours && !is_form).then(|| rest.to_owned())
    };
    spans.chain(indented).filter_map(command).collect()
}

#[test]
fn every_command_line_in_the_documentation_is_one() {
    let mut pages = ["docs", "deploy", "dashboards"].map(below).concat();
    pages.retain(|(name, _)| [".md", ".txt"].iter().any(|end| name.ends_with(end)));
    pages.push(("README.md".to_owned(), file("README.md")));
    // A sentence may name a command or a flag without what it needs.
    let incomplete = [
        ErrorKind::MissingSubcommand,
        ErrorKind::MissingRequiredArgument,
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
    ];
    let mut count = 0;
    for (name, text) in pages {
        for command in commands(&text) {
            count += 1;
            let words = ["orgdata-exporter"]
                .into_iter()
                .chain(command.split_whitespace());
            if let Err(error) = Cli::command().try_get_matches_from(words) {
                let is_incomplete = incomplete.contains(&error.kind())
                    || error.to_string().contains("a value is required");
                assert!(is_incomplete, "{name}: {command}: {error}");
            }
        }
    }
    assert!(count > 30, "{count}");
}
