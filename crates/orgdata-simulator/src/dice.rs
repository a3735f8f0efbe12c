//! Keyed random numbers: the same seed and number give the same draws, in whatever order they are made.

/// The step of splitmix64.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// What a draw is for, so that an event and a ticket of the same number have nothing in common.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    Event = 1,
    EventId,
    Time,
    Ticket,
    TicketChange,
    Shuffle,
}

/// A short stream of random numbers that belongs to one (seed, purpose, a, b).
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

/// Returns a 64-bit hash of two numbers, keyed by seed and purpose.
pub(crate) fn hash(seed: u64, purpose: Purpose, a: u64, b: u64) -> u64 {
    let parts = [seed, purpose as u64, a, b];
    parts
        .iter()
        .fold(0, |state, part| mix((state ^ part).wrapping_add(STEP)))
}

/// The finalizer of splitmix64. It must not change: a seed means the same data in every release.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

// === impl Dice ===

impl Dice {
    pub(crate) fn new(seed: u64, purpose: Purpose, a: u64, b: u64) -> Self {
        Self(hash(seed, purpose, a, b))
    }

    /// Returns a number in `0..n`, or 0 if `n` is 0.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        ((u128::from(mix(self.0)) * u128::from(n)) >> 64) as u64
    }

    /// Returns a number in `0..n` that prefers small ones, like popular users and deals.
    pub(crate) fn skewed(&mut self, n: u64) -> u64 {
        self.below(n).min(self.below(n))
    }

    /// Returns true once in `n` draws.
    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Returns one of `items`, which must not be empty.
    pub(crate) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }
}
