//! What collectors and what is in front of them answer, and what becomes of the records: an answer that arrived is an answer, only the protocol's own
//! words are a success, and no overload makes a dead letter.

use std::time::Duration;

use jiff::Timestamp;
use orgdata_exporter::ledger::{Commit, Disposition, LedgerHandle, NewEntry};
use orgdata_exporter::metrics::Metrics;
use orgdata_exporter::records::{Delivery, Next, Relay};
use otlp_logs::Sender;
use tokio::time::{Instant, advance};
use tonic::{Code, Status};

use crate::otlp::{DEFAULT_LIMIT, peer};
use crate::support::captured::Captured;
use crate::support::collector_peer::{Peer, Reply};
use crate::support::http_peer::Clock;
use crate::support::settings;

const GRPC: &str = "grpc";
const HTTP: &str = "http/protobuf";

/// A collector, and a relay that delivers to it.
struct World {
    peer: Peer,
    ledger: LedgerHandle,
    relay: Relay<Sender>,
    _clock: Clock,
}

// === impl World ===

impl World {
    /// A collector that gets records with the ids `0` and so on.
    async fn new(protocol: &str, records: u64) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let _clock = Clock::hold();
        let peer = peer(protocol, DEFAULT_LIMIT).await;
        let (ledger, _) = LedgerHandle::open(settings::ledger(None, "http://localhost")).unwrap();
        let metrics = Metrics::new(Duration::ZERO);
        let delivery = Delivery::from_env(Some(&peer.url()), Some(protocol), None, 512, &|_| None);
        let delivery = delivery.unwrap().unwrap();
        let sender = Sender::new(&delivery.target).unwrap();
        let (otlp, loops) = (metrics.otlp.clone(), metrics.loops.clone());
        let relay = Relay::new(ledger.clone(), sender, &delivery, otlp, loops);
        let world = Self {
            peer,
            ledger,
            relay,
            _clock,
        };
        world.add(0..records).await;
        world
    }

    async fn add(&self, numbers: std::ops::Range<u64>) {
        let entry = |number| NewEntry {
            disposition: Disposition::Backdated,
            ..settings::entry(number, format!(r#"{{"id":"{number}","type":"X"}}"#))
        };
        let mut commit = Commit::new(Timestamp::now());
        commit.entries = numbers.map(entry).collect();
        self.ledger.commit(commit).await.unwrap();
    }

    /// Runs for so long, or until nothing is left to do.
    async fn run_for(&mut self, seconds: u64) {
        let end = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < end {
            match self.relay.round().await {
                Next::Now => {}
                Next::After(wait) => advance(wait).await,
                Next::Idle => return,
            }
        }
    }

    /// Asserts how many records were delivered, each once, became dead letters, and wait.
    #[track_caller]
    fn assert(&self, delivered: usize, dead: u64, waiting: u64, what: &str) {
        let mut ids = self.peer.taken_ids();
        ids.sort_unstable();
        ids.dedup();
        let taken = self.peer.taken_ids().len();
        assert_eq!(
            (taken, ids.len()),
            (delivered, delivered),
            "{what}: delivered"
        );
        let status = self.ledger.status();
        let left = (status.dead_letters, status.backlog);
        assert_eq!(left, (dead, waiting), "{what}: dead letters and backlog");
    }
}

/// The text of an error over gRPC is in the header.
#[tokio::test(start_paused = true)]
async fn an_error_of_any_length_rejects_the_bad_record_alone() {
    let invalid = Status::invalid_argument;
    for (says, bytes) in [
        ((|_| "x".repeat(20_000)) as fn(usize) -> String, "20 KB"),
        (|records| "x".repeat(60 * records), "60 bytes a record"),
        // Beyond the limit, the answer is about the records too.
        (|_| "x".repeat(400_000), "400 KB"),
    ] {
        let mut world = World::new(GRPC, 400).await;
        world.peer.reject("200");
        world
            .peer
            .says(move |ids| Reply::Status(invalid(says(ids.len()))));
        world.run_for(60).await;
        world.assert(399, 1, 0, bytes);
    }
}

#[tokio::test(start_paused = true)]
async fn a_success_with_a_long_header_is_a_success() {
    for (protocol, fields, length) in [
        (GRPC, 1, 20_000),
        (GRPC, 2, 100_000),
        (HTTP, 120, 10),
        (HTTP, 500, 10),
    ] {
        let mut world = World::new(protocol, 10).await;
        for number in 0..fields {
            world
                .peer
                .add_header(&format!("x-more-{number}"), &"x".repeat(length));
        }
        world.run_for(60).await;
        let what = format!("{protocol} {fields} {length}");
        world.assert(10, 0, 0, &what);
        assert_eq!(world.peer.requests().len(), 1, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_words_of_the_protocol_are_a_success() {
    const JSON: &str = "application/json";
    for (kind, body) in [
        (JSON, r#"{"code":401,"message":"no"}"#),
        (JSON, r#"{"error":"no"}"#),
        (JSON, r#"{"success":false}"#),
        (JSON, r#"{"code":16,"message":"no"}"#),
        ("text/html", "<html>Welcome</html>"),
        ("text/html", ""),
        ("text/plain; charset=utf-8", ""),
    ] {
        let mut world = World::new(HTTP, 10).await;
        (0..100).for_each(|_| world.peer.reply(Reply::Http(200, kind, body, None)));
        let log = Captured::begin();
        world.run_for(60).await;
        world.assert(0, 0, 10, body);
        assert!(log.count("wrong_endpoint") > 0, "{body}");
    }
}

/// Half of the requests fail for a minute, and for the rest of the time one record really is bad.
#[tokio::test(start_paused = true)]
async fn an_overload_makes_no_dead_letter() {
    for (protocol, overload) in [
        (HTTP, Reply::Http(500, "text/plain", "busy", None)),
        (
            GRPC,
            Reply::Status(Status::unknown("data refused due to high memory usage")),
        ),
    ] {
        for seed in 0..3 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut world = World::new(protocol, 200).await;
            let end = Instant::now() + Duration::from_secs(60);
            while Instant::now() < end {
                if random.bool() {
                    world.peer.reply(overload.clone());
                }
                let before = world.peer.requests().len();
                if let Next::After(wait) = world.relay.round().await {
                    advance(wait).await;
                }
                if world.peer.requests().len() == before {
                    break;
                }
                world.peer.script.replies.lock().unwrap().clear();
            }
            world.run_for(60).await;
            world.assert(200, 0, 0, &format!("{protocol} {seed}"));
            let again = overload.clone();
            world.peer.reject("250");
            world.peer.says(move |_| again.clone());
            world.add(200..300).await;
            let begun = Instant::now();
            world.run_for(300).await;
            world.assert(299, 1, 0, &format!("{protocol} {seed}"));
            assert!(begun.elapsed() >= Duration::from_secs(120));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_permanent_status_makes_one_dead_letter() {
    let status = |code: Code| (GRPC, Reply::Status(Status::new(code, "no")));
    let http = |status| (HTTP, Reply::Http(status, "text/plain", "no", None));
    for (protocol, reply) in [
        status(Code::FailedPrecondition),
        status(Code::AlreadyExists),
        status(Code::InvalidArgument),
        http(400),
        http(406),
        http(409),
        http(412),
        http(422),
        http(431),
        http(451),
    ] {
        let what = format!("{reply:?}");
        let mut world = World::new(protocol, 20).await;
        world.peer.reject("7");
        world.peer.says(move |_| reply.clone());
        world.run_for(60).await;
        world.assert(19, 1, 0, &what);
    }
}

/// Also after the request without records, and if the answer is about the records.
#[tokio::test(start_paused = true)]
async fn the_delay_of_the_server_wins() {
    for (records, status) in [(0, 429), (0, 503), (10, 429), (10, 503), (10, 400)] {
        let mut world = World::new(HTTP, records).await;
        world
            .peer
            .reply(Reply::Http(status, "text/plain", "later", Some("4")));
        let next = world.relay.round().await;
        assert_eq!(
            next,
            Next::After(Duration::from_secs(4)),
            "{records} {status}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_warning_that_rejects_nothing_is_one_log_line() {
    for protocol in [GRPC, HTTP] {
        let log = Captured::begin();
        let mut world = World::new(protocol, 0).await;
        world
            .peer
            .says_to_all(|_| Reply::Partial(0, "timestamp too old, token t0p"));
        for number in 0..3 {
            world.add(number..number + 1).await;
            world.run_for(60).await;
        }
        world.assert(3, 0, 0, protocol);
        assert_eq!(log.count("accepted log records with a warning"), 1);
        assert_eq!(log.count("too old, token"), 1, "{:?}", log.lines());
        assert_eq!(log.count("t0p"), 0);
    }
}
