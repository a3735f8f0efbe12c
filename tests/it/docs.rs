//! README and `docs/`: links lead somewhere, pages are short, and `docs/configuration.md` lists the flags.

use std::path::Path;

use clap::{Arg, CommandFactory as _};
use orgdata_exporter::commands::Cli;

use crate::support::files::{below, file, generated, links, path};

const CONFIGURATION: &str = "docs/configuration.md";

/// What follows in the page is generated.
const MARKER: &str = "writes everything below. -->\n";

/// Returns the anchors of the headings, as GitHub makes them.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let is_kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
    let anchor = |heading: &str| {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept: String = heading.chars().filter(is_kept).collect();
        kept.replace(' ', "-")
    };
    headings.map(anchor).collect()
}

fn row(argument: &Arg, flag: &str) -> String {
    let defaults = argument.get_default_values().iter();
    let defaults: Vec<_> = defaults.filter_map(|value| value.to_str()).collect();
    let default = format!("`{}`", defaults.join(",")).replace("``", "-");
    let mut help = argument.get_help().unwrap().to_string();
    for value in argument.get_possible_values() {
        if let Some(meaning) = value.get_help() {
            help += &format!("; `{}`: {meaning}", value.get_name());
        }
    }
    let variable = argument.get_env().unwrap().to_string_lossy();
    format!("| `--{flag}` | `{variable}` | {default} | {help} |\n")
}

#[test]
fn the_list_of_flags_is_up_to_date() {
    let page = file(CONFIGURATION);
    let (mut page, mut heading) = (page.split_once(MARKER).unwrap().0.to_owned() + MARKER, None);
    for argument in Cli::command().get_arguments() {
        let Some(flag) = argument.get_long().filter(|flag| flag.contains('.')) else {
            continue;
        };
        if heading != argument.get_help_heading() {
            heading = argument.get_help_heading();
            let columns = "| flag | variable | default | meaning |\n|---|---|---|---|\n";
            page += &format!("\n## {}\n\n{columns}", heading.unwrap());
        }
        page += &row(argument, flag);
    }
    generated(CONFIGURATION, &page);
}

#[test]
fn pages_are_short_and_links_lead_somewhere() {
    let mut pages = [below("docs"), below("deploy")].concat();
    pages.retain(|(name, _)| name.ends_with(".md"));
    pages.extend(["README.md", "CONTRIBUTING.md"].map(|name| (name.to_owned(), file(name))));
    for (name, text) in pages {
        let most = if name == "CONTRIBUTING.md" { 120 } else { 200 };
        assert!(text.lines().count() <= most, "{name} is too long");
        for link in links(&text).into_iter().filter(|to| !to.contains("://")) {
            let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match target {
                "" => path(&name),
                target => path(&name).parent().unwrap_or(Path::new("")).join(target),
            };
            assert!(target.exists(), "{name}: {link}");
            let has = || anchors(&std::fs::read_to_string(&target).unwrap());
            assert!(
                anchor.is_empty() || has().iter().any(|it| it == anchor),
                "{name}: {link}"
            );
        }
    }
}
