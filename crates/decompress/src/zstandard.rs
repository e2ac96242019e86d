//! Frames of zstd, one after another.

use super::{Step, Wrong};
use std::io;
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation as _, OutBuffer};

const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The magic of a frame to be skipped, without the four lowest bits of its first byte.
const SKIPPABLE: [u8; 4] = [0x50, 0x2a, 0x4d, 0x18];
/// The largest window: what RFC 8878 wants every decoder to have, and what levels up to 19 use.
const WINDOW_LOG_MAX: u32 = 23;
/// What a decoder has beside the window.
const CONTEXT_BYTES: u64 = 512 << 10;

pub(super) struct Zstandard {
    decoder: Decoder<'static>,
    /// A frame was begun, and has not ended.
    is_within: bool,
    /// A frame has ended.
    has_frame: bool,
}

impl Zstandard {
    pub(super) const MEMORY_BYTES: u64 = (1 << WINDOW_LOG_MAX) + CONTEXT_BYTES;

    /// Tools that compress in parallel put a short frame to be skipped before each of theirs.
    pub(super) fn is_begun_by(head: &[u8]) -> bool {
        let Some((magic, rest)) = head.split_first_chunk::<4>() else { return false };
        if *magic == MAGIC {
            return true;
        }
        let is_skippable = magic[0] & 0xf0 == SKIPPABLE[0] && magic[1..] == SKIPPABLE[1..];
        let Some((len, rest)) = rest.split_first_chunk::<4>().filter(|_| is_skippable) else { return false };
        let skipped = u32::from_le_bytes(*len) as usize;
        rest.get(skipped..).is_some_and(|behind| behind.starts_with(&MAGIC))
    }

    pub(super) fn new() -> io::Result<Self> {
        let mut decoder = Decoder::new()?;
        decoder.set_parameter(DParameter::WindowLogMax(WINDOW_LOG_MAX))?;
        Ok(Self { decoder, is_within: false, has_frame: false })
    }

    pub(super) fn is_whole(&self) -> bool {
        self.has_frame && !self.is_within
    }

    pub(super) fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<Step, Wrong> {
        if input.is_empty() && !self.is_within {
            return Ok(Step { read: 0, written: 0 });
        }
        let (mut from, mut to) = (InBuffer::around(input), OutBuffer::around(output));
        match self.decoder.run(&mut from, &mut to) {
            Ok(left) => {
                self.is_within = left > 0;
                self.has_frame |= left == 0;
                Ok(Step { read: from.pos(), written: to.pos() })
            }
            Err(error) => Err(Wrong { read: from.pos(), what: explained(&error.to_string()) }),
        }
    }
}

/// What the library says, with what can be done about it.
fn explained(said: &str) -> String {
    if said != "Frame requires too much memory for decoding" {
        return said.to_owned();
    }
    format!(
        "its window is larger than {} MiB, which is the most that a call is given; compress it without --ultra and --long, \
         or pipe `zstd -dc --long=31` into this command",
        (1_u64 << WINDOW_LOG_MAX) >> 20
    )
}
