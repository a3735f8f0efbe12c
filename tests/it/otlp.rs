//! Delivery over real connections: order, splitting, headers. Time is tested beside the relay; answers, ports and TLS with `check`.

use std::time::Duration;

use opentelemetry_proto::tonic::logs::v1::LogRecord;
use orgdata_simulator::{Fields, Running};
use serde_json::json;

use crate::support::binary::{Scrape, exporter};
use crate::support::collector_peer::Peer;
use crate::support::service::organization;

/// The default size limit of a gRPC server.
pub(crate) const DEFAULT_LIMIT: usize = 4 * 1024 * 1024;

pub(crate) async fn peer(protocol: &str, limit: usize) -> Peer {
    match protocol {
        "grpc" => Peer::grpc(limit).await,
        _ => Peer::http(limit).await,
    }
}

fn ids(api: &Running) -> Vec<String> {
    api.entries().map(|entry| entry.id).collect()
}

/// Delivers the history without a dead letter. Returns the number of records in each request.
async fn deliver(
    api: &Running,
    peer: &Peer,
    protocol: &str,
    variables: &[(&str, &str)],
) -> Vec<usize> {
    let launch = exporter(&api.base_url())
        .flag("--audit.start", "oldest")
        .flag("--audit.poll-interval", "10s")
        .otlp(protocol, &peer.url());
    let launch = variables
        .iter()
        .fold(launch, |launch, (name, value)| launch.env(name, value));
    let exporter = launch.start();
    let is_done = |scrape: &Scrape| {
        scrape.value("orgdata_audit_history_complete") == Some(1.0)
            && scrape.value("orgdata_otlp_backlog_records") == Some(0.0)
    };
    let scrape = exporter.until("all delivered", is_done).await;
    assert_eq!(scrape.sum("orgdata_dead_letters_total"), 0.0);
    let sizes = peer.requests().into_iter().map(|ids| ids.len());
    sizes.filter(|size| *size > 0).collect()
}

#[tokio::test]
async fn headers_and_resource_of_the_environment_are_sent() {
    let api = organization(600, 0).await;
    for (protocol, compression) in [("grpc", "gzip"), ("http/protobuf", "none")] {
        let peer = peer(protocol, DEFAULT_LIMIT).await;
        // What describes the body cannot be set from outside.
        let over_body = "content-encoding=br,content-type=text%2Fplain,content-length=7";
        let (kind, headers) = match protocol {
            "grpc" => ("application/grpc", "x-tenant=a%20b".to_owned()),
            _ => (
                "application/x-protobuf",
                format!("x-tenant=a%20b,{over_body}"),
            ),
        };
        let variables = [
            ("OTEL_EXPORTER_OTLP_COMPRESSION", compression),
            ("OTEL_EXPORTER_OTLP_HEADERS", &headers),
            ("OTEL_SERVICE_NAME", "audit"),
        ];
        let sizes = deliver(&api, &peer, protocol, &variables).await;
        assert_eq!((sizes, peer.taken_ids()), (vec![512, 88], ids(&api)));
        let headers = peer.script.headers.lock().unwrap().clone();
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let encoding = header("grpc-encoding").or(header("content-encoding"));
        assert_eq!(encoding == Some("gzip"), compression == "gzip");
        assert_eq!(header("content-type"), Some(kind));
        assert_eq!(header("x-tenant"), Some("a b"));
        let agent = header("user-agent").unwrap();
        assert!(agent.starts_with("orgdata-exporter/"), "{agent}");
        let last = peer.script.last.lock().unwrap().clone();
        let logs = &last.unwrap().resource_logs[0];
        let resource = format!("{:?}", logs.resource);
        let is_described =
            resource.contains("\"audit\"") && resource.contains("service.instance.id");
        assert!(is_described, "{resource}");
        let scope = logs.scope_logs[0].scope.as_ref().unwrap();
        assert_eq!(scope.name, "orgdata.audit");
    }
}

#[tokio::test]
async fn requests_stay_below_the_default_limit_and_a_huge_record_is_cut_to_fit() {
    let api = organization(0, 0).await;
    for size in [900_000, 900_000, 900_000, 900_000, 3_500_000, 10] {
        let fields = Fields::new().with("metadata", json!({ "x": "x".repeat(size) }));
        api.add_entry(&fields).unwrap();
        api.advance(Duration::from_secs(1));
    }
    let peer = Peer::grpc(DEFAULT_LIMIT).await;
    let sizes = deliver(&api, &peer, "grpc", &[]).await;
    // Nothing was rejected, and no request was larger than 3 MiB.
    assert!(sizes.len() >= 3, "{sizes:?}");
    assert_eq!(peer.taken_ids(), ids(&api));
    let taken = peer.script.taken.lock().unwrap();
    let is_cut = |record: &LogRecord| {
        let mut keys = record.attributes.iter().map(|attribute| &attribute.key);
        keys.any(|key| key == "orgdata.record.cut")
    };
    let cut: Vec<bool> = taken.iter().map(is_cut).collect();
    assert_eq!(cut, [false, false, false, false, true, false]);
}
