//! `deploy/kubernetes` as kustomize builds it: Kubernetes takes every combination, and each says what it has to. The schemas of Kubernetes and
//! of the Prometheus Operator stand for a cluster.

use serde_json::{Map, Value, json};

use crate::manifests::{Overlay, application_text, assert_restricted, shipped, valid};
use crate::support::files::{
    array, assert_has, bytes, documents, duration, file, named, object, path, text,
};
use crate::support::parts::Prometheus;

const NAME: &str = "orgdata-exporter";

/// The oldest Kubernetes with native sidecars, and the newest that has a schema.
const PROMISED: [&str; 2] = ["1.29", "1.37"];

/// A version without native sidecars.
const OLD: &str = "1.27";

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
    for (setting, read_only) in [
        ("ORGDATA_API_KEY_FILE", json!(true)),
        ("ORGDATA_STATE_PATH", Value::Null),
    ] {
        let path = text(&settings[setting]);
        let holds = |mount: &&Value| path.starts_with(&format!("{}/", text(&mount["mountPath"])));
        assert_eq!(
            mounts.iter().find(holds).unwrap()["readOnly"],
            read_only,
            "{path}"
        );
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
        "replicas": 1,
        "selector": { "matchLabels": labels },
        "template": { "metadata": { "labels": { "app.kubernetes.io/version": env!("CARGO_PKG_VERSION") } } },
    });
    let pod = pod(&objects, NAME);
    assert_has!(*pod, {
        "automountServiceAccountToken": false, "enableServiceLinks": false, "serviceAccountName": NAME,
        "securityContext": { "runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532, "fsGroupChangePolicy": "OnRootMismatch" },
    });
    // More than --shutdown.grace.
    assert!(pod["terminationGracePeriodSeconds"].as_u64() > Some(10));
    let container = named(&pod["containers"], NAME);
    let ready = json!({ "path": "/-/ready", "port": 10917 });
    assert_eq!(container["readinessProbe"]["httpGet"], ready);
    assert_eq!(
        named(&pod["volumes"], "api-key")["secret"]["optional"],
        false
    );
    let account = object(&objects, "ServiceAccount", NAME);
    assert_eq!(account["automountServiceAccountToken"], false);
    let claim = &set["volumeClaimTemplates"][0];
    assert_eq!(claim["metadata"]["labels"], labels);
    let size = bytes(&claim["spec"]["resources"]["requests"]["storage"]);
    assert!(size > 3 * bytes(&settings(&objects, container)["ORGDATA_STATE_MAX_SIZE"]));
    assert_eq!(
        object(&objects, "Service", NAME)["spec"]["selector"],
        labels
    );
    // With one replica a PodDisruptionBudget only blocks drains.
    assert!(
        objects
            .iter()
            .all(|object| object["kind"] != "PodDisruptionBudget")
    );
}

