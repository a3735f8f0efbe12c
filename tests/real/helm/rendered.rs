//! What Helm renders from values that YAML could take for something else, and from none.

use serde_json::{Value, json};

use super::{BASE, CHART, NAME, features, object, objects, rendered};
use crate::support::files::array;
use crate::support::parts::promtool;

/// Returns the least that is needed with these values.
fn with(values: &Value) -> String {
    let mut all: Value = serde_saphyr::from_str(BASE).unwrap();
    for (key, value) in values.as_object().unwrap() {
        match all[key].as_object_mut() {
            Some(inside) => inside.extend(value.as_object().unwrap().clone()),
            None => all[key] = value.clone(),
        }
    }
    all.to_string()
}

/// Collects whether each value in an object is a string, a number and so on.
fn kinds(value: &Value, found: &mut Vec<std::mem::Discriminant<Value>>) {
    found.push(std::mem::discriminant(value));
    for inside in array(value) {
        kinds(inside, found);
    }
    for (_, inside) in value.as_object().into_iter().flatten() {
        kinds(inside, found);
    }
}

#[test]
#[ignore = "needs helm"]
fn a_name_that_looks_like_a_number_or_a_boolean_stays_a_name() {
    let all = |word: &str, number: &str| {
        let values = json!({
            "fullnameOverride": word, "nameOverride": word, "namespaceOverride": number,
            "serviceAccount": { "name": number }, "priorityClassName": number, "runtimeClassName": number,
            "api": { "existingSecret": number, "secretKey": number, "caConfigMap": number },
            "metrics": { "actorLabel": "hash", "hashKeySecret": number, "hashKeySecretKey": number },
            "web": { "configSecret": number, "telemetryPath": format!("/{number}") },
            "persistence": { "existingClaim": number, "size": number, "storageClassName": number },
            "state": { "maxSize": "8MiB" },
            "collector": { "enabled": true }, "podMonitor": { "enabled": true, "namespace": number },
            "networkPolicy": { "enabled": true },
            "prometheusRule": { "enabled": true }, "dashboards": { "enabled": true },
        });
        let mut found = Vec::new();
        for object in objects(&with(&values)) {
            kinds(&object, &mut found);
        }
        found
    };
    let plain = all("a-name", "1000000000k");
    for word in ["true", "null", "on", "yes"] {
        assert!(all(word, "1000000000") == plain, "{word}");
    }
}

#[test]
#[ignore = "needs helm"]
fn the_network_policy_opens_the_ports_that_the_exporter_connects_to() {
    let ports = |settings: Value| {
        let values = json!({ "networkPolicy": { "enabled": true }, "settings": settings });
        rendered(&with(&values)).map(|text| {
            let objects = crate::support::files::documents(&text);
            let policy = object(&objects, "NetworkPolicy", NAME);
            let to_collector = &policy["spec"]["egress"][2]["ports"];
            let ports = array(to_collector).iter().map(|port| port["port"].clone());
            ports.collect::<Vec<Value>>()
        })
    };
    let both = "OTEL_EXPORTER_OTLP_ENDPOINT";
    for (settings, wanted) in [
        (json!({}), vec![4317, 4318]),
        (json!({ both: "collector:5000" }), vec![4317, 4318, 5000]),
        (
            json!({ both: "[2001:db8::1]:5000" }),
            vec![4317, 4318, 5000],
        ),
        (json!({ both: "http://collector" }), vec![4317, 4318, 80]),
        (
            json!({ both: "https://collector/v1/logs" }),
            vec![4317, 4318, 443],
        ),
        (
            json!({ "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "logs:5001", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://traces:5002" }),
            vec![4317, 4318, 5001, 5002],
        ),
    ] {
        let shown = settings.to_string();
        let wanted: Vec<Value> = wanted.into_iter().map(Value::from).collect();
        assert_eq!(ports(settings).unwrap(), wanted, "{shown}");
    }
    // Which port it is, depends on more than the address.
    let refused = ports(json!({ both: "collector" })).expect_err("no port");
    assert!(refused.contains("neither a scheme nor a port"), "{refused}");
}

#[test]
#[ignore = "needs helm and promtool"]
fn detections_take_hours_and_types_of_the_user() {
    let objects = objects(&features()["detections"]);
    let rules = &object(&objects, "PrometheusRule", NAME)["spec"];
    let shown = rules.to_string();
    for part in ["bool 18", "bool 5", "DEAL_DELETED|USER_ROLE_.+"] {
        assert!(shown.contains(part), "{part}");
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rules.yaml");
    std::fs::write(&file, shown).unwrap();
    promtool(&["check", "rules", file.to_str().unwrap()]).expect(CHART);
}
