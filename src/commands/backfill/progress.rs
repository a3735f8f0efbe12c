//! The progress of a backfill, on standard error: a bar on a terminal, a line now and then elsewhere.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::time::Instant;

/// The time between two lines.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Shows the progress.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    last_line: Instant,
    /// When the current activity started, and the count at that time.
    activity: (&'static str, Instant, u64),
}

// === impl Progress ===

impl Progress {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self {
            bar: std::io::stderr().is_terminal().then(ProgressBar::no_length),
            last_line: now,
            activity: ("", now, 0),
        }
    }

    /// Shows that `count` of `total` units are done.
    pub(super) fn show(
        &mut self,
        activity: &'static str,
        unit: &'static str,
        count: u64,
        total: Option<u64>,
    ) {
        let now = Instant::now();
        if self.activity.0 != activity {
            self.activity = (activity, now, count);
            if let Some(bar) = &self.bar {
                let template = match total {
                    Some(_) => "{msg} [{bar:30}] {human_pos}/{human_len}, {per_sec}, {eta} left",
                    None => "{spinner} {msg} {human_pos}, {per_sec}",
                };
                bar.reset();
                bar.set_style(
                    ProgressStyle::with_template(template)
                        .unwrap_or_else(|_| ProgressStyle::default_bar()),
                );
                bar.set_message(format!("{activity} {unit}"));
                bar.enable_steady_tick(Duration::from_millis(250));
            }
        }
        if let Some(bar) = &self.bar {
            if let Some(total) = total {
                bar.set_length(total);
            }
            bar.set_position(count);
        } else if now.duration_since(self.last_line) >= LINE_INTERVAL {
            self.last_line = now;
            let (_, since, first) = self.activity;
            let seconds = now.duration_since(since).as_secs_f64().max(0.001);
            let rate = count.saturating_sub(first) as f64 / seconds;
            let of = total.map_or(String::new(), |total| format!(" of {total}"));
            let line = format!("{activity}: {count}{of} {unit}, {rate:.0}/s\n");
            // It does not matter if nothing reads it.
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }

    /// Removes the bar.
    pub(super) fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}
