//! Cursors: the place of an entry in the listing, opaque and checked.
//!
//! A cursor names a place and not a row, so it stays good when retention takes the row. It is refused when it is not
//! one of this simulator's: the check depends on the seed and on the key of the listing.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

use super::dice::{Purpose, hash};
use super::readings::{CursorReading, KeyReading};
use super::world::{Key, Seq};

/// Makes and reads cursors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursors {
    pub(super) seed: u64,
    pub(super) key: KeyReading,
    pub(super) reading: CursorReading,
}

/// Bytes of the place; the check follows.
const PLACE: usize = 24;

// === impl Cursors ===

impl Cursors {
    pub(super) fn write(self, key: Key) -> String {
        let mut bytes = Vec::with_capacity(PLACE + 8);
        bytes.extend(key.at.to_be_bytes());
        bytes.extend(key.seq.generated.to_be_bytes());
        bytes.extend(key.seq.added.to_be_bytes());
        bytes.extend(self.check(key).to_be_bytes());
        match self.reading {
            CursorReading::UrlSafe => URL_SAFE_NO_PAD.encode(bytes),
            CursorReading::Reserved => STANDARD.encode(bytes),
        }
    }

    /// The place, or nothing when the text is no cursor.
    pub(super) fn read(self, text: &str) -> Option<Key> {
        let bytes = match self.reading {
            CursorReading::UrlSafe => URL_SAFE_NO_PAD.decode(text),
            CursorReading::Reserved => STANDARD.decode(text),
        };
        let bytes: [u8; PLACE + 8] = bytes.ok()?.try_into().ok()?;
        let number = |at: usize| Some(u64::from_be_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let seq = Seq {
            generated: number(8)?,
            added: number(16)?,
        };
        let key = Key {
            at: number(0)?.cast_signed(),
            seq,
        };
        (number(24)? == self.check(key)).then_some(key)
    }

    fn check(self, key: Key) -> u64 {
        let seed = hash(
            self.seed,
            Purpose::Cursor,
            self.key as u64,
            key.at.cast_unsigned(),
        );
        hash(seed, Purpose::Cursor, key.seq.generated, key.seq.added)
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

    fn cursors(reading: CursorReading) -> Cursors {
        Cursors {
            seed: 4,
            key: KeyReading::CreatedAt,
            reading,
        }
    }

    #[test]
    fn a_cursor_leads_back_to_its_place() {
        for reading in [CursorReading::UrlSafe, CursorReading::Reserved] {
            let cursors = cursors(reading);
            assert_eq!(cursors.read(&cursors.write(KEY)), Some(KEY));
        }
    }

    #[test]
    fn what_was_not_made_here_is_refused() {
        let cursors = cursors(CursorReading::UrlSafe);
        let other = Cursors { seed: 5, ..cursors };
        let mut broken = cursors.write(KEY);
        broken.replace_range(0..1, "B");
        assert_eq!(
            [cursors.read(&other.write(KEY)), cursors.read(&broken)],
            [None, None]
        );
        assert_eq!([cursors.read(""), cursors.read("abc")], [None, None]);
    }
}
