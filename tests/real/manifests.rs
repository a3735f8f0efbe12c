//! What the tests of the kustomize files and of the chart share: overlays, schemas, and an API server.

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::files::{documents, file, path};
use crate::support::parts::{binary, output, run};

/// What is there before the first test.
const OBJECTS: &str = "tests/real/cluster/objects.yaml";

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
        let has_links = components.contains(&"runbook-links");
        let components = components.iter();
        let components = components.map(|name| way(&format!("components/{name}")));
        let components: Vec<String> = components.collect();
        let resources: Vec<String> = resources.iter().map(|name| way(name)).collect();
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

    /// Runs the rules of a component after everything else.
    pub(crate) fn at_the_end(self, rules: &str) -> Self {
        let components = Self::new(&[], &[rules]).kustomization["components"].take();
        self.set("transformers", components)
    }

    /// Returns what kustomize prints, or its error.
    pub(crate) fn build(&self) -> Result<String, String> {
        let file = self.dir.path().join("kustomization.yaml");
        // JSON is YAML.
        fs::write(file, self.kustomization.to_string()).unwrap();
        kustomize(self.dir.path())
    }

    /// Does the same with the kustomize inside kubectl, which is another version.
    pub(crate) fn build_with_kubectl(&self) -> Result<String, String> {
        let directory = self.dir.path().to_str().unwrap();
        run("kubectl", &["kustomize", directory], "")
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

/// Checks objects against the schemas of an old Kubernetes version; unknown fields are errors.
pub(crate) fn valid(version: &str, text: &str) -> Result<String, String> {
    run("kubernetes-schema", &[version], text)
}

/// An API server for all tests of this program, from `.ci/kubernetes-cluster`. It ends with the program, when its standard input does.
struct Cluster {
    kubeconfig: String,
    _process: Child,
}

static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| {
    let programs = binary("kube-apiserver");
    let programs = programs.parent().unwrap();
    let mut command = Command::new(path(".ci/kubernetes-cluster"));
    command.arg(programs).arg(path(OBJECTS));
    command.arg(programs.with_file_name("kubernetes-schema/definitions"));
    command.arg(programs.with_file_name("cert-manager"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = command.spawn().unwrap();
    let mut kubeconfig = String::new();
    let mut said = BufReader::new(process.stdout.take().unwrap());
    said.read_line(&mut kubeconfig).unwrap();
    assert!(kubeconfig.ends_with("kubeconfig\n"), "it did not start");
    Cluster {
        kubeconfig: kubeconfig.trim_end().to_owned(),
        _process: process,
    }
});

/// Runs a script of `tests/real/cluster` against the API server.
pub(crate) fn on_cluster(script: &str) {
    on_cluster_with(script, &[]);
}

/// Does the same with these variables.
pub(crate) fn on_cluster_with(script: &str, variables: &[(&str, &str)]) {
    let work = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut command = Command::new("bash");
    command.arg(path(&format!("tests/real/cluster/{script}.sh")));
    let programs = binary("kubectl").parent().unwrap().display().to_string();
    let found = format!("{programs}:{}", std::env::var("PATH").unwrap());
    command.envs(variables.iter().copied());
    command.env("PATH", found).env("work", work.path());
    command.env("HOME", work.path());
    let output = output(command.env("KUBECONFIG", &CLUSTER.kubeconfig), "");
    output.unwrap_or_else(|error| panic!("{script}: {error}"));
}

/// Lets the API server check objects as if it created them; warnings and unknown fields are errors, and pods have to be "restricted".
pub(crate) fn accepted(objects: &[Value]) -> Result<String, String> {
    let mut seen = HashSet::new();
    let mut items: Vec<Value> = objects.to_vec();
    items.retain(|object| !object.is_null() && seen.insert(object.to_string()));
    for item in &mut items {
        let own = item["metadata"].as_object_mut().unwrap();
        own.entry("namespace").or_insert_with(|| json!("checked"));
        if item["kind"] == "Pod" {
            // The account would have to exist.
            item["spec"]["serviceAccountName"].take();
        }
    }
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": items }).to_string();
    let strict = "apply --dry-run=server --warnings-as-errors --validate=strict -f - --kubeconfig";
    let mut command: Vec<&str> = strict.split(' ').collect();
    command.push(&CLUSTER.kubeconfig);
    run("kubectl", &command, &list)
}
