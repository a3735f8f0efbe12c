//! `--to openmetrics FILE`: the counters of the history as the exporter would have shown them; and `--dry-run`.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use orgdata_api::Filters;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::progress::Progress;
use super::samples::Grid;
use super::{Failure, Plan};
use crate::audit::Event;
use crate::commands::{one_line, print};
use crate::ledger::{
    self, ActorLabel, Encode, LedgerHandle, NO_ACTOR, OTHER_ACTORS, OutboxRecord, RawRecord,
    RecordKind, Settled, StatePath, UNKNOWN_TYPE,
};
use crate::metrics::Metrics;

/// The last sample is this much before the end: the exporter's own first sample, a lower one, must be later, even if the
/// clocks differ.
const CLOCKS_DIFFER: SignedDuration = SignedDuration::from_mins(1);

/// How many records are read at once.
const BATCH: usize = 10_000;

/// The number of activity types that `--dry-run` prints.
const TYPES_SHOWN: usize = 10;

/// The head of the file.
const HEAD: &str = "# HELP orgdata_audit_events Audit events by activity type and actor.\n# TYPE orgdata_audit_events counter\n";

/// An event in the spool.
#[derive(Debug, Serialize, Deserialize)]
struct Spooled {
    at: i64,
    activity_type: String,
    actor: Option<String>,
}

/// Keeps of an entry what its counter needs.
struct SpoolEncoder(ActorLabel);

/// The increases of each series, by time in seconds.
#[derive(Default)]
struct Increases {
    series: BTreeMap<(String, Option<String>), BTreeMap<i64, u64>>,
    actors: HashSet<String>,
    folded: u64,
    events: u64,
    times: Option<(i64, i64)>,
}

/// A file that gets its name when it is complete.
struct Output {
    out: BufWriter<File>,
    path: PathBuf,
    partial: PathBuf,
}

pub(super) async fn run(plan: &Plan, shutdown: &CancellationToken) -> Result<(), Failure> {
    let output = match &plan.args.file {
        Some(path) if !plan.args.dry_run => Some(Output::create(path)?),
        _ => None,
    };
    let spool = match &output {
        Some(output) => StatePath::File(beside(&output.path, "spool")),
        None => StatePath::Memory,
    };
    remove(&spool);
    let result = export(plan, output, spool.clone(), shutdown).await;
    remove(&spool);
    result.map_err(|failure| failure.and("nothing was written; run the same command again"))
}

async fn export(
    plan: &Plan,
    output: Option<Output>,
    spool: StatePath,
    shutdown: &CancellationToken,
) -> Result<(), Failure> {
    let metrics = Metrics::new(Duration::ZERO);
    let settings = ledger::Settings {
        path: spool,
        outbox: true,
        encoder: Arc::new(SpoolEncoder(plan.settings.ledger.actor_label.clone())),
        ..plan.settings.ledger.clone()
    };
    let (mut tail, ledger) = plan.open(settings, &metrics)?;
    tracing::info!(
        max_requests_per_second = plan.settings.api.max_requests_per_second,
        "reading history"
    );
    let mut progress = Progress::new();
    plan.read(&mut tail, &ledger, &mut progress, shutdown)
        .await?;
    progress.finish();
    let end = plan.until.unwrap_or_else(Timestamp::now);
    let end = end.checked_sub(CLOCKS_DIFFER).unwrap_or(end);
    let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX / 2);
    let grid = Grid::new(
        seconds(plan.args.step),
        seconds(plan.args.fill),
        end.as_second(),
    );
    let max_actors = plan.settings.ledger.max_actors;
    let increases = Increases::read(&ledger, &grid, max_actors)
        .await
        .map_err(|error| Failure::at_run_time(error.to_string()))?;
    match output {
        Some(output) => output.write(plan, &increases, &grid, shutdown),
        None => print(&increases.summary()),
    }
}

// === impl Increases ===

