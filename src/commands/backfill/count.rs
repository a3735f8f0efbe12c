//! `--to openmetrics FILE`: the counters of the history as the exporter would have shown them; and `--dry-run`.

use std::sync::{Arc, Mutex};

use jiff::{SignedDuration, Timestamp};
use orgdata_api::Filters;
use tokio_util::sync::CancellationToken;

use super::samples::{Counts, Grid};
use super::{Failure, Plan, file};
use crate::commands::print;
use crate::ledger::{self, ActorLabel, Encode, NO_ACTOR, OTHER_ACTORS, RawRecord, RecordKind};
use crate::tail::{Event, Head};
use crate::util::{counted, lock};

/// The last sample is this much before the end: the exporter's own first sample, a lower one, must be later, even if the
/// clocks differ.
const CLOCKS_DIFFER: SignedDuration = SignedDuration::from_mins(1);

/// Counts the entries that a ledger in memory takes, in place of encoding them.
struct Counter {
    label: ActorLabel,
    max_actors: usize,
    grid: Grid,
    counts: Mutex<Counts>,
}

pub(super) async fn run(plan: &Plan, shutdown: &CancellationToken) -> Result<(), Failure> {
    let path = plan.args.file.as_ref().filter(|_| !plan.args.dry_run);
    let path = path.map(|path| file::checked(path)).transpose();
    let path = path.map_err(Failure::in_settings)?;
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
    let (mut tail, ledger, _) = plan.open(settings)?;
    let read = plan.read(&mut tail, &ledger, shutdown).await;
    let counts = lock(&counter.counts);
    let report = read.and_then(|()| match path {
        Some(path) => file::write(&path, &plan.args.label, &counts, &counter.grid),
        None => Ok(counts.summary()),
    });
    let again = "nothing was written; run the same command again when this is corrected";
    print(&report.map_err(|failure| failure.and(again))?)
}

// === impl Counter ===

impl Encode for Counter {
    fn encode(&self, record: &RawRecord<'_>, _: &mut Vec<u8>) {
        let head = Head::read(record.json);
        let entry = Event::read(record.json, head, &Filters::default());
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
        if let Some(at) = head.created_at {
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
        OTHER_ACTORS.to_owned()
    }

    /// Returns what `--dry-run` prints.
    fn summary(&self) -> String {
        let entries = counted(self.events, "audit entry", "audit entries");
        match self.times {
            Some((oldest, newest)) => format!("{entries}; oldest {oldest}, newest {newest}\n"),
            None => format!("{entries}\n"),
        }
    }
}
