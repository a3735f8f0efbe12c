//! A bounded queue of lines and the thread that writes them: without a reader, a stream stops nothing but itself.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::util::lock;

/// The maximum size of the lines that wait, in bytes.
const MAX_SIZE: usize = 1024 * 1024;

/// The maximum time to write the last lines at the end.
const MAX_FLUSH: Duration = Duration::from_millis(500);

/// Lines for standard error; a clone is the same queue. The default has no thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue(Arc<(Mutex<Waiting>, Condvar)>);

#[derive(Debug, Default)]
struct Waiting {
    lines: String,
    /// The number of lines that did not fit.
    dropped: u64,
    is_writing: bool,
}

/// Prints a line to standard error, unless nothing reads it.
pub(crate) fn print(line: String) {
    if let Ok(queue) = Queue::to_stderr(|_| String::new()) {
        queue.push(line);
        queue.flush();
    }
}

// === impl Queue ===

impl Queue {
    /// Starts a thread for standard error. `report` returns the line that says how many lines were dropped.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn to_stderr(report: impl Fn(u64) -> String + Send + 'static) -> io::Result<Self> {
        // A write to the copy does not hold the lock of standard error.
        Self::start(io::stderr().as_fd().try_clone_to_owned()?.into(), report)
    }

    fn start(file: File, report: impl Fn(u64) -> String + Send + 'static) -> io::Result<Self> {
        let queue = Self::default();
        let writer = queue.clone();
        let thread = thread::Builder::new().name("log".to_owned());
        thread.spawn(move || writer.write(file, report))?;
        Ok(queue)
    }

    /// Adds a line, which is dropped if there is no space.
    pub(crate) fn push(&self, line: String) {
        let mut waiting = lock(&self.0.0);
        if waiting.lines.len() + line.len() > MAX_SIZE {
            waiting.dropped += 1;
            return;
        }
        waiting.lines.push_str(&line);
        drop(waiting);
        self.0.1.notify_all();
    }

    /// Waits until every line is written, or for half a second.
    pub(crate) fn flush(&self) {
        let (waiting, changed) = &*self.0;
        let is_busy = |waiting: &mut Waiting| waiting.is_writing || !waiting.lines.is_empty();
        let _ = changed.wait_timeout_while(lock(waiting), MAX_FLUSH, is_busy);
    }

    /// Returns what no thread writes.
    #[cfg(test)]
    pub(super) fn take(&self) -> String {
        std::mem::take(&mut lock(&self.0.0).lines)
    }

    /// Writes lines, for ever.
    fn write(&self, mut file: File, report: impl Fn(u64) -> String) {
        let (waiting, changed) = &*self.0;
        loop {
            let is_idle = |waiting: &mut Waiting| waiting.lines.is_empty();
            let waited = changed.wait_while(lock(waiting), is_idle);
            let mut taken = waited.unwrap_or_else(PoisonError::into_inner);
            let mut lines = std::mem::take(&mut taken.lines);
            let dropped = std::mem::take(&mut taken.dropped);
            taken.is_writing = true;
            drop(taken);
            if dropped > 0 {
                lines.push_str(&report(dropped));
            }
            // A reader that has gone is no reason to stop.
            let _ = file.write_all(lines.as_bytes());
            lock(waiting).is_writing = false;
            changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufRead as _;
    use std::os::fd::OwnedFd;
    use std::time::Instant;

    use super::*;

    #[test]
    fn what_is_not_read_is_bounded_counted_and_reported_once() {
        let (reader, writer) = io::pipe().expect("a pipe");
        let report = |count| format!("{count} dropped\n");
        let queue = Queue::start(OwnedFd::from(writer).into(), report).expect("a thread");
        let line = format!("{}\n", "x".repeat(999));
        // Twice as much as the queue and what the thread has taken of it.
        let pushed = 4 * MAX_SIZE / line.len();
        for _ in 0..pushed {
            queue.push(line.clone());
        }
        let begun = Instant::now();
        queue.flush();
        assert!(begun.elapsed() >= MAX_FLUSH, "nothing was read");
        assert!(lock(&queue.0.0).lines.len() <= MAX_SIZE);

        let mut lines = io::BufReader::new(reader).lines().map_while(Result::ok);
        let (mut whole, mut dropped) = (0, None);
        for line in lines.by_ref() {
            match line.strip_suffix(" dropped") {
                Some(count) => {
                    dropped = count.parse::<usize>().ok();
                    break;
                }
                None => whole += usize::from(line.len() == 999),
            }
        }
        assert_eq!(dropped.map(|dropped| dropped + whole), Some(pushed));
        queue.push("last\n".to_owned());
        assert_eq!(lines.next().as_deref(), Some("last"));
    }
}
