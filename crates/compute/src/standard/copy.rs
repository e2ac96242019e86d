//! Copies between volumes and memory, and within memory.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use diskside_engine::ReadAt;
use diskside_io::Errno;
use diskside_io::buffer::{Buffer, Part};
use diskside_io::bytefile::Direction;
use diskside_nvme::Status;
use diskside_nvme::wire::memory::{COPY_FORMAT_MEMORY, MemoryCopySource, memory_opcode};
use diskside_nvme::wire::{CopySourceEntry, Sqe, nvm_opcode};
use diskside_rights::Access;
use zerocopy::FromBytes;

use super::state::Standard;
use super::{MEMORY_GRANULARITY, StandardCommand, in_command};
use crate::call::answer::{Answer, Problem};
use crate::call::context::CallContext;
use crate::call::used::Used;
use diskside_volume::Volume;
use diskside_volume::blocking::{Hold, VolumeReader, flush, write_blocks};
use diskside_volume::guard::Mode;
use diskside_volume::metered::Metered;

/// The most bytes of one copy.
const COPY_LEN_MAX: u64 = 32 << 20;
/// Bytes that are read or written under one hold of their guard.
const HOLD_BYTES: usize = 256 << 10;
/// Sources of one copy.
pub(crate) const COPY_RANGES_MAX: u16 = 128;

impl Standard {
    /// Memory Copy: from volumes (descriptor formats 2h and 3h) or from memory (4h).
    pub(crate) fn copy_to_memory(&self, context: &CallContext, command: &StandardCommand) -> Result<Answer, Problem> {
        let StandardCommand { sqe, data, until, .. } = command;
        let (start, len) = (sqe.memory_start(), sqe.memory_copy_len());
        if sqe.copy_ranges() > COPY_RANGES_MAX.into() || len > COPY_LEN_MAX {
            return Err(Status::COMMAND_SIZE_LIMIT_EXCEEDED.dnr().into());
        }
        let place = self.range(start, len, MEMORY_GRANULARITY).map_err(in_command)?;
        match sqe.copy_format() {
            2 | 3 => self.copy_from_volumes(context, command, place, entries(data, sqe)?),
            COPY_FORMAT_MEMORY => self.copy_within(place, *until, entries(data, sqe)?),
            _ => Err(Problem::in_command(49, "the descriptor format is 2h, 3h or 4h")),
        }
    }

    fn copy_from_volumes(
        &self,
        context: &CallContext,
        command: &StandardCommand,
        place: Range<usize>,
        sources: &[CopySourceEntry],
    ) -> Result<Answer, Problem> {
        let mut parts = Vec::with_capacity(sources.len());
        for source in sources {
            let nsid = source.snsid.get();
            if nsid == self.nsid {
                return Err(Status::INCOMPATIBLE_NAMESPACE_OR_FORMAT.dnr().into());
            }
            let volume = volume(context, nsid, Access::Read)?;
            command.uses(context, Used::volume(&volume, Access::Read))?;
            let block = u64::from(volume.block_bytes);
            let len = u64::from(source.blocks()) * block;
            let end = source.slba.get().checked_mul(block).and_then(|offset| offset.checked_add(len));
            let end = end.filter(|end| *end <= volume.medium.properties().len_bytes);
            let end = end.ok_or(Status::LBA_OUT_OF_RANGE.dnr())?;
            parts.push((volume, end - len, len as usize));
        }
        check_sum(place.len() as u64, parts.iter().map(|(_, _, len)| *len as u64))?;
        let mut guard = self.lock(&[place], command.until)?;
        let mut guarded = guard.parts();
        let mut rest = &mut *guarded[0];
        for (volume, offset, len) in parts {
            command.check()?;
            let (part, behind) = rest.split_at_mut(len);
            rest = behind;
            let counters = Arc::clone(&volume.functions);
            let reader = Metered::by(counters, VolumeReader { volume });
            for (at, part) in (offset..).step_by(HOLD_BYTES).zip(part.chunks_mut(HOLD_BYTES)) {
                let read = reader.read_unless(at, part, &|| command.check().is_err());
                command.check()?;
                read.map_err(|error| Problem::new(Status::UNRECOVERED_READ_ERROR, error.to_string()))?;
            }
        }
        Ok(Answer::success())
    }

    fn copy_within(
        &self,
        place: Range<usize>,
        until: Instant,
        sources: &[MemoryCopySource],
    ) -> Result<Answer, Problem> {
        let sources = self.sources(sources)?;
        check_sum(place.len() as u64, sources.iter().map(|source| source.len() as u64))?;
        if sources.iter().any(|source| source.start < place.end && place.start < source.end) {
            return Err(Status::OVERLAPPING_IO_RANGE.dnr().into());
        }
        let bytes = self.gather(&sources, until)?;
        self.with(&[place], until, |parts| parts[0].copy_from_slice(&bytes))?;
        Ok(Answer::success())
    }

