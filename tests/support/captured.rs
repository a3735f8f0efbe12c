//! Log lines as a test reads them.

#![allow(dead_code, reason = "each test crate uses what it needs")]

use std::io::Write;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Level, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, Registry};

/// Where only one subscriber was ever made, what a line of code says first in another thread, which has none, is switched off for all.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Registry::default()));

/// What this thread logs until it is dropped.
pub(crate) struct Captured {
    written: Written,
    _guard: DefaultGuard,
}

/// A layer that writes lines.
pub(crate) type Lines = Box<dyn Layer<Registry> + Send + Sync>;

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

// === impl Captured ===

impl Captured {
    pub(crate) fn begin() -> Self {
        Self::begin_with(|lines| Box::new(tracing_subscriber::registry().with(lines)))
    }

    /// Lines of this level, and worse.
    pub(crate) fn begin_at(level: Level) -> Self {
        Self::begin_with(|lines| {
            Box::new(
                tracing_subscriber::registry()
                    .with(lines.with_filter(LevelFilter::from_level(level))),
            )
        })
    }

    /// With a subscriber that `make` puts around the layer of lines.
    pub(crate) fn begin_with(
        make: impl FnOnce(Lines) -> Box<dyn Subscriber + Send + Sync>,
    ) -> Self {
        LazyLock::force(&SECOND);
        let written = Written::default();
        let writer = written.clone();
        let lines = tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .boxed();
        Self {
            written,
            _guard: tracing::subscriber::set_default(make(lines)),
        }
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let written = self
            .written
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&written)
            .lines()
            .map(str::to_owned)
            .collect()
    }
}

// === impl Written ===

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
