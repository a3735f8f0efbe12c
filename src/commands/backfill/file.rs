//! The file of `--to openmetrics`. It gets its name when it is complete.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use super::Failure;
use super::samples::{Counts, Grid};
use crate::commands::check_writable;
use crate::util::counted;

/// The head of the file.
const HEAD: &str = "# HELP orgdata_audit_events Audit events by activity type and actor.\n# TYPE orgdata_audit_events counter\n";

/// Returns the path of a file, without a slash at its end, if it can be written.
pub(super) fn checked(path: &Path) -> Result<PathBuf, String> {
    let path: PathBuf = path.components().collect();
    // It is replaced: a device or a link would be gone.
    let is_other = std::fs::symlink_metadata(&path).is_ok_and(|there| !there.is_file());
    let problem = match check_writable(&path) {
        _ if is_other => "it is not a regular file".to_owned(),
        Ok(()) => return Ok(path),
        Err(error) => error.to_string(),
    };
    Err(format!(
        "cannot write {}: {problem}; name a FILE in a directory that this user can write",
        path.display()
    ))
}

/// Writes everything and returns what to print.
pub(super) fn write(
    path: &Path,
    labels: &[(String, String)],
    counts: &Counts,
    grid: &Grid,
) -> Result<String, Failure> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let partial = path.with_file_name(format!(".{name}.{}.partial", uuid::Uuid::new_v4()));
    // A new file: no link is followed.
    let result = File::create_new(&partial).and_then(|file| {
        let mut out = BufWriter::new(file);
        let samples = write_samples(&mut out, labels, counts, grid)?;
        out.into_inner()?.sync_all()?;
        std::fs::rename(&partial, path)?;
        Ok(samples)
    });
    let path = path.display();
    let samples = result.map_err(|error| {
        // It may not exist.
        let _ = std::fs::remove_file(&partial);
        Failure::at_run_time(format!("cannot write {path}: {error}"))
    })?;
    let next = match counts.events {
        0 => "There is nothing to create blocks from.".to_owned(),
        _ => format!(
            "Next: promtool tsdb create-blocks-from --max-block-duration=744h openmetrics {path} DIRECTORY, where DIRECTORY is Prometheus' --storage.tsdb.path"
        ),
    };
    Ok(format!(
        "{path}: {} as {samples} samples of {} series\n{next}\n",
        counted(counts.events, "audit event", "audit events"),
        counts.series.len()
    ))
}

/// Returns the number of samples written.
fn write_samples(
    out: &mut impl io::Write,
    given: &[(String, String)],
    counts: &Counts,
    grid: &Grid,
) -> io::Result<u64> {
    let mut samples = 0;
    out.write_all(HEAD.as_bytes())?;
    for ((activity_type, actor), increases) in &counts.series {
        let mut labels = vec![("activity_type", activity_type)];
        labels.extend(actor.iter().map(|actor| ("actor", actor)));
        labels.extend(given.iter().map(|(name, value)| (name.as_str(), value)));
        let text = |(name, value): (&str, &String)| format!("{name}=\"{}\"", escaped(value));
        let labels: Vec<String> = labels.into_iter().map(text).collect();
        let series = format!("orgdata_audit_events_total{{{}}}", labels.join(","));
        grid.expand(increases, |at, value| {
            samples += 1;
            writeln!(out, "{series} {value} {at}")
        })?;
    }
    out.write_all(b"# EOF\n")?;
    Ok(samples)
}

/// Escapes a label value for OpenMetrics. A NUL would end the file for Prometheus.
fn escaped(value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"");
    value.replace('\n', "\\n").replace('\0', "\u{fffd}")
}
