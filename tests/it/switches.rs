//! What another value of a flag at the next start does to the counters of events, to log records, and to gaps: the column of `docs/configuration.md`,
//! each line of which two runs of the program show.

use std::collections::BTreeSet;

use clap::CommandFactory as _;
use futures_util::future::join_all;
use orgdata_exporter::commands::Cli;
use orgdata_simulator::{Fields, Running};
use serde_json::json;

use crate::support::binary::{Exporter, KEY, Launch, Scrape, exporter, until};
use crate::support::collector_peer::{Peer, record_id};
use crate::support::files::tls;
use crate::support::service::organization;

/// Entries are added before the first run, in it, between two runs, and in the last run. Their activity types:
const PHASES: [&str; 4] = [
    "DEAL_CREATED",
    "TASK_CREATED",
    "TASK_UPDATED",
    "TASK_COMPLETED",
];

/// The number of entries of each phase, of two actors: more than the first page of a poll has.
const EACH: usize = 12;

/// What the records of an entry say of a user, and in `metadata`.
const MARKERS: [&str; 2] = ["Marker-Name", "Marker-Value"];

const GAPS: &str = "orgdata_audit_gaps_total";

/// What a change does: how often an entry of each phase is counted in the end; how often it is delivered (`r`: once, without the markers); and the
/// reason of the gap that is reported (`-`: none is).
const NOTHING: &str = "0111 0111 -";

/// The flags whose change does nothing, with other values.
const QUIET: [&str; 27] = [
    "--api.base-url={name}",
    "--api.key-file=key",
    "--api.timeout=20s",
    "--api.max-requests-per-second=500",
    "--api.page-size=10",
    "--api.ca-file={ca}",
    "--api.allow-plain-http=true",
    "--audit.poll-interval=70ms",
    "--audit.start=oldest",
    "--audit.reread-interval=200ms",
    "--audit.reread-window=2h",
    "--tickets.enabled=false",
    "--tickets.scan-interval=1s",
    "--tickets.max-age=1h",
    "--tickets.open-states=NEW",
    "--tickets.priorities=HIGH",
    "--metrics.zero-hold=1m",
    "--state.max-size=32MiB",
    "--otlp.protocol=grpc --otlp.endpoint={grpc}",
    "--otlp.bearer-token-file=key",
    "--otlp.batch-size=1",
    "--web.listen-address=localhost:0",
    "--web.telemetry-path=/other",
    "--web.config.file=web.yml",
    "--log.level=debug",
    "--log.format=json",
    "--shutdown.grace=4s",
];

/// The flags whose change does something: how often entries are counted and delivered, the gap, the text of the page, and the flags of each run.
const LINES: &str = "
audit.enabled | 0111 0111 - | off: nothing is read; on again: as after an outage | | --audit.enabled=false |
audit.activity-types | 0101 0111 - | what came since the last re-read is delivered, not counted | | --audit.activity-types={types}
audit.deal-ids | 0101 0111 - | what came since the last re-read is delivered, not counted | | --audit.deal-ids=7
audit.actor-emails | 0101 0111 - | what came since the last re-read is delivered, not counted | | --audit.actor-emails=user1@example.com,user2@example.com
audit.target-emails | 0101 0111 - | what came since the last re-read is delivered, not counted | | --audit.target-emails=user3@example.com
metrics.actor-label | 0011 0111 - | counters of events begin at 0 | | --metrics.actor-label=name
metrics.hash-key-file | 0011 0111 - | with hashes as label, counters of events begin at 0 | --metrics.actor-label=hash --metrics.hash-key-file=hash-key | --metrics.actor-label=hash --metrics.hash-key-file=other-hash-key
metrics.max-actors | 0111 0111 - | what was counted under a label stays there | --metrics.max-actors=1 | --metrics.max-actors=2
metrics.exclude-activity-types | 0010 0111 - | concerns later events only | --metrics.exclude-activity-types=TASK_CREATED | --metrics.exclude-activity-types=TASK_COMPLETED
state.path | 0001 0101 - | all begins anew, as at the first start | | --state.path=other.db
otlp.endpoint | 0111 0101 not_recorded | records that wait stay; what is read without a collector is a gap, `not_recorded` | --otlp.endpoint=http://127.0.0.1:1 --shutdown.grace=100ms | --otlp.endpoint= |
otlp.actor | 0111 01rr - | concerns later records only | | --otlp.actor=none
otlp.exclude-activity-types | 0111 0010 - | concerns later records only | --otlp.exclude-activity-types=TASK_CREATED | --otlp.exclude-activity-types=TASK_COMPLETED
otlp.redact | 0111 01rr - | concerns later records only | | --otlp.redact=secret
";

