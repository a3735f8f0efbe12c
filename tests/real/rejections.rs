//! A real OpenTelemetry Collector does not take the records, each time for a reason that operators know: the exporter keeps them, logs the
//! reason, and delivers them in order once the reason is gone.

use orgdata_simulator::Simulator;
use serde_json::{Value, json};

use crate::support::binary::Exporter;
use crate::support::files::tls as file;
use crate::support::parts::{Collector, until};
use crate::support::tap::Tap;
use crate::{organization, sending};

/// The number of events that exist when the exporter starts.
const EVENTS: u64 = 120;

/// The number of their records, and a checkpoint.
const WAITING: f64 = EVENTS as f64 + 1.0;

const DEAD_LETTERS: &str = "orgdata_dead_letters_total";

/// Asserts that everything waits, nothing is rejected, and the log says why.
async fn assert_waits(exporter: &Exporter, reason: &str, words: &str) {
    let failures = format!("orgdata_otlp_request_failures_total{{reason=\"{reason}\"}}");
    let waits = exporter.until(&failures, |scrape| {
        scrape.value(&failures) > Some(0.0)
            && scrape.value("orgdata_otlp_backlog_records") == Some(WAITING)
    });
    let scrape = waits.await;
    assert_eq!(scrape.value("orgdata_up{loop=\"otlp\"}"), Some(0.0));
    assert_eq!(scrape.sum(DEAD_LETTERS), 0.0);
    exporter.logs(&format!("delivery failed | {words}")).await;
}

/// Asserts that everything arrives once, in order of creation.
async fn assert_delivers(simulator: &Simulator, exporter: &Exporter, collector: &Collector) {
    let sent = "orgdata_otlp_records_sent_total";
    exporter.until_value(sent, WAITING).await;
    let served: Vec<String> = simulator.entries().map(|entry| entry.id).collect();
    assert_eq!(collector.ids(), served);
    assert_eq!(exporter.sum(DEAD_LETTERS).await, 0.0);
}

#[tokio::test]
#[ignore = "needs the OpenTelemetry Collector"]
async fn a_collector_with_client_certificates_gets_records_once_there_is_one() {
    let tls = json!({ "cert_file": file("server.pem"), "key_file": file("server.key"), "client_ca_file": file("ca.pem") });
    for protocol in ["grpc", "http/protobuf"] {
        let simulator = organization(EVENTS, 0).await;
        let collector = Collector::start_with("otelcol", |config| {
            for name in ["grpc", "http"] {
                config["receivers"]["otlp"]["protocols"][name]["tls"] = tls.clone();
            }
        });
        let collector = collector.await;
        let endpoint = collector.endpoint(protocol);
        let endpoint = endpoint.replace("http://127.0.0.1", "https://localhost");
        let without = sending(&simulator, protocol, &endpoint)
            .on_disk()
            .env("OTEL_EXPORTER_OTLP_CERTIFICATE", &file("ca.pem"));
        let mut exporter = without.listening().await;
        assert_waits(&exporter, "connect", "ertificate").await;
        assert_eq!(exporter.stop().await, Some(0));
        assert!(collector.ids().is_empty());

        let with = without
            .env("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", &file("client.pem"))
            .env("OTEL_EXPORTER_OTLP_CLIENT_KEY", &file("client.key"));
        let exporter = with.listening().await;
        assert_delivers(&simulator, &exporter, &collector).await;
    }
}

#[tokio::test]
#[ignore = "needs the OpenTelemetry Collector"]
async fn a_wrong_port_a_missing_pipeline_and_a_full_collector_are_named() {
    let without_logs = |config: &mut Value| {
        let pipelines = config["service"]["pipelines"].as_object_mut();
        pipelines.unwrap().remove("logs");
    };
    let limit = json!({ "check_interval": "50ms", "limit_mib": 1, "spike_limit_mib": 0 });
    let without_memory = |config: &mut Value| {
        config["processors"]["memory_limiter"] = limit.clone();
        config["service"]["pipelines"]["logs"]["processors"] = json!(["memory_limiter"]);
    };
    let (grpc, http) = ("grpc", "http/protobuf");
    let speaks = [
        "this port speaks gRPC (port 4317 by convention)",
        "this port speaks HTTP (port 4318 by convention)",
    ];
    for (protocol, served_by, reason, words) in [
        (grpc, http, "connect", speaks[0]),
        (http, grpc, "connect", speaks[1]),
        (grpc, grpc, "wrong_endpoint", "Unimplemented"),
        (http, http, "wrong_endpoint", "HTTP 404"),
        (grpc, grpc, "unavailable", "memory"),
        (http, http, "unavailable", "HTTP 503"),
    ] {
        let simulator = organization(EVENTS, 0).await;
        let wrong = match reason {
            "connect" => Collector::start().await,
            "wrong_endpoint" => Collector::start_with("otelcol", without_logs).await,
            _ => Collector::start_with("otelcol", without_memory).await,
        };
        if reason == "unavailable" {
            // It takes records until it first looks at the memory.
            let rejects = async || match wrong.printed("Refusing data") {
                0 => Err("the collector does not reject"),
                _ => Ok(()),
            };
            until(rejects).await;
        }
        let wire = Tap::new(None).await;
        wire.lead_to_url(&wrong.endpoint(served_by));
        let exporter = sending(&simulator, protocol, &wire.url()).start();
        assert_waits(&exporter, reason, words).await;
        assert!(wrong.ids().is_empty());
        let right = Collector::start().await;
        wire.lead_to_url(&right.endpoint(protocol));
        drop(wrong);
        assert_delivers(&simulator, &exporter, &right).await;
    }
}
