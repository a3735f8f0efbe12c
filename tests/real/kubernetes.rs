//! `deploy/kubernetes` as kustomize builds it: an API server accepts every combination, and each has what it needs.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::manifests::{Overlay, accepted, application_text, on_cluster, shipped, valid};
use crate::support::files::{
    array, assert_has, bytes, documents, duration, file, named, object, path, text, yaml,
};
use crate::support::parts::Prometheus;

const NAME: &str = "orgdata-exporter";

/// The oldest Kubernetes with native sidecars, and one without. The API server is of a current version.
const OLDEST: &str = "1.29";
const OLDER: &str = "1.27";

/// What goes with the exporter alone, and with a sidecar; `runbook-links` only with `prometheusrule`.
const WITH_BASE: &str =
    "podmonitor servicemonitor prometheusrule runbook-links dashboards networkpolicy collector";
const WITH_SIDECAR: &str =
    "sidecar-claim podmonitor prometheusrule runbook-links dashboards collector";

const SIDECARS: [(&str, &str); 2] = [
    ("native-sidecar", "initContainers"),
    ("plain-sidecar", "containers"),
];

fn pod<'a>(objects: &'a [Value], name: &str) -> &'a Value {
    &object(objects, "StatefulSet", name)["spec"]["template"]["spec"]
}

/// Returns the settings of a container after checking what is the same alone and beside an application.
fn settings<'a>(objects: &'a [Value], container: &Value) -> &'a Value {
    assert_has!(*container, {
        "livenessProbe": { "httpGet": { "path": "/-/healthy", "port": 10917 } },
        "resources": { "requests": { "cpu": "10m", "memory": "64Mi" }, "limits": { "cpu": null, "memory": "192Mi" } },
    });
    assert_eq!(container["ports"][0]["containerPort"], 10917);
    let name = text(&container["envFrom"][0]["configMapRef"]["name"]);
    // A changed setting is a new name and so a new pod.
    assert_ne!(name, NAME);
    let settings = &object(objects, "ConfigMap", &name)["data"];
    // The paths are below a mount, and a rotated key is visible.
    let mounts = array(&container["volumeMounts"]);
    let paths = [
        ("ORGDATA_API_KEY_FILE", json!(true)),
        ("ORGDATA_STATE_PATH", Value::Null),
    ];
    for (setting, read_only) in paths {
        let path = text(&settings[setting]);
        let holds = |mount: &&Value| path.starts_with(&format!("{}/", text(&mount["mountPath"])));
        let mount = mounts.iter().find(holds).unwrap();
        assert_eq!(mount["readOnly"], read_only, "{path}");
    }
    let sub_path = |mount: &Value| mount.get("subPath").or(mount.get("subPathExpr")).is_some();
    assert!(!mounts.iter().any(sub_path), "{mounts:?}");
    settings
}

#[test]
#[ignore = "needs kustomize"]
fn the_base_is_one_restricted_pod_with_a_volume() {
    let objects = Overlay::base(&[]).objects();
    let set = &object(&objects, "StatefulSet", NAME)["spec"];
    // What cannot be changed in a StatefulSet does not hold what changes with a release.
    let labels = json!({ "app.kubernetes.io/name": NAME, "app.kubernetes.io/instance": NAME });
    assert_has!(*set, {
        "replicas": 1, "podManagementPolicy": "Parallel",
        "selector": { "matchLabels": labels },
    });
    let pod = pod(&objects, NAME);
    assert_has!(*pod, {
        "automountServiceAccountToken": false, "enableServiceLinks": false, "serviceAccountName": NAME,
        "securityContext": { "fsGroup": 65532, "fsGroupChangePolicy": "OnRootMismatch" },
    });
    // More than --shutdown.grace.
    assert!(pod["terminationGracePeriodSeconds"].as_u64() > Some(10));
    let container = named(&pod["containers"], NAME);
    let ready = json!({ "path": "/-/ready", "port": 10917 });
    assert_eq!(container["readinessProbe"]["httpGet"], ready);
    let key = named(&pod["volumes"], "api-key");
    assert_eq!(key["secret"]["optional"], false);
    let account = object(&objects, "ServiceAccount", NAME);
    assert_eq!(account["automountServiceAccountToken"], false);
    let claim = &set["volumeClaimTemplates"][0];
    assert_eq!(claim["metadata"]["labels"], labels);
    let size = bytes(&claim["spec"]["resources"]["requests"]["storage"]);
    assert!(size > 3 * bytes(&settings(&objects, container)["ORGDATA_STATE_MAX_SIZE"]));
    let service = object(&objects, "Service", NAME);
    assert_eq!(service["spec"]["selector"], labels);
    // With one replica a PodDisruptionBudget only blocks drains.
    let is_budget = |object: &Value| object["kind"] == "PodDisruptionBudget";
    assert!(!objects.iter().any(is_budget));
}

