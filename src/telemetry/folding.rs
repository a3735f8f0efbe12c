//! Warnings that repeat: some lines a minute from one place in the program, and the others as a count.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata};
use tracing_subscriber::layer::{Context, Filter};

/// Lines that one place writes in a minute.
const BURST: u64 = 10;

/// How often the others are told of.
const MINUTE: Duration = Duration::from_secs(60);

/// Lets everything through, but of each warning only so many a minute: a collector that refuses one record after the other must not fill
/// the log. An error is a loss or the end of something, and each is written.
#[derive(Clone, Debug, Default)]
pub(super) struct Folding {
    places: Arc<Mutex<HashMap<Identifier, Place>>>,
}

/// One place in the program that warns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// Lines since the last report, those that were held back included.
    lines: u64,
    /// The last one that was held back.
    last: String,
}

/// Takes the message out of an event.
struct Message(String);

// === impl Folding ===

impl Folding {
    /// Whether the line is written; where it is not, it is counted.
    fn admit(&self, event: &Event<'_>) -> bool {
        if *event.metadata().level() != Level::WARN {
            return true;
        }
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let place = places.entry(event.metadata().callsite()).or_default();
        place.lines += 1;
        if place.lines <= BURST {
            return true;
        }
        let mut message = Message(std::mem::take(&mut place.last));
        message.0.clear();
        event.record(&mut message);
        place.last = message.0;
        false
    }

    /// What was held back since the last call; every place may write again.
    fn take(&self) -> Vec<(u64, String)> {
        let places =
            std::mem::take(&mut *self.places.lock().unwrap_or_else(PoisonError::into_inner));
        places
            .into_values()
            .filter(|place| place.lines > BURST)
            .map(|place| (place.lines - BURST, place.last))
            .collect()
    }

    /// Tells each minute what was held back, for as long as it is polled.
    pub(super) async fn report(self) {
        loop {
            tokio::time::sleep(MINUTE).await;
            self.tell();
        }
    }

    /// Tells what was held back since the last time.
    pub(super) fn tell(&self) {
        for (lines, last) in self.take() {
            tracing::warn!(
                folded_lines = lines,
                "more of the same within the last minute, the last one: {last}"
            );
        }
    }
}

impl<S> Filter<S> for Folding {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        self.admit(event)
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        // What is held back leaves a mark with the thread, which only another call of `enabled` takes away.
        if *metadata.level() != Level::WARN {
            Interest::always()
        } else {
            Interest::sometimes()
        }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::TRACE)
    }
}

// === impl Message ===

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            // Writing to a string cannot fail.
            let _ = write!(self.0, "{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::Layer;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;
    use crate::telemetry::captured::Captured;

    fn warn(n: u64) {
        tracing::warn!(n, "refused: record {n}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_warning_that_repeats_becomes_a_count() {
        let folding = Folding::default();
        let log = Captured::begin_with(|lines| {
            Box::new(tracing_subscriber::registry().with(lines.with_filter(folding.clone())))
        });
        (1..=100).for_each(warn);
        tracing::warn!("another one");
        (1..=100).for_each(|n| tracing::info!(n, "a change of state"));
        let lines = log.lines();
        assert_eq!(
            lines.iter().filter(|line| line.contains("refused")).count() as u64,
            BURST
        );
        assert_eq!(
            lines
                .iter()
                .filter(|line| line.contains("another one"))
                .count(),
            1,
            "other places have their own minute"
        );
        assert_eq!(
            lines
                .iter()
                .filter(|line| line.contains("a change of state"))
                .count(),
            100,
            "only warnings are folded"
        );

        let report = folding.clone().report();
        assert!(
            tokio::time::timeout(MINUTE * 3, report).await.is_err(),
            "it never ends by itself"
        );
        let told: Vec<String> = log
            .lines()
            .into_iter()
            .filter(|line| line.contains("more of the same"))
            .collect();
        assert_eq!(
            told.len(),
            1,
            "what did not happen again is not told again: {told:?}"
        );
        assert!(
            told[0].contains("folded_lines=90") && told[0].contains("refused: record 100"),
            "{told:?}"
        );

        warn(101);
        assert!(
            log.lines()
                .last()
                .is_some_and(|line| line.contains("record 101")),
            "a new minute"
        );
    }
}
