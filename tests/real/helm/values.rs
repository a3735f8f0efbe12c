//! Each value does something, and a wrong one is an error that names it.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::chart::{BASE, features, rendered, root};

fn parsed(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Maps that go to Kubernetes as they are.
const PASSED_ON: [&str; 5] = [
    "/podSecurityContext",
    "/securityContext",
    "/resources",
    "/collector/podSecurityContext",
    "/collector/resources",
];

/// The ways to every leaf; an empty map or list is one.
fn leaves(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value.as_object().filter(|fields| !fields.is_empty()) {
        Some(fields) => fields.iter().for_each(|(key, inside)| {
            leaves(inside, &format!("{path}/{}", key.replace('/', "~1")), found)
        }),
        None => {
            found.insert(path.to_owned());
        }
    }
}

/// The values without what is at a path.
fn without(values: &Value, path: &str) -> Value {
    let mut values = values.clone();
    let (parent, key) = path.rsplit_once('/').expect("a path");
    let parent = values
        .pointer_mut(parent)
        .and_then(Value::as_object_mut)
        .expect("a map");
    parent
        .remove(&key.replace("~1", "/"))
        .expect("it was there");
    values
}

#[test]
#[ignore = "needs helm: run .ci/setup"]
fn every_value_has_an_example_and_every_example_an_effect() {
    let defaults = parsed(&std::fs::read_to_string(root().join("values.yaml")).expect("text"));
    let mut missing = BTreeSet::new();
    leaves(&defaults, "", &mut missing);
    missing.retain(|path| PASSED_ON.iter().all(|map| !path.starts_with(map)));
    missing.extend(PASSED_ON.map(str::to_owned));
    for (feature, text) in features() {
        let values = parsed(&text);
        let with = rendered(&text).unwrap_or_else(|error| panic!("{feature}: {error}"));
        let mut set = BTreeSet::new();
        leaves(&values, "", &mut set);
        for path in set {
            // A release that cannot be rendered without it is an effect too.
            assert_ne!(
                rendered(&without(&values, &path).to_string()),
                Ok(with.clone()),
                "{feature}: {path} does nothing"
            );
            missing.retain(|value| !path.starts_with(value.as_str()));
        }
    }
    assert_eq!(missing, BTreeSet::new(), "no file in ci/ sets them");
}

#[test]
#[ignore = "needs helm: run .ci/setup"]
fn a_key_that_does_not_exist_is_refused_by_name() {
    let defaults = parsed(&std::fs::read_to_string(root().join("values.yaml")).expect("text"));
    let mut maps = vec![String::new()];
    maps.extend(
        defaults
            .as_object()
            .expect("a map")
            .iter()
            .filter(|(_, value)| value.is_object())
            .map(|(key, _)| key.clone()),
    );
    // Of Kubernetes, or names of the user's own.
    let free = [
        "labels",
        "annotations",
        "podLabels",
        "podAnnotations",
        "nodeSelector",
        "affinity",
        "resources",
    ];
    let free: BTreeSet<&str> = free
        .into_iter()
        .chain(["podSecurityContext", "securityContext"])
        .collect();
    for map in maps.iter().filter(|map| !free.contains(map.as_str())) {
        let mut values = json!({ "api": { "baseUrl": "https://api.example.com" } });
        let at = if map.is_empty() {
            &mut values
        } else {
            &mut values[map]
        };
        if at.is_null() {
            *at = Value::Object(Map::new());
        }
        at["enabledd"] = json!(true);
        let error = rendered(&values.to_string()).expect_err(map);
        assert!(
            error.contains("'enabledd'") && error.contains(map),
            "{map}: {error}"
        );
    }
}

#[test]
#[ignore = "needs helm: run .ci/setup"]
fn a_wrong_value_is_refused_by_name() {
    let cases = [
        ("{}", "api.baseUrl is missing"),
        ("{api: {baseUrl: api.example.com}}", "/api/baseUrl"),
        ("{replicas: 2}", "'replicas'"),
        ("{replicaCount: 2}", "'replicaCount'"),
        ("{audit: {pollInterval: 15}}", "/audit/pollInterval"),
        ("{audit: {pollInterval: soon}}", "/audit/pollInterval"),
        (
            "{audit: {activityTypes: TASK_CREATED}}",
            "/audit/activityTypes",
        ),
        (
            "{audit: {activityTypes: ['A,B']}}",
            "/audit/activityTypes/0",
        ),
        ("{audit: {enabled: 'false'}}", "/audit/enabled"),
        (
            "{audit: {enabled: false}, tickets: {enabled: false}}",
            "nothing left to do",
        ),
        ("{metrics: {actorLabel: email}}", "/metrics/actorLabel"),
        ("{metrics: {actorLabel: hash}}", "metrics.hashKeySecret"),
        ("{metrics: {hashKeySecret: x}}", "metrics.actorLabel"),
        ("{otlp: {protocol: http/json}}", "/otlp/protocol"),
        ("{otlp: {endpoint: 'collector:4317'}}", "/otlp/endpoint"),
        ("{settings: {ORGDATA_API_KEY: secret}}", "'ORGDATA_API_KEY'"),
        (
            "{settings: {ORGDATA_AUDIT_STRAT: now}}",
            "'ORGDATA_AUDIT_STRAT'",
        ),
        (
            "{settings: {ORGDATA_STATE_PATH: /tmp/x}}",
            "'ORGDATA_STATE_PATH'",
        ),
        (
            "{extraEnv: [{name: ORGDATA_API_KEY, value: secret}]}",
            "api.existingSecret",
        ),
        ("{api: {key: a, existingSecret: b}}", "api.existingSecret"),
        ("{state: {maxSize: 1GiB}}", "state.maxSize (1GiB)"),
        (
            "{state: {maxSize: 1GB}, persistence: {size: 1200M}}",
            "persistence.size (1200M)",
        ),
        ("{state: {maxSize: 256}}", "/state/maxSize"),
        ("{persistence: {size: 1 GB}}", "/persistence/size"),
        (
            "{persistence: {accessModes: [ReadOnlyMany]}}",
            "/persistence/accessModes/0",
        ),
        ("{image: {digest: latest}}", "/image/digest"),
        ("{web: {scheme: https}}", "/web/scheme"),
        (
            "{labels: {app.kubernetes.io/name: x}}",
            "/labels/app.kubernetes.io~1name",
        ),
        (
            "{podLabels: {app.kubernetes.io/instance: x}}",
            "/podLabels/app.kubernetes.io~1instance",
        ),
        ("{fullnameOverride: Audit}", "/fullnameOverride"),
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
        ("{extraManifests: [{kind: ConfigMap}]}", "/extraManifests/0"),
    ];
    for (values, named) in cases {
        let mut all = parsed(if values == "{}" { values } else { BASE });
        for (key, value) in parsed(values).as_object().expect("a map") {
            match (all[key].as_object_mut(), value.as_object()) {
                (Some(all), Some(more)) => all.extend(more.clone()),
                _ => all[key] = value.clone(),
            }
        }
        let error = rendered(&all.to_string()).expect_err(values);
        assert!(error.contains(named), "{values}: {error}");
    }
}

#[test]
#[ignore = "needs helm: run .ci/setup"]
fn the_volume_may_be_a_quarter_larger_in_any_unit() {
    for (file, volume) in [
        ("800MiB", "1000Mi"),
        ("1GB", "1250M"),
        ("0.8GiB", "1Gi"),
        ("1GiB", "1.25Gi"),
        ("1000kB", "10M"),
    ] {
        let values = format!(
            "{{api: {{baseUrl: https://api.example.com}}, state: {{maxSize: {file}}}, persistence: {{size: {volume}}}}}"
        );
        rendered(&values).unwrap_or_else(|error| panic!("{file} on {volume}: {error}"));
    }
}
