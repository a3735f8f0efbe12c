//! Each value has an effect, and a wrong one is an error that names it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{BASE, CHART, NAME, features, helm, rendered};
use crate::support::files::{path, yaml};

/// Maps that go to Kubernetes as they are.
const PASSED_ON: &str = "/podSecurityContext /securityContext /resources /collector/podSecurityContext /collector/resources";

/// Wrong values and what the error has to name, separated by ` -> `.
const WRONG: &str = include_str!("refused.txt");

fn parsed(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Collects the paths to every leaf; an empty map or list is one.
fn leaves(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    let Some(fields) = value.as_object().filter(|fields| !fields.is_empty()) else {
        found.insert(path.to_owned());
        return;
    };
    for (key, inside) in fields {
        leaves(inside, &format!("{path}/{}", key.replace('/', "~1")), found);
    }
}

/// Returns the values without what is at a path.
fn without(values: &Value, path: &str) -> String {
    let mut values = values.clone();
    let (parent, key) = path.rsplit_once('/').unwrap();
    let parent = values.pointer_mut(parent).unwrap().as_object_mut();
    parent.unwrap().remove(&key.replace("~1", "/")).unwrap();
    values.to_string()
}

#[test]
#[ignore = "needs helm"]
fn every_value_has_an_example_and_every_example_an_effect() {
    let mut missing = BTreeSet::new();
    leaves(&yaml(&format!("{CHART}/values.yaml")), "", &mut missing);
    let passed_on: Vec<&str> = PASSED_ON.split(' ').collect();
    missing.retain(|path| !passed_on.iter().any(|map| path.starts_with(map)));
    missing.extend(passed_on.into_iter().map(str::to_owned));
    // It has an effect only on an upgrade in a cluster.
    missing.remove("/upgradeCheck");
    for (feature, text) in features() {
        let values = parsed(&text);
        let with = rendered(&text);
        let mut set = BTreeSet::new();
        leaves(&values, "", &mut set);
        for path in set {
            // An error is an effect too.
            let less = rendered(&without(&values, &path));
            assert_ne!(less, with, "{feature}: {path} has no effect");
            missing.retain(|value| !path.starts_with(value.as_str()));
        }
    }
    assert_eq!(missing, BTreeSet::new(), "no file in ci/ sets them");
}

#[test]
#[ignore = "needs helm"]
fn a_wrong_value_is_refused_by_name() {
    for line in WRONG.trim().lines() {
        let (values, named) = line.split_once(" -> ").unwrap();
        let mut all = parsed(BASE);
        for (key, value) in parsed(values).as_object().unwrap() {
            match (all[key].as_object_mut(), value.as_object()) {
                (Some(all), Some(more)) => all.extend(more.clone()),
                _ => all[key] = value.clone(),
            }
        }
        let error = rendered(&all.to_string()).expect_err(values);
        assert!(error.contains(named), "{values}: {error}");
    }
    let error = rendered("{}").expect_err("no values");
    assert!(error.contains("api.baseUrl is missing"), "{error}");
}

#[test]
#[ignore = "needs helm"]
fn a_fraction_can_be_set_on_the_command_line() {
    let setting = "api.maxRequestsPerSecond=0.5";
    let command = ["template", NAME, "--set", setting];
    let rendered = helm(&command, &path(CHART), BASE).unwrap();
    let line = "ORGDATA_API_MAX_REQUESTS_PER_SECOND: \"0.5\"";
    assert!(rendered.contains(line), "{rendered}");
}

#[test]
#[ignore = "needs helm"]
fn the_volume_may_be_a_quarter_larger_in_any_unit() {
    for sizes in "800MiB 1000Mi,1GB 1250M,0.8GiB 1Gi,1GiB 1.25Gi,1000kB 10M".split(',') {
        let (file, volume) = sizes.split_once(' ').unwrap();
        let mut values = parsed(BASE);
        values["state"]["maxSize"] = json!(file);
        values["persistence"]["size"] = json!(volume);
        rendered(&values.to_string()).expect(sizes);
    }
}
