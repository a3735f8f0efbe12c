//! The progress of a backfill, on standard error: a bar on a terminal, a line now and then elsewhere.

use std::io::Write as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};

/// The time between two lines.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Shows the progress of an activity until it is dropped.
pub(super) struct Progress {
    /// Hidden unless standard error is a terminal.
    bar: ProgressBar,
    last_line: Instant,
}

// === impl Progress ===

impl Progress {
    pub(super) fn new(activity: &'static str, total: Option<u64>) -> Self {
        let style = ProgressStyle::with_template(match total {
            Some(_) => "{msg} [{bar:30}] {human_pos}/{human_len}, {per_sec}, {eta} left",
            None => "{spinner} {msg} {human_pos}, {per_sec}",
        });
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr())
            .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
            .with_message(activity)
            .with_finish(ProgressFinish::AndClear);
        Self {
            bar,
            last_line: Instant::now(),
        }
    }

    /// Shows how many are done.
    pub(super) fn show(&mut self, count: u64) {
        self.bar.set_position(count);
        if self.bar.is_hidden() && self.last_line.elapsed() >= LINE_INTERVAL {
            self.last_line = Instant::now();
            let total = self.bar.length();
            let of = total.map_or(String::new(), |total| format!(" of {total}"));
            let (activity, rate) = (self.bar.message(), self.bar.per_sec());
            // It does not matter if nothing reads it.
            let _ = writeln!(std::io::stderr(), "{activity}: {count}{of}, {rate:.0}/s");
        }
    }
}
