//! What Helm renders from values that YAML could take for something else, and from none.

use serde_json::{Value, json};

use super::{BASE, NAME, object, rendered};
use crate::manifests::valid;
use crate::support::files::array;

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

#[test]
#[ignore = "needs helm and the schemas"]
fn a_name_that_looks_like_a_number_or_a_boolean_stays_a_name() {
    let mut all = String::new();
    for (word, number) in [
        ("true", "1000000000"),
        ("null", "1e9"),
        ("on", "017"),
        ("yes", "1"),
    ] {
        let values = json!({
            "fullnameOverride": word, "nameOverride": word, "namespaceOverride": number,
            "serviceAccount": { "name": number }, "priorityClassName": number, "runtimeClassName": number,
            "api": { "existingSecret": number, "secretKey": number, "caConfigMap": number },
            "metrics": { "actorLabel": "hash", "hashKeySecret": number, "hashKeySecretKey": number },
            "web": { "configSecret": number, "telemetryPath": format!("/{number}") },
            "persistence": { "storageClassName": number },
            "collector": { "enabled": true }, "podMonitor": { "enabled": true, "namespace": number },
            "networkPolicy": { "enabled": true },
            "prometheusRule": { "enabled": true }, "dashboards": { "enabled": true },
        });
        all += &rendered(&with(&values)).unwrap();
    }
    valid("1.29", &all).unwrap();
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
