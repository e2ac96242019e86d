//! The proof that a file's blocks stay the file's own while they are read behind its file system's back.
//!
//! **Why it is sound.** While a read lease is in force nobody has the file open for writing, or mapped writable, or is
//! in `truncate`: a process that wants to waits, and from that moment on the lease counts as broken. All that moves the
//! data of a file on ext4 and XFS (write, truncate, fallocate, clone onto it, defragmentation) needs the file open for
//! writing. Pages written before are flushed *after* the lease is taken, so no write-back and no allocation come later.
//! Unlinking frees no block while we have the file open. So if the lease is in force at [`Guard::finish`], in the same
//! period as at [`Guard::begin`], the blocks held the file's bytes all the time.
//!
//! XFS has one exception: deduplication moves extents through a descriptor that is open for reading. So on XFS the
//! extents are asked for once more at the end, *before* the lease. The remaining risk is a deduplication there and back
//! within one request, which takes two deliberate calls by the file's owner or root.
//!
//! **A file that is open for writing by the very descriptor that is read.** The kernel grants no read lease then, but a
//! write lease: nobody else has the file open, and nobody can open it. Only the holder of this descriptor is left: the
//! program itself. So each request compares extents and times before and after as well, which shows what the program
//! did to its own file meanwhile, and a lease is for one request. Nothing can be written so: see
//! [`write`](crate::write).
//!
//! A *period* is from one lease to its end; its number is the [generation](Layout::generation). A lease that was broken
//! is given up at once, also while requests are in flight: they notice at their end. (For writes that would be wrong;
//! there the requests have to end first.)
//!
//! This file makes no system call: the [`FileOps`] do, so that a test can put any other process's step between any two.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use diskside_sys::extent::{Extent, ExtentFlags, Told};
use diskside_sys::lease::Lease;

use crate::layout::{Layout, Piece};
use crate::place::Place;
use crate::reason::{Counters, Reason, Refusal};

/// What the guard asks of the kernel about one open file.
pub trait FileOps: Send + Sync {
    /// Asks for a lease. Success does not mean that it is in force.
    fn take_lease(&self, lease: Lease) -> io::Result<()>;
    /// The lease that is in force.
    fn lease(&self) -> io::Result<Option<Lease>>;
    /// Gives the lease up.
    fn release_lease(&self) -> io::Result<()>;
    /// Writes out dirty pages of a range and waits until the device has them.
    fn flush(&self, range: Range<u64>) -> io::Result<()>;
    /// Appends the extents that touch a range; with `sync` all dirty pages of the file are written out first.
    fn extents(&self, range: Range<u64>, sync: bool, extents_max: usize, found: &mut Vec<Extent>) -> io::Result<Told>;
    /// Length and times.
    fn stamp(&self) -> io::Result<Stamp>;
    /// The time, by the clock that files' times are from: since 1970.
    fn now(&self) -> Duration;
    /// Whether this is the process that opened the file.
    fn is_ours(&self) -> bool;
}

/// What tells that a file changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Length in bytes.
    pub len: u64,
    /// Space that it takes, in sectors.
    pub sectors: u64,
    /// Time of the last change of the bytes, since 1970.
    pub mtime: Duration,
    /// Time of the last change of anything, since 1970.
    pub ctime: Duration,
}

/// How sure a request has to be of the blocks that it reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Proof {
    /// A lease for each request. Others who write wait for nothing but the kernel.
    Request,
    /// A lease that is kept until someone wants to write, and all extents remembered: for files that rarely change.
    #[default]
    Epoch,
    /// No lease: extents and times before and after. This *detects* ordinary changes and proves nothing: a
    /// defragmentation there and back within one request goes unnoticed. For files that are always open for writing.
    Detect,
}

