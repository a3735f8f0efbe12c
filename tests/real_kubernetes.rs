//! `deploy/kubernetes` as kustomize builds it: every combination is one that Kubernetes takes, and says what it has to.
//!
//! No cluster can be had here. What a cluster does with a sidecar is argued in `deploy/kubernetes/README.md`; that the manifests are
//! accepted is shown with the schemas of Kubernetes and the Prometheus Operator's own definitions, with unknown fields refused.

#[path = "support/manifests.rs"]
mod manifests;
#[path = "support/parts.rs"]
mod parts;

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use manifests::{bytes, documents, named, object};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

/// The oldest Kubernetes with a native sidecar, and the newest that there is a schema of.
const PROMISED: [&str; 2] = ["1.29", "1.37"];

/// Before native sidecars.
const OLD: &str = "1.27";

/// What goes with the exporter that runs alone; `runbook-links` only after `prometheusrule`.
const WITH_BASE: [&str; 7] =
    ["podmonitor", "servicemonitor", "prometheusrule", "runbook-links", "dashboards", "networkpolicy", "collector"];

/// What goes with a sidecar.
const WITH_SIDECAR: [&str; 6] = ["sidecar-claim", "podmonitor", "prometheusrule", "runbook-links", "dashboards", "collector"];

/// Checks of kube-score that are not for us, and why.
const SKIPPED: [(&str, &str); 2] = [
    ("container-image-pull-policy", "a version is pinned: asking the registry at each start would make it a condition of a restart"),
    ("container-resources", "no limit of CPU, see base/statefulset.yaml; requests and memory are looked at in this file"),
];

/// Checks that are not for the pod of an application either.
const SKIPPED_BESIDE: [(&str, &str); 2] = [
    ("pod-networkpolicy", "a policy is for the whole pod, and the application's network is not ours to cut"),
    ("container-ephemeral-storage-request-and-limit", "a sidecar's limit would be that of the whole pod"),
];

/// Checks that the collector, an example, does not keep.
const SKIPPED_ALONE: [(&str, &str); 2] = [
    ("pod-networkpolicy", "the collector's egress is unknown; the exporter's policy is looked at in this file"),
    ("deployment-replicas", "one collector for one exporter; while it restarts, records wait in the state file"),
];

/// An overlay of one's own. It lies in the build's directory, since kustomize takes relative paths only.
struct Overlay {
    dir: TempDir,
    kustomization: Map<String, Value>,
}

// === impl Overlay ===

impl Overlay {
    fn new() -> Self {
        let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        Self { dir, kustomization: Map::new() }
    }

    /// The exporter alone.
    fn base(components: &[&str]) -> Self {
        Self::new().with("resources", &["base"]).components(components)
    }

    /// The exporter in the example's application, after a change of that.
    fn beside(change: impl Fn(String) -> String, components: &[&str]) -> Self {
        let overlay = Self::new();
        fs::write(overlay.dir.path().join("application.yaml"), change(application())).expect("writable");
        let mut overlay = overlay.components(components);
        overlay.kustomization.insert("resources".to_owned(), json!(["application.yaml"]));
        overlay
    }

    fn components(self, components: &[&str]) -> Self {
        let paths: Vec<String> = components.iter().map(|name| format!("components/{name}")).collect();
        let links = json!([{ "name": "orgdata-exporter-links", "literals": ["dashboards=https://git.example.com/x/dashboards"],
            "options": { "annotations": { "config.kubernetes.io/local-config": "true" } } }]);
        let overlay = self.with("components", &paths.iter().map(String::as_str).collect::<Vec<_>>());
        if components.contains(&"runbook-links") { overlay.set("configMapGenerator", links) } else { overlay }
    }

    /// A list of directories of `deploy/kubernetes`.
    fn with(self, key: &str, directories: &[&str]) -> Self {
        let up = "../".repeat(self.dir.path().components().count() - 1);
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/kubernetes");
        let root = root.strip_prefix("/").expect("absolute").display().to_string();
        let paths: Vec<String> = directories.iter().map(|directory| format!("{up}{root}/{directory}")).collect();
        self.set(key, json!(paths))
    }

    fn set(mut self, key: &str, value: Value) -> Self {
        self.kustomization.insert(key.to_owned(), value);
        self
    }

