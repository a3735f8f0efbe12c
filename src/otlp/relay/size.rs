//! How large the next request may be: what a collector has refused makes requests smaller for a while.

/// The largest request, below the 4 MiB that a gRPC server takes by default.
pub const MAX_REQUEST_BYTES: usize = 3 * 1024 * 1024;

/// After so many acknowledgements in a row the number of records doubles again.
const GROW_RECORDS_AFTER: u32 = 4;

/// After so many the bytes double again, and the records where so many took too long. Limits rarely change, and each attempt costs a
/// refused request, or one whose records may come twice.
const GROW_SLOWLY_AFTER: u32 = 256;

/// The bounds of the next request.
#[derive(Clone, Debug)]
pub(super) struct RequestSize {
    max_records: usize,
    records: usize,
    bytes: usize,
    /// So many records took longer than the time-out, and fewer did not.
    too_slow: Option<usize>,
    /// Acknowledgements since the last change of either bound.
    streak: (u32, u32),
}

// === impl RequestSize ===

impl RequestSize {
    /// Full size: so many records.
    pub(super) fn new(max_records: usize) -> Self {
        Self {
            max_records,
            records: max_records,
            bytes: MAX_REQUEST_BYTES,
            too_slow: None,
            streak: (0, 0),
        }
    }

    /// The most records.
    pub(super) fn records(&self) -> usize {
        self.records
    }

    /// The most bytes; a single record may be larger.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// A request was taken as a whole.
    pub(super) fn acknowledged(&mut self) {
        self.streak = (self.streak.0 + 1, self.streak.1 + 1);
        let doubled = (self.records * 2).min(self.max_records);
        let slowly = self.too_slow.is_some_and(|records| doubled >= records);
        if self.streak.0
            >= if slowly {
                GROW_SLOWLY_AFTER
            } else {
                GROW_RECORDS_AFTER
            }
        {
            self.records = doubled;
            self.streak.0 = 0;
            self.too_slow = self.too_slow.filter(|_| !slowly);
        }
        if self.streak.1 >= GROW_SLOWLY_AFTER {
            self.bytes = (self.bytes * 2).min(MAX_REQUEST_BYTES);
            self.streak.1 = 0;
        }
    }

    /// Some of `records` were refused for good, and all of them are dead letters now: a quarter of that next time.
    pub(super) fn partly_rejected(&mut self, records: usize) {
        self.records = (records / 4).max(1);
        self.streak.0 = 0;
    }

    /// A request of so many records was not answered in time: half of them may be, where the collector is slow. Where it is silent, a
    /// single record is not answered either, and says nothing of the rest.
    pub(super) fn timed_out(&mut self, records: usize) {
        self.too_slow = (records > 1).then_some(records);
        self.records = (records / 2).max(1);
        self.streak.0 = 0;
    }

    /// What was too large was a single record: the others may go together again.
    pub(super) fn too_large_was_one(&mut self) {
        self.bytes = MAX_REQUEST_BYTES;
        self.streak.1 = 0;
    }

    /// A request of `bytes` was too large.
    pub(super) fn too_large(&mut self, bytes: usize) {
        self.bytes = (bytes / 2).max(1);
        self.streak.1 = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_systematic_rejection_condemns_few() {
        let mut size = RequestSize::new(512);
        let mut condemned = 0;
        for _ in 0..6 {
            condemned += size.records();
            size.partly_rejected(size.records());
        }
        assert_eq!((size.records(), condemned), (1, 512 + 128 + 32 + 8 + 2 + 1));
    }

    #[test]
    fn a_slow_collector_gets_what_it_can_take_in_time_and_a_silent_one_all_again() {
        let mut size = RequestSize::new(512);
        size.timed_out(512);
        size.timed_out(256);
        let taken =
            |size: &mut RequestSize, requests| (0..requests).for_each(|_| size.acknowledged());
        taken(&mut size, 255);
        assert_eq!(size.records(), 128, "256 took too long");
        taken(&mut size, 1 + 4);
        assert_eq!(size.records(), 512);
        while size.records() > 1 {
            size.timed_out(size.records());
        }
        size.timed_out(1);
        taken(&mut size, 9 * 4);
        assert_eq!(size.records(), 512);
    }

    #[test]
    fn acknowledgements_grow_requests_again() {
        let mut size = RequestSize::new(100);
        size.partly_rejected(100);
        size.too_large(1000);
        for _ in 0..8 {
            size.acknowledged();
        }
        assert_eq!((size.records(), size.bytes()), (100, 500));
        for _ in 0..256 {
            size.acknowledged();
        }
        assert_eq!((size.records(), size.bytes()), (100, 1000));
    }
}
