//! State files that earlier exporters wrote, up to the moment in which they were killed, are used by this one: it counts on,
//! delivers what they had not delivered, and delivers nothing twice. `earlier/README.md` says how the files were made.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use flate2::read::GzDecoder;
use futures_util::future::join_all;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::audit::{Settings, Start, Tail};
use crate::ledger::{DeadLetters, LedgerHandle, Settled};
use crate::metrics::Metrics;
use crate::metrics::audit::Total;
use crate::simulator::{ClockSource, Config, Fields, Running, Simulator};
use crate::support::{files, settings};

/// Longer than any wait after a failure: a round that asks for it has nothing left to do.
const REST: Duration = Duration::from_secs(60);

/// Rows that appear after the upgrade.
const NEW: u64 = 7;

const DIRECTORIES: [&str; 2] = ["schema-1", "schema-2"];

/// What is true of a file. Rows are numbered from the oldest one on.
#[derive(Deserialize)]
struct Truth {
    flags: BTreeMap<String, Value>,
    /// Activity type, actor and count of each series that the earlier exporter showed at last.
    counted: Vec<(String, String, u64)>,
    /// Rows that appeared after its first sync.
    live: Vec<usize>,
    /// Rows that the collector had accepted.
    delivered: Vec<usize>,
    /// Rows that are dead letters.
    dead: Vec<usize>,
    /// Those of them that an operator wants sent again.
    again: Vec<usize>,
    /// Id, activity type, actor and creation time of each row.
    rows: Vec<(String, String, Option<i64>, Timestamp)>,
}

type Counts = BTreeMap<(String, String), u64>;

fn unpacked(file: &str) -> Vec<u8> {
    let packed = std::fs::read(files::path(file)).unwrap();
    let mut bytes = Vec::new();
    GzDecoder::new(&*packed).read_to_end(&mut bytes).unwrap();
    bytes
}

/// A service with the rows that the earlier exporter had in front of it.
async fn service(truth: &Truth) -> Running {
    let newest = truth.rows.iter().map(|row| row.3).max().unwrap();
    let config = Config {
        clock: ClockSource::Manual(newest + Duration::from_secs(2)),
        ..Config::quiet()
    };
    let running = Simulator::spawn(config).await.unwrap();
    for (id, kind, actor, created) in &truth.rows {
        let fields = Fields::new().with("id", &**id).with("type", &**kind);
        let fields = fields.with("actorUserId", *actor);
        let fields = fields.with("createdAt", format!("{created:.3}"));
        assert_eq!(running.simulator().add_entry(&fields).unwrap(), *id);
    }
    running
}

fn counts(metrics: &Metrics) -> Counts {
    let series = metrics.audit.events().into_iter();
    let key = |actor: Option<_>| actor.map(|actor| format!("{actor}")).unwrap();
    series
        .filter(|(_, count)| *count > 0)
        .map(|(labels, count)| ((labels.activity_type.to_string(), key(labels.actor)), count))
        .collect()
}

/// Opens the file as a start of the program does, reads until nothing is left to read, and returns what is to be delivered, by id.
async fn run(path: &Path, truth: &Truth, service: &Running) -> (Vec<String>, Metrics) {
    let metrics = Metrics::new(Duration::ZERO);
    let client = settings::client(&service.base_url(), &metrics);
    let mut own = settings::ledger(Some(path.to_owned()), service.base_url());
    if let Some(actors) = truth.flags.get("metrics_max_actors") {
        own.max_actors = usize::try_from(actors.as_u64().unwrap()).unwrap();
    }
    let (ledger, state) = LedgerHandle::open(own).unwrap();
    let hour = Duration::from_secs(3600);
    let settings = Settings {
        poll_interval: hour,
        start: match truth.flags.get("audit_start") {
            Some(_) => Start::Now,
            None => Start::Oldest,
        },
        reread_interval: hour,
        reread_window: hour,
        page_size: 10,
    };
    let mut tail = Tail::new(client, ledger.clone(), state, metrics.clone(), settings);
    for round in 0.. {
        if tail.round().await > REST {
            break;
        }
        assert!(round < 500, "it does not come to rest: {:?}", tail.state());
    }
    ledger.replay_dead_letters().await.unwrap();
    let batch = ledger
        .outbox_batch(0, usize::MAX, usize::MAX)
        .await
        .unwrap();
    let settled = Settled {
        records: batch.clone(),
        ..Settled::default()
    };
    ledger.outbox_settle(settled).await.unwrap();
    assert_eq!(ledger.status().backlog, 0);
    let id = |entry: String| -> String {
        let entry: Value = serde_json::from_str(&entry).unwrap();
        files::text(&entry["id"])
    };
    let entries = crate::support::settings::entries(&batch);
    assert_eq!(entries.len(), batch.len(), "there is no gap");
    (entries.into_iter().map(id).collect(), metrics)
}

