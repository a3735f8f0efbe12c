//! What the manifests say, said to the programs that it is for.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use serde_json::{Map, Value, json};

use super::overlay::Overlay;
use super::{parts, repository};
use crate::support::manifests::object;

#[test]
#[ignore = "needs kustomize, and the schemas and servers that .ci/setup installs beside it"]
fn the_collector_takes_its_configuration() {
    let path = repository("components/collector/collector.yaml");
    parts::tool(
        "otelcol",
        &["validate", "--config", path.to_str().expect("text")],
    )
    .expect("valid");
}

/// An object of the Prometheus Operator names what a scrape configuration names otherwise.
fn relabelings(endpoint: &Value) -> Value {
    let renamed = |relabeling: &Value| {
        let keys = relabeling.as_object().expect("settings").iter();
        keys.map(|(key, value)| {
            (
                key.replace("Labels", "_labels").replace("Label", "_label"),
                value.clone(),
            )
        })
        .collect::<Map<_, _>>()
    };
    endpoint["relabelings"]
        .as_array()
        .expect("relabelings")
        .iter()
        .map(renamed)
        .collect()
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
    for (monitor, others) in monitors.into_iter().zip([
        vec![
            found("127.0.0.3:1", "shop", "10917"),
            found("127.0.0.3:2", "orgdata-exporter", "9"),
        ],
        vec![],
    ]) {
        // The pod before and after a restart, and other containers and ports. Nothing listens there.
        let pods = [
            vec![
                found("127.0.0.1:1", "orgdata-exporter", "10917"),
                found("127.0.0.2:1", "orgdata-exporter", "10917"),
            ],
            others,
        ]
        .concat();
        let job = json!({ "job_name": "orgdata/orgdata-exporter", "relabel_configs": relabelings(monitor), "static_configs": pods });
        for program in ["prometheus", "prometheus3"] {
            let prometheus = parts::Prometheus::start_jobs(program, json!([job]), "1s").await;
            prometheus
                .query_until("up", |series| {
                    series.as_array().is_some_and(|series| !series.is_empty())
                })
                .await;
            let targets =
                prometheus.api("targets", &[("state", "active")]).await["activeTargets"].take();
            let labels: Vec<&Value> = targets
                .as_array()
                .expect("targets")
                .iter()
                .map(|target| &target["labels"])
                .collect();
            let one =
                json!({ "instance": "orgdata/orgdata-exporter-0", "job": "orgdata-exporter" });
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
    command
        .args([
            "30",
            "unshare",
            "--map-root-user",
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            &script,
        ])
        .stderr(Stdio::piped());
    command
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("ORGDATA_WEB_LISTEN_ADDRESS", "127.0.0.1:0");
    // Nothing listens there.
    command
        .env("ORGDATA_API_BASE_URL", "http://127.0.0.1:9")
        .env("ORGDATA_API_KEY_FILE", &key)
        .env("ORGDATA_STATE_PATH", state.join("state.db"));
    let mut child = command.spawn().expect("it can be run");
    let mut lines = BufReader::new(child.stderr.take().expect("piped"))
        .lines()
        .map_while(Result::ok);
    let said: Vec<String> = lines
        .by_ref()
        .take_while(|line| !line.contains("cannot read audit logs"))
        .collect();
    let stopped = Command::new("kill")
        .arg(child.id().to_string())
        .status()
        .expect("it can be run");
    assert!(stopped.success(), "{said:?}");
    let rest: Vec<String> = lines.collect();
    assert_eq!(
        child.wait().expect("it ends").code(),
        Some(0),
        "{said:?} {rest:?}"
    );
    assert!(
        said.iter().any(|line| line.contains("listening")),
        "{said:?}"
    );
    assert!(
        fs::metadata(state.join("state.db"))
            .expect("a state file")
            .len()
            > 0
    );
}
