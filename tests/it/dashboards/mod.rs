//! The queries of the dashboards keep the rules of Grafana's dashboard-linter; alerts, runbooks and documents agree with the program.
//! `.ci/grafana-schema` has the rules of what is around the queries.

mod alerts;
mod names;
mod panels;
mod queries;

use serde_json::Value;

use crate::support::files::{array, assert_has, text, yaml};
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
        let is_ours = !selectors.is_empty() || query.contains("ALERTS{");
        assert!(is_ours, "{panel}: {query}");
        for selector in selectors {
            for label in ["cluster", "namespace", "job", "instance"] {
                let wanted = (label, "=~", &*format!("${label}"));
                assert!(selector.matchers.contains(&wanted), "{panel}: {selector:?}");
            }
            let range = selector.range;
            let ranges: &[_] = match selector.function {
                "rate" => &[Some("$__rate_interval")],
                "increase" => &[Some("$__rate_interval"), Some("$__range"), Some("1h")],
                "max_over_time" | "present_over_time" | "changes" => &[Some("$__range")],
                // A bar is the difference of two samples: `increase()` extrapolates, by a quarter in a minute.
                "last_over_time" => &[Some("$__interval"), Some("1h"), Some("$__range")],
                "min_over_time" => &[Some("$__interval")],
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
