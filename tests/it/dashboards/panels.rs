//! What Grafana is known to fail on or to show wrongly: each combination of options was found in a rendered dashboard.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{dashboards, panels};
use crate::support::files::{array, named, text};

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
    let no_value = &defaults["noValue"];
    let mut faults = Vec::new();
    let mut check = |is_fault: bool, what| {
        if is_fault {
            faults.push(what);
        }
    };
    check(
        panel.to_string().contains("palette-classic-by-name"),
        "up to 11.2 all series have one colour, and without data 10.1 to 11.6 show an error",
    );
    check(
        options["mergeValues"] == true && mode == "thresholds",
        "merged values lose their colours, and the legend shows thresholds",
    );
    check(
        defaults["unit"] == "short",
        "1.09 K stands beside 77: counts have the unit locale",
    );
    check(
        calcs.contains(&json!("last")),
        "the legend is blank if the newest point is missing: lastNotNull",
    );
    check(
        is_bars && !calcs.is_empty(),
        "bars begin at a multiple of the step, so their total is not that of the time range",
    );
    check(
        is_bars && panel["interval"] != "1m",
        "fifteen minutes have three bars",
    );
    check(
        kind == "timeseries" && custom["showPoints"] != "never",
        "points hide the line",
    );
    let fixed = array(&panel["fieldConfig"]["overrides"]).iter();
    let fixed = fixed.flat_map(|one| array(&one["properties"]));
    let fixed = fixed.filter(|one| one["id"] == "color" && one["value"]["mode"] == "fixed");
    let fixed: Vec<String> = fixed.map(|one| text(&one["value"]["fixedColor"])).collect();
    let different: BTreeSet<&String> = fixed.iter().collect();
    check(
        different.len() < fixed.len(),
        "two series have the same colour",
    );
    match kind.as_str() {
        "table" => {
            let is_filled = |name: &String| of_name(panel, name, "noValue").is_none();
            check(
                !no_value.is_null() && columns(panel).iter().any(is_filled),
                "noValue stands in the empty cells of a column",
            );
            let query = text(&panel["targets"][0]["expr"]);
            let height = panel["gridPos"]["h"].as_u64().unwrap_or_default();
            check(
                query.contains("topk(15") && height < 10,
                "six of fifteen rows are seen",
            );
        }
        "stat" | "bargauge" => {
            let gone = json!({ "text": no_value, "color": GREY, "index": 9 });
            let mut mappings = array(&defaults["mappings"]).iter();
            let is_grey = mappings.any(|one| {
                one["options"]["match"] == "null+nan" && one["options"]["result"] == gone
            });
            check(
                no_value.is_null() || !is_grey,
                "without data it is green, or says no more than No data",
            );
            check(
                options["reduceOptions"]["calcs"] != json!(["last"]),
                "a value that is gone is shown as the present one",
            );
            // A range ends at a multiple of its step; an instant query is exact, and NaN ends the line.
            let newest = array(&panel["targets"]).last().unwrap_or(&Value::Null);
            check(
                newest["instant"] != true,
                "the value is as old as a step of the range",
            );
            let is_told = text(&newest["expr"]).ends_with(" or vector(NaN)")
                && panel["transformations"] == json!([{ "id": "merge", "options": {} }]);
            check(
                options["graphMode"] == "area" && !is_told,
                "a value that is gone is shown as the present one",
            );
        }
        _ => {}
    }
    faults
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
fn every_combination_that_fails_is_found() {
    let good = |kind: &str| {
        let all = panels();
        let mut of_kind = all.into_iter().filter(|panel| panel["type"] == kind);
        of_kind.next().unwrap()
    };
    for (kind, path, value) in [
        (
            "timeseries",
            "/fieldConfig/defaults/color/mode",
            json!("palette-classic-by-name"),
        ),
        (
            "state-timeline",
            "/fieldConfig/defaults/color/mode",
            json!("thresholds"),
        ),
        ("timeseries", "/fieldConfig/defaults/unit", json!("short")),
        ("timeseries", "/options/legend/calcs", json!(["last"])),
        ("timeseries", "/options/legend/calcs", json!(["sum"])),
        ("timeseries", "/interval", json!("5m")),
        (
            "timeseries",
            "/fieldConfig/defaults/custom/showPoints",
            json!("auto"),
        ),
        ("table", "/fieldConfig/overrides", json!([])),
        ("stat", "/fieldConfig/defaults/noValue", Value::Null),
        ("stat", "/fieldConfig/defaults/mappings", json!([])),
        (
            "stat",
            "/options/reduceOptions/calcs/0",
            json!("lastNotNull"),
        ),
        ("stat", "/transformations", json!([])),
    ] {
        let mut panel = good(kind);
        assert_eq!(faults(&panel), [""; 0], "{kind}");
        *panel.pointer_mut(path).expect(path) = value.clone();
        assert!(!faults(&panel).is_empty(), "{kind}: {path} {value}");
    }
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
        // Two lines at 1600 pixels.
        assert!(shown.count() <= 10, "{}", dashboard["title"]);
        if !is_records {
            assert!(named(variables, "datasource")["query"] == "prometheus");
            let all = array(&dashboard["panels"]);
            let first = &all[1];
            assert_eq!(
                (&first["title"], &first["gridPos"]["h"]),
                (&json!("Firing alerts"), &json!(4))
            );
        }
    }
    let others = panels();
    let mut others = others.iter().filter(|panel| panel["type"] == "logs");
    let kinds: Vec<String> = others
        .by_ref()
        .map(|panel| text(&panel["datasource"]["type"]))
        .collect();
    assert_eq!(kinds, ["loki", "victoriametrics-logs-datasource"]);
}
