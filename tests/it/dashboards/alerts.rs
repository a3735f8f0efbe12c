//! `alerts.yaml`, its tests and its runbooks.

use std::collections::BTreeMap;

use serde_json::Value;

use super::queries::selectors;
use crate::support::files::{array, file, names, text, yaml};

/// Returns the rules by name.
pub(super) fn alerts() -> BTreeMap<String, Value> {
    let rules = yaml("dashboards/alerts.yaml")["groups"][0]["rules"].clone();
    let rules = array(&rules).iter();
    let count = rules.len();
    let alerts: BTreeMap<String, Value> = rules
        .map(|rule| (text(&rule["alert"]), rule.clone()))
        .collect();
    assert!(count > 20 && alerts.len() == count, "a name is there twice");
    alerts
}

#[test]
fn an_alert_says_what_is_wrong_and_what_to_do() {
    for (name, rule) in alerts() {
        assert!(name.starts_with("OrgdataExporter"), "{name}");
        let severity = text(&rule["labels"]["severity"]);
        let is_known = ["critical", "warning", "info"].contains(&severity.as_str());
        assert!(is_known, "{name}: {severity}");
        let [summary, description] =
            ["summary", "description"].map(|key| text(&rule["annotations"][key]));
        assert!(summary.ends_with('.') && !summary.contains("{{"), "{name}");
        // The part after the semicolon is the next step.
        let parts = ["{{ $labels", "; "].map(|part| description.contains(part));
        let is_whole = parts == [true, true] && description.ends_with('.');
        assert!(is_whole, "{name}: {description}");
        for selector in selectors(&text(&rule["expr"])) {
            // The value of a counter says nothing.
            let rises = ["rate", "increase"].contains(&selector.function);
            assert!(!selector.is_counter() || rises, "{name}: {selector:?}");
        }
    }
}

#[test]
fn every_alert_has_a_runbook_and_a_row_in_the_documentation() {
    let alerts = alerts();
    let list = file("docs/metrics.md");
    for (name, rule) in &alerts {
        let path = format!("dashboards/runbooks/{name}.md");
        assert_eq!(rule["annotations"]["runbook_url"], path);
        let page = file(&path);
        let summary = text(&rule["annotations"]["summary"]);
        let severity = text(&rule["labels"]["severity"]);
        let head = format!("# {name}\n\n{summary} Severity: {severity} (");
        assert!(page.starts_with(&head), "{path} does not begin with {head}");
        let mut headings = page.lines().filter(|line| line.starts_with("## "));
        let wanted = ["## Meaning", "## Impact", "## Diagnosis", "## Mitigation"];
        assert!(headings.by_ref().eq(wanted), "{path}");
        let is_filled = page.split("\n## ").all(|part| part.len() > 40);
        let has_kubectl = page.contains("`kubectl ");
        assert!(is_filled && has_kubectl, "{path} has an empty part");
        let row = format!("| [`{name}`](../{path}) | {severity} |");
        assert!(list.contains(&row), "docs/metrics.md has no row {row}");
    }
    assert_eq!(list.matches("| [`OrgdataExporter").count(), alerts.len());
    let pages: Vec<String> = alerts.keys().map(|name| format!("{name}.md")).collect();
    assert_eq!(names("dashboards/runbooks"), pages);
}

#[test]
fn every_alert_is_tested_to_fire_and_to_stay_quiet() {
    let tests = yaml("dashboards/alerts.test.yaml")["tests"].clone();
    let (healthy, ill) = array(&tests).split_first().unwrap();
    for name in alerts().keys() {
        let of_alert = |test: &&Value| test["alertname"] == *name;
        let quiet = array(&healthy["alert_rule_test"]).iter().filter(of_alert);
        let is_quiet = quiet.clone().all(|test| test["exp_alerts"].is_null());
        assert!(is_quiet && quiet.count() == 3, "{name}");
        let cases = ill.iter().flat_map(|test| array(&test["alert_rule_test"]));
        let mut cases = cases.filter(of_alert);
        let fires = cases.any(|test| !array(&test["exp_alerts"]).is_empty());
        assert!(fires, "{name} never fires");
    }
}
