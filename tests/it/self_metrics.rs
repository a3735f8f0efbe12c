//! Every metric that README promises is there from the start where its labels are known, and moves when that happens which it tells of:
//! in the built binary, beside a service and a collector to which everything happens that can happen.

use crate::support::collector_peer;
use crate::support::exporter;
use crate::support::families;
use crate::support::openmetrics;
use crate::support::settings;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use collector_peer::{Peer, Reply};
use exporter::{Exporter, Setup};
use http::StatusCode;
use jiff::Timestamp;
use orgdata_exporter::ledger::{
    Commit, Disposition, EventId, LedgerHandle, NewEntry, NewEvent, Settings, StatePath,
};
use orgdata_exporter::metrics::Metrics;
use orgdata_exporter::metrics::exposition::Format;
use orgdata_exporter::simulator::{
    Config, Endpoint, Fault, FaultKind, Fields, RetryAfter, Running, Simulator, TotalCount,
};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

const README: &str = include_str!("../../README.md");

/// The same from the start of a process to its end; a certificate's end moves in tests/web_config, where there is one.
const CONSTANT: [&str; 6] = [
    "orgdata_certificate_not_after_timestamp_seconds",
    "orgdata_exporter_build_info",
    "orgdata_state_max_size_bytes",
    "process_max_fds",
    "process_start_time_seconds",
    "process_virtual_memory_max_bytes",
];

/// What each family showed at some moment, by the name that its samples have.
type Picture = BTreeMap<String, String>;

/// Which metrics have moved so far.
#[derive(Default)]
struct Watch {
    moved: BTreeSet<String>,
}

fn promised() -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let names = README.split('`').skip(1).step_by(2);
    names
        .filter(|name| {
            (name.starts_with("orgdata_") || name.starts_with("process_"))
                && name.chars().all(is_name)
        })
        .map(str::to_owned)
        .collect()
}

/// Every scrape is read by the strict parser.
fn picture(scrape: &str) -> Picture {
    let families = openmetrics::parse(scrape).expect("strict OpenMetrics");
    families
        .into_iter()
        .map(|family| {
            let name = if family.kind == "counter" {
                format!("{}_total", family.name)
            } else {
                family.name
            };
            let values: Vec<_> = family
                .samples
                .iter()
                .map(|sample| (&sample.name, &sample.labels, sample.value))
                .collect();
            (name, format!("{values:?}"))
        })
        .collect()
}

async fn look(exporter: &Exporter) -> Picture {
    let request = exporter
        .get("/metrics")
        .header("accept", "application/openmetrics-text;version=1.0.0");
    picture(
        &request
            .send()
            .await
            .expect("an answer")
            .text()
            .await
            .expect("a body"),
    )
}

// === impl Watch ===

