//! The compose file and the image agree with the program, with each other and with the dashboards.

use clap::{CommandFactory, Parser};
use orgdata_exporter::commands::Cli;
use serde_json::Value;

use crate::deploy::variables;
use crate::support::files::{array, assert_has, duration, file, path, text, yaml};

/// The services that are built from this repository.
const OURS: [&str; 2] = ["simulator", "exporter"];

fn compose(name: &str) -> Value {
    yaml(&format!("deploy/compose/{name}"))
}

fn services() -> Vec<(String, Value)> {
    compose("compose.yaml")["services"]
        .as_object()
        .unwrap()
        .clone()
        .into_iter()
        .collect()
}

fn service(name: &str) -> Value {
    compose("compose.yaml")["services"][name].take()
}

fn strings(value: &Value) -> Vec<String> {
    array(value).iter().map(text).collect()
}

/// Parses the words of a command line.
fn parsed(words: &[String]) -> Cli {
    let words = ["orgdata-exporter".to_owned()]
        .into_iter()
        .chain(words.iter().cloned());
    Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn services_have_few_rights_and_fixed_versions() {
    let volumes = compose("compose.yaml")["volumes"].clone();
    for (name, service) in services() {
        assert_has!(service, {
            "cap_drop": ["ALL"], "security_opt": ["no-new-privileges:true"], "restart": "unless-stopped",
            "privileged": null, "user": null, "network_mode": null,
        });
        assert!(service["mem_limit"].is_string(), "{name}");
        assert!(service["read_only"] == true || name == "grafana", "{name}");
        let ports = strings(&service["ports"]);
        assert!(
            ports.iter().all(|port| port.starts_with("127.0.0.1:")),
            "{name}: {ports:?}"
        );
        let image = text(&service["image"]);
        if OURS.contains(&name.as_str()) {
            let [context, dockerfile] =
                ["context", "dockerfile"].map(|key| text(&service["build"][key]));
            assert!(
                path("deploy/compose")
                    .join(context)
                    .join(dockerfile)
                    .is_file(),
                "{name}"
            );
        } else {
            let (registry, tag) = image.rsplit_once(':').unwrap();
            assert!(
                registry.starts_with("docker.io/") && tag.split('.').count() == 3,
                "{image}"
            );
        }
        for volume in strings(&service["volumes"]) {
            let (source, target) = volume.split_once(':').unwrap();
            let is_file = path("deploy/compose").join(source).exists() && target.ends_with(":ro");
            assert!(
                if source.starts_with('.') {
                    is_file
                } else {
                    volumes.get(source).is_some()
                },
                "{volume}"
            );
        }
    }
}

#[test]
fn the_key_is_a_file_and_the_simulators() {
    let key = text(&compose("compose.yaml")["secrets"]["orgdata-api-key"]["file"]);
    let key = file(&format!("deploy/compose/{key}")).trim().to_owned();
    assert!(strings(&service("simulator")["command"]).contains(&format!("--api-key={key}")));
    for (name, service) in services() {
        let environment = service["environment"].to_string();
        assert!(
            !environment.contains("\"ORGDATA_API_KEY\"") && !environment.contains(&key),
            "{name}"
        );
    }
    assert_has!(service("exporter"), {
        "environment": { "ORGDATA_API_KEY_FILE": "/run/secrets/orgdata-api-key" }, "secrets": ["orgdata-api-key"],
    });
}

#[test]
fn commands_and_variables_are_those_of_the_program() {
    parsed(&strings(&service("simulator")["command"]));
    let check = strings(&service("simulator")["healthcheck"]["test"]);
    assert_eq!(check[..2], ["CMD", "orgdata-exporter"]);
    parsed(&check[2..]);
    let environment = service("exporter")["environment"].take();
    let ours = environment
        .as_object()
        .unwrap()
        .iter()
        .filter(|(name, _)| name.starts_with("ORGDATA_"));
    // Each value is one that the flag takes.
    let command = Cli::command();
    let flags: Vec<String> = ours
        .map(|(variable, value)| {
            assert!(variables().contains(variable), "{variable}");
            let mut arguments = command.get_arguments();
            let flag = arguments.find(|argument| {
                argument
                    .get_env()
                    .is_some_and(|env| env == variable.as_str())
            });
            format!(
                "--{}={}",
                flag.unwrap().get_long().unwrap(),
                value.as_str().expect("quotes")
            )
        })
        .collect();
    parsed(&flags);
    // It is not killed while it still sends: --shutdown.grace is 10s.
    assert!(duration(&service("exporter")["stop_grace_period"]).as_secs() > 10);

    let dockerfile = file("deploy/image/Dockerfile");
    assert!(dockerfile.contains(concat!("ARG VERSION=", env!("CARGO_PKG_VERSION"), "\n")));
    let check = dockerfile
        .lines()
        .find(|line| line.starts_with("HEALTHCHECK"))
        .unwrap();
    let check: Vec<String> = serde_json::from_str(check.split_once(" CMD ").unwrap().1).unwrap();
    parsed(&check[1..]);
}

#[test]
fn the_services_find_each_other() {
    let sources = compose("grafana/datasources/datasources.yaml")["datasources"].take();
    let collector = compose("collector.yaml");
    let prometheus = compose("prometheus.yaml");
    let target = &prometheus["scrape_configs"][0]["static_configs"][0]["targets"][0];
    let environment = service("exporter")["environment"].take();
    for (url, port) in [
        (text(&environment["ORGDATA_API_BASE_URL"]), 8081),
        (text(&environment["OTEL_EXPORTER_OTLP_ENDPOINT"]), 4317),
        (
            text(&collector["exporters"]["otlp_http/loki"]["endpoint"]),
            3100,
        ),
        (text(&sources[0]["url"]), 9090),
        (text(&sources[1]["url"]), 3100),
        (format!("http://{}", text(target)), 10917),
    ] {
        let url = url::Url::parse(&url).unwrap();
        let known = services()
            .iter()
            .any(|(name, _)| url.host_str() == Some(name));
        assert!(known && url.port() == Some(port), "{url}");
    }
    assert_eq!(compose("loki.yaml")["server"]["http_listen_port"], 3100);

    // The dashboards find their data.
    let interval = &prometheus["global"]["scrape_interval"];
    assert_has!(sources[0], { "type": "prometheus", "isDefault": true, "jsonData": { "timeInterval": interval } });
    let provider = compose("grafana/dashboards/dashboards.yaml");
    let directory = text(&provider["providers"][0]["options"]["path"]);
    let grafana = service("grafana");
    assert!(strings(&grafana["volumes"]).contains(&format!("../../dashboards:{directory}:ro")));
    let home = text(&grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]);
    let home = yaml(&home.replace(&directory, "dashboards"));
    let mut variables = array(&home["templating"]["list"]).iter();
    let loki = variables
        .find(|variable| variable["name"] == "loki")
        .unwrap();
    assert_has!(sources[1], { "type": "loki", "uid": loki["current"]["value"] });
}

#[test]
fn a_record_is_acknowledged_when_loki_has_it() {
    // A queue or a batch processor would answer before the record is sent.
    assert_has!(compose("collector.yaml"), {
        "exporters": { "otlp_http/loki": { "sending_queue": { "enabled": false }, "retry_on_failure": { "enabled": false } } },
        "service": { "pipelines": { "logs": { "processors": null } } },
    });
    let loki = compose("loki.yaml");
    // Loki refuses the attributes of a record without it.
    assert_eq!(loki["limits_config"]["allow_structured_metadata"], true);
    assert_eq!(loki["schema_config"]["configs"][0]["schema"], "v13");
}
