//! The Helm chart under the real Helm: every example is linted, rendered, accepted and usable, and what a chart promises beyond that.

mod certificate;
mod rendered;
mod values;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::manifests::{accepted, on_cluster, valid};
use crate::support::binary::launch;
use crate::support::files::{
    self, array, assert_has, documents, file, named, names, object, path, text,
};
use crate::support::parts::{binary, output, promtool};

const NAME: &str = "orgdata-exporter";
const CHART: &str = "deploy/helm/orgdata-exporter";

/// The least that is needed.
const BASE: &str = "{api: {baseUrl: https://api.example.com}}";

/// Returns the examples by the name of their feature.
fn features() -> BTreeMap<String, String> {
    let examples = names(&format!("{CHART}/ci"));
    assert!(examples.len() > 20);
    let read = |example: &String| {
        let feature = example.strip_suffix("-values.yaml").unwrap();
        (feature.to_owned(), file(&format!("{CHART}/ci/{example}")))
    };
    examples.iter().map(read).collect()
}

/// Runs Helm on a chart with these values; `command` begins with the subcommand. The error is what it printed.
fn helm(command: &[&str], chart: &Path, values: &str) -> Result<String, String> {
    // Nothing of this machine's own Helm or cluster is used.
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("values.yaml");
    fs::write(&file, values).unwrap();
    let mut helm = Command::new(binary("helm"));
    helm.args(command).arg(chart).arg("--values").arg(&file);
    helm.args(["--namespace", "monitoring"])
        .env("HOME", home.path());
    helm.env("KUBECONFIG", home.path().join("none"));
    output(&mut helm, "")
}

fn rendered(values: &str) -> Result<String, String> {
    helm(&["template", NAME], &path(CHART), values)
}

/// Returns the objects of a release called `orgdata-exporter`.
fn objects(values: &str) -> Vec<Value> {
    parsed(&rendered(values).unwrap_or_else(|error| panic!("{values}\n{error}")))
}

fn parsed(text: &str) -> Vec<Value> {
    let mut objects = documents(text);
    objects.retain(|object| !object.is_null());
    objects
}

pub(crate) fn example(feature: &str) -> Vec<Value> {
    objects(&features()[feature])
}

fn set(objects: &[Value]) -> &Value {
    of_kind(objects, "StatefulSet")[0]
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    let objects = objects.iter();
    objects.filter(|object| object["kind"] == kind).collect()
}

fn pod(objects: &[Value]) -> &Value {
    &set(objects)["spec"]["template"]["spec"]
}

/// Returns the settings in the exporter's ConfigMap.
fn settings(objects: &[Value]) -> &Value {
    let name = text(&set(objects)["metadata"]["name"]);
    &object(objects, "ConfigMap", &name)["data"]
}

#[test]
#[ignore = "needs helm, promtool, the schemas and the API server"]
fn every_example_is_sound_and_accepted() {
    let mut all = String::new();
    let dir = tempfile::tempdir().unwrap();
    for (feature, values) in features() {
        helm(&["lint", "--strict"], &path(CHART), &values).expect(&feature);
        all += &rendered(&values).expect(&feature);
        let objects = objects(&values);
        for rules in of_kind(&objects, "PrometheusRule") {
            let file = dir.path().join("rules.yaml");
            fs::write(&file, rules["spec"].to_string()).unwrap();
            promtool(&["check", "rules", file.to_str().unwrap()]).expect(&feature);
        }
        let pod = pod(&objects);
        assert_has!(set(&objects)["spec"], { "replicas": 1, "podManagementPolicy": "Parallel" });
        assert_eq!(pod["automountServiceAccountToken"], false, "{feature}");
        let exporter = &pod["containers"][0];
        // `helm test` checks what the exporter has.
        let check = &of_kind(&objects, "Pod")[0]["spec"]["containers"][0];
        for same in "image imagePullPolicy envFrom volumeMounts securityContext".split(' ') {
            assert_eq!(check[same], exporter[same], "{feature}: {same}");
        }
        assert_eq!(check["args"][0], "check", "{feature}");
    }
    accepted(&documents(&all)).unwrap();
    valid("1.29", &all).unwrap();
}

#[test]
#[ignore = "needs helm and the API server"]
fn an_upgrade_changes_everything_or_nothing_and_reads_no_secret() {
    on_cluster("upgrades");
    on_cluster("accounts");
}

#[test]
#[ignore = "needs helm"]
fn the_key_is_a_file_and_nothing_else() {
    for (feature, values) in features() {
        let objects = objects(&values);
        let others = objects.iter().filter(|object| object["kind"] != "Secret");
        let others = Value::from_iter(others.cloned()).to_string();
        let words = "not-a-real-key bm90LWEtcmVhbC1rZXk \"ORGDATA_API_KEY\" secretKeyRef subPath";
        for word in words.split(' ') {
            assert!(!others.contains(word), "{feature}: {word}");
        }
        // The file that the exporter reads is the one in the volume.
        let volume = named(&pod(&objects)["volumes"], "api-key");
        let mount = named(&pod(&objects)["containers"][0]["volumeMounts"], "api-key");
        assert_eq!(mount["readOnly"], true, "{feature}");
        let name = text(&volume["secret"]["items"][0]["path"]);
        let file = format!("{}/{name}", text(&mount["mountPath"]));
        let read = &settings(&objects)["ORGDATA_API_KEY_FILE"];
        assert_eq!(*read, file, "{feature}");
    }
    let secret = &features()["key"];
    let made = objects(secret);
    let made = &object(&made, "Secret", "orgdata-exporter-api-key")["data"];
    assert_eq!(*made, json!({ "api-key": "bm90LWEtcmVhbC1rZXk=" }));
    // A rotated key needs no restart; a changed setting does.
    let template = |values: &str| set(&objects(values))["spec"]["template"].clone();
    let rotated = secret.replace("not-a-real-key", "another");
    assert_eq!(template(secret), template(&rotated));
    let changed = BASE.replace("api.example.com", "other.example.com");
    assert_ne!(template(BASE), template(&changed));
}