/// Limits and facts that the guard needs.
#[derive(Clone, Debug)]
pub struct GuardConfig {
    /// How sure to be.
    pub proof: Proof,
    /// Whether the descriptor is the caller's own, and open for writing.
    pub own_writer: bool,
    /// Where the file system is.
    pub place: Place,
    /// Whether extents can move under a lease (XFS).
    pub moves_under_lease: bool,
    /// The most extents of one layout.
    pub extents_max: usize,
    /// How coarse the clock of files' times may be: a file that changed more recently may change unnoticed.
    pub clock_tick: Duration,
}

/// Guards the reads of one open file. Clones are the same guard.
#[derive(Debug)]
pub struct Guard<F: FileOps>(Arc<Inner<F>>);

#[derive(Debug)]
struct Inner<F: FileOps> {
    ops: F,
    config: GuardConfig,
    period: Mutex<Option<Period>>,
}

/// A lease and what is known under it.
#[derive(Debug)]
struct Period {
    generation: u64,
    /// Length of the file.
    len: u64,
    /// All of the file, when the period is to last and there are not too many extents.
    layout: Option<Arc<Layout>>,
    in_flight: usize,
}

/// A request that may read the volume. Its result counts only after [`Guard::finish`].
#[derive(Debug)]
pub struct Ticket<F: FileOps> {
    inner: Arc<Inner<F>>,
    range: Range<u64>,
    /// Its generation is 0 without a lease.
    layout: Arc<Layout>,
    /// Where the lease does not say it all: what the file looked like.
    stamp: Option<Stamp>,
}

impl<F: FileOps> Clone for Guard<F> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<F: FileOps> Guard<F> {
    /// A guard for an open file, without a lease as yet.
    pub fn new(ops: F, config: GuardConfig) -> Self {
        Self(Arc::new(Inner { ops, config, period: Mutex::new(None) }))
    }

    /// What it asks the kernel with.
    pub fn ops(&self) -> &F {
        &self.0.ops
    }

    /// Its settings.
    pub fn config(&self) -> &GuardConfig {
        &self.0.config
    }

    /// The layout of a range, flushed and under a lease: where to read.
    ///
    /// # Errors
    /// Why the range has to be read the plain way.
    pub fn begin(&self, range: Range<u64>) -> Result<Ticket<F>, Refusal> {
        let inner = &self.0;
        if !inner.ops.is_ours() {
            return Err(Reason::Forked.into());
        }
        if inner.config.proof == Proof::Detect {
            let (layout, stamp) = inner.to_compare(0, &range)?;
            return Ok(Ticket { inner: Arc::clone(inner), range, layout, stamp: Some(stamp) });
        }
        let mut period = inner.lock();
        if let Some(current) = &mut *period
            && let Some(layout) = current.layout.clone()
        {
            // The record is enough to ask the volume. Only the end can tell whether it still holds.
            current.in_flight += 1;
            return Ok(Ticket { inner: Arc::clone(inner), range, layout, stamp: None });
        }
        if period.is_some() && inner.held()? != Some(inner.lease()) {
            // Broken, and nobody has told us yet.
            inner.end(&mut period);
        }
        let current = match &mut *period {
            Some(current) => current,
            none => none.insert(inner.start()?),
        };
        let found = inner.ticket(current, range);
        match found {
            Ok(ticket) => {
                current.in_flight += 1;
                Ok(ticket)
            }
            Err(refusal) => {
                // The layout in memory is wrong, or nobody needs the lease any more.
                let over = matches!(refusal.reason, Reason::LeaseBroken | Reason::Remapped);
                if over || current.in_flight == 0 && current.layout.is_none() {
                    inner.end(&mut period);
                }
                Err(refusal)
            }
        }
    }

    /// Whether what was read between [`begin`](Self::begin) and now is the file's. If not, nothing of it may be used or
    /// shown: it may be another file's.
    ///
    /// # Errors
    /// What happened meanwhile.
    pub fn finish(&self, ticket: Ticket<F>) -> Result<(), Refusal> {
        debug_assert!(Arc::ptr_eq(&self.0, &ticket.inner), "a ticket of another file");
        ticket.check()
    }

