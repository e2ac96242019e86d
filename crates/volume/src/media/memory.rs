//! A volume in memory: fast, empty at every start, gone at every stop.

use std::io;
use std::ops::Range;

use diskside_io::Errno;
use diskside_io::buffer::{Hugepages, SharedMemory};

use super::checksums::PageChecksums;
use crate::medium::{Access, Action, Medium, Properties, Step};

/// Anonymous memory, in huge pages where the kernel has them.
///
/// Reads are sent from where the bytes are. A page takes memory when it is first written.
#[derive(Debug)]
pub struct MemoryMedium {
    memory: SharedMemory,
    checksums: PageChecksums,
    properties: Properties,
}

impl MemoryMedium {
    /// `len_bytes` zero bytes.
    pub fn new(len_bytes: u64, read_only: bool) -> io::Result<Self> {
        let available = system_memory_bytes();
        if len_bytes > available {
            return Err(io::Error::new(
                io::ErrorKind::OutOfMemory,
                format!("a volume of {len_bytes} bytes in memory, on a machine with {available} bytes"),
            ));
        }
        let properties = Properties {
            len_bytes,
            read_only,
            volatile_write_cache: false,
            thin: false,
            direct: true,
            atomic_len: 0,
            delta_len: 0,
        };
        let len = usize::try_from(len_bytes).map_err(io::Error::other)?;
        let memory = SharedMemory::zeroed(len, Hugepages::Ask);
        Ok(Self { memory, checksums: PageChecksums::new(len), properties })
    }
}

impl Medium for MemoryMedium {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn memory(&self) -> Option<&SharedMemory> {
        Some(&self.memory)
    }

    fn crc32c(&self, range: Range<usize>) -> Option<u32> {
        Some(self.checksums.of(&self.memory, range))
    }

    fn start(&self, access: &Access<'_>) -> Step {
        if self.properties.read_only && access.is_write() {
            return Action::Failed(Errno::ROFS).into();
        }
        let action = match *access {
            Access::Read { offset, len } => {
                let start = offset as usize;
                Action::Bytes(self.memory.slice(start..start + len))
            }
            Access::Write { offset, data, .. } => {
                self.checksums.forget(offset as usize..offset as usize + data.len());
                self.memory.write(offset as usize, data);
                Action::Done(data.len() as u64)
            }
            Access::Delta(_) => Action::Failed(Errno::OPNOTSUPP),
            Access::Flush => Action::Done(0),
            Access::Zero { offset, len, .. } => {
                // In steps, so that a request for gigabytes does not delay the reactor's other connections.
                let step = len.min(ZERO_STEP_BYTES);
                let range = offset as usize..(offset + step) as usize;
                self.checksums.forget(range.clone());
                self.memory.zero(range);
                Action::Done(step)
            }
        };
        action.into()
    }
}

fn system_memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(u64::from(info.mem_unit))
}

const ZERO_STEP_BYTES: u64 = 256 << 10;
