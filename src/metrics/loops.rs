//! Whether each loop works: `orgdata_up`, the time of its last success, and the last error for the landing page.

use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use jiff::Timestamp;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::family::Family;

/// One of the exporter's loops; its name is the value of the label `loop`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Loop {
    /// Tails the audit logs.
    Audit,
    /// Scans the tickets.
    Tickets,
    /// Delivers log records.
    Otlp,
}

/// What went wrong in a loop, and since when.
#[derive(Clone, Debug)]
pub struct Failure {
    /// When it was seen last.
    pub at: Timestamp,
    /// One sentence for an operator: what happened and what to do about it.
    pub message: String,
}

/// The state of one loop as a person sees it.
#[derive(Clone, Debug, Default)]
pub struct LoopState {
    /// Whether the loop runs at all.
    pub enabled: bool,
    /// Whether the last round succeeded; `None` before the first.
    pub up: Option<bool>,
    /// When a round succeeded last.
    pub last_success: Option<Timestamp>,
    /// The last failure, kept after the loop has healed.
    pub last_failure: Option<Failure>,
}

/// The families `orgdata_up` and `orgdata_last_success_timestamp_seconds`, and what the landing page tells of each loop.
#[derive(Debug)]
pub struct Loops {
    up: Family<LoopLabel, Gauge>,
    last_success: Family<LoopLabel, Gauge<f64, AtomicU64>>,
    states: Mutex<[LoopState; 3]>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
struct LoopLabel {
    r#loop: Loop,
}

// === impl Loop ===

impl Loop {
    /// Every loop.
    pub const ALL: [Self; 3] = [Self::Audit, Self::Tickets, Self::Otlp];

    /// The label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Audit => "audit",
            Self::Tickets => "tickets",
            Self::Otlp => "otlp",
        }
    }
}

impl EncodeLabelValue for Loop {
    fn encode(&self, encoder: &mut LabelValueEncoder) -> Result<(), std::fmt::Error> {
        self.as_str().encode(encoder)
    }
}

// === impl Loops ===

impl Loops {
    /// Registers the families. A loop has its series from the moment it is enabled: one that is switched off must not look like one that fails.
    pub fn register(registry: &mut Registry) -> Self {
        let up = Family::<LoopLabel, Gauge>::new(Gauge::default);
        let last_success = Family::<LoopLabel, Gauge<f64, AtomicU64>>::new(Gauge::default);
        registry.register(
            "orgdata_up",
            "Whether the last round of a loop succeeded: audit (tail of the audit logs), tickets (scan), otlp (delivery of log records). \
             0 before the first round; a loop that is switched off has no series",
            up.clone(),
        );
        registry.register(
            "orgdata_last_success_timestamp_seconds",
            "When a round of a loop succeeded last, in seconds since the epoch; 0 before the first success",
            last_success.clone(),
        );
        Self {
            up,
            last_success,
            states: Mutex::default(),
        }
    }

    /// Marks a loop as one that runs.
    pub fn enable(&self, which: Loop) {
        drop(self.up.get(&LoopLabel { r#loop: which }));
        drop(self.last_success.get(&LoopLabel { r#loop: which }));
        self.with(which, |state| state.enabled = true);
    }

    /// A round succeeded now.
    pub fn success(&self, which: Loop) {
        let now = Timestamp::now();
        self.up.get(&LoopLabel { r#loop: which }).set(1);
        self.last_success
            .get(&LoopLabel { r#loop: which })
            .set(now.as_duration().as_secs_f64());
        self.with(which, |state| {
            state.up = Some(true);
            state.last_success = Some(now);
        });
    }

    /// A round failed now; `message` is one sentence for an operator.
    pub fn failure(&self, which: Loop, message: impl Into<String>) {
        self.up.get(&LoopLabel { r#loop: which }).set(0);
        let failure = Failure {
            at: Timestamp::now(),
            message: message.into(),
        };
        self.with(which, |state| {
            state.up = Some(false);
            state.last_failure = Some(failure);
        });
    }

    /// The state of one loop.
    pub fn state(&self, which: Loop) -> LoopState {
        self.with(which, |state| state.clone())
    }

    fn with<T>(&self, which: Loop, f: impl FnOnce(&mut LoopState) -> T) -> T {
        let mut states = self
            .states
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        f(&mut states[which as usize])
    }
}
