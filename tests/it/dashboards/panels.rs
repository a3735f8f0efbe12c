//! What Grafana is known to fail on or to show wrongly: each combination of options was found in a rendered dashboard.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{dashboards, panels};
use crate::support::files::{array, assert_has, named, text};

/// Grey says that there is nothing to judge.
const GREY: &str = "#8e8e8e";

/// Returns the names of the columns that a table shows.
fn columns(panel: &Value) -> Vec<String> {
    let steps = array(&panel["transformations"]).iter();
    let names = steps.filter_map(|step| step["options"]["renameByName"].as_object());
    names
        .flat_map(|names| names.iter())
        .filter(|(column, _)| *column != "Value")
        .map(|(_, name)| text(name))
        .collect()
}

/// Returns the value that a panel sets for one of its series or columns.
fn of_name<'a>(panel: &'a Value, name: &str, property: &str) -> Option<&'a Value> {
    let overrides = array(&panel["fieldConfig"]["overrides"]).iter();
    let mut properties = overrides
        .filter(|one| one["matcher"] == json!({ "id": "byName", "options": name }))
        .flat_map(|one| array(&one["properties"]));
    properties
        .find(|one| one["id"] == property)
        .map(|one| &one["value"])
}

/// Returns what Grafana would fail on or show wrongly.
fn faults(panel: &Value) -> Vec<&'static str> {
    let (kind, options) = (text(&panel["type"]), &panel["options"]);
    let defaults = &panel["fieldConfig"]["defaults"];
    let (custom, mode) = (&defaults["custom"], &defaults["color"]["mode"]);
    let is_bars = custom["drawStyle"] == "bars";
    let calcs = array(&options["legend"]["calcs"]);
    let (targets, no_value) = (array(&panel["targets"]), &defaults["noValue"]);
    let fixed = array(&panel["fieldConfig"]["overrides"]).iter();
    let fixed = fixed.flat_map(|one| array(&one["properties"]));
    let fixed = fixed.filter(|one| one["id"] == "color" && one["value"]["mode"] == "fixed");
    let fixed: Vec<String> = fixed.map(|one| text(&one["value"]["fixedColor"])).collect();
    let different: BTreeSet<&String> = fixed.iter().collect();
    let by_name = panel.to_string().contains("palette-classic-by-name");
    let is_merged = options["mergeValues"] == true && mode == "thresholds";
    let has_points = kind == "timeseries" && custom["showPoints"] != "never";
    let mut faults = vec![
        // Up to 11.2 all series have one colour, and without data 10.1 to 11.6 show an error.
        (by_name, "colours by name"),
        (is_merged, "merged values lose their colours"),
        (defaults["unit"] == "short", "1.09 K stands beside 77"),
        (
            calcs.contains(&json!("last")),
            "a legend without lastNotNull",
        ),
        // They begin at a multiple of the step, so their total is not that of the time range.
        (is_bars && !calcs.is_empty(), "a total of bars"),
        (
            is_bars && panel["interval"] != "1m" && panel["interval"] != "1h",
            "bars of many minutes",
        ),
        (has_points, "points hide the line"),
        (different.len() < fixed.len(), "two series of one colour"),
    ];
    if kind == "table" {
        let is_filled = |name: &String| of_name(panel, name, "noValue").is_none();
        let hides_empty = !no_value.is_null() && columns(panel).iter().any(is_filled);
        let height = panel["gridPos"]["h"].as_u64().unwrap_or_default();
        let is_low = height < 10 && text(&targets[0]["expr"]).contains("topk(15");
        faults.push((hides_empty, "noValue in the empty cells of a column"));
        faults.push((is_low, "six of fifteen rows are seen"));
    }
    if kind == "stat" {
        let gone = json!({ "text": no_value, "color": GREY, "index": 9 });
        let mut mappings = array(&defaults["mappings"]).iter();
        let is_grey = mappings
            .any(|one| one["options"]["match"] == "null+nan" && one["options"]["result"] == gone);
        let is_green = no_value.is_null() || !is_grey;
        let is_last = options["reduceOptions"]["calcs"] == json!(["last"]);
        // A range ends at a multiple of its step; an instant query is exact, and NaN ends the line.
        let newest = targets.last().unwrap_or(&Value::Null);
        let ends = text(&newest["expr"]).ends_with(" or vector(NaN)")
            && panel["transformations"] == json!([{ "id": "merge", "options": {} }]);
        let goes_on = options["graphMode"] == "area" && !ends;
        faults.push((is_green, "green without data, or only No data"));
        faults.push((!is_last || goes_on, "a value that is gone is shown"));
        faults.push((newest["instant"] != true, "a value as old as a step"));
    }
    faults.retain(|(is_fault, _)| *is_fault);
    faults.into_iter().map(|(_, what)| what).collect()
}

#[test]
fn no_panel_has_options_that_grafana_fails_on() {
    let mut seen = 0;
    for panel in panels() {
        assert_eq!(faults(&panel), [""; 0], "{}", panel["title"]);
        seen += 1;
    }
    assert!(seen > 60, "{seen}");
}

#[test]
fn what_needs_another_data_source_is_on_a_dashboard_of_its_own() {
    for dashboard in dashboards() {
        let is_records = dashboard["uid"] == "organization-records";
        let variables = &dashboard["templating"]["list"];
        for variable in array(variables) {
            // Without such a data source its variable has a red triangle.
            let is_shown = variable["hide"] != 2;
            let is_prometheus = variable["query"] == "prometheus";
            let is_source = variable["type"] == "datasource";
            assert!(!is_source || is_prometheus || is_records && !is_shown);
        }
        let shown = array(variables).iter().filter(|one| one["hide"] != 2);
        // One line at 1600 pixels.
        assert!(shown.count() <= 7, "{}", dashboard["title"]);
        if !is_records {
            assert!(named(variables, "datasource")["query"] == "prometheus");
        }
        if dashboard["uid"] == "exporter-health" {
            assert_has!(dashboard["panels"][1], { "title": "Firing alerts", "gridPos": { "h": 4 } });
        }
    }
    let mut logs = panels();
    logs.retain(|panel| panel["type"] == "logs");
    let kinds: Vec<_> = logs.iter().map(|one| &one["datasource"]["type"]).collect();
    assert_eq!(kinds, ["loki", "victoriametrics-logs-datasource"]);
}
