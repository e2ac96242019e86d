//! Type, length, value: how requests and trailers grow. A type is 16 bits, a length 16 bits; the value is padded to a
//! multiple of 4 bytes. An unknown type with bit 15 may be ignored, any other is an error.

use super::field::FieldError;

/// Types with this bit may be ignored by who does not know them.
pub(super) const IGNORABLE: u16 = 1 << 15;

/// Appends an element.
pub(super) fn push(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let len = u16::try_from(value.len()).unwrap_or(u16::MAX);
    bytes.extend_from_slice(&kind.to_le_bytes());
    bytes.extend_from_slice(&len.to_le_bytes());
    bytes.extend_from_slice(&value[..len.into()]);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// Goes through the elements of `bytes`, which begin at `base` of the data.
pub(super) fn elements(bytes: &[u8], base: usize) -> Elements<'_> {
    Elements { bytes, at: 0, base }
}

pub(super) struct Elements<'a> {
    bytes: &'a [u8],
    at: usize,
    base: usize,
}

/// An element, and where its value begins in the data.
pub(super) struct Element<'a> {
    pub(super) kind: u16,
    pub(super) value: &'a [u8],
    pub(super) offset: usize,
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<Element<'a>, FieldError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = &self.bytes[self.at..];
        if rest.is_empty() {
            return None;
        }
        let offset = self.base + self.at;
        self.at = self.bytes.len();
        let Some((&[k0, k1, l0, l1], rest)) = rest.split_first_chunk() else {
            return Some(Err(FieldError::new(offset, "an element is at least 4 bytes long")));
        };
        let (kind, len) = (u16::from_le_bytes([k0, k1]), usize::from(u16::from_le_bytes([l0, l1])));
        if rest.len() < len.next_multiple_of(4) {
            return Some(Err(FieldError::new(offset + 2, "the element goes beyond the end")));
        }
        self.at = offset - self.base + 4 + len.next_multiple_of(4);
        Some(Ok(Element { kind, value: &rest[..len], offset: offset + 4 }))
    }
}
