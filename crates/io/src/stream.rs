//! Bytes of a descriptor that has no positions: of a pipe, a socket, a terminal, or of a file that the kernel writes
//! while it is read.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::readahead::{ReadAtError, ReadStream};

/// A descriptor, read from where it is to its end. A read waits until there are bytes, the [deadline](Self::until) is
/// over, or the stream is closed.
#[derive(Debug)]
pub struct DescriptorStream {
    descriptor: OwnedFd,
    /// Readable once the stream is closed.
    closed: OwnedFd,
    until: Option<Instant>,
}

/// The capacity that a pipe is asked for: its usual 64 KiB cost a change of threads each.
const PIPE_LEN: usize = 1 << 20;

impl DescriptorStream {
    /// Opens a file. A FIFO that nobody writes yet is waited for by reads, not here.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        Self::new(rustix::fs::open(path, flags, Mode::empty())?)
    }

    /// Reads a descriptor that is open.
    pub fn new(descriptor: OwnedFd) -> io::Result<Self> {
        // Descriptors that are not pipes, or where the user's pipes have enough memory already, stay as they are.
        let _ = rustix::pipe::fcntl_setpipe_size(&descriptor, PIPE_LEN);
        let closed = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { descriptor, closed, until: None })
    }

    /// The same stream, for whose bytes no read waits longer than until then.
    #[must_use]
    pub fn until(self, until: Option<Instant>) -> Self {
        Self { until, ..self }
    }

    /// Waits until there is something to read or to say.
    fn wait(&self) -> io::Result<()> {
        loop {
            let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
            // More time than the system can express has no bound.
            let timeout = left.and_then(|left| Timespec::try_from(left).ok());
            let mut watched = [PollFd::new(&self.descriptor, PollFlags::IN), PollFd::new(&self.closed, PollFlags::IN)];
            let ready = match poll(&mut watched, timeout.as_ref()) {
                Err(Errno::INTR) => continue,
                other => other?,
            };
            return match watched[1].revents().is_empty() {
                false => Err(io::ErrorKind::ConnectionAborted.into()),
                true if ready == 0 => Err(io::ErrorKind::TimedOut.into()),
                true => Ok(()),
            };
        }
    }
}

impl ReadStream for DescriptorStream {
    fn read(&self, buffer: &mut [u8]) -> Result<usize, ReadAtError> {
        loop {
            self.wait()?;
            match rustix::io::read(&self.descriptor, &mut *buffer) {
                // Somebody else has read it.
                Err(Errno::AGAIN | Errno::INTR) => {}
                other => return other.map_err(|errno| io::Error::from(errno).into()),
            }
        }
    }

    fn close(&self) {
        // It fails only when it was closed about 2^64 times before.
        let _ = rustix::io::write(&self.closed, &1_u64.to_le_bytes());
    }
}

/// A part of a stream: what comes before it is read and dropped. Of records that end with a delimiter it has the last one that
/// begins in the part whole, as a range of a file has, and before the part the [byte](ReadStream::lead_bytes) that tells whether a
/// record begins with it: so positions in the part stay what they are.
#[derive(Debug)]
pub struct StreamPart {
    stream: Arc<dyn ReadStream>,
    start: u64,
    /// `None`: to the end of the stream.
    end: Option<u64>,
    /// What records end with.
    delimiter: Option<u8>,
    /// Only one thread reads.
    progress: Mutex<Progress>,
}

#[derive(Debug, Default)]
struct Progress {
    /// Bytes that were read of the stream.
    at: u64,
    has_ended: bool,
}

/// The length of reads for the end of the last record: most end soon, and the bytes behind it are another's.
const SOON_LEN: u64 = 4 << 10;

impl StreamPart {
    /// The bytes of a stream from `start` on, to `end` if there is one; with a delimiter, to the end of the last record.
    pub fn new(stream: Arc<dyn ReadStream>, start: u64, end: Option<u64>, delimiter: Option<u8>) -> Self {
        Self { stream, start, end, delimiter, progress: Mutex::default() }
    }

    fn is_empty(&self) -> bool {
        self.end.is_some_and(|end| end <= self.start)
    }

    fn ended(&self, at: u64) -> ReadAtError {
        let (start, end) = (self.start, self.end.unwrap_or(self.start));
        ReadAtError::OutOfRange { start, end, len: at }
    }

    /// How many of the bytes that were read, the first of them at `at`, are of the part.
    fn within(&self, progress: &mut Progress, at: u64, bytes: &[u8]) -> usize {
        let (Some(delimiter), Some(end)) = (self.delimiter, self.end) else { return bytes.len() };
        // The part's last byte may end a record, and the next one begins behind it.
        let from = usize::try_from((end - 1).saturating_sub(at)).unwrap_or(usize::MAX);
        let rest = bytes.get(from..).unwrap_or_default();
        let Some(last) = rest.iter().position(|byte| *byte == delimiter) else { return bytes.len() };
        progress.has_ended = true;
        from + last + 1
    }
}