async fn is_used(file: &str) {
    let truth: Truth = serde_json::from_slice(&unpacked(&format!("{file}.json.gz"))).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    std::fs::write(&path, unpacked(&format!("{file}.db.gz"))).unwrap();
    let service = service(&truth).await;

    // Before it has read anything, it shows what was shown at last.
    {
        let own = settings::ledger(Some(path.clone()), service.base_url());
        let (ledger, state) = LedgerHandle::open(own).unwrap();
        let shown = state.counted.introduced.iter().map(|(series, count)| {
            let actor = series.actor.as_deref().unwrap().to_owned();
            (series.activity_type.to_string(), actor, *count)
        });
        let mut shown: Vec<_> = shown.filter(|(.., count)| *count > 0).collect();
        shown.sort();
        assert_eq!(shown, truth.counted, "{file}");
        let dead = truth.dead.len() as u64;
        assert_eq!(ledger.status().dead_letters, dead, "{file}");
    }

    let sim = service.simulator();
    sim.advance(Duration::from_secs(5));
    sim.add_events(NEW);
    let rows: Vec<_> = sim.entries().collect();
    let (mut delivered, metrics) = run(&path, &truth, &service).await;
    let later = truth.rows.len()..rows.len();
    let is_live = |at: &usize| truth.live.contains(at) || later.contains(at);
    let is_due = |at: &usize| is_live(at) || !truth.flags.contains_key("audit_start");
    let is_done = |at: &usize| {
        truth.delivered.contains(at) || truth.dead.contains(at) && !truth.again.contains(at)
    };
    let due = (0..rows.len()).filter(|at| is_due(at) && !is_done(at));
    let mut due: Vec<&String> = due.map(|at| &rows[at].id).collect();
    delivered.sort();
    due.sort();
    assert!(delivered.iter().eq(due), "{file}: each once: {delivered:?}");

    let mut expected = Counts::new();
    for row in (0..rows.len()).filter(is_live).map(|at| &rows[at]) {
        let actor = row
            .actor
            .map_or("none".to_owned(), |actor| actor.to_string());
        *expected
            .entry((row.activity_type.clone(), actor))
            .or_default() += 1;
    }
    let counts = counts(&metrics);
    let sum = |counts: &Counts| counts.values().sum::<u64>();
    assert_eq!(sum(&counts), sum(&expected), "{file}");
    for (kind, actor, count) in &truth.counted {
        let now = counts[&(kind.clone(), actor.clone())];
        assert!(now >= *count, "{file}: {kind} {actor}: {now} after {count}");
    }
    if !truth.flags.contains_key("metrics_max_actors") {
        assert_eq!(counts, expected, "{file}");
    }
    assert_eq!(metrics.audit.total(Total::Gaps), 0, "{file}");

    let (again, metrics) = run(&path, &truth, &service).await;
    assert_eq!(
        (again.len(), sum(&self::counts(&metrics))),
        (0, sum(&counts))
    );
    let mut left = Vec::new();
    let letters = DeadLetters::open(&path).unwrap();
    for id in letters.ids(None).unwrap() {
        let stored = letters.letter(id).unwrap().unwrap();
        let raw: Value = serde_json::from_str(&stored.letter.raw).unwrap();
        left.push(files::text(&raw["id"]));
    }
    let dead = truth.dead.iter().filter(|at| !truth.again.contains(at));
    assert!(left.iter().eq(dead.map(|at| &rows[*at].id)), "{file}");
    drop(letters);

    // The same file, put back, is read, counted and delivered from where it was.
    std::fs::write(&path, unpacked(&format!("{file}.db.gz"))).unwrap();
    let (mut again, metrics) = run(&path, &truth, &service).await;
    again.sort();
    assert_eq!(again, delivered, "{file}");
    assert_eq!(self::counts(&metrics), counts, "{file}");
}

#[tokio::test]
async fn a_file_of_an_earlier_exporter_counts_on_and_nothing_is_lost_or_sent_twice() {
    let mut files = Vec::new();
    for directory in DIRECTORIES {
        let directory = format!("src/ledger/earlier/{directory}");
        for name in files::names(&directory) {
            let name = name.strip_suffix(".db.gz");
            files.extend(name.map(|name| format!("{directory}/{name}")));
        }
    }
    assert_eq!(files.len(), 25);
    join_all(files.iter().map(|file| is_used(file))).await;
}
