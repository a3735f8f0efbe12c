//! `alerts.yaml` and `detections.yaml`, their tests and their runbooks.

use std::collections::BTreeMap;

use serde_json::Value;

use super::queries::selectors;
use crate::support::files::{array, file, names, text, yaml};

/// Returns the rules of a file, alerts and what they record.
pub(super) fn rules(file: &str) -> Vec<Value> {
    let rules = yaml(&format!("dashboards/{file}"))["groups"][0]["rules"].clone();
    array(&rules).to_vec()
}

/// Returns the alerts of a file by name.
fn named(file: &str, least: usize) -> BTreeMap<String, Value> {
    let mut rules = rules(file);
    rules.retain(|rule| !rule["alert"].is_null());
    let count = rules.len();
    let alerts: BTreeMap<String, Value> = rules
        .into_iter()
        .map(|rule| (text(&rule["alert"]), rule))
        .collect();
    let is_right = count > least && alerts.len() == count;
    assert!(is_right, "{file}: a name is missing, or there twice");
    alerts
}

/// Returns the alerts about the exporter.
pub(super) fn alerts() -> BTreeMap<String, Value> {
    named("alerts.yaml", 20)
}

/// Returns the alerts about the activity of the organization.
pub(super) fn detections() -> BTreeMap<String, Value> {
    named("detections.yaml", 5)
}

#[test]
fn an_alert_says_what_is_wrong_and_what_to_do() {
    assert!(
        alerts()
            .keys()
            .all(|name| name.starts_with("OrgdataExporter"))
    );
    assert!(
        detections()
            .keys()
            .all(|name| name.starts_with("OrgdataDetection"))
    );
    for (name, rule) in alerts().into_iter().chain(detections()) {
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
    let (alerts, detections) = (alerts(), detections());
    let list = file("docs/metrics.md");
    // What nothing loads by default is described beside the file.
    let own = file("dashboards/README.md");
    for (name, rule) in alerts.iter().chain(&detections) {
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
        let own_row = format!("| [`{name}`](runbooks/{name}.md) | {severity} |");
        let is_listed = list.contains(&row) || own.contains(&own_row);
        assert!(is_listed, "no page has the row {row}");
    }
    assert_eq!(list.matches("| [`OrgdataExporter").count(), alerts.len());
    let names_of = alerts.keys().chain(detections.keys());
    let mut pages: Vec<String> = names_of.map(|name| format!("{name}.md")).collect();
    pages.sort();
    assert_eq!(names("dashboards/runbooks"), pages);
}

/// Tests of what looks like a finding and is none.
const HARMLESS: &str = "a weekend|an outage that is over|a restart|a new exporter|folded actors";

/// Asserts that each alert of a file fires in a test, and in these tests never.
fn assert_tested(file: &str, alerts: &BTreeMap<String, Value>, is_quiet: impl Fn(&Value) -> bool) {
    let tests = yaml(&format!("dashboards/{file}.test.yaml"))["tests"].clone();
    for name in alerts.keys() {
        let of = |test: &&Value| -> Vec<Value> {
            let cases = array(&test["alert_rule_test"]).iter();
            let cases = cases.filter(|case| case["alertname"] == *name);
            cases.map(|case| case["exp_alerts"].clone()).collect()
        };
        let (quiet, other): (Vec<_>, Vec<_>) =
            array(&tests).iter().partition(|test| is_quiet(test));
        let mut expected = other.iter().flat_map(of);
        let fires = expected.any(|alerts| !array(&alerts).is_empty());
        assert!(fires && !quiet.is_empty(), "{name} never fires");
        for expected in quiet.iter().map(of) {
            let is_quiet = !expected.is_empty() && expected.iter().all(Value::is_null);
            assert!(is_quiet, "{name} is not tested to stay quiet");
        }
    }
}

#[test]
fn every_alert_is_tested_to_fire_and_to_stay_quiet() {
    let tests = yaml("dashboards/alerts.test.yaml");
    let healthy = &tests["tests"][0];
    assert_tested("alerts", &alerts(), |test| test == healthy);
    let tests = yaml("dashboards/detections.test.yaml");
    let names = || {
        array(&tests["tests"])
            .iter()
            .map(|test| text(&test["name"]))
    };
    let mut harmless = HARMLESS.split('|');
    assert!(harmless.all(|name| names().any(|known| known == name)));
    let is_harmless = |test: &Value| HARMLESS.split('|').any(|name| test["name"] == name);
    assert_tested("detections", &detections(), is_harmless);
}
