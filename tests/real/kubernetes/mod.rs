//! `deploy/kubernetes` as kustomize builds it: every combination is one that Kubernetes takes, and says what it has to.
//!
//! No cluster can be had here. What a cluster does with a sidecar is argued in `deploy/kubernetes/README.md`; that the manifests are
//! accepted is shown with the schemas of Kubernetes and the Prometheus Operator's own definitions, with unknown fields refused.

use crate::support::manifests;
use crate::support::parts;

mod accepted;
mod base;
mod overlay;
mod running;
mod sidecar;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use manifests::object;
use serde_json::{Value, json};

/// What goes with the exporter that runs alone; `runbook-links` only after `prometheusrule`.
const WITH_BASE: [&str; 7] = [
    "podmonitor",
    "servicemonitor",
    "prometheusrule",
    "runbook-links",
    "dashboards",
    "networkpolicy",
    "collector",
];

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("deploy/kubernetes")
        .join(path)
}

fn run(program: &str, arguments: &[&str], input: &str) -> Result<String, String> {
    let mut command = Command::new(parts::binary(program));
    let mut child = command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it can be run");
    let mut stdin = child.stdin.take().expect("piped");
    let output = std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input.as_bytes()));
        child.wait_with_output().expect("it ends")
    });
    let [said, complaint] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    if output.status.success() {
        Ok(said)
    } else {
        Err(said + &complaint)
    }
}

fn kustomize(directory: &Path) -> Result<String, String> {
    run(
        "kustomize",
        &["build", directory.to_str().expect("text")],
        "",
    )
}

/// Whether this Kubernetes takes all of it.
fn valid(version: &str, text: &str) -> Result<String, String> {
    run("kubernetes-schema", &[version], text)
}

fn spec<'a>(objects: &'a [Value], name: &str) -> &'a Value {
    &object(objects, "StatefulSet", name)["spec"]["template"]["spec"]
}

/// What the container's variables are made of.
fn settings_of<'a>(objects: &'a [Value], container: &Value) -> &'a Value {
    let name = container["envFrom"][0]["configMapRef"]["name"]
        .as_str()
        .expect("a name");
    &object(objects, "ConfigMap", name)["data"]
}

/// The user that the image is for, said by the pod or by the container.
fn user(context: &Value) {
    assert_eq!(
        (&context["runAsUser"], &context["runAsGroup"]),
        (&json!(65532), &json!(65532))
    );
}

/// The paths in the settings are below what is mounted, and a rotated key can be seen.
fn mounted(container: &Value, settings: &Value) {
    let mounts = container["volumeMounts"].as_array().expect("mounts");
    for (setting, read_only) in [
        ("ORGDATA_API_KEY_FILE", json!(true)),
        ("ORGDATA_STATE_PATH", Value::Null),
    ] {
        let path = settings[setting].as_str().expect("a path");
        let holds = |mount: &&Value| {
            mount["mountPath"]
                .as_str()
                .is_some_and(|mount| path.starts_with(&format!("{mount}/")))
        };
        let mount = mounts
            .iter()
            .find(holds)
            .unwrap_or_else(|| panic!("{path} is on no volume"));
        assert_eq!(mount["readOnly"], read_only, "{path}");
    }
    assert!(
        mounts
            .iter()
            .all(|mount| mount.get("subPath").is_none() && mount.get("subPathExpr").is_none()),
        "{mounts:?}"
    );
}

/// Liveness asks the process only, by number.
fn probes(container: &Value) {
    let probe = &container["livenessProbe"];
    assert_eq!(
        probe["httpGet"],
        json!({ "path": "/-/healthy", "port": 10917 })
    );
    assert_eq!(container["ports"][0]["containerPort"], 10917);
    assert!(probe["timeoutSeconds"].as_u64() < probe["periodSeconds"].as_u64());
    assert!(
        container["resources"]["limits"].get("cpu").is_none()
            && container["resources"]["requests"]["cpu"] == "10m"
    );
    assert_eq!(
        (
            &container["resources"]["requests"]["memory"],
            &container["resources"]["limits"]["memory"]
        ),
        (&json!("64Mi"), &json!("192Mi"))
    );
}
