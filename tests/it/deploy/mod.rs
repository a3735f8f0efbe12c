//! `deploy/kubernetes` agrees with the program. `tests/real/kubernetes.rs` tests it on an API server.

mod units;
mod workflows;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

use clap::CommandFactory as _;
use orgdata_exporter::commands::Cli;
use serde_json::{Value, json};

use crate::support::binary::launch;
use crate::support::files::{
    array, assert_has, below, bytes, documents, file, named, object, text,
};

const DIRECTORY: &str = "deploy/kubernetes";

const NAME: &str = "orgdata-exporter";

/// The manifests, with the StatefulSet and the list of containers that the exporter is in.
const MANIFESTS: [(&str, &str, &str); 2] = [
    ("standalone", NAME, "containers"),
    ("sidecar", "shop", "initContainers"),
];

fn manifest(name: &str) -> Vec<Value> {
    documents(&file(&format!("{DIRECTORY}/{name}.yaml")))
}

/// Returns the pods of the two manifests and the exporter's container in each.
fn pods() -> [(Value, Value); 2] {
    MANIFESTS.map(|(name, set, list)| {
        let objects = manifest(name);
        let pod = &object(&objects, "StatefulSet", set)["spec"]["template"]["spec"];
        (pod.clone(), named(&pod[list], NAME).clone())
    })
}

/// Returns the variables in the exporter's container.
fn settings(container: &Value) -> BTreeMap<String, String> {
    let variables = array(&container["env"]).iter();
    variables
        .map(|variable| (text(&variable["name"]), text(&variable["value"])))
        .collect()
}

/// Returns the variables that the program reads for its flags.
pub(crate) fn variables() -> BTreeSet<String> {
    let command = Cli::command();
    let variables = command.get_arguments().filter_map(clap::Arg::get_env);
    let names = variables.map(|name| name.to_str().unwrap().to_owned());
    names.collect()
}

/// Returns the words of a text that are variables of the program.
pub(crate) fn variables_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_uppercase() && c != '_');
    // Prose has the prefix alone.
    let words = words.filter(|word| word.starts_with("ORGDATA_") && *word != "ORGDATA_");
    words.map(str::to_owned).collect()
}

#[test]
fn a_manifest_can_be_read_and_has_variables_and_versions_of_the_program() {
    let known = variables();
    for (name, text) in below(DIRECTORY) {
        let unknown: Vec<String> = variables_in(&text).difference(&known).cloned().collect();
        assert!(unknown.is_empty(), "{name}: {unknown:?}");
        if name.ends_with(".md") {
            continue;
        }
        assert!(text.lines().count() <= 180, "{name} is too long");
        assert!(!text.contains("kind: Secret"), "{name} has a secret");
    }
    let image = concat!("orgdata-exporter:", env!("CARGO_PKG_VERSION"));
    for (_, container) in pods() {
        assert_eq!(container["image"], image);
    }
}

#[test]
fn the_memory_limit_is_the_same_everywhere() {
    for (name, limit) in [
        ("deploy/kubernetes/standalone.yaml", "memory: 192Mi"),
        ("deploy/kubernetes/sidecar.yaml", "memory: 192Mi"),
        ("deploy/helm/orgdata-exporter/values.yaml", "memory: 192Mi"),
        ("deploy/compose/compose.yaml", "mem_limit: 192m"),
        (
            "deploy/recipes/organizations/compose.yaml",
            "mem_limit: 192m",
        ),
        ("deploy/systemd/orgdata-exporter.service", "MemoryMax=192M"),
        ("README.md", "--memory 192m"),
        ("docs/operations.md", "192 MiB"),
    ] {
        assert!(file(name).contains(limit), "{name}");
    }
}

#[test]
fn one_replica_runs_and_its_state_and_key_are_mounted() {
    for ((name, set, _), (_, container)) in MANIFESTS.iter().zip(pods()) {
        let objects = manifest(name);
        let set = &object(&objects, "StatefulSet", set)["spec"];
        assert_eq!(set["replicas"], 1, "{name}");
        let settings = settings(&container);
        let mounts = array(&container["volumeMounts"]);
        for (setting, read_only) in [
            ("ORGDATA_API_KEY_FILE", json!(true)),
            ("ORGDATA_STATE_PATH", Value::Null),
        ] {
            let path = &settings[setting];
            let holds =
                |mount: &&Value| path.starts_with(&format!("{}/", text(&mount["mountPath"])));
            let mount = mounts.iter().find(holds).unwrap();
            assert_eq!(mount["readOnly"], read_only, "{name}: {path}");
        }
        // A rotated key would not be seen.
        let sub_path = |mount: &Value| mount.get("subPath").or(mount.get("subPathExpr")).is_some();
        assert!(!mounts.iter().any(sub_path), "{mounts:?}");
        let claim = match set["volumeClaimTemplates"].get(0) {
            Some(claim) => claim,
            None => object(&objects, "PersistentVolumeClaim", "orgdata-exporter-state"),
        };
        // The file, its write-ahead log, and two copies that were set aside.
        let size = bytes(&claim["spec"]["resources"]["requests"]["storage"]);
        let max = bytes(&json!(settings["ORGDATA_STATE_MAX_SIZE"]));
        assert!(size > 3 * max, "{name}");
    }
}

