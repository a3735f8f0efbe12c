//! Every metric, label, flag and command that a document names exists in the program; `METRICS.md` lists the metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use clap::{Command, CommandFactory};
use jiff::Timestamp;
use orgdata_exporter::commands::Cli;
use orgdata_exporter::metrics::certificates::Certificate;
use orgdata_exporter::metrics::exposition::Format;

use super::alerts::alerts;
use super::queries::{grouping, selectors};
use super::{dashboards, queries};
use crate::support::busy::{busy, encode};
use crate::support::files::{array, below, file, generated, text};

/// Labels whose values are known beforehand.
const BOUNDED: [&str; 6] = ["endpoint", "kind", "loop", "min_age", "reason", "used_for"];

/// Labels that Prometheus adds.
const OF_PROMETHEUS: [&str; 3] = ["instance", "job", "le"];

/// A family of metrics.
#[derive(Default)]
struct Family {
    kind: String,
    help: String,
    /// The labels with the values that `busy` shows.
    labels: BTreeMap<String, BTreeSet<String>>,
}

/// Returns every family by name.
async fn families() -> BTreeMap<String, Family> {
    let metrics = busy();
    let now = Timestamp::now();
    let certificates =
        ["web", "otlp"].map(|used_for| -> Certificate { (used_for, Box::new(move || Some(now))) });
    metrics.certificates.set(certificates.into());
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut name = "";
    let scrape = encode(&metrics, Format::Text);
    for line in scrape.lines() {
        if let Some((of, help)) = line
            .strip_prefix("# HELP ")
            .and_then(|line| line.split_once(' '))
        {
            families.entry(of.to_owned()).or_default().help = help.to_owned();
        } else if let Some((of, kind)) = line
            .strip_prefix("# TYPE ")
            .and_then(|line| line.split_once(' '))
        {
            name = of;
            families.entry(of.to_owned()).or_default().kind = kind.to_owned();
        } else if let Some((_, labels)) = line.split_once('{') {
            let family = families.get_mut(name).unwrap();
            // Values with commas are not of bounded labels.
            for (label, value) in labels.split(',').filter_map(|pair| pair.split_once("=\"")) {
                let is_label =
                    !label.is_empty() && label.chars().all(|c| c.is_ascii_lowercase() || c == '_');
                if is_label && label != "le" {
                    let value = value.split('"').next().unwrap().to_owned();
                    family
                        .labels
                        .entry(label.to_owned())
                        .or_default()
                        .insert(value);
                }
            }
        }
    }
    families
}

fn family<'a>(families: &'a BTreeMap<String, Family>, series: &str) -> Option<&'a Family> {
    let ends = ["_bucket", "_sum", "_count"];
    let histogram = ends
        .iter()
        .find_map(|end| families.get(series.strip_suffix(end)?));
    families
        .get(series)
        .or(histogram.filter(|family| family.kind == "histogram"))
}

/// Returns what is written by hand in `dashboards/`: every name in it is meant.
fn dashboard_files() -> Vec<(String, String)> {
    let mut files = below("dashboards");
    files.retain(|(path, _)| !path.ends_with("METRICS.md"));
    files
}

/// Returns the documents in which every name is meant.
fn documents() -> Vec<(String, String)> {
    let mut documents = dashboard_files();
    documents.extend(below("deploy"));
    documents.extend(["README.md", "CHANGELOG.md"].map(|name| (name.to_owned(), file(name))));
    documents
}

/// Returns the words of a text that begin with `start`.
fn words<'a>(text: &'a str, start: &str, is_part: fn(char) -> bool) -> Vec<&'a str> {
    let begins = |at: &usize| !text[..*at].ends_with(|before| is_part(before) || before == '.');
    let starts = text.match_indices(start).map(|(at, _)| at).filter(begins);
    starts
        .map(|at| {
            text[at..]
                .split(|c| !is_part(c))
                .next()
                .unwrap()
                .trim_end_matches(['.', '-'])
        })
        .collect()
}

/// Returns the flags of a command and its subcommands.
fn flags(command: &Command) -> BTreeSet<String> {
    let own = command
        .get_arguments()
        .filter_map(|argument| Some(format!("--{}", argument.get_long()?)));
    own.chain(command.get_subcommands().flat_map(flags))
        .collect()
}

