//! Cursors: the place of an entry in the listing, opaque and checked.
//!
//! A cursor names a place and not an entry, so it stays valid if retention removes the entry.

use base64::Engine as _;
use base64::engine::GeneralPurpose;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

use crate::dice::{Purpose, hash};
use crate::readings::CursorReading;
use crate::world::{Key, Seq};

/// Returns the cursor of a place.
pub(crate) fn write(seed: u64, reading: CursorReading, key: Key) -> String {
    let (at, seq) = (key.at.cast_unsigned(), key.seq);
    let numbers = [at, seq.generated, seq.added, check(seed, key)];
    engine(reading).encode(numbers.map(u64::to_be_bytes).concat())
}

/// Returns the place of a cursor, or nothing if it was not written with this seed.
pub(crate) fn read(seed: u64, reading: CursorReading, text: &str) -> Option<Key> {
    let bytes = engine(reading).decode(text).ok()?;
    let mut numbers = bytes
        .chunks(8)
        .map(|number| number.try_into().map(u64::from_be_bytes));
    let mut number = || numbers.next()?.ok();
    let key = Key {
        at: number()?.cast_signed(),
        seq: Seq {
            generated: number()?,
            added: number()?,
        },
    };
    (number()? == check(seed, key) && bytes.len() == 32).then_some(key)
}

fn check(seed: u64, key: Key) -> u64 {
    let seed = seed ^ key.at.cast_unsigned();
    hash(seed, Purpose::Cursor, key.seq.generated, key.seq.added)
}

fn engine(reading: CursorReading) -> GeneralPurpose {
    match reading {
        CursorReading::UrlSafe => URL_SAFE_NO_PAD,
        CursorReading::Reserved => STANDARD,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key {
        at: -5,
        seq: Seq {
            generated: 17,
            added: 3,
        },
    };

    #[test]
    fn only_own_cursors_are_read() {
        for reading in [CursorReading::UrlSafe, CursorReading::Reserved] {
            let text = write(4, reading, KEY);
            assert_eq!(read(4, reading, &text), Some(KEY));
            assert_eq!(read(5, reading, &text), None);
            for broken in ["", "abc", &text.replace('A', "B")] {
                assert_eq!(read(4, reading, broken), None, "{broken}");
            }
        }
    }
}
