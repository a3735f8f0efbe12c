//! README and `docs/`: links lead somewhere, pages are short, and `docs/configuration.md` lists the flags.

use std::collections::BTreeSet;

use clap::CommandFactory as _;
use orgdata_exporter::commands::Cli;
use orgdata_probe::Question;

use crate::support::files::{below, file, generated, links, path};

const CONFIGURATION: &str = "docs/configuration.md";

/// The end of the line above what is generated.
const MARKER: &str = "writes everything below. -->\n";

/// Returns whether a page has a heading with this anchor, as GitHub makes them.
fn has_anchor(page: &str, wanted: &str) -> bool {
    let is_kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
    let mut headings = page.lines().filter(|line| line.starts_with('#'));
    headings.any(|line| {
        let text = line.trim_start_matches('#').trim().to_lowercase();
        let kept: String = text.chars().filter(is_kept).collect();
        kept.replace(' ', "-") == wanted
    })
}

#[test]
fn the_list_of_flags_is_up_to_date() {
    let page = file(CONFIGURATION);
    let (mut page, mut heading) = (page.split_once(MARKER).unwrap().0.to_owned() + MARKER, None);
    for argument in Cli::command().get_arguments() {
        let Some(variable) = argument.get_env() else {
            continue;
        };
        if heading != argument.get_help_heading() {
            heading = argument.get_help_heading();
            let columns = "| flag | variable | default | meaning |\n|---|---|---|---|\n";
            page += &format!("\n## {}\n\n{columns}", heading.unwrap());
        }
        let (flag, variable) = (argument.get_long().unwrap(), variable.display());
        let defaults = argument.get_default_values().iter();
        let defaults: Vec<_> = defaults.filter_map(|value| value.to_str()).collect();
        let default = format!("`{}`", defaults.join(",")).replace("``", "-");
        let mut help = argument.get_help().unwrap().to_string();
        for value in argument.get_possible_values() {
            let meaning = value.get_help().into_iter();
            help.extend(meaning.map(|meaning| format!("; `{}`: {meaning}", value.get_name())));
        }
        page += &format!("| `--{flag}` | `{variable}` | {default} | {help} |\n");
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
            let page = name.rsplit('/').next().unwrap();
            let target = path(&name).with_file_name(if target.is_empty() { page } else { target });
            let text = || std::fs::read_to_string(&target).unwrap_or_default();
            let leads = target.exists() && (anchor.is_empty() || has_anchor(&text(), anchor));
            assert!(leads, "{name}: {link}");
        }
    }
}

#[test]
fn the_page_about_probe_explains_every_question_and_answer() {
    let page = file("docs/probe.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let cells = rows.filter_map(|row| row.split("` |").next());
    let explained: BTreeSet<&str> = cells.flat_map(|cell| cell.split("`, `")).collect();
    let asked = Question::all().map(|question| question.name);
    assert_eq!(asked.collect::<BTreeSet<_>>(), explained);
}
