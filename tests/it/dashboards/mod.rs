//! Dashboards, alerts, runbooks and the reference of metrics agree with the program and with each other.
//!
//! The dashboards are generated from `activity.rs` and `health.rs`, the reference from the metrics themselves:
//! `UPDATE=1 cargo test --test dashboards` writes them anew.

mod activity;
mod health;
mod lint;
mod model;
mod promql;
mod reference;
mod rules;
mod words;

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

/// Makes a dashboard worse.
type Fault = Box<dyn Fn(&mut Value)>;

/// A file of the repository.
fn file(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// A generated file is as its source says; with `UPDATE` in the environment it is made so.
fn generated(path: &str, wanted: &str) {
    if std::env::var_os("UPDATE").is_some() {
        fs::write(root().join(path), wanted).expect("the repository is writable");
    }
    let there = fs::read_to_string(root().join(path)).unwrap_or_default();
    assert!(
        there == wanted,
        "{path} is out of date: UPDATE=1 cargo test --test dashboards"
    );
}

fn dashboards() -> [Value; 2] {
    [activity::dashboard(), health::dashboard()]
        .map(|dashboard| serde_json::from_str(&dashboard.text()).expect("JSON"))
}

#[test]
fn the_dashboards_are_those_of_their_source() {
    generated(
        "dashboards/organization-activity.json",
        &activity::dashboard().text(),
    );
    generated(
        "dashboards/exporter-health.json",
        &health::dashboard().text(),
    );
}

#[test]
fn the_reference_of_metrics_is_that_of_the_program() {
    generated(
        "dashboards/METRICS.md",
        &reference::page(&reference::families()),
    );
}

#[test]
fn every_linter_rule_is_kept() {
    for dashboard in dashboards() {
        for (rule, check) in lint::RULES {
            assert_eq!(
                check(&dashboard),
                Vec::<String>::new(),
                "{rule}: {}",
                dashboard["title"]
            );
        }
    }
}

#[test]
fn every_linter_rule_finds_what_it_is_for() {
    let panel =
        |change: fn(&mut Value)| move |dashboard: &mut Value| change(&mut dashboard["panels"][1]);
    let expr = |query: &'static str| {
        move |dashboard: &mut Value| dashboard["panels"][1]["targets"][0]["expr"] = json!(query)
    };
    let log = |query: &'static str| {
        move |dashboard: &mut Value| {
            dashboard["panels"][1]["targets"][0] =
                json!({ "datasource": { "type": "loki" }, "expr": query });
        }
    };
    let faults: [(&str, Fault); 17] = [
        (
            "template-datasource-rule",
            Box::new(|dashboard| {
                let second = dashboard["templating"]["list"][0].clone();
                dashboard["templating"]["list"]
                    .as_array_mut()
                    .expect("a list")
                    .push(second);
            }),
        ),
        (
            "template-job-rule",
            Box::new(|dashboard| dashboard["templating"]["list"][1]["allValue"] = json!(".*")),
        ),
        (
            "template-instance-rule",
            Box::new(|dashboard| dashboard["templating"]["list"][2]["multi"] = json!(false)),
        ),
        (
            "template-label-promql-rule",
            Box::new(|dashboard| {
                dashboard["templating"]["list"][1]["query"] = json!("values(orgdata_up, job)")
            }),
        ),
        (
            "template-on-time-change-reload-rule",
            Box::new(|dashboard| dashboard["templating"]["list"][1]["refresh"] = json!(1)),
        ),
        (
            "panel-datasource-rule",
            Box::new(panel(|panel| {
                panel["datasource"]["uid"] = json!("prometheus")
            })),
        ),
        (
            "panel-title-description-rule",
            Box::new(panel(|panel| panel["description"] = json!(""))),
        ),
        (
            "panel-units-rule",
            Box::new(panel(|panel| {
                panel["fieldConfig"]["defaults"]["unit"] = json!("events")
            })),
        ),
        (
            "panel-no-targets-rule",
            Box::new(panel(|panel| panel["targets"] = json!([]))),
        ),
        ("target-promql-rule", Box::new(expr("sum(up"))),
        (
            "target-logql-rule",
            Box::new(log("{service_name=\"x\"} | line_format \"{{.a}}")),
        ),
        (
            "target-logql-auto-rule",
            Box::new(log("rate({service_name=\"x\"}[5m])")),
        ),
        (
            "target-rate-interval-rule",
            Box::new(expr("rate(orgdata_audit_gaps_total[5m])")),
        ),
        (
            "target-job-rule",
            Box::new(expr(r#"orgdata_up{job="$job"}"#)),
        ),
        (
            "target-instance-rule",
            Box::new(expr(r#"orgdata_up{job=~"$job"}"#)),
        ),
        (
            "target-counter-agg-rule",
            Box::new(expr("sum(orgdata_audit_gaps_total)")),
        ),
        (
            "uneditable-dashboard",
            Box::new(|dashboard| dashboard["editable"] = json!(true)),
        ),
    ];
    for ((rule, check), (name, fault)) in lint::RULES.into_iter().zip(faults) {
        assert_eq!(rule, name);
        let [_, mut dashboard] = dashboards();
        assert_eq!(check(&dashboard), Vec::<String>::new(), "{rule}");
        fault(&mut dashboard);
        assert!(!check(&dashboard).is_empty(), "{rule} finds nothing");
    }
}

#[test]
fn a_dashboard_can_be_provisioned_as_it_is() {
    let [activity, health] = dashboards();
    assert_ne!(activity["uid"], health["uid"]);
    for dashboard in [activity, health] {
        assert!(
            dashboard.get("__inputs").is_none() && dashboard.get("id").is_none(),
            "it is no export"
        );
        assert!(!lint::text(&dashboard["uid"]).is_empty());
        let links = lint::array(&dashboard["links"]);
        assert!(
            links.len() == 1
                && links[0]["tags"] == dashboard["tags"]
                && links[0]["keepTime"] == true,
            "{links:?}"
        );
        for panel in lint::panels(&dashboard) {
            assert!(
                !["graph", "singlestat", "table-old"].contains(&lint::text(&panel["type"])),
                "gone since Grafana 12: {panel}"
            );
        }
        // No two panels are in the same place, and none is beyond the right edge.
        let place = |panel: &Value, side: &str| panel["gridPos"][side].as_u64().expect("a number");
        let panels = lint::array(&dashboard["panels"]);
        for (index, one) in panels.iter().enumerate() {
            assert!(place(one, "x") + place(one, "w") <= 24, "{}", one["title"]);
            for other in &panels[index + 1..] {
                let apart = |from: &str, length: &str| {
                    place(one, from) + place(one, length) <= place(other, from)
                        || place(other, from) + place(other, length) <= place(one, from)
                };
                assert!(
                    apart("x", "w") || apart("y", "h"),
                    "{} is on {}",
                    one["title"],
                    other["title"]
                );
            }
        }
    }
}

#[test]
fn a_panel_without_events_or_tickets_reads_zero() {
    // What a person counts ends with a 0 for nothing; the rest is there whenever the exporter is.
    let always = [
        "orgdata_up",
        "orgdata_audit_paused",
        "orgdata_last_success_timestamp_seconds",
        "orgdata_api_",
        "orgdata_state_",
        "orgdata_exporter_",
        "process_",
    ];
    for dashboard in dashboards() {
        for (panel, query) in lint::targets(&dashboard, "prometheus") {
            let or_zero = query.contains("or on () 0 * max(orgdata_audit_paused{")
                || query.contains("or on () 0 * max(orgdata_tickets_snapshot_consistent{");
            let is_always_there = || {
                promql::names(query)
                    .selectors
                    .iter()
                    .all(|one| always.iter().any(|name| one.metric.starts_with(name)))
            };
            // A mean over other weeks is 0 where there are none.
            assert!(
                or_zero || is_always_there() || query.contains("or on () vector(0)"),
                "{panel}: {query}"
            );
        }
    }
}

#[test]
fn whole_numbers_are_rounded_where_a_person_counts() {
    for dashboard in dashboards() {
        for (panel, query) in lint::targets(&dashboard, "prometheus") {
            let increases = query.matches("increase(").count();
            let of_quantile = query.contains("histogram_quantile(");
            assert!(
                of_quantile || query.matches("round(increase(").count() == increases,
                "{panel}: {query}"
            );
        }
    }
}
