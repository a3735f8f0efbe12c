//! Delivery over real connections: order, splitting, headers. Time is tested beside the relay; answers, ports and TLS with `check`.

use std::time::Duration;

use opentelemetry_proto::tonic::logs::v1::LogRecord;
use orgdata_simulator::{Fields, Running};
use serde_json::json;

use crate::support::binary::{Scrape, exporter, until};
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

/// Delivers the history in its order and without a dead letter. Returns the number of records in each request.
async fn deliver(api: &Running, peer: &Peer, protocol: &str, env: &[(&str, &str)]) -> Vec<usize> {
    let launch = exporter(&api.base_url())
        .flag("--audit.start", "oldest")
        .flag("--audit.poll-interval", "10s")
        .otlp(protocol, &peer.url());
    let variables = env.iter();
    let launch = variables.fold(launch, |launch, (name, value)| launch.env(name, value));
    let is_done = |scrape: &Scrape| {
        scrape.has("orgdata_audit_complete_through_timestamp_seconds")
            && scrape.value("orgdata_otlp_backlog_records") == Some(0.0)
    };
    let scrape = launch.start().until("all delivered", is_done).await;
    assert_eq!(scrape.sum("orgdata_dead_letters_total"), 0.0);
    let ids: Vec<String> = api.entries().map(|entry| entry.id).collect();
    assert_eq!(peer.taken_ids(), ids);
    let sizes = peer.requests().into_iter().map(|ids| ids.len());
    sizes.filter(|size| *size > 0).collect()
}

#[tokio::test]
async fn headers_of_the_environment_are_sent_but_none_that_describes_the_body() {
    let api = organization(600, 0).await;
    let body = "content-encoding=br,content-type=text%2Fplain,content-length=7";
    for (protocol, compression, others, kind) in [
        ("grpc", "gzip", "", "application/grpc"),
        ("http/protobuf", "none", body, "application/x-protobuf"),
    ] {
        let peer = peer(protocol, DEFAULT_LIMIT).await;
        let headers = format!("x-tenant=a%20b,{others}");
        let variables = [
            ("OTEL_EXPORTER_OTLP_COMPRESSION", compression),
            ("OTEL_EXPORTER_OTLP_HEADERS", headers.trim_end_matches(',')),
        ];
        let sizes = deliver(&api, &peer, protocol, &variables).await;
        assert_eq!(sizes, [512, 88]);
        let headers = peer.script.headers.lock().unwrap().clone();
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let encoding = header("grpc-encoding").or(header("content-encoding"));
        assert_eq!(encoding == Some("gzip"), compression == "gzip");
        assert_eq!(header("content-type"), Some(kind));
        assert_eq!(header("x-tenant"), Some("a b"));
        let agent = header("user-agent").unwrap();
        assert!(agent.starts_with("orgdata-exporter/"), "{agent}");
    }
}

/// Tokens of an hour are usual.
#[tokio::test]
async fn a_token_in_a_file_is_read_for_each_request() {
    let api = organization(10, 0).await;
    for protocol in ["grpc", "http/protobuf"] {
        let peer = peer(protocol, DEFAULT_LIMIT).await;
        let launch = exporter(&api.base_url())
            .flag("--otlp.bearer-token-file", "mounted/token")
            .otlp(protocol, &peer.url());
        // As Kubernetes mounts a Secret that does not exist yet.
        let mounted = launch.dir().join("mounted");
        std::fs::create_dir_all(mounted.join("..data")).unwrap();
        let mut exporter = launch.start();
        exporter.synced().await;
        api.add_events(1);
        exporter
            .logs("cannot read the bearer token file mounted/token | unauthorized")
            .await;
        for token in ["the-first", "the-second"] {
            // An editor ends the line.
            std::fs::write(mounted.join("token"), format!("{token}\n")).unwrap();
            api.add_events(1);
            let expected = format!("Bearer {token}");
            until("the token", async || {
                let headers = peer.script.headers.lock().unwrap();
                headers
                    .get("authorization")
                    .filter(|value| **value == expected)
                    .map(drop)
            })
            .await;
        }
        assert_eq!(exporter.stop().await, Some(0));
        assert!(!exporter.stderr().text().contains("the-"), "{protocol}");
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
    // Nothing was rejected, and no request was larger than 3 MiB.
    let sizes = deliver(&api, &peer, "grpc", &[]).await;
    assert!(sizes.len() >= 3, "{sizes:?}");
    let taken = peer.script.taken.lock().unwrap();
    let is_cut = |record: &LogRecord| {
        let mut keys = record.attributes.iter().map(|attribute| &attribute.key);
        keys.any(|key| key == "orgdata.record.cut")
    };
    let cut: Vec<bool> = taken.iter().map(is_cut).collect();
    assert_eq!(cut, [false, false, false, false, true, false]);
}
