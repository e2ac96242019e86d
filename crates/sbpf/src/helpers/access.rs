//! How helpers reach the program's memory: checked once as a whole, then worked on in steps that pay
//! budget and look at cancellation.

use crate::machine::{Fault, Machine};

/// Bytes that a helper handles between two looks at deadline and cancellation.
pub(super) const STEP_BYTES: u64 = 64 << 10;
/// Bytes that cost one retreating edge.
pub(super) const BYTES_PER_EDGE: u64 = 64;

/// The retreating edges that handling `len` bytes costs.
pub(super) fn cost(len: u64) -> u64 {
    len.div_ceil(BYTES_PER_EDGE)
}

/// Offset and length of each step over `len` bytes.
pub(super) fn steps(len: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..len.div_ceil(STEP_BYTES)).map(move |i| (i * STEP_BYTES, STEP_BYTES.min(len - i * STEP_BYTES)))
}

impl Machine {
    /// Makes sure that a helper may read this range. An empty range is always readable.
    ///
    /// # Errors
    /// [`Fault::Trapped`] when it is not readable.
    pub(super) fn check_read(&mut self, address: u64, len: u64) -> Result<(), Fault> {
        self.bytes(address, len).map(|_| ())
    }

    /// Makes sure that a helper may write this range.
    ///
    /// # Errors
    /// [`Fault::Trapped`] when it is not writable.
    pub(super) fn check_write(&mut self, address: u64, len: u64) -> Result<(), Fault> {
        self.bytes_mut(address, len).map(|_| ())
    }

    /// Two ranges that a helper reads; they may overlap.
    ///
    /// # Errors
    /// [`Fault::Trapped`] when one is not readable.
    pub(super) fn bytes_pair(&mut self, a: (u64, u64), b: (u64, u64)) -> Result<(&[u8], &[u8]), Fault> {
        let first = std::ptr::from_ref(self.bytes(a.0, a.1)?);
        let second = self.bytes(b.0, b.1)?;
        // SAFETY: `bytes` proved the range and nothing was unmapped since; both borrows are shared
        // and end with that of `self`.
        Ok((unsafe { &*first }, second))
    }

    /// A range that a helper reads and one that it writes.
    ///
    /// # Errors
    /// [`Fault::Trapped`] when one is not accessible, [`Fault::Refused`] when they overlap.
    pub(super) fn bytes_and_mut(&mut self, input: (u64, u64), output: (u64, u64)) -> Result<(&[u8], &mut [u8]), Fault> {
        let read = std::ptr::from_ref(self.bytes(input.0, input.1)?);
        let written = self.bytes_mut(output.0, output.1)?;
        // By host address: one piece of memory may be mapped in two regions.
        let (r, w) = (read.cast::<u8>().addr(), written.as_ptr().addr());
        if r < w + written.len() && w < r + read.len() {
            return Err(Fault::Refused("the output overlaps the input"));
        }
        // SAFETY: as in `bytes_pair`, and the ranges are disjoint.
        Ok((unsafe { &*read }, written))
    }

    /// Copies within the program's memory as if by way of a buffer, in steps.
    ///
    /// # Errors
    /// [`Fault::Trapped`] when a range is not accessible or the call has to stop.
    pub(super) fn copy(&mut self, to: u64, from: u64, len: u64) -> Result<(), Fault> {
        let target = self.bytes_mut(to, len)?.as_mut_ptr();
        let source = self.bytes(from, len)?.as_ptr();
        // Where the target starts inside the source, the last bytes go first.
        let backward = source.addr() < target.addr() && target.addr() < source.addr() + len as usize;
        for (offset, n) in steps(len) {
            self.charge(cost(n))?;
            let offset = if backward { len - offset - n } else { offset } as usize;
            // SAFETY: both ranges were proved as a whole and nothing is unmapped during a helper;
            // `copy` allows overlap.
            unsafe { std::ptr::copy(source.add(offset), target.add(offset), n as usize) };
        }
        Ok(())
    }
}
