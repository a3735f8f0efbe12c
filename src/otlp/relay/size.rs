//! How large the next request may be: what a collector has refused makes requests smaller for a while.

/// The largest request, below the 4 MiB that a gRPC server takes by default.
pub const MAX_REQUEST_BYTES: usize = 3 * 1024 * 1024;

/// After so many acknowledgements in a row the number of records doubles again.
const GROW_RECORDS_AFTER: u32 = 4;

/// After so many the bytes double again. Limits of size rarely change, and each attempt costs a refused request.
const GROW_BYTES_AFTER: u32 = 256;

/// The bounds of the next request.
#[derive(Clone, Debug)]
pub(super) struct RequestSize {
    max_records: usize,
    records: usize,
    bytes: usize,
    /// Acknowledgements since the last change of either bound.
    streak: (u32, u32),
}

// === impl RequestSize ===

impl RequestSize {
    /// Full size: so many records.
    pub(super) fn new(max_records: usize) -> Self {
        Self { max_records, records: max_records, bytes: MAX_REQUEST_BYTES, streak: (0, 0) }
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
        if self.streak.0 >= GROW_RECORDS_AFTER {
            self.records = (self.records * 2).min(self.max_records);
            self.streak.0 = 0;
        }
        if self.streak.1 >= GROW_BYTES_AFTER {
            self.bytes = (self.bytes * 2).min(MAX_REQUEST_BYTES);
            self.streak.1 = 0;
        }
    }

    /// Some of `records` were refused for good, and all of them are dead letters now: a quarter of that next time.
    pub(super) fn partly_rejected(&mut self, records: usize) {
        self.records = (records / 4).max(1);
        self.streak.0 = 0;
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
