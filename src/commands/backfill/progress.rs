//! The progress of a backfill, on standard error: a bar on a terminal, a line now and then elsewhere.

use std::io::Write as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// The time between two lines.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Shows the progress until it is dropped.
pub(super) struct Progress {
    /// Hidden unless standard error is a terminal.
    bar: ProgressBar,
    last_line: Instant,
}

// === impl Progress ===

impl Progress {
    pub(super) fn new() -> Self {
        Self {
            bar: ProgressBar::no_length(),
            last_line: Instant::now(),
        }
    }

    /// Shows that `count` of `total` are done.
    pub(super) fn show(&mut self, activity: &'static str, count: u64, total: Option<u64>) {
        if self.bar.message() != activity {
            let template = match total {
                Some(_) => "{msg} [{bar:30}] {human_pos}/{human_len}, {per_sec}, {eta} left",
                None => "{spinner} {msg} {human_pos}, {per_sec}",
            };
            let style = ProgressStyle::with_template(template);
            self.bar.reset();
            self.bar
                .set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            self.bar.set_message(activity);
        }
        if let Some(total) = total {
            self.bar.set_length(total);
        }
        self.bar.set_position(count);
        if self.bar.is_hidden() && self.last_line.elapsed() >= LINE_INTERVAL {
            self.last_line = Instant::now();
            let of = total.map_or(String::new(), |total| format!(" of {total}"));
            let rate = self.bar.per_sec();
            // It does not matter if nothing reads it.
            let _ = writeln!(std::io::stderr(), "{activity}: {count}{of}, {rate:.0}/s");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