    /// Runs `at_volume` with a layout, and returns what it brings if that is the file's. If not, what it brought is
    /// dropped unseen and it runs once more. Counts what became of it.
    ///
    /// # Errors
    /// Why the range has to be read the plain way: what [`begin`](Self::begin) and [`finish`](Self::finish) say, or
    /// `at_volume` itself.
    pub fn prove<T>(
        &self,
        range: Range<u64>,
        counters: &Counters,
        mut at_volume: impl FnMut(&Ticket<F>) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let mut attempt = || {
            let ticket = self.begin(range.clone())?;
            let brought = at_volume(&ticket)?;
            self.finish(ticket).map(|()| brought)
        };
        let mut outcome = attempt();
        if outcome.as_ref().is_err_and(|refusal| refusal.reason.passes()) {
            counters.note_retry();
            outcome = attempt();
        }
        match &outcome {
            Ok(_) => counters.note_at_volume(),
            Err(refusal) => counters.note_plain(refusal.reason),
        }
        outcome
    }

    /// For those who hear of breaks.
    pub fn answerer(&self) -> Weak<dyn AnswerBreak>
    where
        F: 'static,
    {
        let inner: Weak<Inner<F>> = Arc::downgrade(&self.0);
        inner
    }

    /// Gives the lease up; requests in flight will fail.
    pub fn close(&self) {
        self.0.end(&mut self.0.lock());
    }

    /// The generation of the present period, if there is one.
    pub fn generation(&self) -> Option<u64> {
        self.0.lock().as_ref().map(|period| period.generation)
    }
}

impl<F: FileOps> Ticket<F> {
    /// Where the range is. Names its generation.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// What was asked for, cut to the file.
    pub fn range(&self) -> Range<u64> {
        self.range.start..self.range.end.min(self.layout.len).max(self.range.start)
    }

    /// What the range consists of.
    pub fn pieces(&self) -> Vec<Piece> {
        self.layout.pieces(self.range.clone())
    }

    fn check(&self) -> Result<(), Refusal> {
        let inner = &self.inner;
        if !inner.ops.is_ours() {
            return Err(Reason::Forked.into());
        }
        if let Some(before) = self.stamp {
            // The times are set before or together with the extents: they are looked at last.
            let same_places = inner.still_there(&self.layout, &self.range, true)?;
            let after = inner.ops.stamp().map_err(|e| Refusal::failed("statx", e))?;
            if !same_places || before != after {
                return Err(Reason::Changed.into());
            }
        }
        if self.layout.generation == 0 {
            return Ok(());
        }
        let mut period = inner.lock();
        if period.as_ref().is_none_or(|period| period.generation != self.layout.generation) {
            return Err(Reason::LeaseBroken.into());
        }
        let same_places = !inner.config.moves_under_lease || inner.still_there(&self.layout, &self.range, false)?;
        // Last: it vouches for the answer before it as well.
        let reason = match inner.held()? {
            Some(lease) if lease == inner.lease() && same_places => return Ok(()),
            Some(lease) if lease == inner.lease() => Reason::Remapped,
            _ => Reason::LeaseBroken,
        };
        inner.end(&mut period);
        Err(reason.into())
    }
}

impl<F: FileOps> Drop for Ticket<F> {
    fn drop(&mut self) {
        if self.layout.generation == 0 {
            return;
        }
        let mut period = self.inner.lock();
        let Some(current) = period.as_mut().filter(|p| p.generation == self.layout.generation) else { return };
        current.in_flight -= 1;
        let lasts = self.inner.lasts();
        if current.in_flight == 0 && !lasts {
            self.inner.end(&mut period);
        }
    }
}

impl<F: FileOps> Inner<F> {
    fn lock(&self) -> MutexGuard<'_, Option<Period>> {
        // A panic elsewhere leaves whole values here.
        self.period.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lease that keeps everybody else from changing the file.
    fn lease(&self) -> Lease {
        if self.config.own_writer { Lease::Write } else { Lease::Read }
    }

