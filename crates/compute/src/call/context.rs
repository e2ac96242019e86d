//! The context of a call, and the interface of those who hear of its bytes and its end.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use diskside_export::{FileError, FileSession};
use diskside_nvme::Status;
use diskside_nvme::controller::{HostReservations, ReservedUse};
use diskside_rights::{Access, HostRights, MemoryRight};
use diskside_sbpf::machine::CancelToken;
use diskside_volume::Volume;
use diskside_volume::stats::AccessCounters;
use diskside_wire::function::{Class, Outcome, TraceContext, Trailer};

use crate::call::answer::{Piece, Problem};
use crate::call::runs::Runs;
use crate::call::spans;
use crate::endpoint::layouts::{Layout, LayoutReader};
use crate::environment::Environment;
use crate::host::{Host, SharedStates};
use crate::program::loaded::LoadedProgram;
use crate::program::programs::ActiveProgram;
use crate::schedule::permits::Turn;
use crate::schedule::pool::{Work, WorkClass};
use crate::schedule::quota::{Holding, NoRoom};
use crate::schedule::seat::Seat;
use crate::standard::Standard;
use crate::statistics::counters::{FunctionId, Statistics};
use crate::watch::ProgramEvent;

/// What all calls of a controller work with.
#[derive(Debug)]
pub(crate) struct CallContext {
    pub(crate) host: Arc<Host>,
    pub(crate) environment: Arc<Environment>,
    /// What the host may use.
    pub(crate) rights: HostRights,
    /// The volumes from which reservations of other hosts keep it.
    pub(crate) reservations: HostReservations,
    /// The files that the controller opened.
    pub(crate) files: FileSession,
    /// All calls of the host.
    pub(crate) calls: Arc<AccessCounters>,
}

impl CallContext {
    /// The volume with this number, if the host may use it so. One that it may not even read is not there.
    pub(crate) fn volume(&self, nsid: u32, access: Access) -> Result<Arc<Volume>, Problem> {
        let found = self.environment.volumes.find(nsid);
        let found = found.map(|volume| (self.right_to(&volume, access), volume));
        let (granted, volume) = found.filter(|(granted, _)| *granted > Access::None).ok_or_else(|| {
            Problem::new(Status::NAMESPACE_NOT_REACHABLE.dnr(), format!("there is no volume with namespace ID {nsid}"))
        })?;
        if access == Access::Write && volume.read_only {
            let told = format!("volume {} is read-only; serve it with `,rw`", volume.name);
            return Err(Problem::new(Status::NAMESPACE_WRITE_PROTECTED.dnr(), told));
        }
        if granted < access {
            let told = format!("volume {} is read-only to this host", volume.name);
            return Err(Problem::new(Status::NAMESPACE_WRITE_PROTECTED.dnr(), told));
        }
        match self.reserved(&volume, access) {
            None => Ok(volume),
            Some(told) => Err(Problem::new(Status::RESERVATION_CONFLICT.dnr(), told)),
        }
    }

    /// Why a reservation keeps the host from using a volume so, if one does now.
    pub(crate) fn reserved(&self, volume: &Volume, wanted: Access) -> Option<String> {
        let (what, to_do) = match wanted {
            Access::Write => (ReservedUse::Write, "writing"),
            Access::Read | Access::None => (ReservedUse::Read, "reading"),
        };
        let name = &volume.name;
        let told = || format!("a reservation of another host keeps this one from {to_do} volume {name}");
        self.reservations.exclude(volume.nsid, what).then(told)
    }

    /// Changes when the host may have lost something that it may use.
    pub(crate) fn rights_version(&self) -> u64 {
        // Both only rise.
        self.rights.version().wrapping_add(self.reservations.version())
    }

