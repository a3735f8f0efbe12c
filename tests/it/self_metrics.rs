//! Every metric of docs/metrics.md is there from the start if its labels are known, and moves when what it describes happens:
//! in the built binary, beside a service and a collector that misbehave.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::net::TcpStream;
use std::sync::Mutex;
use std::time::Duration;

use http::StatusCode;
use orgdata_exporter::ledger::DeadLetters;
use orgdata_exporter::simulator::{
    Config, Endpoint, Fault, FaultKind, Fields, RetryAfter, Running, Simulator, TotalCount,
};

use crate::support::binary::{Exporter, Launch, Scrape, client, exporter};
use crate::support::collector_peer::{Peer, Reply};
use crate::support::{families, openmetrics};

const DOCUMENTATION: &str = include_str!("../../docs/metrics.md");

/// The same from the start of a process to its end. The expiry of a certificate moves in `web_config`.
const CONSTANT: [&str; 12] = [
    // tests/it/tail.rs and tests/it/backlog.rs show these.
    "orgdata_audit_backdated_total",
    // tests/it/excluded.rs shows it.
    "orgdata_audit_excluded_total",
    "orgdata_audit_history_complete",
    "orgdata_certificate_not_after_timestamp_seconds",
    "orgdata_exporter_active",
    "orgdata_exporter_build_info",
    "orgdata_state_created_timestamp_seconds",
    "orgdata_state_max_size_bytes",
    "process_max_fds",
    "process_start_time_seconds",
    // A process that has its threads and memory already needs no more address space.
    "process_virtual_memory_bytes",
    "process_virtual_memory_max_bytes",
];

/// What each family shows at one moment, by the name of its samples.
type Picture = BTreeMap<String, String>;

/// Which metrics have moved so far.
type Moved = BTreeSet<String>;

/// Watches the metrics of one exporter.
struct Watch {
    exporter: Exporter,
    moved: Moved,
}

fn promised() -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let names = DOCUMENTATION.split('`').skip(1).step_by(2);
    let names = names.filter(|name| name.chars().all(is_name));
    let is_metric = |name: &&str| name.starts_with("orgdata_") || name.starts_with("process_");
    names.filter(is_metric).map(str::to_owned).collect()
}

fn picture(scrape: &str) -> Picture {
    let families = openmetrics::parse(scrape).unwrap().into_iter();
    let show = |family: openmetrics::Family| {
        let suffix = if family.kind == "counter" {
            "_total"
        } else {
            ""
        };
        let values = family.samples.into_iter();
        let values = values.map(|sample| (sample.name, sample.labels, sample.value));
        let values = format!("{:?}", values.collect::<Vec<_>>());
        (family.name + suffix, values)
    };
    families.map(show).collect()
}

fn note(moved: &mut Moved, before: &Picture, after: &Picture) {
    let names = before.keys().chain(after.keys());
    let names = names.filter(|name| before.get(*name) != after.get(*name));
    moved.extend(names.cloned());
}

// === impl Watch ===

impl Watch {
    async fn new(setup: Launch) -> Self {
        Self {
            exporter: setup.listening().await,
            moved: Moved::new(),
        }
    }

    async fn look(&self) -> Picture {
        let request = client().get(format!("{}/metrics", self.exporter.url().await));
        let request = request.header("accept", "application/openmetrics-text;version=1.0.0");
        let response = request.send().await.unwrap();
        picture(&response.text().await.unwrap())
    }

