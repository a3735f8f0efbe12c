//! The way of log lines to standard error: a bounded queue and a thread that writes, so that a reader that sleeps stops
//! nothing. `tracing-appender` does this too, but at the end it prints to standard output if its queue is full, and there are
//! log records.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::thread;
use std::time::Duration;

/// The maximum number of lines that wait. Most have 200 bytes.
const MAX_LINES: usize = 4096;

/// The maximum time to write the last lines at the end.
const MAX_FLUSH: Duration = Duration::from_millis(500);

/// Lines for standard error; a clone is the same queue.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    waiting: SyncSender<Entry>,
    /// The number of lines that did not fit, since the last report.
    dropped: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Entry {
    Line(Vec<u8>),
    /// Is answered when all lines before it are written.
    Flush(mpsc::Sender<()>),
}

/// Prints a line to standard error, unless nothing reads it.
pub(crate) fn print(line: String) {
    if let Ok(queue) = Queue::to_stderr(|_| {}) {
        queue.push(line.into_bytes());
        queue.flush();
    }
}

// === impl Queue ===

impl Queue {
    /// Starts a thread for standard error. It calls `report` with the number of lines that were dropped, when there is space
    /// again.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn to_stderr(report: impl Fn(u64) + Send + 'static) -> io::Result<Self> {
        // A write to the copy does not hold the lock of standard error.
        Self::start(io::stderr().as_fd().try_clone_to_owned()?.into(), report)
    }

    fn start(mut file: File, report: impl Fn(u64) + Send + 'static) -> io::Result<Self> {
        let (waiting, entries) = mpsc::sync_channel(MAX_LINES);
        let dropped = Arc::new(AtomicU64::new(0));
        let queue = Self {
            waiting,
            dropped: dropped.clone(),
        };
        let thread = thread::Builder::new().name("log".to_owned());
        thread.spawn(move || {
            for entry in entries {
                // Neither a reader that has gone nor one that waited for too long is a reason to stop.
                match entry {
                    Entry::Line(line) => drop(file.write_all(&line)),
                    Entry::Flush(written) => drop(written.send(())),
                }
                let dropped = dropped.swap(0, Ordering::Relaxed);
                if dropped > 0 {
                    report(dropped);
                }
            }
        })?;
        Ok(queue)
    }

    /// Adds a line, which is dropped if there is no space.
    fn push(&self, line: Vec<u8>) {
        if self.waiting.try_send(Entry::Line(line)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until every line is written, for at most half a second. If the queue is full, nothing reads the lines.
    pub(crate) fn flush(&self) {
        let (sender, written) = mpsc::channel();
        if self.waiting.try_send(Entry::Flush(sender)).is_ok() {
            let _ = written.recv_timeout(MAX_FLUSH);
        }
    }
}

impl Write for Queue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufRead as _;
    use std::os::fd::OwnedFd;

    use super::*;

    #[test]
    fn what_is_not_read_is_bounded_counted_and_reported() {
        let (reader, writer) = io::pipe().expect("a pipe");
        let (sender, reports) = mpsc::channel();
        let report = move |count| sender.send(count).expect("a test");
        let queue = Queue::start(OwnedFd::from(writer).into(), report).expect("a thread");
        let pushed = 2 * MAX_LINES as u64;
        for _ in 0..pushed {
            queue.push(format!("{}\n", "x".repeat(999)).into_bytes());
        }
        queue.flush();
        // The thread ends with the queue, and the pipe with the thread.
        drop(queue);

        let lines: Vec<_> = io::BufReader::new(reader).lines().collect();
        assert!(lines.iter().flatten().all(|line| line.len() == 999));
        let dropped: u64 = reports.iter().sum();
        assert!(dropped > 0);
        assert_eq!(lines.len() as u64 + dropped, pushed);
    }
}
