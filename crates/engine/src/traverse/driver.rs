//! The driver for sources that can be read at once: memory, and local files.

use super::{Step, Traversal, TraverseError, TraverseRead, TraverseRequest};
use crate::turns::{Turns, in_turn, out_of_turn};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Instant;

/// Files that a traversal may read.
pub trait TraverseSource {
    /// All bytes of a read, valid until the next one. The read lies inside of the file's length as the
    /// request told it.
    ///
    /// # Errors
    /// Why they cannot be read; a file that became shorter is an error, too.
    fn read(&mut self, read: &TraverseRead) -> io::Result<&[u8]>;

    /// Whether a read may take long, so that the deadline is looked at before each.
    fn may_wait(&self) -> bool {
        true
    }
}

/// Files that are memory.
#[derive(Clone, Copy, Debug)]
pub struct MemoryList<'a>(pub &'a [&'a [u8]]);

/// Local files.
#[derive(Debug, Default)]
pub struct FileList {
    files: Vec<File>,
    buffer: Vec<u8>,
}

/// Steps over memory between two looks at the clock, which costs as much as a step.
const HOPS_BETWEEN_LOOKS: u32 = 32;

impl Traversal {
    /// Runs a traversal to its end, and gives its result.
    ///
    /// # Errors
    /// Why it did not end well, and at which hop.
    pub fn run(
        &mut self,
        request: &TraverseRequest<'_>,
        source: &mut impl TraverseSource,
    ) -> Result<&[u8], TraverseError> {
        let turns = self.turns.clone();
        in_turn(turns.as_deref(), || self.run_to_end(request, source, turns.as_deref()))?;
        Ok(self.result())
    }

    fn run_to_end(
        &mut self,
        request: &TraverseRequest<'_>,
        source: &mut impl TraverseSource,
        turns: Option<&dyn Turns>,
    ) -> Result<(), TraverseError> {
        let turns = turns.filter(|_| source.may_wait());
        // Steps themselves look at the deadline as well, when they are long.
        let looks = if source.may_wait() { 1 } else { HOPS_BETWEEN_LOOKS };
        let mut step = self.start(request)?;
        while step == Step::Read {
            if self.hops().is_multiple_of(looks) && self.may_be_stopped() {
                self.check_deadline(Instant::now())?;
            }
            // One at a time: whatever is outstanding is fed in the order in which it was asked for.
            let read = self.take_read().expect("a traversal that is not done has reads to be made");
            step = match out_of_turn(turns, || source.read(&read)) {
                Ok(data) => self.feed(data)?,
                Err(error) => {
                    // A read may have been given up for that.
                    self.check_deadline(Instant::now())?;
                    return Err(self.read_failed(&error));
                }
            };
        }
        Ok(())
    }
}

impl TraverseSource for MemoryList<'_> {
    fn read(&mut self, read: &TraverseRead) -> io::Result<&[u8]> {
        let bytes = self.0.get(read.file as usize).and_then(|file| {
            let start = usize::try_from(read.offset).ok()?;
            file.get(start..start.checked_add(usize::try_from(read.len).ok()?)?)
        });
        bytes.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn may_wait(&self) -> bool {
        false
    }
}

impl FileList {
    /// These files, in this order.
    #[must_use]
    pub fn new(files: Vec<File>) -> Self {
        Self { files, buffer: Vec::new() }
    }

    /// Their lengths now, as a request lists them.
    ///
    /// # Errors
    /// What the system said.
    pub fn lens(&self) -> io::Result<Vec<u64>> {
        self.files.iter().map(|file| Ok(file.metadata()?.len())).collect()
    }
}

impl TraverseSource for FileList {
    fn read(&mut self, read: &TraverseRead) -> io::Result<&[u8]> {
        let file = self.files.get(read.file as usize).ok_or(io::ErrorKind::NotFound)?;
        let len = usize::try_from(read.len).map_err(|_| io::ErrorKind::InvalidInput)?;
        if self.buffer.len() < len {
            self.buffer.resize(len, 0);
        }
        file.read_exact_at(&mut self.buffer[..len], read.offset)?;
        Ok(&self.buffer[..len])
    }
}
