//! The Helm chart under the real Helm: every example is linted, rendered, accepted and usable, and what a chart promises beyond that.

mod values;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::manifests::{accepted, on_cluster, valid};
use crate::support::binary;
use crate::support::files::{
    array, assert_has, documents, file, named, names, object, path, text, tls,
};
use crate::support::parts::{self, output, promtool};

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
    let mut helm = Command::new(parts::binary("helm"));
    helm.args(command).arg(chart).arg("--values=-");
    helm.args(["--namespace", "monitoring"])
        .env("HOME", home.path());
    helm.env("KUBECONFIG", home.path().join("none"));
    output(&mut helm, values)
}

fn rendered(values: &str) -> Result<String, String> {
    helm(&["template", NAME], &path(CHART), values)
}

/// Returns the objects of a release called `orgdata-exporter`.
fn objects(values: &str) -> Vec<Value> {
    let text = rendered(values).unwrap_or_else(|error| panic!("{values}\n{error}"));
    let mut objects = documents(&text);
    objects.retain(|object| !object.is_null());
    objects
}

pub(crate) fn example(feature: &str) -> Vec<Value> {
    objects(&features()[feature])
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    let objects = objects.iter();
    objects.filter(|object| object["kind"] == kind).collect()
}

fn set(objects: &[Value]) -> &Value {
    of_kind(objects, "StatefulSet")[0]
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
    for (feature, values) in features() {
        helm(&["lint", "--strict"], &path(CHART), &values).expect(&feature);
        all += &rendered(&values).unwrap();
        let objects = objects(&values);
        for rules in of_kind(&objects, "PrometheusRule") {
            promtool(
                &["check", "rules", "/dev/stdin"],
                &rules["spec"].to_string(),
            );
            // A link leads to the same page from everywhere.
            let groups = array(&rules["spec"]["groups"]).iter();
            let mut rules = groups.flat_map(|group| array(&group["rules"]));
            let page = |rule: &Value| {
                rule["annotations"]["runbook_url"]
                    .as_str()
                    .map(str::to_owned)
            };
            let is_link = |rule: &Value| page(rule).is_none_or(|page| page.starts_with("https://"));
            assert!(rules.all(is_link), "{feature}");
        }
        assert_has!(set(&objects)["spec"], { "replicas": 1, "podManagementPolicy": "Parallel" });
        let pod = pod(&objects);
        assert_eq!(pod["automountServiceAccountToken"], false, "{feature}");
        // `helm test` checks what the exporter has.
        let check = &of_kind(&objects, "Pod")[0]["spec"]["containers"][0];
        for same in "image envFrom volumeMounts securityContext".split(' ') {
            assert_eq!(check[same], pod["containers"][0][same], "{feature}: {same}");
        }
    }
    accepted(&documents(&all)).unwrap();
    valid(&all).unwrap();
}