/// An exporter with its peers.
struct World {
    api: Running,
    peer: Peer,
    grpc: Peer,
    launch: Launch,
    /// The ids of the entries of each phase.
    ids: Vec<Vec<String>>,
}

/// Returns the cells of the lines.
fn lines() -> impl Iterator<Item = Vec<&'static str>> {
    let lines = LINES.trim().lines();
    lines.map(|line| line.split('|').map(str::trim).collect())
}

/// Returns what the page says of a flag.
pub(crate) fn effect(flag: &str) -> &'static str {
    if QUIET.iter().any(|quiet| name(quiet) == flag) {
        return "nothing";
    }
    let line = lines().find(|cells| cells[0] == flag);
    line.unwrap_or_else(|| panic!("--{flag} has no line in switches.rs"))[2]
}

/// Returns the name of a flag with a value.
fn name(flag: &str) -> &str {
    let (name, _) = flag.split_once('=').unwrap();
    name.trim_start_matches('-')
}

#[tokio::test]
async fn a_change_of_a_flag_does_what_its_line_says() {
    let command = Cli::command();
    let flags = command.get_arguments();
    let flags = flags.filter(|flag| flag.get_env().is_some());
    let flags: BTreeSet<_> = flags.filter_map(|flag| flag.get_long()).collect();
    let names = lines().map(|cells| cells[0]);
    let names = names.chain(QUIET.iter().map(|quiet| name(quiet)));
    assert_eq!(flags, names.collect());
    // They are changed at once.
    let quiet = QUIET.join(" ");
    let lines = lines().map(|cells| (cells[1], cells[3..].to_vec()));
    let lines = lines.chain([(NOTHING, vec!["", &quiet])]);
    join_all(lines.map(async |(effect, runs)| World::new().await.assert(effect, &runs).await))
        .await;
}

// === impl World ===

impl World {
    async fn new() -> Self {
        let (api, peer) = (organization(0, 0).await, Peer::http(1 << 20).await);
        let launch = exporter(&api.base_url())
            .flag("--audit.poll-interval", "50ms")
            .flag("--audit.reread-interval", "100ms")
            .otlp("http/protobuf", &peer.url())
            .on_disk();
        for (file, text) in [
            ("key", KEY),
            ("hash-key", "a secret of enough bytes"),
            ("other-hash-key", "another secret of enough bytes"),
            (
                "web.yml",
                "http_server_config:\n  headers:\n    X-Frame-Options: deny\n",
            ),
        ] {
            std::fs::write(launch.dir().join(file), text).unwrap();
        }
        Self {
            grpc: Peer::grpc(1 << 20).await,
            launch,
            api,
            peer,
            ids: Vec::new(),
        }
    }

    /// Adds the entries of the next phase.
    fn add(&mut self) {
        let [name, secret] = MARKERS;
        self.api.advance(std::time::Duration::from_secs(2));
        let ids = (0..EACH).map(|number| {
            let actor = number % 2 + 1;
            let entry = Fields::new()
                .with("type", PHASES[self.ids.len()])
                .with("dealId", 7)
                .with("actorUserId", actor)
                .with("actorUser", json!({"id": actor, "firstName": name}))
                .with("targetUserId", 3)
                .with("metadata", json!({"secret": secret}));
            self.api.add_entry(&entry).unwrap()
        });
        let ids = ids.collect();
        self.api.advance(std::time::Duration::from_secs(2));
        self.ids.push(ids);
    }