    /// What kustomize makes of it, or says against it.
    fn build(&self) -> Result<String, String> {
        // JSON is YAML.
        let text = Value::Object(self.kustomization.clone()).to_string();
        fs::write(self.dir.path().join("kustomization.yaml"), text).expect("writable");
        kustomize(self.dir.path())
    }

    fn objects(&self) -> Vec<Value> {
        documents(&self.build().expect("it builds"))
    }

    /// The error that it has to be.
    fn refusal(&self, why: &str) -> String {
        self.build().expect_err(why)
    }
}

/// The example's application as it is without an exporter.
fn application() -> String {
    fs::read_to_string(repository("overlays/sidecar/application.yaml")).expect("a file")
}

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/kubernetes").join(path)
}

fn run(program: &str, arguments: &[&str], input: &str) -> Result<String, String> {
    let mut command = Command::new(parts::binary(program));
    let mut child =
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it can be run");
    let mut stdin = child.stdin.take().expect("piped");
    let output = std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input.as_bytes()));
        child.wait_with_output().expect("it ends")
    });
    let [said, complaint] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    if output.status.success() { Ok(said) } else { Err(said + &complaint) }
}

fn kustomize(directory: &Path) -> Result<String, String> {
    run("kustomize", &["build", directory.to_str().expect("text")], "")
}

/// Whether this Kubernetes takes all of it.
fn valid(version: &str, text: &str) -> Result<String, String> {
    run("kubernetes-schema", &[version], text)
}

/// Every choice out of these, but for those in which something lacks what it needs.
fn choices<'a>(all: &[&'a str]) -> Vec<Vec<&'a str>> {
    let chosen = |bits: usize| all.iter().enumerate().filter(move |(at, _)| bits >> at & 1 == 1).map(|(_, name)| *name).collect();
    let choices = (0..1 << all.len()).map(chosen);
    choices.filter(|chosen: &Vec<&str>| !chosen.contains(&"runbook-links") || chosen.contains(&"prometheusrule")).collect()
}

/// All of them built, as one stream.
fn built(overlays: impl Iterator<Item = Overlay>) -> String {
    overlays.map(|overlay| overlay.build().unwrap_or_else(|error| panic!("{:?}: {error}", overlay.kustomization)) + "\n---\n").collect()
}

fn spec<'a>(objects: &'a [Value], name: &str) -> &'a Value {
    &object(objects, "StatefulSet", name)["spec"]["template"]["spec"]
}

/// What the container's variables are made of.
fn settings_of<'a>(objects: &'a [Value], container: &Value) -> &'a Value {
    let name = container["envFrom"][0]["configMapRef"]["name"].as_str().expect("a name");
    &object(objects, "ConfigMap", name)["data"]
}

#[test]
#[ignore = "needs kustomize, and the schemas and servers that .ci/setup installs beside it"]
fn every_combination_is_one_that_kubernetes_takes() {
    let alone = choices(&WITH_BASE);
    let beside = choices(&WITH_SIDECAR);
    assert_eq!((alone.len(), beside.len()), (96, 48));
    let alone = built(alone.iter().map(|components| Overlay::base(components)));
    let beside = |kind: &'static str| {
        let with = |components: &Vec<&'static str>| Overlay::beside(|text| text, &[&[kind], &components[..]].concat());
        built(beside.iter().map(with))
    };
    let (native, plain) = (beside("native-sidecar"), beside("plain-sidecar"));
    let shipped: String =
        ["standalone", "sidecar"].map(|name| kustomize(&repository(&format!("overlays/{name}"))).expect("it builds")).join("\n---\n");
    for version in PROMISED {
        valid(version, &format!("{alone}{native}{plain}{shipped}")).expect("taken");
    }
    valid(OLD, &format!("{alone}{plain}")).expect("taken by an old one too");
    let refusal = valid(OLD, &native).expect_err("not known there");
    let lines: Vec<&str> = refusal.lines().filter(|line| line.contains(OLD)).collect();
    assert!(
        lines.len() > 1 && lines.iter().all(|line| line.contains("StatefulSet shop") && line.contains("'restartPolicy' was unexpected")),
        "{refusal}"
    );
}