#[test]
fn a_sidecar_is_the_same_exporter_and_never_stops_the_application() {
    let [(pod, alone), (beside, sidecar)] = pods();
    for key in "image env livenessProbe".split(' ') {
        assert_eq!(sidecar[key], alone[key], "{key}");
    }
    assert_eq!(
        sidecar["resources"]["requests"],
        alone["resources"]["requests"]
    );
    assert_has!(sidecar["securityContext"], alone["securityContext"]);
    let user = |context: &Value| ["runAsUser", "runAsGroup"].map(|key| context[key].clone());
    let users = [&sidecar, &pod].map(|of| user(&of["securityContext"]));
    assert_eq!(users[0], users[1]);
    // A limit of ephemeral storage would be the pod's.
    assert_has!(sidecar, {
        "restartPolicy": "Always", "readinessProbe": null, "startupProbe": null,
        "resources": { "limits": { "memory": alone["resources"]["limits"]["memory"], "ephemeral-storage": null, "cpu": null } },
    });
    // `kubectl logs` and `exec` go to the application.
    assert_eq!(beside["containers"][0]["name"], "shop");
    assert!(sidecar["ports"][0]["name"].is_null());
    assert!(!beside["securityContext"]["fsGroup"].is_null());
    let key = &named(&beside["volumes"], "orgdata-exporter-api-key")["secret"];
    assert_eq!(key["optional"], true);
    let token = "/var/run/secrets/kubernetes.io/serviceaccount";
    let hides_token = |mount: &Value| mount["mountPath"] == token;
    assert!(array(&sidecar["volumeMounts"]).iter().any(hides_token));
}

#[test]
fn services_monitors_and_policies_find_the_pod() {
    for (name, set, list) in MANIFESTS {
        let objects = manifest(name);
        let template = &object(&objects, "StatefulSet", set)["spec"]["template"];
        let labels = &template["metadata"]["labels"];
        let monitor = &object(&objects, "PodMonitor", NAME)["spec"];
        assert_has!(*labels, monitor["selector"]["matchLabels"]);
        let endpoint = &monitor["podMetricsEndpoints"][0];
        let port = &named(&template["spec"][list], NAME)["ports"][0];
        assert_eq!(port["containerPort"], 10917);
        match endpoint["port"].as_str() {
            Some(named) => assert_eq!(port["name"], named),
            None => assert_eq!(endpoint["portNumber"], 10917),
        }
    }
    let objects = manifest("standalone");
    let labels = &object(&objects, "StatefulSet", NAME)["spec"]["template"]["metadata"]["labels"];
    let service = &object(&objects, "Service", NAME)["spec"];
    assert_has!(*labels, service["selector"]);
    let policy = &object(&objects, "NetworkPolicy", NAME)["spec"];
    assert_has!(*labels, policy["podSelector"]["matchLabels"]);
    let ports = |rules: &Value| -> Value {
        let rules = array(rules).iter();
        let of = |rule: &Value| -> Value {
            let ports = array(&rule["ports"]).iter();
            ports.map(|port| port["port"].clone()).collect()
        };
        rules.map(of).collect()
    };
    assert_eq!(ports(&policy["ingress"]), json!([[10917]]));
    assert_eq!(
        ports(&policy["egress"]),
        json!([[53, 53], [443], [4317, 4318]])
    );
}

/// Starts it as Kubernetes does: with the settings of the file, the two mounted paths elsewhere, and what a Service of that name adds.
#[tokio::test]
async fn the_settings_start_it_and_it_is_ready_without_the_api() {
    for ((name, ..), (_, container)) in MANIFESTS.iter().zip(pods()) {
        let settings = settings(&container);
        let mut launch = launch(&["--web.listen-address=127.0.0.1:0"])
            .env("ORGDATA_EXPORTER_SERVICE_HOST", "10.0.0.1")
            .env("ORGDATA_EXPORTER_PORT", "tcp://10.0.0.1:10917")
            .env("ORGDATA_EXPORTER_SERVICE_PORT_METRICS", "10917");
        let [key, state] = ["api-key", "state.db"].map(|name| launch.dir().join(name));
        fs::write(&key, "key\n").unwrap();
        for (name, value) in &settings {
            launch = match name.as_str() {
                // Nothing listens there.
                "ORGDATA_API_BASE_URL" => launch.env(name, "http://127.0.0.1:9"),
                "ORGDATA_API_KEY_FILE" => launch.env(name, key.as_os_str()),
                "ORGDATA_STATE_PATH" => launch.env(name, state.as_os_str()),
                _ => launch.env(name, value),
            };
        }
        let mut exporter = launch.start();
        let failed = |line: &str| line.contains("127.0.0.1:9");
        exporter.stderr().until("a failed request", failed).await;
        for page in ["/-/ready", "/-/healthy"] {
            assert_eq!(exporter.get(page).await.0, 200, "{name}: {page}");
        }
        let max = bytes(&json!(settings["ORGDATA_STATE_MAX_SIZE"])) as f64;
        let shown = exporter.value("orgdata_state_max_size_bytes").await;
        assert_eq!(shown, Some(max), "{name}");
        assert!(state.exists());
        let asked = Instant::now();
        assert_eq!(exporter.stop().await, Some(0), "{name}");
        let took = asked.elapsed();
        assert!(took < Duration::from_secs(10), "within any grace period");
    }
}
