//! Every metric, label, flag and command that a document names exists in the program; `docs/metrics.md` lists the metrics.

use std::collections::{BTreeMap, BTreeSet};

use clap::{Command, CommandFactory};
use jiff::Timestamp;
use orgdata_exporter::commands::Cli;
use orgdata_exporter::metrics::certificates::Certificate;
use orgdata_exporter::metrics::exposition::Format;

use super::alerts::{alerts, detections, rules};
use super::queries::selectors;
use super::{dashboards, queries};
use crate::support::busy::{busy, encode};
use crate::support::files::{below, file, generated_part, text};
use crate::support::openmetrics::{self, parse};

/// Labels whose values are known beforehand.
const BOUNDED: [&str; 8] = [
    "endpoint",
    "from",
    "loop",
    "min_age",
    "percentile",
    "reason",
    "used_for",
    "window",
];

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

/// Labels that Prometheus and its operator add.
const OF_PROMETHEUS: &str = "instance job le cluster namespace alertname severity";

/// A family of metrics.
struct Family {
    kind: String,
    help: String,
    /// The labels with the values that `busy` shows.
    labels: BTreeMap<String, BTreeSet<String>>,
}

/// Returns every family in the order of a scrape, with its name in the classic text format.
fn in_order() -> Vec<(String, Family)> {
    let metrics = busy();
    let now = Timestamp::now();
    let certificates =
        ["web", "otlp"].map(|used_for| -> Certificate { (used_for, Box::new(move || Some(now))) });
    metrics.certificates.set(certificates.into());
    let families = parse(&encode(&metrics, Format::OpenMetrics))
        .unwrap()
        .into_iter();
    let of_text = |family: openmetrics::Family| {
        let mut labels: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (label, value) in family.samples.into_iter().flat_map(|sample| sample.labels) {
            if label != "le" {
                labels.entry(label).or_default().insert(value);
            }
        }
        let suffix = if family.kind == "counter" {
            "_total"
        } else {
            ""
        };
        let (kind, help) = (family.kind, family.help);
        (family.name + suffix, Family { kind, help, labels })
    };
    families.map(of_text).collect()
}

fn families() -> BTreeMap<String, Family> {
    in_order().into_iter().collect()
}

fn family<'a>(families: &'a BTreeMap<String, Family>, series: &str) -> Option<&'a Family> {
    let mut ends = ["_bucket", "_sum", "_count"].iter();
    let histogram = ends.find_map(|end| families.get(series.strip_suffix(end)?));
    let histogram = histogram.filter(|family| family.kind == "histogram");
    families.get(series).or(histogram)
}

/// Returns the documents in which every name is meant.
fn documents() -> Vec<(String, String)> {
    let mut documents = ["dashboards", "deploy", "docs"].map(below).concat();
    documents.extend(["README.md", "CHANGELOG.md"].map(|name| (name.to_owned(), file(name))));
    documents
}

/// Returns the words of a text that begin with `start`.
fn words<'a>(text: &'a str, start: &str, is_part: fn(char) -> bool) -> Vec<&'a str> {
    let begins = |at: &usize| !text[..*at].ends_with(|before| is_part(before) || before == '.');
    let starts = text.match_indices(start).map(|(at, _)| at).filter(begins);
    let words = starts.filter_map(|at| text[at..].split(|c| !is_part(c)).next());
    words
        .map(|word| word.trim_end_matches(['.', '-']))
        .collect()
}

/// Returns the flags of a command and its subcommands.
fn flags(command: &Command) -> BTreeSet<String> {
    let own = command
        .get_arguments()
        .filter_map(|argument| argument.get_long());
    let own = own.map(|long| format!("--{long}"));
    own.chain(command.get_subcommands().flat_map(flags))
        .collect()
}

#[test]
fn the_list_of_metrics_is_up_to_date() {
    let mut tables = TABLES.map(|(heading, _)| {
        format!("\n## {heading}\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n")
    });
    let mut last = 0;
    for (name, family) in in_order() {
        let (kind, help) = (&family.kind, family.help.replace('|', "\\|"));
        let is_whole = help.len() > 20 && help.ends_with('.') && !kind.is_empty();
        assert!(is_whole, "{name}: {help}");
        let label = |(label, values): (&String, &BTreeSet<String>)| {
            let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
            // It shows one of many reasons.
            let is_listed = name != "orgdata_last_failure_info";
            match is_listed && BOUNDED.contains(&label.as_str()) {
                true => format!("`{label}`: {}", values.join(", ")),
                false => format!("`{label}`"),
            }
        };
        let labels: Vec<String> = family.labels.iter().map(label).collect();
        let is_in = |(_, starts): &(&str, &[&str])| starts.iter().any(|it| name.starts_with(it));
        let table = TABLES.iter().position(is_in).expect("a table");
        assert!(table >= last, "a scrape has {name} in another order");
        last = table;
        tables[table] += &format!("| `{name}` | {kind} | {} | {help} |\n", labels.join("; "));
    }
    generated_part("docs/metrics.md", &tables.concat());
}

