//! `deploy/kubernetes`: what its files say. What kustomize makes of them is looked at in `tests/real_kubernetes/`.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{below, file, generated, root, rule_groups, variables};
use crate::support::binary::launch;
use crate::support::manifests::{bytes, documents};

const DIRECTORY: &str = "deploy/kubernetes";

/// Where each way to run the exporter has its settings.
const SETTINGS: [&str; 2] = [
    "deploy/kubernetes/base/settings.env",
    "deploy/kubernetes/components/sidecar-pod/settings.env",
];

/// The only document of a file.
fn document(path: &str) -> Value {
    let mut documents = documents(&file(&format!("{DIRECTORY}/{path}")));
    assert_eq!(documents.len(), 1, "{path}");
    documents.remove(0)
}

fn settings(path: &str) -> BTreeMap<String, String> {
    let text = file(path);
    let lines = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| line.split_once('=').expect("a variable"))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// The container of the native sidecar.
fn native() -> Value {
    document("components/native-sidecar/container.yaml")["spec"]["template"]["spec"]["initContainers"][0].clone()
}

#[test]
fn the_alerts_are_those_of_the_rule_file() {
    let path = format!("{DIRECTORY}/components/prometheusrule/prometheusrule.yaml");
    let head = r#"# The groups of dashboards/alerts.yaml, word for word: change them there, and `UPDATE=1 cargo test --test deploy` writes this file anew.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: orgdata-exporter
  labels:
    app.kubernetes.io/name: orgdata-exporter
    app.kubernetes.io/instance: orgdata-exporter
    app.kubernetes.io/part-of: orgdata-exporter
    app.kubernetes.io/version: "VERSION"
spec:
"#;
    generated(
        &path,
        &format!(
            "{}{}",
            head.replace("VERSION", env!("CARGO_PKG_VERSION")),
            rule_groups(2)
        ),
    );
    let [rule, rules] =
        [file(&path), file("dashboards/alerts.yaml")].map(|text| documents(&text).remove(0));
    assert_eq!(rule["spec"]["groups"], rules["groups"]);
    assert!(
        rules["groups"][0]["rules"]
            .as_array()
            .is_some_and(|rules| rules.len() > 20)
    );
}

#[test]
fn a_plain_sidecar_is_the_native_one_less_its_restart_policy() {
    let (mut native, plain) = (
        native(),
        document("components/plain-sidecar/container.yaml"),
    );
    assert_eq!(
        native
            .as_object_mut()
            .expect("a container")
            .remove("restartPolicy"),
        Some(json!("Always"))
    );
    assert_eq!(plain[0]["value"], native);
}

#[test]
fn a_sidecar_is_the_exporter_of_the_base() {
    let base =
        document("base/statefulset.yaml")["spec"]["template"]["spec"]["containers"][0].clone();
    let sidecar = native();
    for key in [
        "name",
        "image",
        "imagePullPolicy",
        "envFrom",
        "env",
        "livenessProbe",
    ] {
        assert_eq!(sidecar[key], base[key], "{key}");
    }
    for (kind, resource) in [
        ("requests", "cpu"),
        ("requests", "memory"),
        ("limits", "memory"),
    ] {
        assert_eq!(
            sidecar["resources"][kind][resource], base["resources"][kind][resource],
            "{resource}"
        );
    }
    for (key, value) in base["securityContext"].as_object().expect("settings") {
        assert_eq!(&sidecar["securityContext"][key], value, "{key}");
    }
    let [of_sidecar, of_base] = SETTINGS
        .map(settings)
        .map(|settings| settings.into_keys().collect::<Vec<_>>());
    assert!(
        of_sidecar.iter().all(|name| of_base.contains(name)),
        "{of_sidecar:?}"
    );
}

#[test]
fn every_variable_is_one_of_the_program() {
    let known = variables();
    let is_part = |c: char| c.is_ascii_uppercase() || c == '_';
    let mut found = 0;
    for (path, text) in below(DIRECTORY) {
        for (at, _) in text.match_indices("ORGDATA_") {
            let name: String = text[at..].chars().take_while(|c| is_part(*c)).collect();
            // A prefix of many, as in prose.
            assert!(
                known.contains(&name) || name == "ORGDATA_",
                "{path} names {name}"
            );
            found += 1;
        }
    }
    assert!(found > 10, "{found}");
}

