//! The tail, a small state file and the relay together: a backlog that is larger than what the file can hold.

#[path = "support/collector_peer.rs"]
mod collector_peer;
#[path = "support/settings.rs"]
mod settings;

use std::time::Duration;

use collector_peer::{Peer, Reply};
use jiff::Timestamp;
use orgdata_exporter::api::Client;
use orgdata_exporter::audit::{Settings, Start, Tail};
use orgdata_exporter::ledger::{
    Commit, Disposition, EventId, LedgerHandle, LedgerState, NewEntry, NewEvent, Settings as LedgerSettings, StatePath,
};
use orgdata_exporter::metrics::Metrics;
use orgdata_exporter::otlp::{Flags, Next, Relay, Sender, Settings as OtlpSettings};
use orgdata_exporter::simulator::{Config, Scope, Simulator};

/// `--state.max-size`; half of it stays free.
const MAX_SIZE: u64 = 1 << 20;

fn ledger(base_url: &str, path: StatePath, metrics: &Metrics) -> (LedgerHandle, LedgerState) {
    let settings = LedgerSettings { max_size: MAX_SIZE, ..settings::ledger(path, base_url) };
    LedgerHandle::open(settings, metrics.clone()).expect("opens")
}

fn relay(ledger: &LedgerHandle, peer: &Peer, metrics: &Metrics) -> Relay<LedgerHandle, Sender> {
    rustls::crypto::ring::default_provider().install_default().ok();
    let flags = Flags {
        endpoint: Some(format!("http://{}", peer.address)),
        protocol: Some("grpc".to_owned()),
        batch_size: 512,
        user_names: true,
        redact: Vec::new(),
    };
    let settings = OtlpSettings::from_env(&flags, &|_| None).expect("settings").expect("an endpoint");
    let sender = Sender::new(&settings).expect("a sender");
    Relay::new(ledger.clone(), &ledger.instance_id(), sender, &settings, metrics.otlp.clone(), metrics.loops.clone())
}

fn counted(metrics: &Metrics) -> u64 {
    metrics.audit.events().iter().map(|(_, count)| count).sum()
}

/// A first start with a history that is several times what the file can hold: the tail waits for the relay, page by page, and never
/// for good; everything arrives once, oldest first.
#[tokio::test]
async fn a_walk_larger_than_the_outbox_drains_while_the_tail_pauses() {
    let history = 10_000;
    let simulator = Simulator::spawn(Config { history, ..Config::quiet() }).await.expect("a free port");
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state.db");
    let metrics = Metrics::new(Duration::ZERO);
    let (ledger, state) = ledger(&simulator.base_url(), StatePath::File(path.clone()), &metrics);
    let peer = Peer::grpc(4 << 20).await;
    let mut relay = relay(&ledger, &peer, &metrics);
    let api = settings::api(&simulator.base_url());
    let settings = Settings {
        poll_interval: Duration::from_secs(3600),
        start: Start::Oldest,
        reread_interval: Duration::from_secs(3600),
        reread_window: Duration::from_secs(3600),
        page_size: 500,
    };
    let client = Client::new(api, metrics.api.clone()).expect("a client");
    let mut tail = Tail::new(client, ledger.clone(), state, metrics.clone(), settings);

    // The tail works until it pauses or has nothing left; then the relay does one round: at most one request.
    let (mut pauses, mut largest, mut live) = (0, 0, None);
    for round in 0.. {
        assert!(round < 10_000, "it is stuck at {} of {history}", peer.taken_ids().len());
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
        if next == Next::Idle && !metrics.audit.is_paused() && metrics.audit.current_walk().is_none() {
            if counted(&metrics) == 700 && ledger.backlog().records == 0 {
                break;
            }
            tail.hurry_poll();
        }
    }
    assert!(pauses > 10, "{pauses} pauses: the file held it all");
    assert!(largest <= i64::try_from(MAX_SIZE).expect("small"), "{largest} bytes");
    assert!(!ledger.is_full() && !metrics.audit.is_paused());
    let truth: Vec<String> = simulator.entries_of(Scope::default()).map(|entry| entry.id).collect();
    assert_eq!(peer.taken_ids(), truth, "each once, oldest first");
    assert_eq!(counted(&metrics), simulator.truth_of(Scope::arrived_since(live.expect("it paused"))).total);
    let file = std::fs::metadata(&path).expect("a file").len();
    assert!(file <= MAX_SIZE, "{file} bytes");
}

/// What the collector refuses is one dead letter, counted once, whoever writes it down.
#[tokio::test]
async fn a_dead_letter_is_counted_once() {
    let metrics = Metrics::new(Duration::ZERO);
    let (ledger, _) = ledger("https://api.example", StatePath::Memory, &metrics);
    let mut commit = Commit::new(Timestamp::now());
    commit.entries = (0..10)
        .map(|number| NewEntry {
            id: EventId(number),
            created_at: commit.server_time,
            disposition: Disposition::Live,
            event: match number {
                9 => Err("unreadable".to_owned()),
                _ => Ok(NewEvent { activity_type: "T".to_owned(), actor: None, malformed: false }),
            },
            raw: format!(r#"{{"id":"{number}","type":"T"}}"#),
        })
        .collect();
    ledger.commit(commit).await.expect("written");
    assert_eq!(metrics.otlp.records_dead_lettered.get(), 1, "an entry that cannot be read");
    let peer = Peer::grpc(4 << 20).await;
    let mut relay = relay(&ledger, &peer, &metrics);
    peer.reply(Reply::Partial(2, "two of them are bad"));
    while relay.round().await != Next::Idle {}
    assert_eq!((ledger.backlog().records, ledger.dead_letters().expect("readable")), (0, 10));
    assert_eq!((metrics.otlp.records_dead_lettered.get(), metrics.otlp.records_rejected.get()), (10, 2));
}
