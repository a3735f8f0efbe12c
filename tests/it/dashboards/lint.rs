//! The 17 rules of Grafana's dashboard-linter, written down anew from their documentation, each as strict as its strictest reading.

use serde_json::Value;

use super::promql::{Selector, names};

/// Finds what is wrong with a dashboard.
pub(crate) type Check = fn(&Value) -> Vec<String>;

/// The rules by name.
pub(crate) const RULES: [(&str, Check); 17] = [
    ("template-datasource-rule", template_datasource),
    ("template-job-rule", |dashboard| {
        template(dashboard, "job", "Job")
    }),
    ("template-instance-rule", |dashboard| {
        template(dashboard, "instance", "Instance")
    }),
    ("template-label-promql-rule", template_label_promql),
    ("template-on-time-change-reload-rule", template_reload),
    ("panel-datasource-rule", panel_datasource),
    ("panel-title-description-rule", panel_title_description),
    ("panel-units-rule", panel_units),
    ("panel-no-targets-rule", panel_no_targets),
    ("target-promql-rule", target_promql),
    ("target-logql-rule", target_logql),
    ("target-logql-auto-rule", target_logql_auto),
    ("target-rate-interval-rule", target_rate_interval),
    ("target-job-rule", |dashboard| {
        target_matcher(dashboard, "job")
    }),
    ("target-instance-rule", |dashboard| {
        target_matcher(dashboard, "instance")
    }),
    ("target-counter-agg-rule", target_counter_agg),
    ("uneditable-dashboard", |dashboard| {
        found(dashboard["editable"] != false, || {
            "can be edited".to_owned()
        })
    }),
];

/// Units of Grafana's list; only those that we need.
const UNITS: [&str; 10] = [
    "short",
    "locale",
    "s",
    "percentunit",
    "bytes",
    "Bps",
    "reqps",
    "cps",
    "dateTimeAsIso",
    "none",
];

fn found(wrong: bool, what: impl FnOnce() -> String) -> Vec<String> {
    if wrong { vec![what()] } else { Vec::new() }
}

pub(crate) fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Panels that show something.
pub(crate) fn panels(dashboard: &Value) -> Vec<&Value> {
    array(&dashboard["panels"])
        .iter()
        .filter(|panel| panel["type"] != "row")
        .collect()
}

pub(crate) fn variables(dashboard: &Value) -> &[Value] {
    array(&dashboard["templating"]["list"])
}

/// Panel and query of each target of a kind of data source.
pub(crate) fn targets<'a>(dashboard: &'a Value, kind: &str) -> Vec<(&'a str, &'a str)> {
    let of = |panel: &'a Value| {
        array(&panel["targets"])
            .iter()
            .map(move |target| (panel, target))
    };
    panels(dashboard)
        .into_iter()
        .flat_map(of)
        .filter(|(_, target)| target["datasource"]["type"] == kind)
        .map(|(panel, target)| (text(&panel["title"]), text(&target["expr"])))
        .collect()
}

fn template_datasource(dashboard: &Value) -> Vec<String> {
    let sources: Vec<&Value> = variables(dashboard)
        .iter()
        .filter(|variable| variable["type"] == "datasource")
        .collect();
    let right = sources.len() == 1
        && sources[0]["name"] == "datasource"
        && sources[0]["label"] == "Data source"
        && sources[0]["query"] == "prometheus";
    found(!right, || {
        "not exactly one variable of a data source, called datasource".to_owned()
    })
}

fn template(dashboard: &Value, name: &str, label: &str) -> Vec<String> {
    let right = variables(dashboard).iter().any(|variable| {
        variable["name"] == name
            && variable["label"] == label
            && variable["type"] == "query"
            && variable["datasource"]["uid"] == "${datasource}"
            && variable["multi"] == true
            && variable["allValue"] == ".+"
    });
    found(!right, || format!("no proper variable {name}"))
}

fn template_label_promql(dashboard: &Value) -> Vec<String> {
    let wrong = |variable: &&Value| {
        let inside = text(&variable["query"])
            .strip_prefix("label_values(")
            .and_then(|query| query.strip_suffix(')'));
        variable["type"] == "query"
            && inside.is_none_or(|inside| names(inside).selectors.is_empty())
    };
    variables(dashboard)
        .iter()
        .filter(wrong)
        .map(|variable| text(&variable["query"]).to_owned())
        .collect()
}

fn template_reload(dashboard: &Value) -> Vec<String> {
    let wrong = |variable: &&Value| variable["type"] == "query" && variable["refresh"] != 2;
    variables(dashboard)
        .iter()
        .filter(wrong)
        .map(|variable| text(&variable["name"]).to_owned())
        .collect()
}

