//! A power failure at any sync of the state file: the exporter goes on from what was on the disk, and every number is true and every record there.
//!
//! A library that is preloaded copies the file before each sync. What was written after the sync before is on the disk, lost, or torn: of each sector
//! either the old or the new content. `IMAGES=1000` plays so many; a few unless set.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use fastrand::Rng;
use orgdata_simulator::{Moment, Running, Scope};

use crate::support::binary::{Launch, Scrape, event_counts, exporter, free_address};
use crate::support::collector_peer::Peer;
use crate::support::disk_faults::preloaded;
use crate::support::service::organization;

/// How many images are played unless `IMAGES` says otherwise.
const FEW: usize = 20;

/// How many images a run gives: the earlier one is, the more is to be read after it.
const RUN: usize = 10;

/// What a disk writes as a whole, in bytes.
const SECTOR: usize = 512;

/// What a state file consists of on the disk.
const FILES: [&str; 2] = ["state.db", "state.db-wal"];

const EVENTS: &str = "orgdata_audit_events_total";

/// The content of [`FILES`].
type Disk = HashMap<&'static str, Vec<u8>>;

/// The copies of a run.
struct Images {
    api: Running,
    /// What came after the first sync.
    since: Moment,
    launch: Launch,
    /// The ids that were delivered.
    delivered: Vec<String>,
    /// The directories of the copies, in order, and the number of those before the end of the first sync.
    copies: Vec<PathBuf>,
    first: usize,
    /// How many events were shown before the copies from this one on.
    shown: Vec<(usize, u64)>,
}

impl Images {
    /// Runs an exporter until there are so many copies, and kills it. Unless `has_collector`, its records wait.
    async fn take(count: usize, has_collector: bool) -> Self {
        let api = organization(200, 3).await;
        let peer = Peer::grpc(4 << 20).await;
        let launch = exporter(&api.base_url())
            .flag("--audit.poll-interval", "10ms")
            .flag("--audit.reread-interval", "500ms")
            .flag("--api.page-size", "50");
        let directory = launch.dir().join("images");
        fs::create_dir(&directory).unwrap();
        let collector = match has_collector {
            true => peer.url(),
            false => format!("http://{}", free_address()),
        };
        let file = launch.dir().canonicalize().unwrap().join("state.db");
        let observed = launch.clone().on_disk().otlp("grpc", &collector);
        let observed = observed
            .env("LD_PRELOAD", &preloaded("disk_images"))
            .env("DISK_IMAGES_OF", &file)
            .env("DISK_IMAGES", &directory);
        let mut running = observed.start();
        running.synced().await;
        let (since, first, mut added) = (api.mark(), copies(&directory).len(), 0);
        let mut shown = vec![(first, 0)];
        while shown[shown.len() - 1].0 < first + count {
            let more = fastrand::u64(1..60);
            api.add_events(more);
            added += more;
            let is_counted = |scrape: &Scrape| scrape.sum(EVENTS) == added as f64;
            running.until("events", is_counted).await;
            shown.push((copies(&directory).len(), added));
        }
        running.kill();
        Self {
            api,
            since,
            launch,
            delivered: peer.taken_ids(),
            copies: copies(&directory),
            first,
            shown,
        }
    }

    /// Returns what may be on the disk if the power fails at a sync.
    fn disk(&self, at: usize, rng: &mut Rng) -> Disk {
        let mut disk = Disk::new();
        for copy in &self.copies[..at] {
            let name = if copy.join("synced").exists() {
                FILES[0]
            } else {
                FILES[1]
            };
            disk.insert(name, content(copy, name));
        }
        if rng.bool() {
            return disk;
        }
        for name in FILES {
            let old = disk.remove(name).unwrap_or_default();
            disk.insert(name, torn(&old, &content(&self.copies[at], name), rng));
        }
        disk
    }

    /// Plays a power failure at a sync: what was shown is on the disk, and an exporter that is started with it ends with the truth.
    async fn play(&self, at: usize, rng: &mut Rng) {
        let directory = tempfile::tempdir().unwrap();
        for (name, bytes) in self.disk(at, rng) {
            fs::write(directory.path().join(name), bytes).unwrap();
        }
        let shown = self.shown.iter().filter(|(copies, _)| *copies <= at);
        let stored = counted(&directory.path().join(FILES[0]));
        let shown = shown.map(|(_, events)| *events).max();
        assert!(Some(stored) >= shown, "{stored} of {shown:?} events");
        let peer = Peer::grpc(4 << 20).await;
        let launch = self.launch.clone().otlp("grpc", &peer.url());
        let running = launch.state(&directory.path().join(FILES[0])).start();
        let truth = self.api.truth_of(Scope::arrived_since(self.since));
        let scrape = running.settled(truth.total).await;
        assert_eq!(scrape.events(), event_counts(&truth));
        assert_eq!(scrape.value("orgdata_audit_gaps_total"), Some(0.0));
        let again = peer.taken_ids();
        let distinct: BTreeSet<&String> = again.iter().collect();
        assert_eq!(distinct.len(), again.len(), "records that came twice");
        let came: BTreeSet<&String> = distinct.into_iter().chain(&self.delivered).collect();
        assert_eq!(came.len() as u64, truth.total, "records");
    }
}

#[tokio::test]
async fn a_power_failure_at_any_sync_changes_no_number_and_loses_no_record() {
    let count = std::env::var("IMAGES").map_or(FEW, |count| count.parse().unwrap());
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = Rng::with_seed(seed);
    for (run, first) in (0..count).step_by(RUN).enumerate() {
        let more = RUN.min(count - first);
        let images = Images::take(more, run % 2 > 0).await;
        for at in images.first..images.first + more {
            println!("run {run}, image {at}");
            images.play(at, &mut rng).await;
        }
    }
}

/// Returns the number of events that a state file holds.
fn counted(file: &Path) -> u64 {
    let file = rusqlite::Connection::open(file).unwrap();
    let sql = "SELECT coalesce(sum(count), 0) FROM events";
    file.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// Returns the directories of the copies that are complete.
fn copies(directory: &Path) -> Vec<PathBuf> {
    let copies = fs::read_dir(directory).unwrap();
    let copies = copies.map(|copy| copy.unwrap().path());
    let is_complete = |copy: &PathBuf| {
        ["synced", "synced-wal"]
            .iter()
            .any(|name| copy.join(name).exists())
    };
    let mut copies: Vec<PathBuf> = copies.filter(is_complete).collect();
    copies.sort_unstable();
    copies
}

/// Returns what a copy has of a file, nothing if it was missing.
fn content(copy: &Path, name: &str) -> Vec<u8> {
    fs::read(copy.join(name)).unwrap_or_default()
}

/// Returns a file of which some sectors have the old content and some the new, with one of the two lengths.
fn torn(old: &[u8], new: &[u8], rng: &mut Rng) -> Vec<u8> {
    let length = if rng.bool() { old.len() } else { new.len() };
    let mut torn = vec![0; length];
    for (index, sector) in torn.chunks_mut(SECTOR).enumerate() {
        let source = if rng.bool() { old } else { new };
        let source = source.get(index * SECTOR..).unwrap_or_default();
        let length = source.len().min(sector.len());
        sector[..length].copy_from_slice(&source[..length]);
    }
    torn
}
