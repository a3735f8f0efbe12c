//! `verify --offline`: judges an export by the numbers of its records and by its checkpoints alone.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::json;

use super::export::{ExportSummary, Record};
use super::report::{Output, not_compared};
use crate::audit::Entry;
use crate::commands::Failure;
use crate::ledger::CHECKPOINT_ID;

/// The records of an export, by stream.
#[derive(Default)]
pub(super) struct Offline {
    streams: BTreeMap<String, Stream>,
    without_number: u64,
}

/// The records of a state file.
#[derive(Default)]
struct Stream {
    /// The number of each record, and the hash of its id.
    numbers: Vec<(i64, u64)>,
    /// When checkpoints were made.
    checkpoints: Vec<Timestamp>,
    complete_through: Option<Timestamp>,
    /// Ranges of numbers that a checkpoint names as dead letters.
    dead_letters: BTreeSet<(i64, i64)>,
}

/// Returns the ranges of the numbers from `first` to `last` that no range covers. The ranges are sorted.
fn uncovered(
    first: i64,
    last: i64,
    ranges: impl IntoIterator<Item = (i64, i64)>,
) -> Vec<(i64, i64)> {
    let (mut next, mut left) = (first, Vec::new());
    for (from, to) in ranges.into_iter().take_while(|range| range.0 <= last) {
        if from > next {
            left.push((next, from - 1));
        }
        next = next.max(to.saturating_add(1));
    }
    left.extend((next <= last).then_some((next, last)));
    left
}

// === impl Offline ===

impl Offline {
    pub(super) fn take(&mut self, record: Record) {
        let Some(number) = record.sequence else {
            self.without_number += 1;
            return;
        };
        let stream = self.streams.entry(record.stream).or_default();
        stream
            .numbers
            .push((number, Entry::identity_of(&record.id).0));
        if record.id.starts_with(CHECKPOINT_ID) {
            stream.checkpoints.extend(record.at);
            stream.complete_through = stream.complete_through.max(record.complete_through);
        }
        for range in record.dead_letters.iter().flat_map(|text| text.split(',')) {
            let (from, to) = range.split_once('-').unwrap_or((range, range));
            let range = from.parse().ok().zip(to.parse().ok());
            stream.dead_letters.extend(range);
        }
    }

    /// Prints what is wrong.
    ///
    /// # Errors
    /// If something is missing, or no record has a number.
    pub(super) fn judge(
        mut self,
        export: &ExportSummary,
        report: &mut Output,
    ) -> Result<(), Failure> {
        if self.streams.is_empty() {
            let lines = export.lines;
            return Err(not_compared(format!(
                "cannot judge: no record has a number in {lines} lines; export the attributes orgdata.record.sequence and log.record.uid"
            )));
        }
        let (mut totals, mut records) = ([0; 5], 0);
        for (name, stream) in &mut self.streams {
            records += stream.numbers.len() as u64;
            let counts = stream.judge(name, report);
            totals
                .iter_mut()
                .zip(counts)
                .for_each(|(total, count)| *total += count);
        }
        let [missing, conflicts, dead, repeated, silent] = totals;
        let counts = [
            ("streams", "streams", self.streams.len() as u64),
            ("records", "records with a number", records),
            ("missing", "missing", missing),
            ("conflicts", "numbers of different records", conflicts),
            ("repeated", "in the export more than once", repeated),
            ("dead_letters", "dead letters", dead),
            ("silent", "hours without a checkpoint", silent),
            (
                "without_number",
                "records without a number",
                self.without_number,
            ),
            ("without_id", "lines without a record", export.without_id),
            ("broken", "lines that are not JSON", export.broken),
            ("long", "lines longer than 16 MiB", export.long),
        ];
        report.summary("in the export alone:", export, &[], &counts)?;
        match missing + conflicts {
            0 => Ok(()),
            _ => Err(Failure::new(1, "")),
        }
    }
}

// === impl Stream ===

impl Stream {
    /// Prints what is wrong with it. Returns how many numbers are missing, are of different records, are of dead letters, and are repeated, and the
    /// hours without a checkpoint.
    fn judge(&mut self, name: &str, report: &mut Output) -> [u64; 5] {
        let stream = ("stream", json!(name));
        self.numbers.sort_unstable();
        self.checkpoints.sort_unstable();
        self.checkpoints.dedup();
        let (first, last) = (self.numbers[0].0, self.numbers[self.numbers.len() - 1].0);
        let [
            mut missing,
            mut conflicts,
            mut dead,
            mut repeated,
            mut silent,
        ] = [0; 5];
        let numbers = self.numbers.iter().map(|(number, _)| (*number, *number));
        for (from, to) in uncovered(first, last, numbers) {
            let lost = uncovered(from, to, self.dead_letters.iter().copied());
            let named = uncovered(from, to, lost.iter().copied());
            for (result, count, ranges) in
                [("missing", &mut missing, lost), ("dead", &mut dead, named)]
            {
                for (from, to) in ranges {
                    *count += from.abs_diff(to) + 1;
                    let range = [("first", json!(from)), ("last", json!(to)), stream.clone()];
                    report.line(result, &range);
                }
            }
        }
        for same in self.numbers.chunk_by(|one, other| one.0 == other.0) {
            if same.iter().any(|(_, id)| *id != same[0].1) {
                conflicts += 1;
                report.line("conflict", &[("number", json!(same[0].0)), stream.clone()]);
            } else {
                repeated += u64::from(same.len() > 1);
            }
        }
        for pair in self.checkpoints.windows(2) {
            let hours = pair[1].duration_since(pair[0]).as_hours() - 1;
            if hours > 0 {
                silent += hours.unsigned_abs();
                let times = [("from", json!(pair[0])), ("until", json!(pair[1]))];
                let [from, until] = times;
                report.line(
                    "silent",
                    &[from, until, ("hours", json!(hours)), stream.clone()],
                );
            }
        }
        let fields = [
            stream,
            ("first", json!(first)),
            ("last", json!(last)),
            ("missing", json!(missing)),
            ("dead_letters", json!(dead)),
            ("checkpoints", json!(self.checkpoints.len())),
            ("complete_through", json!(self.complete_through)),
        ];
        report.line("stream", &fields);
        [missing, conflicts, dead, repeated, silent]
    }
}
