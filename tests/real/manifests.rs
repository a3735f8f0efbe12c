//! What the tests of the kustomize files and of the chart share: overlays, schemas, and the rules for pods.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::files::{array, assert_has, documents, file, path};
use crate::support::parts::run;

/// An overlay of a test. It is in the build directory, because kustomize takes relative paths only.
pub(crate) struct Overlay {
    dir: TempDir,
    kustomization: Value,
}

impl Overlay {
    fn new(resources: &[&str], components: &[&str]) -> Self {
        let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let up = "../".repeat(dir.path().components().count() - 1);
        let root = path("deploy/kubernetes").display().to_string();
        let way = |name: &str| format!("{up}{}/{name}", root.trim_start_matches('/'));
        let components = components
            .iter()
            .map(|name| way(&format!("components/{name}")));
        let components: Vec<String> = components.collect();
        let resources: Vec<String> = resources.iter().map(|name| way(name)).collect();
        let has_links = components
            .iter()
            .any(|name| name.ends_with("runbook-links"));
        let mut kustomization = json!({ "resources": resources, "components": components });
        if has_links {
            kustomization["configMapGenerator"] = json!([{
                "name": "orgdata-exporter-links",
                "literals": ["dashboards=https://git.example.com/orgdata-exporter/blob/main/dashboards"],
                "options": { "annotations": { "config.kubernetes.io/local-config": "true" } },
            }]);
        }
        Self { dir, kustomization }
    }

    pub(crate) fn base(components: &[&str]) -> Self {
        Self::new(&["base"], components)
    }

    /// The exporter beside the example's application, after a change of that.
    pub(crate) fn beside(change: impl Fn(String) -> String, components: &[&str]) -> Self {
        let overlay = Self::new(&[], components);
        let application = overlay.dir.path().join("application.yaml");
        fs::write(application, change(application_text())).unwrap();
        overlay.set("resources", json!(["application.yaml"]))
    }

    pub(crate) fn set(mut self, key: &str, value: Value) -> Self {
        self.kustomization[key] = value;
        self
    }

    /// Runs the component `one-replica` after everything else.
    pub(crate) fn one_replica_at_the_end(self) -> Self {
        let components = Self::new(&[], &["one-replica"]).kustomization["components"].take();
        self.set("transformers", components)
    }

    /// Returns what kustomize prints, or its error.
    pub(crate) fn build(&self) -> Result<String, String> {
        let file = self.dir.path().join("kustomization.yaml");
        // JSON is YAML.
        fs::write(file, self.kustomization.to_string()).unwrap();
        kustomize(self.dir.path())
    }

    pub(crate) fn objects(&self) -> Vec<Value> {
        documents(&self.build().unwrap())
    }
}

pub(crate) fn kustomize(directory: &Path) -> Result<String, String> {
    run("kustomize", &["build", directory.to_str().unwrap()], "")
}

/// Builds an overlay of `deploy/kubernetes/overlays`.
pub(crate) fn shipped(overlay: &str) -> String {
    let directory = path("deploy/kubernetes/overlays").join(overlay);
    kustomize(&directory).unwrap_or_else(|error| panic!("{overlay}: {error}"))
}

/// Returns the example's application without an exporter.
pub(crate) fn application_text() -> String {
    file("deploy/kubernetes/overlays/sidecar/application.yaml")
}

/// Checks objects against the schemas of a Kubernetes version and the Prometheus Operator; unknown fields are errors.
pub(crate) fn valid(version: &str, text: &str) -> Result<String, String> {
    run("kubernetes-schema", &[version], text)
}

/// Asserts that the pods of these objects are admitted by the restricted Pod Security standard.
pub(crate) fn assert_restricted<'a>(objects: impl IntoIterator<Item = &'a Value>) {
    let pods = objects
        .into_iter()
        .map(|object| &object["spec"]["template"]["spec"]);
    let pods: Vec<&Value> = pods.filter(|pod| pod.is_object()).collect();
    assert!(!pods.is_empty());
    for pod in pods {
        let host = json!({ "hostNetwork": null, "hostPID": null, "hostIPC": null });
        assert_has!(*pod, host);
        for volume in array(&pod["volumes"]) {
            let kinds = [
                "name",
                "configMap",
                "emptyDir",
                "secret",
                "persistentVolumeClaim",
            ];
            let mut keys = volume.as_object().unwrap().keys();
            assert!(keys.all(|key| kinds.contains(&key.as_str())), "{volume}");
        }
        let containers = ["initContainers", "containers"].map(|list| array(&pod[list]));
        for container in containers.concat() {
            let own = &container["securityContext"];
            assert_has!(*own, {
                "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": { "drop": ["ALL"] },
            });
            let setting = |key: &str| match &own[key] {
                Value::Null => &pod["securityContext"][key],
                own => own,
            };
            assert_eq!(*setting("runAsNonRoot"), true);
            assert_eq!(setting("seccompProfile")["type"], "RuntimeDefault");
            let ports = array(&container["ports"]);
            assert!(ports.iter().all(|port| port["hostPort"].is_null()));
        }
    }
}