    /// Copy of the NVM command set with descriptor format 4h: from memory to a volume.
    pub(crate) fn copy_to_volume(&self, context: &CallContext, command: &StandardCommand) -> Result<Answer, Problem> {
        let StandardCommand { sqe, data, until, .. } = command;
        let volume = volume(context, sqe.nsid(), Access::Write)?;
        command.uses(context, Used::volume(&volume, Access::Write))?;
        let sources = self.sources(entries(data, sqe)?)?;
        let len: u64 = sources.iter().map(|source| source.len() as u64).sum();
        if len > COPY_LEN_MAX {
            return Err(Status::COMMAND_SIZE_LIMIT_EXCEEDED.dnr().into());
        }
        let block = u64::from(volume.block_bytes);
        if !len.is_multiple_of(block) {
            return Err(in_command(format!("{len} bytes are no whole blocks of {block} bytes")));
        }
        let offset = sqe
            .slba()
            .checked_mul(block)
            .filter(|offset| offset.checked_add(len).is_some_and(|end| end <= volume.medium.properties().len_bytes));
        let offset = offset.ok_or(Status::LBA_OUT_OF_RANGE.dnr())?;
        let mut bytes = self.gather(&sources, *until)?;
        for start in (0..len as usize).step_by(HOLD_BYTES) {
            command.check()?;
            let _write = context.reservations.begin_write(volume.nsid).ok_or(Status::RESERVATION_CONFLICT.dnr())?;
            let (range, at) = (start..(start + HOLD_BYTES).min(len as usize), offset + start as u64);
            let (part_len, began) = (range.len() as u64, Instant::now());
            let _hold = Hold::of(&volume, at..at + part_len, Mode::Exclusive);
            if volume.is_removed() {
                return Err(Status::INVALID_NAMESPACE_OR_FORMAT.dnr().into());
            }
            let written = write_blocks(&volume, at, Part { buffer: bytes, range });
            let moved = written.as_ref().map(|_| part_len).map_err(|errno| *errno);
            volume.functions.ended(Direction::Write, moved, began.elapsed());
            bytes = written.map_err(write_problem)?;
        }
        if sqe.fua() {
            flush(&volume).map_err(write_problem)?;
        }
        Ok(Answer::success())
    }

    /// The places of sources in descriptor format 4h.
    fn sources(&self, sources: &[MemoryCopySource]) -> Result<Vec<Range<usize>>, Problem> {
        let place = |source: &MemoryCopySource| {
            if source.nsid.get() != self.nsid {
                return Err(Status::INVALID_NAMESPACE_OR_FORMAT.dnr().into());
            }
            if source.fast_only() {
                return Err(Status::FAST_COPY_NOT_POSSIBLE.dnr().into());
            }
            self.range(source.start.get(), source.len.get().into(), MEMORY_GRANULARITY).map_err(in_command)
        };
        sources.iter().map(place).collect()
    }

    /// The bytes of ranges, one after the other, as they are at one moment each.
    fn gather(&self, sources: &[Range<usize>], until: Instant) -> Result<Buffer, Problem> {
        let mut bytes = Buffer::zeroed(sources.iter().map(Range::len).sum());
        let mut at = 0;
        for source in sources {
            let len = source.len();
            self.with(std::slice::from_ref(source), until, |parts| bytes[at..at + len].copy_from_slice(parts[0]))?;
            at += len;
        }
        Ok(bytes)
    }
}

/// Bytes that a copy gathers before it writes them; of other commands none.
pub(crate) fn memory(sqe: &Sqe, data: &[u8]) -> u64 {
    if !matches!(sqe.opcode(), memory_opcode::COPY | nvm_opcode::COPY) || sqe.copy_format() != COPY_FORMAT_MEMORY {
        return 0;
    }
    let sources = entries::<MemoryCopySource>(data, sqe).unwrap_or_default();
    sources.iter().map(|source| u64::from(source.len.get())).sum::<u64>().min(COPY_LEN_MAX)
}

/// The command's list of sources, which is all of its data.
fn entries<'a, T: FromBytes + zerocopy::KnownLayout + zerocopy::Immutable + zerocopy::Unaligned>(
    data: &'a [u8],
    sqe: &Sqe,
) -> Result<&'a [T], Problem> {
    let entries = <[T]>::ref_from_bytes(data).ok().filter(|entries| entries.len() == sqe.copy_ranges() as usize);
    entries.ok_or(Status::DATA_SGL_LENGTH_INVALID.dnr().into())
}

fn check_sum(len: u64, sources: impl Iterator<Item = u64>) -> Result<(), Problem> {
    let sum: u64 = sources.sum();
    if sum == len {
        return Ok(());
    }
    Err(in_command(format!("the command copies {len} bytes and its sources have {sum}")))
}

/// A volume that the host may use so.
fn volume(context: &CallContext, nsid: u32, access: Access) -> Result<Arc<Volume>, Status> {
    let found = context.environment.volumes.find(nsid).ok_or(Status::INVALID_NAMESPACE_OR_FORMAT.dnr())?;
    match context.right_to(&found, access) {
        Access::None => Err(Status::INVALID_NAMESPACE_OR_FORMAT.dnr()),
        granted if granted < access => Err(Status::NAMESPACE_WRITE_PROTECTED.dnr()),
        _ => Ok(found),
    }
}

fn write_problem(errno: Errno) -> Problem {
    let status = match errno {
        Errno::ROFS => Status::NAMESPACE_WRITE_PROTECTED.dnr(),
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Status::CAPACITY_EXCEEDED,
        _ => Status::WRITE_FAULT,
    };
    Problem::new(status, std::io::Error::from(errno).to_string())
}
