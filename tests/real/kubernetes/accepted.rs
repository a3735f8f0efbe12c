//! What Kubernetes, the Prometheus Operator, Pod Security and kube-score take.

use serde_json::{Value, json};

use super::overlay::Overlay;
use super::{WITH_BASE, kustomize, repository, run, valid};
use crate::support::manifests::documents;

/// The oldest Kubernetes with a native sidecar, and the newest that there is a schema of.
const PROMISED: [&str; 2] = ["1.29", "1.37"];

/// Before native sidecars.
const OLD: &str = "1.27";

/// What goes with a sidecar.
const WITH_SIDECAR: [&str; 6] = [
    "sidecar-claim",
    "podmonitor",
    "prometheusrule",
    "runbook-links",
    "dashboards",
    "collector",
];

/// Checks of kube-score that are not for us, and why.
const SKIPPED: [(&str, &str); 2] = [
    (
        "container-image-pull-policy",
        "a version is pinned: asking the registry at each start would make it a condition of a restart",
    ),
    (
        "container-resources",
        "no limit of CPU, see base/statefulset.yaml; requests and memory are looked at in main.rs",
    ),
];

/// Checks that are not for the pod of an application either.
const SKIPPED_BESIDE: [(&str, &str); 2] = [
    (
        "pod-networkpolicy",
        "a policy is for the whole pod, and the application's network is not ours to cut",
    ),
    (
        "container-ephemeral-storage-request-and-limit",
        "a sidecar's limit would be that of the whole pod",
    ),
];

/// Checks that the collector, an example, does not keep.
const SKIPPED_ALONE: [(&str, &str); 2] = [
    (
        "pod-networkpolicy",
        "the collector's egress is unknown; the exporter's policy is looked at in base.rs",
    ),
    (
        "deployment-replicas",
        "one collector for one exporter; while it restarts, records wait in the state file",
    ),
];

/// Every choice out of these, but for those in which something lacks what it needs.
fn choices<'a>(all: &[&'a str]) -> Vec<Vec<&'a str>> {
    let chosen = |bits: usize| {
        all.iter()
            .enumerate()
            .filter(move |(at, _)| bits >> at & 1 == 1)
            .map(|(_, name)| *name)
            .collect()
    };
    let choices = (0..1 << all.len()).map(chosen);
    choices
        .filter(|chosen: &Vec<&str>| {
            !chosen.contains(&"runbook-links") || chosen.contains(&"prometheusrule")
        })
        .collect()
}

/// All of them built, as one stream.
fn built(overlays: impl Iterator<Item = Overlay>) -> String {
    overlays
        .map(|overlay| {
            overlay
                .build()
                .unwrap_or_else(|error| panic!("{:?}: {error}", overlay.kustomization))
                + "\n---\n"
        })
        .collect()
}

#[test]
#[ignore = "needs kustomize, and the schemas and servers that .ci/setup installs beside it"]
fn every_combination_is_one_that_kubernetes_takes() {
    let alone = choices(&WITH_BASE);
    let beside = choices(&WITH_SIDECAR);
    assert_eq!((alone.len(), beside.len()), (96, 48));
    let alone = built(alone.iter().map(|components| Overlay::base(components)));
    let beside = |kind: &'static str| {
        let with = |components: &Vec<&'static str>| {
            Overlay::beside(|text| text, &[&[kind], &components[..]].concat())
        };
        built(beside.iter().map(with))
    };
    let (native, plain) = (beside("native-sidecar"), beside("plain-sidecar"));
    let shipped: String = ["standalone", "sidecar"]
        .map(|name| kustomize(&repository(&format!("overlays/{name}"))).expect("it builds"))
        .join("\n---\n");
    for version in PROMISED {
        valid(version, &format!("{alone}{native}{plain}{shipped}")).expect("taken");
    }
    valid(OLD, &format!("{alone}{plain}")).expect("taken by an old one too");
    let refusal = valid(OLD, &native).expect_err("not known there");
    let lines: Vec<&str> = refusal.lines().filter(|line| line.contains(OLD)).collect();
    assert!(
        lines.len() > 1
            && lines.iter().all(|line| line.contains("StatefulSet shop")
                && line.contains("'restartPolicy' was unexpected")),
        "{refusal}"
    );
}

