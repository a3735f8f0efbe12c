//! The queries of the dashboards keep the rules of Grafana's dashboard-linter; alerts, runbooks and documents agree with the program.
//! `.ci/grafana-schema` has the rules of what is around the queries.

mod alerts;
mod names;
mod panels;
mod queries;

use serde_json::Value;

use crate::support::files::{array, assert_has, file, text, yaml};
use queries::selectors;

const FILES: [&str; 3] = [
    "organization-activity.json",
    "exporter-health.json",
    "organization-records.json",
];

fn dashboards() -> [Value; 3] {
    FILES.map(|name| yaml(&format!("dashboards/{name}")))
}

/// Returns the panels of all dashboards but the rows, also those in collapsed rows.
fn panels() -> Vec<Value> {
    let mut panels = Vec::new();
    for panel in dashboards()
        .iter()
        .flat_map(|dashboard| array(&dashboard["panels"]))
    {
        let inner = panel["panels"].as_array().into_iter().flatten();
        panels.extend(inner.chain([panel]).cloned());
    }
    panels.retain(|panel| panel["type"] != "row");
    panels
}

/// Returns the Prometheus queries of all dashboards with the titles of their panels.
fn queries() -> Vec<(String, String)> {
    let mut queries = Vec::new();
    for panel in panels() {
        let targets = array(&panel["targets"]).iter();
        let targets = targets.filter(|target| target["datasource"]["type"] == "prometheus");
        queries.extend(targets.map(|target| (text(&panel["title"]), text(&target["expr"]))));
    }
    queries
}

#[test]
fn queries_keep_the_rules_of_the_linter() {
    for (panel, query) in queries() {
        let selectors = selectors(&query);
        let is_ours = !selectors.is_empty() || query.contains("ALERTS");
        assert!(is_ours, "{panel}: {query}");
        for selector in selectors {
            for label in ["cluster", "namespace", "job", "instance"] {
                let wanted = (label, "=~", &*format!("${label}"));
                assert!(selector.matchers.contains(&wanted), "{panel}: {selector:?}");
            }
            let range = selector.range;
            let ranges: &[_] = match selector.function {
                "rate" => &[Some("$__rate_interval")],
                "present_over_time" | "changes" => &[Some("$__range")],
                "count_over_time" => &[Some("1d")],
                "max_over_time" => &[Some("$__range"), Some("6h")],
                // A bar or an hour is the difference of two samples, because `increase()` extrapolates and sees nothing across an outage.
                // It stands in where a counter was reset.
                "increase" | "min_over_time" | "last_over_time" => &[
                    Some("$__interval"),
                    Some("1h"),
                    Some("1d"),
                    Some("$__range"),
                ],
                _ => &[None],
            };
            assert!(ranges.contains(&range), "{panel}: {range:?} in {query}");
            let is_zero = query.contains(&format!("0 * {}{{", selector.metric));
            let is_bare = selector.is_counter() && range.is_none() && !is_zero;
            assert!(!is_bare, "{panel}: a bare counter in {query}");
        }
        // People count whole numbers, and `increase()` extrapolates.
        let count = |words: &str| query.matches(words).count();
        let is_rounded = count("round(increase(") == count("increase(");
        let is_quantile = count("histogram_quantile(") > 0;
        assert!(is_rounded || is_quantile, "{panel}: {query}");
        // A zero with other labels than the rest is a series of its own, without a name.
        assert_eq!(count("or on () "), 0, "{panel}: {query}");
    }
}

#[test]
fn a_dashboard_can_be_provisioned_as_it_is() {
    for (dashboard, file) in dashboards().iter().zip(FILES) {
        let uid = file.trim_end_matches(".json");
        assert_has!(*dashboard, { "uid": uid, "editable": false, "__inputs": null, "id": null, "tags": ["orgdata-exporter"] });
        assert_has!(dashboard["links"][0], { "type": "dashboards", "tags": ["orgdata-exporter"], "keepTime": true });
    }
}

/// Returns the SHA-256 of a file in hexadecimal.
fn sha256(path: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, file(path).as_bytes());
    let bytes = digest.as_ref().iter();
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

/// A dashboard that changes needs a new picture: draw it, then write the new sum with `sha256sum`.
#[test]
fn pictures_show_the_dashboards_as_they_are() {
    for name in ["organization-activity", "exporter-health"] {
        let noted = file(&format!("docs/images/{name}.sha256"));
        let json = format!("dashboards/{name}.json");
        assert_eq!(
            noted,
            format!("{}  {json}\n", sha256(&json)),
            "draw {name} again"
        );
    }
}

#[test]
fn the_activity_dashboard_is_small() {
    let [activity, ..] = dashboards();
    let panels = array(&activity["panels"]).iter();
    let inner = panels
        .clone()
        .flat_map(|panel| panel["panels"].as_array().into_iter().flatten());
    let count = panels
        .chain(inner)
        .filter(|panel| panel["type"] != "row")
        .count();
    assert!(count <= 20, "{count} panels");
    for dashboard in dashboards() {
        assert_eq!(dashboard["refresh"], "5m");
    }
}