#[test]
#[ignore = "needs kustomize"]
fn what_goes_with_the_base_finds_it() {
    let overlay = Overlay::base(&WITH_BASE.split(' ').collect::<Vec<_>>());
    let objects = overlay.set("namespace", json!("somewhere")).objects();
    let labels = |kind: &str, name: &str| {
        object(&objects, kind, name)["spec"]["template"]["metadata"]["labels"].clone()
    };
    let collector_name = "orgdata-exporter-collector";
    let exporter = labels("StatefulSet", NAME);
    let collector = labels("Deployment", collector_name);
    let monitor = &object(&objects, "ServiceMonitor", NAME)["spec"];
    assert_has!(exporter, monitor["selector"]["matchLabels"]);
    let policy = &object(&objects, "NetworkPolicy", NAME)["spec"];
    assert_has!(exporter, policy["podSelector"]["matchLabels"]);
    assert_eq!(policy["policyTypes"], json!(["Ingress", "Egress"]));
    let from = &policy["ingress"][0]["from"][0]["namespaceSelector"]["matchLabels"];
    assert_eq!(from["kubernetes.io/metadata.name"], "monitoring");
    let rules = |direction: &str| array(&policy[direction]).to_vec();
    let ports = |rule: Value| -> Value {
        let ports = array(&rule["ports"]).iter();
        ports.map(|port| port["port"].clone()).collect()
    };
    let all = |direction: &str| rules(direction).into_iter().map(ports).collect::<Value>();
    assert_eq!(all("ingress"), json!([[10917]]));
    assert_eq!(all("egress"), json!([[53, 53], [443], [4317, 4318]]));
    let egress = rules("egress");
    assert!(egress.iter().all(|rule| !array(&rule["to"]).is_empty()));

    // The setting, the policy and the Service mean the same collector.
    let service = &object(&objects, "Service", collector_name)["spec"];
    assert_has!(collector, service["selector"]);
    let peer = &egress[2]["to"][0]["podSelector"]["matchLabels"];
    assert_has!(collector, peer);
    let container = named(&pod(&objects, NAME)["containers"], NAME);
    let endpoint = &settings(&objects, container)["ORGDATA_OTLP_ENDPOINT"];
    assert_eq!(*endpoint, format!("http://{collector_name}:4317"));
    assert_eq!(service["ports"][0]["port"], 4317);

    for (kind, endpoints, port) in [
        ("PodMonitor", "podMetricsEndpoints", "portNumber"),
        ("ServiceMonitor", "endpoints", "targetPort"),
    ] {
        let spec = &object(&objects, kind, NAME)["spec"];
        let endpoint = &spec[endpoints][0];
        assert_eq!(endpoint[port], 10917);
        assert!(duration(&endpoint["scrapeTimeout"]) < duration(&endpoint["interval"]));
        assert!(spec["sampleLimit"].as_u64() >= Some(100_000));
    }
}

