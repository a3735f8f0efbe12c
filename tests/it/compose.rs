//! The compose file and the image agree with the program, with each other and with the dashboards.

// A test fails by panicking, also in its helpers.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::{CommandFactory, Parser};
use orgdata_exporter::cli::Cli;
use serde_json::Value;

/// The services made from this repository.
const OURS: [&str; 2] = ["simulator", "exporter"];

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("deploy/compose")
        .join(name)
}

fn yaml(name: &str) -> Value {
    let text =
        std::fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn services() -> Vec<(String, Value)> {
    yaml("compose.yaml")["services"]
        .as_object()
        .unwrap()
        .clone()
        .into_iter()
        .collect()
}

fn service(name: &str) -> Value {
    services()
        .into_iter()
        .find(|(known, _)| known == name)
        .unwrap()
        .1
}

fn strings(value: &Value) -> Vec<String> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| one.as_str().unwrap().to_owned())
        .collect()
}

/// A command of the program as its words.
fn parsed(words: &[String]) -> Cli {
    Cli::try_parse_from(std::iter::once("orgdata-exporter".to_owned()).chain(words.iter().cloned()))
        .unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn every_service_has_few_rights_and_is_for_this_machine_alone() {
    for (name, service) in services() {
        assert_eq!(strings(&service["cap_drop"]), ["ALL"], "{name}");
        assert_eq!(
            strings(&service["security_opt"]),
            ["no-new-privileges:true"],
            "{name}"
        );
        assert!(
            service["mem_limit"].is_string() && service["restart"] == "unless-stopped",
            "{name}"
        );
        assert!(
            service["privileged"].is_null()
                && service["user"].is_null()
                && service["network_mode"].is_null(),
            "{name}"
        );
        for port in strings(&service["ports"]) {
            assert!(port.starts_with("127.0.0.1:"), "{name}: {port}");
        }
        assert!(service["read_only"] == true || name == "grafana", "{name}");
    }
}

#[test]
fn images_are_of_one_version() {
    for (name, service) in services() {
        let image = service["image"].as_str().unwrap().to_owned();
        if OURS.contains(&name.as_str()) {
            assert!(
                path(service["build"]["context"].as_str().unwrap())
                    .join(service["build"]["dockerfile"].as_str().unwrap())
                    .is_file()
            );
            continue;
        }
        let (registry, tag) = image.rsplit_once(':').unwrap();
        assert!(
            registry.starts_with("docker.io/") && tag.split('.').count() == 3,
            "{name}: {image}"
        );
    }
}

#[test]
fn the_key_is_a_file_and_the_simulator_s() {
    let key = std::fs::read_to_string(path(
        yaml("compose.yaml")["secrets"]["orgdata-api-key"]["file"]
            .as_str()
            .unwrap(),
    ))
    .unwrap();
    assert!(
        strings(&service("simulator")["command"]).contains(&format!("--api-key={}", key.trim()))
    );
    for (name, service) in services() {
        for (variable, value) in service["environment"].as_object().into_iter().flatten() {
            assert!(
                variable != "ORGDATA_API_KEY" && !value.to_string().contains(key.trim()),
                "{name}: {variable}"
            );
        }
    }
    assert_eq!(
        service("exporter")["environment"]["ORGDATA_API_KEY_FILE"],
        "/run/secrets/orgdata-api-key"
    );
    assert_eq!(
        strings(&service("exporter")["secrets"]),
        ["orgdata-api-key"]
    );
}

#[test]
fn what_is_mounted_is_there() {
    let compose = yaml("compose.yaml");
    for (name, service) in services() {
        for volume in strings(&service["volumes"]) {
            let (source, target) = volume.split_once(':').unwrap();
            if source.starts_with('.') {
                assert!(
                    path(source).exists() && target.ends_with(":ro"),
                    "{name}: {volume}"
                );
            } else {
                assert!(
                    compose["volumes"].as_object().unwrap().contains_key(source),
                    "{name}: {volume}"
                );
            }
        }
    }
}

#[test]
fn commands_and_variables_are_those_of_the_program() {
    parsed(&strings(&service("simulator")["command"]));
    let check = strings(&service("simulator")["healthcheck"]["test"]);
    assert_eq!(check[..2], ["CMD", "orgdata-exporter"]);
    parsed(&check[2..]);
    let known: BTreeSet<String> = Cli::command()
        .get_arguments()
        .filter_map(|argument| Some(argument.get_env()?.to_str()?.to_owned()))
        .collect();
    let mut flags = Vec::new();
    for (variable, value) in service("exporter")["environment"].as_object().unwrap() {
        if let Some(name) = variable.strip_prefix("ORGDATA_") {
            assert!(known.contains(variable), "{variable}");
            let command = Cli::command();
            let flag = command
                .get_arguments()
                .find(|argument| {
                    argument
                        .get_env()
                        .is_some_and(|env| env == variable.as_str())
                })
                .unwrap();
            flags.push(format!(
                "--{}={}",
                flag.get_long().unwrap(),
                value
                    .as_str()
                    .unwrap_or_else(|| panic!("{name} is not in quotes"))
            ));
        }
    }
    // Each value is one that the flag takes.
    parsed(&flags);
    // It is not killed while it still sends.
    let grace =
        humantime::parse_duration(service("exporter")["stop_grace_period"].as_str().unwrap())
            .unwrap();
    assert!(grace > parsed(&[]).flags.log.shutdown_grace);
}

#[test]
fn the_services_find_each_other() {
    let names: BTreeSet<String> = services().into_iter().map(|(name, _)| name).collect();
    let sources = yaml("grafana/datasources/datasources.yaml");
    let collector = yaml("collector.yaml");
    let targets = yaml("prometheus.yaml")["scrape_configs"][0]["static_configs"][0]["targets"][0]
        .as_str()
        .unwrap()
        .to_owned();
    let exporter = service("exporter");
    for (url, port) in [
        (&exporter["environment"]["ORGDATA_API_BASE_URL"], 8081),
        (
            &exporter["environment"]["OTEL_EXPORTER_OTLP_ENDPOINT"],
            4317,
        ),
        (&collector["exporters"]["otlp_http/loki"]["endpoint"], 3100),
        (&sources["datasources"][0]["url"], 9090),
        (&sources["datasources"][1]["url"], 3100),
        (&Value::from(format!("http://{targets}")), 10917),
    ] {
        let url = url::Url::parse(url.as_str().unwrap()).unwrap();
        assert!(
            names.contains(url.host_str().unwrap()) && url.port() == Some(port),
            "{url}"
        );
    }
    assert_eq!(yaml("loki.yaml")["server"]["http_listen_port"], 3100);
}

#[test]
fn the_dashboards_find_their_data() {
    let sources = yaml("grafana/datasources/datasources.yaml");
    let sources = sources["datasources"].as_array().unwrap();
    assert!(sources[0]["type"] == "prometheus" && sources[0]["isDefault"] == true);
    let interval = &yaml("prometheus.yaml")["global"]["scrape_interval"];
    assert_eq!(&sources[0]["jsonData"]["timeInterval"], interval);
    let grafana = service("grafana");
    let directory = yaml("grafana/dashboards/dashboards.yaml")["providers"][0]["options"]["path"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(strings(&grafana["volumes"]).contains(&format!("../../dashboards:{directory}:ro")));
    let home = grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
        .as_str()
        .unwrap();
    let home = path("../../dashboards").join(home.strip_prefix(&format!("{directory}/")).unwrap());
    let home: Value = serde_json::from_str(&std::fs::read_to_string(home).unwrap()).unwrap();
    let variables = home["templating"]["list"].as_array().unwrap();
    let loki = variables
        .iter()
        .find(|variable| variable["name"] == "loki")
        .unwrap();
    assert!(
        sources
            .iter()
            .any(|source| source["type"] == "loki" && source["uid"] == loki["current"]["value"])
    );
}

#[test]
fn a_record_is_acknowledged_when_loki_has_it() {
    let loki = &yaml("collector.yaml")["exporters"]["otlp_http/loki"];
    assert_eq!(
        (
            &loki["sending_queue"]["enabled"],
            &loki["retry_on_failure"]["enabled"]
        ),
        (&Value::from(false), &Value::from(false))
    );
    let pipelines = &yaml("collector.yaml")["service"]["pipelines"];
    // A batch processor answers before its batch is sent.
    assert!(pipelines["logs"]["processors"].is_null());
    // Without it Loki refuses the attributes of a record.
    assert_eq!(
        yaml("loki.yaml")["limits_config"]["allow_structured_metadata"],
        true
    );
    assert_eq!(
        yaml("loki.yaml")["schema_config"]["configs"][0]["schema"],
        "v13"
    );
}

#[test]
fn the_image_has_the_version_of_the_program() {
    let dockerfile = std::fs::read_to_string(path("../image/Dockerfile")).unwrap();
    assert!(dockerfile.contains(concat!("ARG VERSION=", env!("CARGO_PKG_VERSION"), "\n")));
    let check = dockerfile.lines().find_map(|line| {
        line.split_once(" CMD ")
            .filter(|(begin, _)| begin.starts_with("HEALTHCHECK"))
    });
    let check: Vec<String> = serde_json::from_str(check.unwrap().1).unwrap();
    parsed(&check[1..]);
}
