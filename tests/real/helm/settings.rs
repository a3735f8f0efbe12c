//! The exporter takes what the chart makes of the values.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use clap::{CommandFactory, Parser};
use orgdata_exporter::cli::{Cli, Settings};
use serde_json::Value;

use super::chart::{Objects, features, objects};
use super::{set, text};

/// The directories that the chart mounts.
const MOUNTED: [&str; 2] = ["/etc/orgdata-exporter", "/var/lib/orgdata-exporter"];

/// The variables of the exporter's container, with a directory of the test in the place of those that are mounted.
fn variables(objects: &Objects, dir: &Path) -> BTreeMap<String, String> {
    let data = &objects[&(
        "ConfigMap".to_owned(),
        text(&set(objects)["metadata"]["name"]),
    )]["data"];
    let here = |value: &Value| {
        MOUNTED.iter().fold(text(value), |value, mount| {
            value.replace(mount, &dir.join(&mount[1..]).display().to_string())
        })
    };
    let mut variables: BTreeMap<String, String> = data
        .as_object()
        .expect("a map")
        .iter()
        .map(|(name, value)| (name.clone(), here(value)))
        .collect();
    for variable in set(objects)["spec"]["template"]["spec"]["containers"][0]["env"]
        .as_array()
        .expect("a list")
    {
        if variable["value"].is_string() {
            variables.insert(text(&variable["name"]), here(&variable["value"]));
        }
    }
    variables
}

/// What the mounted Secrets and ConfigMaps hold.
fn fill(dir: &Path, variables: &BTreeMap<String, String>) {
    let tls = |name: &str| {
        fs::read(
            Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("tests/support/tls")
                .join(name),
        )
        .expect("a file")
    };
    for (name, path) in variables
        .iter()
        .filter(|(_, value)| Path::new(value).starts_with(dir))
    {
        fs::create_dir_all(Path::new(path).parent().expect("a directory")).expect("made");
        let content = match name.as_str() {
            "ORGDATA_STATE_PATH" => continue,
            "ORGDATA_API_CA_FILE" | "OTEL_EXPORTER_OTLP_CERTIFICATE" => tls("ca.pem"),
            "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE" => tls("client.pem"),
            "OTEL_EXPORTER_OTLP_CLIENT_KEY" => tls("client.key"),
            "ORGDATA_WEB_CONFIG_FILE" => b"rate_limit: {}\n".to_vec(),
            _ => b"0123456789abcdef0123456789abcdef".to_vec(),
        };
        fs::write(path, content).expect("written");
    }
}

#[test]
#[ignore = "needs helm: run .ci/setup"]
fn the_exporter_takes_the_settings_of_every_example() {
    let command = Cli::command();
    for (feature, values) in features() {
        let dir = tempfile::tempdir().expect("a directory");
        let objects = objects(&values);
        let variables = variables(&objects, dir.path());
        fill(dir.path(), &variables);
        // As arguments, since the variables of this process are those of all tests.
        let flag = |(name, value): (&String, &String)| {
            let argument = command
                .get_arguments()
                .find(|argument| argument.get_env().is_some_and(|env| env == name.as_str()))?;
            Some(format!("--{}={value}", argument.get_long()?))
        };
        let more = set(&objects)["spec"]["template"]["spec"]["containers"][0]["args"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let arguments = std::iter::once("orgdata-exporter".to_owned())
            .chain(variables.iter().filter_map(flag))
            .chain(more.iter().map(text));
        let cli =
            Cli::try_parse_from(arguments).unwrap_or_else(|error| panic!("{feature}: {error}"));
        let settings = Settings::resolve(&cli.flags, &|name| variables.get(name).cloned());
        let settings = settings.unwrap_or_else(|error| panic!("{feature}: {error}"));
        assert_eq!(settings.audit.is_some(), feature != "tickets", "{feature}");
        assert_eq!(settings.tickets.is_some(), feature != "audit", "{feature}");
        assert_eq!(
            settings.otlp.is_some(),
            values.contains("endpoint: http") || values.contains("collector:"),
            "{feature}"
        );
        // Readiness, Service and monitors ask there.
        assert_eq!(settings.web.listen_addresses.len(), 1);
    }
}
