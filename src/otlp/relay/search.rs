//! Finding the record that a collector cannot take, with few requests, and never condemning one because everything is refused.
//!
//! An episode begins when a request is refused that may hold a bad record. First the oldest record goes alone: if it passes, the sink
//! works, and the first bad record is found by halving, always from the oldest on, so that order is kept. If it is refused, one other
//! record, picked at random, is the **witness**: when that is refused too, the sink is taken to be broken, and everything waits. A
//! record is condemned only after it was refused alone while another one got through.

use crate::otlp::FailureReason;
use crate::otlp::verdict::Refusal;

/// How often a record must be refused alone, with a witness, before it is condemned: a server's error (500, `INTERNAL`) may be
/// about something else.
const STRIKES_OF_DOUBT: u32 = 3;

/// What to send next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// At most so many of the oldest records.
    Oldest(usize),
    /// One record other than the oldest, to see whether anything gets through.
    Witness,
}

/// What a refusal in an episode leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The next step can be taken at once.
    GoOn,
    /// The oldest record is refused for good.
    Condemn,
    /// The oldest record was refused, perhaps not because of itself: wait, and send it again.
    Doubt,
    /// Nothing gets through: wait.
    Stuck,
}

/// One episode.
#[derive(Clone, Debug)]
pub(super) struct Search {
    /// Records of the episode that are still here.
    remaining: usize,
    /// How many of the oldest are known to hold a bad one.
    bad_within: Option<usize>,
    /// Another record got through since the last wait.
    witness: bool,
    /// The oldest record was refused alone, before there was a witness.
    alone_refused: bool,
    strikes: u32,
    condemned: u32,
    /// How many to send where nothing bad is known of.
    stride: usize,
    /// Nothing got through since the last wait.
    stuck: bool,
}

// === impl Search ===

impl Search {
    /// An episode over `records`.
    pub(super) fn new(records: usize) -> Self {
        Self {
            remaining: records,
            bad_within: None,
            witness: false,
            alone_refused: false,
            strikes: 0,
            condemned: 0,
            stride: records.max(1),
            stuck: false,
        }
    }

    /// What to send next.
    pub(super) fn step(&self) -> Step {
        if !self.witness {
            return if self.alone_refused && self.remaining > 1 {
                Step::Witness
            } else {
                Step::Oldest(1)
            };
        }
        match self.bad_within {
            Some(records) => Step::Oldest((records / 2).max(1)),
            None => Step::Oldest(self.stride.min(self.remaining).max(1)),
        }
    }

    /// So many of the oldest records were refused together.
    pub(super) fn refused(&mut self, records: usize, refusal: &Refusal) -> Turn {
        self.bad_within = Some(records);
        if records > 1 {
            return Turn::GoOn;
        }
        if !self.witness {
            self.alone_refused = true;
            self.stuck = self.remaining <= 1;
            return if self.stuck { Turn::Stuck } else { Turn::GoOn };
        }
        self.strikes += 1;
        let certain = refusal.reason == FailureReason::BadRecord || refusal.names_size();
        if certain || self.strikes >= STRIKES_OF_DOUBT {
            Turn::Condemn
        } else {
            Turn::Doubt
        }
    }

    /// The witness was refused too.
    pub(super) fn witness_refused(&mut self) -> Turn {
        self.interrupted();
        self.stuck = true;
        Turn::Stuck
    }

    /// A request got through: the oldest records, or the witness.
    pub(super) fn passed(&mut self, witness: bool) {
        self.witness = true;
        self.stuck = false;
        self.alone_refused = self.alone_refused && witness;
        self.stride = self.stride.saturating_mul(2);
    }

    /// The oldest record was condemned; it has yet to leave.
    pub(super) fn condemned(&mut self) {
        // After one bad record the rest is probably good; after several, probably not.
        self.stride = (self.remaining >> (2 * self.condemned).min(63)).max(1);
        self.condemned += 1;
        self.alone_refused = false;
        self.bad_within = None;
    }