impl ReadStream for StreamPart {
    fn read(&self, buffer: &mut [u8]) -> Result<usize, ReadAtError> {
        let progress = &mut *self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let skipped = self.start - self.lead_bytes() as u64;
        loop {
            let at = progress.at;
            let is_before = at < skipped;
            let wanted = match self.end {
                _ if is_before => skipped - at,
                _ if progress.has_ended || self.is_empty() => 0,
                Some(end) if at < end => end - at,
                Some(_) if self.delimiter.is_some() => SOON_LEN,
                Some(_) => 0,
                None => u64::MAX,
            };
            if wanted == 0 {
                return Ok(0);
            }
            let len = usize::try_from(wanted).unwrap_or(usize::MAX).min(buffer.len());
            let read = self.stream.read(&mut buffer[..len])?;
            progress.at += read as u64;
            if read == 0 {
                let is_short = at < self.start || self.end.is_some_and(|end| at < end);
                return if is_short { Err(self.ended(at)) } else { Ok(0) };
            }
            if !is_before {
                return Ok(self.within(progress, at, &buffer[..read]));
            }
        }
    }

    fn close(&self) {
        self.stream.close();
    }

    fn warning(&self) -> Option<String> {
        self.stream.warning()
    }

    fn start(&self) -> u64 {
        self.start
    }

    fn lead_bytes(&self) -> usize {
        usize::from(self.delimiter.is_some() && self.start > 0 && !self.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream whose reads give so many bytes at most.
    #[derive(Debug)]
    struct Slow(Mutex<Vec<u8>>, usize);

    impl ReadStream for Slow {
        fn read(&self, buffer: &mut [u8]) -> Result<usize, ReadAtError> {
            let mut left = self.0.lock().unwrap();
            let len = self.1.min(buffer.len()).min(left.len());
            buffer[..len].copy_from_slice(&left[..len]);
            left.drain(..len);
            Ok(len)
        }

        fn close(&self) {}
    }

    /// The bytes of a part of a text, read so many bytes at a time; of records, those that begin in it.
    fn part(text: &str, range: (u64, Option<u64>), delimiter: Option<u8>, step: usize) -> Result<String, String> {
        let stream = Arc::new(Slow(Mutex::new(text.as_bytes().to_vec()), step));
        let part = StreamPart::new(stream, range.0, range.1, delimiter);
        let (mut all, mut buffer) = (Vec::new(), [0; 7]);
        loop {
            match part.read(&mut buffer).map_err(|error| error.to_string())? {
                0 => break,
                len => all.extend_from_slice(&buffer[..len]),
            }
        }
        if part.lead_bytes() > 0 {
            let before = all.iter().position(|byte| Some(*byte) == delimiter).map_or(all.len(), |at| at + 1);
            all.drain(..before);
        }
        Ok(String::from_utf8(all).unwrap())
    }

    /// The lines that begin in a range, by another way than the stream's.
    fn lines_of(text: &str, start: u64, end: u64) -> String {
        let (mut at, mut found) = (0, String::new());
        for line in text.split_inclusive('\n') {
            if at >= start && at < end {
                found += line;
            }
            at += line.len() as u64;
        }
        found
    }

    /// A part of a pipe or of decompressed bytes began and ended in the middle of lines, where one of a file has whole ones.
    #[test]
    fn a_part_of_a_stream_has_the_records_that_begin_in_it() {
        for text in ["one\ntwo\n\nthree is longer\nfour", "a\n", "\n\n\n", "no end at all", "x\nlast\n"] {
            let len = text.len() as u64;
            for (start, end) in (0..=len).flat_map(|start| (start..=len).map(move |end| (start, end))) {
                for step in [1, 2, 5, 100] {
                    let told = format!("{text:?}, {start}..{end}, {step} at a time");
                    let lines = lines_of(text, start, end);
                    assert_eq!(part(text, (start, Some(end)), Some(b'\n'), step), Ok(lines), "{told}");
                    let bytes = text[start as usize..end as usize].to_owned();
                    assert_eq!(part(text, (start, Some(end)), None, step), Ok(bytes), "{told}");
                    assert_eq!(part(text, (start, None), Some(b'\n'), step), Ok(lines_of(text, start, len)), "{told}");
                }
            }
            for delimiter in [None, Some(b'\n')] {
                let error = part(text, (0, Some(len + 1)), delimiter, 3).unwrap_err();
                assert!(error.contains(&format!("0..{}", len + 1)), "{error}");
                part(text, (len + 2, None), delimiter, 3).unwrap_err();
            }
        }
    }
}
