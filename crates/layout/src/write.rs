//! The proof that a file's blocks stay the file's own while they are *written* behind its file system's back.
//!
//! **Why it is sound.** A write lease is granted only to the one descriptor that has the file open, and while it lasts
//! nobody else can open the file, not even for reading; so nobody maps it, moves its extents, truncates it or brings its
//! pages back into the page cache. Under the lease, first all is written out; then the extents must be all there, written
//! and not shared; then the page cache is emptied and must be empty. After the volume's bytes changed it is emptied again,
//! so that the next reader gets them from the volume.
//!
//! Someone who wants the file waits until the lease is released, for as long as the kernel is patient. So the lease
//! must be kept *until nothing is written any more*: the writer hears of the wait ([`WriteTicket::when_wanted`]), stops
//! with a fence (Cancel or Revoke), and only then drops the [`WriteTicket`]. A request that takes longer than the
//! kernel's patience is not safe: each one needs a deadline well below [`WriteGuardConfig::patience`].
//!
//! As in [`guard`](crate::guard), the system calls are the [`WriteOps`]'.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use diskside_sys::cache::Residency;
use diskside_sys::extent::{ExtentFlags, Told};
use diskside_sys::lease::Lease;

use crate::guard::{AnswerBreak, FileOps};
use crate::layout::Layout;
use crate::place::Place;
use crate::reason::{Reason, Refusal};

/// What guarded writes ask of the kernel beside [`FileOps`].
pub trait WriteOps: FileOps {
    /// Lets go of the clean pages of the whole file.
    fn drop_cache(&self) -> io::Result<()>;
    /// What the page cache holds of a range.
    fn residency(&self, range: Range<u64>) -> io::Result<Residency>;
    /// Says that the file was written now: its times.
    fn touch(&self) -> io::Result<()>;
    /// Whether a write by the caller would take rights from the file (set-user-ID and others), which only the file
    /// system can do.
    fn loses_rights_when_written(&self) -> io::Result<bool>;
    /// Time that only grows.
    fn elapsed(&self) -> Duration;
    /// Waits a moment.
    fn pause(&self);
}

/// Limits and facts that guarded writes need.
#[derive(Clone, Debug)]
pub struct WriteGuardConfig {
    /// Where the file system is.
    pub place: Place,
    /// The most extents of one range.
    pub extents_max: usize,
    /// How long the kernel waits for the holder of a lease.
    pub patience: Duration,
}

/// Guards the writes to one open file. Clones are the same guard.
#[derive(Debug)]
pub struct WriteGuard<F: WriteOps>(Arc<Inner<F>>);

#[derive(Debug)]
struct Inner<F: WriteOps> {
    ops: F,
    config: WriteGuardConfig,
    /// The request that has the lease.
    held: Mutex<Option<Held>>,
}

#[derive(Default)]
struct Held {
    wanted: bool,
    when_wanted: Option<Box<dyn FnOnce() + Send>>,
}

/// A request that may write the volume, and the lease under which it does. Dropping it gives the lease up: nothing may
/// be on its way to the volume then.
#[derive(Debug)]
pub struct WriteTicket<F: WriteOps> {
    inner: Arc<Inner<F>>,
    range: Range<u64>,
    layout: Layout,
    began: Duration,
}

/// Extents that may be read in place, but not written.
const NOT_WRITABLE: [(ExtentFlags, Reason); 2] =
    [(ExtentFlags::UNWRITTEN, Reason::Unwritten), (ExtentFlags::SHARED, Reason::Shared)];
/// How often the page cache is asked to let go.
const DROPS: usize = 3;
/// How often the lease is asked for again, a moment later.
const PAUSES: usize = 3;

impl<F: WriteOps> Clone for WriteGuard<F> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<F: WriteOps> WriteGuard<F> {
    /// A guard for a file that is open for reading and writing, by this descriptor and no other.
    pub fn new(ops: F, config: WriteGuardConfig) -> Self {
        Self(Arc::new(Inner { ops, config, held: Mutex::new(None) }))
    }

    /// What it asks the kernel with.
    pub fn ops(&self) -> &F {
        &self.0.ops
    }

