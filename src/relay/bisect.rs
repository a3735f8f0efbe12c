//! What to send next, and what an answer means for the records that were sent. It knows no record, only their number in
//! the outbox, oldest first.
//!
//! - A request that is refused because of its records is halved, until a record is refused alone: the suspect.
//! - The suspect is only to blame if others are accepted. So the record behind it is sent, the witness, and then those 2, 4,
//!   8… behind, until one is accepted. If there are no more, everything waits, and the next search begins one record further.
//! - The suspect is sent again after that. If it is refused again, it is rejected. A server error may be an accident, so it
//!   counts the third time, with other numbers of requests in between: of two servers behind one address, one may fail.
//! - A collector that is too slow, or accepts no request of a size, gets smaller ones for a while.
//! - Records of a partial success are rejected, as they must not be sent again.
//! - After any other answer, the same request is repeated after a delay.

use otlp_logs::{Reason, Verdict};

/// The number of successes after which a size that was too much is tried again. Limits rarely change, and an attempt costs
/// a refused request.
const TRY_AGAIN: u32 = 256;

/// The state of delivery.
#[derive(Debug)]
pub(super) struct Bisect {
    max: usize,
    /// The maximum number of records in a request for now.
    limit: usize,
    /// The number of successes before it grows.
    patience: u32,
    /// The number of oldest records that were refused together; 0 if none were.
    refused: usize,
    suspect: Option<Suspect>,
    /// The distance from the suspect to the next witness, and to the first one.
    distance: usize,
    first: usize,
    /// All searches were made an odd number of times.
    is_odd: bool,
    /// Partial successes since the last acceptance.
    rejections: u32,
}

/// The oldest record, after it was refused alone.
#[derive(Debug, Default)]
struct Suspect {
    /// How often it was refused alone; a refusal counts if it is [compared](Self::is_compared).
    refusals: u32,
    /// The number of requests from the refusal before the last one to the last one.
    gap: u32,
    /// The number of requests since the last refusal, without those that only have to be repeated.
    requests: u32,
    /// Whether a witness was accepted since then.
    is_accepted: bool,
    /// The suspect is next, as there are no more witnesses.
    is_next: bool,
}

/// What becomes of the records that were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// They stay in the outbox.
    Kept,
    /// They were delivered.
    Delivered,
    /// They become dead letters.
    Rejected,
}

// === impl Bisect ===

impl Bisect {
    /// Returns the state for requests of at most `max` records.
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            limit: max,
            patience: 0,
            refused: 0,
            suspect: None,
            distance: 1,
            first: 1,
            is_odd: false,
            rejections: 0,
        }
    }

    /// Returns what to send: the number of oldest records that are left out, which is above 0 for a witness, and the maximum number
    /// of records.
    pub(super) fn next(&self) -> (usize, usize) {
        match (&self.suspect, self.refused) {
            (Some(suspect), _) if !suspect.is_next && !suspect.is_compared() => (self.distance, 1),
            (_, 0) => (0, self.limit),
            (_, refused) => (0, (refused / 2).clamp(1, self.limit)),
        }
    }

    /// Returns whether the collector may accept no record at all, although it answers.
    pub(super) fn is_rejecting(&self) -> bool {
        self.rejections > 1
    }

    /// There is no record where the witness should be: waits.
    pub(super) fn no_witness(&mut self) {
        let is_last = self.distance == self.first;
        self.first = if is_last { 1 } else { self.first + 1 };
        self.distance = self.first;
        // Without a change of rhythm, a collector that fails each third request could fail the same record each time.
        self.is_odd ^= is_last;
        if let Some(suspect) = &mut self.suspect {
            suspect.is_next = !(is_last && self.is_odd);
        }
    }

    /// Returns what an answer to `count` records means, and whether there is a delay before the next request.
    pub(super) fn answered(&mut self, count: usize, verdict: &Verdict) -> (Fate, bool) {
        let is_witness = self.next().0 > 0;
        let is_compared = self.suspect.as_ref().is_some_and(Suspect::is_compared);
        if let Some(suspect) = &mut self.suspect {
            suspect.requests += u32::from(verdict.reason().is_none_or(Reason::is_about_records));
        }
        match verdict {
            Verdict::Accepted => {
                self.rejections = 0;
                match &mut self.suspect {
                    Some(suspect) if is_witness => suspect.is_accepted = true,
                    _ => {
                        self.leave(count);
                        self.grow();
                    }
                }
                (Fate::Delivered, false)
            }
            Verdict::PartlyRejected { .. } => {
                self.rejections += 1;
                if !is_witness {
                    self.leave(count);
                    self.shrink(count / 4, 0);
                }
                // One may be an accident. A collector that rejects everything must not empty the outbox at full speed.
                (Fate::Rejected, self.is_rejecting())
            }
            Verdict::Refused(refusal) if !refusal.reason.is_about_records() => {
                if refusal.reason == Reason::Timeout && !is_witness {
                    self.shrink(count / 2, TRY_AGAIN);
                }
                (Fate::Kept, true)
            }
            Verdict::Refused(_) if is_witness => {
                self.distance *= 2;
                (Fate::Kept, true)
            }
            Verdict::Refused(refusal) if count > 1 => {
                self.refused = count;
                let patience = u32::from(refusal.reason == Reason::TooLarge) * TRY_AGAIN;
                self.shrink(count / 2, patience);
                (Fate::Kept, false)
            }
            Verdict::Refused(refusal) => (self.refused_alone(refusal.reason, is_compared), false),
        }
    }

    fn refused_alone(&mut self, reason: Reason, is_compared: bool) -> Fate {
        self.refused = 1;
        // It was not the size of the requests.
        self.patience = 0;
        let suspect = self.suspect.get_or_insert_default();
        suspect.is_next = false;
        if suspect.refusals == 0 || is_compared {
            suspect.refusals += 1;
            suspect.gap = suspect.requests;
            (suspect.requests, suspect.is_accepted) = (0, false);
        }
        let needed = if reason == Reason::ServerError { 3 } else { 2 };
        if suspect.refusals < needed {
            return Fate::Kept;
        }
        // The next records may be bad as well, and their witness is where this one was.
        let distance = (self.distance - 1).max(1);
        self.leave(1);
        (self.distance, self.first) = (distance, distance);
        self.grow();
        Fate::Rejected
    }

    /// So many of the oldest records left the outbox, or others came before them.
    pub(super) fn leave(&mut self, count: usize) {
        self.refused = self.refused.saturating_sub(count);
        self.suspect = None;
        (self.distance, self.first) = (1, 1);
    }

    fn grow(&mut self) {
        match self.patience.checked_sub(1) {
            Some(rest) => self.patience = rest,
            None => self.limit = (self.limit * 2).min(self.max),
        }
    }

    fn shrink(&mut self, to: usize, patience: u32) {
        // A collector that refuses one record says nothing about larger requests.
        (self.limit, self.patience) = (to.max(1), patience * u32::from(to > 0));
    }
}

// === impl Suspect ===

impl Suspect {
    /// Returns whether a witness was accepted, and another refusal now would not have the rhythm of the ones before: the
    /// collector may fail every second request, or every third.
    fn is_compared(&self) -> bool {
        let (mut gap, mut other) = (self.requests + 1, self.gap);
        while other > 0 {
            (gap, other) = (other, gap % other);
        }
        self.is_accepted && (gap == 1 || self.refusals == 1)
    }
}

#[cfg(test)]
#[path = "bisect_tests.rs"]
mod tests;
