//! The tail, a small state file and the relay together: a backlog that is larger than what the file can hold.

use crate::support::collector_peer;
use crate::support::settings;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use collector_peer::{Peer, Reply};
use jiff::Timestamp;
use orgdata_exporter::api::Client;
use orgdata_exporter::audit::{Settings, Start, Tail};
use orgdata_exporter::ledger::Encoded;
use orgdata_exporter::ledger::{
    Commit, Disposition, EventId, LedgerHandle, LedgerState, NewEntry, NewEvent,
    Settings as LedgerSettings, StatePath,
};
use orgdata_exporter::metrics::Metrics;
use orgdata_exporter::otlp::{Flags, Next, RecordEncoder, Relay, Sender, Settings as OtlpSettings};
use orgdata_exporter::simulator::{Config, Fields, Scope, Simulator};

/// `--state.max-size`, smaller than the flag may be.
const MAX_SIZE: u64 = 1 << 20;

fn ledger(
    base_url: &str,
    path: StatePath,
    max_size: u64,
    metrics: &Metrics,
) -> (LedgerHandle, LedgerState) {
    let settings = LedgerSettings {
        max_size,
        ..settings::ledger(path, base_url)
    };
    LedgerHandle::open(settings, metrics.clone()).expect("opens")
}

fn relay(ledger: &LedgerHandle, peer: &Peer, metrics: &Metrics) -> Relay<Encoded, Sender> {
    rustls::crypto::ring::default_provider()
        .install_default()
        .ok();
    let flags = Flags {
        endpoint: Some(format!("http://{}", peer.address)),
        protocol: Some("grpc".to_owned()),
        batch_size: 512,
        user_names: true,
        redact: Vec::new(),
    };
    let settings = OtlpSettings::from_env(&flags, &|_| None)
        .expect("settings")
        .expect("an endpoint");
    let sender = Sender::new(&settings).expect("a sender");
    let encoder = Arc::new(RecordEncoder::new(settings.redaction.clone()));
    Relay::new(
        Encoded::new(ledger.clone(), encoder),
        &ledger.instance_id(),
        sender,
        &settings,
        metrics.otlp.clone(),
        metrics.loops.clone(),
    )
}

/// A tail that takes all there is, and after that what it is hurried to.
fn tail(base_url: &str, ledger: &LedgerHandle, state: LedgerState, metrics: &Metrics) -> Tail {
    let settings = Settings {
        poll_interval: Duration::from_secs(3600),
        start: Start::Oldest,
        reread_interval: Duration::from_secs(3600),
        reread_window: Duration::from_secs(3600),
        page_size: 500,
    };
    let client = Client::new(settings::api(base_url), metrics.api.clone()).expect("a client");
    Tail::new(client, ledger.clone(), state, metrics.clone(), settings)
}

/// Bytes of the file and of the log beside it.
fn bytes(path: &Path) -> u64 {
    ["", "-wal"]
        .iter()
        .filter_map(|suffix| std::fs::metadata(format!("{}{suffix}", path.display())).ok())
        .map(|file| file.len())
        .sum()
}

/// A text of so many bytes that cannot be compressed.
fn noise(seed: u64, bytes: usize) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'0' + (state >> 58) as u8)
    })
    .take(bytes)
    .map(|letter| if letter == '\\' { '~' } else { letter })
    .collect()
}

fn counted(metrics: &Metrics) -> u64 {
    metrics.audit.events().iter().map(|(_, count)| count).sum()
}

/// A first start with a history that is several times what the file can hold: the tail waits for the relay, page by page, and never
/// for good; everything arrives once, oldest first.
#[tokio::test]
async fn a_walk_larger_than_the_outbox_drains_while_the_tail_pauses() {
    let history = 10_000;
    let simulator = Simulator::spawn(Config {
        history,
        ..Config::quiet()
    })
    .await
    .expect("a free port");
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state.db");
    let metrics = Metrics::new(Duration::ZERO);
    let (ledger, state) = ledger(
        &simulator.base_url(),
        StatePath::File(path.clone()),
        MAX_SIZE,
        &metrics,
    );
    let peer = Peer::grpc(4 << 20).await;
    let mut relay = relay(&ledger, &peer, &metrics);
    let mut tail = tail(&simulator.base_url(), &ledger, state, &metrics);

    // The tail works until it pauses or has nothing left; then the relay does one round: at most one request.
    let (mut pauses, mut largest, mut live) = (0, 0, None);
    for round in 0.. {
        assert!(
            round < 10_000,
            "it is stuck at {} of {history}",
            peer.taken_ids().len()
        );
        let mut wait = Duration::ZERO;
        while wait.is_zero() {
            wait = tail.round().await;
            largest = largest.max(metrics.state.size_bytes.get());
            if live.is_none() && metrics.audit.is_paused() {
                // What happens meanwhile waits at the service.
                live = Some(simulator.mark());
                simulator.add_events(700);
            }
        }
        pauses += u32::from(metrics.audit.is_paused());
        let next = relay.round().await;
        if next == Next::Idle
            && !metrics.audit.is_paused()
            && metrics.audit.current_walk().is_none()
        {
            if counted(&metrics) == 700 && ledger.backlog().records == 0 {
                break;
            }
            tail.hurry_poll();
        }
    }
    assert!(pauses > 10, "{pauses} pauses: the file held it all");
    assert!(
        largest <= i64::try_from(MAX_SIZE).expect("small"),
        "{largest} bytes"
    );
    assert!(!ledger.is_full() && !metrics.audit.is_paused());
    let truth: Vec<String> = simulator
        .entries_of(Scope::default())
        .map(|entry| entry.id)
        .collect();
    assert_eq!(peer.taken_ids(), truth, "each once, oldest first");
    assert_eq!(
        counted(&metrics),
        simulator
            .truth_of(Scope::arrived_since(live.expect("it paused")))
            .total
    );
    let file = std::fs::metadata(&path).expect("a file").len();
    assert!(file <= MAX_SIZE, "{file} bytes");
}

