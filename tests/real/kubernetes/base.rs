//! The exporter alone, and what goes with it.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::overlay::Overlay;
use super::{WITH_BASE, kustomize, mounted, probes, repository, settings_of, spec, user};
use crate::support::manifests::{bytes, documents, named, object};

#[test]
#[ignore = "needs kustomize, and the schemas and servers that .ci/setup installs beside it"]
fn the_base_is_one_restricted_pod_with_a_volume() {
    let objects = Overlay::base(&[]).objects();
    let set = &object(&objects, "StatefulSet", "orgdata-exporter")["spec"];
    assert_eq!(set["replicas"], 1);
    let pod = spec(&objects, "orgdata-exporter");
    let container = named(&pod["containers"], "orgdata-exporter");
    let settings = settings_of(&objects, container);
    assert_ne!(
        container["envFrom"][0]["configMapRef"]["name"], "orgdata-exporter",
        "a changed setting is a new name, and so a new pod"
    );
    user(&pod["securityContext"]);
    mounted(container, settings);
    probes(container);
    assert_eq!(
        container["readinessProbe"]["httpGet"],
        json!({ "path": "/-/ready", "port": 10917 })
    );
    assert_eq!(
        (
            &pod["securityContext"]["fsGroup"],
            &pod["securityContext"]["fsGroupChangePolicy"]
        ),
        (&json!(65532), &json!("OnRootMismatch"))
    );
    assert!(
        pod["terminationGracePeriodSeconds"].as_u64() > Some(10),
        "above --shutdown.grace"
    );
    assert_eq!(
        (
            &pod["automountServiceAccountToken"],
            &pod["enableServiceLinks"]
        ),
        (&json!(false), &json!(false))
    );
    assert_eq!(
        object(&objects, "ServiceAccount", "orgdata-exporter")["automountServiceAccountToken"],
        false
    );
    assert_eq!(pod["serviceAccountName"], "orgdata-exporter");
    assert_eq!(
        named(&pod["volumes"], "api-key")["secret"]["optional"],
        false
    );

    let claim = &set["volumeClaimTemplates"][0];
    assert!(
        bytes(&claim["spec"]["resources"]["requests"]["storage"])
            > 3 * bytes(&settings["ORGDATA_STATE_MAX_SIZE"])
    );
    // What cannot be changed in a StatefulSet must not hold what changes with a release.
    let labels = json!({ "app.kubernetes.io/name": "orgdata-exporter", "app.kubernetes.io/instance": "orgdata-exporter" });
    assert_eq!(
        (
            &claim["metadata"]["labels"],
            &set["selector"]["matchLabels"]
        ),
        (&labels, &labels)
    );
    assert_eq!(
        object(&objects, "Service", "orgdata-exporter")["spec"]["selector"],
        labels
    );
    assert_eq!(
        set["template"]["metadata"]["labels"]["app.kubernetes.io/version"],
        env!("CARGO_PKG_VERSION")
    );
    assert!(
        objects
            .iter()
            .all(|object| object["kind"] != "PodDisruptionBudget"),
        "with one replica it only holds up drains"
    );
}

