//! Delivery over real connections: each verdict over both protocols, order, splitting, TLS. Time is tested beside the relay.

use crate::support::collector_peer;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use collector_peer::{Peer, Reply};
use jiff::Timestamp;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use orgdata_exporter::ledger::Backlog;
use orgdata_exporter::ledger::{
    DeadReason, Encode, OutboxPosition, OutboxRecord, RawRecord, RecordKind, Rejected, Settled,
};
use orgdata_exporter::metrics::{Loops, OtlpMetrics};
use orgdata_exporter::otlp::{
    Envelope, Export, FailureReason, Flags, Next, Outbox, RecordEncoder, Relay, Sender, Settings,
    Verdict,
};
use prometheus_client::registry::Registry;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

/// The default size limit of a gRPC server.
const DEFAULT_LIMIT: usize = 4 * 1024 * 1024;

const PROTOCOLS: [&str; 2] = ["grpc", "http/protobuf"];

/// An outbox without a disk.
#[derive(Clone, Debug, Default)]
struct Memory(Arc<Mutex<(Vec<OutboxRecord>, Vec<Rejected>)>>);

impl Outbox for Memory {
    type Error = String;

    async fn batch(&self, max: usize, max_bytes: usize) -> Result<Vec<OutboxRecord>, String> {
        let mut bytes = 0;
        let records = &self.0.lock().unwrap().0;
        let batch = records.iter().take(max).enumerate();
        let batch = batch.take_while(|(index, record)| {
            bytes += record.bytes.len();
            *index == 0 || bytes <= max_bytes
        });
        Ok(batch.map(|(_, record)| record.clone()).collect())
    }

    async fn newest(&self) -> Result<Option<OutboxRecord>, String> {
        Ok(self.0.lock().unwrap().0.last().cloned())
    }

    async fn settle(&self, settled: Settled) -> Result<(), String> {
        let mut state = self.0.lock().unwrap();
        let rejected = settled.rejected.iter().map(|rejected| rejected.position);
        let gone = settled.delivered.iter().copied().chain(settled.witness);
        let gone: Vec<OutboxPosition> = gone.chain(rejected).collect();
        state.0.retain(|record| !gone.contains(&record.position));
        state.1.extend(settled.rejected);
        Ok(())
    }

    fn backlog(&self) -> Backlog {
        Backlog {
            records: self.0.lock().unwrap().0.len() as u64,
            oldest: None,
        }
    }

    async fn changed(&self) {
        std::future::pending().await
    }
}

/// A record with so much padding.
fn record((number, padding): (usize, usize)) -> OutboxRecord {
    let padding = "x".repeat(padding);
    let json = format!(r#"{{"id":"{number}","type":"TASK_DONE","metadata":{{"x":"{padding}"}}}}"#);
    let raw = RawRecord {
        kind: RecordKind::Entry,
        json: &json,
        arrived_at: Timestamp::now(),
        trace: None,
    };
    let mut bytes = Vec::new();
    RecordEncoder::default().encode(&raw, &mut bytes);
    OutboxRecord {
        position: OutboxPosition {
            page: 1,
            index: number as u32,
        },
        arrived_at: raw.arrived_at,
        bytes: bytes.into(),
    }
}

/// Settings for a peer, with these standard variables.
fn settings(endpoint: &str, protocol: &str, variables: &[(&str, &str)]) -> Settings {
    rustls::crypto::ring::default_provider()
        .install_default()
        .ok();
    let flags = Flags {
        endpoint: Some(endpoint.to_owned()),
        protocol: Some(protocol.to_owned()),
        batch_size: 512,
        user_names: true,
        redact: Vec::new(),
    };
    let find = |name: &str| {
        let name = name.strip_prefix("OTEL_EXPORTER_OTLP_").unwrap_or(name);
        variables
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| (*value).to_owned())
    };
    Settings::from_env(&flags, &find).unwrap().unwrap()
}