    /// How the host may use a volume, of which it wants this: it is noted if it may not.
    pub(crate) fn right_to(&self, volume: &Volume, wanted: Access) -> Access {
        let granted = self.rights.volume(&volume.name);
        if granted < wanted {
            let to_do = if wanted == Access::Write { "write" } else { "read" };
            self.host.quota().deny(format_args!("to {to_do} volume {}", volume.name));
        }
        granted
    }

    /// The program at an index, to be run.
    pub(crate) fn program(&self, pind: u16) -> Result<ActiveProgram, Status> {
        let active = self.environment.programs.active(&self.host.nqn, pind)?;
        if self.may_run(&active.program) {
            return Ok(active);
        }
        let sha256: String = active.program.sha256().iter().map(|byte| format!("{byte:02x}")).collect();
        self.host.quota().deny(format_args!("to run program {pind}, sha256:{sha256}"));
        Err(Status::NO_PROGRAM.dnr())
    }

    /// Whether the host may run a program that is there for it.
    pub(crate) fn may_run(&self, program: &LoadedProgram) -> bool {
        self.rights.may_run(&program.credentials())
    }

    /// The memory namespace of the host, if there is one for it.
    pub(crate) fn memory(&self) -> Option<&Arc<Standard>> {
        let shared = self.environment.standard.as_ref()?;
        match self.rights.memory()? {
            MemoryRight::Shared => Some(shared),
            MemoryRight::Own => self.host.own_memory(&self.environment.config, &self.environment.device_memory),
        }
    }

    /// Counts something that the host did: for itself, and for all.
    pub(crate) fn count(&self, count: impl Fn(&Statistics)) {
        count(&self.environment.statistics);
        count(&self.host.statistics);
    }

    /// Counts a call that has ended, which was given, besides what it read from media, bytes of its host and kept ones.
    pub(crate) fn count_call(&self, trailer: &Trailer, function: FunctionId<'_>, received: u64, kept: u64) {
        self.count(|statistics| statistics.ended(trailer, function, received, kept));
        let read_bytes = trailer.media_read + received + kept;
        let run_time = Duration::from_micros(trailer.times.run_us.into());
        let failed = trailer.outcome != Outcome::Ok;
        self.calls.called(read_bytes, trailer.result_len + trailer.media_written, run_time, failed);
        // Who gives up what it asked for knows.
        if failed && trailer.outcome != Outcome::Cancelled {
            self.environment.failures.add(&self.host.nqn, Some(function.name), &trailer.message);
        }
    }

    /// The same of one counter.
    pub(crate) fn add(&self, counter: impl Fn(&Statistics) -> &AtomicU64, value: u64) {
        self.count(|statistics| {
            counter(statistics).fetch_add(value, Ordering::Relaxed);
        });
    }

    /// A call of a program has ended that was not of a prepared request. `trace`: what the host wants it to be a part of.
    pub(crate) fn tell_ran(
        &self,
        program: &LoadedProgram,
        function: &str,
        trailer: &Trailer,
        trace: Option<TraceContext>,
    ) {
        spans::record(trace, function, trailer);
        let watch = &self.environment.watch;
        if watch.wants() {
            let failed = (trailer.outcome != Outcome::Ok).then_some(&*trailer.message);
            let (sha256, bytes, run_us) = (program.sha256(), trailer.media_read, trailer.times.run_us.into());
            let ran = ProgramEvent::Ran { sha256, function, calls: None, bytes, run_us, failed };
            watch.program(&self.host.nqn, ran);
        }
    }

    /// Counts and reports the calls of a request that was prepared.
    pub(crate) fn runs(&self, program: &LoadedProgram, function: &str) -> Arc<Runs> {
        let of = (&self.host, &self.calls);
        Runs::new(&self.environment, of, (program.id(), program.sha256()), function)
    }

    /// A program was loaded, or refused.
    pub(crate) fn tell_loaded(&self, sha256: Option<[u8; 32]>, len: usize, refused: Option<&str>) {
        let loaded = ProgramEvent::Loaded { sha256, len: len as u64, refused };
        self.environment.watch.program(&self.host.nqn, loaded);
    }