#[test]
#[ignore = "needs kustomize, and the schemas and servers that .ci/setup installs beside it"]
fn what_goes_with_the_base_finds_it() {
    let objects = Overlay::base(&WITH_BASE)
        .set("namespace", json!("somewhere"))
        .objects();
    let pod = &object(&objects, "StatefulSet", "orgdata-exporter")["spec"]["template"]["metadata"]
        ["labels"];
    let selects = |selector: &Value| {
        selector
            .as_object()
            .expect("labels")
            .iter()
            .all(|(name, value)| pod[name] == *value)
    };
    assert!(selects(
        &object(&objects, "ServiceMonitor", "orgdata-exporter")["spec"]["selector"]["matchLabels"]
    ));
    let policy = &object(&objects, "NetworkPolicy", "orgdata-exporter")["spec"];
    assert!(selects(&policy["podSelector"]["matchLabels"]));
    assert_eq!(policy["policyTypes"], json!(["Ingress", "Egress"]));
    assert_eq!(policy["ingress"].as_array().expect("rules").len(), 1);
    assert_eq!(
        policy["ingress"][0]["from"][0]["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"],
        "monitoring"
    );
    let ports = |rule: &Value| {
        rule["ports"]
            .as_array()
            .expect("ports")
            .iter()
            .map(|port| port["port"].as_u64().expect("a number"))
            .collect::<Vec<_>>()
    };
    assert_eq!(ports(&policy["ingress"][0]), [10917]);
    let egress: Vec<Vec<u64>> = policy["egress"]
        .as_array()
        .expect("rules")
        .iter()
        .map(ports)
        .collect();
    assert_eq!(egress, [vec![53, 53], vec![443], vec![4317, 4318]]);
    assert!(
        policy["egress"]
            .as_array()
            .expect("rules")
            .iter()
            .all(|rule| rule["to"].as_array().is_some_and(|to| !to.is_empty()))
    );

    // The collector is the one that the setting, the policy and the Service mean.
    let collector = &object(&objects, "Deployment", "orgdata-exporter-collector")["spec"]["template"]
        ["metadata"]["labels"];
    let service = object(&objects, "Service", "orgdata-exporter-collector");
    for selector in [
        &service["spec"]["selector"],
        &policy["egress"][2]["to"][0]["podSelector"]["matchLabels"],
    ] {
        assert!(
            selector
                .as_object()
                .expect("labels")
                .iter()
                .all(|(name, value)| collector[name] == *value),
            "{selector}"
        );
    }
    let settings = settings_of(
        &objects,
        named(
            &spec(&objects, "orgdata-exporter")["containers"],
            "orgdata-exporter",
        ),
    );
    assert_eq!(
        settings["ORGDATA_OTLP_ENDPOINT"],
        "http://orgdata-exporter-collector:4317"
    );
    assert_eq!(service["spec"]["ports"][0]["port"], 4317);
    assert_eq!(service["metadata"]["name"], "orgdata-exporter-collector");

    for object in objects.iter().filter(|object| {
        ["PodMonitor", "ServiceMonitor"].contains(&object["kind"].as_str().unwrap_or_default())
    }) {
        let spec = &object["spec"];
        let endpoint = if spec["endpoints"].is_null() {
            &spec["podMetricsEndpoints"][0]
        } else {
            &spec["endpoints"][0]
        };
        assert!(
            endpoint["portNumber"] == 10917 || endpoint["targetPort"] == 10917,
            "{endpoint}"
        );
        let seconds = |key: &str| {
            humantime::parse_duration(endpoint[key].as_str().expect("a duration"))
                .expect("a duration")
        };
        assert!(seconds("scrapeTimeout") < seconds("interval"));
        assert!(
            spec["sampleLimit"].as_u64() >= Some(100_000)
                && spec["labelLimit"].as_u64() >= Some(20)
        );
    }
}

#[test]
#[ignore = "needs kustomize, and the schemas and servers that .ci/setup installs beside it"]
fn runbooks_become_links_and_dashboards_fit_into_what_kubectl_keeps() {
    let objects = documents(&kustomize(&repository("overlays/standalone")).expect("it builds"));
    let rules =
        &object(&objects, "PrometheusRule", "orgdata-exporter")["spec"]["groups"][0]["rules"];
    for rule in rules.as_array().expect("rules") {
        let url = rule["annotations"]["runbook_url"]
            .as_str()
            .expect("an address");
        let path = url
            .strip_prefix("https://git.example.com/orgdata-exporter/blob/main/")
            .unwrap_or_else(|| panic!("{url}"));
        assert!(
            Path::new(env!("CARGO_MANIFEST_DIR")).join(path).is_file(),
            "{url}"
        );
    }
    assert!(
        objects
            .iter()
            .all(|object| object["metadata"]["name"] != "orgdata-exporter-links"),
        "that is not for the cluster"
    );
    let mut dashboards = 0;
    for object in objects
        .iter()
        .filter(|object| object["metadata"]["labels"]["grafana_dashboard"] == "1")
    {
        // The annotation of `kubectl apply` holds the object as JSON, once more.
        assert!(
            object.to_string().len() < 256 * 1024,
            "{}",
            object["metadata"]["name"]
        );
        for (file, text) in object["data"].as_object().expect("files") {
            let shipped = fs::read_to_string(
                Path::new(env!("CARGO_MANIFEST_DIR"))
                    .join("dashboards")
                    .join(file),
            )
            .expect("a dashboard");
            assert_eq!(text.as_str(), Some(shipped.as_str()), "{file}");
            dashboards += 1;
        }
    }
    assert_eq!(dashboards, 2);
    let mut names: Vec<_> = objects
        .iter()
        .map(|object| {
            (
                object["kind"].to_string(),
                object["metadata"]["name"].to_string(),
            )
        })
        .collect();
    names.sort();
    assert!(
        names
            .iter()
            .any(|(_, name)| name == "\"orgdata-exporter-health\""),
        "a name without a hash: {names:?}"
    );
}
