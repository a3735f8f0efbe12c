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
    dashboards()
        .iter()
        .flat_map(|dashboard| targets(dashboard, "prometheus"))
        .collect()
}

#[test]
fn variables_and_panels_keep_the_rules_of_the_linter() {
    for dashboard in dashboards() {
        let variables = array(&dashboard["templating"]["list"]);
        assert_has!(variables[0], { "type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus" });
        for (variable, name, label) in [
            (&variables[1], "job", "Job"),
            (&variables[2], "instance", "Instance"),
        ] {
            assert_has!(*variable, {
                "name": name, "label": label, "multi": true, "includeAll": true, "allValue": ".+",
                "datasource": { "type": "prometheus", "uid": "${datasource}" },
            });
        }
        for variable in variables
            .iter()
            .filter(|variable| variable["type"] == "query")
        {
            let query = text(&variable["query"]);
            assert!(
                query.starts_with("label_values(orgdata_") && variable["refresh"] == 2,
                "{query}"
            );
        }
        let sources = variables
            .iter()
            .filter(|variable| variable["type"] == "datasource");
        assert_eq!(sources.count(), 1);
        for panel in panels(&dashboard) {
            let is_logs = panel["type"] == "logs";
            let source = if is_logs { "${loki}" } else { "${datasource}" };
            assert_eq!(panel["datasource"]["uid"], source, "{}", panel["title"]);
            assert!(
                !text(&panel["title"]).is_empty() && text(&panel["description"]).ends_with('.'),
                "{panel:#}"
            );
            let unit = text(&panel["fieldConfig"]["defaults"]["unit"]);
            assert!(
                is_logs || UNITS.split(' ').any(|known| known == unit),
                "{}: {unit}",
                panel["title"]
            );
            let queries = array(&panel["targets"])
                .iter()
                .map(|target| text(&target["expr"]));
            assert!(
                queries.clone().count() > 0 && queries.clone().all(|query| !query.is_empty()),
                "{panel:#}"
            );
        }
        for (panel, query) in targets(&dashboard, "loki") {
            assert!(query.starts_with("{service_name="), "{panel}: {query}");
            assert!(
                !query.contains('[') || query.contains("[$__auto]"),
                "{panel}: {query}"
            );
        }
    }
}

#[test]
fn queries_keep_the_rules_of_the_linter() {
    for (panel, query) in queries() {
        let selectors = selectors(&query);
        assert!(!selectors.is_empty(), "{panel}: {query}");
        for selector in selectors {
            for label in ["job", "instance"] {
                let wanted = (label.to_owned(), "=~".to_owned(), format!("${label}"));
                assert!(
                    selector.matchers.contains(&wanted),
                    "{panel}: {label} in {query}"
                );
            }
            let range = selector.range.as_deref();
            let ranges: &[_] = match selector.function.as_str() {
                "rate" | "irate" => &[Some("$__rate_interval")],
                "increase" => &[Some("$__rate_interval"), Some("$__range"), Some("1h")],
                _ => &[None],
            };
            assert!(ranges.contains(&range), "{panel}: {range:?} in {query}");
            assert!(
                !selector.is_counter() || range.is_some(),
                "{panel}: a bare counter in {query}"
            );
        }
        // People count whole numbers, and `increase()` extrapolates.
        let rounded =
            query.matches("round(increase(").count() == query.matches("increase(").count();
        assert!(
            rounded || query.contains("histogram_quantile("),
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
        let or_zero = zeros
            .iter()
            .any(|zero| query.contains(&format!("or on () {zero}")));
        let is_always_there = |metric: &str| always.split(' ').any(|name| metric.starts_with(name));
        let mut metrics = selectors(&query)
            .into_iter()
            .map(|selector| selector.metric);
        assert!(
            or_zero || metrics.all(|metric| is_always_there(&metric)),
            "{panel}: {query}"
        );
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
            assert!(x + w <= 24, "{}", panel["title"]);
            let mut cells = (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y)));
            assert!(
                cells.all(|cell| taken.insert(cell)),
                "{} overlaps",
                panel["title"]
            );
        }
    }
}
