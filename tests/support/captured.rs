//! The log lines of a test's thread.

#![allow(dead_code, reason = "each test uses what it needs")]

use std::fs::File;
use std::sync::{Arc, LazyLock};

use tempfile::NamedTempFile;
use tracing::Dispatch;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::Registry;
use tracing_subscriber::layer::SubscriberExt;

/// With a single subscriber, `tracing` caches that a call site is disabled when another thread, which has none, reaches it first.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Registry::default()));

/// Collects what this thread logs until it is dropped.
pub(crate) struct Captured {
    written: NamedTempFile,
    _guard: DefaultGuard,
}

impl Captured {
    pub(crate) fn begin() -> Self {
        LazyLock::force(&SECOND);
        let written = NamedTempFile::new().unwrap();
        let writer = File::options().append(true).open(written.path());
        let lines = tracing_subscriber::fmt::layer().with_ansi(false);
        let lines = lines.with_writer(Arc::new(writer.unwrap()));
        let _guard = tracing::subscriber::set_default(Registry::default().with(lines));
        Self { written, _guard }
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.written.path()).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    /// Returns how many lines contain these words.
    pub(crate) fn count(&self, words: &str) -> usize {
        let lines = self.lines();
        lines.iter().filter(|line| line.contains(words)).count()
    }
}