#[test]
#[ignore = "needs kustomize, and the schemas and servers that .ci/setup installs beside it"]
fn a_field_that_nobody_knows_is_found() {
    let good = Overlay::base(&["podmonitor", "servicemonitor", "prometheusrule"]).build().expect("it builds");
    let faults = [
        ("sampleLimit:", "sampleLimits:", "'sampleLimits' was unexpected"),
        ("scrapeTimeout: 10s", "scrapeTimeout: soon", "does not match"),
        ("for: 5m", "during: 5m", "'during' was unexpected"),
        ("enableServiceLinks:", "enableServiceLink:", "'enableServiceLink' was unexpected"),
        ("kind: ServiceAccount", "kind: ServiceAccounts", "find schema for kind ServiceAccounts"),
    ];
    for (right, wrong, said) in faults {
        assert!(good.contains(right), "{right}");
        let refusal = valid("1.37", &good.replacen(right, wrong, 1)).expect_err(wrong);
        assert!(refusal.contains(said), "{refusal}");
    }
    assert!(valid("1.20", &good).expect_err("no such schema").contains("no schema of Kubernetes 1.20"));
    valid("1.37", "").expect_err("nothing at all");
}

#[test]
#[ignore = "needs kustomize, and the schemas and servers that .ci/setup installs beside it"]
fn a_sidecar_is_refused_by_anything_but_one_statefulset_of_one() {
    for kind in ["native-sidecar", "plain-sidecar"] {
        let refusal = |change: &dyn Fn(String) -> String| Overlay::beside(change, &[kind]).refusal("a guard");
        let replicas = "testing value /spec/replicas failed";
        assert!(refusal(&|text| text.replace("replicas: 1", "replicas: 3")).contains(replicas));
        assert!(refusal(&|text| text.replace("replicas: 1", "replicas: 0")).contains(replicas));
        assert!(refusal(&|text| text.replace("  replicas: 1\n", "")).contains(replicas));
        let deployment = refusal(&|text| text.replace("kind: StatefulSet", "kind: Deployment").replace("  serviceName: shop\n", ""));
        assert!(deployment.contains("nothing selected by StatefulSet"), "{deployment}");
        let two = refusal(&|text| {
            let set = text.split("---\n").find(|document| document.contains("kind: StatefulSet")).expect("one").to_owned();
            format!("{text}---\n{}", set.replace("name: shop\n", "name: second\n"))
        });
        assert!(two.contains("multiple matches for selector StatefulSet"), "{two}");
        let scaled = refusal(&|text| {
            format!(
                "{text}---\napiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {{name: shop}}\nspec: {{maxReplicas: 3}}\n"
            )
        });
        assert!(scaled.contains("testing value /spec/maxReplicas failed"), "{scaled}");

        let replicas_of_overlay = |count: u32| {
            let overlay = Overlay::beside(|text| text, &[kind]).set("replicas", json!([{ "name": "shop", "count": count }]));
            overlay.with("transformers", &["components/one-replica"])
        };
        assert!(replicas_of_overlay(3).refusal("after the overlay's own word").contains(replicas));
        replicas_of_overlay(1).build().expect("one is fine");
    }
    for components in [["native-sidecar", "plain-sidecar"], ["collector", "native-sidecar"], ["sidecar-claim", "native-sidecar"]] {
        let refusal = Overlay::beside(|text| text, &components).refusal("two kinds, or the wrong order");
        assert!(refusal.contains("orgdata-exporter"), "{refusal}");
    }
    let refusal = Overlay::base(&["native-sidecar"]).refusal("an exporter beside an exporter");
    assert!(refusal.contains("exists; can not use behavior"), "{refusal}");
    let without = |text: String| text.replace("        fsGroup: 20000\n", "");
    let refusal = Overlay::beside(without, &["native-sidecar", "sidecar-claim"]).refusal("a claim that nobody could write to");
    assert!(refusal.contains("fsGroup"), "{refusal}");
}

