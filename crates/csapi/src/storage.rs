//! Storage requests: files of exports and blocks of volumes, to device memory and back, at the server.

use crate::allocation::Allocation;
use crate::device::{Device, InUse, Opened, opened};
use crate::handle::Table;
use crate::raw::{elements, put, text};
use crate::request::{Abort, Place, patiently};
use crate::status::{
    CS_ENTITY_NOT_ON_DEVICE, CS_HANDLE_IN_USE, CS_INVALID_HANDLE, CS_NO_PERMISSIONS, CS_STATUS, CS_SUCCESS, Done,
    Failure, guard,
};
use crate::types::{
    CS_DEV_HANDLE, CS_STORAGE_BLOCK_IO, CS_STORAGE_FILE_IO, CS_STORAGE_LOAD_TYPE, CS_STORAGE_STORE_TYPE, CsBlockRange,
    CsStorageRequest,
};
use diskside::host::function::{
    COPY_LEN_MAX, COPY_SOURCES_MAX, Endpoint, EndpointKind, FunctionKind, FunctionRequest, MEMORY_GRANULARITY, Program,
    RemoteFile,
};
use diskside::wire::CopySourceEntry;
use diskside::wire::file::FileFlags;
use rustix::fs::OFlags;
use std::ffi::{OsStr, c_char, c_int, c_void};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::ptr::addr_of;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Ranges of one request.
const RANGES_MAX: usize = 65_536;
/// The most blocks of one source of a copy.
const SOURCE_BLOCKS_MAX: u64 = 1 << 16;

/// A request as it was described.
#[derive(Clone, Debug)]
pub(crate) struct DescribedStorage {
    device: usize,
    is_load: bool,
    place: Place,
    over: DescribedOver,
}

#[derive(Clone, Debug)]
enum DescribedOver {
    Blocks(Vec<CsBlockRange>),
    File { handle: usize, offset: u64, len: u32 },
}

impl DescribedStorage {
    /// # Safety
    /// The crate's contract.
    pub(crate) unsafe fn read(request: *const CsStorageRequest) -> Done<Self> {
        if request.is_null() {
            return Err(Failure::null("Req"));
        }
        // SAFETY: the caller's promise. Only what its mode has is read.
        let (mode, device) =
            unsafe { (addr_of!((*request).Mode).read_unaligned(), addr_of!((*request).DevHandle).read_unaligned()) };
        let (kind, place, over) = match mode {
            CS_STORAGE_BLOCK_IO => {
                // SAFETY: as above.
                let io = unsafe { addr_of!((*request).u.BlockIo).read_unaligned() };
                if io.StorageIndex != 0 {
                    return Err(Failure::argument(format!("StorageIndex is {}, and must be 0", io.StorageIndex)));
                }
                let count = usize::try_from(io.NumRanges).ok().filter(|count| (1..=RANGES_MAX).contains(count));
                let count =
                    count.ok_or_else(|| Failure::argument(format!("NumRanges is not from 1 to {RANGES_MAX}")))?;
                // SAFETY: as above: there are so many.
                let ranges = unsafe { elements(addr_of!((*request).u.BlockIo.Range).cast(), count) };
                (io.Type, io.DevMem, DescribedOver::Blocks(ranges))
            }
            CS_STORAGE_FILE_IO => {
                // SAFETY: as above.
                let io = unsafe { addr_of!((*request).u.FileIo).read_unaligned() };
                let handle = io.FileHandle.addr();
                (io.Type, io.DevMem, DescribedOver::File { handle, offset: io.Offset, len: io.Bytes })
            }
            other => return Err(Failure::argument(format!("Mode of a storage request is {other}"))),
        };
        let is_load = match kind {
            CS_STORAGE_LOAD_TYPE => true,
            CS_STORAGE_STORE_TYPE => false,
            other => return Err(Failure::argument(format!("Type of a storage request is {other}"))),
        };
        Ok(Self { device: device.addr(), is_load, place: place.into(), over })
    }

    /// Looks up what it names.
    pub(crate) fn resolve(&self) -> Done<Storage> {
        let opened = opened(std::ptr::without_provenance_mut(self.device))?;
        opened.device.check()?;
        let (memory, offset) = self.place.find()?;
        if memory.device.csx.name != opened.device.csx.name {
            return Err(Failure::argument("the memory is of another CSx"));
        }
        memory.device.check()?;
        let over = match &self.over {
            DescribedOver::Blocks(ranges) => {
                let mut blocks = Vec::with_capacity(ranges.len());
                let mut len = 0_u64;
                for range in ranges {
                    let block = opened.device.block_len(range.NamespaceId)?;
                    len = len.saturating_add(block * u64::from(range.NumBlocks));
                    blocks.push((*range, block));
                }
                memory.place(offset, len)?;
                if ranges.iter().any(|range| range.NumBlocks == 0) {
                    return Err(Failure::argument("a range has no blocks"));
                }
                if !offset.is_multiple_of(MEMORY_GRANULARITY) {
                    return Err(Failure::argument("blocks are copied to and from memory at multiples of 4 bytes"));
                }
                Over::Blocks(blocks)
            }
            DescribedOver::File { handle, offset: at, len } => {
                memory.place(offset, (*len).into())?;
                Over::File { file: FileOf::find(&opened, *handle, self.is_load)?, at: *at, len: *len }
            }
        };
        Ok(Storage { opened, is_load: self.is_load, memory, offset, over })
    }
}