async fn peer(protocol: &str, limit: usize) -> Peer {
    if protocol == "grpc" {
        Peer::grpc(limit).await
    } else {
        Peer::http(limit).await
    }
}

/// Sends one record and returns the verdict.
async fn send(endpoint: &str, protocol: &str, variables: &[(&str, &str)]) -> Verdict {
    let settings = settings(endpoint, protocol, variables);
    let body = Envelope::new(&settings.resource("i")).request([&record((0, 10)).bytes].into_iter());
    Sender::new(&settings).unwrap().export(body).await
}

/// Relays records of these sizes until none waits, and returns the rejected ones.
async fn relay(
    peer: &Peer,
    protocol: &str,
    variables: &[(&str, &str)],
    sizes: &[usize],
) -> Vec<Rejected> {
    let settings = settings(&format!("http://{}", peer.address), protocol, variables);
    let mut registry = Registry::default();
    let metrics = Arc::new(OtlpMetrics::register(&mut registry));
    let loops = Arc::new(Loops::default());
    let outbox = Memory::default();
    let records = sizes.iter().copied().enumerate().map(record);
    outbox.0.lock().unwrap().0 = records.collect();
    let sender = Sender::new(&settings).unwrap();
    let (instance, own) = ("instance-1", outbox.clone());
    let mut relay = Relay::new(own, instance, sender, &settings, metrics, loops);
    loop {
        match relay.round().await {
            Next::Now => {}
            Next::Idle => break,
            Next::After(wait) => panic!("nothing has to wait {wait:?}"),
        }
    }
    outbox.0.lock().unwrap().1.clone()
}