    /// So many of the oldest records left. `false`: the episode is over.
    pub(super) fn gone(&mut self, records: usize) -> bool {
        self.strikes = 0;
        self.bad_within = self
            .bad_within
            .and_then(|bad| bad.checked_sub(records))
            .filter(|bad| *bad > 0);
        self.remaining = self.remaining.saturating_sub(records);
        self.remaining > 0
    }

    /// Something else failed: what passed before it says nothing about what is refused after it.
    pub(super) fn interrupted(&mut self) {
        self.witness = false;
        self.alone_refused = false;
        self.strikes = 0;
    }

    /// Nothing gets through; younger records may make a witness.
    pub(super) fn is_stuck(&self) -> bool {
        self.stuck
    }

    /// The outbox was read again, and the episode covers so many records now.
    pub(super) fn covers(&mut self, records: usize) {
        self.remaining = records;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bad() -> Refusal {
        Refusal::new(FailureReason::BadRecord, "HTTP 400")
    }

    fn doubtful() -> Refusal {
        Refusal::new(FailureReason::ServerError, "HTTP 500")
    }

    /// Plays an episode against a sink that refuses the records in `bad`; returns what was condemned and the number of requests.
    fn play(records: usize, bad_ones: &[usize]) -> (Vec<usize>, usize) {
        let (mut condemned, mut requests, mut oldest) = (Vec::new(), 1, 0);
        let mut search = Search::new(records);
        assert_eq!(
            search.refused(records, &bad()),
            if records > 1 { Turn::GoOn } else { Turn::Stuck }
        );
        loop {
            requests += 1;
            let open = match search.step() {
                Step::Witness if bad_ones.contains(&(records - 1)) => {
                    panic!("the witness of this test is the last record")
                }
                Step::Witness => {
                    search.passed(true);
                    true
                }
                Step::Oldest(count)
                    if (oldest..oldest + count).any(|record| bad_ones.contains(&record)) =>
                {
                    match search.refused(count, &bad()) {
                        Turn::Condemn => {
                            condemned.push(oldest);
                            oldest += 1;
                            search.condemned();
                            search.gone(1)
                        }
                        _ => true,
                    }
                }
                Step::Oldest(count) => {
                    oldest += count;
                    search.passed(false);
                    search.gone(count)
                }
            };
            if !open {
                assert_eq!(oldest, records);
                return (condemned, requests);
            }
        }
    }

    #[test]
    fn one_bad_record_among_512_is_found_with_few_requests_wherever_it_is() {
        for position in 0..511 {
            let (condemned, requests) = play(512, &[position]);
            assert_eq!(condemned, [position]);
            assert!(requests <= 14, "record {position}: {requests} requests");
        }
    }

    #[test]
    fn every_bad_record_is_found_and_no_other() {
        let bad: Vec<usize> = (0..511).step_by(7).collect();
        let (condemned, requests) = play(512, &bad);
        assert_eq!(condemned, bad);
        assert!(requests < bad.len() * 7, "{requests}");
        assert_eq!(play(2, &[0]).0, [0]);
    }

    #[test]
    fn without_a_witness_nothing_is_condemned() {
        let mut search = Search::new(512);
        search.refused(512, &bad());
        for _ in 0..100 {
            assert_eq!(search.step(), Step::Oldest(1));
            assert_eq!(search.refused(1, &bad()), Turn::GoOn);
            assert_eq!(search.step(), Step::Witness);
            assert_eq!(search.witness_refused(), Turn::Stuck);
        }
    }

    #[test]
    fn a_server_s_error_needs_more_strikes_and_a_pause_in_between_starts_over() {
        let mut search = Search::new(10);
        search.refused(1, &doubtful());
        search.passed(true);
        assert_eq!(search.refused(1, &doubtful()), Turn::Doubt);
        assert_eq!(search.refused(1, &doubtful()), Turn::Doubt);
        search.interrupted();
        assert_eq!(
            search.refused(1, &doubtful()),
            Turn::GoOn,
            "needs a witness again"
        );
        search.passed(true);
        assert_eq!(search.refused(1, &doubtful()), Turn::Doubt);
        assert_eq!(search.refused(1, &doubtful()), Turn::Doubt);
        assert_eq!(search.refused(1, &doubtful()), Turn::Condemn);
    }
}
