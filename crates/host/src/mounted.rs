//! Files of a file system that is mounted from a volume, read at the volume.
//!
//! The kernel has mounted a volume; this program has a connection of its own to the same volume. Then the bytes of a
//! file can be asked for where they are, and so can a function over them, if two things are sure: that the volume is the
//! one that is mounted ([`MountedFile::open`] compares names and superblocks), and that the blocks are still the file's
//! when the answer comes ([`diskside_layout::guard`]). Where one is not, the file is read the plain way, and the reason
//! is counted.

mod call;
mod find;
mod place;
mod write;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use diskside_io::buffer::Buffer;
use diskside_io::request::{AsyncIo, Request, RequestFuture, block_on};
pub use diskside_layout::pool::{Pool, PoolLimits, PooledFile, directory_of, nameless, sync_name};
use diskside_layout::{
    Admitted, Disk, Guard, GuardConfig, OpenFile, SUPERBLOCK_LEN, Ticket, admit, watched, watched_duplicate,
};
pub use diskside_layout::{Counters, Place, Proof, Reason, Refusal};
use rustix::fs::{OFlags, fcntl_getfl};

pub use call::{MountedCalls, MountedError};
pub use find::{ATTACHED_DIRECTORY, ATTACHED_URL, ATTACHED_VOLUME, attached_url, volume_urls};
pub use write::{FunctionWritten, MountedWriter, RETURNED_LEN_MAX, WriteWay};

use crate::volume::Volume;

/// How a mounted file is read at its volume.
#[derive(Clone, Debug)]
pub struct MountedOptions {
    /// How sure each request has to be.
    pub proof: Proof,
    /// The most extents of a file that are remembered, and the most of one request.
    pub extents_max: usize,
    /// How coarse the kernel's clock for files' times may be, for [`Proof::Detect`]; `None`: as this kernel has it.
    pub clock_tick: Option<Duration>,
    /// Where requests are counted; files may share it.
    pub counters: Arc<Counters>,
}

impl Default for MountedOptions {
    fn default() -> Self {
        Self { proof: Proof::default(), extents_max: 1 << 16, clock_tick: None, counters: Arc::default() }
    }
}

/// An open file on a mounted volume.
#[derive(Debug)]
pub struct MountedFile {
    guard: Guard<OpenFile>,
    volume: Volume,
    admitted: Admitted,
    counters: Arc<Counters>,
    /// The turn of a file that is read through somebody else's descriptor: its requests have one lease, so they go one
    /// by one.
    turn: Option<&'static Mutex<()>>,
}

/// Which way bytes came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the volume, past the file system.
    Volume,
    /// Through the file system, for this reason.
    Plain(Reason),
}

/// Where the file system of a file is.
///
/// # Errors
/// Why the file's bytes cannot be read at any volume.
pub fn place_of(file: &File) -> Result<Place, Refusal> {
    admit(file).map(|admitted| admitted.place)
}

impl MountedFile {
    /// Opens a file for reading at `volume`, which must be what its file system is mounted from.
    ///
    /// # Errors
    /// Why its bytes cannot be read at the volume. The caller continues with the file as it is.
    pub fn open(path: &Path, volume: &Volume, options: &MountedOptions) -> Result<Self, Refusal> {
        let file = File::open(path).map_err(|e| Refusal::failed(&path.display().to_string(), e))?;
        Self::of(file, false, volume, options)
    }

    /// The file behind a descriptor, of which this is a duplicate; the descriptor may be open for writing, too. That is
    /// proved if it is the only one that the file is open by.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn of_duplicate(file: File, volume: &Volume, options: &MountedOptions) -> Result<Self, Refusal> {
        let flags = fcntl_getfl(&file).map_err(|e| Refusal::failed("F_GETFL", e.into()))?;
        if flags & OFlags::RWMODE == OFlags::RDONLY {
            // One of our own has a lease of its own. A process that may not open the file, as after giving up rights,
            // shares the other's.
            if let Ok(own) = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())) {
                return Self::of(own, false, volume, options);
            }
        }
        Self::of(file, true, volume, options)
    }

    fn of(file: File, is_duplicate: bool, volume: &Volume, options: &MountedOptions) -> Result<Self, Refusal> {
        let admitted = admit(&file)?;
        check_volume(&admitted, volume)?;
        let flags = fcntl_getfl(&file).map_err(|e| Refusal::failed("F_GETFL", e.into()))?;
        let config = GuardConfig {
            proof: options.proof,
            own_writer: flags & OFlags::RWMODE != OFlags::RDONLY,
            place: admitted.place.clone(),
            moves_under_lease: admitted.moves_under_lease(),
            extents_max: options.extents_max,
            clock_tick: options.clock_tick.unwrap_or_else(clock_tick),
        };
        let guard = if is_duplicate { watched_duplicate(file, config) } else { watched(file, config) };
        let guard = guard.map_err(|e| Refusal::failed("the thread that answers breaks of leases", e))?;
        let turn = is_duplicate.then(|| &TURNS[admitted.inode as usize % TURNS.len()]);
        Ok(Self { guard, volume: volume.clone(), admitted, counters: Arc::clone(&options.counters), turn })
    }

    /// The volume.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// What is known of the file.
    pub fn admitted(&self) -> &Admitted {
        &self.admitted
    }

    /// The file itself, for the plain way.
    pub fn file(&self) -> &File {
        self.guard.ops().file()
    }

    /// The guard of the file's blocks. For requests that run while the caller does other things; others use
    /// [`prove`](Self::prove).
    pub fn guard(&self) -> &Guard<OpenFile> {
        &self.guard
    }

    /// What became of requests.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Bytes of a range that the page cache holds, in whole pages; `None`: the kernel does not tell.
    pub fn cached_bytes(&self, range: Range<u64>) -> Option<u64> {
        let told = diskside_sys::cache::residency(self.file(), range).ok()?;
        Some(told.cached * rustix::param::page_size() as u64)
    }

    /// Runs `at_volume` with the places of a range, and returns what it brings if it is the file's. It may run twice.
    ///
    /// # Errors
    /// Why the range has to be read the plain way.
    pub fn prove<T>(
        &self,
        range: Range<u64>,
        at_volume: impl FnMut(&Ticket<OpenFile>) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let _turn = self.turn.map(|turn| turn.lock().unwrap_or_else(PoisonError::into_inner));
        self.guard.prove(range, &self.counters, at_volume)
    }

    /// Fills the buffer from `offset` on and says how many bytes there were and which way they came. Fewer only at the
    /// end of the file.
    ///
    /// # Errors
    /// Those of the plain way.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<(usize, Way)> {
        let range = offset..offset.saturating_add(buffer.len() as u64);
        match self.prove(range, |ticket| read_pieces(&self.volume, ticket)) {
            Ok(bytes) => {
                buffer[..bytes.len()].copy_from_slice(&bytes);
                Ok((bytes.len(), Way::Volume))
            }
            Err(refusal) => {
                let len = read_plain(self.file(), buffer, offset)?;
                Ok((len, Way::Plain(refusal.reason)))
            }
        }
    }
}

