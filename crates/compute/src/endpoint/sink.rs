//! Where the output of a function goes at the target: into volumes and files, one sink after the other.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use diskside_io::Errno;

use crate::call::rights::MayWrite;
use crate::endpoint::layout_sink::LayoutSink;
use crate::endpoint::memory::MemorySink;
use crate::endpoint::{HOLD_BYTES, SinkError, WRITE_BYTES, Written};
use diskside_export::{FileError, FileSink, FileSource, Statx, changed, conflict};
use diskside_volume::Volume;
use diskside_volume::blocking::{flush, write_at};
use diskside_wire::function::Outcome;

/// The sinks of a call, which its output fills in order.
#[derive(Debug)]
pub(crate) struct Sinks {
    sinks: Vec<Sink>,
    /// Bytes of the output that each was given.
    taken: Vec<u64>,
    /// The one being filled.
    current: usize,
    failure: Option<SinkError>,
    /// How long the output waited for them.
    waited: Duration,
}

/// One sink.
#[derive(Debug)]
pub(crate) enum Sink {
    Volume(VolumeSink),
    File(Box<FileOut>),
    Layout(Box<LayoutSink>),
    Memory(MemorySink),
}

/// A range of a volume that is being written.
#[derive(Debug)]
pub(crate) struct VolumeSink {
    volume: Arc<Volume>,
    start: u64,
    end: u64,
    durable: bool,
    /// Where the first byte of `pending` goes.
    at: u64,
    /// What was written up to here is on stable media.
    durable_to: u64,
    flush_failed: bool,
    pending: Vec<u8>,
    may_write: MayWrite,
}

/// A file that is being written.
#[derive(Debug)]
pub(crate) struct FileOut {
    pub(crate) sink: Option<FileSink>,
    /// The most bytes it takes.
    pub(crate) len: u64,
    pub(crate) taken: u64,
    pub(crate) result: Written,
}

impl Sinks {
    pub(crate) fn new(sinks: Vec<Sink>) -> Self {
        Self { taken: vec![0; sinks.len()], sinks, current: 0, failure: None, waited: Duration::ZERO }
    }

    /// Why files that are read and written, or written twice, cannot be: nothing of them was touched yet.
    ///
    /// # Errors
    /// A file could not be looked at.
    pub(crate) fn conflict(&self, sources: &[FileSource]) -> Result<Option<String>, FileError> {
        conflict(sources, &self.files())
    }

    /// The files that are changed while the call reads.
    pub(crate) fn changed(&self) -> Result<Vec<Statx>, FileError> {
        changed(&self.files())
    }

    fn files(&self) -> Vec<&FileSink> {
        let files = self.sinks.iter().filter_map(|sink| match sink {
            Sink::File(out) => out.sink.as_ref(),
            _ => None,
        });
        files.collect()
    }

    /// How long the function and its end waited for the sinks.
    pub(crate) fn waited(&self) -> Duration {
        self.waited
    }

    /// Why a write failed, if one did.
    pub(crate) fn take_failure(&mut self) -> Option<SinkError> {
        self.failure.take()
    }

    /// The output is complete: writes what is left, makes it durable where that was asked for, and shows new files to
    /// others once all of it is.
    pub(crate) fn finish(&mut self) -> Result<(), SinkError> {
        let began = Instant::now();
        let completed = self.sinks.iter_mut().try_for_each(Sink::complete);
        let finished = completed.and_then(|()| self.sinks.iter_mut().try_for_each(Sink::publish));
        self.waited += began.elapsed();
        finished
    }

    /// The call failed: takes back what can be taken back.
    pub(crate) fn abort(&mut self) {
        self.sinks.iter_mut().for_each(Sink::abort);
    }

    /// The bytes that were written; the durable ones are a prefix of the output.
    pub(crate) fn written(&self) -> Written {
        let mut all = Written::default();
        let mut unbroken = true;
        for (sink, taken) in self.sinks.iter().zip(&self.taken) {
            let written = sink.written();
            all.written += written.written;
            if unbroken {
                all.durable += written.durable;
            }
            // Not what it wrote: it may have lost, or never written, a part of what it was given.
            unbroken &= written.durable == *taken;
        }
        all
    }

