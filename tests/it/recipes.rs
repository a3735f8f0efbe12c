//! The recipe for two organizations of `docs/recipes.md`. `tests/real/recipes.rs` runs the others in the programs that they are for.

use orgdata_exporter::simulator::{Config, Simulator};

use crate::support::binary::{KEY, exporter};
use crate::support::files::{text, yaml};

/// Returns the quoted parts of a text that follow this one.
fn quoted<'a>(words: &'a str, before: &str) -> Vec<&'a str> {
    let parts = words.split(before).skip(1);
    parts.map(|part| part.split('"').next().unwrap()).collect()
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