    /// What tells the states that the host shares from its own.
    pub(crate) fn shared_states(&self) -> (&SharedStates, &HostRights) {
        (&self.environment.shared_states, &self.rights)
    }

    /// The layout of this number, of a volume that the host may use so.
    pub(crate) fn layout(&self, id: u32, generation: u64) -> Result<Arc<Layout>, FileError> {
        let layout = self.host.layouts.current(&self.environment.volumes, id, generation)?;
        if self.rights.volume(&layout.volume().name) == Access::None {
            return Err(FileError {
                errno: diskside_io::Errno::STALE,
                changed: true,
                message: format!("layout {id} is not kept"),
            });
        }
        match self.reserved(layout.volume(), Access::Read) {
            None => Ok(layout),
            Some(message) => Err(FileError { errno: diskside_io::Errno::ACCESS, changed: false, message }),
        }
    }

    /// The file of a layout, for one call.
    pub(crate) fn open_layout(&self, id: u32, generation: u64) -> Result<LayoutReader, FileError> {
        self.layout(id, generation).map(LayoutReader::of)
    }

    /// When a call of this host, or what is done for one, may compute.
    pub(crate) fn turn(&self, class: Class, cancel: CancelToken, until: Instant) -> Turn {
        Turn { host: self.host.id, cpu_share: self.host.quota().cpu_share(), class, cancel, until }
    }

    /// Hands work to a thread. False: the host has too much of it waiting, or the pool is stopping.
    pub(crate) fn submit(&self, class: WorkClass, memory: u64, run: Box<dyn FnOnce() + Send>) -> bool {
        self.submit_until(class, memory, None, run)
    }

    /// The same of a call, which waits no longer when it is cancelled.
    pub(crate) fn submit_call(
        &self,
        class: WorkClass,
        memory: u64,
        cancel: CancelToken,
        run: Box<dyn FnOnce() + Send>,
    ) -> bool {
        self.submit_until(class, memory, Some(cancel), run)
    }

    fn submit_until(
        &self,
        class: WorkClass,
        memory: u64,
        cancel: Option<CancelToken>,
        run: Box<dyn FnOnce() + Send>,
    ) -> bool {
        let memory_max = self.host.calls_memory_max(&self.environment.config);
        self.environment.pool.submit(Work { host: self.host.id, class, memory, memory_max, cancel, run })
    }

    /// Where a call of this host waits for it.
    pub(crate) fn seat(&self) -> Seat {
        Seat::new(&self.environment.pool, self.host.id)
    }

    /// Waits for room for a result, until then or until it is not wanted any more, or others need what the call holds.
    ///
    /// # Errors
    /// There was none.
    pub(crate) fn hold_until(
        &self,
        len: usize,
        until: Instant,
        is_unwanted: impl Fn() -> bool,
        is_urgent: impl Fn() -> bool,
    ) -> Result<Holding, NoRoom> {
        let seat = self.seat();
        let wait = RefCell::new(seat.wait());
        self.host.account.hold_until(len, until, || is_unwanted() || wait.borrow_mut().is_over(), is_urgent)
    }
}

/// Who asked for calls, each by its tag.
pub(crate) trait CallEvents: fmt::Debug + Send + Sync {
    /// Bytes of a call's result that nobody asked for yet.
    fn unclaimed(&self, tag: u64) -> u64;

    /// Whether somebody waits for more of a call's result than there is.
    fn is_short(&self, tag: u64) -> bool;

    /// Whether somebody waits for bytes of a call's result.
    fn is_asked_for(&self, tag: u64) -> bool;

    /// A call made bytes of its result.
    fn produced(&self, tag: u64, piece: Piece);

    /// A call read bytes of its host's stream.
    fn consumed(&self, now: Instant, tag: u64);

    /// A call has ended.
    fn ended(&self, now: Instant, tag: u64, trailer: Trailer);
}