impl Increases {
    /// Empties the spool, oldest record first.
    async fn read(
        ledger: &LedgerHandle,
        grid: &Grid,
        max_actors: usize,
    ) -> Result<Self, ledger::LedgerError> {
        let mut this = Self::default();
        loop {
            let records = ledger.outbox_batch(BATCH, usize::MAX).await?;
            if records.is_empty() {
                return Ok(this);
            }
            for record in &records {
                this.add(record, grid, max_actors);
            }
            let delivered = records.iter().map(|record| record.position).collect();
            ledger
                .outbox_settle(Settled {
                    delivered,
                    ..Settled::default()
                })
                .await?;
        }
    }

    fn add(&mut self, record: &OutboxRecord, grid: &Grid, max_actors: usize) {
        let Ok(event) = serde_json::from_slice::<Spooled>(payload(&record.bytes)) else {
            return;
        };
        let actor = event.actor.map(|actor| {
            let is_known = actor == NO_ACTOR
                || self.actors.contains(&actor)
                || (self.actors.len() < max_actors && self.actors.insert(actor.clone()));
            if is_known {
                return actor;
            }
            self.folded += 1;
            OTHER_ACTORS.to_owned()
        });
        self.events += 1;
        let (first, last) = self.times.unwrap_or((event.at, event.at));
        self.times = Some((first.min(event.at), last.max(event.at)));
        let series = self.series.entry((event.activity_type, actor)).or_default();
        *series.entry(grid.place(event.at)).or_default() += 1;
    }

    /// Returns what `--dry-run` prints.
    fn summary(&self) -> String {
        let mut text = format!("{} audit entries", self.events);
        if let Some((oldest, newest)) = self.times {
            let time = |micros| Timestamp::from_microsecond(micros).unwrap_or(Timestamp::MIN);
            text.push_str(&format!(
                "; oldest {}, newest {}",
                time(oldest),
                time(newest)
            ));
        }
        text.push('\n');
        let mut types: BTreeMap<&str, u64> = BTreeMap::new();
        for ((activity_type, _), increases) in &self.series {
            *types.entry(activity_type).or_default() += increases.values().sum::<u64>();
        }
        let mut types: Vec<_> = types.into_iter().collect();
        types.sort_by_key(|(name, events)| (std::cmp::Reverse(*events), *name));
        for (name, events) in types.into_iter().take(TYPES_SHOWN) {
            let name: String = one_line(name).chars().take(100).collect();
            text.push_str(&format!("{events:>10}  {name}\n"));
        }
        text
    }
}

// === impl Output ===

impl Output {
    fn create(path: &Path) -> Result<Self, Failure> {
        // The file is replaced: a device or a link would be gone.
        if std::fs::symlink_metadata(path).is_ok_and(|there| !there.is_file()) {
            return Err(Failure::in_settings(format!(
                "{} exists and is not a regular file; name another file",
                path.display()
            )));
        }
        let partial = beside(path, "partial");
        let open = || {
            let file = File::options()
                .write(true)
                .create(true)
                .truncate(false)
                .open(&partial)?;
            file.try_lock()?;
            // Until it is locked it may be another process's.
            file.set_len(0)?;
            Ok(file)
        };
        let file = open().map_err(|error: std::io::Error| {
            let reason = match error.kind() {
                std::io::ErrorKind::WouldBlock => "another backfill writes it".to_owned(),
                _ => error.to_string(),
            };
            Failure::in_settings(format!(
                "cannot write {}: {reason}; name a FILE in a directory that this user can write",
                path.display()
            ))
        })?;
        Ok(Self {
            out: BufWriter::new(file),
            path: path.to_owned(),
            partial,
        })
    }

