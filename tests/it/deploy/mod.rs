//! `deploy/kubernetes` agrees with the program and with `dashboards/`. `tests/real/kubernetes.rs` tests what kustomize makes of it.

mod units;
mod workflows;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

use clap::CommandFactory as _;
use orgdata_exporter::commands::Cli;
use serde_json::{Value, json};

use crate::support::binary::launch;
use crate::support::files::{assert_has, below, bytes, documents, file, generated, names, yaml};

const DIRECTORY: &str = "deploy/kubernetes";

/// The settings of the exporter alone and of the sidecar.
const SETTINGS: [&str; 2] = ["base/settings.env", "components/sidecar-pod/settings.env"];

fn document(name: &str) -> Value {
    yaml(&format!("{DIRECTORY}/{name}"))
}

fn settings(name: &str) -> BTreeMap<String, String> {
    let text = file(&format!("{DIRECTORY}/{name}"));
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let variables = lines.filter_map(|line| line.split_once('='));
    let owned = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    owned.collect()
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
fn the_alerts_are_those_of_the_rule_file() {
    let name = format!("{DIRECTORY}/components/prometheusrule/prometheusrule.yaml");
    let mut rule = format!(
        "# Generated from dashboards/alerts.yaml: `UPDATE=1 cargo test --test it` writes this file.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: orgdata-exporter
  labels:
    app.kubernetes.io/name: orgdata-exporter
    app.kubernetes.io/instance: orgdata-exporter
    app.kubernetes.io/part-of: orgdata-exporter
    app.kubernetes.io/version: \"{}\"
spec:
",
        env!("CARGO_PKG_VERSION")
    );
    let alerts = file("dashboards/alerts.yaml");
    for line in alerts[alerts.find("groups:\n").unwrap()..].lines() {
        rule += format!("  {line}").trim_end();
        rule.push('\n');
    }
    generated(&name, &rule);
    assert_eq!(documents(&rule)[0]["spec"], yaml("dashboards/alerts.yaml"));
}

#[test]
fn a_sidecar_is_the_exporter_of_the_base() {
    let pod = |name: &str| document(name)["spec"]["template"]["spec"].take();
    let base = pod("base/statefulset.yaml")["containers"][0].take();
    let mut native = pod("components/native-sidecar/container.yaml")["initContainers"][0].take();
    for key in "name image imagePullPolicy envFrom env livenessProbe".split(' ') {
        assert_eq!(native[key], base[key], "{key}");
    }
    for key in ["requests", "limits"] {
        let memory = |container: &Value| container["resources"][key]["memory"].clone();
        assert_eq!(memory(&native), memory(&base), "{key}");
    }
    assert_has!(native["securityContext"], base["securityContext"]);
    let [base, sidecar] = SETTINGS.map(settings);
    assert!(base.keys().all(|name| sidecar.contains_key(name)));
    // A plain sidecar is a native one without its restart policy.
    let policy = native.as_object_mut().unwrap().remove("restartPolicy");
    assert_eq!(policy, Some(json!("Always")));
    let plain = document("components/plain-sidecar/container.yaml");
    assert_eq!(plain[0]["value"], native);
}

#[test]
fn variables_and_versions_are_those_of_the_program() {
    let (known, mut found) = (variables(), 0);
    let mut files = below(DIRECTORY);
    let dashboards = "dashboards/kustomization.yaml";
    files.push((dashboards.to_owned(), file(dashboards)));
    for (name, text) in files {
        let unknown: Vec<String> = variables_in(&text).difference(&known).cloned().collect();
        assert!(unknown.is_empty(), "{name}: {unknown:?}");
        let secret = text.contains("kind: Secret") || text.contains("secretGenerator");
        assert!(!secret || name.ends_with(".md"), "{name} has a secret");
        for line in text.lines().map(str::trim) {
            let mut keys =
                "app.kubernetes.io/version: |image: orgdata-exporter:|newTag: ".split('|');
            if let Some(version) = keys.find_map(|key| line.strip_prefix(key)) {
                let version = version.trim_matches('"');
                assert_eq!(version, env!("CARGO_PKG_VERSION"), "{name}: {line}");
                found += 1;
            }
        }
    }
    assert!(found > 10, "{found}");
}

#[test]
fn the_readme_names_every_component() {
    let readme = file(&format!("{DIRECTORY}/README.md"));
    for name in names(&format!("{DIRECTORY}/components")) {
        assert!(readme.contains(&format!("`{name}`")), "{name}");
    }
}

/// Starts it as Kubernetes does: with the settings of the file, the two mounted paths elsewhere, and what a Service of that name adds.
#[tokio::test]
async fn the_settings_start_it_and_it_is_ready_without_the_api() {
    for name in SETTINGS {
        let settings = settings(name);
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