    /// Does something, every few seconds, until all of these metrics, separated by spaces, show something else than before.
    async fn moves(&mut self, names: &str, act: impl Fn()) {
        let before = self.look().await;
        let mut waiting: BTreeSet<&str> = names.split_whitespace().collect();
        for attempt in 0..4_800 {
            if attempt % 200 == 0 {
                act();
            }
            let now = self.look().await;
            note(&mut self.moved, &before, &now);
            waiting.retain(|name| before.get(*name) == now.get(*name));
            if waiting.is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        panic!("{names} should move, and {waiting:?} did not");
    }
}

#[tokio::test]
async fn every_metric_moves_when_it_should() {
    // Each waits for most of its time.
    let moved = tokio::join!(
        the_service(),
        the_collector(),
        a_full_file(),
        a_damaged_file(),
        an_ignored_filter(),
    );
    let moved = [moved.0, moved.1, moved.2, moved.3, moved.4];
    let moved: Moved = moved.into_iter().flatten().collect();
    let mut never = promised();
    never.retain(|name| !moved.contains(name) && !CONSTANT.contains(&name.as_str()));
    assert!(never.is_empty(), "never seen to move: {never:?}");
}

#[tokio::test]
async fn what_has_known_labels_is_there_from_the_start() {
    // No response of the service has come yet.
    let simulator = quiet(3, 0).await;
    simulator.fault(Fault::new(FaultKind::Hang));
    let peer = Peer::http(1 << 20).await;
    let watch = Watch::new(beside(&simulator, Some(&peer))).await;
    let now = watch.look().await;
    let mut missing = promised();
    let is_absent = |name: &str| families::ABSENT_AT_FIRST.contains(&name);
    missing.retain(|name| !now.contains_key(name) && !is_absent(name));
    assert!(missing.is_empty(), "not there from the start: {missing:?}");
    simulator.clear_faults();
}

async fn quiet(history: u64, tickets: u64) -> Running {
    let config = Config {
        history,
        tickets,
        ..Config::quiet()
    };
    Simulator::spawn(config).await.unwrap()
}

fn beside(simulator: &Running, collector: Option<&Peer>) -> Launch {
    let setup = exporter(&simulator.base_url())
        .flag("--metrics.max-actors", "3")
        .flag("--audit.reread-interval", "500ms");
    match collector {
        Some(peer) => setup.otlp("http/protobuf", &format!("http://{}", peer.address)),
        None => setup,
    }
}

async fn the_service() -> Moved {
    let simulator = quiet(20, 60).await;
    let mut watch = Watch::new(beside(&simulator, None)).await;
    let tickets = |scrape: &Scrape| scrape.has("orgdata_deals_with_open_tickets");
    watch.exporter.until("tickets", tickets).await;
    watch.exporter.synced().await;
    let later = |seconds| simulator.advance(Duration::from_secs(seconds));
    // Each time at another moment, so that none is behind another.
    let events = |count| {
        later(1);
        simulator.add_events(count);
    };

    // A fault strikes so many requests, and then come so many events.
    let fault = |times, kind, count| {
        simulator.clear_faults();
        simulator.fault(Fault::new(kind).on(Endpoint::Audit).times(times));
        events(count);
    };
    let names = "orgdata_audit_events_total orgdata_audit_event_delay_seconds orgdata_audit_actors_folded_total
        orgdata_audit_newest_event_timestamp_seconds orgdata_api_requests_total orgdata_api_request_duration_seconds
        orgdata_api_response_bytes_total orgdata_last_success_timestamp_seconds orgdata_state_commits_total";
    later(59);
    watch.moves(names, || events(50)).await;
    let scrape = watch.exporter.metrics().await;
    let actor = scrape.split("orgdata_audit_actor_info{actor=\"").nth(1);
    let actor: i64 = actor.unwrap().split('"').next().unwrap().parse().unwrap();
    let renamed = serde_json::json!({ "id": 1, "firstName": "Renamed" });
    let renamed = Fields::new().with("actorUser", renamed);
    let renamed = renamed.with("actorUserId", actor);
    let untyped = Fields::new().with("type", serde_json::Value::Null);
    let entry = |fields: &Fields| {
        later(1);
        simulator.add_entry(fields).unwrap();
    };
    let unreadable = || {
        let fields = Fields::new().unchecked().with("createdAt", "no time");
        simulator.add_ticket(fields).unwrap();
    };
    let lost = || {
        // Within a minute of the last poll nothing can have been lost.
        later(120);
        events(1000);
        simulator.retain(100);
        simulator.clear_faults();
    };
    let miscounted = || simulator.change_readings(|it| it.total_count = TotalCount::Off(3));
    let late = || simulator.add_late(3, Duration::from_secs(30));
    let entries = "orgdata_audit_entries_malformed_total orgdata_otlp_records_dead_lettered_total
        orgdata_otlp_dead_letters";
    let snapshot = "orgdata_tickets_malformed orgdata_tickets_snapshot_timestamp_seconds
        orgdata_tickets_snapshot_duration_seconds";
    let tickets = "orgdata_tickets orgdata_tickets_deal_amount orgdata_open_tickets orgdata_open_tickets_deal_amount
        orgdata_open_tickets_overdue orgdata_open_tickets_older_than orgdata_deals_with_open_tickets
        orgdata_open_tickets_oldest_created_timestamp_seconds orgdata_deals_with_open_tickets_amount
        orgdata_tickets_opened orgdata_tickets_closed orgdata_tickets_time_to_close_seconds";
    let retries = "orgdata_tickets_snapshot_consistent orgdata_tickets_snapshot_retries_total";
    let failures = "orgdata_up orgdata_api_request_failures_total";
    // What happens, and what it moves.
    let duplicated = || fault(9, FaultKind::Duplicate, 5);
    let limited = || fault(1, FaultKind::TooManyRequests(RetryAfter::Seconds(1)), 0);
    let broken = || fault(u64::MAX, FaultKind::Status(StatusCode::BAD_GATEWAY), 0);
    let expired = || fault(3, FaultKind::ExpiredCursor(StatusCode::BAD_REQUEST), 1000);
    let steps: [(&dyn Fn(), &str); 11] = [
        (&|| entry(&renamed), "orgdata_audit_actor_info"),
        (&late, "orgdata_audit_events_late_total"),
        (&duplicated, "orgdata_audit_events_duplicate_total"),
        (&|| entry(&untyped), entries),
        (&limited, "orgdata_api_throttled_seconds_total"),
        (&broken, failures),
        (&lost, "orgdata_audit_gaps_total"),
        (&expired, "orgdata_audit_cursor_recoveries_total"),
        (&unreadable, snapshot),
        (&|| simulator.clear_tickets(), tickets),
        (&miscounted, retries),
    ];
    for (happens, moves) in steps {
        watch.moves(moves, happens).await;
    }
    // Connections are descriptors; a burst of scrapes costs memory and time.
    let (address, open) = (watch.exporter.address(), Mutex::new(Vec::new()));
    let scrapes = || {
        for _ in 0..32 {
            let mut stream = TcpStream::connect(address).unwrap();
            let request = b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n";
            stream.write_all(request).unwrap();
            open.lock().unwrap().push(stream);
        }
    };
    let names = "process_cpu_seconds_total process_open_fds process_resident_memory_bytes";
    watch.moves(names, scrapes).await;
    watch.moved
}

async fn the_collector() -> Moved {
    let simulator = quiet(3, 0).await;
    let peer = Peer::http(1 << 20).await;
    let launch = beside(&simulator, Some(&peer));
    let state = launch.dir().join("state.db");
    let mut watch = Watch::new(launch.state(&state)).await;
    watch.exporter.synced().await;
    let names =
        "orgdata_otlp_records_sent_total orgdata_otlp_requests_total orgdata_state_size_bytes
        orgdata_otlp_acknowledgement_delay_seconds";
    watch.moves(names, || simulator.add_events(3000)).await;
    watch.exporter.settled(3000).await;
    let rejected = || {
        peer.reply(Reply::Partial(1, "no"));
        simulator.add_events(2);
    };
    let names = "orgdata_otlp_records_rejected_total orgdata_otlp_dead_letters";
    watch.moves(names, rejected).await;
    watch.exporter.settled(3002).await;
    let away = || {
        (0..3).for_each(|_| peer.reply(Reply::Http(503, "text/plain", "away", None)));
        simulator.add_events(2);
    };
    let names = "orgdata_otlp_request_failures_total orgdata_otlp_backlog_records
        orgdata_otlp_oldest_unsent_timestamp_seconds
        orgdata_otlp_delivered_through_timestamp_seconds";
    watch.moves(names, away).await;
    let replay = || {
        let letters = DeadLetters::open(&state).unwrap();
        letters.replay(&letters.ids(None).unwrap()).unwrap();
    };
    let names = "orgdata_otlp_records_replayed_total";
    watch.moves(names, replay).await;
    watch.moved
}

async fn a_full_file() -> Moved {
    let simulator = quiet(3, 0).await;
    for _ in 0..400 {
        let noise = std::iter::repeat_with(fastrand::alphanumeric);
        let noise: String = noise.take(16_000).collect();
        let metadata = serde_json::json!({ "noise": noise });
        let fields = Fields::new().with("metadata", metadata);
        let untyped = fields.clone().with("type", serde_json::Value::Null);
        simulator.add_entry(&untyped).unwrap();
        simulator.add_entry(&fields).unwrap();
    }
    let peer = Peer::hangs_up().await;
    let setup = beside(&simulator, Some(&peer)).args(&[
        "--audit.start=oldest",
        "--api.page-size=10",
        "--state.max-size=8MiB",
    ]);
    let broken = FaultKind::Status(StatusCode::INTERNAL_SERVER_ERROR);
    simulator.fault(Fault::new(broken).on(Endpoint::Audit));
    let mut watch = Watch::new(setup).await;
    let names = "orgdata_audit_paused
        orgdata_organization_info orgdata_otlp_dead_letters_evicted_total";
    watch.moves(names, || simulator.clear_faults()).await;
    watch.moved
}

async fn a_damaged_file() -> Moved {
    let simulator = quiet(3, 0).await;
    let launch = beside(&simulator, None);
    let state = launch.dir().join("state.db");
    let launch = launch.state(&state);
    let mut watch = Watch::new(launch.clone()).await;
    watch.exporter.synced().await;
    let before = watch.look().await;
    let database = rusqlite::Connection::open(&state).unwrap();
    let sql = "CREATE TRIGGER no BEFORE INSERT ON pages BEGIN SELECT raise(ABORT, 'no'); END";
    database.execute_batch(sql).unwrap();
    let names = "orgdata_state_commit_failures_total";
    watch.moves(names, || simulator.add_events(1)).await;
    drop(database);
    assert_eq!(watch.exporter.stop().await, Some(0));
    let mut file = std::fs::read(&state).unwrap();
    // Only a file with the header of SQLite is the exporter's.
    file[100..].fill(0x5a);
    std::fs::write(&state, file).unwrap();
    let after = Watch::new(launch).await.look().await;
    let names = [
        "orgdata_state_recreated_total",
        "orgdata_state_recreated_timestamp_seconds",
    ];
    assert!(names.iter().all(|name| before[*name] != after[*name]));
    watch.moved.extend(names.map(str::to_owned));
    watch.moved
}

async fn an_ignored_filter() -> Moved {
    let simulator = quiet(20, 0).await;
    let peer = Peer::http(1 << 20).await;
    // The service ignores a deal that does not exist.
    let setup = beside(&simulator, Some(&peer)).flag("--audit.deal-ids", "99999999");
    let mut watch = Watch::new(setup).await;
    watch.exporter.synced().await;
    let names = "orgdata_audit_filtered_total orgdata_api_contract_violations_total";
    watch.moves(names, || simulator.add_events(20)).await;
    let scrape = watch.exporter.scrape().await;
    for taken in [
        "audit_events_total",
        "otlp_backlog_records",
        "otlp_records_sent_total",
    ] {
        assert_eq!(scrape.sum(&format!("orgdata_{taken}")), 0.0, "{taken}");
    }
    watch.exporter.logs("level=warn | the API ignores").await;
    watch.moved
}
