//! A medium that loses everything that was not flushed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use diskside_io::Errno;
use diskside_io::buffer::{Hugepages, SharedMemory};

use super::file::{FileMedium, OpenOptions};
use crate::medium::{Access, Action, Medium, Properties, Step};

/// A file whose writes stay in memory until a flush: killing the process loses them, as power loss would.
///
/// For tests. A `kill -9` proves nothing about an ordinary file, because the kernel keeps what the process
/// wrote. It works on its file at once instead of through a ring, and keeps all unflushed blocks in memory.
#[derive(Debug)]
pub struct LossyMedium {
    of: Arc<OwnedFd>,
    file: File,
    block_bytes: usize,
    properties: Properties,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Written and not flushed, by block number.
    unflushed: BTreeMap<u64, Box<[u8]>>,
    crashed: bool,
}

impl LossyMedium {
    /// Opens `path` as [`FileMedium::open`] does.
    pub fn open(path: &Path, options: &OpenOptions) -> io::Result<Self> {
        let options = OpenOptions { buffered: true, ..options.clone() };
        let medium = FileMedium::open(path, &options)?;
        Ok(Self {
            of: Arc::clone(medium.file()),
            file: medium.file().try_clone()?.into(),
            block_bytes: options.block_bytes as usize,
            properties: medium.properties().clone(),
            state: Mutex::default(),
        })
    }

    /// The open file.
    pub fn file(&self) -> &Arc<OwnedFd> {
        &self.of
    }

    /// Loses what was not flushed, and fails every access from now on. The file holds what survived; open it again.
    pub fn crash(&self) {
        let mut state = self.lock();
        state.unflushed.clear();
        state.crashed = true;
    }

    /// Blocks that a crash would lose now.
    pub fn unflushed_blocks(&self) -> usize {
        self.lock().unflushed.len()
    }

    fn read(&self, state: &State, offset: u64, len: usize) -> io::Result<Action> {
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, offset)?;
        let first = offset / self.block_bytes as u64;
        let end = first + (len / self.block_bytes) as u64;
        for (block, data) in state.unflushed.range(first..end) {
            let at = (block - first) as usize * self.block_bytes;
            bytes[at..at + self.block_bytes].copy_from_slice(data);
        }
        let memory = SharedMemory::zeroed(len, Hugepages::No);
        memory.write(0, &bytes);
        Ok(Action::Bytes(memory.slice(0..len)))
    }

    fn write(&self, state: &mut State, offset: u64, data: &[u8], durable: bool) -> io::Result<Action> {
        let first = offset / self.block_bytes as u64;
        for (block, data) in (first..).zip(data.chunks_exact(self.block_bytes)) {
            state.unflushed.insert(block, data.into());
        }
        if durable {
            let end = first + (data.len() / self.block_bytes) as u64;
            self.persist(state, first..end)?;
        }
        Ok(Action::Done(data.len() as u64))
    }

    fn zero(&self, state: &mut State, offset: u64, len: u64) -> Action {
        let first = offset / self.block_bytes as u64;
        for block in first..first + len / self.block_bytes as u64 {
            state.unflushed.insert(block, vec![0; self.block_bytes].into());
        }
        Action::Done(len)
    }

    /// Writes these blocks down and waits until they are on disk.
    fn persist(&self, state: &mut State, blocks: std::ops::Range<u64>) -> io::Result<()> {
        for (block, data) in state.unflushed.range(blocks.clone()) {
            self.file.write_all_at(data, block * self.block_bytes as u64)?;
        }
        self.file.sync_data()?;
        state.unflushed.retain(|block, _| !blocks.contains(block));
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Medium for LossyMedium {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn start(&self, access: &Access<'_>) -> Step {
        let mut state = self.lock();
        let done = match *access {
            _ if state.crashed => return Action::Failed(Errno::IO).into(),
            _ if self.properties.read_only && access.is_write() => return Action::Failed(Errno::ROFS).into(),
            Access::Read { offset, len } => self.read(&state, offset, len),
            Access::Write { offset, data, durable } => self.write(&mut state, offset, data, durable),
            Access::Delta(_) => Ok(Action::Failed(Errno::OPNOTSUPP)),
            Access::Flush => self.persist(&mut state, 0..u64::MAX).map(|()| Action::Done(0)),
            Access::Zero { offset, len, .. } => Ok(self.zero(&mut state, offset, len)),
        };
        done.unwrap_or_else(|error| Action::Failed(errno(&error))).into()
    }
}

fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
}
