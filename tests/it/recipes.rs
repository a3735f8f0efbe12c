//! The recipes of `docs/recipes.md`: what their files name exists. `tests/real/recipes.rs` runs them in the programs that they are for.

use std::collections::BTreeSet;

use clap::CommandFactory as _;
use orgdata_exporter::commands::Cli;
use orgdata_exporter::simulator::{Config, Simulator};
use serde_json::{Value, json};

use crate::support::binary::{KEY, exporter};
use crate::support::files::{array, assert_has, file, path, text, yaml};

/// Returns the quoted parts of a text that follow this one.
fn quoted<'a>(words: &'a str, before: &str) -> Vec<&'a str> {
    let parts = words.split(before).skip(1);
    parts.map(|part| part.split('"').next().unwrap()).collect()
}

/// Asserts that each component of a collector's pipelines is configured, and each configured one is used.
fn assert_is_wired(config: &Value) {
    for (_, pipeline) in config["service"]["pipelines"].as_object().unwrap() {
        for kind in ["receivers", "processors", "exporters"] {
            let used: BTreeSet<String> = array(&pipeline[kind]).iter().map(text).collect();
            let configured = config[kind].as_object().into_iter().flatten();
            let configured: BTreeSet<String> = configured.map(|(name, _)| name.clone()).collect();
            assert_eq!(used, configured, "{kind}");
        }
    }
}

#[test]
fn each_organization_has_a_key_a_state_and_a_target_of_its_own() {
    let directory = "deploy/recipes/organizations";
    let compose = yaml(&format!("{directory}/compose.yaml"));
    let prometheus = yaml(&format!("{directory}/prometheus.yaml"));
    let scrape = &prometheus["scrape_configs"][0];
    assert_eq!(scrape["job_name"], "orgdata-exporter");
    let command = Cli::command();
    let mut organizations = Vec::new();
    for (name, service) in compose["services"].as_object().unwrap() {
        assert_has!(service, {
            "read_only": true, "cap_drop": ["ALL"], "security_opt": ["no-new-privileges:true"], "restart": "unless-stopped",
        });
        for volume in array(&service["volumes"]) {
            let volume = text(volume);
            let (source, _) = volume.split_once(':').unwrap();
            let is_there = match source.starts_with('.') {
                true => path(directory).join(source).is_file(),
                false => compose["volumes"].get(source).is_some(),
            };
            assert!(is_there, "{volume}");
        }
        if service["build"].is_null() {
            continue;
        }
        organizations.push(name.clone());
        let dockerfile = text(&service["build"]["dockerfile"]);
        let context = path(directory).join(text(&service["build"]["context"]));
        assert!(context.join(dockerfile).is_file());
        for (variable, _) in service["environment"].as_object().unwrap() {
            let mut variables = command.get_arguments().filter_map(|flag| flag.get_env());
            assert!(
                variables.any(|known| known == variable.as_str()),
                "{variable}"
            );
        }
        assert_has!(service, {
            "environment": { "ORGDATA_API_KEY_FILE": format!("/run/secrets/{name}") },
            "secrets": [name], "volumes": [format!("{name}:/var/lib/orgdata-exporter")],
        });
        let key = format!("./{name}.key");
        assert_eq!(compose["secrets"][name]["file"], key);
        assert!(file("docs/recipes.md").contains(&format!("{name}.key")));
    }
    let targets: Vec<String> = organizations
        .iter()
        .map(|it| format!("{it}:10917"))
        .collect();
    assert_eq!(scrape["static_configs"], json!([{ "targets": targets }]));
    assert_eq!(organizations.len(), 2);
}

/// With a simulated organization for each, in place of the real ones.
#[tokio::test]
async fn the_exporters_of_two_organizations_read_one_each() {
    let services = yaml("deploy/recipes/organizations/compose.yaml")["services"].clone();
    let dir = tempfile::tempdir().unwrap();
    let (mut running, mut read) = (Vec::new(), Vec::new());
    for (name, organization_id) in [("acme", 1), ("globex", 2)] {
        let config = Config {
            history: 1,
            organization_id,
            ..Config::quiet()
        };
        let api = Simulator::spawn(config).await.unwrap();
        let key = dir.path().join(name);
        std::fs::write(&key, KEY).unwrap();
        let mut launch = exporter(&api.base_url()).env("ORGDATA_API_KEY", "");
        for (variable, value) in services[name]["environment"].as_object().unwrap() {
            launch = match variable.as_str() {
                "ORGDATA_API_BASE_URL" => launch,
                "ORGDATA_API_KEY_FILE" => launch.env(variable, key.to_str().unwrap()),
                _ => launch.env(variable, &text(value)),
            };
        }
        running.push((api, launch.listening().await));
    }
    for (_, exporter) in &running {
        exporter.synced().await;
        let metrics = exporter.metrics().await;
        let ids = quoted(&metrics, "orgdata_organization_info{organization_id=\"");
        read.extend(ids.into_iter().map(str::to_owned));
    }
    assert_eq!(read, ["1", "2"]);
}

#[test]
fn the_ocsf_recipe_reads_attributes_of_records_and_sets_what_the_class_requires() {
    let config = yaml("deploy/recipes/ocsf.yaml");
    assert_is_wired(&config);
    let rules = &config["processors"]["transform/ocsf"]["log_statements"][0];
    let statements: Vec<String> = array(&rules["statements"]).iter().map(text).collect();
    let all = statements.join("\n") + &rules["conditions"].to_string().replace('\\', "");
    let records = file("docs/log-records.md");
    for attribute in quoted(&all, "log.attributes[\"") {
        assert!(records.contains(&format!("`{attribute}`")), "{attribute}");
    }
    let set = quoted(&all, "set(log.cache[\"");
    for read in quoted(&all, "log.cache[\"") {
        assert!(set.contains(&read), "{read} is read and never set");
    }
    for required in
        "category_uid class_uid severity_id activity_id type_uid time metadata entity".split(' ')
    {
        let is_set = all.contains(&format!("set(log.body[\"{required}\"]"));
        assert!(
            is_set || all.contains(&format!("\"{required}\": ")),
            "{required}"
        );
    }
}

#[test]
fn the_scraping_recipe_uses_the_job_and_the_port_of_the_exporter() {
    let config = yaml("deploy/recipes/metrics-over-otlp.yaml");
    assert_is_wired(&config);
    let scrapes = &config["receivers"]["prometheus"]["config"]["scrape_configs"];
    let scrape = &yaml("deploy/prometheus/prometheus.yml")["scrape_configs"][0];
    assert_has!(scrapes[0], {
        "job_name": scrape["job_name"], "static_configs": scrape["static_configs"],
    });
}
