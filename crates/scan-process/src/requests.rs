//! Scans of single files that the parent is asked for, and their results as they come.

use diskside_scan::{Failure, FailureKind, Frame, PLAN_LEN_MAX, Plan, ReadOf, To};
use std::io::{self, Read, Write as _};

/// Bytes of a result that are asked for at a time.
const PIECE_LEN: u32 = 1 << 20;

/// Those that were asked for so far.
#[derive(Default)]
pub(crate) struct Requests(u64);

/// The result of one: an Arrow stream, as a reader.
pub(crate) struct Answer {
    number: u64,
    piece: Vec<u8>,
    at: usize,
    is_over: bool,
    /// Why there is no more of it.
    failed: Option<Failure>,
}

impl Requests {
    /// Asks for a scan of a file.
    pub(crate) fn ask(&mut self, file: usize, plan: &Plan) -> Result<Answer, Failure> {
        let plan = plan.to_bytes();
        if plan.len() > PLAN_LEN_MAX {
            let message = "the scan of a file is too long; name fewer columns".into();
            return Err(Failure { kind: FailureKind::Plan, message });
        }
        let frame = Frame::Scan { file: u32::try_from(file).unwrap_or(u32::MAX), plan };
        write(&frame).map_err(|error| unheard(&error))?;
        let number = self.0;
        self.0 += 1;
        Ok(Answer { number, piece: Vec::new(), at: 0, is_over: false, failed: None })
    }
}

impl Answer {
    /// The failure of a reader of this: that of the scan, if it failed.
    pub(crate) fn failure(self, of_reader: Failure) -> Failure {
        self.failed.unwrap_or(of_reader)
    }

    /// Waits for the end: only there it is known that the scan did not fail.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        while !self.is_over {
            self.next()?;
        }
        Ok(())
    }

    fn next(&mut self) -> Result<(), Failure> {
        let read = Frame::Read { offset: self.number, len: PIECE_LEN, of: ReadOf::Rows };
        write(&read).map_err(|error| unheard(&error))?;
        let frame = Frame::read(&mut io::stdin().lock(), To::Child).map_err(|error| unheard(&error))?;
        (self.piece, self.at) = match frame {
            Frame::Bytes(bytes) => (bytes, 0),
            // It names the file.
            Frame::NotRead(message) => return Err(Failure { kind: FailureKind::Reading, message }),
            _ => return Err(unheard(&"a scan was answered with something else")),
        };
        self.is_over = self.piece.is_empty();
        Ok(())
    }
}

impl Read for Answer {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at == self.piece.len() && !self.is_over {
            self.next().map_err(|failure| {
                self.failed = Some(failure);
                io::Error::other("the scan of a file failed")
            })?;
        }
        let count = (&self.piece[self.at..]).read(into)?;
        self.at += count;
        Ok(count)
    }
}

fn write(frame: &Frame) -> io::Result<()> {
    let mut out = io::stdout().lock();
    frame.write(&mut out)?;
    out.flush()
}

fn unheard(error: &dyn std::fmt::Display) -> Failure {
    Failure { kind: FailureKind::Reading, message: format!("asking for the scan of a file: {error}") }
}
