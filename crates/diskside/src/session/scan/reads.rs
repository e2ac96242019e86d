//! Reads of a file for a scan on this machine.

use super::super::file::File;
use super::super::footers;
use super::rate::Meter;
use diskside_io::request::{AsyncIo, Request, run_here};
use diskside_scan::{Answer, ReadOf};
use std::sync::Arc;

/// What is read for a scan here.
pub(super) struct Reads {
    pub(super) io: Arc<dyn AsyncIo>,
    pub(super) file: File,
    /// The footer of the version that is scanned, and its like.
    pub(super) metadata: footers::OfScan,
    pub(super) meter: Meter,
}

impl Reads {
    /// Begins a read; its answer waits for it.
    pub(super) fn begin(&self, offset: u64, len: usize, of: ReadOf) -> Answer {
        let kept = if of == ReadOf::Metadata { self.metadata.get(offset, len) } else { None };
        if let Some(bytes) = kept {
            return Answer(Box::new(|| Ok(bytes)));
        }
        self.meter.read(self.read(offset, len, of))
    }

    fn read(&self, offset: u64, len: usize, of: ReadOf) -> Answer {
        let (name, read) = (self.file.inner.name.clone(), (of == ReadOf::Metadata).then(|| self.metadata.read()));
        let check = move |bytes: Result<Vec<u8>, String>| match bytes {
            Ok(bytes) if bytes.len() == len => {
                if let Some(read) = read {
                    read.note(offset, &bytes);
                }
                Ok(bytes)
            }
            Ok(_) => Err(format!("{name}: it became shorter while it was read")),
            Err(error) => Err(format!("{name}: {error}")),
        };
        if self.io.alignment_bytes() > 1 {
            let pending = self.file.pread(offset, len);
            return Answer(Box::new(move || {
                check(pending.wait().map(|bytes| bytes.to_vec()).map_err(|error| error.to_string()))
            }));
        }
        let buffer = diskside_io::buffer::Buffer::zeroed(len);
        let reading = self.io.submit(Request::Read { offset, buffer });
        Answer(Box::new(move || {
            let read = run_here(reading).into_read();
            check(read.map(|bytes| bytes.to_vec()).map_err(|error| error.to_string()))
        }))
    }
}