    fn put(&mut self, mut bytes: &[u8]) -> Result<(), SinkError> {
        while !bytes.is_empty() {
            let Some(sink) = self.sinks.get_mut(self.current) else {
                return Err(SinkError::Full(self.taken.iter().sum()));
            };
            let room = sink.room();
            if room == 0 {
                self.current += 1;
                continue;
            }
            let (now, later) = bytes.split_at(usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len()));
            self.taken[self.current] += now.len() as u64;
            sink.put(now)?;
            if sink.room() == 0 {
                sink.filled()?;
            }
            bytes = later;
        }
        Ok(())
    }
}

impl Write for Sinks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let began = Instant::now();
        let put = self.put(bytes);
        self.waited += began.elapsed();
        put.map_err(|error| {
            let told = io::Error::other(error.to_string());
            self.failure = Some(error);
            told
        })?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink {
    fn room(&self) -> u64 {
        match self {
            Sink::Volume(sink) => sink.end - sink.at - sink.pending.len() as u64,
            Sink::File(out) => out.len - out.taken,
            Sink::Layout(sink) => sink.room(),
            Sink::Memory(sink) => sink.room(),
        }
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), SinkError> {
        match self {
            Sink::Volume(sink) => sink.put(bytes),
            Sink::Layout(sink) => sink.put(bytes),
            Sink::Memory(sink) => {
                let put = sink.put(bytes);
                put.map_err(|error| SinkError::Memory { offset: sink.at(), what: error.to_string() })
            }
            Sink::File(out) => {
                out.taken += bytes.len() as u64;
                out.act(|sink| sink.append(bytes))
            }
        }
    }

    /// It has all that it takes: writes it, so that what is written stays a prefix of the output, and no memory is held
    /// for it while the next sinks are filled.
    fn filled(&mut self) -> Result<(), SinkError> {
        match self {
            Sink::Volume(sink) => sink.write_pending(true),
            Sink::Layout(sink) => sink.write_pending(true),
            Sink::Memory(_) => Ok(()),
            Sink::File(out) => out.act(FileSink::settle),
        }
    }

    /// Writes what is left and makes it durable where that was asked for; what can be taken back still can.
    fn complete(&mut self) -> Result<(), SinkError> {
        match self {
            Sink::Volume(sink) => {
                sink.write_pending(true)?;
                sink.make_durable()
            }
            Sink::Layout(sink) => sink.finish(),
            Sink::Memory(_) => Ok(()),
            Sink::File(out) => out.act(FileSink::complete),
        }
    }

    /// All sinks are complete.
    fn publish(&mut self) -> Result<(), SinkError> {
        match self {
            Sink::Volume(_) | Sink::Layout(_) | Sink::Memory(_) => Ok(()),
            Sink::File(out) => {
                let published = out.act(|sink| sink.publish().map(drop));
                out.sink = None;
                published
            }
        }
    }

    fn abort(&mut self) {
        match self {
            // Bytes that were written stay; the trailer says how many of them are durable.
            Sink::Volume(sink) => {
                sink.pending.clear();
                // The durable bytes show a flush that fails, and the call has an error already.
                let _ = sink.make_durable();
            }
            Sink::Layout(sink) => sink.abort(),
            // As with a volume, what was written stays.
            Sink::Memory(_) => {}
            Sink::File(out) => {
                if let Some(mut sink) = out.sink.take() {
                    let durable = sink.abort();
                    out.result = Written { written: sink.written_bytes(), durable };
                }
            }
        }
    }

    fn written(&self) -> Written {
        match self {
            Sink::Volume(sink) => Written { written: sink.at - sink.start, durable: sink.durable_to - sink.start },
            Sink::File(out) => out.result,
            Sink::Layout(sink) => sink.written(),
            Sink::Memory(sink) => sink.written(),
        }
    }
}

impl FileOut {
    fn act(&mut self, act: impl FnOnce(&mut FileSink) -> Result<(), FileError>) -> Result<(), SinkError> {
        let Some(sink) = &mut self.sink else { return Ok(()) };
        let acted = act(sink);
        self.result = Written { written: sink.written_bytes(), durable: sink.durable_bytes() };
        acted.map_err(SinkError::File)
    }
}