#[test]
#[ignore = "needs kustomize, and the schemas and servers that .ci/setup installs beside it"]
fn the_application_stays_as_it_was() {
    let before = documents(&application());
    for kind in ["native-sidecar", "plain-sidecar"] {
        for claim in [&[][..], &["sidecar-claim"]] {
            let mut after = Overlay::beside(|text| text, &[&[kind], claim].concat()).objects();
            let set = after.iter_mut().find(|object| object["kind"] == "StatefulSet").expect("the application");
            let pod = set["spec"]["template"]["spec"].as_object_mut().expect("a pod");
            let first = pod["containers"][0]["name"].clone();
            for list in ["initContainers", "containers", "volumes"] {
                let is_ours = |entry: &Value| entry["name"].as_str().is_some_and(|name| name.starts_with("orgdata-exporter"));
                pod[list].as_array_mut().expect("a list").retain(|entry| !is_ours(entry));
            }
            for object in &before {
                let name = object["metadata"]["name"].as_str().expect("a name");
                assert_eq!(self::object(&after, object["kind"].as_str().expect("a kind"), name), object, "{kind} {claim:?}");
            }
            assert_eq!(first, "shop", "kubectl logs and exec go to the application");
        }
    }
}

#[test]
#[ignore = "needs kustomize, and the schemas and servers that .ci/setup installs beside it"]
fn a_sidecar_keeps_out_of_the_way() {
    for (kind, list) in [("native-sidecar", "initContainers"), ("plain-sidecar", "containers")] {
        let objects = Overlay::beside(|text| text, &[kind]).objects();
        let pod = spec(&objects, "shop");
        let container = named(&pod[list], "orgdata-exporter");
        assert_eq!(container["restartPolicy"], if list == "containers" { Value::Null } else { json!("Always") });
        assert!(container.get("readinessProbe").is_none() && container.get("startupProbe").is_none(), "{kind}");
        assert!(container["resources"]["limits"].get("ephemeral-storage").is_none(), "the limit would be the pod's");
        assert!(container["ports"][0].get("name").is_none(), "the application may have the same");
        assert_eq!(pod["securityContext"]["fsGroup"], 20000);

        let state = named(&pod["volumes"], "orgdata-exporter-state");
        let settings = settings_of(&objects, container);
        // The file, its write-ahead log, and two copies that were set aside.
        assert!(bytes(&state["emptyDir"]["sizeLimit"]) > 3 * bytes(&settings["ORGDATA_STATE_MAX_SIZE"]), "{kind}");
        assert_eq!(settings["ORGDATA_AUDIT_START"], "1h");
        let key = &named(&pod["volumes"], "orgdata-exporter-api-key")["secret"];
        assert_eq!((&key["defaultMode"], &key["optional"]), (&json!(0o444), &json!(true)));
        let mounts = container["volumeMounts"].as_array().expect("mounts");
        assert!(
            mounts.iter().any(|mount| mount["mountPath"] == "/var/run/secrets/kubernetes.io/serviceaccount"),
            "the application's token"
        );
        user(&container["securityContext"]);
        mounted(container, settings);
        probes(container);

        let objects = Overlay::beside(|text| text, &[kind, "sidecar-claim"]).objects();
        let pod = spec(&objects, "shop");
        let settings = settings_of(&objects, named(&pod[list], "orgdata-exporter"));
        let state = named(&pod["volumes"], "orgdata-exporter-state");
        assert_eq!(*state, json!({ "name": "orgdata-exporter-state", "persistentVolumeClaim": { "claimName": "orgdata-exporter-state" } }));
        let claim = object(&objects, "PersistentVolumeClaim", "orgdata-exporter-state");
        assert!(bytes(&claim["spec"]["resources"]["requests"]["storage"]) > 3 * bytes(&settings["ORGDATA_STATE_MAX_SIZE"]));
        assert_eq!(settings["ORGDATA_AUDIT_START"], "now");
    }
}

/// The user that the image is for, said by the pod or by the container.
fn user(context: &Value) {
    assert_eq!((&context["runAsUser"], &context["runAsGroup"]), (&json!(65532), &json!(65532)));
}