/// A request that can be carried out.
#[derive(Debug)]
pub(crate) struct Storage {
    opened: InUse<Opened>,
    is_load: bool,
    memory: InUse<Allocation>,
    offset: u64,
    over: Over,
}

#[derive(Debug)]
enum Over {
    /// With the bytes of a block.
    Blocks(Vec<(CsBlockRange, u64)>),
    File {
        file: FileOf,
        at: u64,
        len: u32,
    },
}

impl Storage {
    pub(crate) fn csx(&self) -> &str {
        &self.opened.device.csx.name
    }

    /// Carries it out; gives the number of bytes.
    pub(crate) fn run(&self, abort: &Abort) -> Done<u64> {
        let moved = match &self.over {
            Over::Blocks(ranges) if self.is_load => self.load_blocks(ranges, abort)?,
            Over::Blocks(ranges) => self.store_blocks(ranges, abort)?,
            Over::File { file, at, len } => self.move_file(file, *at, *len, abort)?,
        };
        let counters = &self.opened.device.moved;
        let counter = if self.is_load { &counters.loaded_bytes } else { &counters.stored_bytes };
        counter.fetch_add(moved, Ordering::Relaxed);
        Ok(moved)
    }

    fn load_blocks(&self, ranges: &[(CsBlockRange, u64)], abort: &Abort) -> Done<u64> {
        let memory = self.memory.device.memory()?;
        let (mut sources, mut len, mut done) = (Vec::new(), 0, 0);
        let start = self.memory.place(self.offset, 0)?.start;
        let mut copy = |sources: &mut Vec<CopySourceEntry>, len: &mut u64| {
            if !sources.is_empty() {
                patiently(abort, || Ok(memory.copy_from_volumes(start + done, *len, sources)?))?;
                done += *len;
                sources.clear();
                *len = 0;
            }
            Done::Ok(done)
        };
        for (nsid, slba, blocks, bytes) in pieces(ranges) {
            if sources.len() == COPY_SOURCES_MAX || len + bytes > COPY_LEN_MAX {
                copy(&mut sources, &mut len)?;
            }
            sources.push(CopySourceEntry::new(nsid, slba, blocks));
            len += bytes;
        }
        copy(&mut sources, &mut len)
    }

    fn store_blocks(&self, ranges: &[(CsBlockRange, u64)], abort: &Abort) -> Done<u64> {
        let memory = self.memory.device.memory()?;
        let start = self.memory.place(self.offset, 0)?.start;
        let mut done = 0;
        for (nsid, slba, _, bytes) in pieces(ranges) {
            patiently(abort, || Ok(memory.copy_to_volume(nsid, slba, start + done, bytes as u32)?))?;
            done += bytes;
        }
        Ok(done)
    }

    fn move_file(&self, file: &FileOf, at: u64, len: u32, abort: &Abort) -> Done<u64> {
        let file = file.open(&self.opened.device, self.is_load)?;
        let len = u64::from(len);
        let len = if self.is_load { len.min(file.info().len_bytes.saturating_sub(at)) } else { len };
        if len == 0 {
            return Ok(0);
        }
        let place = self.memory.place(self.offset, len)?;
        let nsid = self.memory.device.memory()?.nsid();
        let memory = Endpoint::new(EndpointKind::Memory(nsid), place.start, len);
        let ends = [file.endpoint(at, len), memory];
        let [source, sink] = if self.is_load { ends } else { [ends[1], ends[0]] };
        let program: &Program = self.opened.device.copy_program()?;
        let mut request = FunctionRequest::new(FunctionKind::Write, program.index);
        request.program_id = program.hash;
        request.sources = vec![source];
        request.sinks = vec![sink];
        let call = || abort.call(self.opened.device.compute.call(&request));
        Ok(patiently(abort, call)?.trailer.media_written)
    }
}

/// Pieces of ranges that one copy can have: the volume, the first block, how many, and their bytes.
fn pieces(ranges: &[(CsBlockRange, u64)]) -> impl Iterator<Item = (u32, u64, u32, u64)> {
    ranges.iter().flat_map(|(range, block)| {
        let most = (COPY_LEN_MAX / block).clamp(1, SOURCE_BLOCKS_MAX);
        let (nsid, first, count) = (range.NamespaceId, range.StartLba, u64::from(range.NumBlocks));
        (0..count).step_by(most as usize).map(move |at| {
            let blocks = most.min(count - at);
            (nsid, first.saturating_add(at), blocks as u32, blocks * block)
        })
    })
}