/// By inode number; two files that share one only wait for each other.
static TURNS: [Mutex<()>; 64] = [const { Mutex::new(()) }; 64];

/// Reads the pieces of a ticket from the volume.
///
/// # Errors
/// The volume's.
pub fn read_pieces(volume: &Volume, ticket: &Ticket<OpenFile>) -> Result<Vec<u8>, Refusal> {
    let range = ticket.range();
    let mut bytes = vec![0; (range.end - range.start) as usize];
    let reads = ticket.layout().reads(range, volume.block_len());
    let started: Vec<RequestFuture> = reads
        .iter()
        .map(|read| {
            let buffer = Buffer::zeroed(read.len as usize);
            volume.submit(Request::Read { offset: read.physical, buffer })
        })
        .collect();
    for (read, future) in reads.iter().zip(started) {
        let block = block_on(future).into_read().map_err(|e| Refusal::failed("reading the volume", e))?;
        let Some(wanted) = block.get(read.wanted.clone()) else {
            return Err(Refusal::new(Reason::OutOfDevice, format!("byte {} of the volume", read.physical)));
        };
        bytes[read.at..read.at + wanted.len()].copy_from_slice(wanted);
    }
    Ok(bytes)
}

fn read_plain(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(len) => done += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Makes sure that the volume is what the file system is mounted from: by the names that both have, and by what stands
/// in the superblock.
fn check_volume(admitted: &Admitted, volume: &Volume) -> Result<(), Refusal> {
    let other = |found: String| Err(Refusal::new(Reason::OtherVolume, found));
    let mut is_named = false;
    if let Disk::Nvme(namespace) = &admitted.place.disk {
        let subsystem = volume.connection().controller().subsystem;
        if namespace.subsystem != subsystem.as_str() || namespace.nsid != volume.nsid() {
            return other(format!(
                "mounted: {}, namespace {}; connected: {}, namespace {}",
                namespace.subsystem,
                namespace.nsid,
                subsystem.as_str(),
                volume.nsid()
            ));
        }
        if let (Some(mounted), Some(connected)) = (namespace.uuid, volume.uuid()) {
            if mounted != connected {
                return other("the namespaces' UUIDs differ".into());
            }
            is_named = true;
        }
    }
    if admitted.uuid.is_none() {
        // A kernel that does not tell the file system's UUID: the namespace's has to do.
        return if is_named { Ok(()) } else { other("this kernel does not tell the file system's UUID".into()) };
    }
    let block_len = u64::from(volume.block_len());
    if !admitted.place.offset.is_multiple_of(block_len) {
        let found = format!("it begins at byte {}, the volume has blocks of {block_len}", admitted.place.offset);
        return Err(Refusal::new(Reason::Blocks, found));
    }
    let buffer = Buffer::zeroed(SUPERBLOCK_LEN);
    let read = block_on(volume.submit(Request::Read { offset: admitted.place.offset, buffer }));
    let superblock = read.into_read().map_err(|e| Refusal::failed("reading the volume's superblock", e))?;
    admitted.check_superblock(&superblock)
}

/// Since 6.13 the kernel gives files' times ticks as fine as they need to be; before, a few milliseconds.
fn clock_tick() -> Duration {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map(|number| number.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= (6, 13) { Duration::ZERO } else { CLOCK_TICK_COARSE }
}

/// Longer than any kernel's timer tick.
const CLOCK_TICK_COARSE: Duration = Duration::from_millis(20);