impl VolumeSink {
    /// A sink of the range. With `durable` the output is on stable media when it is finished.
    pub(crate) fn new(volume: Arc<Volume>, start: u64, end: u64, durable: bool, may_write: MayWrite) -> Self {
        let (at, durable_to, flush_failed, pending) = (start, start, false, Vec::new());
        Self { volume, start, end, durable, at, durable_to, flush_failed, pending, may_write }
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), SinkError> {
        self.pending.extend_from_slice(bytes);
        if self.pending.len() >= WRITE_BYTES { self.write_pending(false) } else { Ok(()) }
    }

    /// Writes the whole blocks that are pending; with `all` also the rest of the last one.
    fn write_pending(&mut self, all: bool) -> Result<(), SinkError> {
        let block = u64::from(self.volume.block_bytes);
        let mut done = 0;
        while done < self.pending.len() {
            let from = self.at;
            let end = (from + (self.pending.len() - done) as u64).min(from / block * block + HOLD_BYTES as u64);
            let end = if end.is_multiple_of(block) || all { end } else { end / block * block };
            if end <= from {
                break;
            }
            let written = self.at - self.start;
            let stopped = |why| SinkError::Stopped { outcome: Outcome::Cancelled, why, written };
            let _write = self.may_write.begin(&self.volume).map_err(stopped)?;
            let bytes = &self.pending[done..done + (end - from) as usize];
            write_at(&self.volume, from, bytes).map_err(|errno| self.failed(errno))?;
            done += bytes.len();
            self.at = end;
        }
        self.pending.drain(..done);
        Ok(())
    }

    fn make_durable(&mut self) -> Result<(), SinkError> {
        if self.volume.medium.properties().volatile_write_cache {
            if !self.durable {
                return Ok(());
            }
            // A medium that could not do it may say at the next one that all is well, having dropped what it had.
            if self.flush_failed {
                return Ok(());
            }
            self.flush_failed = true;
            flush(&self.volume).map_err(|errno| self.failed(errno))?;
            self.flush_failed = false;
        }
        self.durable_to = self.at;
        Ok(())
    }

    fn failed(&self, errno: Errno) -> SinkError {
        SinkError::Volume { name: self.volume.name.clone(), offset: self.at, errno }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskside_export::ExportSpec;
    use diskside_export::{Exports, FileSession, SinkMode};
    use diskside_wire::file::{FileFlags, FileRequest, OpenedFile};
    use zerocopy::FromBytes;

    fn replaced(session: &FileSession, path: &str) -> Sink {
        let (sender, receiver) = std::sync::mpsc::channel();
        let open = FileRequest::Lookup { dir: None, path: path.as_bytes(), flags: FileFlags::READ_WRITE };
        session.submit(open.to_bytes(), 4096, move |reply| sender.send(reply).unwrap()).unwrap();
        let opened = receiver.recv().unwrap().result;
        let handle = OpenedFile::read_from_bytes(&opened).unwrap().handle();
        let sink = Some(session.sink(handle, SinkMode::Replace).unwrap());
        Sink::File(Box::new(FileOut { sink, len: 4, taken: 0, result: Written::default() }))
    }

    /// Of two files that were to be replaced, the first was, and then the second could not be.
    #[test]
    fn either_all_files_are_replaced_or_none_is() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let session = Exports::open(&[ExportSpec::new("data", dir.path()).writable()]).unwrap().session();
        for fails in [true, false] {
            std::fs::write(at("one"), "old1").unwrap();
            std::fs::write(at("two"), "old2").unwrap();
            let mut sinks = Sinks::new(vec![replaced(&session, "data/one"), replaced(&session, "data/two")]);
            sinks.write_all(b"new1new2").unwrap();
            if fails {
                // The name means another file by now.
                std::fs::remove_file(at("two")).unwrap();
                std::fs::write(at("two"), "else").unwrap();
                let error = sinks.finish().unwrap_err().to_string();
                assert!(error.contains("that name means another file by now"), "{error}");
                sinks.abort();
                assert_eq!(sinks.written().durable, 0);
                assert_eq!(std::fs::read(at("one")).unwrap(), b"old1");
                assert_eq!(std::fs::read(at("two")).unwrap(), b"else");
            } else {
                sinks.finish().unwrap();
                assert_eq!(sinks.written(), Written { written: 8, durable: 8 });
                assert_eq!(std::fs::read(at("one")).unwrap(), b"new1");
                assert_eq!(std::fs::read(at("two")).unwrap(), b"new2");
            }
        }
    }
}