#[test]
#[ignore = "needs kustomize"]
fn what_goes_with_the_base_finds_it() {
    let objects = Overlay::base(&WITH_BASE.split(' ').collect::<Vec<_>>())
        .set("namespace", json!("somewhere"))
        .objects();
    let labels = |kind: &str, name: &str| {
        object(&objects, kind, name)["spec"]["template"]["metadata"]["labels"].clone()
    };
    let collector_name = "orgdata-exporter-collector";
    let (exporter, collector) = (
        labels("StatefulSet", NAME),
        labels("Deployment", collector_name),
    );
    let monitor = &object(&objects, "ServiceMonitor", NAME)["spec"];
    assert_has!(exporter, monitor["selector"]["matchLabels"]);
    let policy = &object(&objects, "NetworkPolicy", NAME)["spec"];
    assert_has!(exporter, policy["podSelector"]["matchLabels"]);
    assert_eq!(policy["policyTypes"], json!(["Ingress", "Egress"]));
    let from = &policy["ingress"][0]["from"][0]["namespaceSelector"]["matchLabels"];
    assert_eq!(from["kubernetes.io/metadata.name"], "monitoring");
    let rules = |direction: &str| array(&policy[direction]).to_vec();
    let ports = |rule: &Value| -> Value {
        array(&rule["ports"])
            .iter()
            .map(|port| port["port"].clone())
            .collect()
    };
    let all = |direction: &str| rules(direction).iter().map(ports).collect::<Value>();
    assert_eq!(all("ingress"), json!([[10917]]));
    assert_eq!(all("egress"), json!([[53, 53], [443], [4317, 4318]]));
    assert!(
        rules("egress")
            .iter()
            .all(|rule| !array(&rule["to"]).is_empty())
    );

    // The setting, the policy and the Service mean the same collector.
    let service = &object(&objects, "Service", collector_name)["spec"];
    assert_has!(collector, service["selector"]);
    assert_has!(
        collector,
        rules("egress")[2]["to"][0]["podSelector"]["matchLabels"]
    );
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
    let names: Vec<String> = objects
        .iter()
        .map(|object| text(&object["metadata"]["name"]))
        .collect();
    assert!(
        !names.contains(&"orgdata-exporter-links".to_owned()),
        "it is not for the cluster"
    );
    for (name, json) in [
        ("health", "exporter-health.json"),
        ("organization-activity", "organization-activity.json"),
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
#[ignore = "needs kustomize"]
fn a_sidecar_is_refused_except_by_one_statefulset_of_one() {
    let second = |text: String| {
        let set = text
            .split("---\n")
            .find(|document| document.contains("kind: StatefulSet"));
        let set = set.unwrap().replace("name: shop\n", "name: second\n");
        format!("{text}---\n{set}")
    };
    let autoscaler = "---\napiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: shop}\nspec: {maxReplicas: 3}\n";
    let replicas = "testing value /spec/replicas failed";
    type Change<'a> = &'a dyn Fn(String) -> String;
    let cases: [(Change<'_>, &str); 6] = [
        (&|text| text.replace("replicas: 1", "replicas: 3"), replicas),
        (&|text| text.replace("replicas: 1", "replicas: 0"), replicas),
        (&|text| text.replace("  replicas: 1\n", ""), replicas),
        (
            &|text| {
                text.replace("StatefulSet", "Deployment")
                    .replace("  serviceName: shop\n", "")
            },
            "nothing selected by StatefulSet",
        ),
        (&second, "multiple matches for selector StatefulSet"),
        (
            &|text| text + autoscaler,
            "testing value /spec/maxReplicas failed",
        ),
    ];
    for (kind, _) in SIDECARS {
        for (change, said) in cases {
            let refusal = Overlay::beside(change, &[kind]).build().expect_err(said);
            assert!(refusal.contains(said), "{refusal}");
        }
        for (count, refused) in [(3, true), (1, false)] {
            let count = json!([{ "name": "shop", "count": count }]);
            let overlay = Overlay::beside(|text| text, &[kind]).set("replicas", count);
            assert_eq!(overlay.one_replica_at_the_end().build().is_err(), refused);
        }
    }
    for (components, said) in [
        (["native-sidecar", "plain-sidecar"], NAME),
        (["collector", "native-sidecar"], NAME),
        (["sidecar-claim", "native-sidecar"], NAME),
    ] {
        let refusal = Overlay::beside(|text| text, &components)
            .build()
            .expect_err(said);
        assert!(refusal.contains(said), "{refusal}");
    }
    let refusal = Overlay::base(&["native-sidecar"])
        .build()
        .expect_err("an exporter twice");
    assert!(
        refusal.contains("exists; can not use behavior"),
        "{refusal}"
    );
    let without = |text: String| text.replace("        fsGroup: 20000\n", "");
    let unwritable = Overlay::beside(without, &["native-sidecar", "sidecar-claim"]).build();
    assert!(
        unwritable
            .expect_err("the claim is not writable")
            .contains("fsGroup")
    );
}

#[test]
#[ignore = "needs kustomize"]
fn a_sidecar_changes_nothing_of_the_application() {
    for (kind, list) in SIDECARS {
        for claim in [&[][..], &["sidecar-claim"]] {
            let mut objects = Overlay::beside(|text| text, &[&[kind], claim].concat()).objects();
            let pod = pod(&objects, "shop");
            assert_eq!(
                pod["containers"][0]["name"], "shop",
                "kubectl logs and exec go to the application"
            );
            assert_eq!(pod["securityContext"]["fsGroup"], 20000);
            let container = named(&pod[list], NAME);
            let restart = if kind == "native-sidecar" {
                json!("Always")
            } else {
                Value::Null
            };
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
                let claim = object(&objects, "PersistentVolumeClaim", "orgdata-exporter-state");
                assert_eq!(
                    state["persistentVolumeClaim"]["claimName"],
                    claim["metadata"]["name"]
                );
                (&claim["spec"]["resources"]["requests"]["storage"], "now")
            };
            assert!(bytes(size) > 3 * max, "{kind}");
            assert_eq!(settings["ORGDATA_AUDIT_START"], start);
            let key = &named(&pod["volumes"], "orgdata-exporter-api-key")["secret"];
            assert_has!(*key, { "defaultMode": 0o444, "optional": true });
            let token = "/var/run/secrets/kubernetes.io/serviceaccount";
            let hides_token = |mount: &Value| mount["mountPath"] == token;
            assert!(array(&container["volumeMounts"]).iter().any(hides_token));

            let mut sets = objects
                .iter_mut()
                .filter(|object| object["kind"] == "StatefulSet");
            let pod = &mut sets.next().unwrap()["spec"]["template"]["spec"];
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
    let complete = |chosen: &Vec<&str>| {
        !chosen.contains(&"runbook-links") || chosen.contains(&"prometheusrule")
    };
    choices.filter(complete).collect()
}

#[test]
#[ignore = "needs kustomize and the schemas"]
fn kubernetes_takes_every_combination() {
    let alone = choices(WITH_BASE);
    let beside = choices(WITH_SIDECAR);
    assert_eq!((alone.len(), beside.len()), (96, 48));
    let build = |overlay: Overlay| overlay.build().unwrap() + "\n---\n";
    let alone: String = alone
        .iter()
        .map(|components| build(Overlay::base(components)))
        .collect();
    let beside = |kind: &'static str| -> String {
        let components = beside
            .iter()
            .map(|components| [&[kind], &components[..]].concat());
        components
            .map(|components| build(Overlay::beside(|text| text, &components)))
            .collect()
    };
    let (native, plain) = (beside("native-sidecar"), beside("plain-sidecar"));
    let overlays = ["standalone", "sidecar"].map(shipped).join("\n---\n");
    assert_restricted(&documents(&overlays));
    for version in PROMISED {
        valid(version, &format!("{alone}{native}{plain}{overlays}")).expect(version);
    }
    valid(OLD, &format!("{alone}{plain}")).expect(OLD);
    let refusal = valid(OLD, &native).expect_err("no native sidecars");
    let mut lines = refusal.lines().filter(|line| line.contains(OLD));
    assert!(
        lines.all(|line| line.contains("'restartPolicy' was unexpected")),
        "{refusal}"
    );

    // The schemas do find faults.
    let good = build(Overlay::base(&["servicemonitor", "prometheusrule"]));
    for (right, wrong, said) in [
        (
            "sampleLimit:",
            "sampleLimits:",
            "'sampleLimits' was unexpected",
        ),
        (
            "enableServiceLinks:",
            "enableServiceLink:",
            "'enableServiceLink' was unexpected",
        ),
        ("for: 5m", "during: 5m", "'during' was unexpected"),
    ] {
        let refusal = valid("1.37", &good.replacen(right, wrong, 1)).expect_err(wrong);
        assert!(refusal.contains(said), "{refusal}");
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
    array(&endpoint["relabelings"])
        .iter()
        .map(renamed)
        .collect()
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
    let pods = vec![
        found("127.0.0.1:1", NAME, "10917"),
        found("127.0.0.2:1", NAME, "10917"),
    ];
    let others = vec![
        found("127.0.0.3:1", "shop", "10917"),
        found("127.0.0.3:2", NAME, "9"),
    ];
    for (kind, endpoints, others) in [
        ("PodMonitor", "podMetricsEndpoints", others),
        ("ServiceMonitor", "endpoints", vec![]),
    ] {
        let relabelings = relabelings(&object(&objects, kind, NAME)["spec"][endpoints][0]);
        let targets = [pods.clone(), others].concat();
        let job = json!({ "job_name": "orgdata/orgdata-exporter", "relabel_configs": relabelings, "static_configs": targets });
        for program in ["prometheus", "prometheus3"] {
            let prometheus = Prometheus::start_jobs(program, json!([job]), "1s").await;
            prometheus
                .query_until("up", |series| !array(series).is_empty())
                .await;
            let targets = prometheus.api("targets", &[("state", "active")]).await;
            let labels = array(&targets["activeTargets"])
                .iter()
                .map(|target| &target["labels"]);
            let one = json!({ "instance": "orgdata/orgdata-exporter-0", "job": NAME });
            assert_eq!(labels.collect::<Vec<_>>(), [&one, &one], "{program}");
        }
    }
}
