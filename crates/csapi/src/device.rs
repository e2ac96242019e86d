//! A CSx in use: the connection to its server, and what was learnt of it.

use crate::config::Csx;
use crate::handle::Table;
use crate::status::{CS_DEVICE_NOT_AVAILABLE, CS_ENXIO, CS_INVALID_HANDLE, Done, Failure};
use crate::types::CS_DEV_HANDLE;
use diskside::host::function::{Compute, DeviceMemory, Files, Program};
use diskside::host::{ConnectOptions, ConnectionState};
use diskside::session::{Session, SessionOptions};
use std::collections::HashMap;
use std::ffi::c_void;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

/// A server that is connected.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) csx: Csx,
    pub(crate) session: Session,
    pub(crate) compute: Compute,
    pub(crate) files: Files,
    memory: Option<DeviceMemory>,
    /// Held while memory is allocated.
    allocating: Mutex<()>,
    /// Bytes of a block, by volume.
    blocks: Mutex<HashMap<u32, u64>>,
    /// Copies bytes at the server.
    copy: OnceLock<Program>,
    pub(crate) moved: Moved,
}

/// What this process did with device memory.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    pub(crate) allocations: AtomicU64,
    pub(crate) frees: AtomicU64,
    pub(crate) to_host_bytes: AtomicU64,
    pub(crate) from_host_bytes: AtomicU64,
    pub(crate) stored_bytes: AtomicU64,
    pub(crate) loaded_bytes: AtomicU64,
}

/// A handle of a CSx, or of its CSE.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) device: Arc<Device>,
    pub(crate) is_cse: bool,
    /// Requests that were begun with it, and have not completed.
    pub(crate) uses: AtomicUsize,
}

/// What callers have opened.
pub(crate) static OPENED: Table<Opened> = Table::new();

/// One use of something that is counted; over when it is dropped.
#[derive(Debug)]
pub(crate) struct InUse<T: Counted>(pub(crate) Arc<T>);

/// Something whose uses are counted.
pub(crate) trait Counted {
    fn uses(&self) -> &AtomicUsize;
}

impl Counted for Opened {
    fn uses(&self) -> &AtomicUsize {
        &self.uses
    }
}

impl<T: Counted> InUse<T> {
    pub(crate) fn new(counted: &Arc<T>) -> Self {
        counted.uses().fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(counted))
    }
}

impl<T: Counted> Drop for InUse<T> {
    fn drop(&mut self) {
        self.0.uses().fetch_sub(1, Ordering::SeqCst);
    }
}

impl<T: Counted> std::ops::Deref for InUse<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// The CSx or CSE of a handle.
pub(crate) fn opened(handle: CS_DEV_HANDLE) -> Done<InUse<Opened>> {
    OPENED.with(handle, InUse::new).ok_or_else(|| no_handle(handle))
}

pub(crate) fn no_handle(handle: *const c_void) -> Failure {
    let number = handle.addr();
    Failure::new(CS_INVALID_HANDLE, format!("{number:#x} is no handle of this kind, or was closed"))
}

impl Device {
    /// Connects, or takes the connection that is there.
    pub(crate) fn get(csx: &Csx) -> Done<Arc<Self>> {
        static DEVICES: Mutex<Option<HashMap<String, Weak<Device>>>> = Mutex::new(None);
        let devices = || DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        let known = devices().get_or_insert_default().get(&csx.name).and_then(Weak::upgrade);
        if let Some(device) = known.filter(|device| device.is_up()) {
            return Ok(device);
        }
        let device = Arc::new(Self::connect(csx)?);
        let mut devices = devices();
        let devices = devices.get_or_insert_default();
        devices.retain(|_, device| device.strong_count() > 0);
        devices.insert(csx.name.clone(), Arc::downgrade(&device));
        Ok(device)
    }

    fn connect(csx: &Csx) -> Done<Self> {
        // Memory range sets and programs go with the connection: memory that was allocated before it was lost may be
        // another's behind it. So it is not made again.
        let connect = ConnectOptions { loss_timeout: Duration::ZERO, ..ConnectOptions::default() };
        let session = Session::new(SessionOptions { connect, cache_len_bytes: 0, ..SessionOptions::default() });
        let compute = session.compute(&csx.url)?;
        let memory = DeviceMemory::new(&compute)?;
        Ok(Self {
            csx: csx.clone(),
            session,
            files: Files::of(&compute),
            compute,
            memory,
            allocating: Mutex::default(),
            blocks: Mutex::default(),
            copy: OnceLock::new(),
            moved: Moved::default(),
        })
    }

    /// Whether its server can be reached, as far as is known.
    pub(crate) fn is_up(&self) -> bool {
        self.compute.connection().state() == ConnectionState::Up
    }

    /// An error unless its server can be reached.
    pub(crate) fn check(&self) -> Done<()> {
        if self.is_up() {
            return Ok(());
        }
        let why = self.compute.connection().last_problem().unwrap_or_else(|| "the connection was lost".into());
        let name = &self.csx.name;
        Err(Failure::new(CS_DEVICE_NOT_AVAILABLE, format!("{name}: {why}; close it and open it again")))
    }

    /// Its memory.
    pub(crate) fn memory(&self) -> Done<&DeviceMemory> {
        let name = &self.csx.name;
        let why = || format!("{name}: this host has no device memory there: compute.memory, or a grant, gives it some");
        self.memory.as_ref().ok_or_else(|| Failure::new(CS_ENXIO, why()))
    }

    /// The part of its memory that is allocated from.
    pub(crate) fn window(&self) -> Range<u64> {
        let len = self.memory.as_ref().map_or(0, DeviceMemory::len_bytes);
        self.csx.memory.as_ref().map_or(0..len, |range| range.start.min(len)..range.end.min(len))
    }

    pub(crate) fn allocating(&self) -> MutexGuard<'_, ()> {
        self.allocating.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of a volume's block.
    pub(crate) fn block_len(&self, nsid: u32) -> Done<u64> {
        let blocks = || self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(len) = blocks().get(&nsid) {
            return Ok(*len);
        }
        let len = u64::from(self.compute.connection().volume(nsid)?.block_len());
        blocks().insert(nsid, len);
        Ok(len)
    }

    /// The program that copies bytes at the server.
    pub(crate) fn copy_program(&self) -> Done<&Program> {
        if let Some(program) = self.copy.get() {
            return Ok(program);
        }
        let copy = diskside::library::shipped().find(|shipped| shipped.name == "copy");
        let program = self.compute.load(copy.expect("it is shipped").object)?;
        Ok(self.copy.get_or_init(|| program))
    }

    /// The path in an export that a file of this machine is seen at.
    pub(crate) fn export_path(&self, path: &Path) -> Option<PathBuf> {
        self.csx.export_path(path)
    }
}