#[test]
fn every_metric_that_is_named_exists_and_is_in_a_dashboard() {
    let families = families();
    let records = file("docs/log-records.md");
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    for (path, text) in documents() {
        for name in ["orgdata_", "process_"]
            .map(|start| words(&text, start, is_part))
            .concat()
        {
            // In a query of Loki an attribute has underscores instead of dots.
            let attribute = format!("`{}`", name.replacen('_', ".", 2));
            let is_attribute = path.ends_with(".json") && records.contains(&attribute);
            let is_metric = family(&families, name).is_some();
            assert!(is_metric || is_attribute, "{path} names {name}");
        }
    }
    let shown: String = dashboards().iter().map(ToString::to_string).collect();
    for name in families.keys().filter(|name| name.starts_with("orgdata_")) {
        let shows = |end: &str| shown.contains(&format!("{name}{end}"));
        assert!(shows("{") || shows("_bucket{"), "no panel shows {name}");
    }
}

#[test]
fn every_label_that_a_query_selects_by_is_one_of_its_metric() {
    let families = families();
    let rules = ["alerts.yaml", "detections.yaml"].map(rules).concat();
    let rules = rules
        .iter()
        .map(|rule| (text(&rule["alert"]), text(&rule["expr"])));
    for (place, query) in queries().into_iter().chain(rules) {
        for selector in selectors(&query)
            .into_iter()
            .filter(|one| one.metric != "up")
        {
            let family = family(&families, selector.metric).expect(selector.metric);
            for (label, _, value) in selector.matchers {
                let known = family.labels.get(label);
                let is_added = OF_PROMETHEUS.split(' ').any(|known| known == label);
                assert!(known.is_some() || is_added, "{place}: {label}");
                // The one family that does not show all of its values has those of the others.
                let shows_one = selector.metric == "orgdata_last_failure_info";
                let others = families.values().filter(|_| shows_one);
                let known: Vec<_> = others
                    .filter_map(|it| it.labels.get(label))
                    .chain(known)
                    .collect();
                let is_value = |value| known.iter().any(|known| known.contains(value));
                let is_bounded = ["reason", "loop", "endpoint"].contains(&label);
                let is_known = !is_bounded || value.split('|').all(is_value);
                assert!(is_known, "{place}: {label} is never {value}");
            }
        }
    }
}

/// Flags of kubectl, Prometheus and others.
const OF_OTHERS: &str = "--all-namespaces --comment --container --decode --duration --label-columns --namespace --output --previous --selector --since --storage.tsdb --timestamps";

#[test]
fn every_flag_that_is_named_exists() {
    let known = flags(&Cli::command());
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '.' || c == '-';
    let mut documents = documents();
    documents.retain(|(path, _)| !path.starts_with("deploy/"));
    for (path, text) in documents {
        for flag in words(&text, "--", is_part) {
            // Examples have flags of other programs too; ours have a dot.
            let is_none = flag.len() < 3 || flag.starts_with("---");
            let of_others = is_none || !path.starts_with("dashboards/") && !flag.contains('.');
            let family = format!("{flag}.");
            let is_known =
                known.contains(flag) || known.iter().any(|known| known.starts_with(&family));
            let is_other = OF_OTHERS.split(' ').any(|other| flag.starts_with(other));
            assert!(is_known || is_other || of_others, "{path} names {flag}");
        }
    }
}

#[test]
fn every_command_and_alert_in_a_runbook_exists() {
    let (command, mut alerts) = (Cli::command(), alerts());
    alerts.extend(detections());
    let dead_letters = command.find_subcommand("dead-letters").unwrap();
    let mut files = below("dashboards");
    files.retain(|(path, _)| !path.ends_with(".json"));
    for (path, text) in files {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for call in text.split("orgdata-exporter dead-letters ").skip(1) {
            let is_end = |c: char| !(c.is_ascii_lowercase() || c == '_' || c == '-');
            let words: Vec<&str> = call.split(is_end).collect();
            let action = dead_letters.find_subcommand(words[0]);
            let action = action.unwrap_or_else(|| panic!("{path}: {call:.60}"));
            if words.get(1) == Some(&"--reason") {
                let mut arguments = action.get_arguments();
                let reason = arguments.find(|argument| argument.get_long() == Some("reason"));
                let values = reason.unwrap().get_possible_values();
                let is_value = values.iter().any(|value| value.get_name() == words[2]);
                assert!(is_value, "{path}: {}", words[2]);
            }
        }
        for name in words(&text, "Orgdata", |c| c.is_ascii_alphanumeric()) {
            let is_alert = ["OrgdataExporter", "OrgdataDetection"].contains(&name)
                || alerts.contains_key(name);
            assert!(is_alert, "{path} names {name}");
        }
    }
}
