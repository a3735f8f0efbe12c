//! Delivery over real connections: order, splitting, headers. Time is tested beside the relay; answers, ports and TLS with `check`.

use std::sync::Arc;

use jiff::Timestamp;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use orgdata_exporter::entry::RecordEncoder;
use orgdata_exporter::ledger::{
    self, Commit, Disposition, EventId, LedgerHandle, NewEntry, NewEvent,
};
use orgdata_exporter::metrics::{Loops, OtlpMetrics};
use orgdata_exporter::relay::{Delivery, Next, OtlpFlags, Relay};
use otlp_logs::Sender;
use prometheus_client::registry::Registry;

use crate::support::collector_peer::Peer;
use crate::support::settings as support;

/// The default size limit of a gRPC server.
pub(crate) const DEFAULT_LIMIT: usize = 4 * 1024 * 1024;

const PROTOCOLS: [&str; 2] = ["grpc", "http/protobuf"];

pub(crate) async fn peer(protocol: &str, limit: usize) -> Peer {
    match protocol {
        "grpc" => Peer::grpc(limit).await,
        _ => Peer::http(limit).await,
    }
}

/// Relays records of these sizes until none waits, and returns how many became dead letters.
async fn relay(
    peer: &Peer,
    protocol: &str,
    variables: &[(&str, &str)],
    sizes: &[usize],
) -> (u64, String) {
    // It fails only if a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let flags = OtlpFlags {
        endpoint: Some(format!("http://{}", peer.address)),
        protocol: Some(protocol.to_owned()),
        batch_size: 512,
        user_names: true,
        redact: Vec::new(),
    };
    let find = |name: &str| {
        let mut variables = variables.iter();
        let found = variables.find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    let delivery = Delivery::from_env(&flags, &find).unwrap().unwrap();
    let (ledger, _) = LedgerHandle::open(ledger::LedgerOptions {
        encoder: Arc::new(RecordEncoder::default()),
        ..support::ledger(None, "https://api.example")
    })
    .unwrap();
    let entry = |(number, padding): (usize, &usize)| NewEntry {
        id: EventId(number as u64),
        created_at: Timestamp::now(),
        disposition: Disposition::Live,
        event: Ok(NewEvent {
            activity_type: "TASK_DONE".to_owned(),
            actor: None,
            malformed: false,
        }),
        raw: support::alone(format!(
            r#"{{"id":"{number}","type":"TASK_DONE","metadata":{{"x":"{}"}}}}"#,
            "x".repeat(*padding)
        )),
    };
    let commit = Commit {
        entries: sizes.iter().enumerate().map(entry).collect(),
        ..Commit::new(Timestamp::now())
    };
    ledger.commit(commit).await.unwrap();
    let mut registry = Registry::default();
    let metrics = Arc::new(OtlpMetrics::register(&mut registry));
    let (own, loops) = (ledger.clone(), Arc::new(Loops::default()));
    let sender = Sender::new(&delivery.target).unwrap();
    let mut relay = Relay::new(own, sender, &delivery, metrics, loops);
    loop {
        match relay.round().await {
            Next::Now => {}
            Next::Idle => break,
            Next::After(wait) => panic!("nothing has to wait {wait:?}"),
        }
    }
    (ledger.status().dead_letters, ledger.instance_id())
}

fn ids(range: std::ops::Range<u32>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

#[tokio::test]
async fn every_record_arrives_in_order_over_both_protocols_plain_and_gzipped() {
    let plain = PROTOCOLS.map(|protocol| (protocol, "none"));
    let gzipped = PROTOCOLS.map(|protocol| (protocol, "gzip"));
    for (protocol, compression) in plain.into_iter().chain(gzipped) {
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
        let (dead, instance) = relay(&peer, protocol, &variables, &[100; 1200]).await;
        assert_eq!((dead, peer.taken_ids()), (0, ids(0..1200)));
        let requests: Vec<usize> = peer.requests().iter().map(Vec::len).collect();
        assert_eq!(requests, [512, 512, 176]);
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
        let is_described = resource.contains("\"audit\"") && resource.contains(&instance);
        assert!(is_described, "{resource}");
        let scope = logs.scope_logs[0].scope.as_ref().unwrap();
        assert_eq!(scope.name, "orgdata.audit");
    }
}

#[tokio::test]
async fn the_bad_record_among_many_is_found_below_the_server_s_own_limit_of_size() {
    for protocol in PROTOCOLS {
        let peer = peer(protocol, 64 * 1024).await;
        peer.refuse("300");
        let (dead, _) = relay(&peer, protocol, &[], &[300; 600]).await;
        assert_eq!(dead, 1);
        assert!(peer.requests().len() <= 30, "{}", peer.requests().len());
        let mut expected = ids(0..600);
        expected.remove(300);
        assert_eq!(peer.taken_ids(), expected, "each once, in order");
    }
}

#[tokio::test]
async fn requests_stay_below_the_default_limit_and_a_huge_record_is_cut_to_fit() {
    for protocol in PROTOCOLS {
        let peer = peer(protocol, DEFAULT_LIMIT).await;
        let sizes = [900_000, 900_000, 900_000, 900_000, 6_000_000, 10];
        let (dead, _) = relay(&peer, protocol, &[], &sizes).await;
        assert_eq!((dead, peer.taken_ids()), (0, ids(0..6)));
        // Nothing was refused, and no request was larger than 3 MiB.
        assert!(peer.requests().len() >= 3);
        let taken = peer.script.taken.lock().unwrap();
        let is_cut = |record: &LogRecord| {
            let mut keys = record.attributes.iter().map(|attribute| &attribute.key);
            keys.any(|key| key == "orgdata.record.cut")
        };
        let cut: Vec<bool> = taken.iter().map(is_cut).collect();
        assert_eq!(cut, [false, false, false, false, true, false]);
    }
}
