//! Whatever a document names exists in the program.

use std::collections::{BTreeMap, BTreeSet};

use clap::{Command, CommandFactory};
use orgdata_exporter::cli::Cli;

use super::reference::{Family, families};
use super::{dashboards, file, lint, promql, root, rules};

/// The endings that a histogram's series add to its name.
const HISTOGRAM: [&str; 3] = ["_bucket", "_sum", "_count"];

/// Labels that Prometheus gives.
const OF_PROMETHEUS: [&str; 3] = ["instance", "job", "le"];

/// Documents whose every word is meant.
fn documents() -> Vec<(String, String)> {
    let mut paths = vec![
        "README.md".to_owned(),
        "CHANGELOG.md".to_owned(),
        "dashboards/alerts.yaml".to_owned(),
        "dashboards/alerts.test.yaml".to_owned(),
    ];
    paths.extend(
        [
            "dashboards/organization-activity.json",
            "dashboards/exporter-health.json",
        ]
        .map(str::to_owned),
    );
    for page in std::fs::read_dir(root().join("dashboards/runbooks")).expect("a directory") {
        paths.push(format!(
            "dashboards/runbooks/{}",
            page.expect("an entry").file_name().to_string_lossy()
        ));
    }
    below("deploy", &mut paths);
    paths
        .into_iter()
        .map(|path| (path.clone(), file(&path)))
        .collect()
}

/// The files of text below a directory.
fn below(directory: &str, paths: &mut Vec<String>) {
    for entry in std::fs::read_dir(root().join(directory)).expect("a directory") {
        let entry = entry.expect("an entry");
        let path = format!("{directory}/{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            below(&path, paths);
        } else if std::fs::read_to_string(entry.path()).is_ok() {
            paths.push(path);
        }
    }
}

/// The words of a text that begin so.
fn words<'a>(
    text: &'a str,
    beginning: &'a str,
    is_part: fn(char) -> bool,
) -> impl Iterator<Item = &'a str> {
    let begins_here = move |at: &usize| {
        text[..*at]
            .chars()
            .next_back()
            .is_none_or(|before| !is_part(before) && before != '.')
    };
    text.match_indices(beginning)
        .map(|(at, _)| at)
        .filter(begins_here)
        .map(move |at| {
            let word = &text[at..];
            word[..word.find(|c| !is_part(c)).unwrap_or(word.len())].trim_end_matches(['.', '-'])
        })
}

fn family<'a>(families: &'a BTreeMap<String, Family>, series: &str) -> Option<&'a Family> {
    let of_histogram = || {
        HISTOGRAM.iter().find_map(|end| {
            families
                .get(series.strip_suffix(end)?)
                .filter(|family| family.kind == "histogram")
        })
    };
    families.get(series).or_else(of_histogram)
}

/// Flags of the program and of all its commands.
fn flags(command: &Command, flags: &mut BTreeSet<String>) {
    flags.extend(
        command
            .get_arguments()
            .filter_map(|argument| Some(format!("--{}", argument.get_long()?))),
    );
    command
        .get_subcommands()
        .for_each(|command| self::flags(command, flags));
}

#[test]
fn every_metric_that_is_named_exists() {
    let families = families();
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    for (path, text) in documents() {
        for name in words(&text, "orgdata_", is_part).chain(words(&text, "process_", is_part)) {
            // In a query of Loki a dot of an attribute is an underline.
            let is_attribute = path.ends_with(".json")
                && file("README.md").contains(&format!("`{}`", name.replacen('_', ".", 2)));
            assert!(
                family(&families, name).is_some() || is_attribute,
                "{path} names {name}"
            );
        }
    }
}

#[test]
fn every_metric_has_words_of_its_own() {
    for (name, family) in families() {
        assert!(
            family.help.len() > 20 && family.help.ends_with('.'),
            "{name}: {}",
            family.help
        );
        assert!(!family.kind.is_empty(), "{name}");
    }
}

#[test]
fn every_metric_is_in_a_dashboard() {
    let shown: String = dashboards().iter().map(ToString::to_string).collect();
    for name in families()
        .keys()
        .filter(|name| name.starts_with("orgdata_"))
    {
        assert!(
            shown.contains(&format!("{name}{{")) || shown.contains(&format!("{name}_bucket{{")),
            "no panel shows {name}"
        );
    }
}

