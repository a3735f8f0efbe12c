//! The chart and the kustomize files produce the same objects, with the differences that are named here.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::{NAME, example, of_kind};
use crate::manifests::Overlay;
use crate::support::files::{names, text};

/// Components of kustomize, and the example of the chart that is the same.
const FEATURES: [(&str, &str); 9] = [
    ("", "base"),
    ("servicemonitor", "service-monitor"),
    ("podmonitor", "pod-monitor"),
    ("prometheusrule", "prometheus-rule"),
    ("prometheusrule runbook-links", "prometheus-rule-links"),
    ("dashboards", "dashboards"),
    ("networkpolicy", "network-policy"),
    ("collector", "collector"),
    (
        "servicemonitor prometheusrule dashboards networkpolicy collector",
        "all",
    ),
];

/// What is not for a chart: the pods of another application.
const KUSTOMIZE_ONLY: &str =
    "native-sidecar plain-sidecar sidecar-claim sidecar-pod one-statefulset one-replica checks";

/// Kustomize scrapes sidecars too, in pods with any labels; a chart selects its own pod.
const DIFFERENCE: &str = "PodMonitor/orgdata-exporter/spec/selector/matchLabels";

/// Objects by kind and name.
type Objects = BTreeMap<String, Value>;

fn by_name(objects: Vec<Value>) -> Objects {
    let key = |object: &Value| {
        let name = text(&object["metadata"]["name"]);
        format!("{}/{name}", text(&object["kind"]))
    };
    let objects = objects.into_iter();
    objects.map(|object| (key(&object), object)).collect()
}

/// Returns kustomize's objects without the hashes that it adds to the names of ConfigMaps.
fn without_hashes(objects: Vec<Value>) -> Objects {
    let is_part = |c: char| c.is_ascii_digit() || "bcdfghkmt".contains(c);
    let is_hash = |hash: &str| hash.len() == 10 && hash.chars().all(is_part);
    let mut all = Value::from(objects.clone()).to_string();
    for map in of_kind(&objects, "ConfigMap") {
        let name = text(&map["metadata"]["name"]);
        if let Some((plain, hash)) = name.rsplit_once('-').filter(|(_, hash)| is_hash(hash)) {
            all = all.replace(&format!("\"{plain}-{hash}\""), &format!("\"{plain}\""));
        }
    }
    by_name(serde_json::from_str(&all).unwrap())
}

/// Returns Helm's objects without the pod of `helm test`, its two labels, and the checksums that stand for kustomize's hashes.
fn without_helms_own(mut objects: Vec<Value>) -> Objects {
    objects.retain(|object| object["kind"] != "Pod");
    let mut objects = by_name(objects);
    for object in objects.values_mut() {
        let labels = object["metadata"]["labels"].as_object_mut().unwrap();
        for label in ["app.kubernetes.io/managed-by", "helm.sh/chart"] {
            assert!(labels.remove(label).is_some(), "{label}");
        }
        let metadata = object.pointer_mut("/spec/template/metadata");
        let Some(metadata) = metadata.and_then(Value::as_object_mut) else {
            continue;
        };
        let annotations = metadata["annotations"].as_object_mut().unwrap();
        annotations.retain(|key, _| !key.starts_with("checksum/"));
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    objects
}

/// Collects the paths at which two values differ.
fn differences(path: &str, helm: &Value, kustomize: &Value, found: &mut Vec<String>) {
    match (helm, kustomize) {
        (Value::Object(one), Value::Object(other)) => {
            for key in one.keys().chain(other.keys()).collect::<BTreeSet<_>>() {
                let of = |map: &Map<String, Value>| map.get(key).cloned().unwrap_or_default();
                differences(&format!("{path}/{key}"), &of(one), &of(other), found);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (index, (one, other)) in one.iter().zip(other).enumerate() {
                differences(&format!("{path}/{index}"), one, other, found);
            }
        }
        // Kustomize adds an empty line to a folded query.
        (Value::String(one), Value::String(other))
            if path.ends_with("/expr") && one.split_whitespace().eq(other.split_whitespace()) => {}
        _ if helm == kustomize || path == DIFFERENCE => {}
        _ => found.push(format!("{path}: Helm {helm}, kustomize {kustomize}")),
    }
}

#[test]
#[ignore = "needs helm and kustomize"]
fn the_chart_makes_what_kustomize_makes() {
    for (components, feature) in FEATURES {
        let components: Vec<&str> = components.split_whitespace().collect();
        let overlay = Overlay::base(&components).set("namespace", json!("monitoring"));
        let kustomize = without_hashes(overlay.objects());
        let helm = without_helms_own(example(feature));
        let keys: Vec<&String> = helm.keys().collect();
        assert_eq!(keys, kustomize.keys().collect::<Vec<_>>(), "{feature}");
        let mut found = Vec::new();
        for (key, object) in &helm {
            differences(key, object, &kustomize[key], &mut found);
        }
        assert!(found.is_empty(), "{feature}:\n{}", found.join("\n"));
        assert!(helm.keys().any(|key| key.ends_with(NAME)));
    }
    let known = FEATURES.iter().map(|(components, _)| *components);
    let known = known.chain([KUSTOMIZE_ONLY]);
    let known: BTreeSet<&str> = known.flat_map(str::split_whitespace).collect();
    let components = names("deploy/kubernetes/components");
    assert!(components.iter().eq(known), "a component is missing");
}
