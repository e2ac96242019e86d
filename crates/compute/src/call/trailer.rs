//! From what went wrong to the trailer that tells the host.

use std::time::Duration;

use diskside_engine::{CallError, Place, ReadError, TierError};
use diskside_sbpf::trap::{Trap, TrapKind};
use diskside_wire::function::{MissingRange, Outcome, PlaceInSource, Trailer};

use crate::endpoint::SinkError;
use crate::schedule::quota::NoRoom;
use diskside_export::FileError;

/// Bit of the region field: the trap was a write.
const WRITE: u16 = 1 << 15;

/// A time as trailers have it.
pub(crate) fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}

/// A trailer with nothing but a story.
pub(crate) fn simple(outcome: Outcome, message: &str) -> Trailer {
    Trailer { message: message.to_owned(), ..Trailer::new(outcome) }
}

/// The trailer of a call whose result waited for room, until its deadline or until it was cancelled.
pub(crate) fn without_room(no_room: &NoRoom, is_cancelled: bool) -> Trailer {
    if is_cancelled {
        simple(Outcome::Cancelled, "the call was cancelled")
    } else {
        simple(Outcome::Deadline, &format!("the deadline passed while the result waited: {no_room}"))
    }
}

/// The trailer of a call that met a bug of the server: its host must not wait for ever.
pub(crate) fn bug() -> Trailer {
    simple(Outcome::Refused, "the engine failed: a bug")
}

/// The trailer of a call that the engine did not finish.
pub(crate) fn of_call(error: &CallError) -> Trailer {
    let place_of = |place: &Place| {
        let (offset, len) = (place.range.start, place.range.end - place.range.start);
        Some(PlaceInSource { source_index: place.source_index, offset, len })
    };
    let mut trailer = simple(Outcome::Refused, &error.to_string());
    match error {
        CallError::Trapped { place, trap, .. } => {
            trailer.outcome = outcome_of(trap.kind);
            fill_trap(&mut trailer, trap);
            trailer.place = place_of(place);
        }
        CallError::Cancelled { place } => {
            trailer.outcome = Outcome::Cancelled;
            trailer.place = place_of(place);
        }
        // Without a place: no function was stopped there.
        CallError::Late { .. } => trailer.outcome = Outcome::Deadline,
        CallError::Errno { place, code, .. } => {
            trailer.outcome = Outcome::Errno;
            trailer.returned = *code;
            trailer.place = place_of(place);
        }
        CallError::OutputFull { place, returned, .. } => {
            trailer.outcome = Outcome::OutputFull;
            trailer.returned = i64::try_from(*returned).unwrap_or(i64::MAX);
            trailer.place = place_of(place);
        }
        CallError::Tier(TierError::CallEnded) => trailer.outcome = Outcome::Deadline,
        CallError::ResultTooLarge { .. } | CallError::BadMask { .. } => trailer.outcome = Outcome::OutputFull,
        CallError::Read { error: ReadError::Changed { .. } | ReadError::Shrunk { .. }, .. } => {
            trailer.outcome = Outcome::Stale;
        }
        CallError::Read { source_index, error } => {
            trailer.outcome = Outcome::Media;
            trailer.returned = errno_of(error);
            if let ReadError::OutOfRange { start, end, len, .. } = *error {
                trailer.missing = Some(MissingRange { start, end, len });
            }
            if let ReadError::Read { offset, .. } = error {
                trailer.place = Some(PlaceInSource { source_index: *source_index, offset: *offset, len: 0 });
            }
        }
        CallError::FileWrite { source, .. } => {
            trailer.outcome = Outcome::Media;
            trailer.returned = -i64::from(source.raw_os_error().unwrap_or(5));
        }
        CallError::Write(error) => {
            trailer.outcome = Outcome::Media;
            trailer.returned = -i64::from(error.raw_os_error().unwrap_or(5));
        }
        CallError::RecordTooLong { place, .. }
        | CallError::NoRoomForRecord { place, .. }
        | CallError::NoRoomForPiece { place, .. }
        | CallError::OutputTooLarge { place, .. } => {
            trailer.place = place_of(place);
        }
        // What could not be begun.
        _ => {}
    }
    trailer
}

/// The trailer of a call whose output could not be written.
pub(crate) fn of_sink(error: &SinkError) -> Trailer {
    let mut trailer = simple(Outcome::Media, &error.to_string());
    match error {
        SinkError::Full(_) => trailer.outcome = Outcome::OutputFull,
        SinkError::Volume { errno, .. } => trailer.returned = -i64::from(errno.raw_os_error()),
        SinkError::Memory { .. } => trailer.returned = -i64::from(diskside_io::Errno::BUSY.raw_os_error()),
        SinkError::File(error) => return of_file(error),
        SinkError::Stopped { outcome, .. } => trailer.outcome = *outcome,
    }
    trailer
}

/// The trailer of a call whose file could not be used.
pub(crate) fn of_file(error: &FileError) -> Trailer {
    let outcome = if error.changed { Outcome::Stale } else { Outcome::Errno };
    Trailer { returned: -i64::from(error.errno.raw_os_error()), ..simple(outcome, &error.message) }
}

pub(crate) fn outcome_of(kind: TrapKind) -> Outcome {
    match kind {
        TrapKind::Budget => Outcome::Budget,
        TrapKind::Deadline => Outcome::Deadline,
        TrapKind::Cancelled => Outcome::Cancelled,
        TrapKind::OutOfBounds | TrapKind::Unmapped | TrapKind::ReadOnly | TrapKind::Misaligned | TrapKind::Helper => {
            Outcome::Trap
        }
    }
}

pub(crate) fn fill_trap(trailer: &mut Trailer, trap: &Trap) {
    trailer.insn = trap.insn;
    trailer.trap_kind = trap.kind as u16;
    trailer.region = trap.region.map_or(0, |region| region.0.into()) | if trap.write { WRITE } else { 0 };
    trailer.trap_offset = trap.offset as u64;
    trailer.bound = trap.bound;
}

fn errno_of(error: &ReadError) -> i64 {
    let source = match error {
        ReadError::Open { source, .. } | ReadError::Read { source, .. } | ReadError::Setup(source) => source,
        _ => return 0,
    };
    -i64::from(source.raw_os_error().unwrap_or(5))
}
