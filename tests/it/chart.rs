//! The Helm chart agrees with the program, with the dashboards and with itself. What it renders is in `real_helm.rs`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use orgdata_exporter::cli::Cli;
use serde_json::Value;

/// What is fixed in the chart: probes, Service and monitors expect that port.
const NOT_TO_BE_SET: [&str; 2] = ["ORGDATA_WEB_LISTEN_ADDRESS", "ORGDATA_WEB_SYSTEMD_SOCKET"];

/// Given by a parent chart, and of no use to this one.
const OF_A_PARENT: [&str; 2] = ["enabled", "global"];

fn chart(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("deploy/helm/orgdata-exporter")
        .join(path)
}

fn text(path: &str) -> String {
    fs::read_to_string(chart(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn yaml(path: &str) -> Value {
    serde_saphyr::from_str(&text(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn schema() -> Value {
    serde_json::from_str(&text("values.schema.json")).expect("JSON")
}

/// A part of the schema, behind its reference if it is one.
fn resolved<'a>(schema: &'a Value, part: &'a Value) -> &'a Value {
    match part["$ref"].as_str() {
        Some(reference) => schema
            .pointer(reference.trim_start_matches('#'))
            .unwrap_or_else(|| panic!("{reference}")),
        None => part,
    }
}

/// Words that are variables of the program.
fn variables(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_uppercase() && c != '_');
    words
        .filter(|word| word.starts_with("ORGDATA_"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_copies_are_those_of_the_repository() {
    // Helm gives a template the files of the chart's own directory only.
    for (directory, name) in [
        ("dashboards", "alerts.yaml"),
        ("dashboards", "exporter-health.json"),
        ("dashboards", "organization-activity.json"),
        ("deploy/kubernetes/components/collector", "collector.yaml"),
    ] {
        let source = fs::read_to_string(
            Path::new(env!("CARGO_MANIFEST_DIR"))
                .join(directory)
                .join(name),
        )
        .expect("a file");
        let copy = format!("files/{name}");
        if std::env::var_os("UPDATE").is_some() {
            fs::write(chart(&copy), &source).expect("the repository is writable");
        }
        assert!(
            text(&copy) == source,
            "{copy} is out of date: UPDATE=1 cargo test --test chart"
        );
    }
}

#[test]
fn the_chart_has_the_version_of_the_program() {
    let about = yaml("Chart.yaml");
    assert_eq!(
        (&about["version"], &about["appVersion"]),
        (
            &env!("CARGO_PKG_VERSION").into(),
            &env!("CARGO_PKG_VERSION").into()
        )
    );
}

#[test]
fn every_variable_of_the_program_can_be_set_in_one_place() {
    let program: BTreeSet<String> = Cli::command()
        .get_arguments()
        .filter_map(|argument| Some(argument.get_env()?.to_str()?.to_owned()))
        .collect();
    let typed: BTreeSet<String> = text("templates/_settings.tpl")
        .split('"')
        .flat_map(variables)
        .collect();
    let free: BTreeSet<String> = schema()["properties"]["settings"]["properties"]
        .as_object()
        .expect("properties")
        .keys()
        .cloned()
        .collect();
    assert!(
        typed.is_disjoint(&free),
        "{:?} would be set twice",
        typed.intersection(&free)
    );
    let fixed = NOT_TO_BE_SET.map(str::to_owned);
    let chart: BTreeSet<String> = typed.union(&free).chain(&fixed).cloned().collect();
    assert_eq!(
        chart.symmetric_difference(&program).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "either values.schema.json or templates/_settings.tpl has each variable of the program, and no other"
    );
}

#[test]
fn the_schema_has_the_values_and_no_others() {
    fn compare(schema: &Value, part: &Value, values: &Value, path: &str) {
        let part = resolved(schema, part);
        let (Some(values), Some(known)) = (values.as_object(), part["properties"].as_object())
        else {
            return;
        };
        // What Kubernetes knows better, and what is a map of names.
        if part["additionalProperties"] != false {
            return;
        }
        let known_keys: BTreeSet<&String> = known
            .keys()
            .filter(|key| !path.is_empty() || !OF_A_PARENT.contains(&key.as_str()))
            .collect();
        if path != "/settings" {
            assert_eq!(known_keys, values.keys().collect(), "{path}");
        }
        for (key, value) in values {
            compare(schema, &known[key], value, &format!("{path}/{key}"));
        }
    }
    let schema = schema();
    compare(&schema, &schema, &yaml("values.yaml"), "");
}

#[test]
fn no_object_of_the_schema_takes_an_unknown_key() {
    fn walk(part: &Value, path: &str) {
        let Some(fields) = part.as_object() else {
            return;
        };
        if part["type"] == "object" && part.get("properties").is_some() {
            assert!(
                part.get("additionalProperties").is_some(),
                "{path} takes any key"
            );
        }
        for (key, value) in fields {
            match value {
                Value::Array(items) => items
                    .iter()
                    .for_each(|item| walk(item, &format!("{path}/{key}"))),
                value => walk(value, &format!("{path}/{key}")),
            }
        }
    }
    let schema = schema();
    assert_eq!(schema["additionalProperties"], false);
    assert!(
        schema["properties"].get("replicas").is_none()
            && schema["properties"].get("replicaCount").is_none()
    );
    walk(&schema, "");
}

#[test]
fn every_link_of_the_readme_leads_somewhere() {
    let page = text("README.md");
    let links: Vec<&str> = page
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .collect();
    assert!(links.len() > 10, "{links:?}");
    for link in links {
        assert!(chart(link).exists(), "README.md: {link}");
    }
}