/// A page as the service would serve it takes more than the whole file may: it is read in smaller ones, the file with the log beside it
/// stays below its limit, and both become short again once all is delivered.
#[tokio::test]
async fn entries_of_which_a_page_is_larger_than_the_file_may_be_pass_through_it() {
    let (entries, max_size) = (400, 8 << 20);
    let simulator = Simulator::spawn(Config::quiet())
        .await
        .expect("a free port");
    for number in 0..entries {
        let metadata = serde_json::json!({ "note": noise(number, 60_000) });
        simulator
            .add_entry(&Fields::new().with("metadata", metadata))
            .expect("an entry");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state.db");
    let metrics = Metrics::new(Duration::ZERO);
    let (ledger, state) = ledger(
        &simulator.base_url(),
        StatePath::File(path.clone()),
        max_size,
        &metrics,
    );
    let peer = Peer::grpc(4 << 20).await;
    let mut relay = relay(&ledger, &peer, &metrics);
    let mut tail = tail(&simulator.base_url(), &ledger, state, &metrics);
    let mut pauses = 0;
    for round in 0.. {
        assert!(
            round < 10_000,
            "it is stuck at {} of {entries}",
            peer.taken_ids().len()
        );
        // The collector is away until the file is full, again and again.
        while tail.round().await.is_zero() {
            assert!(bytes(&path) <= max_size, "{} bytes", bytes(&path));
        }
        pauses += u32::from(metrics.audit.is_paused());
        let idle = relay.round().await == Next::Idle;
        assert!(bytes(&path) <= max_size, "{} bytes", bytes(&path));
        if idle && !metrics.audit.is_paused() {
            break;
        }
    }
    assert!(pauses > 3, "{pauses} pauses: the file held it all");
    let truth: Vec<String> = simulator
        .entries_of(Scope::default())
        .map(|entry| entry.id)
        .collect();
    assert_eq!(peer.taken_ids(), truth, "each once, oldest first");
    assert!(bytes(&path) < 2 << 20, "{} bytes stay", bytes(&path));
}

/// What the collector refuses is one dead letter, counted once, whoever writes it down.
#[tokio::test]
async fn a_dead_letter_is_counted_once() {
    let metrics = Metrics::new(Duration::ZERO);
    let (ledger, _) = ledger("https://api.example", StatePath::Memory, MAX_SIZE, &metrics);
    let mut commit = Commit::new(Timestamp::now());
    commit.entries = (0..10)
        .map(|number| NewEntry {
            id: EventId(number),
            created_at: commit.server_time,
            disposition: Disposition::Live,
            event: match number {
                9 => Err("unreadable".to_owned()),
                _ => Ok(NewEvent {
                    activity_type: "T".to_owned(),
                    actor: None,
                    malformed: false,
                }),
            },
            raw: format!(r#"{{"id":"{number}","type":"T"}}"#),
        })
        .collect();
    ledger.commit(commit).await.expect("written");
    assert_eq!(
        metrics.otlp.records_dead_lettered.get(),
        1,
        "an entry that cannot be read"
    );
    let peer = Peer::grpc(4 << 20).await;
    let mut relay = relay(&ledger, &peer, &metrics);
    peer.reply(Reply::Partial(2, "two of them are bad"));
    while relay.round().await != Next::Idle {}
    assert_eq!(
        (
            ledger.backlog().records,
            ledger.dead_letters().expect("readable")
        ),
        (0, 10)
    );
    assert_eq!(
        (
            metrics.otlp.records_dead_lettered.get(),
            metrics.otlp.records_rejected.get()
        ),
        (10, 2)
    );
}