/// The paths in the settings are below what is mounted, and a rotated key can be seen.
fn mounted(container: &Value, settings: &Value) {
    let mounts = container["volumeMounts"].as_array().expect("mounts");
    for (setting, read_only) in [("ORGDATA_API_KEY_FILE", json!(true)), ("ORGDATA_STATE_PATH", Value::Null)] {
        let path = settings[setting].as_str().expect("a path");
        let holds = |mount: &&Value| mount["mountPath"].as_str().is_some_and(|mount| path.starts_with(&format!("{mount}/")));
        let mount = mounts.iter().find(holds).unwrap_or_else(|| panic!("{path} is on no volume"));
        assert_eq!(mount["readOnly"], read_only, "{path}");
    }
    assert!(mounts.iter().all(|mount| mount.get("subPath").is_none() && mount.get("subPathExpr").is_none()), "{mounts:?}");
}

/// Liveness asks the process only, by number.
fn probes(container: &Value) {
    let probe = &container["livenessProbe"];
    assert_eq!(probe["httpGet"], json!({ "path": "/-/healthy", "port": 10917 }));
    assert_eq!(container["ports"][0]["containerPort"], 10917);
    assert!(probe["timeoutSeconds"].as_u64() < probe["periodSeconds"].as_u64());
    assert!(container["resources"]["limits"].get("cpu").is_none() && container["resources"]["requests"]["cpu"] == "10m");
    assert_eq!(
        (&container["resources"]["requests"]["memory"], &container["resources"]["limits"]["memory"]),
        (&json!("64Mi"), &json!("192Mi"))
    );
}

#[test]
#[ignore = "needs kustomize, and the schemas and servers that .ci/setup installs beside it"]
fn the_base_is_one_restricted_pod_with_a_volume() {
    let objects = Overlay::base(&[]).objects();
    let set = &object(&objects, "StatefulSet", "orgdata-exporter")["spec"];
    assert_eq!(set["replicas"], 1);
    let pod = spec(&objects, "orgdata-exporter");
    let container = named(&pod["containers"], "orgdata-exporter");
    let settings = settings_of(&objects, container);
    assert_ne!(container["envFrom"][0]["configMapRef"]["name"], "orgdata-exporter", "a changed setting is a new name, and so a new pod");
    user(&pod["securityContext"]);
    mounted(container, settings);
    probes(container);
    assert_eq!(container["readinessProbe"]["httpGet"], json!({ "path": "/-/ready", "port": 10917 }));
    assert_eq!(
        (&pod["securityContext"]["fsGroup"], &pod["securityContext"]["fsGroupChangePolicy"]),
        (&json!(65532), &json!("OnRootMismatch"))
    );
    assert!(pod["terminationGracePeriodSeconds"].as_u64() > Some(10), "above --shutdown.grace");
    assert_eq!((&pod["automountServiceAccountToken"], &pod["enableServiceLinks"]), (&json!(false), &json!(false)));
    assert_eq!(object(&objects, "ServiceAccount", "orgdata-exporter")["automountServiceAccountToken"], false);
    assert_eq!(pod["serviceAccountName"], "orgdata-exporter");
    assert_eq!(named(&pod["volumes"], "api-key")["secret"]["optional"], false);

    let claim = &set["volumeClaimTemplates"][0];
    assert!(bytes(&claim["spec"]["resources"]["requests"]["storage"]) > 3 * bytes(&settings["ORGDATA_STATE_MAX_SIZE"]));
    // What cannot be changed in a StatefulSet must not hold what changes with a release.
    let labels = json!({ "app.kubernetes.io/name": "orgdata-exporter", "app.kubernetes.io/instance": "orgdata-exporter" });
    assert_eq!((&claim["metadata"]["labels"], &set["selector"]["matchLabels"]), (&labels, &labels));
    assert_eq!(object(&objects, "Service", "orgdata-exporter")["spec"]["selector"], labels);
    assert_eq!(set["template"]["metadata"]["labels"]["app.kubernetes.io/version"], env!("CARGO_PKG_VERSION"));
    assert!(objects.iter().all(|object| object["kind"] != "PodDisruptionBudget"), "with one replica it only holds up drains");
}

