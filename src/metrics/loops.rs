//! Whether each loop works: `orgdata_up`, the time of its last success, and its last error for the landing page.

use std::fmt;
use std::sync::Mutex;

use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use strum::VariantArray as _;

use super::family::{Writer, descriptors, seconds};
use crate::health::Loop;
use crate::util::lock;

descriptors! {
    /// 1 if the last round of a loop succeeded: audit (reading audit logs), tickets (scanning tickets), otlp (delivering
    /// log records). 0 before the first round; absent for a loop that is switched off.
    UP = "orgdata_up" ["loop"];
    /// When a round of a loop last succeeded, in seconds since the epoch; 0 before the first success.
    LAST_SUCCESS = "orgdata_last_success_timestamp_seconds" ["loop"];
    /// The reason of the last failed round of a loop while the loop fails; always 1. Absent while it works.
    LAST_FAILURE = "orgdata_last_failure_info" ["loop", "reason"];
}

/// What went wrong in a loop.
#[derive(Clone, Debug)]
pub struct LoopFailure {
    /// When it last happened.
    pub(crate) at: Timestamp,
    /// What kind of failure it is, as a label value.
    pub reason: &'static str,
    /// What happened and what to do about it.
    pub message: String,
}

/// The state of one loop.
#[derive(Clone, Debug, Default)]
pub struct LoopState {
    /// Whether the loop runs.
    pub(crate) enabled: bool,
    /// Whether the last round succeeded; `None` before the first.
    pub up: Option<bool>,
    /// When a round last succeeded.
    pub(crate) last_success: Option<Timestamp>,
    /// The last failure; kept after later successes.
    pub last_failure: Option<LoopFailure>,
}

/// The families `orgdata_up`, `orgdata_last_success_timestamp_seconds` and `orgdata_last_failure_info`. A loop that is switched
/// off has no series, so that it does not look like one that fails.
#[derive(Debug, Default)]
pub struct Loops(Mutex<[LoopState; Loop::VARIANTS.len()]>);

// === impl Loops ===

impl Loops {
    /// Marks a loop as running.
    pub fn enable(&self, which: Loop) {
        lock(&self.0)[which as usize].enabled = true;
    }

    /// Reports that a round succeeded now. Returns whether the one before failed.
    pub fn success(&self, which: Loop) -> bool {
        let state = &mut lock(&self.0)[which as usize];
        state.enabled = true;
        state.last_success = Some(Timestamp::now());
        state.up.replace(true) == Some(false)
    }

    /// Reports that a round failed now; see [`LoopFailure`].
    pub fn failure(&self, which: Loop, reason: &'static str, message: impl Into<String>) {
        let state = &mut lock(&self.0)[which as usize];
        state.enabled = true;
        state.up = Some(false);
        state.last_failure = Some(LoopFailure {
            at: Timestamp::now(),
            reason,
            message: message.into(),
        });
    }

    /// Returns the state of one loop.
    pub fn state(&self, which: Loop) -> LoopState {
        lock(&self.0)[which as usize].clone()
    }
}

impl Collector for Loops {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (mut up, mut last_success, mut last_failure) = (Vec::new(), Vec::new(), Vec::new());
        for (which, state) in Loop::VARIANTS.iter().zip(&*lock(&self.0)) {
            if state.enabled {
                up.push(([which.as_ref()], u32::from(state.up == Some(true))));
                last_success.push(([which.as_ref()], state.last_success.map_or(0.0, seconds)));
                let failure = state.last_failure.as_ref();
                let failure = failure.filter(|_| state.up == Some(false));
                last_failure.extend(failure.map(|it| ([which.as_ref(), it.reason], 1_u32)));
            }
        }
        let mut families = Writer(encoder);
        families.gauges(UP, up)?;
        families.gauges(LAST_SUCCESS, last_success)?;
        families.gauges(LAST_FAILURE, last_failure)
    }
}
