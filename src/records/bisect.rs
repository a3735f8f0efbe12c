//! Decides what to send next, and what an answer means for the records that were sent. It knows no record, only their
//! number: the outbox lists them oldest first.
//!
//! - A request that is rejected because of its records is halved, down to one record: the suspect.
//! - That alone proves nothing, because the collector may reject everything. So another record is sent, the witness. If it
//!   is accepted, the suspect is sent again, and if it is rejected again, it is a dead letter.
//! - The first witness is the record right behind the suspect. If it is rejected too, those 2, 4, 8… behind the suspect
//!   follow, with a delay before each. If there are no more records, everything waits, and the next search begins one
//!   record further, so that each record is tried at some time.
//! - After a dead letter, the next search begins where the last one ended. So a batch of bad records costs the delays of
//!   one search, and then three requests for each record.
//!
//!   The distance doubles because ten thousand records that are too old for the collector would otherwise delay all others
//!   by days. The newest record is not tried first because some collectors then reject all that are much older.
//! - An internal error may also be an overload, which is not about the record. Then it becomes a dead letter only if it was rejected three times
//!   within at least two minutes, each time after another one was accepted.
//! - A request that was too large or timed out is halved too, and the next ones stay that small for a while.
//! - Records of a partial success become dead letters, because they must not be sent again.
//! - After any other answer, the same records are sent again after a delay.

use std::time::Duration;

use otlp_logs::{Reason, Verdict};
use tokio::time::Instant;

/// The number of accepted requests after which their size is doubled.
const PATIENCE: u32 = 2;

/// The same after a request that was too large or timed out. Limits rarely change, and a timeout costs seconds.
const LONG_PATIENCE: u32 = 256;

/// After internal errors, a record is rejected at least so often, and for so long, before it is a dead letter.
const REJECTIONS: u32 = 3;
const OVERLOAD: Duration = Duration::from_secs(120);

/// The state of delivery.
#[derive(Debug)]
pub(crate) struct Bisect {
    choice: Choice,
    /// The maximum number of records in a request, and what it is for now.
    max: usize,
    limit: usize,
    /// The number of accepted requests before the limit doubles.
    patience: u32,
    /// The distance from the suspect to the next witness, and to the first one of the search.
    distance: usize,
    first: usize,
    /// How often the suspect was rejected alone, and since when.
    suspected: Option<(u32, Instant)>,
    /// The last answer was a partial success.
    partly_rejected: bool,
}

/// What to send next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// The oldest records.
    Oldest,
    /// Another record: the oldest one, the suspect, was rejected alone.
    Witness,
    /// The suspect: a witness was accepted.
    Suspect,
}

/// What is before the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// Nothing.
    None,
    /// So long: a collector that may be overloaded has accepted the witness.
    For(Duration),
    /// A delay that grows while nothing is accepted.
    Backoff,
}

/// The outcome for the records that were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// They stay in the outbox.
    Kept,
    /// They were delivered.
    Delivered,
    /// They become dead letters.
    DeadLetters,
}

// === impl Bisect ===

impl Bisect {
    /// Returns the state for requests of at most `max` records.
    pub(crate) fn new(max: usize) -> Self {
        Self {
            choice: Choice::Oldest,
            max,
            limit: max,
            patience: PATIENCE,
            distance: 1,
            first: 1,
            suspected: None,
            partly_rejected: false,
        }
    }

    /// Returns what to send: the number of oldest records that are left out, which is above 0 for a witness, and the
    /// maximum number of records.
    pub(crate) fn next(&self) -> (usize, usize) {
        match self.choice {
            Choice::Oldest => (0, self.limit),
            Choice::Witness => (self.distance, 1),
            Choice::Suspect => (0, 1),
        }
    }

    /// Returns whether the last answer was a partial success. Then the answer to an empty request says nothing.
    pub(super) fn is_partly_rejected(&self) -> bool {
        self.partly_rejected
    }

    /// Begins with the oldest record again, because there is no record where the witness should be.
    pub(crate) fn no_witness(&mut self) {
        let was_first = self.distance == self.first;
        self.begin(if was_first { 1 } else { self.first + 1 });
    }

    /// Begins with the oldest record again, because it is another one than before.
    pub(super) fn oldest_changed(&mut self) {
        self.suspected = None;
        self.begin(1);
    }

    /// Returns what an answer to `count` records means, and what is before the next request.
    pub(crate) fn answered(
        &mut self,
        count: usize,
        verdict: &Verdict,
        now: Instant,
    ) -> (Fate, Pause) {
        let reason = match verdict {
            Verdict::Accepted | Verdict::Warned { .. } => return (self.accepted(), Pause::None),
            Verdict::PartlyRejected { .. } => {
                self.oldest_changed();
                self.halve(count, Reason::BadRecord);
                // A collector that rejects a part of everything must not empty the outbox at full speed.
                let is_repeated = std::mem::replace(&mut self.partly_rejected, true);
                let pause = if is_repeated {
                    Pause::Backoff
                } else {
                    Pause::None
                };
                return (Fate::DeadLetters, pause);
            }
            Verdict::Rejected(rejection) => rejection.reason,
        };
        match self.choice {
            _ if reason == Reason::Timeout => {
                self.halve(count, reason);
                (Fate::Kept, Pause::Backoff)
            }
            _ if !reason.is_about_records() => (Fate::Kept, Pause::Backoff),
            Choice::Oldest => {
                self.halve(count, reason);
                if count == 1 {
                    self.suspected.get_or_insert((1, now));
                    self.choice = Choice::Witness;
                }
                (Fate::Kept, Pause::None)
            }
            Choice::Witness => {
                self.distance *= 2;
                (Fate::Kept, Pause::Backoff)
            }
            Choice::Suspect => {
                let (rejections, since) = self.suspected.get_or_insert((1, now));
                *rejections += 1;
                let is_overload = *rejections < REJECTIONS || now - *since < OVERLOAD;
                if reason == Reason::ServerError && is_overload {
                    self.choice = Choice::Witness;
                    let seconds = 1 << (*rejections - 2).min(5);
                    return (Fate::Kept, Pause::For(Duration::from_secs(seconds)));
                }
                self.suspected = None;
                // The next records may be bad as well. The record behind the witness is now at this distance.
                self.begin((self.distance - 1).max(1));
                (Fate::DeadLetters, Pause::None)
            }
        }
    }

    fn accepted(&mut self) -> Fate {
        self.partly_rejected = false;
        if self.choice == Choice::Witness {
            self.choice = Choice::Suspect;
            return Fate::Delivered;
        }
        self.oldest_changed();
        self.patience -= 1;
        if self.patience == 0 {
            self.limit = (self.limit * 2).min(self.max);
            self.patience = PATIENCE;
        }
        Fate::Delivered
    }

    fn begin(&mut self, distance: usize) {
        self.choice = Choice::Oldest;
        (self.distance, self.first) = (distance, distance);
    }

    fn halve(&mut self, count: usize, reason: Reason) {
        self.limit = (count / 2).max(1);
        self.patience = match reason {
            // A collector that takes no single record says nothing about sizes.
            Reason::TooLarge | Reason::Timeout if count > 1 => LONG_PATIENCE,
            _ => PATIENCE,
        };
    }
}

#[cfg(test)]
#[path = "bisect_tests.rs"]
mod tests;