    /// Whether a lease is kept until someone else wants the file. What the program itself writes meanwhile breaks none.
    fn lasts(&self) -> bool {
        self.config.proof == Proof::Epoch && !self.config.own_writer
    }

    fn held(&self) -> Result<Option<Lease>, Refusal> {
        self.ops.lease().map_err(|e| Refusal::failed("F_GETLEASE", e))
    }

    /// Takes a lease, flushes what it is to vouch for, and makes sure of it.
    fn start(&self) -> Result<Period, Refusal> {
        self.take()?;
        let started = self.learn();
        if started.is_err() {
            // The first failure is what matters.
            let _ = self.ops.release_lease();
        }
        started
    }

    fn take(&self) -> Result<(), Refusal> {
        let mut taken = self.ops.take_lease(self.lease());
        if taken.as_ref().is_err_and(|error| error.raw_os_error() == Some(EAGAIN)) {
            // A writer that has just closed the file may still count.
            taken = self.ops.take_lease(self.lease());
        }
        taken.map_err(|error| match error.raw_os_error() {
            Some(EAGAIN) if self.config.own_writer => Refusal::new(Reason::Writer, OTHERS_TOO),
            Some(EAGAIN) => Reason::Writer.into(),
            Some(EBUSY) => Refusal::new(Reason::NoLeases, "the program has a lease on this descriptor itself"),
            Some(EACCES | EPERM) => Reason::NotOwner.into(),
            Some(EINVAL | EOPNOTSUPP | ENOLCK) => Refusal { source: Some(error), ..Reason::NoLeases.into() },
            _ => Refusal::failed("F_SETLEASE", error),
        })
    }

    fn learn(&self) -> Result<Period, Refusal> {
        static GENERATION: AtomicU64 = AtomicU64::new(1);
        let generation = GENERATION.fetch_add(1, Ordering::Relaxed);
        let len = self.ops.stamp().map_err(|e| Refusal::failed("statx", e))?.len;
        let layout = if self.lasts() {
            let mut extents = Vec::new();
            match self.extents(0..len, true, &mut extents)? {
                Told::All => Some(Arc::new(Layout::new(generation, len, 0..len, &extents, &self.config.place)?)),
                // Each request asks for its own range then.
                Told::Part => None,
            }
        } else {
            None
        };
        // Taking it said nothing: a break may have been pending.
        if self.held()? != Some(self.lease()) {
            return Err(Reason::LeaseBroken.into());
        }
        Ok(Period { generation, len, layout, in_flight: 0 })
    }

    fn end(&self, period: &mut Option<Period>) {
        if period.take().is_some() && self.ops.is_ours() {
            // It fails only for a descriptor that is closed, and then the lease is gone too.
            let _ = self.ops.release_lease();
        }
    }

    /// A request under the present lease.
    fn ticket(self: &Arc<Self>, period: &Period, range: Range<u64>) -> Result<Ticket<F>, Refusal> {
        if !self.config.own_writer {
            let layout = self.look(period, &range)?;
            return Ok(Ticket { inner: Arc::clone(self), range, layout, stamp: None });
        }
        let (layout, stamp) = self.to_compare(period.generation, &range)?;
        if self.held()? != Some(self.lease()) {
            return Err(Reason::LeaseBroken.into());
        }
        Ok(Ticket { inner: Arc::clone(self), range, layout, stamp: Some(stamp) })
    }

    /// The layout for a range under the present lease, which is known to be in force afterwards.
    fn look(&self, period: &Period, range: &Range<u64>) -> Result<Arc<Layout>, Refusal> {
        let layout = match &period.layout {
            Some(layout) if self.config.moves_under_lease && !self.still_there(layout, range, false)? => {
                return Err(Reason::Remapped.into());
            }
            Some(layout) => Arc::clone(layout),
            None => Arc::new(self.layout_of(period.generation, period.len, range.clone())?),
        };
        if self.held()? != Some(self.lease()) {
            return Err(Reason::LeaseBroken.into());
        }
        Ok(layout)
    }

