//! The chart and the kustomize files say the same: object by object, but for the differences that are named here.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::chart::{Objects, features, objects, parsed};
use crate::support::parts;

/// Components of kustomize, and the example of the chart that is the same.
const FEATURES: [(&[&str], &str); 9] = [
    (&[], "base"),
    (&["servicemonitor"], "service-monitor"),
    (&["podmonitor"], "pod-monitor"),
    (&["prometheusrule"], "prometheus-rule"),
    (
        &["prometheusrule", "runbook-links"],
        "prometheus-rule-links",
    ),
    (&["dashboards"], "dashboards"),
    (&["networkpolicy"], "network-policy"),
    (&["collector"], "collector"),
    (
        &[
            "servicemonitor",
            "prometheusrule",
            "dashboards",
            "networkpolicy",
            "collector",
        ],
        "all",
    ),
];

/// What a chart cannot do: change the pods of another application.
const OF_KUSTOMIZE_ALONE: [&str; 5] = [
    "native-sidecar",
    "plain-sidecar",
    "sidecar-claim",
    "sidecar-pod",
    "one-replica",
];

/// Where the two differ, and why. A change of either that goes beyond is a failure.
const DIFFERENCES: [(&str, &str); 1] = [
    // Kustomize scrapes sidecars too, in pods of any labels; a chart knows its own pod, and leaves those of other releases alone.
    (
        "PodMonitor/orgdata-exporter/spec/selector/matchLabels",
        "pod-monitor",
    ),
];

/// Labels that Helm's objects have besides.
const OF_HELM: [&str; 2] = ["app.kubernetes.io/managed-by", "helm.sh/chart"];

fn kubernetes() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/kubernetes")
}

/// What kustomize makes of the base with these components.
fn kustomized(components: &[&str]) -> Objects {
    let dir = tempfile::tempdir().expect("a directory");
    // Kustomize wants relative ways.
    let up = "../".repeat(
        dir.path()
            .canonicalize()
            .expect("a path")
            .components()
            .count()
            - 1,
    );
    let way = |directory: &str| {
        format!(
            "{up}{}",
            kubernetes()
                .join(directory)
                .display()
                .to_string()
                .trim_start_matches('/')
        )
    };
    let mut overlay = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "namespace": "monitoring",
        "resources": [way("base")],
        "components": components.iter().map(|name| way(&format!("components/{name}"))).collect::<Vec<_>>(),
    });
    if components.contains(&"runbook-links") {
        overlay["configMapGenerator"] = json!([{
            "name": "orgdata-exporter-links",
            "literals": ["dashboards=https://git.example.com/orgdata-exporter/blob/main/dashboards"],
            "options": { "annotations": { "config.kubernetes.io/local-config": "true" } },
        }]);
    }
    fs::write(dir.path().join("kustomization.yaml"), overlay.to_string()).expect("written");
    let output = Command::new(parts::binary("kustomize"))
        .arg("build")
        .arg(dir.path())
        .output()
        .expect("it can be run");
    assert!(
        output.status.success(),
        "{components:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    parsed(&String::from_utf8(output.stdout).expect("text"))
}

/// Kustomize's objects under the names that its ConfigMaps had before the hash of their content was added.
fn without_hashes(objects: Objects) -> Objects {
    let names: BTreeMap<String, String> = objects
        .keys()
        .filter(|(kind, _)| kind == "ConfigMap")
        .filter_map(|(_, name)| {
            let (plain, hash) = name.rsplit_once('-')?;
            (hash.len() == 10
                && hash
                    .chars()
                    .all(|c| c.is_ascii_digit() || "bcdfghkmt".contains(c)))
            .then(|| (name.clone(), plain.to_owned()))
        })
        .collect();
    let text = names.iter().fold(
        json!(objects.into_values().collect::<Vec<_>>()).to_string(),
        |text, (hashed, plain)| text.replace(&format!("{hashed:?}"), &format!("{plain:?}")),
    );
    let Ok(Value::Array(all)) = serde_json::from_str(&text) else {
        panic!("{text}")
    };
    parsed(
        &all.iter()
            .map(|object| format!("---\n{object}\n"))
            .collect::<String>(),
    )
}