    fn write(
        mut self,
        plan: &Plan,
        increases: &Increases,
        grid: &Grid,
        shutdown: &CancellationToken,
    ) -> Result<(), Failure> {
        let path = self.path.clone();
        let failed = |error: std::io::Error| {
            Failure::at_run_time(format!("cannot write {}: {error}", path.display()))
        };
        let labels: String = plan
            .args
            .label
            .iter()
            .map(|(name, value)| format!(",{name}=\"{}\"", escaped(value)))
            .collect();
        self.out.write_all(HEAD.as_bytes()).map_err(failed)?;
        let mut samples = 0_u64;
        for ((activity_type, actor), counts) in &increases.series {
            if shutdown.is_cancelled() {
                return Err(Failure::at_run_time("stopped before the end"));
            }
            let actor = actor.as_ref().map_or(String::new(), |actor| {
                format!(",actor=\"{}\"", escaped(actor))
            });
            let activity_type = escaped(activity_type);
            let series = format!(
                "orgdata_audit_events_total{{activity_type=\"{activity_type}\"{actor}{labels}}}"
            );
            let counts = counts.iter().map(|(at, count)| (*at, *count));
            grid.expand(counts, |at, value| {
                samples += 1;
                writeln!(self.out, "{series} {value} {at}")
            })
            .map_err(failed)?;
        }
        self.out.write_all(b"# EOF\n").map_err(failed)?;
        self.out.flush().map_err(failed)?;
        self.out.get_ref().sync_all().map_err(failed)?;
        std::fs::rename(&self.partial, &self.path).map_err(failed)?;
        let path = path.display();
        let mut text = format!(
            "{path}: {} audit events as {samples} samples of {} series\n",
            increases.events,
            increases.series.len()
        );
        if increases.folded > 0 {
            text.push_str(&format!(
                "{} events are counted under actor=\"other\", because there are more actors than --metrics.max-actors\n",
                increases.folded
            ));
        }
        text.push_str(if increases.events == 0 {
            "There is nothing to create blocks from.\n"
        } else {
            "Next: promtool tsdb create-blocks-from --max-block-duration=744h openmetrics FILE DIRECTORY, with this file and Prometheus' --storage.tsdb.path\n"
        });
        print(&text)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // It has another name if it is complete.
        let _ = std::fs::remove_file(&self.partial);
    }
}

// === impl SpoolEncoder ===

impl Encode for SpoolEncoder {
    fn encode(&self, record: &RawRecord<'_>, out: &mut Vec<u8>) {
        let event = Event::read(record.json, record.arrived_at, &Filters::default());
        let Ok(counted) = event.event else { return };
        let spooled = Spooled {
            at: event.created_at.as_microsecond(),
            actor: self.0.label(counted.actor.as_ref()).map(Cow::into_owned),
            activity_type: ledger::truncate(match counted.activity_type.as_str() {
                "" => UNKNOWN_TYPE,
                name => name,
            })
            .into_owned(),
        };
        let json = serde_json::to_vec(&spooled).unwrap_or_default();
        out.push(0x12);
        let mut length = json.len();
        while length >= 0x80 {
            out.push((length & 0x7f) as u8 | 0x80);
            length >>= 7;
        }
        out.push(length as u8);
        out.extend_from_slice(&json);
    }

    fn redact(&self, json: &str) -> String {
        json.to_owned()
    }

    fn decode(&self, record: &[u8]) -> (RecordKind, String) {
        let json = String::from_utf8_lossy(payload(record)).into_owned();
        (RecordKind::Entry, json)
    }
}

/// Returns the content of a tagged field.
fn payload(record: &[u8]) -> &[u8] {
    let length = record
        .iter()
        .skip(1)
        .take_while(|byte| **byte >= 0x80)
        .count()
        + 1;
    record.get(1 + length..).unwrap_or_default()
}

/// Returns a hidden file in the same directory.
fn beside(path: &Path, what: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{what}"))
}

fn remove(spool: &StatePath) {
    if let StatePath::File(path) = spool {
        for suffix in ["", "-wal", "-shm", ".lock"] {
            let _ = std::fs::remove_file(format!("{}{suffix}", path.display()));
        }
    }
}

/// Escapes a label value for OpenMetrics. A NUL would end the file for Prometheus.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
        .replace('\0', "\u{fffd}")
}