    fn layout_of(&self, generation: u64, len: u64, range: Range<u64>) -> Result<Layout, Refusal> {
        let range = range.start..range.end.min(len).max(range.start);
        self.ops.flush(range.clone()).map_err(|e| Refusal::failed("sync_file_range", e))?;
        let mut extents = Vec::new();
        let mut told = self.extents(range.clone(), false, &mut extents)?;
        if extents.iter().any(|extent| extent.flags.contains(ExtentFlags::DELALLOC)) {
            extents.clear();
            told = self.extents(range.clone(), true, &mut extents)?;
        }
        if told == Told::Part {
            return Err(Reason::TooManyExtents.into());
        }
        Layout::new(generation, len, range, &extents, &self.config.place)
    }

    fn extents(&self, range: Range<u64>, sync: bool, found: &mut Vec<Extent>) -> Result<Told, Refusal> {
        self.ops.extents(range, sync, self.config.extents_max, found).map_err(|e| Refusal::failed("FS_IOC_FIEMAP", e))
    }

    /// Whether a range still is where the layout says.
    fn still_there(&self, layout: &Layout, range: &Range<u64>, sync: bool) -> Result<bool, Refusal> {
        let range = range.start..range.end.min(layout.len).max(range.start);
        let mut extents = Vec::new();
        if self.extents(range.clone(), sync, &mut extents)? == Told::Part {
            return Ok(false);
        }
        let now = Layout::new(layout.generation, layout.len, range.clone(), &extents, &self.config.place);
        Ok(now.is_ok_and(|now| now.pieces(range.clone()) == layout.pieces(range)))
    }

    /// Where a range is and what the file looks like, to be compared at the end of a request.
    fn to_compare(&self, generation: u64, range: &Range<u64>) -> Result<(Arc<Layout>, Stamp), Refusal> {
        // Delayed blocks get their place now, or the file would seem to grow while it is read.
        self.ops.flush(0..i64::MAX as u64).map_err(|e| Refusal::failed("sync_file_range", e))?;
        // Then the times: what is written later moves them, what was written before is flushed with the extents.
        let stamp = self.ops.stamp().map_err(|e| Refusal::failed("statx", e))?;
        let mut extents = Vec::new();
        let told = self.extents(range.clone(), true, &mut extents)?;
        if told == Told::Part {
            return Err(Reason::TooManyExtents.into());
        }
        if self.ops.now().saturating_sub(stamp.ctime) < self.config.clock_tick {
            return Err(Reason::TooFresh.into());
        }
        let known = range.start..range.end.min(stamp.len).max(range.start);
        let layout = Layout::new(generation, stamp.len, known, &extents, &self.config.place)?;
        Ok((Arc::new(layout), stamp))
    }
}

/// Looks whether a lease is wanted by someone else, and gives it up then.
pub trait AnswerBreak: Send + Sync {
    /// Does so.
    fn answer_break(&self);
}

impl<F: FileOps> AnswerBreak for Inner<F> {
    fn answer_break(&self) {
        let mut period = self.lock();
        if period.is_some() && !matches!(self.ops.lease(), Ok(Some(lease)) if lease == self.lease()) {
            self.end(&mut period);
        }
    }
}

impl<F: FileOps> Drop for Inner<F> {
    fn drop(&mut self) {
        // Closing the descriptor would not do: a forked child may have inherited it, and the lease with it.
        let mut period = self.period.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        self.end(&mut period);
    }
}

/// The program's own descriptor is for writing, and others have the file open as well.
const OTHERS_TOO: &str = "by the descriptor that is read, and it is open a second time; close the other one";

// Linux's numbers, the same on all architectures that we run on.
const EPERM: i32 = 1;
const EAGAIN: i32 = 11;
const EACCES: i32 = 13;
const EBUSY: i32 = 16;
const EINVAL: i32 = 22;
const ENOLCK: i32 = 37;
const EOPNOTSUPP: i32 = 95;