/// Helm's objects without what only Helm has: two labels, and the checksums that stand for kustomize's hashes.
fn without_helms_own(mut objects: Objects) -> Objects {
    for object in objects.values_mut() {
        let labels = object["metadata"]["labels"]
            .as_object_mut()
            .expect("labels");
        for label in OF_HELM {
            assert!(labels.remove(label).is_some(), "{label}");
        }
        if object["kind"] == "StatefulSet" {
            let annotations = object["spec"]["template"]["metadata"]["annotations"]
                .as_object_mut()
                .expect("annotations");
            assert!(annotations.remove("checksum/settings").is_some());
        }
        if object["kind"] == "Deployment" {
            let metadata = object["spec"]["template"]["metadata"]
                .as_object_mut()
                .expect("metadata");
            let annotations = metadata.remove("annotations").expect("annotations");
            assert!(
                annotations
                    .as_object()
                    .is_some_and(|all| all.len() == 1 && all.contains_key("checksum/config"))
            );
        }
    }
    objects
}

/// Where the two differ, by path.
fn differences(path: &str, helm: &Value, kustomize: &Value, found: &mut Vec<String>) {
    match (helm, kustomize) {
        (Value::Object(one), Value::Object(other)) => {
            for key in one.keys().chain(other.keys()).collect::<BTreeSet<_>>() {
                let of = |map: &serde_json::Map<String, Value>| {
                    map.get(key).cloned().unwrap_or_default()
                };
                differences(&format!("{path}/{key}"), &of(one), &of(other), found);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            one.iter()
                .zip(other)
                .enumerate()
                .for_each(|(index, (one, other))| {
                    differences(&format!("{path}/{index}"), one, other, found)
                });
        }
        _ if helm == kustomize => {}
        // Kustomize adds an empty line to a folded query.
        (Value::String(one), Value::String(other))
            if path.ends_with("/expr") && one.split_whitespace().eq(other.split_whitespace()) => {}
        _ => found.push(format!("{path}: Helm {helm}, kustomize {kustomize}")),
    }
}

#[test]
#[ignore = "needs helm and kustomize: run .ci/setup"]
fn the_chart_says_what_kustomize_says() {
    for (components, feature) in FEATURES {
        let helm = without_helms_own(objects(&features()[feature]));
        let kustomize = without_hashes(kustomized(components));
        assert_eq!(
            helm.keys().collect::<Vec<_>>(),
            kustomize.keys().collect::<Vec<_>>(),
            "{feature}"
        );
        let mut found = Vec::new();
        for (key, object) in &helm {
            differences(
                &format!("{}/{}", key.0, key.1),
                object,
                &kustomize[key],
                &mut found,
            );
        }
        for (path, _) in DIFFERENCES.iter().filter(|(_, of)| *of == feature) {
            let there = found.len();
            found.retain(|difference| !difference.starts_with(&format!("{path}:")));
            assert!(
                found.len() < there,
                "{feature}: {path} is no difference any more"
            );
        }
        assert!(found.is_empty(), "{feature}:\n{}", found.join("\n"));
    }
}

#[test]
#[ignore = "needs helm and kustomize: run .ci/setup"]
fn every_component_is_in_the_chart_or_not_a_charts_business() {
    let there: BTreeSet<String> = fs::read_dir(kubernetes().join("components"))
        .expect("a directory")
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("text")
        })
        .collect();
    let known = FEATURES
        .iter()
        .flat_map(|(components, _)| components.iter())
        .chain(&OF_KUSTOMIZE_ALONE);
    assert_eq!(there, known.map(|name| (*name).to_owned()).collect());
}
