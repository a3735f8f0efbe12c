//! `--to openmetrics FILE`: the counters of the history as the exporter would have shown them; and `--dry-run`.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use jiff::{SignedDuration, Timestamp};
use orgdata_api::Filters;
use tokio_util::sync::CancellationToken;

use super::samples::Grid;
use super::{Failure, Plan};
use crate::commands::print;
use crate::ledger::{self, ActorLabel, Encode, NO_ACTOR, OTHER_ACTORS, RawRecord, RecordKind};
use crate::tail::Event;
use crate::util::{counted, lock, one_line};

/// The last sample is this much before the end: the exporter's own first sample, a lower one, must be later, even if the
/// clocks differ.
const CLOCKS_DIFFER: SignedDuration = SignedDuration::from_mins(1);

/// The number of activity types that `--dry-run` prints.
const TYPES_SHOWN: usize = 10;

/// The head of the file.
const HEAD: &str = "# HELP orgdata_audit_events Audit events by activity type and actor.\n# TYPE orgdata_audit_events counter\n";

/// Counts the entries that a ledger in memory takes, in place of encoding them.
struct Counter {
    label: ActorLabel,
    max_actors: usize,
    grid: Grid,
    counts: Mutex<Counts>,
}

/// The increases of each series, by activity type and actor, and then by time in seconds.
#[derive(Default)]
struct Counts {
    series: BTreeMap<(String, Option<String>), BTreeMap<i64, u64>>,
    actors: HashSet<String>,
    folded: u64,
    events: u64,
    times: Option<(Timestamp, Timestamp)>,
}

/// A file that gets its name when it is complete.
struct Output {
    out: BufWriter<File>,
    path: PathBuf,
    partial: PathBuf,
}

pub(super) async fn run(plan: &Plan, shutdown: &CancellationToken) -> Result<(), Failure> {
    let file = plan.args.file.as_ref().filter(|_| !plan.args.dry_run);
    let output = file.map(|path| Output::create(path)).transpose()?;
    let end = plan.until.unwrap_or_else(Timestamp::now);
    let end = end.checked_sub(CLOCKS_DIFFER).unwrap_or(end);
    let counter = Arc::new(Counter {
        label: plan.settings.ledger.actor_label.clone(),
        max_actors: plan.settings.ledger.max_actors,
        grid: Grid::new(plan.args.step, end),
        counts: Mutex::default(),
    });
    let settings = ledger::LedgerOptions {
        path: None,
        outbox: true,
        encoder: counter.clone(),
        ..plan.settings.ledger.clone()
    };
    let (mut tail, ledger, metrics) = plan.open(settings)?;
    let read = plan.read(&mut tail, &ledger, shutdown).await;
    let read = read.and_then(|()| super::check_gaps(&metrics));
    let counts = lock(&counter.counts);
    let report = read.and_then(|()| match output {
        Some(output) => output.write(&plan.args.label, &counts, &counter.grid),
        None => Ok(counts.summary()),
    });
    let again = "nothing was written; run the same command again";
    print(&report.map_err(|failure| failure.and(again))?)
}

// === impl Counter ===

impl Encode for Counter {
    fn encode(&self, record: &RawRecord<'_>, _: &mut Vec<u8>) {
        let entry = Event::read(record.json, &Filters::default());
        let (RecordKind::Entry, Ok(event)) = (record.kind, entry.event) else {
            return;
        };
        let activity_type = ledger::type_label(&event.activity_type);
        let mut counts = lock(&self.counts);
        let actor = self.label.label(event.actor.as_ref());
        let actor = actor.map(|actor| counts.actor(actor, self.max_actors));
        let series = counts.series.entry((activity_type, actor)).or_default();
        // Without a readable time it is the time of arrival, which is at the end.
        *series
            .entry(self.grid.place(record.created_at))
            .or_default() += 1;
        counts.events += 1;
        if let Some(at) = entry.head.created_at {
            let (first, last) = counts.times.unwrap_or((at, at));
            counts.times = Some((first.min(at), last.max(at)));
        }
    }

    fn redact(&self, json: &str) -> String {
        json.to_owned()
    }

    fn decode(&self, _: &[u8]) -> (RecordKind, String) {
        (RecordKind::Entry, String::new())
    }
}

// === impl Counts ===

impl Counts {
    /// Returns the label of an actor, as the exporter does at `--metrics.max-actors`.
    fn actor(&mut self, actor: String, max: usize) -> String {
        let is_known = actor == NO_ACTOR || self.actors.contains(&actor);
        if is_known || self.actors.len() < max && self.actors.insert(actor.clone()) {
            return actor;
        }
        self.folded += 1;
        OTHER_ACTORS.to_owned()
    }