#[test]
#[ignore = "needs kustomize"]
fn runbooks_become_links_and_dashboards_fit_into_an_annotation() {
    let objects = documents(&shipped("standalone"));
    let rules = &object(&objects, "PrometheusRule", NAME)["spec"]["groups"][0]["rules"];
    for rule in array(rules) {
        let url = text(&rule["annotations"]["runbook_url"]);
        let page = url.strip_prefix("https://git.example.com/orgdata-exporter/blob/main/");
        assert!(page.is_some_and(|page| path(page).is_file()), "{url}");
    }
    let mut names = objects.iter().map(|one| text(&one["metadata"]["name"]));
    let is_local = names.all(|name| name != "orgdata-exporter-links");
    assert!(is_local, "it is not for the cluster");
    for (name, json) in [
        ("health", "exporter-health.json"),
        ("organization-activity", "organization-activity.json"),
        ("organization-records", "organization-records.json"),
    ] {
        let map = object(&objects, "ConfigMap", &format!("orgdata-exporter-{name}"));
        assert_has!(*map, {
            "metadata": { "labels": { "grafana_dashboard": "1" } }, "data": { json: file(&format!("dashboards/{json}")) },
        });
        // `kubectl apply` keeps the object as JSON in an annotation.
        assert!(map.to_string().len() < 256 * 1024, "{name}");
    }
}

#[test]
#[ignore = "needs kustomize and kubectl"]
fn a_refusal_says_the_rule_and_the_way_out() {
    for case in array(&yaml("tests/real/cluster/refused.yaml")) {
        let change = |mut changed: String| {
            for change in array(&case["change"]) {
                let (from, to) = (text(&change[0]), text(&change[1]));
                changed = changed.replace(&from, &to);
            }
            let second = changed.replace("name: shop\n", "name: second\n");
            match case["add"].as_str() {
                None => changed,
                Some("second") => format!("{changed}---\n{second}"),
                Some(more) => format!("{changed}---\n{more}"),
            }
        };
        let components = text(&case["components"]);
        let components: Vec<&str> = components.split(' ').collect();
        let overlay = match components[..] {
            ["base", sidecar] => Overlay::base(&[sidecar]),
            _ => Overlay::beside(change, &components),
        };
        let said = text(&case["said"]);
        for refusal in [overlay.build(), overlay.build_with_kubectl()] {
            let refusal = refusal.expect_err(&said);
            assert!(refusal.contains(&said), "{components:?}: {refusal}");
        }
    }
    // The overlay's own changes come after those of its components.
    for (kind, rules, count, is_refused) in [
        ("native-sidecar", "one-replica", 3, true),
        ("plain-sidecar", "one-replica", 3, true),
        ("plain-sidecar", "one-replica", 1, false),
    ] {
        let count = json!([{ "name": "shop", "count": count }]);
        let overlay = Overlay::beside(|text| text, &[kind]).set("replicas", count);
        let refused = overlay.at_the_end(rules).build().is_err();
        assert_eq!(refused, is_refused, "{kind} {rules}");
    }
}