fn ids(range: std::ops::Range<u32>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

/// The kind and label of a verdict, as in "hold not_found".
fn row(verdict: &Verdict) -> String {
    let kind = match verdict {
        Verdict::Acknowledged { .. } => "acknowledged",
        Verdict::PartlyRejected { .. } => "partly",
        Verdict::TooLarge(_) => "split",
        Verdict::Suspect(_) => "suspect",
        Verdict::Hold(_) => "hold",
    };
    let reason = verdict.reason().map_or("", FailureReason::as_str);
    format!("{kind} {reason}").trim_end().to_owned()
}

#[tokio::test]
async fn every_record_arrives_in_order_over_both_protocols_plain_and_gzipped() {
    for (protocol, compression) in PROTOCOLS
        .into_iter()
        .flat_map(|protocol| [(protocol, "none"), (protocol, "gzip")])
    {
        let peer = peer(protocol, DEFAULT_LIMIT).await;
        let variables = [
            ("COMPRESSION", compression),
            ("HEADERS", "x-tenant=a%20b"),
            ("OTEL_SERVICE_NAME", "audit"),
        ];
        let dead = relay(&peer, protocol, &variables, &[100; 1200]).await;
        assert_eq!((dead.len(), peer.taken_ids()), (0, ids(0..1200)));
        let requests: Vec<usize> = peer.requests().iter().map(Vec::len).collect();
        assert_eq!(requests, [512, 512, 176]);
        let headers = peer.script.headers.lock().unwrap().clone();
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let encoding = header("grpc-encoding").or(header("content-encoding"));
        assert_eq!(encoding == Some("gzip"), compression == "gzip");
        assert_eq!(header("x-tenant"), Some("a b"));
        assert!(header("user-agent").is_some_and(|agent| agent.starts_with("orgdata-exporter/")));
        let last = peer.script.last.lock().unwrap().clone();
        let logs = &last.unwrap().resource_logs[0];
        let resource = format!("{:?}", logs.resource);
        assert!(
            resource.contains("\"audit\"") && resource.contains("instance-1"),
            "{resource}"
        );
        let scope = logs.scope_logs[0].scope.as_ref().unwrap();
        assert_eq!(scope.name, "orgdata.audit");
    }
}

/// Every status has its row in the tests of `otlp::verdict`.
#[tokio::test]
async fn replies_have_their_verdicts_over_both_protocols() {
    let retry = ErrorDetails::with_retry_info(Some(Duration::from_secs(3)));
    let quota = Status::with_error_details(Code::ResourceExhausted, "quota", retry);
    let http = |status| Reply::Http(status, "text/plain", "no luck", Some("3"));
    let grpc = Reply::Status;
    let (internal, unimplemented) = (Status::internal("x\ny"), Status::unimplemented("x"));
    for (protocol, reply, expected, words) in [
        ("both", Reply::Accept, "acknowledged", "None"),
        (
            "both",
            Reply::Partial(0, "mind\n it"),
            "acknowledged",
            "mind it",
        ),
        (
            "both",
            Reply::Partial(1, "old"),
            "partly partly_rejected",
            "old",
        ),
        ("both", Reply::Silence, "hold timeout", "no answer"),
        (
            "grpc",
            grpc(internal),
            "suspect server_error",
            "Internal: x y",
        ),
        ("grpc", grpc(unimplemented), "hold not_found", ""),
        ("grpc", grpc(quota), "hold rate_limited", "Some(3s)"),
        (
            "http/protobuf",
            http(400),
            "suspect bad_record",
            "400: no luck",
        ),
        ("http/protobuf", http(429), "hold rate_limited", "Some(3s)"),
        ("http/protobuf", http(200), "hold not_otlp", "no luck"),
        ("http/protobuf", http(307), "hold not_found", "HTTP 307"),
    ] {
        for protocol in PROTOCOLS
            .into_iter()
            .filter(|name| protocol == "both" || *name == protocol)
        {
            let peer = peer(protocol, DEFAULT_LIMIT).await;
            peer.reply(reply.clone());
            let is_silent = matches!(reply, Reply::Silence);
            let timeout = [("TIMEOUT", if is_silent { "50" } else { "10000" })];
            let endpoint = format!("http://{}", peer.address);
            let verdict = send(&endpoint, protocol, &timeout).await;
            assert_eq!(row(&verdict), expected, "{reply:?} gave {verdict:?}");
            assert!(format!("{verdict:?}").contains(words), "{verdict:?}");
        }
    }
}

#[tokio::test]
async fn a_wrong_port_a_wrong_protocol_and_a_lost_connection_hold() {
    let (grpc, http, gone) = (
        Peer::grpc(DEFAULT_LIMIT).await,
        Peer::http(DEFAULT_LIMIT).await,
        Peer::hangs_up().await,
    );
    let closed = {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    for (address, protocol, expected) in [
        (closed, "grpc", "hold connect"),
        (closed, "http/protobuf", "hold connect"),
        (gone.address, "grpc", "hold connect"),
        (gone.address, "http/protobuf", "hold connect"),
        (http.address, "grpc", "hold not_found"),
        (grpc.address, "http/protobuf", "hold connect"),
    ] {
        let verdict = send(&format!("http://{address}"), protocol, &[]).await;
        assert_eq!(row(&verdict), expected, "{protocol}: {verdict:?}");
    }
    let endpoint = format!("http://{}/v2/logs", http.address);
    let verdict = send(&endpoint, "http/protobuf", &[]).await;
    assert_eq!(row(&verdict), "hold not_found");
}

#[tokio::test]
async fn the_bad_record_among_many_is_found_below_the_server_s_own_limit_of_size() {
    for protocol in PROTOCOLS {
        let peer = peer(protocol, 64 * 1024).await;
        peer.refuse("300");
        let dead = relay(&peer, protocol, &[], &[300; 600]).await;
        assert_eq!((dead.len(), dead[0].reason), (1, DeadReason::Refused));
        let (_, json) = RecordEncoder::default().decode(&dead[0].bytes);
        assert!(json.contains(r#""id":"300""#), "{json}");
        assert!(dead[0].message.contains("cannot take this record"));
        assert!(peer.requests().len() <= 30, "{}", peer.requests().len());
        let expected: Vec<String> = ids(0..600).into_iter().filter(|id| id != "300").collect();
        assert_eq!(peer.taken_ids(), expected, "each once, in order");
    }
}

#[tokio::test]
async fn requests_stay_below_the_default_limit_and_a_huge_record_is_cut_to_fit() {
    for protocol in PROTOCOLS {
        let peer = peer(protocol, DEFAULT_LIMIT).await;
        let sizes = [900_000, 900_000, 900_000, 900_000, 6_000_000, 10];
        let dead = relay(&peer, protocol, &[], &sizes).await;
        assert_eq!((dead.len(), peer.taken_ids()), (0, ids(0..6)));
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

#[tokio::test]
async fn tls_needs_the_private_root_and_the_client_certificate_over_both_protocols() {
    let tls = |file: &str| format!("{}/tests/support/tls/{file}", env!("CARGO_MANIFEST_DIR"));
    let (root, certificate, key) = (tls("ca.pem"), tls("client.pem"), tls("client.key"));
    let grpc = Peer::grpc_tls(&tls("")).await;
    let http = collector_peer::https(&tls(""));
    for (endpoint, protocol) in [
        (format!("https://localhost:{}", grpc.address.port()), "grpc"),
        (format!("localhost:{}", grpc.address.port()), "grpc"),
        (
            format!("https://127.0.0.1:{}", http.port()),
            "http/protobuf",
        ),
    ] {
        let all = [
            ("CERTIFICATE", root.as_str()),
            ("CLIENT_CERTIFICATE", certificate.as_str()),
            ("LOGS_CLIENT_KEY", key.as_str()),
        ];
        let verdict = send(&endpoint, protocol, &all).await;
        assert_eq!(row(&verdict), "acknowledged", "{endpoint}");
        for missing in [&all[1..], &all[..1]] {
            let verdict = send(&endpoint, protocol, missing).await;
            assert_eq!(row(&verdict), "hold connect", "{endpoint}: {verdict:?}");
        }
    }
}

#[tokio::test]
async fn what_describes_the_body_cannot_be_set_from_outside() {
    let peer = Peer::http(DEFAULT_LIMIT).await;
    let endpoint = format!("http://{}", peer.address);
    let headers = (
        "HEADERS",
        "content-encoding=br,content-type=text%2Fplain,content-length=7,x-tenant=acme",
    );
    for compression in ["none", "gzip"] {
        let variables = [headers, ("COMPRESSION", compression)];
        let verdict = send(&endpoint, "http/protobuf", &variables).await;
        assert_eq!(row(&verdict), "acknowledged", "{compression}");
        let sent = peer.script.headers.lock().unwrap().clone();
        assert_eq!(
            (sent["content-type"].as_bytes(), sent["x-tenant"].as_bytes()),
            (&b"application/x-protobuf"[..], &b"acme"[..])
        );
    }
    assert_eq!(peer.taken_ids().len(), 2);
}

#[tokio::test]
async fn a_token_that_the_collector_repeats_is_in_no_verdict() {
    let words = "bad token t0p-s3cret-value and t0p-s3cret%2Dvalue";
    let headers = [("HEADERS", "authorization=Bearer%20t0p-s3cret-value")];
    let http = Reply::Http(401, "text/plain", words, None);
    let grpc = Reply::Status(Status::unauthenticated(words));
    for (protocol, reply) in [("http/protobuf", http), ("grpc", grpc)] {
        let peer = peer(protocol, DEFAULT_LIMIT).await;
        peer.reply(reply);
        let verdict = send(&format!("http://{}", peer.address), protocol, &headers).await;
        let shown = format!("{verdict:?}");
        assert!(shown.contains("bad token [secret] and [secret]"), "{shown}");
    }
}
