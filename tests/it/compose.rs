//! The compose file and the image agree with the program, with each other and with the dashboards.

use std::ffi::OsStr;

use clap::{CommandFactory, Parser};
use orgdata_exporter::commands::Cli;
use serde_json::{Map, Value, json};

use crate::support::files::{array, assert_has, duration, file, named, path, text, yaml};

/// The services that are built from this repository.
const OURS: [&str; 2] = ["simulator", "exporter"];

fn compose(name: &str) -> Value {
    yaml(&format!("deploy/compose/{name}"))
}

fn services() -> Map<String, Value> {
    compose("compose.yaml")["services"]
        .as_object()
        .unwrap()
        .clone()
}

fn service(name: &str) -> Value {
    services()[name].clone()
}

fn strings(value: &Value) -> Vec<String> {
    array(value).iter().map(text).collect()
}

/// Parses the words of a command line.
fn parsed(words: &[String]) -> Cli {
    let program = "orgdata-exporter".to_owned();
    let words = [&[program], words].concat();
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
        let are_local = ports.iter().all(|port| port.starts_with("127.0.0.1:"));
        assert!(are_local, "{name}: {ports:?}");
        let image = text(&service["image"]);
        let here = path("deploy/compose");
        if OURS.contains(&name.as_str()) {
            let [context, file] = ["context", "dockerfile"].map(|key| text(&service["build"][key]));
            assert!(here.join(context).join(file).is_file(), "{name}");
        } else {
            let (registry, tag) = image.rsplit_once(':').unwrap();
            let is_fixed = registry.starts_with("docker.io/") && tag.split('.').count() == 3;
            assert!(is_fixed, "{image}");
        }
        for volume in strings(&service["volumes"]) {
            let (source, target) = volume.split_once(':').unwrap();
            let is_there = match source.starts_with('.') {
                true => here.join(source).exists() && target.ends_with(":ro"),
                false => volumes.get(source).is_some(),
            };
            assert!(is_there, "{volume}");
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
        let has_key = environment.contains("\"ORGDATA_API_KEY\"") || environment.contains(&key);
        assert!(!has_key, "{name}");
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
    // Each value is one that the flag takes.
    let (command, mut flags) = (Cli::command(), Vec::new());
    for (variable, value) in environment.as_object().unwrap() {
        let mut arguments = command.get_arguments();
        let reads = |env: &OsStr| env == variable.as_str();
        let flag = arguments.find(|argument| argument.get_env().is_some_and(reads));
        assert!(
            flag.is_some() || !variable.starts_with("ORGDATA_"),
            "{variable}"
        );
        if let Some(flag) = flag {
            let value = value.as_str().expect("quotes");
            flags.push(format!("--{}={value}", flag.get_long().unwrap()));
        }
    }
    parsed(&flags);
    // It is not killed while it still sends: --shutdown.grace is 10s.
    assert!(duration(&service("exporter")["stop_grace_period"]).as_secs() > 10);

    let dockerfile = file("deploy/image/Dockerfile");
    assert!(dockerfile.contains(concat!("ARG VERSION=", env!("CARGO_PKG_VERSION"), "\n")));
    let mut lines = dockerfile.lines();
    let check = lines.find(|line| line.starts_with("HEALTHCHECK")).unwrap();
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
    let loki = &collector["exporters"]["otlp_http/loki"]["endpoint"];
    let scraped = json!(format!("http://{}", text(target)));
    for (url, port) in [
        (&environment["ORGDATA_API_BASE_URL"], 8081),
        (&environment["OTEL_EXPORTER_OTLP_ENDPOINT"], 4317),
        (loki, 3100),
        (&sources[0]["url"], 9090),
        (&sources[1]["url"], 3100),
        (&scraped, 10917),
    ] {
        let url = url::Url::parse(&text(url)).unwrap();
        let is_known = services().contains_key(url.host_str().unwrap());
        assert!(is_known && url.port() == Some(port), "{url}");
    }
    // Loki refuses the attributes of a record without structured metadata. That the collector answers for Loki, tests/real/examples.rs shows.
    let loki = compose("loki.yaml");
    assert_has!(loki, { "server": { "http_listen_port": 3100 }, "limits_config": { "allow_structured_metadata": true } });
    assert_eq!(loki["schema_config"]["configs"][0]["schema"], "v13");

    // The dashboards find their data.
    let interval = &prometheus["global"]["scrape_interval"];
    assert_has!(sources[0], { "type": "prometheus", "isDefault": true, "jsonData": { "timeInterval": interval } });
    let provider = compose("grafana/dashboards/dashboards.yaml");
    let directory = text(&provider["providers"][0]["options"]["path"]);
    let grafana = service("grafana");
    assert!(strings(&grafana["volumes"]).contains(&format!("../../dashboards:{directory}:ro")));
    let home = text(&grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]);
    let home = yaml(&home.replace(&directory, "dashboards"));
    assert_eq!(home["uid"], "organization-activity");
    let records = yaml("dashboards/organization-records.json");
    let loki = named(&records["templating"]["list"], "loki");
    assert_has!(*loki, { "type": "datasource", "query": sources[1]["type"] });
}