#[test]
#[ignore = "needs kustomize"]
fn a_sidecar_changes_nothing_of_the_application() {
    for (kind, list) in SIDECARS {
        for claim in [&[][..], &["sidecar-claim"]] {
            let mut objects = Overlay::beside(|text| text, &[&[kind], claim].concat()).objects();
            let pod = pod(&objects, "shop");
            // `kubectl logs` and `exec` go to the application.
            assert_eq!(pod["containers"][0]["name"], "shop");
            assert_eq!(pod["securityContext"]["fsGroup"], 20000);
            let container = named(&pod[list], NAME);
            let is_native = kind == "native-sidecar";
            let restart = is_native.then_some("Always");
            // A limit of ephemeral storage would be the pod's, and the application may have a port of the same name.
            assert_has!(*container, {
                "restartPolicy": restart, "readinessProbe": null, "startupProbe": null,
                "resources": { "limits": { "ephemeral-storage": null } },
                "securityContext": { "runAsUser": 65532, "runAsGroup": 65532 },
            });
            assert!(container["ports"][0]["name"].is_null());
            let settings = settings(&objects, container);
            let max = bytes(&settings["ORGDATA_STATE_MAX_SIZE"]);
            let state = named(&pod["volumes"], "orgdata-exporter-state");
            // The file, its write-ahead log, and two copies that were set aside.
            let (size, start) = if claim.is_empty() {
                (&state["emptyDir"]["sizeLimit"], "1h")
            } else {
                let name = "orgdata-exporter-state";
                let claim = object(&objects, "PersistentVolumeClaim", name);
                assert_eq!(state["persistentVolumeClaim"]["claimName"], name);
                (&claim["spec"]["resources"]["requests"]["storage"], "now")
            };
            assert!(bytes(size) > 3 * max, "{kind}");
            assert_eq!(settings["ORGDATA_AUDIT_START"], start);
            let key = &named(&pod["volumes"], "orgdata-exporter-api-key")["secret"];
            assert_has!(*key, { "defaultMode": 0o444, "optional": true });
            let token = "/var/run/secrets/kubernetes.io/serviceaccount";
            let hides_token = |mount: &Value| mount["mountPath"] == token;
            assert!(array(&container["volumeMounts"]).iter().any(hides_token));

            let mut sets = objects.iter_mut();
            let set = sets.find(|object| object["kind"] == "StatefulSet");
            let pod = &mut set.unwrap()["spec"]["template"]["spec"];
            for list in ["initContainers", "containers", "volumes"] {
                let entries = pod[list].as_array_mut().unwrap();
                entries.retain(|entry| !text(&entry["name"]).starts_with(NAME));
            }
            for before in documents(&application_text()) {
                let name = text(&before["metadata"]["name"]);
                let after = object(&objects, &text(&before["kind"]), &name);
                assert_eq!(*after, before, "{kind} {claim:?}");
            }
        }
    }
}

/// Returns every choice out of these in which nothing lacks what it needs.
fn choices(all: &str) -> Vec<Vec<&str>> {
    let all: Vec<&str> = all.split(' ').collect();
    let chosen = |bits: usize| (0..all.len()).filter(move |at| bits >> at & 1 == 1);
    let choices = (0..1 << all.len()).map(|bits| chosen(bits).map(|at| all[at]).collect());
    let has = |chosen: &Vec<&str>, name| chosen.contains(&name);
    let is_whole = |chosen: &_| !has(chosen, "runbook-links") || has(chosen, "prometheusrule");
    choices.filter(is_whole).collect()
}

#[test]
#[ignore = "needs kustomize, the schemas and the API server"]
fn kubernetes_accepts_every_combination() {
    let alone = choices(WITH_BASE);
    let beside = choices(WITH_SIDECAR);
    assert_eq!((alone.len(), beside.len()), (96, 48));
    let build = |overlay: Overlay| overlay.build().unwrap() + "\n---\n";
    let alone = alone.iter();
    let alone: String = alone.map(|all| build(Overlay::base(all))).collect();
    let beside = |kind: &'static str| -> String {
        let all = beside.iter().map(|all| [&[kind], &all[..]].concat());
        let built = all.map(|all| build(Overlay::beside(|text| text, &all)));
        built.collect()
    };
    let (native, plain) = (beside("native-sidecar"), beside("plain-sidecar"));
    let overlays = ["standalone", "sidecar"].map(shipped).join("\n---\n");
    let all = format!("{alone}{native}{plain}{overlays}");
    valid(OLDEST, &all).unwrap();
    // Most objects are in many combinations.
    let distinct: BTreeSet<&str> = all.split("---\n").collect();
    let distinct = distinct.into_iter().collect::<Vec<_>>().join("---\n");
    accepted(&documents(&distinct)).unwrap();
    valid(OLDER, &format!("{alone}{plain}")).unwrap();
    let refusal = valid(OLDER, &native).expect_err("no native sidecars");
    let mut lines = refusal.lines().filter(|line| line.contains(OLDER));
    let is_it = lines.all(|line| line.contains("'restartPolicy' was unexpected"));
    assert!(is_it, "{refusal}");

    // It would say what is wrong.
    let good = build(Overlay::base(&["servicemonitor", "prometheusrule"]));
    let nonroot = ["runAsNonRoot: true", "runAsNonRoot: false"];
    for ([right, wrong], said) in [
        (["sampleLimit:", "sampleLimits:"], "unknown field"),
        (nonroot, "would violate PodSecurity"),
    ] {
        let refusal = accepted(&documents(&good.replacen(right, wrong, 1))).expect_err(wrong);
        assert!(refusal.contains(said), "{refusal}");
    }
}