    /// Its settings.
    pub fn config(&self) -> &WriteGuardConfig {
        &self.0.config
    }

    /// Takes the lease and makes the range ready to be written at the volume: where it is.
    ///
    /// # Errors
    /// Why it has to be written through the file system.
    pub fn begin(&self, range: Range<u64>) -> Result<WriteTicket<F>, Refusal> {
        let inner = &self.0;
        if !inner.ops.is_ours() {
            return Err(Reason::Forked.into());
        }
        // Set before the lease is there, so that no break goes unheard.
        match &mut *inner.lock() {
            Some(_) => return Err(Refusal::new(Reason::Opened, "by another request of this handle")),
            none => *none = Some(Held::default()),
        }
        let taken = inner.take();
        // Before anything else: from here on the ticket gives it up.
        let empty = Layout { generation: 0, len: 0, range: range.clone(), runs: Vec::new() };
        let mut ticket = WriteTicket { inner: Arc::clone(inner), range, layout: empty, began: inner.ops.elapsed() };
        taken?;
        ticket.layout = inner.ready(&ticket.range)?;
        Ok(ticket)
    }

    /// For those who hear of breaks.
    pub fn answerer(&self) -> Weak<dyn AnswerBreak>
    where
        F: 'static,
    {
        let inner: Weak<Inner<F>> = Arc::downgrade(&self.0);
        inner
    }
}

impl<F: WriteOps> WriteTicket<F> {
    /// Where the range is. It has no generation: the lease is for one request.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Calls `tell` as soon as someone else wants the file; now, if someone does already. It must not block.
    pub fn when_wanted(&self, tell: impl FnOnce() + Send + 'static) {
        let mut held = self.inner.lock();
        match &mut *held {
            Some(held) if !held.wanted => held.when_wanted = Some(Box::new(tell)),
            _ => {
                drop(held);
                tell();
            }
        }
    }

    /// How much longer the request may take: the rest of half of the kernel's patience.
    pub fn time_left(&self) -> Duration {
        (self.inner.config.patience / 2).saturating_sub(self.age())
    }

    /// How long the request may have been written until it is certain that the kernel gave the file to someone else.
    pub fn time_held(&self) -> Duration {
        self.inner.config.patience.saturating_sub(self.age())
    }

    fn age(&self) -> Duration {
        self.inner.ops.elapsed().saturating_sub(self.began)
    }

    /// The volume has been written, and nothing is on its way to it any more: readers of the file get what the volume
    /// has, and the file's times say that it was written. Also for a request that failed half way.
    ///
    /// # Errors
    /// It is not certain that the file's readers see what was written.
    pub fn finish(self) -> Result<(), Refusal> {
        let (inner, layout) = (&self.inner, &self.layout);
        if !inner.ops.is_ours() {
            return Err(Reason::Forked.into());
        }
        let touched = inner.ops.touch().map_err(|e| Refusal::failed("setting the file's times", e));
        inner.empty_cache(&self.range)?;
        touched?;
        let now = inner.layout_of(&self.range, false)?;
        if now.runs != layout.runs {
            return Err(Reason::Remapped.into());
        }
        // Someone may wait for the file by now. Until the kernel's patience was over it was ours all the same.
        match inner.ops.lease().map_err(|e| Refusal::failed("F_GETLEASE", e))? {
            Some(Lease::Write) => Ok(()),
            _ if self.age() < inner.config.patience => Ok(()),
            _ => Err(Reason::LeaseBroken.into()),
        }
    }
}

impl<F: WriteOps> Drop for WriteTicket<F> {
    fn drop(&mut self) {
        if self.inner.ops.is_ours() {
            // It fails only for a descriptor that is closed, and then the lease is gone too.
            let _ = self.inner.ops.release_lease();
        }
        self.inner.lock().take();
    }
}

