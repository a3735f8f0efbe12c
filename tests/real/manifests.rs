//! What the tests of the manifests and of the chart share: schemas, and an API server.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::files::path;
use crate::support::parts::{binary, output, run};

/// What is there before the first test.
const OBJECTS: &str = "tests/real/cluster/objects.yaml";

/// Checks objects against the schemas of the oldest Kubernetes that is supported; unknown fields are errors.
pub(crate) fn valid(text: &str) -> Result<String, String> {
    run("kubernetes-schema", &["1.29"], text)
}

/// The kubeconfig of an API server for all tests of this program, and `.ci/kubernetes-cluster`, which ends when its standard input does.
static CLUSTER: LazyLock<(String, Child)> = LazyLock::new(|| {
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
    (kubeconfig.trim_end().to_owned(), process)
});

/// Runs a script of `tests/real/cluster` against the API server.
pub(crate) fn on_cluster(script: &str) {
    let work = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut command = Command::new("bash");
    command.arg(path(&format!("tests/real/cluster/{script}.sh")));
    let programs = binary("kubectl").parent().unwrap().display().to_string();
    let found = format!("{programs}:{}", std::env::var("PATH").unwrap());
    command.env("PATH", found).env("work", work.path());
    command.env("HOME", work.path());
    let output = output(command.env("KUBECONFIG", &CLUSTER.0), "");
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
    let command = strict.split(' ').chain([CLUSTER.0.as_str()]);
    run("kubectl", &command.collect::<Vec<_>>(), &list)
}