#[test]
#[ignore = "needs kustomize, and the schemas and servers that .ci/setup installs beside it"]
fn what_goes_with_the_base_finds_it() {
    let objects = Overlay::base(&WITH_BASE).set("namespace", json!("somewhere")).objects();
    let pod = &object(&objects, "StatefulSet", "orgdata-exporter")["spec"]["template"]["metadata"]["labels"];
    let selects = |selector: &Value| selector.as_object().expect("labels").iter().all(|(name, value)| pod[name] == *value);
    assert!(selects(&object(&objects, "ServiceMonitor", "orgdata-exporter")["spec"]["selector"]["matchLabels"]));
    let policy = &object(&objects, "NetworkPolicy", "orgdata-exporter")["spec"];
    assert!(selects(&policy["podSelector"]["matchLabels"]));
    assert_eq!(policy["policyTypes"], json!(["Ingress", "Egress"]));
    assert_eq!(policy["ingress"].as_array().expect("rules").len(), 1);
    assert_eq!(policy["ingress"][0]["from"][0]["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"], "monitoring");
    let ports = |rule: &Value| {
        rule["ports"].as_array().expect("ports").iter().map(|port| port["port"].as_u64().expect("a number")).collect::<Vec<_>>()
    };
    assert_eq!(ports(&policy["ingress"][0]), [10917]);
    let egress: Vec<Vec<u64>> = policy["egress"].as_array().expect("rules").iter().map(ports).collect();
    assert_eq!(egress, [vec![53, 53], vec![443], vec![4317, 4318]]);
    assert!(policy["egress"].as_array().expect("rules").iter().all(|rule| rule["to"].as_array().is_some_and(|to| !to.is_empty())));

    // The collector is the one that the setting, the policy and the Service mean.
    let collector = &object(&objects, "Deployment", "orgdata-exporter-collector")["spec"]["template"]["metadata"]["labels"];
    let service = object(&objects, "Service", "orgdata-exporter-collector");
    for selector in [&service["spec"]["selector"], &policy["egress"][2]["to"][0]["podSelector"]["matchLabels"]] {
        assert!(selector.as_object().expect("labels").iter().all(|(name, value)| collector[name] == *value), "{selector}");
    }
    let settings = settings_of(&objects, named(&spec(&objects, "orgdata-exporter")["containers"], "orgdata-exporter"));
    assert_eq!(settings["ORGDATA_OTLP_ENDPOINT"], "http://orgdata-exporter-collector:4317");
    assert_eq!(service["spec"]["ports"][0]["port"], 4317);
    assert_eq!(service["metadata"]["name"], "orgdata-exporter-collector");

    for object in objects.iter().filter(|object| ["PodMonitor", "ServiceMonitor"].contains(&object["kind"].as_str().unwrap_or_default())) {
        let spec = &object["spec"];
        let endpoint = if spec["endpoints"].is_null() { &spec["podMetricsEndpoints"][0] } else { &spec["endpoints"][0] };
        assert!(endpoint["portNumber"] == 10917 || endpoint["targetPort"] == 10917, "{endpoint}");
        let seconds = |key: &str| humantime::parse_duration(endpoint[key].as_str().expect("a duration")).expect("a duration");
        assert!(seconds("scrapeTimeout") < seconds("interval"));
        assert!(spec["sampleLimit"].as_u64() >= Some(100_000) && spec["labelLimit"].as_u64() >= Some(20));
    }
}

#[test]
#[ignore = "needs kustomize, and the schemas and servers that .ci/setup installs beside it"]
fn runbooks_become_links_and_dashboards_fit_into_what_kubectl_keeps() {
    let objects = documents(&kustomize(&repository("overlays/standalone")).expect("it builds"));
    let rules = &object(&objects, "PrometheusRule", "orgdata-exporter")["spec"]["groups"][0]["rules"];
    for rule in rules.as_array().expect("rules") {
        let url = rule["annotations"]["runbook_url"].as_str().expect("an address");
        let path = url.strip_prefix("https://git.example.com/orgdata-exporter/blob/main/").unwrap_or_else(|| panic!("{url}"));
        assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(path).is_file(), "{url}");
    }
    assert!(objects.iter().all(|object| object["metadata"]["name"] != "orgdata-exporter-links"), "that is not for the cluster");
    let mut dashboards = 0;
    for object in objects.iter().filter(|object| object["metadata"]["labels"]["grafana_dashboard"] == "1") {
        // The annotation of `kubectl apply` holds the object as JSON, once more.
        assert!(object.to_string().len() < 256 * 1024, "{}", object["metadata"]["name"]);
        for (file, text) in object["data"].as_object().expect("files") {
            let shipped = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("dashboards").join(file)).expect("a dashboard");
            assert_eq!(text.as_str(), Some(shipped.as_str()), "{file}");
            dashboards += 1;
        }
    }
    assert_eq!(dashboards, 2);
    let mut names: Vec<_> = objects.iter().map(|object| (object["kind"].to_string(), object["metadata"]["name"].to_string())).collect();
    names.sort();
    assert!(names.iter().any(|(_, name)| name == "\"orgdata-exporter-health\""), "a name without a hash: {names:?}");
}

