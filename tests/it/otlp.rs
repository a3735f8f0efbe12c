//! Delivery over real connections: each verdict over both protocols, order, splitting, TLS. What concerns time is tested beside the relay.

use crate::support::collector_peer;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use collector_peer::{Peer, Reply};
use jiff::Timestamp;
use orgdata_exporter::ledger::{
    Backlog, DeadLetter, DeadReason, OutboxPosition, OutboxRecord, RecordKind,
};
use orgdata_exporter::metrics::{Loops, OtlpMetrics};
use orgdata_exporter::otlp::{
    Envelope, Export, FailureReason, Flags, Mapper, Next, Outbox, Relay, Sender, Settings, Verdict,
};
use prometheus_client::registry::Registry;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

/// The size limit of a gRPC server, unless set.
const DEFAULT_LIMIT: usize = 4 * 1024 * 1024;

/// An outbox without a disk.
#[derive(Clone, Debug, Default)]
struct Memory(Arc<Mutex<(Vec<OutboxRecord>, Vec<DeadLetter>)>>);

impl Outbox for Memory {
    type Error = String;

    async fn batch(
        &self,
        max_records: usize,
        max_bytes: usize,
    ) -> Result<Vec<OutboxRecord>, String> {
        let mut bytes = 0;
        let records = &self.0.lock().expect("lock").0;
        let fitting = records
            .iter()
            .take(max_records)
            .enumerate()
            .take_while(|(index, record)| {
                bytes += record.raw.len();
                *index == 0 || bytes <= max_bytes
            });
        Ok(fitting.map(|(_, record)| record.clone()).collect())
    }

    async fn acknowledge(
        &self,
        through: OutboxPosition,
        dead: Vec<DeadLetter>,
    ) -> Result<(), String> {
        let mut state = self.0.lock().expect("lock");
        state.0.retain(|record| record.position > through);
        state.1.extend(dead);
        Ok(())
    }

    fn backlog(&self) -> Backlog {
        Backlog {
            records: self.0.lock().expect("lock").0.len() as u64,
            oldest: None,
        }
    }

    async fn changed(&self) {
        std::future::pending().await
    }
}

