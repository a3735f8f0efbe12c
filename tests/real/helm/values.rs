//! Each value has an effect, and a wrong one is an error that names it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{BASE, CHART, NAME, features, rendered};
use crate::support::files::{array, documents, object, yaml};

/// Maps that go to Kubernetes as they are.
const PASSED_ON: &str = "/podSecurityContext /securityContext /resources /collector/podSecurityContext /collector/resources";

/// Wrong values and what the error has to name.
const WRONG: &str = "
{api: {baseUrl: ''}} => api.baseUrl is missing
{api: {key: a, existingSecret: b}} => api.existingSecret
{api: {url: 'https://a'}} => 'url'
{audit: {enabled: false}, tickets: {enabled: false}} => nothing left to do
{metrics: {actorLabel: hash}} => metrics.hashKeySecret
{metrics: {hashKeySecret: x}} => metrics.actorLabel
{settings: {ORGDATA_API_KEY: secret}} => 'ORGDATA_API_KEY'
{extraEnv: [{name: ORGDATA_API_KEY, value: secret}]} => api.existingSecret
{persistence: {enabled: false, existingClaim: x}} => persistence.existingClaim
{state: {maxSize: 1GiB}} => state.maxSize (1GiB)
{state: {maxSize: 1GB}, persistence: {size: 1200M}} => persistence.size (1200M)
{web: {certificate: {enabled: true, issuerRef: {name: x}}}} => web.scheme
{web: {scheme: HTTPS, certificate: {enabled: true}}} => web.certificate.issuerRef.name
{prometheusRule: {enabled: true, disabled: [Dwon]}} => Dwon
{prometheusRule: {enabled: true, severities: {Dwon: info}}} => Dwon
{serviceMonitor: {enabled: true}, podMonitor: {enabled: true}} => podMonitor.enabled
{collector: {enabled: true}, otlp: {endpoint: 'http://x:4317'}} => otlp.endpoint
";

fn parsed(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Renders the least that is needed with these values.
fn rendered_with(values: &Value) -> Result<String, String> {
    let mut all = parsed(BASE);
    for (key, value) in values.as_object().unwrap() {
        match (all[key].as_object_mut(), value.as_object()) {
            (Some(all), Some(more)) => all.extend(more.clone()),
            _ => all[key] = value.clone(),
        }
    }
    rendered(&all.to_string())
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
        let (values, named) = line.split_once(" => ").expect(line);
        let error = rendered_with(&parsed(values)).expect_err(values);
        assert!(error.contains(named), "{values}: {error}");
    }
}

#[test]
#[ignore = "needs helm"]
fn the_network_policy_opens_the_ports_that_the_exporter_connects_to() {
    let both = "OTEL_EXPORTER_OTLP_ENDPOINT";
    let render = |settings: &Value| {
        rendered_with(&json!({ "networkPolicy": { "enabled": true }, "settings": settings }))
    };
    for (settings, others) in [
        (json!({ both: "[2001:db8::1]:5000" }), json!([5000])),
        (json!({ both: "http://collector" }), json!([80])),
        (json!({ both: "https://collector/v1/logs" }), json!([443])),
        (
            json!({ "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "logs:5001", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://traces:5002" }),
            json!([5001, 5002]),
        ),
    ] {
        let objects = documents(&render(&settings).unwrap());
        let policy = object(&objects, "NetworkPolicy", NAME);
        let ports = array(&policy["spec"]["egress"][2]["ports"]).iter();
        // The first two are those of OTLP.
        let ports: Value = ports.skip(2).map(|port| port["port"].clone()).collect();
        assert_eq!(ports, others, "{settings}");
    }
    // Which port it is, depends on more than the address.
    let refused = render(&json!({ both: "collector" })).expect_err("no port");
    assert!(refused.contains("neither a scheme nor a port"), "{refused}");
}
