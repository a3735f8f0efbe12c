//! `deploy/kubernetes` on an API server: both manifests are accepted, what they make starts, and a restart stays one series.

use serde_json::{Map, Value, json};

use crate::helm;
use crate::manifests::{on_cluster, valid};
use crate::support::files::{array, documents, file, object};
use crate::support::parts::Prometheus;

const NAME: &str = "orgdata-exporter";

fn manifest(name: &str) -> String {
    file(&format!("deploy/kubernetes/{name}.yaml"))
}

#[test]
#[ignore = "needs the schemas and the API server"]
fn both_manifests_are_accepted_a_second_apply_changes_nothing_and_two_pods_never_read() {
    valid(&manifest("standalone")).unwrap();
    valid(&manifest("sidecar")).unwrap();
    on_cluster("unchanged");
    on_cluster("rollout");
}

/// Returns the relabelings of an object of the Prometheus Operator in the words of a scrape configuration.
fn relabelings(endpoint: &Value) -> Value {
    let renamed = |relabeling: &Value| {
        let keys = relabeling.as_object().unwrap().iter();
        let name = |key: &String| key.replace("Labels", "_labels").replace("Label", "_label");
        keys.map(|(key, value)| (name(key), value.clone()))
            .collect::<Map<_, _>>()
    };
    let relabelings = array(&endpoint["relabelings"]).iter();
    relabelings.map(renamed).collect()
}

#[tokio::test]
#[ignore = "needs helm and Prometheus 2.42 and 3"]
async fn a_restart_stays_one_series() {
    let found = |address: &str| {
        json!({ "targets": [address], "labels": {
            "__meta_kubernetes_namespace": "orgdata", "__meta_kubernetes_pod_name": "orgdata-exporter-0",
            "__meta_kubernetes_pod_container_name": NAME, "__meta_kubernetes_pod_container_port_number": "10917",
        } })
    };
    // The pod before and after a restart. Nothing listens there.
    let pods = ["127.0.0.1:1", "127.0.0.2:1"].map(found);
    let pod = ("PodMonitor", "podMetricsEndpoints");
    let service = ("ServiceMonitor", "endpoints");
    for (objects, (kind, endpoints)) in [
        (documents(&manifest("standalone")), pod),
        (documents(&manifest("sidecar")), pod),
        (helm::example("pod-monitor"), pod),
        (helm::example("service-monitor"), service),
    ] {
        let relabelings = relabelings(&object(&objects, kind, NAME)["spec"][endpoints][0]);
        let job = json!({ "job_name": "orgdata/orgdata-exporter", "relabel_configs": relabelings, "static_configs": pods });
        for program in ["prometheus", "prometheus3"] {
            let prometheus = Prometheus::start_jobs(program, json!([job]), "1s").await;
            let is_some = |series: &Value| !array(series).is_empty();
            prometheus.query_until("up", is_some).await;
            let targets = prometheus.api("targets", &[("state", "active")]).await;
            let targets = array(&targets["activeTargets"]).iter();
            let labels = targets.map(|target| &target["labels"]);
            let one = json!({ "instance": "orgdata/orgdata-exporter-0", "job": NAME });
            assert_eq!(labels.collect::<Vec<_>>(), [&one, &one], "{program}");
        }
    }
}
