//! Output that is given once more from its beginning, and written once.

use std::hash::Hasher as _;
use std::io::Write;
use twox_hash::xxhash3_64;

/// Output that another try gives from its beginning: the bytes that were written before are left out, if they are the same.
#[derive(Debug)]
pub struct Resumed<W> {
    out: W,
    written: Hashed,
    /// A hash of the bytes that were written before this try, and how many of them this try has not given yet.
    before: u64,
    left_out: u64,
    again: Hashed,
    is_other: bool,
}

#[derive(Default)]
struct Hashed {
    hasher: xxhash3_64::Hasher,
    len_bytes: u64,
}

impl std::fmt::Debug for Hashed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.len_bytes)
    }
}

impl Hashed {
    fn add(&mut self, bytes: &[u8]) {
        self.hasher.write(bytes);
        self.len_bytes += bytes.len() as u64;
    }
}

impl<W: Write> Resumed<W> {
    /// Output of which nothing is written yet.
    pub fn new(out: W) -> Self {
        let (written, again) = (Hashed::default(), Hashed::default());
        Self { out, written, before: 0, left_out: 0, again, is_other: false }
    }

    /// Whether the output of this try is not the one that was written: it is `whole`, or as far as it came.
    #[must_use]
    pub fn is_of_another(&self, whole: bool) -> bool {
        self.is_other || whole && self.left_out > 0
    }

    /// Whether anything was written.
    #[must_use]
    pub fn has_written(&self) -> bool {
        self.written.len_bytes > 0
    }

    /// Another try begins.
    pub fn rewind(&mut self) {
        self.before = self.written.hasher.finish();
        self.left_out = self.written.len_bytes;
        self.again = Hashed::default();
    }
}

impl<W: Write> Write for Resumed<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let left_out = self.left_out.min(bytes.len() as u64) as usize;
        if left_out > 0 {
            self.again.add(&bytes[..left_out]);
            self.left_out -= left_out as u64;
            self.is_other = self.left_out == 0 && self.again.hasher.finish() != self.before;
            return if self.is_other { Err(std::io::Error::other("the output is another one")) } else { Ok(left_out) };
        }
        let len = self.out.write(bytes)?;
        self.written.add(&bytes[..len]);
        Ok(len)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_output_goes_on_and_another_one_does_not() {
        for (second, whole, is_other) in [("onetwo", "onetwo", false), ("oxetwo", "one", true), ("on", "one", true)] {
            let mut out = Resumed::new(Vec::new());
            assert!(!out.has_written());
            out.write_all(b"one").unwrap();
            out.rewind();
            let written = second.as_bytes().chunks(2).try_for_each(|bytes| out.write_all(bytes));
            assert_eq!(out.is_of_another(true), is_other, "{second}");
            assert_eq!(written.is_err(), second == "oxetwo", "{second}");
            assert_eq!(out.out, whole.as_bytes(), "{second}");
        }
    }
}