    /// Starts a run with these flags.
    fn start(&self, flags: &str) -> Exporter {
        let (port, ca) = (self.api.address().port(), tls("ca.pem"));
        let flags = flags
            .replace("{api}", &self.api.base_url())
            .replace("{name}", &format!("http://localhost:{port}"))
            .replace("{ca}", &ca)
            .replace("{types}", &PHASES.join(","))
            .replace("{grpc}", &self.grpc.url());
        let set = |launch: Launch, flag: &str| match flag.split_once('=') {
            Some((name, value)) => launch.flag(name, value),
            None => launch.arg(flag),
        };
        let flags = flags.split_whitespace();
        flags.fold(self.launch.clone(), set).start()
    }

    /// Waits until a run has read what there is, and shows it.
    async fn settled(&self, running: &Exporter, flags: &str) -> Scrape {
        let (_, path) = flags
            .split_once("--web.telemetry-path=")
            .unwrap_or(("", "/metrics"));
        let path = path.split(' ').next().unwrap();
        let requests = || match flags.contains("--audit.enabled=false") {
            true => self.api.requests().tickets,
            false => self.api.requests().audit,
        };
        let before = requests();
        until("twenty more requests", async || {
            (requests() > before + 20).then_some(())
        })
        .await;
        Scrape(running.get(path).await.1)
    }

    /// Plays the runs and asserts what a change does.
    async fn assert(mut self, effect: &str, runs: &[&str]) {
        let mut effect = effect.split(' ');
        let [counted, records, gap] = [(); 3].map(|()| effect.next().unwrap());
        self.add();
        let mut first = None;
        let mut last = None;
        for (number, flags) in runs.iter().enumerate() {
            if number == 1 {
                self.add();
            }
            let mut running = self.start(flags);
            let mut scrape = self.settled(&running, flags).await;
            if number == 0 || number + 1 == runs.len() {
                self.add();
                scrape = self.settled(&running, flags).await;
            }
            assert_eq!(running.stop().await, Some(0), "{runs:?}");
            first.get_or_insert_with(|| scrape.clone());
            last = Some((scrape, running.stderr().text()));
        }
        let (first, (last, log)) = first.zip(last).unwrap();
        let found = (self.counted(&last), self.records());
        let expected = (counted.to_owned(), records.to_owned());
        assert_eq!(found, expected, "{runs:?}: {log}");
        if counted.starts_with("01") {
            let series = first.events().into_iter();
            let lower: Vec<_> = series
                .filter(|(labels, value)| last.events()[labels] < *value)
                .collect();
            assert!(lower.is_empty(), "{runs:?}: {lower:?}");
        }
        let gaps = if gap == "-" { 0.0 } else { 1.0 };
        assert_eq!(last.value(GAPS), Some(gaps), "{runs:?}");
        let is_named = gap == "-" || log.contains(&format!("reason={gap} "));
        assert!(is_named, "{runs:?}: {log}");
    }

    /// Returns how often an entry of each phase is counted.
    fn counted(&self, scrape: &Scrape) -> String {
        let events = scrape.events();
        let counted = PHASES.map(|phase| {
            let of_phase = events.iter().filter(|(labels, _)| labels[0] == phase);
            let number = of_phase.fold(0.0, |number, (_, value)| number + value);
            (number / EACH as f64).to_string()
        });
        counted.concat()
    }

    /// Returns how often an entry of each phase was delivered.
    fn records(&self) -> String {
        let mut text = String::new();
        let (http, grpc) = (
            self.peer.script.taken.lock().unwrap(),
            self.grpc.script.taken.lock().unwrap(),
        );
        for ids in &self.ids {
            let times = ids.iter().map(|id| {
                let taken = http.iter().chain(grpc.iter());
                let of_id: Vec<_> = taken.filter(|record| record_id(record) == *id).collect();
                let is_whole = |record| MARKERS.iter().all(|it| format!("{record:?}").contains(it));
                match of_id[..] {
                    [one] if !is_whole(one) => "r".to_owned(),
                    _ => of_id.len().to_string(),
                }
            });
            let times: BTreeSet<String> = times.collect();
            text += &times.into_iter().collect::<Vec<_>>().join("or");
        }
        text
    }
}
