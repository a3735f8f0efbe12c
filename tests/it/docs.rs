//! README and `docs/`: links lead somewhere, `docs/configuration.md` lists the flags and `docs/metrics.md` the metrics.

use std::collections::{BTreeMap, BTreeSet};

use clap::CommandFactory as _;
use jiff::Timestamp;
use orgdata_exporter::commands::Cli;
use orgdata_exporter::metrics::certificates::Certificate;
use orgdata_exporter::metrics::exposition::Format;
use serde_json::Value;

use crate::support::busy::{busy, encode};
use crate::support::files::{array, below, file, generated_part, links, path, text, yaml};
use crate::support::openmetrics::parse;
use crate::switches::effect;

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

/// Labels whose values are known beforehand.
const BOUNDED: &str = "endpoint from loop min_age percentile reason used_for window";

/// The tables of `docs/metrics.md` and how the metrics in them begin; a metric is in the first that fits.
const TABLES: [(&str, &[&str]); 4] = [
    ("Audit logs", &["orgdata_audit_", "orgdata_organization_"]),
    (
        "Tickets",
        &["orgdata_tickets", "orgdata_open_", "orgdata_deals_"],
    ),
    ("The exporter", &["orgdata_"]),
    ("The process", &["process_"]),
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

/// Words of `src/audit` that users need not know.
fn assert_plain(help: &str) {
    for word in ["sweep", "pass ", "settled", "watermark", "ground"] {
        assert!(!help.contains(word), "{word} in: {help}");
    }
}

#[test]
fn the_list_of_flags_is_up_to_date() {
    let columns =
        "| flag | variable | default | what a change does | meaning |\n|---|---|---|---|---|\n";
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
        assert_plain(&help);
        let effect = effect(flag);
        *part += &format!("| `--{flag}` | `{variable}` | {default} | {effect} | {help} |\n");
    }
    generated_part("docs/configuration.md", &parts.concat());
}

#[test]
fn the_list_of_metrics_is_up_to_date() {
    let mut tables = TABLES.map(|(heading, _)| {
        format!("\n## {heading}\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n")
    });
    let metrics = busy();
    let now = Timestamp::now();
    let certificates = ["web", "otlp"]
        .map(|used_for| -> Certificate { (used_for, Box::new(move || Some(now..now))) });
    metrics.certificates.set(certificates.into());
    for family in parse(&encode(&metrics, Format::OpenMetrics)).unwrap() {
        let is_counter = family.kind == "counter";
        let name = family.name + if is_counter { "_total" } else { "" };
        // The labels with the values that `busy` shows.
        let mut shown: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (label, value) in family.samples.into_iter().flat_map(|sample| sample.labels) {
            shown.entry(label).or_default().insert(value);
        }
        shown.remove("le");
        let (kind, help) = (&family.kind, family.help.replace('|', "\\|"));
        assert_plain(&help);
        let label = |(label, values): (&String, &BTreeSet<String>)| {
            let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
            // It shows one of many reasons.
            let is_listed = name != "orgdata_last_failure_info";
            match is_listed && BOUNDED.split(' ').any(|it| it == label) {
                true => format!("`{label}`: {}", values.join(", ")),
                false => format!("`{label}`"),
            }
        };
        let labels: Vec<String> = shown.iter().map(label).collect();
        let is_in = |(_, starts): &(&str, &[&str])| starts.iter().any(|it| name.starts_with(it));
        let table = TABLES.iter().position(is_in).expect("a table");
        tables[table] += &format!("| `{name}` | {kind} | {} | {help} |\n", labels.join("; "));
    }
    generated_part("docs/metrics.md", &tables.concat());
}

#[test]
fn the_table_of_evidence_is_up_to_date() {
    let columns = "kind what played passed failed first_seed last_seed commit date";
    let heading = columns.replace(' ', " | ").replace('_', " ");
    let mut table = format!("\n| {heading} |\n{}|\n", "|---".repeat(9));
    for row in array(&yaml("docs/evidence.json")["rows"]) {
        let shown = |value: &Value| value.as_str().map_or(value.to_string(), str::to_owned);
        let cells: Vec<_> = columns.split(' ').map(|name| shown(&row[name])).collect();
        table += &format!("| {} |\n", cells.join(" | ").replace("null", "-"));
    }
    generated_part("docs/compatibility.md", &table);
}

#[test]
fn links_lead_somewhere() {
    let mut pages = ["docs", "deploy", "dashboards"].map(below).concat();
    pages.retain(|(name, _)| name.ends_with(".md"));
    let names = ["README.md", "CONTRIBUTING.md", "SECURITY.md"];
    pages.extend(names.map(|name| (name.to_owned(), file(name))));
    for (name, text) in pages {
        for link in links(&text).into_iter().filter(|to| !to.contains("://")) {
            let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
            let page = name.rsplit('/').next().unwrap();
            let target = path(&name).with_file_name(if target.is_empty() { page } else { target });
            let text = || std::fs::read_to_string(&target).unwrap_or_default();
            let leads = target.exists() && (anchor.is_empty() || has_anchor(&text(), anchor));
            assert!(leads, "{name}: {link}");
        }
    }
    for rules in ["alerts", "detections"] {
        let rules = yaml(&format!("dashboards/{rules}.yaml"))["groups"][0]["rules"].take();
        for rule in array(&rules)
            .iter()
            .filter(|rule| rule["alert"].is_string())
        {
            let runbook = text(&rule["annotations"]["runbook_url"]);
            assert!(path(&runbook).is_file(), "{}: {runbook}", rule["alert"]);
        }
    }
}
