//! `alerts.yaml`, its tests and its runbooks.

use std::collections::BTreeMap;

use serde_json::Value;

use super::queries::selectors;
use crate::support::files::{array, file, names, text, yaml};

/// Returns the rules by name.
pub(super) fn alerts() -> BTreeMap<String, Value> {
    let rules = yaml("dashboards/alerts.yaml")["groups"][0]["rules"].clone();
    let alerts: BTreeMap<String, Value> = array(&rules)
        .iter()
        .map(|rule| (text(&rule["alert"]), rule.clone()))
        .collect();
    assert!(
        alerts.len() > 20 && alerts.len() == array(&rules).len(),
        "a name is there twice"
    );
    alerts
}

#[test]
fn an_alert_says_what_is_wrong_and_what_to_do() {
    for (name, rule) in alerts() {
        assert!(name.starts_with("OrgdataExporter"), "{name}");
        let severity = text(&rule["labels"]["severity"]);
        assert!(
            ["critical", "warning", "info"].contains(&severity.as_str()),
            "{name}: {severity}"
        );
        let [summary, description] =
            ["summary", "description"].map(|key| text(&rule["annotations"][key]));
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
        for selector in selectors(&text(&rule["expr"])) {
            // The value of a counter says nothing.
            let rises = ["rate", "increase"].contains(&selector.function.as_str());
            assert!(
                !selector.is_counter() || rises,
                "{name}: {}",
                selector.metric
            );
        }
    }
}

#[test]
fn every_alert_has_a_runbook_and_a_row_in_the_readme() {
    let alerts = alerts();
    let readme = file("README.md");
    for (name, rule) in &alerts {
        let path = format!("dashboards/runbooks/{name}.md");
        assert_eq!(rule["annotations"]["runbook_url"], path);
        let page = file(&path);
        let (summary, severity) = (
            text(&rule["annotations"]["summary"]),
            text(&rule["labels"]["severity"]),
        );
        let head = format!("# {name}\n\n{summary} Severity: {severity} (");
        assert!(page.starts_with(&head), "{path} does not begin with {head}");
        let headings: Vec<&str> = page
            .lines()
            .filter_map(|line| line.strip_prefix("## "))
            .collect();
        assert_eq!(
            headings,
            ["Meaning", "Impact", "Diagnosis", "Mitigation"],
            "{path}"
        );
        assert!(
            page.split("\n## ").all(|part| part.len() > 40),
            "{path} has an empty part"
        );
        let row = format!("| [`{name}`]({path}) | {severity} |");
        assert!(readme.contains(&row), "README.md has no row {row}");
    }
    assert_eq!(readme.matches("| [`OrgdataExporter").count(), alerts.len());
    let pages = names("dashboards/runbooks");
    assert!(
        pages.iter().eq(alerts
            .keys()
            .map(|name| format!("{name}.md"))
            .collect::<Vec<_>>()
            .iter()),
        "{pages:?}"
    );
}

#[test]
fn every_alert_is_tested_to_fire_and_to_stay_quiet() {
    let tests = yaml("dashboards/alerts.test.yaml")["tests"].clone();
    let (healthy, ill) = array(&tests).split_first().unwrap();
    for name in alerts().keys() {
        let of_alert = |test: &&Value| test["alertname"] == *name;
        let quiet = array(&healthy["alert_rule_test"]).iter().filter(of_alert);
        assert!(
            quiet.clone().all(|test| test["exp_alerts"].is_null()) && quiet.count() == 3,
            "{name}"
        );
        let mut cases = ill
            .iter()
            .flat_map(|test| array(&test["alert_rule_test"]).iter().filter(of_alert));
        assert!(
            cases.any(|test| !array(&test["exp_alerts"]).is_empty()),
            "{name} never fires"
        );
    }
}
