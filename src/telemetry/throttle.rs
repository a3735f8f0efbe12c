//! Throttles repeated warnings: ten a minute from one place in the program, then a count of the others.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata};
use tracing_subscriber::layer::{Context, Filter};

use crate::util::{counted, lock};

/// The number of warnings that one place may write in a minute.
const BURST: u64 = 10;

/// How often the number of suppressed warnings is reported.
const MINUTE: Duration = Duration::from_secs(60);

/// A filter that suppresses repeated warnings. Errors and other levels always pass.
#[derive(Clone, Debug, Default)]
pub(super) struct Throttle {
    places: Arc<Mutex<HashMap<Identifier, Place>>>,
}

/// The warnings of one place in the program since the last report.
#[derive(Debug, Default)]
struct Place {
    warnings: u64,
    /// The message of the last suppressed one.
    message: String,
}

// === impl Throttle ===

impl Throttle {
    /// Reports each minute how many warnings were suppressed. Never returns.
    pub(super) async fn report(self) {
        loop {
            tokio::time::sleep(MINUTE).await;
            self.flush();
        }
    }

    /// Reports how many warnings were suppressed since the last call; each place may write again.
    pub(super) fn flush(&self) {
        let places = std::mem::take(&mut *lock(&self.places));
        for place in places.into_values().filter(|place| place.warnings > BURST) {
            let suppressed = place.warnings - BURST;
            let warnings = counted(suppressed, "similar warning", "similar warnings");
            tracing::warn!("suppressed {warnings}: {}", place.message);
        }
    }
}

impl<S> Filter<S> for Throttle {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        if *event.metadata().level() != Level::WARN {
            return true;
        }
        let mut places = lock(&self.places);
        let place = places.entry(event.metadata().callsite()).or_default();
        place.warnings += 1;
        if place.warnings > BURST {
            place.message.clear();
            event.record(place);
        }
        place.warnings <= BURST
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        // A suppressed event marks the thread, and only the next call of `enabled` clears the mark.
        if *metadata.level() == Level::WARN {
            Interest::sometimes()
        } else {
            Interest::always()
        }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::TRACE)
    }
}

// === impl Place ===

impl Visit for Place {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            // Writing to a string cannot fail.
            let _ = write!(self.message, "{value:?}");
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
        tracing::warn!(n, "record {n} was rejected");
    }

    #[tokio::test(start_paused = true)]
    async fn repeated_warnings_become_a_count_and_errors_do_not() {
        let throttle = Throttle::default();
        let log = Captured::begin_with(|lines| {
            Box::new(tracing_subscriber::registry().with(lines.with_filter(throttle.clone())))
        });
        let count = |text: &str| log.lines().iter().filter(|l| l.contains(text)).count();
        (1..=100).for_each(warn);
        tracing::warn!("another place");
        for n in 1..=100 {
            tracing::info!(n, "a change of state");
            tracing::error!(n, "a loss");
        }
        assert_eq!((count("rejected"), count("another place")), (10, 1));
        assert_eq!((count("a change of state"), count("a loss")), (100, 100));

        let report = throttle.clone().report();
        let _ = tokio::time::timeout(MINUTE * 3, report).await;
        assert_eq!(count("suppressed"), 1, "reported once");
        assert_eq!(
            count("suppressed 90 similar warnings: record 100 was rejected"),
            1
        );

        warn(101);
        assert_eq!(count("record 101"), 1, "a new minute");
    }
}