    /// Returns what `--dry-run` prints.
    fn summary(&self) -> String {
        let times = self.times.map_or(String::new(), |(oldest, newest)| {
            format!("; oldest {oldest}, newest {newest}")
        });
        let mut text = counted(self.events, "audit entry", "audit entries") + &times + "\n";
        let mut types: BTreeMap<&str, u64> = BTreeMap::new();
        for ((activity_type, _), increases) in &self.series {
            *types.entry(activity_type).or_default() += increases.values().sum::<u64>();
        }
        let mut types: Vec<_> = types.into_iter().collect();
        types.sort_by_key(|(name, events)| (std::cmp::Reverse(*events), *name));
        for (name, events) in types.into_iter().take(TYPES_SHOWN) {
            text.push_str(&format!("{events:>10}  {}\n", one_line(name, 100)));
        }
        text
    }
}

// === impl Output ===

impl Output {
    fn create(path: &Path) -> Result<Self, Failure> {
        // A file cannot be renamed to a name with a slash at its end.
        let path: &PathBuf = &path.components().collect();
        // The file is replaced: a device or a link would be gone.
        if std::fs::symlink_metadata(path).is_ok_and(|there| !there.is_file()) {
            return Err(Failure::in_settings(format!(
                "{} exists and is not a regular file; name another file",
                path.display()
            )));
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let partial = path.with_file_name(format!(".{name}.partial"));
        let open = || -> io::Result<File> {
            // What a killed one has left is not locked.
            let is_left = || File::open(&partial)?.try_lock().map_err(io::Error::from);
            if std::fs::symlink_metadata(&partial).is_ok_and(|there| there.is_file()) {
                is_left()?;
                std::fs::remove_file(&partial)?;
            }
            let flags = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
            let mut options = File::options();
            let options = options.write(true).create_new(true).custom_flags(flags);
            let file = options.open(&partial)?;
            file.try_lock()?;
            Ok(file)
        };
        let file = open().map_err(|error| {
            Failure::in_settings(format!(
                "cannot write {}: {error}; name a FILE in a directory that this user can write",
                partial.display()
            ))
        })?;
        Ok(Self {
            out: BufWriter::new(file),
            path: path.to_owned(),
            partial,
        })
    }

    /// Writes everything and returns what to print.
    fn write(
        mut self,
        labels: &[(String, String)],
        counts: &Counts,
        grid: &Grid,
    ) -> Result<String, Failure> {
        let path = self.path.display().to_string();
        let samples = self
            .samples(labels, counts, grid)
            .map_err(|error| Failure::at_run_time(format!("cannot write {path}: {error}")))?;
        let (events, series) = (counts.events, counts.series.len());
        let folded = match counts.folded {
            0 => String::new(),
            folded => format!(
                "counted under actor=\"other\", because there are more actors than --metrics.max-actors: {folded}\n"
            ),
        };
        let next = match events {
            0 => "There is nothing to create blocks from.".to_owned(),
            _ => format!(
                "Next: promtool tsdb create-blocks-from --max-block-duration=744h openmetrics {path} DIRECTORY, where DIRECTORY is Prometheus' --storage.tsdb.path"
            ),
        };
        Ok(format!(
            "{path}: {} as {samples} samples of {series} series\n{folded}{next}\n",
            counted(events, "audit event", "audit events")
        ))
    }

    /// Returns the number of samples written.
    fn samples(
        &mut self,
        given: &[(String, String)],
        counts: &Counts,
        grid: &Grid,
    ) -> io::Result<u64> {
        let mut samples = 0;
        self.out.write_all(HEAD.as_bytes())?;
        for ((activity_type, actor), increases) in &counts.series {
            let mut labels = vec![("activity_type", activity_type)];
            labels.extend(actor.iter().map(|actor| ("actor", actor)));
            labels.extend(given.iter().map(|(name, value)| (name.as_str(), value)));
            let text = |(name, value): (&str, &String)| format!("{name}=\"{}\"", escaped(value));
            let labels: Vec<String> = labels.into_iter().map(text).collect();
            let series = format!("orgdata_audit_events_total{{{}}}", labels.join(","));
            grid.expand(increases, |at, value| {
                samples += 1;
                writeln!(self.out, "{series} {value} {at}")
            })?;
        }
        self.out.write_all(b"# EOF\n")?;
        self.out.flush()?;
        self.out.get_ref().sync_all()?;
        std::fs::rename(&self.partial, &self.path)?;
        Ok(samples)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // It has another name if it is complete.
        let _ = std::fs::remove_file(&self.partial);
    }
}

/// Escapes a label value for OpenMetrics. A NUL would end the file for Prometheus.
fn escaped(value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"");
    value.replace('\n', "\\n").replace('\0', "\u{fffd}")
}
