//! Members of gzip, one after another.

use super::{Step, Wrong};
use flate2::{Decompress, FlushDecompress, Status};

/// The first bytes of a member, and its only method.
const MAGIC: [u8; 3] = [0x1f, 0x8b, 8];
/// Bits of the fourth byte that RFC 1952 reserves.
const RESERVED_FLAGS: u8 = 0xe0;
/// Deflate's window: 32 KiB.
const WINDOW_BITS: u8 = 15;

pub(super) struct Gzip {
    state: State,
    /// A member has ended.
    has_member: bool,
}

enum State {
    /// Between members.
    Between,
    /// The first byte of a member's magic was there.
    Begun,
    Member(Box<Decompress>),
    /// Zeroes behind the last member, as tapes have them.
    Padding,
    /// Bytes behind the last member that are not a member.
    Garbage,
}

impl Gzip {
    /// zlib's estimate of an inflate state, with its window.
    pub(super) const MEMORY_BYTES: u64 = 64 << 10;

    pub(super) fn is_begun_by(head: &[u8]) -> bool {
        head.starts_with(&MAGIC) && head.get(3).is_some_and(|flags| flags & RESERVED_FLAGS == 0)
    }

    pub(super) fn new() -> Self {
        Self { state: State::Between, has_member: false }
    }

    pub(super) fn is_whole(&self) -> bool {
        match self.state {
            State::Between | State::Begun => self.has_member,
            State::Member(_) => false,
            State::Padding | State::Garbage => true,
        }
    }

    pub(super) fn has_garbage(&self) -> bool {
        matches!(self.state, State::Garbage | State::Begun)
    }

    pub(super) fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<Step, Wrong> {
        let mut read = 0;
        while let Some(&byte) = input.get(read) {
            if let State::Member(inflate) = &mut self.state {
                let step = inflate_some(inflate, &input[read..], output)
                    .map_err(|wrong| Wrong { read: read + wrong.read, ..wrong })?;
                if step.has_ended {
                    (self.state, self.has_member) = (State::Between, true);
                }
                return Ok(Step { read: read + step.read, written: step.written });
            }
            self.state = match (&self.state, byte) {
                (State::Between, byte) if byte == MAGIC[0] => State::Begun,
                (State::Begun, byte) if byte == MAGIC[1] => State::Member(Box::new(begin_member())),
                (State::Between | State::Padding, 0) if self.has_member => State::Padding,
                _ if self.has_member => State::Garbage,
                _ => return Err(Wrong { read, what: "it does not begin with 1f 8b".to_owned() }),
            };
            read = if matches!(self.state, State::Garbage) { input.len() } else { read + 1 };
        }
        Ok(Step { read, written: 0 })
    }
}

struct Inflated {
    read: usize,
    written: usize,
    has_ended: bool,
}

/// A member whose magic was read.
fn begin_member() -> Decompress {
    let mut inflate = Decompress::new_gzip(WINDOW_BITS);
    inflate
        .decompress(&MAGIC[..2], &mut [], FlushDecompress::None)
        .expect("inflate takes the magic that a member begins with");
    inflate
}

fn inflate_some(inflate: &mut Decompress, input: &[u8], output: &mut [u8]) -> Result<Inflated, Wrong> {
    let before = (inflate.total_in(), inflate.total_out());
    let status = inflate.decompress(input, output, FlushDecompress::None);
    let (read, written) = (inflate.total_in() - before.0, inflate.total_out() - before.1);
    match status {
        Ok(status) => {
            Ok(Inflated { read: read as usize, written: written as usize, has_ended: status == Status::StreamEnd })
        }
        Err(error) => {
            let what = error.message().unwrap_or("no deflate data").to_owned();
            Err(Wrong { read: read as usize, what })
        }
    }
}
