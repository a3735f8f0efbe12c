//! The dashboards keep the rules of Grafana's dashboard-linter and of this project; alerts, runbooks and documents agree with the program.

mod alerts;
mod names;
mod queries;

use serde_json::Value;

use crate::support::files::{array, assert_has, text, yaml};
use queries::selectors;

const FILES: [&str; 2] = ["organization-activity.json", "exporter-health.json"];

/// The units of Grafana's list that are in use.
const UNITS: &str = "short locale s percentunit bytes Bps reqps cps dateTimeAsIso none";

fn dashboards() -> [Value; 2] {
    FILES.map(|name| yaml(&format!("dashboards/{name}")))
}

/// Returns the panels that show something.
fn panels(dashboard: &Value) -> Vec<&Value> {
    let panels = array(&dashboard["panels"]).iter();
    panels.filter(|panel| panel["type"] != "row").collect()
}

/// Returns title and query of each target of a kind of data source.
fn targets(dashboard: &Value, kind: &str) -> Vec<(String, String)> {
    let mut targets = Vec::new();
    for panel in panels(dashboard) {
        let of_kind = |target: &&Value| target["datasource"]["type"] == kind;
        for target in array(&panel["targets"]).iter().filter(of_kind) {
            targets.push((text(&panel["title"]), text(&target["expr"])));
        }
    }
    targets
}

/// Returns the Prometheus queries of both dashboards with the titles of their panels.
fn queries() -> Vec<(String, String)> {
    let dashboards = dashboards().into_iter();
    dashboards
        .flat_map(|dashboard| targets(&dashboard, "prometheus"))
        .collect()
}

#[test]
fn variables_and_panels_keep_the_rules_of_the_linter() {
    for dashboard in dashboards() {
        let variables = array(&dashboard["templating"]["list"]);
        assert_has!(variables[0], { "type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus" });
        for (at, name, label) in [(1, "job", "Job"), (2, "instance", "Instance")] {
            assert_has!(variables[at], {
                "name": name, "label": label, "multi": true, "includeAll": true, "allValue": ".+",
                "datasource": { "type": "prometheus", "uid": "${datasource}" },
            });
        }
        let of_kind = |kind: &'static str| {
            let variables = variables.iter();
            variables.filter(move |variable| variable["type"] == kind)
        };
        for variable in of_kind("query") {
            let is_ours = text(&variable["query"]).starts_with("label_values(orgdata_");
            assert!(is_ours && variable["refresh"] == 2, "{variable}");
        }
        assert_eq!(of_kind("datasource").count(), 1);
        for panel in panels(&dashboard) {
            let is_logs = panel["type"] == "logs";
            let source = if is_logs { "${loki}" } else { "${datasource}" };
            assert_eq!(panel["datasource"]["uid"], source, "{}", panel["title"]);
            let is_told = text(&panel["description"]).ends_with('.');
            assert!(is_told && !text(&panel["title"]).is_empty(), "{panel:#}");
            let unit = text(&panel["fieldConfig"]["defaults"]["unit"]);
            let is_known = UNITS.split(' ').any(|known| known == unit);
            assert!(is_logs || is_known, "{}: {unit}", panel["title"]);
            let targets = array(&panel["targets"]);
            let mut queries = targets.iter().map(|target| text(&target["expr"]));
            let is_filled = !targets.is_empty() && queries.all(|query| !query.is_empty());
            assert!(is_filled, "{panel:#}");
        }
        for (panel, query) in targets(&dashboard, "loki") {
            let range = !query.contains('[') || query.contains("[$__auto]");
            let is_ours = query.starts_with("{service_name=");
            assert!(is_ours && range, "{panel}: {query}");
        }
    }
}

#[test]
fn queries_keep_the_rules_of_the_linter() {
    for (panel, query) in queries() {
        let selectors = selectors(&query);
        assert!(!selectors.is_empty(), "{panel}: {query}");
        for selector in selectors {
            for wanted in [("job", "=~", "$job"), ("instance", "=~", "$instance")] {
                let is_there = selector.matchers.contains(&wanted);
                assert!(is_there, "{panel}: {wanted:?} in {query}");
            }
            let range = selector.range;
            let ranges: &[_] = match selector.function {
                "rate" | "irate" => &[Some("$__rate_interval")],
                "increase" => &[Some("$__rate_interval"), Some("$__range"), Some("1h")],
                _ => &[None],
            };
            assert!(ranges.contains(&range), "{panel}: {range:?} in {query}");
            let is_bare = selector.is_counter() && range.is_none();
            assert!(!is_bare, "{panel}: a bare counter in {query}");
        }
        // People count whole numbers, and `increase()` extrapolates.
        let count = |words: &str| query.matches(words).count();
        let is_rounded = count("round(increase(") == count("increase(");
        assert!(
            is_rounded || count("histogram_quantile(") > 0,
            "{panel}: {query}"
        );
    }
}

#[test]
fn a_panel_without_events_or_tickets_shows_zero() {
    let always = "orgdata_up orgdata_audit_paused orgdata_last_success_timestamp_seconds orgdata_api_ orgdata_state_ orgdata_exporter_ process_";
    let zeros = [
        "0 * max(orgdata_audit_paused{",
        "0 * max(orgdata_tickets_snapshot_consistent{",
        "vector(0)",
    ];
    for (panel, query) in queries() {
        let has = |zero: &&str| query.contains(&format!("or on () {zero}"));
        let is_always_there = |metric: &str| always.split(' ').any(|name| metric.starts_with(name));
        let mut selectors = selectors(&query).into_iter();
        let are_there = selectors.all(|selector| is_always_there(selector.metric));
        assert!(zeros.iter().any(has) || are_there, "{panel}: {query}");
    }
}

#[test]
fn a_dashboard_can_be_provisioned_as_it_is() {
    for (dashboard, file) in dashboards().iter().zip(FILES) {
        let uid = file.trim_end_matches(".json");
        assert_has!(*dashboard, { "uid": uid, "editable": false, "__inputs": null, "id": null, "tags": ["orgdata-exporter"] });
        let link = &dashboard["links"][0];
        assert_has!(*link, { "type": "dashboards", "tags": ["orgdata-exporter"], "keepTime": true });
        // No panel is beyond the right edge or on top of another one.
        let mut taken = std::collections::BTreeSet::new();
        for panel in array(&dashboard["panels"]) {
            let [x, y, w, h] =
                ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap());
            let mut cells = (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y)));
            let is_free = x + w <= 24 && cells.all(|cell| taken.insert(cell));
            assert!(is_free, "{} overlaps", panel["title"]);
        }
    }
}