impl Watch {
    /// Does something, and looks until all of these metrics show something else than before.
    async fn moves(&mut self, exporter: &Exporter, what: &str, names: &[&str], act: impl FnOnce()) {
        let before = look(exporter).await;
        act();
        let mut waiting: BTreeSet<&str> = names.iter().copied().collect();
        for _ in 0..600 {
            let now = look(exporter).await;
            self.note(&before, &now);
            waiting.retain(|name| before.get(*name) == now.get(*name));
            if waiting.is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        panic!("{what} does not move {waiting:?}");
    }

    fn note(&mut self, before: &Picture, after: &Picture) {
        let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        self.moved.extend(
            names
                .into_iter()
                .filter(|name| before.get(*name) != after.get(*name))
                .cloned(),
        );
    }
}

#[tokio::test]
async fn every_metric_moves_when_it_should() {
    let [mut service, mut collector, mut walk, mut damage, mut ledger] =
        [(); 5].map(|()| Watch::default());
    // Each waits for most of its time.
    tokio::join!(
        the_service(&mut service),
        the_collector(&mut collector),
        a_long_walk_into_a_full_file(&mut walk),
        a_damaged_file(&mut damage),
        the_ledger(&mut ledger),
    );
    let moved: BTreeSet<String> = [service, collector, walk, damage, ledger]
        .into_iter()
        .flat_map(|watch| watch.moved)
        .collect();
    let never: Vec<String> = promised()
        .into_iter()
        .filter(|name| !moved.contains(name) && !CONSTANT.contains(&name.as_str()))
        .collect();
    assert!(never.is_empty(), "never seen to move: {never:?}");
}

#[tokio::test]
async fn what_has_known_labels_is_there_from_the_start() {
    // No answer of the service has come yet.
    let simulator = quiet(0, 0).await;
    let silent = simulator.fault(Fault::new(FaultKind::Hang));
    let peer = Peer::http(1 << 20).await;
    let exporter = beside(&simulator, Some(&peer)).start().await;
    let now = look(&exporter).await;
    let missing: Vec<String> = promised()
        .into_iter()
        .filter(|name| {
            !now.contains_key(name) && !families::ABSENT_AT_FIRST.contains(&name.as_str())
        })
        .collect();
    assert!(missing.is_empty(), "not there from the start: {missing:?}");
    simulator.remove_fault(silent);
}

async fn quiet(history: u64, tickets: u64) -> Running {
    Simulator::spawn(Config {
        history,
        tickets,
        ..Config::quiet()
    })
    .await
    .expect("a free port")
}

fn beside(simulator: &Running, collector: Option<&Peer>) -> Setup {
    let setup = Setup::new(simulator)
        .flag("--metrics.max-actors", "3")
        .flag("--audit.reread-interval", "500ms")
        .flag("--tickets.scan-interval", "200ms");
    match collector {
        Some(peer) => setup
            .flag("--otlp.endpoint", &format!("http://{}", peer.address))
            .flag("--otlp.protocol", "http/protobuf"),
        None => setup,
    }
}

async fn the_service(watch: &mut Watch) {
    let simulator = quiet(20, 60).await;
    let exporter = beside(&simulator, None).start().await;
    exporter
        .until("tickets", |scrape| {
            scrape.has("orgdata_deals_with_open_tickets")
        })
        .await;
    exporter.born().await;
    let fault = |kind| simulator.fault(Fault::new(kind).on(Endpoint::Audit));

    // Each at a moment of its own: none is behind another.
    let events = |count| {
        simulator.advance(Duration::from_secs(1));
        simulator.add_events(count);
    };

    let counted = [
        "orgdata_audit_events_total",
        "orgdata_audit_event_delay_seconds",
        "orgdata_audit_actors_folded_total",
        "orgdata_audit_newest_event_timestamp_seconds",
        "orgdata_api_requests_total",
        "orgdata_api_request_duration_seconds",
        "orgdata_api_response_bytes_total",
        "orgdata_last_success_timestamp_seconds",
        "orgdata_state_commits_total",
    ];
    watch
        .moves(&exporter, "a page of events", &counted, || {
            simulator.advance(Duration::from_secs(60));
            simulator.add_events(50);
        })
        .await;
    let name = serde_json::json!({ "id": 1, "firstName": "Renamed", "lastName": null, "profileImageUrl": null });
    let scrape = exporter.scrape().await;
    let info = scrape
        .0
        .lines()
        .find_map(|line| line.strip_prefix("orgdata_audit_actor_info{actor=\""))
        .expect("a name");
    let actor: i64 = info
        .split('"')
        .next()
        .and_then(|id| id.parse().ok())
        .expect("an id");
    watch
        .moves(
            &exporter,
            "another name",
            &["orgdata_audit_actor_info"],
            || {
                simulator.advance(Duration::from_secs(1));
                simulator
                    .add_entry(
                        &Fields::new()
                            .with("actorUserId", actor)
                            .with("actorUser", name),
                    )
                    .expect("valid fields");
            },
        )
        .await;
    watch
        .moves(
            &exporter,
            "a late row",
            &["orgdata_audit_events_late_total"],
            || simulator.add_late(3, Duration::from_secs(30)),
        )
        .await;
    // It strikes whatever is asked next: a poll, or the question what lies below its page, which is no news.
    let before = look(&exporter).await;
    for _ in 0..50 {
        simulator.fault(Fault::new(FaultKind::Duplicate).on(Endpoint::Audit).once());
        events(5);
        exporter
            .until("the page is counted", |scrape| {
                scrape.sum("orgdata_audit_events_total") == simulator.event_count() as f64 - 20.0
            })
            .await;
        watch.note(&before, &look(&exporter).await);
        if watch.moved.contains("orgdata_audit_events_duplicate_total") {
            break;
        }
    }
    simulator.clear_faults();
    let odd = fault(FaultKind::MissingId);
    let dead = [
        "orgdata_audit_entries_malformed_total",
        "orgdata_otlp_records_dead_lettered_total",
        "orgdata_otlp_dead_letters",
    ];
    watch
        .moves(&exporter, "an entry without an id", &dead, || events(5))
        .await;
    simulator.remove_fault(odd);
    let more = fault(FaultKind::UnknownFields);
    watch
        .moves(
            &exporter,
            "fields that nobody knows",
            &["orgdata_api_unknown_fields_total"],
            || events(5),
        )
        .await;
    simulator.remove_fault(more);
    watch
        .moves(
            &exporter,
            "too many requests",
            &["orgdata_api_throttled_seconds_total"],
            || {
                simulator.fault(
                    Fault::new(FaultKind::TooManyRequests(RetryAfter::Seconds(1)))
                        .on(Endpoint::Audit)
                        .once(),
                );
            },
        )
        .await;
    let mut cursors = 0;
    watch
        .moves(
            &exporter,
            "a cursor that is no good",
            &["orgdata_audit_cursor_recoveries_total"],
            || {
                cursors = fault(FaultKind::ExpiredCursor(StatusCode::BAD_REQUEST));
            },
        )
        .await;
    simulator.remove_fault(cursors);
    exporter.born().await;
    let mut broken = 0;
    watch
        .moves(
            &exporter,
            "a service that fails",
            &["orgdata_up", "orgdata_api_request_failures_total"],
            || {
                broken = fault(FaultKind::Status(StatusCode::INTERNAL_SERVER_ERROR));
            },
        )
        .await;
    watch
        .moves(
            &exporter,
            "entries that went unread",
            &["orgdata_audit_gaps_total"],
            || {
                events(1000);
                simulator.retain(100);
                simulator.remove_fault(broken);
            },
        )
        .await;

    watch
        .moves(
            &exporter,
            "a ticket that cannot be read",
            &[
                "orgdata_tickets_malformed",
                "orgdata_tickets_snapshot_timestamp_seconds",
                "orgdata_tickets_snapshot_duration_seconds",
            ],
            || {
                simulator
                    .add_ticket(Fields::new().unchecked().with("createdAt", "no time"))
                    .expect("unchecked");
            },
        )
        .await;
    let every = [
        "orgdata_tickets",
        "orgdata_tickets_deal_amount",
        "orgdata_open_tickets",
        "orgdata_open_tickets_deal_amount",
        "orgdata_open_tickets_overdue",
        "orgdata_open_tickets_older_than",
        "orgdata_open_tickets_oldest_created_timestamp_seconds",
        "orgdata_deals_with_open_tickets",
    ];
    watch
        .moves(&exporter, "no tickets any more", &every, || {
            simulator.clear_tickets()
        })
        .await;
    let doubt = [
        "orgdata_tickets_snapshot_consistent",
        "orgdata_tickets_snapshot_retries_total",
    ];
    watch
        .moves(&exporter, "a count that is wrong", &doubt, || {
            simulator.change_readings(|readings| readings.total_count = TotalCount::Off(3))
        })
        .await;
    let process = [
        "process_cpu_seconds_total",
        "process_open_fds",
        "process_resident_memory_bytes",
        "process_virtual_memory_bytes",
    ];
    let before = look(&exporter).await;
    // Connections are descriptors; what a process needs for a burst of scrapes is memory and time.
    for name in process {
        for _ in 0..50 {
            let mut open = Vec::new();
            for _ in 0..32 {
                let mut stream = TcpStream::connect(exporter.address())
                    .await
                    .expect("it listens");
                stream
                    .write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n")
                    .await
                    .expect("it reads");
                open.push(stream);
            }
            watch.note(&before, &look(&exporter).await);
            drop(open);
            if watch.moved.contains(name) {
                break;
            }
        }
        assert!(
            watch.moved.contains(name),
            "a burst of scrapes does not move {name}"
        );
    }
}

async fn the_collector(watch: &mut Watch) {
    let simulator = quiet(0, 0).await;
    let peer = Peer::http(1 << 20).await;
    let directory = tempfile::tempdir().expect("a directory");
    let state = directory.path().join("state.db");
    let exporter = beside(&simulator, Some(&peer)).state(&state).start().await;
    exporter.born().await;
    let sent = [
        "orgdata_otlp_records_sent_total",
        "orgdata_otlp_requests_total",
        "orgdata_otlp_acknowledgement_delay_seconds",
        "orgdata_state_size_bytes",
    ];
    watch
        .moves(&exporter, "records", &sent, || simulator.add_events(3000))
        .await;
    exporter.settled(3000).await;
    let rejected = [
        "orgdata_otlp_records_rejected_total",
        "orgdata_otlp_dead_letters",
    ];
    watch
        .moves(&exporter, "a partial success", &rejected, || {
            peer.reply(Reply::Partial(1, "no"));
            simulator.add_events(2);
        })
        .await;
    exporter.settled(3002).await;
    let held = [
        "orgdata_otlp_request_failures_total",
        "orgdata_otlp_backlog_records",
        "orgdata_otlp_oldest_unsent_timestamp_seconds",
    ];
    watch
        .moves(&exporter, "a collector that is away", &held, || {
            (0..3).for_each(|_| peer.reply(Reply::Http(503, "text/plain", "away", None)));
            simulator.add_events(2);
        })
        .await;
    watch
        .moves(
            &exporter,
            "dead letters sent again",
            &["orgdata_otlp_records_replayed_total"],
            || {
                let replay = std::process::Command::new(env!("CARGO_BIN_EXE_orgdata-exporter"))
                    .args(["dead-letters", "replay", "--all", "--state.path"])
                    .arg(&state)
                    .output()
                    .expect("the built binary can be run");
                assert!(replay.status.success(), "{replay:?}");
            },
        )
        .await;
}

async fn a_long_walk_into_a_full_file(watch: &mut Watch) {
    let simulator = quiet(0, 0).await;
    for _ in 0..400 {
        let noise: String = std::iter::repeat_with(fastrand::alphanumeric)
            .take(16_000)
            .collect();
        simulator
            .add_entry(&Fields::new().with("metadata", serde_json::json!({ "noise": noise })))
            .expect("valid fields");
    }
    let peer = Peer::hangs_up().await;
    let exporter = beside(&simulator, Some(&peer))
        .flag("--audit.start", "oldest")
        .flag("--api.page-size", "10")
        .flag("--state.max-size", "8MiB")
        .start()
        .await;
    let names = ["orgdata_audit_walk_pages", "orgdata_audit_paused"];
    watch
        .moves(&exporter, "more history than the file holds", &names, || {})
        .await;
}

async fn a_damaged_file(watch: &mut Watch) {
    let simulator = quiet(0, 0).await;
    let directory = tempfile::tempdir().expect("a directory");
    let state = directory.path().join("state.db");
    let mut exporter = beside(&simulator, None).state(&state).start().await;
    let before = look(&exporter).await;
    assert!(exporter.terminate().await.success());
    std::fs::write(&state, vec![0x5a; 100_000]).expect("it can be written");
    let exporter = beside(&simulator, None).state(&state).start().await;
    let after = look(&exporter).await;
    for name in [
        "orgdata_state_recreated_total",
        "orgdata_state_recreated_timestamp_seconds",
    ] {
        assert_ne!(before[name], after[name], "{name}");
        watch.moved.insert(name.to_owned());
    }
}

/// What takes a disk that is full, or thousands of dead letters: the ledger by itself.
async fn the_ledger(watch: &mut Watch) {
    let metrics = Metrics::new(Duration::ZERO);
    let settings = Settings {
        max_size: 8 << 20,
        filters: "[]".to_owned(),
        max_actors: 10,
        actor_idle: Duration::from_secs(86_400),
        max_dead_letters: 2,
        ..settings::ledger(StatePath::Memory, "https://api.example")
    };
    let (ledger, _) = LedgerHandle::open(settings, metrics.clone()).expect("opens");
    let look = || {
        picture(
            &Format::OpenMetrics
                .encode(metrics.registry(), 0)
                .expect("encodes"),
        )
    };
    let page = |first: u64, count: u64, event: Result<NewEvent, String>| {
        let mut commit = Commit::new(Timestamp::now());
        commit.entries = (first..first + count)
            .map(|number| NewEntry {
                id: EventId(number),
                created_at: commit.server_time,
                disposition: Disposition::Live,
                event: event.clone(),
                raw: format!("{number:0>2000}"),
            })
            .collect();
        commit
    };
    let before = look();
    ledger
        .commit(page(0, 5, Err("unreadable".to_owned())))
        .await
        .expect("written");
    ledger.pretend_full(true).await.expect("can be said");
    let event = NewEvent {
        activity_type: "A".to_owned(),
        actor: None,
        malformed: false,
    };
    ledger
        .commit(page(100, 5000, Ok(event)))
        .await
        .expect_err("it is full");
    let after = look();
    for name in [
        "orgdata_otlp_dead_letters_evicted_total",
        "orgdata_state_commit_failures_total",
    ] {
        assert_ne!(before[name], after[name], "{name}");
    }
    watch.note(&before, &after);
}
