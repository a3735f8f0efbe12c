//! A real OpenTelemetry Collector that does not take what it is sent, each time for a reason an operator knows: the exporter holds
//! everything, names the reason, and delivers all of it in order once the reason is gone.

use crate::support::exporter;
use crate::support::parts;
use crate::support::tap;

use std::net::SocketAddr;

use exporter::{Exporter, Setup};
use orgdata_exporter::simulator::{ClockSource, Config, Fields, Running, Simulator};
use parts::Collector;
use serde_json::json;
use tap::Tap;

/// Events that are there when the exporter begins.
const EVENTS: u64 = 120;

async fn world() -> Running {
    Simulator::spawn(Config {
        history: EVENTS,
        clock: ClockSource::Real,
        ..Config::quiet()
    })
    .await
    .expect("a free port")
}

fn setup(simulator: &Running, protocol: &str, endpoint: &str) -> Setup {
    Setup::new(simulator)
        .flag("--audit.start", "oldest")
        .flag("--otlp.endpoint", endpoint)
        .flag("--otlp.protocol", protocol)
}

fn address(endpoint: &str) -> SocketAddr {
    endpoint
        .trim_start_matches("http://")
        .parse()
        .expect("an endpoint on loopback")
}

/// Everything waits, nothing is condemned, and the line that says so names the trouble.
async fn assert_holds(exporter: &Exporter, reason: &str, words: &str) {
    let failures = format!("orgdata_otlp_request_failures_total{{reason=\"{reason}\"}}");
    let scrape = exporter
        .until(&failures, |scrape| {
            scrape.value(&failures).is_some_and(|count| count > 0.0)
                && scrape.value("orgdata_otlp_backlog_records") == Some(EVENTS as f64)
        })
        .await;
    assert_eq!(scrape.value("orgdata_up{loop=\"otlp\"}"), Some(0.0));
    assert_eq!(
        scrape.value("orgdata_otlp_records_dead_lettered_total"),
        Some(0.0)
    );
    let lines: Vec<String> = exporter
        .log()
        .iter()
        .filter_map(|line| line["message"].as_str().map(str::to_owned))
        .collect();
    let told = lines
        .iter()
        .any(|line| line.contains("log records not delivered") && line.contains(words));
    assert!(told, "no line speaks of '{words}': {lines:#?}");
}

/// Everything arrives, once and oldest first.
async fn assert_delivers(simulator: &Simulator, exporter: &Exporter, collector: &Collector) {
    exporter
        .until("an empty outbox", |scrape| {
            scrape.value("orgdata_otlp_records_sent_total") == Some(EVENTS as f64)
        })
        .await;
    let records = collector.records();
    let came: Vec<&str> = records
        .iter()
        .filter_map(|record| record.attributes["log.record.uid"].as_str())
        .collect();
    let served: Vec<String> = simulator.entries().map(|entry| entry.id).collect();
    assert!(
        came.iter().eq(&served),
        "{} records came, of {} entries, or in another order",
        came.len(),
        served.len()
    );
}

#[tokio::test]
#[ignore = "needs the OpenTelemetry Collector"]
async fn a_collector_that_wants_client_certificates_takes_nothing_without_and_everything_with_one()
{
    let file = |name: &str| format!("{}/tests/support/tls/{name}", env!("CARGO_MANIFEST_DIR"));
    let tls = json!({ "cert_file": file("server.pem"), "key_file": file("server.key"), "client_ca_file": file("ca.pem") });
    for protocol in ["grpc", "http/protobuf"] {
        let simulator = world().await;
        let collector = Collector::start_with(|config| {
            for name in ["grpc", "http"] {
                config["receivers"]["otlp"]["protocols"][name]["tls"] = tls.clone();
            }
        })
        .await;
        let plain = if protocol == "grpc" {
            collector.grpc_endpoint()
        } else {
            collector.http_endpoint()
        };
        let endpoint = format!("https://localhost:{}", address(&plain).port());
        let directory = tempfile::tempdir().expect("a directory");
        let without = setup(&simulator, protocol, &endpoint)
            .state(&directory.path().join("state.db"))
            .variable("OTEL_EXPORTER_OTLP_CERTIFICATE", &file("ca.pem"));
        let mut exporter = without.start().await;
        // Depending on who is quicker, the alert is read, or only that the connection is gone.
        assert_holds(&exporter, "connect", "ertificate").await;
        assert!(exporter.terminate().await.success());
        assert_eq!(collector.records(), []);

        let with = without
            .variable("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", &file("client.pem"))
            .variable("OTEL_EXPORTER_OTLP_CLIENT_KEY", &file("client.key"));
        let exporter = with.start().await;
        assert_delivers(&simulator, &exporter, &collector).await;
    }
}