#[test]
#[ignore = "needs kustomize, and the schemas and servers that .ci/setup installs beside it"]
fn kube_score_has_nothing_to_say() {
    for (overlay, skipped) in [("standalone", SKIPPED_ALONE), ("sidecar", SKIPPED_BESIDE)] {
        let text = kustomize(&repository(&format!("overlays/{overlay}"))).expect("it builds");
        let ignored: Vec<String> = SKIPPED.iter().chain(&skipped).map(|(check, _)| format!("--ignore-test={check}")).collect();
        let score = |text: &str| {
            let mut arguments = vec!["score", "--kubernetes-version=v1.29", "--exit-one-on-warning", "--output-format=ci"];
            arguments.extend(ignored.iter().map(String::as_str));
            arguments.push("-");
            run("kube-score", &arguments, text)
        };
        score(&text).unwrap_or_else(|said| panic!("{overlay}: {said}"));
        let worse = text.replace("readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false");
        assert!(score(&worse).expect_err("worse").contains("writable root filesystem"));
    }
}

#[test]
#[ignore = "needs kustomize, and the schemas and servers that .ci/setup installs beside it"]
fn the_collector_takes_its_configuration() {
    let path = repository("components/collector/collector.yaml");
    parts::tool("otelcol", &["validate", "--config", path.to_str().expect("text")]).expect("valid");
}

/// An object of the Prometheus Operator names what a scrape configuration names otherwise.
fn relabelings(endpoint: &Value) -> Value {
    let renamed = |relabeling: &Value| {
        let keys = relabeling.as_object().expect("settings").iter();
        keys.map(|(key, value)| (key.replace("Labels", "_labels").replace("Label", "_label"), value.clone())).collect::<Map<_, _>>()
    };
    endpoint["relabelings"].as_array().expect("relabelings").iter().map(renamed).collect()
}

#[tokio::test]
#[ignore = "needs kustomize, and the schemas and servers that .ci/setup installs beside it"]
async fn a_restart_stays_one_series() {
    let objects = Overlay::base(&["podmonitor", "servicemonitor"]).objects();
    let monitors = [
        &object(&objects, "PodMonitor", "orgdata-exporter")["spec"]["podMetricsEndpoints"][0],
        &object(&objects, "ServiceMonitor", "orgdata-exporter")["spec"]["endpoints"][0],
    ];
    let found = |address: &str, container: &str, port: &str| {
        json!({ "targets": [address], "labels": {
            "__meta_kubernetes_namespace": "orgdata",
            "__meta_kubernetes_pod_name": "orgdata-exporter-0",
            "__meta_kubernetes_pod_container_name": container,
            "__meta_kubernetes_pod_container_port_number": port,
        } })
    };
    for (monitor, others) in
        monitors.into_iter().zip([vec![found("127.0.0.3:1", "shop", "10917"), found("127.0.0.3:2", "orgdata-exporter", "9")], vec![]])
    {
        // The pod before and after a restart, and other containers and ports. Nothing listens there.
        let pods =
            [vec![found("127.0.0.1:1", "orgdata-exporter", "10917"), found("127.0.0.2:1", "orgdata-exporter", "10917")], others].concat();
        let job = json!({ "job_name": "orgdata/orgdata-exporter", "relabel_configs": relabelings(monitor), "static_configs": pods });
        for program in ["prometheus", "prometheus3"] {
            let prometheus = parts::Prometheus::start_jobs(program, json!([job]), "1s").await;
            prometheus.query_until("up", |series| series.as_array().is_some_and(|series| !series.is_empty())).await;
            let targets = prometheus.api("targets", &[("state", "active")]).await["activeTargets"].take();
            let labels: Vec<&Value> = targets.as_array().expect("targets").iter().map(|target| &target["labels"]).collect();
            let one = json!({ "instance": "orgdata/orgdata-exporter-0", "job": "orgdata-exporter" });
            assert_eq!(labels, [&one, &one], "{program}");
        }
    }
}

