//! The Helm chart under the real Helm: every example is linted, rendered and valid, and is what the kustomize files make of the same feature.

mod chart;
mod equal;
mod notes;
use crate::support::parts;
mod settings;
mod values;

use std::fs::{self, File};
use std::process::Command;

use chart::{BASE, copy, copy_directory, features, helm, objects, parsed, rendered, root};
use serde_json::{Value, json};

/// The oldest release of Kubernetes that is promised, and the newest that there are schemas of.
const KUBERNETES: [&str; 2] = ["1.29", "1.37"];

/// A value of the only StatefulSet.
fn set(objects: &chart::Objects) -> &Value {
    objects
        .values()
        .find(|object| object["kind"] == "StatefulSet")
        .expect("a StatefulSet")
}

/// All that is below a value, with the keys that lead there.
fn walk<'a>(value: &'a Value, path: &str, visit: &mut impl FnMut(&str, &'a Value)) {
    visit(path, value);
    match value {
        Value::Object(fields) => fields
            .iter()
            .for_each(|(key, inside)| walk(inside, &format!("{path}/{key}"), visit)),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(index, inside)| walk(inside, &format!("{path}/{index}"), visit)),
        _ => {}
    }
}

#[test]
#[ignore = "needs helm: run .ci/setup"]
fn every_example_passes_the_linter() {
    for (feature, values) in features() {
        helm(&["lint", "--strict"], &root(), &values)
            .unwrap_or_else(|error| panic!("{feature}: {error}"));
    }
}