fn panel_datasource(dashboard: &Value) -> Vec<String> {
    // Records are not in Prometheus; their data source is a variable too.
    let wrong = |panel: &&Value| {
        panel["datasource"]["uid"]
            != if panel["type"] == "logs" {
                "${loki}"
            } else {
                "${datasource}"
            }
    };
    panels(dashboard)
        .into_iter()
        .filter(wrong)
        .map(|panel| text(&panel["title"]).to_owned())
        .collect()
}

fn panel_title_description(dashboard: &Value) -> Vec<String> {
    let wrong = |panel: &&Value| {
        text(&panel["title"]).is_empty() || !text(&panel["description"]).ends_with('.')
    };
    panels(dashboard)
        .into_iter()
        .filter(wrong)
        .map(|panel| text(&panel["title"]).to_owned())
        .collect()
}

fn panel_units(dashboard: &Value) -> Vec<String> {
    let wrong = |panel: &&Value| {
        panel["type"] != "logs" && !UNITS.contains(&text(&panel["fieldConfig"]["defaults"]["unit"]))
    };
    panels(dashboard)
        .into_iter()
        .filter(wrong)
        .map(|panel| text(&panel["title"]).to_owned())
        .collect()
}

fn panel_no_targets(dashboard: &Value) -> Vec<String> {
    let wrong = |panel: &&Value| {
        array(&panel["targets"])
            .iter()
            .all(|target| text(&target["expr"]).is_empty())
    };
    panels(dashboard)
        .into_iter()
        .filter(wrong)
        .map(|panel| text(&panel["title"]).to_owned())
        .collect()
}

fn balanced(query: &str) -> bool {
    let count = |c| query.matches(c).count();
    count('(') == count(')')
        && count('{') == count('}')
        && count('[') == count(']')
        && count('"') % 2 == 0
}

/// That they parse is shown by both generations of Prometheus, with the variables filled in.
fn target_promql(dashboard: &Value) -> Vec<String> {
    let wrong = |(_, query): &(&str, &str)| !balanced(query) || names(query).selectors.is_empty();
    targets(dashboard, "prometheus")
        .into_iter()
        .filter(wrong)
        .map(|(panel, _)| panel.to_owned())
        .collect()
}

fn target_logql(dashboard: &Value) -> Vec<String> {
    let wrong = |(_, query): &(&str, &str)| {
        !balanced(&query.replace("{{", "").replace("}}", ""))
            || !query.starts_with("{service_name=")
    };
    targets(dashboard, "loki")
        .into_iter()
        .filter(wrong)
        .map(|(panel, _)| panel.to_owned())
        .collect()
}

fn target_logql_auto(dashboard: &Value) -> Vec<String> {
    let wrong = |(_, query): &(&str, &str)| query.contains('[') && !query.contains("[$__auto]");
    targets(dashboard, "loki")
        .into_iter()
        .filter(wrong)
        .map(|(panel, _)| panel.to_owned())
        .collect()
}

/// The selectors that a rule finds fault with.
fn selectors(dashboard: &Value, wrong: impl Fn(&Selector) -> bool) -> Vec<String> {
    let mut faults = Vec::new();
    for (panel, query) in targets(dashboard, "prometheus") {
        for selector in names(query).selectors {
            if wrong(&selector) {
                faults.push(format!("{panel}: {} in {query}", selector.metric));
            }
        }
    }
    faults
}

/// A rate is over `$__rate_interval`; so is an increase, where it is not what happened in the whole time range or in an hour.
fn target_rate_interval(dashboard: &Value) -> Vec<String> {
    selectors(dashboard, |selector| {
        match (selector.inside.as_str(), selector.range.as_deref()) {
            ("rate" | "irate", range) => range != Some("$__rate_interval"),
            ("increase", range) => !matches!(range, Some("$__rate_interval" | "$__range" | "1h")),
            (_, range) => range.is_some(),
        }
    })
}

fn target_matcher(dashboard: &Value, label: &str) -> Vec<String> {
    let wanted = (label.to_owned(), "=~".to_owned(), format!("${label}"));
    selectors(dashboard, |selector| !selector.matchers.contains(&wanted))
}

fn target_counter_agg(dashboard: &Value) -> Vec<String> {
    let is_counter = |name: &str| {
        ["_total", "_bucket", "_count", "_sum"]
            .iter()
            .any(|end| name.ends_with(end))
    };
    selectors(dashboard, |selector| {
        is_counter(&selector.metric)
            && !(["rate", "irate", "increase"].contains(&selector.inside.as_str())
                && selector.range.is_some())
    })
}
