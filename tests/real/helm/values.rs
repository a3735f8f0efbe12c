//! Each value has an effect, and a wrong one is an error that names it.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{BASE, CHART, features, rendered};
use crate::support::files::yaml;

/// Maps that go to Kubernetes as they are.
const PASSED_ON: &str = "/podSecurityContext /securityContext /resources /collector/podSecurityContext /collector/resources";

/// Wrong values and what the error has to name.
const WRONG: [(&str, &str); 20] = [
    ("{api: {baseUrl: ''}}", "api.baseUrl"),
    ("{api: {key: a, existingSecret: b}}", "api.existingSecret"),
    ("{api: {url: 'https://a'}}", "'url'"),
    ("{audit: {pollInterval: 15}}", "/audit/pollInterval"),
    (
        "{audit: {enabled: false}, tickets: {enabled: false}}",
        "nothing left to do",
    ),
    ("{metrics: {actorLabel: hash}}", "metrics.hashKeySecret"),
    ("{metrics: {hashKeySecret: x}}", "metrics.actorLabel"),
    ("{settings: {ORGDATA_API_KEY: secret}}", "'ORGDATA_API_KEY'"),
    (
        "{settings: {ORGDATA_AUDIT_STRAT: now}}",
        "'ORGDATA_AUDIT_STRAT'",
    ),
    (
        "{extraEnv: [{name: ORGDATA_API_KEY, value: secret}]}",
        "api.existingSecret",
    ),
    (
        "{extraEnv: [{name: ORGDATA_STATE_MAX_SIZE, value: 1GiB}]}",
        "ORGDATA_STATE_MAX_SIZE already",
    ),
    (
        "{persistence: {enabled: false, existingClaim: x}}",
        "persistence.existingClaim",
    ),
    ("{state: {maxSize: 1GiB}}", "state.maxSize (1GiB)"),
    (
        "{state: {maxSize: 1GB}, persistence: {size: 1200M}}",
        "persistence.size (1200M)",
    ),
    (
        "{web: {certificate: {enabled: true, issuerRef: {name: x}}}}",
        "web.scheme",
    ),
    (
        "{web: {scheme: HTTPS, certificate: {enabled: true}}}",
        "web.certificate.issuerRef.name",
    ),
    (
        "{prometheusRule: {enabled: true, disabled: [OrgdataExporterDwon]}}",
        "OrgdataExporterDwon",
    ),
    (
        "{prometheusRule: {enabled: true, severities: {Dwon: info}}}",
        "Dwon",
    ),
    (
        "{serviceMonitor: {enabled: true}, podMonitor: {enabled: true}}",
        "podMonitor.enabled",
    ),
    (
        "{collector: {enabled: true}, otlp: {endpoint: 'http://x:4317'}}",
        "otlp.endpoint",
    ),
];

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
    for (values, named) in WRONG {
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
