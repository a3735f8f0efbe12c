//! How far it is, for a person: a bar on a terminal, a plain line now and then elsewhere. Written to standard error.
//!
//! A crate for this would cost the release binary more than these lines do.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use tokio::time::Instant;

/// Between two drawings of the bar.
const REDRAW: Duration = Duration::from_millis(250);

/// Between two plain lines.
const LINE: Duration = Duration::from_secs(10);

/// Characters of the bar.
const WIDTH: usize = 30;

/// Back to the beginning of the line, and clear it.
const CLEAR: &str = "\r\x1b[K";

/// How far it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    /// What is going on.
    pub(super) doing: &'static str,
    /// Things done, in this process.
    pub(super) count: u64,
    /// What these things are.
    pub(super) unit: &'static str,
    /// The part of all, where that is known: 0 to 1.
    pub(super) part: Option<f64>,
}

/// Shows it.
#[derive(Debug)]
pub(super) struct Progress {
    terminal: bool,
    began: Instant,
    told: Instant,
    /// When the part of all was first known, and what it was.
    first: Option<(Instant, f64)>,
    drawn: bool,
}

// === impl Progress ===

impl Progress {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self {
            terminal: std::io::stderr().is_terminal(),
            began: now,
            told: now,
            first: None,
            drawn: false,
        }
    }

    /// Shows a position, unless the last one was shown a moment ago.
    pub(super) fn show(&mut self, position: Position) {
        let now = Instant::now();
        if let Some(part) = position.part {
            self.first.get_or_insert((now, part));
        }
        let pause = if self.terminal { REDRAW } else { LINE };
        if now.duration_since(self.told) < pause {
            return;
        }
        self.told = now;
        let text = text(
            position,
            now.duration_since(self.began),
            self.left(position.part, now),
        );
        let line = if self.terminal {
            format!("{CLEAR}{}{text}", bar(position.part))
        } else {
            format!("{text}\n")
        };
        self.drawn = self.terminal;
        // Whoever reads it may be gone.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }

    /// Takes the bar away.
    pub(super) fn end(&mut self) {
        if std::mem::take(&mut self.drawn) {
            let _ = std::io::stderr().write_all(CLEAR.as_bytes());
        }
    }

    fn left(&self, part: Option<f64>, now: Instant) -> Option<Duration> {
        let ((since, first), part) = (self.first?, part?);
        let seconds = now.duration_since(since).as_secs_f64() / (part - first) * (1.0 - part);
        (seconds.is_finite() && seconds < 1e9 && part > first)
            .then(|| Duration::from_secs(seconds as u64))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}

fn text(position: Position, elapsed: Duration, left: Option<Duration>) -> String {
    let Position {
        doing,
        count,
        unit,
        part,
    } = position;
    let mut text = format!(
        "{doing}: {count} {unit}, {:.0}/s",
        count as f64 / elapsed.as_secs_f64().max(0.001)
    );
    // Writing to a string does not fail.
    if let Some(part) = part {
        let _ = write!(text, ", {:.0}%", (part * 100.0).floor());
    }
    if let Some(left) = left {
        let _ = write!(text, ", {} left", humantime::format_duration(left));
    }
    text
}

fn bar(part: Option<f64>) -> String {
    let Some(part) = part else {
        return String::new();
    };
    let full = ((part * WIDTH as f64) as usize).min(WIDTH);
    format!("[{}{}] ", "#".repeat(full), "-".repeat(WIDTH - full))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn rate_part_and_time_left_are_told() {
        let mut progress = Progress::new();
        progress.first = Some((Instant::now(), 0.25));
        tokio::time::advance(Duration::from_secs(10)).await;
        let position = Position {
            doing: "delivering",
            count: 5000,
            unit: "records",
            part: Some(0.5),
        };
        let now = Instant::now();
        let line = text(
            position,
            now.duration_since(progress.began),
            progress.left(position.part, now),
        );
        assert_eq!(line, "delivering: 5000 records, 500/s, 50%, 20s left");
        let unknown = Position {
            part: None,
            ..position
        };
        assert_eq!(
            text(unknown, Duration::from_secs(10), progress.left(None, now)),
            "delivering: 5000 records, 500/s"
        );
    }

    #[test]
    fn the_bar_is_always_as_wide() {
        for part in [0.0, 0.5, 1.0, 1.5] {
            assert_eq!(bar(Some(part)).len(), WIDTH + 3);
        }
        assert_eq!(bar(None), "");
    }
}