#[test]
#[ignore = "needs kustomize, and the schemas and servers that .ci/setup installs beside it"]
fn a_field_that_nobody_knows_is_found() {
    let good = Overlay::base(&["podmonitor", "servicemonitor", "prometheusrule"])
        .build()
        .expect("it builds");
    let faults = [
        (
            "sampleLimit:",
            "sampleLimits:",
            "'sampleLimits' was unexpected",
        ),
        (
            "scrapeTimeout: 10s",
            "scrapeTimeout: soon",
            "does not match",
        ),
        ("for: 5m", "during: 5m", "'during' was unexpected"),
        (
            "enableServiceLinks:",
            "enableServiceLink:",
            "'enableServiceLink' was unexpected",
        ),
        (
            "kind: ServiceAccount",
            "kind: ServiceAccounts",
            "find schema for kind ServiceAccounts",
        ),
    ];
    for (right, wrong, said) in faults {
        assert!(good.contains(right), "{right}");
        let refusal = valid("1.37", &good.replacen(right, wrong, 1)).expect_err(wrong);
        assert!(refusal.contains(said), "{refusal}");
    }
    assert!(
        valid("1.20", &good)
            .expect_err("no such schema")
            .contains("no schema of Kubernetes 1.20")
    );
    valid("1.37", "").expect_err("nothing at all");
}

#[test]
#[ignore = "needs kustomize, and the schemas and servers that .ci/setup installs beside it"]
fn every_pod_is_one_that_the_restricted_standard_admits() {
    for overlay in ["standalone", "sidecar"] {
        let objects =
            documents(&kustomize(&repository(&format!("overlays/{overlay}"))).expect("it builds"));
        let pods: Vec<&Value> = objects
            .iter()
            .map(|object| &object["spec"]["template"]["spec"])
            .filter(|pod| pod.is_object())
            .collect();
        assert!(!pods.is_empty());
        for pod in pods {
            for key in ["hostNetwork", "hostPID", "hostIPC"] {
                assert!(pod.get(key).is_none(), "{key}");
            }
            for volume in pod["volumes"].as_array().expect("volumes") {
                let kinds = ["configMap", "emptyDir", "secret", "persistentVolumeClaim"];
                assert!(
                    volume
                        .as_object()
                        .expect("a volume")
                        .keys()
                        .all(|key| key == "name" || kinds.contains(&key.as_str())),
                    "{volume}"
                );
            }
            let lists = ["initContainers", "containers"]
                .iter()
                .filter_map(|list| pod[list].as_array());
            for container in lists.flatten() {
                let own = &container["securityContext"];
                let setting = |key: &str| {
                    if own[key].is_null() {
                        &pod["securityContext"][key]
                    } else {
                        &own[key]
                    }
                };
                assert_eq!(
                    (setting("runAsNonRoot"), &setting("seccompProfile")["type"]),
                    (&json!(true), &json!("RuntimeDefault"))
                );
                assert!(
                    setting("runAsUser").as_u64() >= Some(10_000),
                    "{}",
                    container["name"]
                );
                assert_eq!(
                    (
                        &own["allowPrivilegeEscalation"],
                        &own["readOnlyRootFilesystem"]
                    ),
                    (&json!(false), &json!(true))
                );
                assert_eq!(own["capabilities"], json!({ "drop": ["ALL"] }));
                assert!(
                    container["ports"]
                        .as_array()
                        .into_iter()
                        .flatten()
                        .all(|port| port.get("hostPort").is_none())
                );
            }
        }
    }
}

#[test]
#[ignore = "needs kustomize, and the schemas and servers that .ci/setup installs beside it"]
fn kube_score_has_nothing_to_say() {
    for (overlay, skipped) in [("standalone", SKIPPED_ALONE), ("sidecar", SKIPPED_BESIDE)] {
        let text = kustomize(&repository(&format!("overlays/{overlay}"))).expect("it builds");
        let ignored: Vec<String> = SKIPPED
            .iter()
            .chain(&skipped)
            .map(|(check, _)| format!("--ignore-test={check}"))
            .collect();
        let score = |text: &str| {
            let mut arguments = vec![
                "score",
                "--kubernetes-version=v1.29",
                "--exit-one-on-warning",
                "--output-format=ci",
            ];
            arguments.extend(ignored.iter().map(String::as_str));
            arguments.push("-");
            run("kube-score", &arguments, text)
        };
        score(&text).unwrap_or_else(|said| panic!("{overlay}: {said}"));
        let worse = text.replace(
            "readOnlyRootFilesystem: true",
            "readOnlyRootFilesystem: false",
        );
        assert!(
            score(&worse)
                .expect_err("worse")
                .contains("writable root filesystem")
        );
    }
}