/// A file that dsCsOpenFile gave.
#[derive(Debug)]
struct OpenFile {
    csx: String,
    file: RemoteFile,
    may_write: bool,
    device: Arc<Device>,
}

static FILES: Table<OpenFile> = Table::new();

/// A file that a request means.
#[derive(Debug)]
enum FileOf {
    /// One that is open.
    Open(Arc<OpenFile>),
    /// One that is seen in this machine, by its path from its export's name on.
    Seen(PathBuf),
}

impl FileOf {
    fn find(opened: &Opened, handle: usize, is_load: bool) -> Done<Self> {
        let no_rights = |why: &str| Failure::new(CS_NO_PERMISSIONS, why);
        if let Some(file) = FILES.get(std::ptr::without_provenance(handle)) {
            if file.csx != opened.device.csx.name {
                return Err(Failure::new(CS_ENTITY_NOT_ON_DEVICE, format!("the file is on {}", file.csx)));
            }
            if !is_load && !file.may_write {
                return Err(no_rights("the file was opened for reading"));
            }
            file.device.check()?;
            return Ok(Self::Open(file));
        }
        let bad = || Failure::new(CS_INVALID_HANDLE, format!("{handle:#x} is no file that is open"));
        let descriptor = c_int::try_from(handle).map_err(|_| bad())?;
        let link = format!("/proc/self/fd/{descriptor}");
        let path = std::fs::read_link(&link).map_err(|_| bad())?;
        // SAFETY: it was open just now; one that the caller closes meanwhile makes the question fail.
        let flags = rustix::fs::fcntl_getfl(unsafe { BorrowedFd::borrow_raw(descriptor) }).map_err(|_| bad())?;
        let mode = flags & OFlags::RWMODE;
        if mode == if is_load { OFlags::WRONLY } else { OFlags::RDONLY } {
            return Err(no_rights("the descriptor is not open for that"));
        }
        let elsewhere = || {
            let why = format!("{} is in no directory that DISKSIDE_CSX says is of this CSx (mount=)", path.display());
            Failure::new(CS_ENTITY_NOT_ON_DEVICE, why)
        };
        opened.device.export_path(&path).map(Self::Seen).ok_or_else(elsewhere)
    }

    fn open(&self, device: &Device, is_load: bool) -> Done<RemoteFile> {
        match self {
            Self::Open(open) => {
                open.file.refresh().map_err(|error| Failure::of_file(&error))?;
                Ok(open.file.clone())
            }
            Self::Seen(path) => {
                let flags = if is_load { FileFlags::READ } else { FileFlags::READ_WRITE };
                device.files.open(path.as_os_str().as_bytes(), flags).map_err(|error| Failure::of_file(&error))
            }
        }
    }
}

/// Opens a file of an export for storage requests, where this machine does not see it: its path begins with the export's name, or is
/// a URL. Not of the specification.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dsCsOpenFile(
    DevHandle: CS_DEV_HANDLE,
    Path: *const c_char,
    ForWriting: c_int,
    FileHandle: *mut *mut c_void,
) -> CS_STATUS {
    guard(|| {
        let opened = opened(DevHandle)?;
        // SAFETY: the caller keeps the crate's contract.
        let path = unsafe { text(Path, "Path")? };
        if FileHandle.is_null() {
            return Err(Failure::null("FileHandle"));
        }
        let device = &opened.device;
        device.check()?;
        let path = match crate::config::find(path)? {
            Some((csx, path)) if path.is_empty() || csx.name != device.csx.name => {
                return Err(Failure::new(CS_ENTITY_NOT_ON_DEVICE, "the URL names no file of this CSx"));
            }
            Some((_, path)) => path,
            None => OsStr::new(path.trim_start_matches('/')).as_bytes().to_vec(),
        };
        let may_write = ForWriting != 0;
        let flags = if may_write { FileFlags::READ_WRITE } else { FileFlags::READ };
        let file = device.files.open(&path, flags).map_err(|error| Failure::of_file(&error))?;
        let csx = device.csx.name.clone();
        let open = OpenFile { csx, file, may_write, device: Arc::clone(device) };
        // SAFETY: as above.
        unsafe { put(FileHandle, FILES.insert(Arc::new(open))) };
        Ok(CS_SUCCESS)
    })
}

/// Closes a file that dsCsOpenFile opened. Not of the specification.
#[unsafe(no_mangle)]
pub extern "C" fn dsCsCloseFile(FileHandle: *mut c_void) -> CS_STATUS {
    guard(|| {
        let unused = |file: &Arc<OpenFile>| match Arc::strong_count(file) {
            // The table's own, and that of this check.
            0..=2 => Ok(()),
            _ => Err(Failure::new(CS_HANDLE_IN_USE, "requests use the file: wait until they have completed")),
        };
        let closed = FILES.remove_if(FileHandle, unused).ok_or_else(|| crate::device::no_handle(FileHandle))?;
        closed.map(|_| CS_SUCCESS)
    })
}