#[test]
#[ignore = "needs helm and promtool"]
fn unusual_hours_may_be_those_of_the_americas() {
    let directory = tempfile::tempdir().unwrap();
    let [rules, test] = ["rules.json", "test.json"].map(|name| directory.path().join(name));
    let objects = example("detections");
    let spec = &of_kind(&objects, "PrometheusRule")[0]["spec"];
    fs::write(&rules, spec.to_string()).unwrap();
    // From 6 to 14 o'clock. The first day is a Thursday, and 60 hours later it is a Saturday.
    let expected = |(time, value): (&str, u8)| {
        let samples = json!([{ "labels": "orgdata:unusual_hour", "value": value }]);
        json!({ "eval_time": time, "expr": "orgdata:unusual_hour", "exp_samples": samples })
    };
    let hours = [
        ("5h50m", 0),
        ("6h10m", 1),
        ("14h", 1),
        ("14h10m", 0),
        ("22h", 0),
        ("64h", 1),
    ];
    let tests = json!({ "interval": "10m", "promql_expr_test": hours.map(expected) });
    let tests = json!({ "rule_files": [rules], "evaluation_interval": "10m", "tests": [tests] });
    fs::write(&test, tests.to_string()).unwrap();
    promtool(&["test", "rules", test.to_str().unwrap()], "");
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

/// Writes what the mounted Secrets and ConfigMaps contain, and what cert-manager writes.
fn fill(variable: &str, file: &Path, objects: &[Value]) {
    let directory = file.parent().unwrap();
    fs::create_dir_all(directory).unwrap();
    let tls = |name: &str| fs::read(tls(name)).unwrap();
    let maps = of_kind(objects, "ConfigMap").into_iter();
    let mut config = maps.filter_map(|map| map["data"]["web.yml"].as_str());
    let content = match variable {
        "ORGDATA_STATE_PATH" => return,
        "ORGDATA_API_CA_FILE" | "OTEL_EXPORTER_OTLP_CERTIFICATE" => tls("ca.pem"),
        "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE" => tls("client.pem"),
        "OTEL_EXPORTER_OTLP_CLIENT_KEY" => tls("client.key"),
        "ORGDATA_WEB_CONFIG_FILE" => config.next().unwrap_or("http_server_config: {}").into(),
        _ => b"0123456789abcdef0123456789abcdef".to_vec(),
    };
    fs::write(file, content).unwrap();
    let issued = of_kind(objects, "Certificate");
    if variable == "ORGDATA_WEB_CONFIG_FILE" && !issued.is_empty() {
        let secret = &named(&pod(objects)["volumes"], "web-tls")["secret"]["secretName"];
        assert_eq!(*secret, issued[0]["spec"]["secretName"]);
        let keys = directory.with_file_name("web-tls");
        fs::create_dir_all(&keys).unwrap();
        fs::write(keys.join("tls.crt"), tls("server.pem")).unwrap();
        fs::write(keys.join("tls.key"), tls("server.key")).unwrap();
    }
}

#[tokio::test]
#[ignore = "needs helm"]
async fn the_exporter_starts_with_the_settings_of_every_example() {
    for (feature, values) in features() {
        let objects = objects(&values);
        let container = &pod(&objects)["containers"][0];
        let mut launch = binary::launch(&[]);
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
                fill(&name, &file, &objects);
                value = file.display().to_string();
            }
            launch = launch.env(&name, &value);
        }
        launch = launch.env("ORGDATA_WEB_LISTEN_ADDRESS", "127.0.0.1:0");
        let exporter = launch.env("ORGDATA_LOG_FORMAT", "logfmt").listening().await;
        if feature == "certificate" {
            let url = format!("https://localhost:{}", exporter.address().port());
            let check = binary::launch(&["healthcheck", "--url", &url]);
            assert_eq!(check.run().await.status, Some(0));
            continue;
        }
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
fn a_long_name_is_cut_and_old_clusters_are_refused() {
    // The controller adds a hash of ten characters in a label of at most 63.
    let long = "a-release-with-a-name-as-long-as-helm-allows-it-to-be";
    let text = helm(&["template", long], &path(CHART), BASE).unwrap();
    let objects = documents(&text);
    let name = &set(&objects)["metadata"]["name"];
    assert_eq!(*name, long[..52].trim_end_matches('-'));
    let on = |version| {
        let command = ["template", "x", "--kube-version", version];
        helm(&command, &path(CHART), BASE)
    };
    on("1.29.3-gke.100").expect("new enough");
    assert!(on("1.28.9").expect_err("too old").contains("1.29"));
}

#[test]
#[ignore = "needs helm"]
fn the_package_renders_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let mut package = Command::new(parts::binary("helm"));
    package.arg("package").arg(path(CHART));
    output(package.arg("--destination").arg(dir.path()), "").unwrap();
    let name = format!("{NAME}-{}.tgz", env!("CARGO_PKG_VERSION"));
    for feature in ["all", "detections"] {
        let values = &features()[feature];
        let packed = helm(&["template", NAME], &dir.path().join(&name), values).unwrap();
        assert_eq!(packed, rendered(values).unwrap(), "{feature}");
    }
}