#[tokio::test]
async fn the_list_of_metrics_is_up_to_date() {
    let mut page = "# Metrics\n\nEvery metric of the exporter with its `# HELP`. Generated: `UPDATE=1 cargo test --test it` writes this file.\n\n\
                    | metric | kind | labels | meaning |\n|---|---|---|---|\n"
        .to_owned();
    let mut values = "\n## Values of labels\n\nThe values of other labels come from the organization: activity types, actors, states, ticket types, \
                      priorities.\n\n| metric | label | values |\n|---|---|---|\n"
        .to_owned();
    let quoted = |words: &mut dyn Iterator<Item = &String>| {
        words
            .map(|word| format!("`{word}`"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    for (name, family) in families().await {
        let (kind, help) = (&family.kind, family.help.replace('|', "\\|"));
        assert!(
            help.len() > 20 && help.ends_with('.') && !kind.is_empty(),
            "{name}: {help}"
        );
        writeln!(
            page,
            "| `{name}` | {kind} | {} | {help} |",
            quoted(&mut family.labels.keys())
        )
        .unwrap();
        for (label, known) in family
            .labels
            .iter()
            .filter(|(label, _)| BOUNDED.contains(&label.as_str()))
        {
            writeln!(
                values,
                "| `{name}` | `{label}` | {} |",
                quoted(&mut known.iter())
            )
            .unwrap();
        }
    }
    generated("dashboards/METRICS.md", &(page + &values));
}

#[tokio::test]
async fn every_metric_that_is_named_exists_and_is_in_a_dashboard() {
    let families = families().await;
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    for (path, text) in documents() {
        for name in [
            words(&text, "orgdata_", is_part),
            words(&text, "process_", is_part),
        ]
        .concat()
        {
            // In a query of Loki an attribute has underscores instead of dots.
            let attribute = format!("`{}`", name.replacen('_', ".", 2));
            let is_attribute = path.ends_with(".json") && file("README.md").contains(&attribute);
            assert!(
                family(&families, name).is_some() || is_attribute,
                "{path} names {name}"
            );
        }
    }
    let shown: String = dashboards().iter().map(ToString::to_string).collect();
    for name in families.keys().filter(|name| name.starts_with("orgdata_")) {
        let shows = |series: String| shown.contains(&series);
        assert!(
            shows(format!("{name}{{")) || shows(format!("{name}_bucket{{")),
            "no panel shows {name}"
        );
    }
}

#[tokio::test]
async fn every_label_in_a_query_is_one_of_its_metric() {
    let families = families().await;
    let mut queries = queries();
    queries.extend(
        alerts()
            .into_iter()
            .map(|(name, rule)| (name, text(&rule["expr"]))),
    );
    for dashboard in dashboards() {
        for variable in array(&dashboard["templating"]["list"])
            .iter()
            .filter(|variable| variable["type"] == "query")
        {
            let query = text(&variable["query"]);
            let inside = query
                .trim_start_matches("label_values(")
                .trim_end_matches(')');
            let (selector, label) = inside.rsplit_once(", ").unwrap();
            queries.push((query.clone(), format!("max by ({label}) ({selector})")));
        }
    }
    let all: BTreeSet<&String> = families
        .values()
        .flat_map(|family| family.labels.keys())
        .collect();
    for (place, query) in queries {
        for label in grouping(&query) {
            assert!(
                all.contains(&label.to_owned()) || OF_PROMETHEUS.contains(&label),
                "{place}: {label}"
            );
        }
        for selector in selectors(&query)
            .into_iter()
            .filter(|selector| selector.metric != "up")
        {
            let family = family(&families, &selector.metric)
                .unwrap_or_else(|| panic!("{place}: {}", selector.metric));
            for (label, _, value) in &selector.matchers {
                let known = family.labels.get(label);
                assert!(
                    known.is_some() || OF_PROMETHEUS.contains(&label.as_str()),
                    "{place}: {label}"
                );
                if let Some(known) =
                    known.filter(|_| ["reason", "loop", "endpoint"].contains(&label.as_str()))
                {
                    assert!(
                        value.split('|').all(|value| known.contains(value)),
                        "{place}: {label} is never {value}"
                    );
                }
            }
        }
    }
}

#[test]
fn every_flag_that_is_named_exists() {
    let known = flags(&Cli::command());
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '.' || c == '-';
    for (path, text) in documents()
        .into_iter()
        .filter(|(path, _)| !path.starts_with("deploy/"))
    {
        for flag in words(&text, "--", is_part)
            .into_iter()
            .filter(|flag| flag.len() > 2 && !flag.starts_with("---"))
        {
            // Examples have flags of other programs too; ours have a dot.
            let of_others = !path.starts_with("dashboards/") && !flag.contains('.');
            let is_family = known
                .iter()
                .any(|known| known.starts_with(&format!("{flag}.")));
            let others = ["--previous", "--storage.tsdb"];
            let is_known =
                known.contains(flag) || others.iter().any(|other| flag.starts_with(other));
            assert!(is_known || is_family || of_others, "{path} names {flag}");
        }
    }
}

#[test]
fn every_command_and_alert_in_a_runbook_exists() {
    let command = Cli::command();
    let dead_letters = command.find_subcommand("dead-letters").unwrap();
    for (path, text) in dashboard_files()
        .into_iter()
        .filter(|(path, _)| !path.ends_with(".json"))
    {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for call in text.split("orgdata-exporter dead-letters ").skip(1) {
            let words: Vec<&str> = call
                .split(|c: char| !(c.is_ascii_lowercase() || c == '_' || c == '-'))
                .collect();
            let action = dead_letters
                .find_subcommand(words[0])
                .unwrap_or_else(|| panic!("{path}: {call:.60}"));
            if words.get(1) == Some(&"--reason") {
                let mut arguments = action.get_arguments();
                let reason = arguments
                    .find(|argument| argument.get_long() == Some("reason"))
                    .unwrap();
                let values = reason.get_possible_values();
                assert!(
                    values.iter().any(|value| value.get_name() == words[2]),
                    "{path}: {}",
                    words[2]
                );
            }
        }
        for name in words(&text, "OrgdataExporter", |c| c.is_ascii_alphanumeric()) {
            assert!(
                name == "OrgdataExporter" || alerts().contains_key(name),
                "{path} names {name}"
            );
        }
    }
}