impl<F: WriteOps> Inner<F> {
    fn lock(&self) -> MutexGuard<'_, Option<Held>> {
        // A panic elsewhere leaves whole values here.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Result<(), Refusal> {
        let mut taken = self.ops.take_lease(Lease::Write);
        for _ in 0..PAUSES {
            if !taken.as_ref().is_err_and(|error| error.raw_os_error() == Some(EAGAIN)) {
                break;
            }
            // Someone who has just closed the file may still count: above all a child of this process between `fork`
            // and `exec`, which has all its descriptors.
            self.ops.pause();
            taken = self.ops.take_lease(Lease::Write);
        }
        taken.map_err(|error| match error.raw_os_error() {
            Some(EAGAIN | EBUSY) => Reason::Opened.into(),
            Some(EACCES | EPERM) => Reason::NotOwner.into(),
            Some(EINVAL | EOPNOTSUPP | ENOLCK) => Refusal { source: Some(error), ..Reason::NoLeases.into() },
            _ => Refusal::failed("F_SETLEASE", error),
        })
    }

    /// What has to hold under the lease before anything is written.
    fn ready(&self, range: &Range<u64>) -> Result<Layout, Refusal> {
        let len = self.ops.stamp().map_err(|e| Refusal::failed("statx", e))?.len;
        if range.is_empty() || range.end > len {
            let found = format!("bytes {}..{} of a file of {len}", range.start, range.end);
            return Err(Refusal::new(Reason::Range, found));
        }
        if self.ops.loses_rights_when_written().map_err(|e| Refusal::failed("statx", e))? {
            return Err(Reason::Rights.into());
        }
        let layout = self.layout_of(range, true)?;
        self.empty_cache(range)?;
        // Last: taking the lease said nothing, a break may have been pending.
        match self.ops.lease().map_err(|e| Refusal::failed("F_GETLEASE", e))? {
            Some(Lease::Write) => Ok(layout),
            _ => Err(Reason::LeaseBroken.into()),
        }
    }

    /// The range's places. All of it has one, which holds data and is the file's alone.
    fn layout_of(&self, range: &Range<u64>, sync: bool) -> Result<Layout, Refusal> {
        let mut extents = Vec::new();
        let told = self.ops.extents(range.clone(), sync, self.config.extents_max, &mut extents);
        if told.map_err(|e| Refusal::failed("FS_IOC_FIEMAP", e))? == Told::Part {
            return Err(Reason::TooManyExtents.into());
        }
        for extent in &extents {
            if let Some((_, reason)) = NOT_WRITABLE.iter().find(|(flag, _)| extent.flags.contains(*flag)) {
                return Err(Refusal::new(*reason, format!("at byte {}", extent.logical)));
            }
        }
        // Not further than what was asked for, so that nothing else can be written by it.
        let mut layout = Layout::new(0, range.end, range.clone(), &extents, &self.config.place)?;
        if let Some(piece) = layout.pieces(range.clone()).iter().find(|piece| piece.physical.is_none()) {
            return Err(Refusal::new(Reason::Unwritten, format!("a hole at byte {}", piece.logical)));
        }
        layout.cut_before(range.start);
        Ok(layout)
    }

    fn empty_cache(&self, range: &Range<u64>) -> Result<(), Refusal> {
        let mut found = String::new();
        for _ in 0..DROPS {
            self.ops.drop_cache().map_err(|e| Refusal::failed("posix_fadvise", e))?;
            let left = self.ops.residency(range.clone()).map_err(|e| Refusal::failed("cachestat", e))?;
            if left.cached == 0 && left.unwritten.unwrap_or(0) == 0 {
                return Ok(());
            }
            found = format!("{} pages", left.cached);
        }
        Err(Refusal::new(Reason::Cached, found))
    }
}

impl<F: WriteOps> AnswerBreak for Inner<F> {
    /// The lease is not given up here: first the request has to stop.
    fn answer_break(&self) {
        if matches!(self.ops.lease(), Ok(Some(Lease::Write))) {
            return;
        }
        let tell = self.lock().as_mut().and_then(|held| {
            held.wanted = true;
            held.when_wanted.take()
        });
        if let Some(tell) = tell {
            tell();
        }
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("wanted", &self.wanted).finish_non_exhaustive()
    }
}

// Linux's numbers, the same on all architectures that we run on.
const EPERM: i32 = 1;
const EAGAIN: i32 = 11;
const EACCES: i32 = 13;
const EBUSY: i32 = 16;
const EINVAL: i32 = 22;
const ENOLCK: i32 = 37;
const EOPNOTSUPP: i32 = 95;