#[tokio::test]
#[ignore = "needs the OpenTelemetry Collector"]
async fn the_port_of_the_other_protocol_takes_nothing_and_says_so() {
    for (protocol, words) in [
        ("grpc", "does this port speak gRPC (4317 by custom)"),
        (
            "http/protobuf",
            "does this port speak HTTP (4318 by custom)",
        ),
    ] {
        let simulator = world().await;
        let collector = Collector::start().await;
        let (right, wrong) = match protocol {
            "grpc" => (collector.grpc_endpoint(), collector.http_endpoint()),
            _ => (collector.http_endpoint(), collector.grpc_endpoint()),
        };
        let wire = Tap::new(Some(address(&wrong))).await;
        let exporter = setup(&simulator, protocol, &format!("http://{}", wire.address()))
            .start()
            .await;
        assert_holds(&exporter, "connect", words).await;
        assert_eq!(collector.records(), []);
        wire.lead(Some(address(&right)));
        assert_delivers(&simulator, &exporter, &collector).await;
    }
}

#[tokio::test]
#[ignore = "needs the OpenTelemetry Collector"]
async fn a_collector_without_a_pipeline_for_logs_takes_nothing_and_says_so() {
    for (protocol, words) in [("grpc", "Unimplemented"), ("http/protobuf", "HTTP 404")] {
        let simulator = world().await;
        let endpoint = |collector: &Collector| {
            if protocol == "grpc" {
                collector.grpc_endpoint()
            } else {
                collector.http_endpoint()
            }
        };
        let without = Collector::start_with(|config| {
            config["service"]["pipelines"]
                .as_object_mut()
                .expect("pipelines")
                .remove("logs");
        })
        .await;
        let wire = Tap::new(Some(address(&endpoint(&without)))).await;
        let exporter = setup(&simulator, protocol, &format!("http://{}", wire.address()))
            .start()
            .await;
        assert_holds(&exporter, "not_found", words).await;
        let with = Collector::start().await;
        wire.lead(Some(address(&endpoint(&with))));
        drop(without);
        assert_delivers(&simulator, &exporter, &with).await;
    }
}

#[tokio::test]
#[ignore = "needs the OpenTelemetry Collector"]
async fn a_collector_that_reads_less_than_is_sent_gets_smaller_requests() {
    for protocol in ["grpc", "http/protobuf"] {
        let simulator = Simulator::spawn(Config {
            history: 0,
            clock: ClockSource::Real,
            ..Config::quiet()
        })
        .await
        .expect("a free port");
        // Three megabytes in all, which the exporter would send as one request.
        for _ in 0..EVENTS {
            simulator
                .add_entry(&Fields::new().with("metadata", json!({ "text": "x".repeat(25_000) })))
                .expect("a valid entry");
        }
        let collector = Collector::start_with(|config| {
            config["receivers"]["otlp"]["protocols"]["grpc"]["max_recv_msg_size_mib"] = json!(1);
            config["receivers"]["otlp"]["protocols"]["http"]["max_request_body_size"] =
                json!(300_000);
        })
        .await;
        let endpoint = if protocol == "grpc" {
            collector.grpc_endpoint()
        } else {
            collector.http_endpoint()
        };
        let exporter = setup(&simulator, protocol, &endpoint).start().await;
        assert_delivers(&simulator, &exporter, &collector).await;
        let scrape = exporter.scrape().await;
        assert_eq!(
            scrape.value("orgdata_otlp_records_dead_lettered_total"),
            Some(0.0)
        );
    }
}
