//! The files of `deploy/` fit the program. `tests/real` gives them to the programs that they are for.

use std::collections::BTreeSet;
use std::fs;

use clap::CommandFactory as _;
use orgdata_exporter::commands::Cli;
use serde_json::Value;

use crate::support::binary::launch;
use crate::support::files::{array, documents, file, named, object, text, yaml};

const NAME: &str = "orgdata-exporter";

const CHART: &str = "deploy/helm/orgdata-exporter";

#[test]
fn the_chart_can_set_every_variable_in_one_place() {
    let template = file(&format!("{CHART}/templates/_settings.tpl"));
    let typed = template
        .split('"')
        .filter(|word| word.starts_with("ORGDATA_"));
    let typed: BTreeSet<String> = typed.map(str::to_owned).collect();
    let schema = yaml(&format!("{CHART}/values.schema.json"));
    let free = schema["properties"]["settings"]["properties"].as_object();
    let free: BTreeSet<String> = free.unwrap().keys().cloned().collect();
    assert!(typed.is_disjoint(&free), "set twice: {typed:?}, {free:?}");
    let mut chart = &typed | &free;
    // Probes, Service and monitors expect this port.
    chart.insert("ORGDATA_WEB_LISTEN_ADDRESS".to_owned());
    let command = Cli::command();
    let variables = command.get_arguments().filter_map(clap::Arg::get_env);
    let names = variables.map(|name| name.to_str().unwrap().to_owned());
    let differing = &chart ^ &names.collect();
    assert!(differing.is_empty(), "in {CHART}: {differing:?}");
}

#[test]
fn versions_are_those_of_the_program() {
    let version = env!("CARGO_PKG_VERSION");
    for (name, line) in [
        ("image/Dockerfile", "ARG VERSION="),
        ("helm/orgdata-exporter/Chart.yaml", "\nversion: "),
        ("helm/orgdata-exporter/Chart.yaml", "\nappVersion: "),
        ("kubernetes/standalone.yaml", "orgdata-exporter:"),
        ("kubernetes/sidecar.yaml", "orgdata-exporter:"),
    ] {
        let text = file(&format!("deploy/{name}")).replace('"', "");
        assert!(text.contains(&format!("{line}{version}")), "{name}");
    }
}

/// Starts it as Kubernetes does: with the settings of the file, the two mounted paths elsewhere, and what a Service of that name adds.
#[tokio::test]
async fn the_settings_of_a_manifest_start_it_and_it_is_ready_without_the_api() {
    for (name, set, list) in [
        ("standalone", NAME, "containers"),
        ("sidecar", "shop", "initContainers"),
    ] {
        let objects = documents(&file(&format!("deploy/kubernetes/{name}.yaml")));
        let pod = &object(&objects, "StatefulSet", set)["spec"]["template"]["spec"];
        let limits = &named(&pod[list], NAME)["resources"]["limits"];
        // The container's log counts, and records on standard output are a part of it.
        assert_eq!(limits["ephemeral-storage"], Value::Null, "{name}");
        let mut launch = launch(&["--web.listen-address=127.0.0.1:0"])
            .env("ORGDATA_EXPORTER_SERVICE_HOST", "10.0.0.1")
            .env("ORGDATA_EXPORTER_PORT", "tcp://10.0.0.1:10917");
        let [key, state] = ["api-key", "state.db"].map(|name| launch.dir().join(name));
        fs::write(&key, "key\n").unwrap();
        for variable in array(&named(&pod[list], NAME)["env"]) {
            let [name, value] = ["name", "value"].map(|key| text(&variable[key]));
            launch = match name.as_str() {
                // Nothing listens there.
                "ORGDATA_API_BASE_URL" => launch.env(&name, "http://127.0.0.1:9"),
                "ORGDATA_API_KEY_FILE" => launch.env(&name, key.as_os_str()),
                "ORGDATA_STATE_PATH" => launch.env(&name, state.as_os_str()),
                _ => launch.env(&name, &value),
            };
        }
        let mut exporter = launch.start();
        exporter.logs("nothing listens at 127.0.0.1, port 9").await;
        for page in ["/-/ready", "/-/healthy"] {
            assert_eq!(exporter.get(page).await.0, 200, "{name}: {page}");
        }
        assert!(state.exists());
        assert_eq!(exporter.stop().await, Some(0), "{name}");
    }
}
