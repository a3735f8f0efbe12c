//! The Helm chart agrees with the program and with the dashboards. `tests/real/helm` tests what it renders.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::deploy::{variables, variables_in};
use crate::support::files::{array, file, names, path, yaml};

const CHART: &str = "deploy/helm/orgdata-exporter";

/// What is fixed in the chart: probes, Service and monitors expect that port.
const FIXED: &str = "ORGDATA_WEB_LISTEN_ADDRESS";

fn schema() -> Value {
    yaml(&format!("{CHART}/values.schema.json"))
}

fn keys(value: &Value) -> BTreeSet<String> {
    let fields = value.as_object().into_iter().flatten();
    fields.map(|(key, _)| key.clone()).collect()
}

#[test]
fn dashboards_and_alerts_are_links_and_the_version_is_that_of_the_program() {
    let files = format!("{CHART}/files");
    for name in names(&files)
        .iter()
        .filter(|name| *name != "collector.yaml")
    {
        let link = fs::read_link(path(&format!("{files}/{name}"))).expect(name);
        assert_eq!(link, Path::new("../../../../dashboards").join(name));
    }
    let about = yaml(&format!("{CHART}/Chart.yaml"));
    assert_eq!(about["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(about["appVersion"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn every_variable_of_the_program_can_be_set_in_one_place() {
    let template = file(&format!("{CHART}/templates/_settings.tpl"));
    let typed: BTreeSet<String> = template.split('"').flat_map(variables_in).collect();
    let free = keys(&schema()["properties"]["settings"]["properties"]);
    assert!(typed.is_disjoint(&free), "set twice: {typed:?}, {free:?}");
    let mut chart: BTreeSet<String> = typed.union(&free).cloned().collect();
    chart.insert(FIXED.to_owned());
    let program = variables();
    let differing: Vec<_> = chart.symmetric_difference(&program).collect();
    // In values.schema.json or templates/_settings.tpl.
    assert!(differing.is_empty(), "{differing:?}");
}

#[test]
fn the_schema_takes_no_unknown_value() {
    /// Asserts that no object takes an unknown key unless it says so.
    fn closed(part: &Value, path: &str) {
        let is_open = part["type"] == "object" && part["additionalProperties"].is_null();
        assert!(!is_open || part["properties"].is_null(), "{path}");
        for (key, value) in part.as_object().into_iter().flatten() {
            let path = format!("{path}/{key}");
            closed(value, &path);
            array(value).iter().for_each(|item| closed(item, &path));
        }
    }
    let schema = schema();
    closed(&schema, "");
    let never = ["replicas", "replicaCount"].map(|key| &schema["properties"][key]);
    assert!(schema["additionalProperties"] == false && never.iter().all(|key| key.is_null()));
}
