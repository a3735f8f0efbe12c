//! Keyed random numbers: the same seed and index give the same draws, in any order of asking.

use std::hash::Hasher as _;

use siphasher::sip::SipHasher13;

/// What a draw is for, so that an event and a ticket of the same number have nothing in common.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    Event = 1,
    EventId = 2,
    Slot = 3,
    Ticket = 4,
    TicketChange = 5,
    Shuffle = 6,
    Fault = 7,
    Cursor = 8,
}

/// A short stream of random numbers that belongs to one (seed, purpose, index).
#[derive(Clone, Debug)]
pub(super) struct Dice(u64);

/// A keyed 64-bit hash of two numbers.
pub(super) fn hash(seed: u64, purpose: Purpose, a: u64, b: u64) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(seed, purpose as u64);
    hasher.write_u64(a);
    hasher.write_u64(b);
    hasher.finish()
}

// === impl Dice ===

impl Dice {
    pub(super) fn new(seed: u64, purpose: Purpose, a: u64, b: u64) -> Self {
        Self(hash(seed, purpose, a, b))
    }

    /// The next number (splitmix64: it is fixed for ever, so a seed means the same world in every release).
    pub(super) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..n`; 0 when `n` is 0.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        u64::try_from((u128::from(self.roll()) * u128::from(n)) >> 64).unwrap_or(0)
    }

    /// A number in `0..n` that prefers small ones, as popular users and deals are preferred.
    pub(super) fn skewed(&mut self, n: u64) -> u64 {
        let a = self.below(n);
        let b = self.below(n);
        a.min(b)
    }

    /// True once in `n` times.
    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// True with probability `p`.
    pub(super) fn chance(&mut self, p: f64) -> bool {
        // 53 bits are what a float can hold exactly.
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit a float exactly")]
        let unit = (self.roll() >> 11) as f64 / (1u64 << 53) as f64;
        unit < p
    }

    /// One of `items`.
    pub(super) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[usize::try_from(self.below(items.len() as u64)).unwrap_or(0)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_key_gives_the_same_stream() {
        let mut a = Dice::new(7, Purpose::Event, 1, 2);
        let mut b = Dice::new(7, Purpose::Event, 1, 2);
        assert_eq!([a.roll(), a.roll()], [b.roll(), b.roll()]);
        assert_ne!(a.roll(), Dice::new(7, Purpose::Ticket, 1, 2).roll());
    }

    #[test]
    fn draws_stay_in_range() {
        let mut dice = Dice::new(1, Purpose::Event, 0, 0);
        assert!((0..1000).all(|_| dice.below(7) < 7 && dice.skewed(3) < 3));
        assert!(!dice.chance(0.0) && dice.chance(1.0));
    }
}