#[test]
#[ignore = "needs util-linux, and the right to make a namespace of mounts"]
fn nothing_is_written_but_the_state() {
    let dir = tempfile::tempdir().expect("a directory");
    let [state, key] = ["state", "key"].map(|name| dir.path().join(name));
    fs::create_dir(&state).expect("writable");
    fs::write(&key, "key\n").expect("writable");
    let (exporter, state_dir) = (env!("CARGO_BIN_EXE_orgdata-exporter"), state.display());
    let script = format!(
        "set -e; mount --bind '{state_dir}' '{state_dir}'; mount -o remount,bind,ro /; grep -q ' / / ro' /proc/self/mountinfo; exec '{exporter}'"
    );
    // Where it says nothing that is waited for, it ends, and so does this test.
    let mut command = Command::new("timeout");
    command.args(["30", "unshare", "--map-root-user", "--mount", "--propagation", "private", "sh", "-c", &script]).stderr(Stdio::piped());
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("ORGDATA_WEB_LISTEN_ADDRESS", "127.0.0.1:0");
    // Nothing listens there.
    command
        .env("ORGDATA_API_BASE_URL", "http://127.0.0.1:9")
        .env("ORGDATA_API_KEY_FILE", &key)
        .env("ORGDATA_STATE_PATH", state.join("state.db"));
    let mut child = command.spawn().expect("it can be run");
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines().map_while(Result::ok);
    let said: Vec<String> = lines.by_ref().take_while(|line| !line.contains("cannot read audit logs")).collect();
    let stopped = Command::new("kill").arg(child.id().to_string()).status().expect("it can be run");
    assert!(stopped.success(), "{said:?}");
    let rest: Vec<String> = lines.collect();
    assert_eq!(child.wait().expect("it ends").code(), Some(0), "{said:?} {rest:?}");
    assert!(said.iter().any(|line| line.contains("listening")), "{said:?}");
    assert!(fs::metadata(state.join("state.db")).expect("a state file").len() > 0);
}

#[test]
#[ignore = "needs kustomize, and the schemas and servers that .ci/setup installs beside it"]
fn every_pod_is_one_that_the_restricted_standard_admits() {
    for overlay in ["standalone", "sidecar"] {
        let objects = documents(&kustomize(&repository(&format!("overlays/{overlay}"))).expect("it builds"));
        let pods: Vec<&Value> = objects.iter().map(|object| &object["spec"]["template"]["spec"]).filter(|pod| pod.is_object()).collect();
        assert!(!pods.is_empty());
        for pod in pods {
            for key in ["hostNetwork", "hostPID", "hostIPC"] {
                assert!(pod.get(key).is_none(), "{key}");
            }
            for volume in pod["volumes"].as_array().expect("volumes") {
                let kinds = ["configMap", "emptyDir", "secret", "persistentVolumeClaim"];
                assert!(volume.as_object().expect("a volume").keys().all(|key| key == "name" || kinds.contains(&key.as_str())), "{volume}");
            }
            let lists = ["initContainers", "containers"].iter().filter_map(|list| pod[list].as_array());
            for container in lists.flatten() {
                let own = &container["securityContext"];
                let setting = |key: &str| if own[key].is_null() { &pod["securityContext"][key] } else { &own[key] };
                assert_eq!((setting("runAsNonRoot"), &setting("seccompProfile")["type"]), (&json!(true), &json!("RuntimeDefault")));
                assert!(setting("runAsUser").as_u64() >= Some(10_000), "{}", container["name"]);
                assert_eq!((&own["allowPrivilegeEscalation"], &own["readOnlyRootFilesystem"]), (&json!(false), &json!(true)));
                assert_eq!(own["capabilities"], json!({ "drop": ["ALL"] }));
                assert!(container["ports"].as_array().into_iter().flatten().all(|port| port.get("hostPort").is_none()));
            }
        }
    }
}
