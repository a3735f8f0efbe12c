//! Where a backfilled counter ends and the exporter's own begins: no event may be in both, and none in neither.
//!
//! An exporter counts from the birth of its state file: what the service had by then is not counted, what came since is. The newest entry
//! that it had marks the seam; an event's time is its `createdAt`, as for the exporter itself.

use jiff::{SignedDuration, Timestamp};

use super::BackfillError;
use super::args::Until;
use crate::audit::TICK;
use crate::cli::Settings;
use crate::ledger::{Beginning, OpenError, StatePath};

/// What Prometheus still holds in its head: samples of that time must not come in blocks ("Backfilling from OpenMetrics format").
const HEAD: SignedDuration = SignedDuration::from_hours(3);

/// The seam.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seam {
    /// What was created before it belongs to the backfill, the rest to the exporter.
    pub(super) end: Timestamp,
}

// === impl Seam ===

impl Seam {
    /// Reads it from the state file of an exporter, running or not.
    pub(super) fn read(path: &StatePath, settings: &Settings) -> Result<Self, BackfillError> {
        let wrong = |text: String| Err(BackfillError::Setting(format!("--until live: {text}")));
        let StatePath::File(file) = path else {
            return wrong(
                "a state file in memory is gone; give --until an instant: when the exporter began"
                    .to_owned(),
            );
        };
        let beginning = match Beginning::read(file) {
            Ok(Some(beginning)) => beginning,
            Ok(None) => {
                return wrong(format!(
                    "the exporter of {path} has not been answered by the service yet; run this again when it has"
                ));
            }
            Err(OpenError::Missing(_)) => {
                return wrong(format!(
                    "there is no state file {path} to read where the exporter's counters begin; give --state.path the exporter's own, or --until an instant or a duration ago"
                ));
            }
            Err(error) => return wrong(error.to_string()),
        };
        Self::of(&beginning, path, settings)
    }

    fn of(
        beginning: &Beginning,
        path: &StatePath,
        settings: &Settings,
    ) -> Result<Self, BackfillError> {
        let wrong = |text: String| Err(BackfillError::Setting(format!("--until live: {text}")));
        if beginning.base_url != settings.ledger.base_url {
            return wrong(format!(
                "the state file {path} belongs to the service at {}, not to {}",
                beginning.base_url, settings.ledger.base_url
            ));
        }
        if beginning.filters != settings.ledger.filters {
            return wrong(format!(
                "the exporter of {path} counts with other filters; give the same --audit.* filters here"
            ));
        }
        if beginning.recreated {
            return wrong(format!(
                "{path} took the place of a damaged file, so Prometheus has older counts than it knows of; give --until an instant: when the first exporter began"
            ));
        }
        match beginning.newest_uncounted {
            Some(newest) => Ok(Self {
                end: newest.checked_add(TICK).unwrap_or(newest),
            }),
            None => wrong(format!(
                "the service had nothing when the exporter of {path} began, at {}: it has counted everything",
                beginning.born_at
            )),
        }
    }

    /// Says that what an exporter has sent is in the range too.
    pub(super) fn warn_of_repeats(&self, end: Timestamp) {
        if end > self.end {
            tracing::warn!(until = %end, live = %self.end, "the exporter of this state file sends the records from its own beginning on: they are delivered once more, with the same log.record.uid; --until live ends there");
        }
    }

    /// Says what an end elsewhere than here means.
    pub(super) fn compare(&self, end: Timestamp) {
        let seam = self.end;
        if end < seam {
            tracing::warn!(until = %end, live = %seam, "the exporter's own counters begin later than --until: events between the two are in neither; --until live ends where they begin");
        } else if end > seam {
            tracing::warn!(until = %end, live = %seam, "the exporter's own counters begin before --until: events between the two are counted twice; --until live ends where they begin");
        }
    }
}

/// Refuses a range that reaches into the hours that Prometheus has not written away yet.
pub(super) fn check_old_enough(
    end: Timestamp,
    until: Until,
    now: Timestamp,
) -> Result<(), BackfillError> {
    let latest = now.checked_sub(HEAD).unwrap_or(Timestamp::MIN);
    if end <= latest {
        return Ok(());
    }
    let from = end.checked_add(HEAD).unwrap_or(Timestamp::MAX);
    let from = from.strftime("%Y-%m-%dT%H:%M:%SZ");
    Err(match until {
        Until::Live => BackfillError::Failed(format!(
            "it is too early: the exporter's counters begin at {end}, and Prometheus holds its last three hours in memory, where blocks of the same time would disturb it. Run this again from {from} on; or give --allow-recent for a database that holds nothing from before then"
        )),
        Until::At(_) => BackfillError::Setting(format!(
            "--until {until} is {end}: Prometheus holds its last three hours in memory, where blocks of the same time would disturb it. Write --until 3h or earlier; or give --allow-recent for a database that holds nothing from before then"
        )),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::Start;

    #[test]
    fn the_hours_of_the_head_are_refused_with_the_moment_from_which_it_works() {
        let now: Timestamp = "2026-03-01T12:00:00Z".parse().expect("a time");
        let end: Timestamp = "2026-03-01T10:30:00Z".parse().expect("a time");
        let early = check_old_enough(end, Until::Live, now).expect_err("refused");
        assert_eq!(early.exit_status(), 1);
        assert!(
            early.to_string().contains("from 2026-03-01T13:30:00Z on"),
            "{early}"
        );
        assert_eq!(
            check_old_enough(end, Until::At(Start::Now), now)
                .expect_err("refused")
                .exit_status(),
            2
        );
        assert!(
            check_old_enough(
                "2026-03-01T09:00:00Z".parse().expect("a time"),
                Until::Live,
                now
            )
            .is_ok()
        );
    }
}
