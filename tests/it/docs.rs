//! README and `docs/`: links lead somewhere, pages are short, and `docs/configuration.md` lists the flags.

use clap::CommandFactory as _;
use orgdata_exporter::commands::Cli;

use crate::support::files::{below, file, generated_part, links, path};

/// The flags that each installation sets.
const NEEDED: [&str; 3] = ["api.base-url", "api.key-file", "state.path"];

/// The flags that many installations set; the others are rare.
const COMMON: [&str; 14] = [
    "audit.enabled",
    "audit.start",
    "audit.poll-interval",
    "tickets.enabled",
    "tickets.open-states",
    "tickets.scan-interval",
    "metrics.actor-label",
    "state.max-size",
    "otlp.endpoint",
    "otlp.protocol",
    "otlp.actor",
    "web.listen-address",
    "web.config.file",
    "log.level",
];

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
    let columns = "| flag | variable | default | meaning |\n|---|---|---|---|\n";
    let [needed, common] =
        ["Needed", "Common"].map(|heading| format!("\n## {heading}\n\n{columns}"));
    let mut parts = [needed, common, "\n## Rare\n".to_owned()];
    let mut heading = None;
    for argument in Cli::command().get_arguments() {
        let Some(variable) = argument.get_env() else {
            continue;
        };
        let (flag, variable) = (argument.get_long().unwrap(), variable.display());
        let groups = [&NEEDED[..], &COMMON];
        let group = groups.iter().position(|group| group.contains(&flag));
        let part = &mut parts[group.unwrap_or(2)];
        if group.is_none() && heading != argument.get_help_heading() {
            heading = argument.get_help_heading();
            *part += &format!("\n### {}\n\n{columns}", heading.unwrap());
        }
        let defaults = argument.get_default_values().iter();
        let defaults: Vec<_> = defaults.filter_map(|value| value.to_str()).collect();
        let default = format!("`{}`", defaults.join(",")).replace("``", "-");
        let mut help = argument.get_help().unwrap().to_string();
        for value in argument.get_possible_values() {
            let meaning = value.get_help().into_iter();
            help.extend(meaning.map(|meaning| format!("; `{}`: {meaning}", value.get_name())));
        }
        *part += &format!("| `--{flag}` | `{variable}` | {default} | {help} |\n");
    }
    let page = parts.concat();
    for flag in NEEDED.iter().chain(&COMMON) {
        assert!(page.contains(&format!("| `--{flag}` |")), "no flag {flag}");
    }
    generated_part("docs/configuration.md", &page);
}

#[test]
fn pages_are_short_and_links_lead_somewhere() {
    let mut pages = ["docs", "deploy", "dashboards"].map(below).concat();
    pages.retain(|(name, _)| name.ends_with(".md"));
    let names = ["README.md", "CONTRIBUTING.md", "SECURITY.md"];
    pages.extend(names.map(|name| (name.to_owned(), file(name))));
    for (name, text) in pages {
        let is_shorter = ["CONTRIBUTING.md", "docs/guarantees.md"].contains(&name.as_str());
        let most = if is_shorter { 120 } else { 200 };
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
