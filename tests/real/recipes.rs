//! The recipes of `docs/recipes.md` in the programs that they are for.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::organization;
use crate::support::binary::{Scrape, exporter};
use crate::support::files::{array, path, text, yaml};
use crate::support::openmetrics::{Labels, parse, series};
use crate::support::parts::{Collector, binary, client, number, output, promtool, tool, until};

type Series = BTreeMap<(String, Labels), f64>;

#[test]
#[ignore = "needs promtool"]
fn prometheus_takes_the_configuration_for_several_organizations() {
    let mut config = yaml("deploy/recipes/organizations/prometheus.yaml");
    // The path on this machine instead of the one in the container.
    config["rule_files"] = json!([path("dashboards/alerts.yaml")]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("prometheus.yaml");
    std::fs::write(&file, config.to_string()).unwrap();
    promtool(&["check", "config", file.to_str().unwrap()]).unwrap();
}

#[tokio::test]
#[ignore = "needs the OpenTelemetry Collector with the transform processor"]
async fn a_collector_maps_every_record_to_an_ocsf_event() {
    let recipe = "deploy/recipes/ocsf.yaml";
    tool("otelcol-old", &["validate", "--config", recipe]).unwrap();
    let collector = Collector::start_program("otelcol-old", |config| {
        config["processors"] = yaml(recipe)["processors"].clone();
        config["service"]["pipelines"]["logs"]["processors"] = json!(["transform/ocsf"]);
    })
    .await;
    let simulator = organization(100, 0).await;
    let launch = exporter(&simulator.base_url()).flag("--audit.start", "oldest");
    let exporter = launch.otlp("grpc", &collector.endpoint("grpc")).start();
    let records = collector.records_at_least(100).await;
    drop(exporter);
    for record in records {
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

/// Returns the series of the last scrape that arrived, named as in a scrape, and the number of scrapes.
fn pushed(file: &Path) -> (Series, usize) {
    let requests = std::fs::read_to_string(file).unwrap_or_default();
    let whole = requests.split_inclusive('\n');
    let whole: Vec<&str> = whole.filter(|line| line.ends_with('\n')).collect();
    let last: Value = serde_json::from_str(whole.last().unwrap_or(&"{}")).unwrap();
    let mut series = Series::new();
    let resources = array(&last["resourceMetrics"]).iter();
    let scopes = resources.flat_map(|resource| array(&resource["scopeMetrics"]));
    for metric in scopes.flat_map(|scope| array(&scope["metrics"])) {
        let name = text(&metric["name"]);
        let mut add = |suffix: &str, point: &Value, le: Option<String>, value: f64| {
            let attributes = array(&point["attributes"]).iter();
            let label = |pair: &Value| (text(&pair["key"]), text(&pair["value"]["stringValue"]));
            let mut labels: Labels = attributes.map(label).collect();
            labels.extend(le.map(|bound| ("le".to_owned(), bound)));
            labels.sort();
            let twice = series.insert((format!("{name}{suffix}"), labels), value);
            assert_eq!(twice, None, "{name}{suffix} comes twice: {point}");
        };
        for kind in ["sum", "gauge"] {
            for point in array(&metric[kind]["dataPoints"]) {
                add("", point, None, point["asDouble"].as_f64().unwrap());
            }
        }
        for point in array(&metric["histogram"]["dataPoints"]) {
            let bounds = array(&point["explicitBounds"]).iter();
            let bounds = bounds.map(|bound| format!("{:?}", bound.as_f64().unwrap()));
            let mut count = 0.0;
            for (bound, bucket) in bounds
                .chain(["+Inf".to_owned()])
                .zip(array(&point["bucketCounts"]))
            {
                count += number(bucket);
                add("_bucket", point, Some(bound), count);
            }
            // JSON leaves out a count of 0.
            let total = point.get("count").map_or(0.0, number);
            add("_count", point, None, total);
            add("_sum", point, None, point["sum"].as_f64().unwrap());
        }
        for kind in ["sum", "histogram"] {
            let cumulative = metric[kind].is_null() || metric[kind]["aggregationTemporality"] == 2;
            assert!(cumulative, "{metric}");
        }
    }
    (series, whole.len())
}

/// `.ci/run` leaves it out by its name, because the program takes too long to compile.
#[tokio::test]
#[ignore = "needs the program that `.ci/setup interop` builds"]
async fn otelcol_scrape_pushes_every_series_over_otlp() {
    let recipe = "deploy/recipes/metrics-over-otlp.yaml";
    let mut validate = Command::new(binary("otelcol-scrape"));
    validate.env("OTLP_ENDPOINT", "https://otlp.example.com");
    output(validate.args(["validate", "--config", recipe]), "").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("metrics.jsonl");
    let store = Collector::start_with(|config| {
        // A file that may rotate is written without a buffer.
        let rotation = json!({ "max_megabytes": 4096 });
        config["exporters"] = json!({ "file": { "path": file, "rotation": rotation } });
        config["service"]["pipelines"] =
            json!({ "metrics": { "receivers": ["otlp"], "exporters": ["file"] } });
    })
    .await;
    let simulator = organization(5, 20).await;
    let exporter = exporter(&simulator.base_url()).listening().await;
    exporter.synced().await;
    simulator.add_events(10);
    let counted = |scrape: &Scrape| scrape.sum("orgdata_audit_events_total") == 10.0;
    exporter.until("10 events", counted).await;

    let _scraper = Collector::start_program("otelcol-scrape", |config| {
        let usual = config.take();
        *config = yaml(recipe);
        config["extensions"] = usual["extensions"].clone();
        for key in ["extensions", "telemetry"] {
            config["service"][key] = usual["service"][key].clone();
        }
        let scrape = &mut config["receivers"]["prometheus"]["config"]["scrape_configs"][0];
        scrape["scrape_interval"] = json!("1s");
        scrape["static_configs"][0]["targets"] = json!([exporter.address().to_string()]);
        let endpoint = &mut config["exporters"]["otlp_http"]["endpoint"];
        assert_eq!(*endpoint, "${env:OTLP_ENDPOINT}");
        *endpoint = json!(store.endpoint("http/protobuf"));
    })
    .await;
    let scraped = async || {
        let request = client().get(format!("{}/metrics", exporter.url().await));
        let request = request.header("accept", "application/openmetrics-text; version=1.0.0");
        let answer = request.send().await.unwrap().text().await.unwrap();
        series(&parse(&answer).unwrap())
    };
    let before = scraped().await;
    let (_, earlier) = pushed(&file);
    // The next one can be of a scrape that began before.
    let arrived = until(async || {
        let (series, scrapes) = pushed(&file);
        let is_newer = scrapes >= earlier + 2;
        is_newer.then_some(series).ok_or("no newer scrape")
    })
    .await;
    let after = scraped().await;
    let mut compared = 0;
    for (series, value) in before {
        let found = arrived.get(&series);
        assert!(found.is_some(), "{series:?} did not arrive: {arrived:#?}");
        // The memory can change and change back.
        if after.get(&series) == Some(&value) && !series.0.starts_with("process_") {
            assert_eq!(found, Some(&value), "{series:?}");
            compared += 1;
        }
    }
    assert!(compared > arrived.len() / 2, "{compared} compared");
}
