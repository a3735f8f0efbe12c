//! The chart, rendered by Helm as a user renders it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::parts;

/// The least that is needed.
pub(crate) const BASE: &str = "{api: {baseUrl: https://api.example.com}}";

/// Objects by kind and name.
pub(crate) type Objects = BTreeMap<(String, String), Value>;

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/helm/orgdata-exporter")
}

/// The examples, by the name of their feature.
pub(crate) fn features() -> BTreeMap<String, String> {
    let files = fs::read_dir(root().join("ci"))
        .expect("a directory")
        .map(|entry| entry.expect("an entry").path());
    let features: BTreeMap<String, String> = files
        .map(|path| {
            let name = path
                .file_name()
                .and_then(|name| name.to_str()?.strip_suffix("-values.yaml"))
                .expect("NAME-values.yaml");
            (name.to_owned(), fs::read_to_string(&path).expect("text"))
        })
        .collect();
    assert!(features.len() > 20, "{} files of values", features.len());
    features
}

/// Runs Helm over a chart with these values; `command` begins with the subcommand. The error is what it said.
pub(crate) fn helm(command: &[&str], chart: &Path, values: &str) -> Result<String, String> {
    // Nothing of the machine's own Helm or cluster is looked at.
    let home = tempfile::tempdir().expect("a temporary directory");
    let file = home.path().join("values.yaml");
    fs::write(&file, values).expect("written");
    let mut helm = Command::new(parts::binary("helm"));
    helm.args(command).arg(chart).arg("--values").arg(&file);
    helm.args(["--namespace", "monitoring"])
        .env("HOME", home.path())
        .env("KUBECONFIG", home.path().join("none"));
    let output = helm.output().expect("it can be run");
    let [said, error] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("text"));
    if output.status.success() {
        Ok(said)
    } else {
        Err(format!("{said}{error}"))
    }
}

/// What a release called `orgdata-exporter` consists of.
pub(crate) fn rendered(values: &str) -> Result<String, String> {
    helm(&["template", "orgdata-exporter"], &root(), values)
}

/// The same as objects.
pub(crate) fn objects(values: &str) -> Objects {
    parsed(&rendered(values).unwrap_or_else(|error| panic!("{values}\n{error}")))
}

/// The objects of a stream of YAML documents.
pub(crate) fn parsed(text: &str) -> Objects {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let mut objects = Objects::new();
    for object in documents.into_iter().filter(|object| !object.is_null()) {
        let key = [&object["kind"], &object["metadata"]["name"]]
            .map(|word| word.as_str().expect("text").to_owned());
        assert!(
            objects.insert(key.clone().into(), object).is_none(),
            "{key:?} is there twice"
        );
    }
    objects
}

/// A copy of the chart to be changed.
pub(crate) fn copy() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let chart = dir.path().join("orgdata-exporter");
    copy_directory(&root(), &chart);
    (dir, chart)
}

/// Copies a directory with all that is in it.
pub(crate) fn copy_directory(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("made");
    for entry in fs::read_dir(from).expect("a directory") {
        let path = entry.expect("an entry").path();
        let target = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy_directory(&path, &target);
        } else {
            fs::copy(&path, &target).expect("copied");
        }
    }
}