/// Writes what the mounted Secrets and ConfigMaps contain.
fn fill(variable: &str, file: &Path) {
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let tls = |name: &str| fs::read(files::tls(name)).unwrap();
    let content = match variable {
        "ORGDATA_STATE_PATH" => return,
        "ORGDATA_API_CA_FILE" | "OTEL_EXPORTER_OTLP_CERTIFICATE" => tls("ca.pem"),
        "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE" => tls("client.pem"),
        "OTEL_EXPORTER_OTLP_CLIENT_KEY" => tls("client.key"),
        "ORGDATA_WEB_CONFIG_FILE" => b"http_server_config: {}\n".to_vec(),
        _ => b"0123456789abcdef0123456789abcdef".to_vec(),
    };
    fs::write(file, content).unwrap();
}

#[tokio::test]
#[ignore = "needs helm"]
async fn the_exporter_starts_with_the_settings_of_every_example() {
    for (feature, values) in features() {
        let objects = objects(&values);
        let container = &pod(&objects)["containers"][0];
        let mut launch = launch(&[]);
        for argument in array(&container["args"]) {
            launch = launch.arg(&text(argument));
        }
        let mounts = launch.dir().to_owned();
        let map = settings(&objects).as_object().unwrap().clone().into_iter();
        let variables = array(&container["env"]).iter();
        let variables = variables.map(|one| (text(&one["name"]), one["value"].clone()));
        // Others are fields of the pod.
        for (name, value) in map.chain(variables).filter(|(_, value)| value.is_string()) {
            let mut value = text(&value);
            let places = ["/etc/orgdata-exporter", "/var/lib/orgdata-exporter"];
            if places.iter().any(|place| value.starts_with(place)) {
                let file = mounts.join(&value[1..]);
                fill(&name, &file);
                value = file.display().to_string();
            }
            launch = launch.env(&name, &value);
        }
        launch = launch.env("ORGDATA_WEB_LISTEN_ADDRESS", "127.0.0.1:0");
        let exporter = launch.env("ORGDATA_LOG_FORMAT", "logfmt").start();
        let path = settings(&objects).get("ORGDATA_WEB_TELEMETRY_PATH");
        let path = path.map_or("/metrics".to_owned(), text);
        let (status, metrics) = exporter.get(&path).await;
        assert_eq!(status, 200, "{feature}");
        let otlp = values.contains("endpoint: http") || values.contains("collector:");
        for (name, enabled) in [
            ("audit", feature != "tickets"),
            ("tickets", feature != "audit"),
            ("otlp", otlp),
        ] {
            let up = format!("orgdata_up{{loop=\"{name}\"}}");
            assert_eq!(metrics.contains(&up), enabled, "{feature}: {up}");
        }
    }
}

#[test]
#[ignore = "needs helm"]
fn names_fit_and_old_clusters_are_refused() {
    let long = "a-release-with-a-name-as-long-as-helm-allows-it-to-be";
    for (release, name) in [
        ("audit", "audit-orgdata-exporter"),
        (NAME, NAME),
        ("my-orgdata-exporter", "my-orgdata-exporter"),
        // The controller adds a hash of ten characters in a label of at most 63.
        (long, &long[..52]),
    ] {
        let objects = parsed(&helm(&["template", release], &path(CHART), BASE).unwrap());
        let name = name.trim_end_matches('-');
        assert_eq!(set(&objects)["metadata"]["name"], name);
    }
    let on = |version| {
        let command = ["template", "x", "--kube-version", version];
        helm(&command, &path(CHART), BASE)
    };
    on("1.29.3-gke.100").expect("new enough");
    assert!(on("1.28.9").expect_err("too old").contains("1.29"));
}

#[test]
#[ignore = "needs helm"]
fn the_package_renders_the_same_and_fits_into_a_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let mut package = Command::new(binary("helm"));
    package.arg("package").arg(path(CHART));
    output(package.arg("--destination").arg(dir.path()), "").unwrap();
    let name = format!("{NAME}-{}.tgz", env!("CARGO_PKG_VERSION"));
    let archive = dir.path().join(name);
    for feature in ["all", "detections"] {
        let values = &features()[feature];
        let packed = helm(&["template", NAME], &archive, values).unwrap();
        assert_eq!(packed, rendered(values).unwrap(), "{feature}");
    }
    for map in of_kind(&example("all"), "ConfigMap") {
        // `kubectl apply` keeps the object in an annotation of at most 256 KiB.
        assert!(map.to_string().len() < 250_000, "{map}");
    }
    // Helm keeps the chart with each release in a Secret of at most 1 MiB.
    assert!(fs::metadata(&archive).unwrap().len() < 300_000);
}
