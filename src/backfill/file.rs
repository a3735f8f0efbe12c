//! The file of samples: OpenMetrics 1.0, each series whole and in the order of time, there all at once or not at all.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use super::BackfillError;

/// What the file says of its one metric.
const DESCRIPTION: &str = "# HELP orgdata_audit_events Audit events by activity type and actor, as they would have been counted from the beginning of the history on.
# TYPE orgdata_audit_events counter
";

/// A file being written, under a name of its own beside the one it will have.
#[derive(Debug)]
pub(super) struct SampleFile {
    out: BufWriter<File>,
    path: PathBuf,
    partial: PathBuf,
    /// The labels that Prometheus gives to what it scrapes, each as `,name="value"`.
    labels: String,
    /// The series under way, up to its value.
    series: String,
    samples: u64,
    series_count: u64,
}

// === impl SampleFile ===

impl SampleFile {
    pub(super) fn create(path: &Path, labels: &[(String, String)]) -> Result<Self, BackfillError> {
        // It gets its name at the end, in the place of what has it: a device or a link would be gone.
        if std::fs::symlink_metadata(path).is_ok_and(|there| !there.is_file()) {
            return Err(BackfillError::Setting(format!(
                "{} is there and no regular file; give the name of a file",
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
            // Only now: until then it may be another's.
            file.set_len(0)?;
            Ok(file)
        };
        let file = open().map_err(|error: std::io::Error| {
            let reason = if error.kind() == std::io::ErrorKind::WouldBlock {
                "another backfill writes it".to_owned()
            } else {
                error.to_string()
            };
            BackfillError::Setting(format!(
                "cannot write {}: {reason}; give a FILE in a directory that this user can write",
                path.display()
            ))
        })?;
        let labels = labels
            .iter()
            .map(|(name, value)| format!(",{name}=\"{}\"", escaped(value)))
            .collect();
        let mut this = Self {
            out: BufWriter::new(file),
            path: path.to_owned(),
            partial,
            labels,
            series: String::new(),
            samples: 0,
            series_count: 0,
        };
        this.write(DESCRIPTION)?;
        Ok(this)
    }

    /// Begins a series; without an actor where it is empty.
    pub(super) fn series(&mut self, activity_type: &str, actor: &str) {
        let actor = if actor.is_empty() {
            String::new()
        } else {
            format!(",actor=\"{}\"", escaped(actor))
        };
        self.series = format!(
            "orgdata_audit_events_total{{activity_type=\"{}\"{actor}{}}}",
            escaped(activity_type),
            self.labels
        );
        self.series_count += 1;
    }

    /// A sample of the series under way, at a time in seconds.
    pub(super) fn sample(&mut self, at: i64, value: u64) -> Result<(), BackfillError> {
        self.samples += 1;
        writeln!(self.out, "{} {value} {at}", self.series)
            .map_err(|error| failed(&self.path, &error))
    }

    /// Ends the file and gives it its name. Returns how many samples of how many series are in it.
    pub(super) fn finish(mut self) -> Result<(u64, u64), BackfillError> {
        self.write("# EOF\n")?;
        let written = self
            .out
            .flush()
            .and_then(|()| self.out.get_ref().sync_all());
        written
            .and_then(|()| std::fs::rename(&self.partial, &self.path))
            .map_err(|error| failed(&self.path, &error))?;
        Ok((self.samples, self.series_count))
    }

    fn write(&mut self, text: &str) -> Result<(), BackfillError> {
        self.out
            .write_all(text.as_bytes())
            .map_err(|error| failed(&self.path, &error))
    }
}

impl Drop for SampleFile {
    fn drop(&mut self) {
        // It has another name by now, unless something failed.
        let _ = std::fs::remove_file(&self.partial);
    }
}

/// A hidden file in the same directory.
pub(super) fn beside(path: &Path, what: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{what}"))
}

/// A label's value as OpenMetrics writes it. A NUL would end the file for Prometheus.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
        .replace('\0', "\u{fffd}")
}

fn failed(path: &Path, error: &std::io::Error) -> BackfillError {
    BackfillError::Failed(format!(
        "cannot write {}: {error}; nothing is left of it, run the same command again",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_there_when_it_is_whole_and_nothing_else_is() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("history.om");
        let mut file =
            SampleFile::create(&path, &[("job".into(), "a\"b\\c\nd\0".into())]).expect("created");
        file.series("A", "7");
        file.sample(60, 0).expect("written");
        file.sample(120, 2).expect("written");
        assert!(!path.exists());
        let second = SampleFile::create(&path, &[])
            .expect_err("refused")
            .to_string();
        assert!(second.contains("another backfill writes it"), "{second}");
        drop(file);
        assert_eq!(
            std::fs::read_dir(directory.path())
                .expect("a directory")
                .count(),
            0
        );

        let mut file =
            SampleFile::create(&path, &[("job".into(), "a\"b\\c\nd\0".into())]).expect("created");
        file.series("A", "");
        file.sample(60, 0).expect("written");
        assert_eq!(file.finish().expect("written"), (1, 1));
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("linked");
        assert!(
            SampleFile::create(&link, &[]).is_err_and(|error| error.exit_status() == 2),
            "a link stays what it is"
        );
        std::fs::remove_file(&link).expect("removed");
        let text = std::fs::read_to_string(&path).expect("readable");
        assert!(
            text.ends_with("\norgdata_audit_events_total{activity_type=\"A\",job=\"a\\\"b\\\\c\\nd\u{fffd}\"} 0 60\n# EOF\n"),
            "{text}"
        );
        assert_eq!(
            std::fs::read_dir(directory.path())
                .expect("a directory")
                .count(),
            1
        );
    }
}
