//! rotel, another vendor's collector, reads the records of the built exporter.

use crate::organization;
use crate::support::binary::exporter;
use crate::support::parts::Rotel;

/// Returns the value of a line such as `EventName: x` or `     -> log.record.uid: Str(x)`.
fn field(record: &str, name: &str) -> String {
    let value = record.lines().find_map(|line| {
        let line = line.trim_start_matches([' ', '-', '>']);
        line.strip_prefix(name)?.strip_prefix(": ")
    });
    value
        .unwrap_or_else(|| panic!("no {name} in {record}"))
        .to_owned()
}

#[tokio::test]
#[ignore = "needs rotel"]
async fn rotel_prints_every_record() {
    let names = ["log.record.uid", "EventName", "orgdata.activity.type"];
    for protocol in ["grpc", "http/protobuf"] {
        let simulator = organization(40, 0).await;
        let rotel = Rotel::start().await;
        let exporter = exporter(&simulator.base_url())
            .otlp(protocol, &rotel.endpoint(protocol))
            .flag("--audit.start", "oldest")
            .env("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
            .listening()
            .await;
        exporter.synced().await;
        simulator.add_events(60);
        exporter.settled(60).await;

        let printed = rotel.printed_at_least(100).await;
        let printed = printed.iter();
        let printed = printed.map(|record| names.map(|name| field(record, name)));
        let expected = simulator.entries().map(|entry| {
            let kind = entry.activity_type;
            [
                format!("Str({})", entry.id),
                format!("orgdata.audit.{}", kind.to_lowercase()),
                format!("Str({kind})"),
            ]
        });
        assert!(printed.eq(expected), "{protocol}");
    }
}
