//! Log lines as a test reads them.

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::Subscriber;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, Registry};

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

    /// With a subscriber that `make` puts around the layer of lines.
    pub(crate) fn begin_with(make: impl FnOnce(Lines) -> Box<dyn Subscriber + Send + Sync>) -> Self {
        let written = Written::default();
        let writer = written.clone();
        let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(move || writer.clone()).boxed();
        Self { written, _guard: tracing::subscriber::set_default(make(lines)) }
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let written = self.written.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&written).lines().map(str::to_owned).collect()
    }
}

// === impl Written ===

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
