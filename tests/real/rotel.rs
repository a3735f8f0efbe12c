//! rotel, a collector of another house than the OpenTelemetry Collector, reads the records of the built exporter.

use crate::support::exporter;
use crate::support::parts;

use exporter::Setup;
use orgdata_exporter::simulator::{Config, Simulator};
use parts::Rotel;

/// The value of a line such as `EventName: x` or `     -> log.record.uid: Str(x)`.
fn field<'a>(record: &'a str, name: &str) -> &'a str {
    let line = record.lines().find_map(|line| {
        line.trim_start_matches([' ', '-', '>'])
            .strip_prefix(name)?
            .strip_prefix(": ")
    });
    line.unwrap_or_else(|| panic!("no {name} in {record}"))
}

async fn rotel_prints_every_record(protocol: &str, endpoint: impl Fn(&Rotel) -> String) {
    let simulator = Simulator::spawn(Config {
        history: 40,
        ..Config::quiet()
    })
    .await
    .expect("a free port");
    let rotel = Rotel::start().await;
    let exporter = Setup::new(&simulator)
        .flag("--otlp.endpoint", &endpoint(&rotel))
        .flag("--otlp.protocol", protocol)
        .flag("--audit.start", "oldest")
        .variable("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
        .start()
        .await;
    exporter.born().await;
    simulator.add_events(60);
    exporter.settled(60).await;

    let printed = rotel.printed_at_least(100).await;
    let said: Vec<[String; 4]> = printed
        .iter()
        .map(|record| {
            [
                "log.record.uid",
                "EventName",
                "SeverityNumber",
                "orgdata.activity.type",
            ]
            .map(|name| field(record, name).to_owned())
        })
        .collect();
    let expected: Vec<[String; 4]> = simulator
        .entries()
        .map(|entry| {
            let event = format!("orgdata.audit.{}", entry.activity_type.to_lowercase());
            [
                format!("Str({})", entry.id),
                event,
                "SEVERITY_NUMBER_INFO(9)".to_owned(),
                format!("Str({})", entry.activity_type),
            ]
        })
        .collect();
    assert_eq!(said, expected);
}

#[tokio::test]
#[ignore = "needs rotel"]
async fn rotel_prints_every_record_over_grpc() {
    rotel_prints_every_record("grpc", Rotel::grpc_endpoint).await;
}

#[tokio::test]
#[ignore = "needs rotel"]
async fn rotel_prints_every_record_over_http() {
    rotel_prints_every_record("http/protobuf", Rotel::http_endpoint).await;
}