fn record(number: u32, padding: usize) -> OutboxRecord {
    OutboxRecord {
        position: OutboxPosition {
            page: 1,
            index: number,
        },
        kind: RecordKind::Entry,
        arrived_at: Timestamp::now(),
        trace: None,
        raw: format!(
            r#"{{"id":"{number}","type":"TASK_DONE","metadata":{{"x":"{}"}}}}"#,
            "x".repeat(padding)
        ),
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
    Settings::from_env(&flags, &find)
        .expect("right")
        .expect("an endpoint")
}

async fn peer(protocol: &str, limit: usize) -> Peer {
    if protocol == "grpc" {
        Peer::grpc(limit).await
    } else {
        Peer::http(limit).await
    }
}

/// Sends one record; returns the verdict.
async fn send(endpoint: &str, protocol: &str, variables: &[(&str, &str)]) -> Verdict {
    let settings = settings(endpoint, protocol, variables);
    let encoded = Mapper::default().encode(&record(0, 10));
    let body = Envelope::new(&settings.resource("i")).request([encoded.as_slice()].into_iter());
    Sender::new(&settings).expect("a sender").export(body).await
}

/// Relays these records until none waits; returns the dead letters.
async fn relay(
    peer: &Peer,
    protocol: &str,
    variables: &[(&str, &str)],
    records: Vec<OutboxRecord>,
) -> Vec<DeadLetter> {
    let settings = settings(&format!("http://{}", peer.address), protocol, variables);
    let mut registry = Registry::default();
    let (metrics, loops) = (
        Arc::new(OtlpMetrics::register(&mut registry)),
        Arc::new(Loops::default()),
    );
    let outbox = Memory::default();
    outbox.0.lock().expect("lock").0 = records;
    let sender = Sender::new(&settings).expect("a sender");
    let mut relay = Relay::new(
        outbox.clone(),
        "instance-1",
        sender,
        &settings,
        metrics,
        loops,
    );
    loop {
        match relay.round().await {
            Next::Now => {}
            Next::Idle => break,
            Next::After(wait) => panic!(
                "nothing here has to wait, and not {wait:?}: {:?}",
                peer.requests().last()
            ),
        }
    }
    outbox.0.lock().expect("lock").1.clone()
}

fn ids(range: std::ops::Range<u32>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

/// Kind, label and whether a setting must change.
fn row(verdict: &Verdict) -> (&'static str, Option<FailureReason>, bool) {
    let configuration = match verdict {
        Verdict::TooLarge(refusal) | Verdict::Suspect(refusal) | Verdict::Hold(refusal) => {
            refusal.configuration
        }
        _ => false,
    };
    let kind = match verdict {
        Verdict::Acknowledged { .. } => "acknowledged",
        Verdict::PartlyRejected { .. } => "partly rejected",
        Verdict::TooLarge(_) => "too large",
        Verdict::Suspect(_) => "suspect",
        Verdict::Hold(_) => "hold",
    };
    (kind, verdict.reason(), configuration)
}

#[tokio::test]
async fn every_record_arrives_in_order_over_both_protocols_plain_and_gzipped() {
    for protocol in ["grpc", "http/protobuf"] {
        for compression in ["none", "gzip"] {
            let peer = peer(protocol, DEFAULT_LIMIT).await;
            let variables = [
                ("COMPRESSION", compression),
                ("HEADERS", "x-tenant=a%20b"),
                ("OTEL_SERVICE_NAME", "audit"),
            ];
            let dead = relay(
                &peer,
                protocol,
                &variables,
                (0..1200).map(|number| record(number, 100)).collect(),
            )
            .await;
            assert_eq!((dead.len(), peer.taken_ids()), (0, ids(0..1200)));
            assert_eq!(
                peer.requests().iter().map(Vec::len).collect::<Vec<_>>(),
                [512, 512, 176]
            );
            let headers = peer.script.headers.lock().expect("lock").clone();
            assert_eq!(headers["x-tenant"], "a b");
            let encoding = headers
                .get("grpc-encoding")
                .or_else(|| headers.get("content-encoding"));
            assert_eq!(
                encoding.is_some_and(|encoding| encoding == "gzip"),
                compression == "gzip"
            );
            assert!(
                headers["user-agent"]
                    .to_str()
                    .expect("ASCII")
                    .starts_with("orgdata-exporter/")
            );
            let last = peer
                .script
                .last
                .lock()
                .expect("lock")
                .clone()
                .expect("a request");
            let resource = format!("{:?}", last.resource_logs[0].resource);
            assert!(
                resource.contains("\"audit\"") && resource.contains("instance-1"),
                "{resource}"
            );
            assert_eq!(
                last.resource_logs[0].scope_logs[0]
                    .scope
                    .as_ref()
                    .expect("a scope")
                    .name,
                "orgdata.audit"
            );
        }
    }
}

#[tokio::test]
async fn each_reply_over_grpc_has_its_verdict() {
    use FailureReason as R;
    let retry = ErrorDetails::with_retry_info(Some(Duration::from_secs(3)));
    for (reply, expected) in [
        (Reply::Accept, ("acknowledged", None, false)),
        (
            Reply::Partial(0, "mind the gap"),
            ("acknowledged", None, false),
        ),
        (
            Reply::Partial(1, "too old"),
            ("partly rejected", Some(R::PartlyRejected), false),
        ),
        (
            Reply::Status(Status::invalid_argument("x")),
            ("suspect", Some(R::BadRecord), false),
        ),
        (
            Reply::Status(Status::internal("x")),
            ("suspect", Some(R::ServerError), false),
        ),
        (
            Reply::Status(Status::resource_exhausted("x")),
            ("too large", Some(R::TooLarge), false),
        ),
        (
            Reply::Status(Status::with_error_details(
                Code::ResourceExhausted,
                "x",
                retry,
            )),
            ("hold", Some(R::RateLimited), false),
        ),
        (
            Reply::Status(Status::unavailable("x")),
            ("hold", Some(R::Unavailable), false),
        ),
        (
            Reply::Status(Status::unauthenticated("x")),
            ("hold", Some(R::Unauthorized), true),
        ),
        (
            Reply::Status(Status::unimplemented("x")),
            ("hold", Some(R::NotFound), true),
        ),
        (
            Reply::Status(Status::unknown("x")),
            ("hold", Some(R::Other), false),
        ),
        (Reply::Silence, ("hold", Some(R::Timeout), false)),
    ] {
        let peer = Peer::grpc(DEFAULT_LIMIT).await;
        peer.reply(reply.clone());
        let timeout = if matches!(reply, Reply::Silence) {
            "50"
        } else {
            "10000"
        };
        let verdict = send(
            &format!("http://{}", peer.address),
            "grpc",
            &[("TIMEOUT", timeout)],
        )
        .await;
        assert_eq!(row(&verdict), expected, "{reply:?} gave {verdict:?}");
    }
}

#[tokio::test]
async fn each_reply_over_http_has_its_verdict() {
    use FailureReason as R;
    let status = |status| Reply::Http(status, "text/plain", "no luck", None);
    for (reply, expected) in [
        (Reply::Accept, ("acknowledged", None, false)),
        (
            Reply::Partial(0, "mind the gap"),
            ("acknowledged", None, false),
        ),
        (
            Reply::Partial(1, "too old"),
            ("partly rejected", Some(R::PartlyRejected), false),
        ),
        (
            Reply::Http(200, "text/plain", "", None),
            ("acknowledged", None, false),
        ),
        (
            Reply::Http(204, "text/plain", "", None),
            ("acknowledged", None, false),
        ),
        (
            Reply::Http(200, "text/html", "<html>Sign in</html>", None),
            ("hold", Some(R::NotOtlp), true),
        ),
        (status(400), ("suspect", Some(R::BadRecord), false)),
        (status(500), ("suspect", Some(R::ServerError), false)),
        (status(413), ("too large", Some(R::TooLarge), false)),
        (status(401), ("hold", Some(R::Unauthorized), true)),
        (status(404), ("hold", Some(R::NotFound), true)),
        (
            Reply::Http(429, "text/plain", "", Some("3")),
            ("hold", Some(R::RateLimited), false),
        ),
        (status(503), ("hold", Some(R::Unavailable), false)),
        (status(307), ("hold", Some(R::NotFound), true)),
        (Reply::Silence, ("hold", Some(R::Timeout), false)),
    ] {
        let peer = Peer::http(DEFAULT_LIMIT).await;
        peer.reply(reply.clone());
        let timeout = if matches!(reply, Reply::Silence) {
            "50"
        } else {
            "10000"
        };
        let verdict = send(
            &format!("http://{}", peer.address),
            "http/protobuf",
            &[("TIMEOUT", timeout)],
        )
        .await;
        assert_eq!(row(&verdict), expected, "{reply:?} gave {verdict:?}");
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
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        listener.local_addr().expect("bound")
    };
    for (address, protocol) in [
        (closed, "grpc"),
        (closed, "http/protobuf"),
        (gone.address, "grpc"),
        (gone.address, "http/protobuf"),
        (http.address, "grpc"),
        (grpc.address, "http/protobuf"),
    ] {
        let verdict = send(&format!("http://{address}"), protocol, &[]).await;
        assert_eq!(row(&verdict).0, "hold", "{protocol}: {verdict:?}");
    }
    let verdict = send(
        &format!("http://{}/v2/logs", http.address),
        "http/protobuf",
        &[],
    )
    .await;
    assert_eq!(row(&verdict), ("hold", Some(FailureReason::NotFound), true));
}

#[tokio::test]
async fn the_bad_record_among_many_is_found_over_both_protocols() {
    for protocol in ["grpc", "http/protobuf"] {
        let peer = peer(protocol, DEFAULT_LIMIT).await;
        peer.refuse("300");
        let dead = relay(
            &peer,
            protocol,
            &[],
            (0..600).map(|number| record(number, 10)).collect(),
        )
        .await;
        assert_eq!((dead.len(), dead[0].reason), (1, DeadReason::Refused));
        assert!(
            dead[0].raw.contains(r#""id":"300""#)
                && dead[0].message.contains("cannot take this record"),
            "{dead:?}"
        );
        assert!(
            peer.requests().len() <= 16,
            "{} requests",
            peer.requests().len()
        );
        let expected: Vec<String> = ids(0..600).into_iter().filter(|id| id != "300").collect();
        assert_eq!(peer.taken_ids(), expected, "each once, in order");
    }
}

#[tokio::test]
async fn a_server_s_own_limit_of_size_splits_requests() {
    for protocol in ["grpc", "http/protobuf"] {
        let peer = peer(protocol, 64 * 1024).await;
        let dead = relay(
            &peer,
            protocol,
            &[],
            (0..400).map(|number| record(number, 1000)).collect(),
        )
        .await;
        assert_eq!(
            (dead.len(), peer.taken_ids()),
            (0, ids(0..400)),
            "{protocol}"
        );
    }
}

#[tokio::test]
async fn requests_stay_below_the_default_limit_and_a_huge_record_is_cut_to_fit() {
    for protocol in ["grpc", "http/protobuf"] {
        let peer = peer(protocol, DEFAULT_LIMIT).await;
        let sizes = [900_000, 900_000, 900_000, 900_000, 6_000_000, 10];
        let records = sizes
            .iter()
            .enumerate()
            .map(|(number, size)| record(u32::try_from(number).expect("small"), *size))
            .collect();
        let dead = relay(&peer, protocol, &[], records).await;
        assert_eq!((dead.len(), peer.taken_ids()), (0, ids(0..6)));
        assert!(
            peer.requests().len() >= 3,
            "nothing was refused, and no request was larger than 3 MiB"
        );
        let taken = peer.script.taken.lock().expect("lock");
        let cut: Vec<bool> = taken
            .iter()
            .map(|record| {
                record
                    .attributes
                    .iter()
                    .any(|attribute| attribute.key == "orgdata.record.cut")
            })
            .collect();
        assert_eq!(cut, [false, false, false, false, true, false]);
    }
}

#[tokio::test]
async fn a_partial_rejection_keeps_its_batch_as_dead_letters() {
    for protocol in ["grpc", "http/protobuf"] {
        let peer = peer(protocol, DEFAULT_LIMIT).await;
        peer.reply(Reply::Partial(2, "no such index"));
        let dead = relay(
            &peer,
            protocol,
            &[],
            (0..600).map(|number| record(number, 10)).collect(),
        )
        .await;
        assert_eq!(
            (dead.len(), dead[0].reason, dead[0].message.as_str()),
            (512, DeadReason::PartlyRejected, "no such index")
        );
        assert_eq!(peer.taken_ids(), ids(512..600));
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
        assert_eq!(
            verdict,
            Verdict::Acknowledged { warning: None },
            "{endpoint}"
        );
        for missing in [&all[1..], &all[..1]] {
            let verdict = send(&endpoint, protocol, missing).await;
            assert_eq!(
                row(&verdict),
                ("hold", Some(FailureReason::Connect), false),
                "{endpoint}: {verdict:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_certificate_file_that_is_none_is_named() {
    for (variable, protocol) in [("CERTIFICATE", "grpc"), ("CERTIFICATE", "http/protobuf")] {
        let settings = settings(
            "https://localhost:1",
            protocol,
            &[(variable, "/nowhere.pem")],
        );
        let error = Sender::new(&settings)
            .expect_err("no such file")
            .to_string();
        assert!(
            error.starts_with("OTEL_EXPORTER_OTLP_CERTIFICATE: cannot read '/nowhere.pem'"),
            "{error}"
        );
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
        let verdict = send(
            &endpoint,
            "http/protobuf",
            &[headers, ("COMPRESSION", compression)],
        )
        .await;
        assert_eq!(
            verdict,
            Verdict::Acknowledged { warning: None },
            "{compression}"
        );
        let sent = peer.script.headers.lock().expect("lock").clone();
        assert_eq!(
            (sent["content-type"].as_bytes(), sent["x-tenant"].as_bytes()),
            (&b"application/x-protobuf"[..], &b"acme"[..])
        );
    }
    assert_eq!(peer.taken_ids().len(), 2);
}

#[tokio::test]
async fn a_token_that_the_collector_repeats_is_in_no_verdict() {
    let words: &'static str = Box::leak(
        format!(
            "bad token t0p-s3cret-value, {}t0p-s3cret-value",
            "x".repeat(258)
        )
        .into_boxed_str(),
    );
    for (protocol, reply) in [
        ("http/protobuf", Reply::Http(401, "text/plain", words, None)),
        ("grpc", Reply::Status(Status::unauthenticated(words))),
    ] {
        let peer = peer(protocol, DEFAULT_LIMIT).await;
        peer.reply(reply);
        let headers = ("HEADERS", "authorization=Bearer%20t0p-s3cret-value");
        let Verdict::Hold(refusal) =
            send(&format!("http://{}", peer.address), protocol, &[headers]).await
        else {
            panic!("held")
        };
        // The second one is cut off in the middle.
        assert!(
            refusal.message.ends_with("x[a header's value]…"),
            "{}",
            refusal.message
        );
        assert!(!refusal.message.contains("t0p-s3"), "{}", refusal.message);
    }
}
