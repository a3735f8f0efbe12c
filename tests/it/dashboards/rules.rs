//! `alerts.yaml`, its tests and its runbooks.

use std::collections::BTreeMap;

use super::promql::names;
use super::{file, root};

/// What a rule says, by key; the lines of a folded value are joined.
type Rule = BTreeMap<String, String>;

/// The rules by name. The file is written in one way, so that it can be read line by line; that it is YAML is for promtool to say.
pub(crate) fn alerts() -> BTreeMap<String, Rule> {
    let mut alerts: BTreeMap<String, Rule> = BTreeMap::new();
    let (mut alert, mut key) = (String::new(), String::new());
    for line in file("dashboards/alerts.yaml").lines() {
        let words = line.trim();
        if let Some(name) = words.strip_prefix("- alert: ") {
            alert = name.to_owned();
            assert!(
                alerts.insert(alert.clone(), Rule::new()).is_none(),
                "{alert} is there twice"
            );
            continue;
        }
        let Some(rule) = alerts
            .get_mut(&alert)
            .filter(|_| !words.is_empty() && !words.starts_with('#'))
        else {
            continue;
        };
        let keys = [
            "expr",
            "for",
            "labels",
            "severity",
            "annotations",
            "summary",
            "description",
            "runbook_url",
        ];
        match words
            .split_once(':')
            .filter(|(word, _)| keys.contains(word))
        {
            Some((word, value)) => {
                key = word.to_owned();
                rule.insert(
                    key.clone(),
                    value.trim().trim_start_matches(">-").to_owned(),
                );
            }
            None => {
                let value = rule.entry(key.clone()).or_default();
                value.push(' ');
                value.push_str(words);
            }
        }
    }
    assert!(alerts.len() > 20, "{} alerts", alerts.len());
    alerts
}

#[test]
fn an_alert_says_what_is_wrong_and_what_to_do() {
    for (name, rule) in alerts() {
        assert!(name.starts_with("OrgdataExporter"), "{name}");
        assert!(
            ["critical", "warning", "info"].contains(&rule["severity"].as_str()),
            "{name}: {}",
            rule["severity"]
        );
        let (summary, description) = (&rule["summary"], rule["description"].trim());
        assert!(
            summary.ends_with('.') && !summary.contains("{{"),
            "{name}: {summary}"
        );
        assert!(
            description.ends_with('.') && description.contains("{{ $labels"),
            "{name}: {description}"
        );
        assert!(
            description.contains("; "),
            "{name} has no next step: {description}"
        );
    }
}

#[test]
fn a_counter_is_only_looked_at_as_it_rises() {
    for (name, rule) in alerts() {
        for selector in names(&rule["expr"]).selectors {
            if selector.metric.ends_with("_total") || selector.metric.ends_with("_bucket") {
                assert!(
                    ["rate", "increase"].contains(&selector.inside.as_str())
                        && selector.range.is_some(),
                    "{name}: {}",
                    selector.metric
                );
            }
        }
    }
}

#[test]
fn every_alert_has_a_runbook_with_its_four_parts() {
    let alerts = alerts();
    for (name, rule) in &alerts {
        let path = &rule["runbook_url"];
        assert_eq!(path, &format!("dashboards/runbooks/{name}.md"));
        let page = file(path);
        assert!(
            page.starts_with(&format!(
                "# {name}\n\n{} Severity: {} (",
                rule["summary"], rule["severity"]
            )),
            "{path}"
        );
        let headings: Vec<&str> = page
            .lines()
            .filter_map(|line| line.strip_prefix("## "))
            .collect();
        assert_eq!(
            headings,
            ["Meaning", "Impact", "Diagnosis", "Mitigation"],
            "{path}"
        );
        let parts: Vec<&str> = page.split("\n## ").skip(1).collect();
        assert!(
            parts.iter().all(|part| part.len() > 40),
            "{path} has an empty part"
        );
    }
    for page in std::fs::read_dir(root().join("dashboards/runbooks")).expect("a directory") {
        let name = page
            .expect("an entry")
            .file_name()
            .into_string()
            .expect("text");
        assert!(
            alerts.contains_key(name.trim_end_matches(".md")),
            "{name} belongs to no alert"
        );
    }
}

#[test]
fn every_alert_is_tested_to_fire_and_to_keep_quiet() {
    let tests = file("dashboards/alerts.test.yaml");
    let (healthy, ill) = tests
        .split_once("\n\n  - name: 'OrgdataExporter")
        .expect("the healthy exporter comes first");
    for name in alerts().keys() {
        assert!(
            ill.contains(&format!("        alertname: {name}\n        exp_alerts:\n")),
            "{name} never fires"
        );
        assert_eq!(
            healthy.matches(&format!("alertname: {name} }}")).count(),
            3,
            "{name} on a healthy exporter"
        );
    }
}

#[test]
fn the_readme_lists_every_alert_with_its_severity() {
    let readme = file("README.md");
    for (name, rule) in alerts() {
        let row = format!(
            "| [`{name}`](dashboards/runbooks/{name}.md) | {} |",
            rule["severity"]
        );
        assert!(readme.contains(&row), "README.md has no row {row}");
    }
    assert_eq!(
        readme.matches("| [`OrgdataExporter").count(),
        alerts().len()
    );
}