#[test]
fn the_version_is_that_of_the_program() {
    let mut files = below(DIRECTORY);
    files.push((
        "dashboards".to_owned(),
        file("dashboards/kustomization.yaml"),
    ));
    let mut found = 0;
    for (path, text) in files {
        for line in text.lines() {
            let version = line
                .trim()
                .strip_prefix("app.kubernetes.io/version: ")
                .or_else(|| line.trim().strip_prefix("image: orgdata-exporter:"));
            if let Some(version) = version.or_else(|| line.trim().strip_prefix("newTag: ")) {
                assert_eq!(
                    version.trim_matches('"'),
                    env!("CARGO_PKG_VERSION"),
                    "{path}: {line}"
                );
                found += 1;
            }
        }
    }
    assert!(found > 10, "{found}");
}

#[test]
fn there_is_no_secret() {
    for (path, text) in below(DIRECTORY)
        .into_iter()
        .filter(|(path, _)| !path.ends_with(".md"))
    {
        assert!(
            !text.contains("kind: Secret") && !text.contains("secretGenerator"),
            "{path}"
        );
    }
}

#[test]
fn the_readme_names_every_component_and_nothing_that_is_not_there() {
    let readme = file(&format!("{DIRECTORY}/README.md"));
    for entry in fs::read_dir(root().join(DIRECTORY).join("components")).expect("a directory") {
        let name = entry
            .expect("an entry")
            .file_name()
            .to_string_lossy()
            .into_owned();
        assert!(readme.contains(&format!("`{name}`")), "{name}");
    }
    for link in readme
        .split("](")
        .skip(1)
        .map(|rest| rest.split(')').next().unwrap_or_default())
    {
        let path = link.split('#').next().unwrap_or_default();
        assert!(
            link.starts_with("https://kubernetes.io/")
                || root().join(DIRECTORY).join(path).exists(),
            "{link}"
        );
    }
}

/// As Kubernetes starts it: the settings of the file, with the two mounted paths elsewhere, and what a Service of that name adds.
#[tokio::test]
async fn the_settings_start_it_and_a_service_that_is_away_leaves_it_ready() {
    for path in SETTINGS {
        let settings = settings(path);
        let launch = launch(&["--web.listen-address=127.0.0.1:0"]);
        let (key, state) = (launch.dir().join("api-key"), launch.dir().join("state.db"));
        fs::write(&key, "key\n").expect("a key");
        let mut launch = launch
            .env("ORGDATA_EXPORTER_PORT", "tcp://10.0.0.1:10917")
            .env("ORGDATA_EXPORTER_SERVICE_PORT_METRICS", "10917");
        for (name, value) in &settings {
            launch = match name.as_str() {
                // Nothing listens there.
                "ORGDATA_API_BASE_URL" => launch.env(name, "http://127.0.0.1:9"),
                "ORGDATA_API_KEY_FILE" => launch.os_env(name, key.as_os_str()),
                "ORGDATA_STATE_PATH" => launch.os_env(name, state.as_os_str()),
                _ => launch.env(name, value),
            };
        }
        let mut exporter = launch.start();
        exporter
            .stderr()
            .until("that the service is away", |line| {
                line.contains("127.0.0.1:9")
            })
            .await;
        assert_eq!(
            (
                exporter.get("/-/ready").await.0,
                exporter.get("/-/healthy").await.0
            ),
            (200, 200),
            "{path}"
        );
        let max = bytes(&json!(settings["ORGDATA_STATE_MAX_SIZE"]));
        assert_eq!(
            exporter.value("orgdata_state_max_size_bytes").await,
            Some(max as f64),
            "{path}"
        );
        assert!(state.exists());
        let asked = Instant::now();
        assert_eq!(exporter.stop().await, Some(0), "{path}");
        assert!(
            asked.elapsed() < Duration::from_secs(10),
            "well within any grace period: {:?}",
            asked.elapsed()
        );
    }
}