#[test]
fn every_flag_that_is_named_exists() {
    let mut known = BTreeSet::new();
    flags(&Cli::command(), &mut known);
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '.' || c == '-';
    // Manifests, and examples in the README, have flags of other programs too; ours have a dot.
    for (path, text) in documents()
        .into_iter()
        .filter(|(path, _)| !path.starts_with("deploy/"))
    {
        let of_others = |flag: &str| {
            let is_prometheus = flag.starts_with("--storage.tsdb.");
            !path.starts_with("dashboards/") && (!flag.contains('.') || is_prometheus)
                || flag == "--previous"
        };
        for flag in
            words(&text, "--", is_part).filter(|flag| flag.len() > 2 && !flag[2..].starts_with('-'))
        {
            let is_family = flag.ends_with(".*")
                || known
                    .iter()
                    .any(|known| known.starts_with(&format!("{flag}.")));
            assert!(
                known.contains(flag) || is_family || of_others(flag),
                "{path} names {flag}"
            );
        }
    }
}

#[test]
fn every_label_in_a_query_is_one_of_its_metric() {
    let families = families();
    let all: BTreeSet<&String> = families
        .values()
        .flat_map(|family| family.labels.keys())
        .collect();
    let mut queries: Vec<(String, String)> = rules::alerts()
        .into_iter()
        .map(|(name, rule)| (name, rule["expr"].clone()))
        .collect();
    for dashboard in dashboards() {
        queries.extend(
            lint::targets(&dashboard, "prometheus")
                .into_iter()
                .map(|(panel, query)| (panel.to_owned(), query.to_owned())),
        );
        for variable in lint::variables(&dashboard)
            .iter()
            .filter(|variable| variable["type"] == "query")
        {
            let query = lint::text(&variable["query"])
                .trim_start_matches("label_values(")
                .trim_end_matches(')');
            let (selector, label) = query.rsplit_once(", ").expect("a selector and a label");
            assert!(
                all.iter().any(|known| *known == label) || OF_PROMETHEUS.contains(&label),
                "{query}"
            );
            queries.push((query.to_owned(), selector.to_owned()));
        }
    }
    for (place, query) in queries {
        let names = promql::names(&query);
        for label in names.grouping {
            assert!(
                all.contains(&label) || OF_PROMETHEUS.contains(&label.as_str()),
                "{place}: no metric has {label}"
            );
        }
        for selector in names
            .selectors
            .iter()
            .filter(|selector| selector.metric != "up")
        {
            let family = family(&families, &selector.metric)
                .unwrap_or_else(|| panic!("{place} asks for {}", selector.metric));
            for (label, _, value) in &selector.matchers {
                let values = family.labels.get(label);
                assert!(
                    values.is_some() || OF_PROMETHEUS.contains(&label.as_str()),
                    "{place}: {} has no {label}",
                    selector.metric
                );
                // Of a label with known values only those.
                if let Some(values) =
                    values.filter(|_| ["reason", "loop", "endpoint"].contains(&label.as_str()))
                {
                    assert!(
                        value.split('|').all(|value| values.contains(value)),
                        "{place}: {label} is never {value}"
                    );
                }
            }
        }
    }
}

#[test]
fn every_command_in_a_runbook_exists() {
    let command = Cli::command();
    let letters = command.find_subcommand("dead-letters").expect("a command");
    for (path, text) in documents()
        .into_iter()
        .filter(|(path, _)| path.contains("runbooks") || path.ends_with("alerts.yaml"))
    {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for call in text.split("orgdata-exporter dead-letters ").skip(1) {
            let action: String = call.chars().take_while(char::is_ascii_lowercase).collect();
            let action = letters
                .find_subcommand(&action)
                .unwrap_or_else(|| panic!("{path}: dead-letters {action}"));
            if let Some(reason) = call
                .strip_prefix(action.get_name())
                .and_then(|rest| rest.strip_prefix(" --reason "))
            {
                let reason: String = reason
                    .chars()
                    .take_while(|c| c.is_ascii_lowercase() || *c == '_')
                    .collect();
                let argument = action
                    .get_arguments()
                    .find(|argument| argument.get_long() == Some("reason"))
                    .expect("a flag");
                assert!(
                    argument
                        .get_possible_values()
                        .iter()
                        .any(|value| value.get_name() == reason),
                    "{path}: {reason}"
                );
            }
        }
        for name in words(&text, "OrgdataExporter", |c| c.is_ascii_alphanumeric())
            .filter(|name| *name != "OrgdataExporter")
        {
            assert!(rules::alerts().contains_key(name), "{path} names {name}");
        }
    }
}
