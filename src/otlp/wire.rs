//! Protobuf fields, written by hand where the size of everything inside is known before.

use prost::encoding::{WireType, encode_varint};

pub(super) use prost::encoding::encoded_len_varint as varint_len;

/// The size of a length-delimited field; every field here has a number below 16 and so a tag of one byte.
pub(super) fn part_len(len: usize) -> usize {
    1 + varint_len(len as u64) + len
}

/// The head of a length-delimited field: `len` bytes follow.
#[inline]
pub(super) fn begin(field: u8, len: usize, buffer: &mut Vec<u8>) {
    buffer.push(tag(field, WireType::LengthDelimited));
    // Most lengths are one byte.
    match u8::try_from(len) {
        Ok(len @ ..0x80) => buffer.push(len),
        _ => encode_varint(len as u64, buffer),
    }
}

/// A whole length-delimited field.
#[inline]
pub(super) fn part(field: u8, bytes: &[u8], buffer: &mut Vec<u8>) {
    begin(field, bytes.len(), buffer);
    buffer.extend_from_slice(bytes);
}

pub(super) fn varint(field: u8, value: u64, buffer: &mut Vec<u8>) {
    buffer.push(tag(field, WireType::Varint));
    encode_varint(value, buffer);
}

/// Four bytes: a `fixed32`.
pub(super) fn fixed32(field: u8, value: u32, buffer: &mut Vec<u8>) {
    buffer.push(tag(field, WireType::ThirtyTwoBit));
    buffer.extend_from_slice(&value.to_le_bytes());
}

/// Eight bytes: a `double`'s bits or a `fixed64`.
pub(super) fn fixed64(field: u8, value: u64, buffer: &mut Vec<u8>) {
    buffer.push(tag(field, WireType::SixtyFourBit));
    buffer.extend_from_slice(&value.to_le_bytes());
}

fn tag(field: u8, wire_type: WireType) -> u8 {
    field << 3 | wire_type as u8
}
