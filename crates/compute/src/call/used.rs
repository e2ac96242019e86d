//! Things that a call uses and needs a right for, and how a call ends whose host lost one.

use std::sync::{Arc, Weak};

use diskside_engine::State;
use diskside_export::{FileError, UsedExport};
use diskside_io::Errno;
use diskside_nvme::Status;
use diskside_rights::{Access, Program};
use diskside_volume::Volume;
use diskside_wire::function::{Outcome, Trailer};

use crate::call::answer::Problem;
use crate::standard::state::Standard;

/// Something that a call uses, and for which its host needs a right. A call whose result waits for its host keeps neither its program
/// nor a volume that was removed.
#[derive(Clone, Debug)]
pub(crate) enum Used {
    Program(UsedProgram),
    Volume(UsedVolume, Access),
    Export(UsedExport),
    /// The export that a file operation is about. Its result ends as the operation would, if it began now.
    Files(UsedExport),
    Memory(Arc<Standard>),
    State(State),
}

/// A program, as rights know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UsedProgram {
    shipped: Option<String>,
    sha256: [u8; 32],
    signer: Option<[u8; 32]>,
}

/// A volume, as rights know it.
#[derive(Clone, Debug)]
pub(crate) struct UsedVolume {
    pub(crate) name: String,
    volume: Weak<Volume>,
}

/// Why a call may not continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    outcome: Outcome,
    errno: Errno,
    /// The answer to a command that has no trailer.
    status: Status,
    message: String,
}

impl Used {
    pub(crate) fn program(program: &Program<'_>) -> Self {
        let shipped = program.shipped.map(str::to_owned);
        Self::Program(UsedProgram { shipped, sha256: *program.sha256, signer: program.signer.copied() })
    }

    pub(crate) fn volume(volume: &Arc<Volume>, access: Access) -> Self {
        Self::Volume(UsedVolume { name: volume.name.clone(), volume: Arc::downgrade(volume) }, access)
    }

    /// Whether the other is no more than this.
    pub(crate) fn includes(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Program(one), Self::Program(other)) => one == other,
            (Self::Volume(one, access), Self::Volume(other, less)) => {
                one.volume.ptr_eq(&other.volume) && access >= less
            }
            (Self::Export(one), Self::Export(other)) | (Self::Files(one), Self::Files(other)) => one.includes(other),
            (Self::Memory(one), Self::Memory(other)) => Arc::ptr_eq(one, other),
            (Self::State(one), Self::State(other)) => one.is(other),
            _ => false,
        }
    }
}

impl UsedProgram {
    pub(crate) fn credentials(&self) -> Program<'_> {
        Program { shipped: self.shipped.as_deref(), sha256: &self.sha256, signer: self.signer.as_ref() }
    }
}

impl UsedVolume {
    /// The volume, if anybody still has it.
    pub(crate) fn now(&self) -> Option<Arc<Volume>> {
        self.volume.upgrade()
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.volume.upgrade().is_none_or(|volume| volume.is_removed())
    }
}

impl Lost {
    pub(crate) fn new(errno: Errno, message: String) -> Self {
        Self { outcome: Outcome::Media, errno, status: Status::OPERATION_DENIED.dnr(), message }
    }

    /// As an operation on a file is answered that would begin now.
    pub(crate) fn operation(message: String) -> Self {
        Self { outcome: Outcome::Errno, ..Self::new(Errno::STALE, message) }
    }

    /// A reservation of another host keeps this one off.
    pub(crate) fn reserved(message: String) -> Self {
        Self { status: Status::RESERVATION_CONFLICT.dnr(), ..Self::new(Errno::ACCESS, message) }
    }

    /// The trailer of the call.
    pub(crate) fn trailer(&self) -> Trailer {
        let (returned, message) = (-i64::from(self.errno.raw_os_error()), self.message.clone());
        Trailer { returned, message, ..Trailer::new(self.outcome) }
    }

    /// Takes the place of what a call would have told. The bytes that it read and wrote stay known.
    pub(crate) fn replace(&self, told: &mut Trailer) {
        *told = Trailer {
            media_read: told.media_read,
            media_written: told.media_written,
            durable: told.durable,
            result_len: told.result_len,
            times: told.times,
            ..self.trailer()
        };
    }

    /// As a file tells it that cannot be opened.
    pub(crate) fn error(&self) -> FileError {
        FileError { errno: self.errno, changed: false, message: self.message.clone() }
    }

    /// The answer to a command that has no trailer.
    pub(crate) fn problem(&self) -> Problem {
        Problem::new(self.status, self.message.clone())
    }
}