/// A second `apply` changes nothing; a wrong first rollout is corrected, and two pods never run.
#[test]
#[ignore = "needs kustomize and the API server"]
fn a_second_apply_changes_nothing_and_two_pods_never_read() {
    for script in ["unchanged", "rollout"] {
        on_cluster(script);
    }
}

/// Returns the relabelings of an object of the Prometheus Operator in the words of a scrape configuration.
fn relabelings(endpoint: &Value) -> Value {
    let renamed = |relabeling: &Value| {
        let keys = relabeling.as_object().unwrap().iter();
        let name = |key: &String| key.replace("Labels", "_labels").replace("Label", "_label");
        keys.map(|(key, value)| (name(key), value.clone()))
            .collect::<Map<_, _>>()
    };
    let relabelings = array(&endpoint["relabelings"]).iter();
    relabelings.map(renamed).collect()
}

#[tokio::test]
#[ignore = "needs kustomize and Prometheus 2.42 and 3"]
async fn a_restart_stays_one_series() {
    let objects = Overlay::base(&["podmonitor", "servicemonitor"]).objects();
    let found = |address: &str, container: &str, port: &str| {
        json!({ "targets": [address], "labels": {
            "__meta_kubernetes_namespace": "orgdata", "__meta_kubernetes_pod_name": "orgdata-exporter-0",
            "__meta_kubernetes_pod_container_name": container, "__meta_kubernetes_pod_container_port_number": port,
        } })
    };
    // The pod before and after a restart. Nothing listens there.
    let pods = ["127.0.0.1:1", "127.0.0.2:1"].map(|pod| found(pod, NAME, "10917"));
    let others = vec![
        found("127.0.0.3:1", "shop", "10917"),
        found("127.0.0.3:2", NAME, "9"),
    ];
    for (kind, endpoints, others) in [
        ("PodMonitor", "podMetricsEndpoints", others),
        ("ServiceMonitor", "endpoints", vec![]),
    ] {
        let relabelings = relabelings(&object(&objects, kind, NAME)["spec"][endpoints][0]);
        let targets = [pods.to_vec(), others].concat();
        let job = json!({ "job_name": "orgdata/orgdata-exporter", "relabel_configs": relabelings, "static_configs": targets });
        for program in ["prometheus", "prometheus3"] {
            let prometheus = Prometheus::start_jobs(program, json!([job]), "1s").await;
            let is_some = |series: &Value| !array(series).is_empty();
            prometheus.query_until("up", is_some).await;
            let targets = prometheus.api("targets", &[("state", "active")]).await;
            let targets = array(&targets["activeTargets"]).iter();
            let labels = targets.map(|target| &target["labels"]);
            let one = json!({ "instance": "orgdata/orgdata-exporter-0", "job": NAME });
            assert_eq!(labels.collect::<Vec<_>>(), [&one, &one], "{program}");
        }
    }
}
