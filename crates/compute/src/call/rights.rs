//! The rights that a call needs as long as it runs. Hosts lose rights while calls run, also by a reservation of another host: then these
//! end, and results that nobody took yet are dropped.
//!
//! A call notes what it uses before it begins to read, and looks at its rights again behind that. A change of rights comes before
//! that look, which finds it, or behind the note, which is found by [`Compute::rights_changed`](crate::Compute::rights_changed).

use std::sync::Arc;

use diskside_io::Errno;
use diskside_nvme::controller::ReservedWrite;
use diskside_rights::{Access, Program};

use crate::call::context::CallContext;
use crate::call::control::Control;
use crate::call::used::{Lost, Used};
use diskside_volume::Volume;

impl Control {
    /// The call is about to use this.
    ///
    /// # Errors
    /// Its host may not any more, and the call is stopped.
    pub(crate) fn uses(&self, context: &CallContext, all: impl IntoIterator<Item = Used>) -> Result<(), &Lost> {
        self.note(all);
        self.check_rights(context).map_or(Ok(()), Err)
    }

    /// Stops the call if its host may not use any more what it uses, and says why.
    pub(crate) fn check_rights(&self, context: &CallContext) -> Option<&Lost> {
        self.stop_if_lost(|used| used.lost(context))
    }
}

/// Asked by a sink before each piece that it writes to a volume: a host that has reserved the volume meanwhile relies on it.
#[derive(Debug)]
pub(crate) struct MayWrite {
    control: Arc<Control>,
    context: Arc<CallContext>,
}

impl MayWrite {
    pub(crate) fn new(control: &Arc<Control>, context: &Arc<CallContext>) -> Self {
        Self { control: Arc::clone(control), context: Arc::clone(context) }
    }

    /// The write of a piece, until the answer is dropped: reservations of other hosts wait for it.
    pub(crate) fn begin(&self, volume: &Volume) -> Result<ReservedWrite, &'static str> {
        let write = self.context.reservations.begin_write(volume.nsid);
        // It says why the call ends.
        let is_lost = self.control.check_rights(&self.context).is_some();
        write.filter(|_| !is_lost).ok_or("the host lost the right to the volume while output was written")
    }

    /// Whether the call was stopped for any reason.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.control.cancel.is_cancelled()
    }
}

impl Used {
    /// Why the host may not use it any more; `None`: it may.
    pub(crate) fn lost(&self, context: &CallContext) -> Option<Lost> {
        let rights = &context.rights;
        let no_right = |to: &str| Some(Lost::new(Errno::ACCESS, format!("this host may not {to} any more")));
        match self {
            Self::Program(program) if !rights.may_run(&program.credentials()) => no_right("run this program"),
            Self::Volume(volume, access) if rights.volume(&volume.name) < *access => {
                let how = if *access == Access::Write { "write" } else { "read" };
                let errno = if volume.is_removed() { Errno::NODEV } else { Errno::ACCESS };
                Some(Lost::new(errno, format!("this host may not {how} volume {} any more", volume.name)))
            }
            Self::Volume(volume, access) => {
                volume.now().and_then(|volume| context.reserved(&volume, *access)).map(Lost::reserved)
            }
            Self::Export(export) => export.check(rights).err().map(|error| Lost::new(error.errno, error.message)),
            Self::Files(export) => export.check(rights).err().map(|error| Lost::operation(error.message)),
            Self::Memory(memory) if !context.memory().is_some_and(|now| Arc::ptr_eq(now, memory)) => {
                no_right("use this device memory")
            }
            Self::State(state) if !context.host.may_use(state, rights) => no_right("share this state"),
            Self::Program(_) | Self::Memory(_) | Self::State(_) => None,
        }
    }
}

/// A service, as grants know it.
pub(crate) fn of_service(name: &str) -> Program<'_> {
    Program { shipped: Some(name), sha256: &[0; 32], signer: None }
}
