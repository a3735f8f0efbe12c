//! An overlay of a test's own.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};
use tempfile::TempDir;

use super::{kustomize, repository};
use crate::support::manifests::documents;

/// An overlay of one's own. It lies in the build's directory, since kustomize takes relative paths only.
pub(crate) struct Overlay {
    dir: TempDir,
    pub(crate) kustomization: Map<String, Value>,
}

// === impl Overlay ===

impl Overlay {
    pub(crate) fn new() -> Self {
        let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        Self {
            dir,
            kustomization: Map::new(),
        }
    }

    /// The exporter alone.
    pub(crate) fn base(components: &[&str]) -> Self {
        Self::new()
            .with("resources", &["base"])
            .components(components)
    }

    /// The exporter in the example's application, after a change of that.
    pub(crate) fn beside(change: impl Fn(String) -> String, components: &[&str]) -> Self {
        let overlay = Self::new();
        fs::write(
            overlay.dir.path().join("application.yaml"),
            change(application()),
        )
        .expect("writable");
        let mut overlay = overlay.components(components);
        overlay
            .kustomization
            .insert("resources".to_owned(), json!(["application.yaml"]));
        overlay
    }

    fn components(self, components: &[&str]) -> Self {
        let paths: Vec<String> = components
            .iter()
            .map(|name| format!("components/{name}"))
            .collect();
        let links = json!([{ "name": "orgdata-exporter-links", "literals": ["dashboards=https://git.example.com/x/dashboards"],
            "options": { "annotations": { "config.kubernetes.io/local-config": "true" } } }]);
        let overlay = self.with(
            "components",
            &paths.iter().map(String::as_str).collect::<Vec<_>>(),
        );
        if components.contains(&"runbook-links") {
            overlay.set("configMapGenerator", links)
        } else {
            overlay
        }
    }

    /// A list of directories of `deploy/kubernetes`.
    pub(crate) fn with(self, key: &str, directories: &[&str]) -> Self {
        let up = "../".repeat(self.dir.path().components().count() - 1);
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/kubernetes");
        let root = root
            .strip_prefix("/")
            .expect("absolute")
            .display()
            .to_string();
        let paths: Vec<String> = directories
            .iter()
            .map(|directory| format!("{up}{root}/{directory}"))
            .collect();
        self.set(key, json!(paths))
    }

    pub(crate) fn set(mut self, key: &str, value: Value) -> Self {
        self.kustomization.insert(key.to_owned(), value);
        self
    }

    /// What kustomize makes of it, or says against it.
    pub(crate) fn build(&self) -> Result<String, String> {
        // JSON is YAML.
        let text = Value::Object(self.kustomization.clone()).to_string();
        fs::write(self.dir.path().join("kustomization.yaml"), text).expect("writable");
        kustomize(self.dir.path())
    }

    pub(crate) fn objects(&self) -> Vec<Value> {
        documents(&self.build().expect("it builds"))
    }

    /// The error that it has to be.
    pub(crate) fn refusal(&self, why: &str) -> String {
        self.build().expect_err(why)
    }
}

/// The example's application as it is without an exporter.
pub(crate) fn application() -> String {
    fs::read_to_string(repository("overlays/sidecar/application.yaml")).expect("a file")
}
