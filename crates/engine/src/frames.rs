//! Results of pieces on their way to where they are folded.
//!
//! A `combine` takes them one after another, in the order of the input, unless it says that the order does not matter. So
//! the parts of a request that run apart do not fold: each gives the outputs of its pieces as frames, and all are folded in
//! one place. A frame is a header of 24 bytes, in little-endian order, and the output:
//!
//! | bytes | field |
//! |---|---|
//! | 0-3 | source index in the request |
//! | 4-7 | index of the piece on its grid |
//! | 8-15 | offset of the piece in the source |
//! | 16-23 | length of the output |

use std::io::Write;

/// What a frame's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Which source of the request.
    pub source_index: u32,
    /// Which piece of it.
    pub chunk_index: u32,
    /// Where the piece begins.
    pub offset: u64,
    /// Bytes of output.
    pub len_bytes: u64,
}

impl FrameHeader {
    /// Its length in bytes.
    pub const LEN: usize = 24;

    /// As it is sent.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&self.source_index.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.chunk_index.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_le_bytes());
        bytes[16..].copy_from_slice(&self.len_bytes.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; Self::LEN]) -> Self {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        Self { source_index: word(0), chunk_index: word(4), offset: long(8), len_bytes: long(16) }
    }
}

/// A frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Which piece's.
    pub header: FrameHeader,
    /// Its output.
    pub output: &'a [u8],
}

/// Where a sequence of frames is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the results of pieces end in the middle of one, at byte {0}")]
pub struct BrokenFrames(pub usize);

/// Writes one frame.
pub(crate) fn write(out: &mut dyn Write, header: &FrameHeader, output: &[u8]) -> std::io::Result<()> {
    out.write_all(&header.encode())?;
    out.write_all(output)
}

/// The frames that these bytes are.
pub fn frames(bytes: &[u8]) -> impl Iterator<Item = Result<Frame<'_>, BrokenFrames>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let at = bytes.len() - rest.len();
        let frame = rest.split_first_chunk().and_then(|(header, behind)| {
            let header = FrameHeader::decode(header);
            let (output, behind) = behind.split_at_checked(usize::try_from(header.len_bytes).ok()?)?;
            rest = behind;
            Some(Frame { header, output })
        });
        if frame.is_none() {
            rest = &[];
        }
        Some(frame.ok_or(BrokenFrames(at)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_as_they_were_written_and_broken_ones_are_told() {
        let headers = [(0, 0, 0, b"abc".as_slice()), (3, 7, 1 << 40, b""), (3, 9, 1 << 41, b"de")];
        let mut bytes = Vec::new();
        for (source_index, chunk_index, offset, output) in headers {
            let header = FrameHeader { source_index, chunk_index, offset, len_bytes: output.len() as u64 };
            write(&mut bytes, &header, output).unwrap();
        }
        let read: Vec<_> = frames(&bytes)
            .map(|frame| frame.map(|f| (f.header.source_index, f.header.chunk_index, f.header.offset, f.output)))
            .collect::<Result<_, _>>()
            .unwrap();
        assert_eq!(read, headers);
        for len in 0..bytes.len() {
            let whole = [0, 27, 51].contains(&len);
            assert_eq!(frames(&bytes[..len]).all(|frame| frame.is_ok()), whole, "cut at {len}");
        }
        let lies = FrameHeader { source_index: 0, chunk_index: 0, offset: 0, len_bytes: u64::MAX }.encode();
        assert_eq!(frames(&lies).collect::<Vec<_>>(), [Err(BrokenFrames(0))]);
    }
}