#[test]
#[ignore = "needs helm and kubernetes-schema: run .ci/setup"]
fn every_example_is_what_kubernetes_takes() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("all.yaml");
    let all: String = features()
        .values()
        .map(|values| rendered(values).unwrap_or_else(|error| panic!("{values}{error}")))
        .collect();
    fs::write(&file, all).expect("written");
    for version in KUBERNETES {
        let mut schema = Command::new(parts::binary("kubernetes-schema"));
        let output = schema
            .arg(version)
            .stdin(File::open(&file).expect("a file"))
            .output()
            .expect("it can be run");
        assert!(
            output.status.success(),
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
#[ignore = "needs helm and both promtools: run .ci/setup"]
fn alerts_and_dashboards_arrive_as_they_are() {
    let source = |name: &str| {
        fs::read_to_string(format!("{}/dashboards/{name}", env!("CARGO_MANIFEST_DIR")))
            .expect("text")
    };
    let key = |kind: &str, name: &str| (kind.to_owned(), name.to_owned());
    let rules = objects(&features()["prometheus-rule"])[&key("PrometheusRule", "orgdata-exporter")]
        ["spec"]
        .clone();
    assert_eq!(
        rules,
        serde_saphyr::from_str::<Value>(&source("alerts.yaml")).expect("YAML")
    );
    let dashboards = objects(&features()["dashboards"]);
    for (name, file) in [
        ("organization-activity", "organization-activity.json"),
        ("health", "exporter-health.json"),
    ] {
        let map = &dashboards[&key("ConfigMap", &format!("orgdata-exporter-{name}"))];
        assert_eq!(map["data"], json!({ file: source(file) }));
    }

    // Changed ones are still rules, each with its severity and a link.
    let changed = objects(&features()["prometheus-rule-more"])
        [&key("PrometheusRule", "orgdata-exporter")]["spec"]
        .clone();
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("rules.yaml");
    fs::write(&file, changed.to_string()).expect("written");
    parts::promtool(&["check", "rules", file.to_str().expect("text")])
        .unwrap_or_else(|error| panic!("{error}"));
    let all = changed["groups"][0]["rules"].as_array().expect("rules");
    let before = rules["groups"][0]["rules"].as_array().expect("rules");
    assert_eq!(all.len(), before.len() - 2);
    for rule in all {
        let was = before
            .iter()
            .find(|was| was["alert"] == rule["alert"])
            .expect("it was there");
        let severity = if rule["alert"] == "OrgdataExporterAuditGap" {
            &json!("critical")
        } else {
            &was["labels"]["severity"]
        };
        assert_eq!(
            rule["labels"],
            json!({ "severity": severity, "team": "compliance" })
        );
        let page = format!(
            "https://git.example.com/orgdata-exporter/blob/main/{}",
            text(&was["annotations"]["runbook_url"])
        );
        assert_eq!(rule["annotations"]["runbook_url"], page);
        assert_eq!(
            (&rule["expr"], &rule["annotations"]["description"]),
            (&was["expr"], &was["annotations"]["description"])
        );
    }
}

#[test]
#[ignore = "needs helm: run .ci/setup"]
fn every_pod_is_restricted_and_alone() {
    for (feature, values) in features() {
        let objects = objects(&values);
        for spec in objects
            .values()
            .map(|object| &object["spec"])
            .filter(|spec| spec.get("template").is_some())
        {
            let pod = &spec["template"]["spec"];
            assert_eq!(
                (&spec["replicas"], &pod["automountServiceAccountToken"]),
                (&json!(1), &json!(false)),
                "{feature}"
            );
            assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{feature}");
            assert_eq!(
                pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault",
                "{feature}"
            );
            for container in [&pod["containers"], &pod["initContainers"]]
                .into_iter()
                .flat_map(|all| all.as_array().into_iter().flatten())
            {
                let context = &container["securityContext"];
                assert_eq!(
                    context["capabilities"],
                    json!({ "drop": ["ALL"] }),
                    "{feature}"
                );
                assert_eq!(
                    (
                        &context["allowPrivilegeEscalation"],
                        &context["readOnlyRootFilesystem"]
                    ),
                    (&json!(false), &json!(true))
                );
            }
        }
        let pod = &set(&objects)["spec"]["template"]["spec"];
        let exporter = &pod["containers"][0];
        assert!(
            exporter["resources"]["requests"]["memory"].is_string()
                && exporter["resources"]["limits"]["memory"].is_string(),
            "{feature}"
        );
        for probe in ["livenessProbe", "readinessProbe"] {
            let ask = [&exporter[probe]["httpGet"], &exporter[probe]["tcpSocket"]]
                .into_iter()
                .find(|ask| !ask.is_null())
                .expect(probe);
            assert_eq!(ask["port"], 10917, "{feature}: {probe}");
        }
    }
}

#[test]
#[ignore = "needs helm: run .ci/setup"]
fn the_key_is_a_file_and_nothing_else() {
    let secret = features()["key"].clone();
    for (feature, values) in features() {
        let objects = objects(&values);
        for object in objects.values().filter(|object| object["kind"] != "Secret") {
            walk(object, "", &mut |path, value| {
                let text = value.as_str().unwrap_or_default();
                assert!(
                    !text.contains("not-a-real-key") && !text.contains("bm90LWEtcmVhbC1rZXk"),
                    "{feature}: {path}"
                );
                assert!(
                    !path.ends_with("/name") || text != "ORGDATA_API_KEY",
                    "{feature}: {path}"
                );
                assert!(
                    !path.ends_with("/secretKeyRef") && !path.ends_with("/subPath"),
                    "{feature}: {path}"
                );
            });
        }
        let pod = &set(&objects)["spec"]["template"]["spec"];
        let volume = pod["volumes"]
            .as_array()
            .and_then(|all| all.iter().find(|volume| volume["name"] == "api-key"))
            .expect("a volume");
        let mount = pod["containers"][0]["volumeMounts"]
            .as_array()
            .and_then(|all| all.iter().find(|mount| mount["name"] == "api-key"));
        assert_eq!(mount.expect("a mount")["readOnly"], true, "{feature}");
        // The file that the exporter reads is the one that the volume has.
        let data = &objects[&(
            "ConfigMap".to_owned(),
            text(&set(&objects)["metadata"]["name"]),
        )]["data"];
        let file = format!(
            "{}/{}",
            text(&mount.expect("a mount")["mountPath"]),
            text(&volume["secret"]["items"][0]["path"])
        );
        assert_eq!(data["ORGDATA_API_KEY_FILE"], file, "{feature}");
    }
    let made = objects(&secret);
    assert_eq!(
        made[&("Secret".to_owned(), "orgdata-exporter-api-key".to_owned())]["data"],
        json!({ "api-key": "bm90LWEtcmVhbC1rZXk=" })
    );
    // A rotated key needs no restart, a changed setting does.
    let template = |values: &str| set(&objects(values))["spec"]["template"].clone();
    assert_eq!(
        template(&secret),
        template(&secret.replace("not-a-real-key", "another"))
    );
    assert_ne!(
        template(BASE),
        template(&BASE.replace("api.example.com", "other.example.com"))
    );
}

fn text(value: &Value) -> String {
    value
        .as_str()
        .unwrap_or_else(|| panic!("no text: {value}"))
        .to_owned()
}

#[test]
#[ignore = "needs helm: run .ci/setup"]
fn a_new_version_changes_nothing_that_cannot_be_changed() {
    let (_dir, newer) = copy();
    let about = fs::read_to_string(newer.join("Chart.yaml"))
        .expect("text")
        .replace("0.1.0", "7.8.9");
    fs::write(newer.join("Chart.yaml"), about).expect("written");
    let before = objects(BASE);
    let after = parsed(&helm(&["template", "orgdata-exporter"], &newer, BASE).expect("renders"));
    assert_eq!(
        before.keys().collect::<Vec<_>>(),
        after.keys().collect::<Vec<_>>()
    );
    assert_ne!(
        set(&before)["spec"]["template"],
        set(&after)["spec"]["template"],
        "another image"
    );
    for fixed in [
        "selector",
        "serviceName",
        "volumeClaimTemplates",
        "podManagementPolicy",
    ] {
        assert_eq!(
            set(&before)["spec"][fixed],
            set(&after)["spec"][fixed],
            "{fixed}"
        );
    }
    let service = |objects: &chart::Objects| {
        objects[&("Service".to_owned(), "orgdata-exporter".to_owned())]["spec"].clone()
    };
    assert_eq!(service(&before), service(&after));
}

#[test]
#[ignore = "needs helm: run .ci/setup"]
fn a_parent_chart_can_have_it_twice_and_switch_one_off() {
    let dir = tempfile::tempdir().expect("a directory");
    let dependencies = ["east", "west", "north"]
        .map(|alias| json!({ "name": "orgdata-exporter", "version": "0.1.0", "alias": alias, "condition": format!("{alias}.enabled") }));
    let about = json!({ "apiVersion": "v2", "name": "parent", "version": "1.0.0", "dependencies": dependencies });
    fs::write(dir.path().join("Chart.yaml"), about.to_string()).expect("written");
    copy_directory(&root(), &dir.path().join("charts/orgdata-exporter"));
    let one = json!({ "enabled": true, "api": { "baseUrl": "https://api.example.com" } });
    let values = json!({ "east": one, "west": one, "north": { "enabled": false } }).to_string();
    let objects = parsed(&helm(&["template", "both"], dir.path(), &values).expect("renders"));
    let sets: Vec<&Value> = objects
        .values()
        .filter(|object| object["kind"] == "StatefulSet")
        .collect();
    assert_eq!(
        sets.iter()
            .map(|set| text(&set["metadata"]["name"]))
            .collect::<Vec<_>>(),
        ["both-east", "both-west"]
    );
    assert_ne!(
        sets[0]["spec"]["selector"], sets[1]["spec"]["selector"],
        "neither takes the other's pod"
    );
    assert_eq!(
        sets[0]["metadata"]["labels"]["app.kubernetes.io/name"],
        "east"
    );
}

#[test]
#[ignore = "needs helm: run .ci/setup"]
fn a_growing_state_evicts_no_pod() {
    let limits = |feature: &str| {
        set(&objects(&features()[feature]))["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"].clone()
    };
    assert_eq!(limits("base")["ephemeral-storage"], "128Mi");
    // An emptyDir counts as ephemeral storage of the pod.
    assert_eq!(limits("no-persistence"), json!({ "memory": "192Mi" }));
    let pod = set(&objects(&features()["no-persistence"]))["spec"]["template"]["spec"].clone();
    assert_eq!(
        pod["volumes"][1],
        json!({ "name": "state", "emptyDir": { "sizeLimit": "512Mi" } })
    );
}

#[test]
#[ignore = "needs helm: run .ci/setup"]
fn the_collector_goes_where_the_exporter_goes() {
    let with_collector = |feature: &str| {
        objects(&format!(
            "{}collector: {{enabled: true}}\n",
            features()[feature]
        ))
    };
    for (feature, keys) in [
        (
            "pod",
            &["nodeSelector", "tolerations", "priorityClassName"] as &[&str],
        ),
        ("image", &["imagePullSecrets"]),
    ] {
        let objects = with_collector(feature);
        let collector = objects
            .values()
            .find(|object| object["kind"] == "Deployment")
            .expect("a Deployment");
        for key in keys {
            let [exporter, collector] =
                [set(&objects), collector].map(|object| &object["spec"]["template"]["spec"][key]);
            assert!(
                !exporter.is_null() && exporter == collector,
                "{key}: {exporter} and {collector}"
            );
        }
    }
}

#[test]
#[ignore = "needs helm: run .ci/setup"]
fn names_fit_whatever_the_release_is_called() {
    let long = "a-release-with-a-name-as-long-as-helm-allows-it-to-be";
    for (release, name) in [
        ("audit", "audit-orgdata-exporter"),
        ("orgdata-exporter", "orgdata-exporter"),
        ("my-orgdata-exporter", "my-orgdata-exporter"),
        (long, "a-release-with-a-name-as-long-as-helm-allows-it-to-b"),
    ] {
        let objects = parsed(&helm(&["template", release], &root(), BASE).expect(release));
        assert_eq!(set(&objects)["metadata"]["name"], name);
        // A StatefulSet's controller adds a hash of ten characters to its name in a label of 63.
        assert!(name.len() <= 52, "{name}");
    }
}

#[test]
#[ignore = "needs helm: run .ci/setup"]
fn an_old_kubernetes_is_refused_and_a_providers_build_is_not() {
    let on = |version: &str| helm(&["template", "x", "--kube-version", version], &root(), BASE);
    on("1.29.3-gke.100").expect("new enough");
    assert!(
        on("1.28.9").expect_err("too old").contains("1.29"),
        "it says which is needed"
    );
}

#[test]
#[ignore = "needs helm: run .ci/setup"]
fn the_package_has_what_the_templates_read_and_no_examples() {
    let dir = tempfile::tempdir().expect("a directory");
    let packed = Command::new(parts::binary("helm"))
        .arg("package")
        .arg(root())
        .current_dir(dir.path())
        .output()
        .expect("it can be run");
    assert!(
        packed.status.success(),
        "{}",
        String::from_utf8_lossy(&packed.stderr)
    );
    let archive = dir.path().join("orgdata-exporter-0.1.0.tgz");
    let listed = Command::new("tar")
        .arg("tzf")
        .arg(&archive)
        .output()
        .expect("tar can be run");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(
        !listed.contains("/ci/")
            && listed.contains("files/alerts.yaml")
            && listed.contains("values.schema.json"),
        "{listed}"
    );
    let all = &features()["prometheus-rule"];
    assert_eq!(
        helm(&["template", "orgdata-exporter"], &archive, all),
        rendered(all)
    );
    // Helm keeps the chart with each release in a Secret, which may have 1 MiB.
    assert!(fs::metadata(&archive).expect("a file").len() < 300_000);
}
