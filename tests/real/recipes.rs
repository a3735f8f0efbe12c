//! The recipes of `docs/recipes.md` in the programs that they are for. `examples.rs` has the one for several organizations.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::files::{file, text, yaml};
use crate::support::parts::{Collector, VictoriaLogs, binary, output, run};
use crate::{organization, sending};

/// Returns the records of a collector with this processor of a recipe.
async fn transformed(recipe: &Value, processor: &str) -> Vec<Value> {
    let collector = Collector::start_with("otelcol-old", |config| {
        config["processors"] = recipe["processors"].clone();
        config["service"]["pipelines"]["logs"]["processors"] = json!([processor]);
    })
    .await;
    let simulator = organization(100, 0).await;
    let _exporter = sending(&simulator, "grpc", &collector.endpoint("grpc")).start();
    collector.records_at_least(100).await
}

#[tokio::test]
#[ignore = "needs the OpenTelemetry Collector with the transform processor"]
async fn a_collector_maps_every_record_to_an_ocsf_event() {
    let recipe = "deploy/recipes/ocsf.yaml";
    run("otelcol-old", &["validate", "--config", recipe], "").unwrap();
    for record in transformed(&yaml(recipe), "transform/ocsf").await {
        let (event, attributes) = (&record["body"], &record["attributes"]);
        let activity = event["activity_id"].as_i64().unwrap();
        let kind = text(&attributes["orgdata.activity.type"]);
        let is_created = kind.ends_with("_CREATED") || kind.ends_with("_ADDED");
        assert_eq!(activity == 1, is_created, "{kind}");
        let fixed = ["category_uid", "class_uid", "severity_id", "type_uid"].map(|key| &event[key]);
        assert_eq!(json!(fixed), json!([3, 3004, 1, 300_400 + activity]));
        assert_eq!(event["metadata"]["uid"], attributes["log.record.uid"]);
        assert_eq!(event["unmapped"]["id"], attributes["log.record.uid"]);
        assert_eq!(event["actor"]["user"]["uid"], attributes["user.id"]);
        let nanoseconds: i64 = text(&record["timeUnixNano"]).parse().unwrap();
        assert_eq!(event["time"], nanoseconds / 1_000_000);
        assert!(event["entity"]["uid"].is_string(), "{event}");
    }
}

/// The collectors of the tests have no storage, so the queues are in memory here.
#[tokio::test]
#[ignore = "needs the OpenTelemetry Collector and VictoriaLogs"]
async fn a_collector_sends_every_record_to_two_stores_and_a_query_finds_those_of_a_deal() {
    let (first, second) = (VictoriaLogs::start().await, VictoriaLogs::start().await);
    let recipe = yaml("deploy/recipes/two-stores.yaml");
    let collector = Collector::start_with("otelcol", |config| {
        let mut exporters = recipe["exporters"].clone();
        for (name, store) in [("first", &first), ("second", &second)] {
            let exporter = &mut exporters[format!("otlp_http/{name}")];
            exporter["logs_endpoint"] = store.endpoint().into();
            let queue = exporter["sending_queue"].as_object_mut().unwrap();
            assert_eq!(queue.remove("storage"), Some(json!("file_storage")));
        }
        let names = &recipe["service"]["pipelines"]["logs"]["exporters"];
        config["service"]["pipelines"]["logs"]["exporters"] = names.clone();
        config["exporters"] = exporters;
        config["service"]["pipelines"]
            .as_object_mut()
            .unwrap()
            .retain(|name, _| name == "logs");
    })
    .await;
    let simulator = organization(100, 0).await;
    let _exporter = sending(&simulator, "grpc", &collector.endpoint("grpc")).start();
    for store in [first, second] {
        let records = store.finds("*", 101).await;
        let deal = records
            .iter()
            .find_map(|record| record["orgdata.deal.id"].as_str());
        let deal = deal.unwrap();
        let is_of_it = |record: &&Value| record["orgdata.deal.id"] == deal;
        let count = records.iter().filter(is_of_it).count();
        let queries = file("docs/recipes.md");
        let queries: Vec<&str> = queries
            .lines()
            .filter(|line| line.contains("{service.name="))
            .collect();
        store.finds(&queries[0].replace("11", deal), count).await;
        // The last checkpoint is not two hours old.
        store.finds(queries[3], 0).await;
        let silent = queries[3].replace("orgdata-exporter", "another");
        store.finds(&silent, 1).await;
    }
}

/// The example in `docs/log-records.md`.
#[tokio::test]
#[ignore = "needs the OpenTelemetry Collector with the transform processor"]
async fn a_collector_makes_a_map_of_the_body() {
    let page = file("docs/log-records.md");
    let example = page.split("```yaml\n").nth(1).unwrap();
    let example: Value = serde_saphyr::from_str(example.split("```").next().unwrap()).unwrap();
    for record in transformed(&example, "transform/body").await {
        assert_eq!(record["body"]["id"], record["attributes"]["log.record.uid"]);
    }
}

/// `.ci/run` leaves it out by its name, because the program takes too long to compile.
#[test]
#[ignore = "needs the program that `.ci/setup interop` builds"]
fn otelcol_scrape_takes_the_recipe() {
    let recipe = "deploy/recipes/metrics-over-otlp.yaml";
    let mut validate = Command::new(binary("otelcol-scrape"));
    validate.env("OTLP_ENDPOINT", "https://otlp.example.com");
    output(validate.args(["validate", "--config", recipe]), "").unwrap();
}
