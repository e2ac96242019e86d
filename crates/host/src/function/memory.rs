//! A controller's memory namespace, and programs that are executed over it: the standard computing commands
//! (`docs/standard.md`).

use std::collections::VecDeque;
use std::ops::Range;

use diskside_io::buffer::Buffer;
use diskside_io::request::{RequestFuture, block_on};
use diskside_nvme::host::{Answer, CommandError};
use diskside_nvme::wire::memory::{
    COPY_FORMAT_MEMORY, Execution, MemoryCopySource, MemoryNamespace, MemoryRange, memory_log,
};
use diskside_nvme::wire::{CSI_COMPUTE, CSI_SLM, CopySourceEntry, Sqe, cns};
use diskside_wire::function::FunctionCommand as _;
use zerocopy::{FromBytes as _, IntoBytes as _};

use super::compute::Compute;
use super::error::FunctionError;
use crate::job::{Command, CommandData, CommandFailure, CommandOutcome};
use crate::task::drive;

/// Starts and lengths of memory commands are multiples of this.
pub const MEMORY_GRANULARITY: u64 = 4;
/// Starts and lengths of the ranges of an execution are multiples of this.
pub const RANGE_GRANULARITY: u64 = 8;
/// The most bytes of one copy between a volume and the memory.
pub const COPY_LEN_MAX: u64 = 32 << 20;
/// The most sources of one copy.
pub const COPY_SOURCES_MAX: usize = 128;
/// The longest part that is read or written by one command.
const PART_LEN: usize = 256 << 10;
/// Commands of one read or write that are in flight at once.
const PARTS: usize = 8;
/// The longest list of range sets that is read: more than there can be.
const SETS_LEN_MAX: usize = 64 << 20;

/// The memory namespace of a connected controller. Clones refer to the same one.
///
/// Addresses are bytes from its start. All of it sleeps until the target has answered.
#[derive(Clone, Debug)]
pub struct DeviceMemory {
    compute: Compute,
    nsid: u32,
    len_bytes: u64,
}

impl DeviceMemory {
    /// Finds the memory of the controller that this compute namespace is of; `None`: this host has none there.
    pub fn new(compute: &Compute) -> Result<Option<Self>, FunctionError> {
        let what = "looking for a memory namespace";
        let list = |nsid, cns| {
            let data = CommandData::Receive(Buffer::zeroed(4096));
            admin(compute, what, Sqe::identify(cns, nsid, CSI_SLM), data).map(|(_, page)| page)
        };
        let nsid = match list(0, cns::COMMAND_SET_ACTIVE_NAMESPACES) {
            Ok(page) => page.first_chunk().map_or(0, |nsid| u32::from_le_bytes(*nsid)),
            // A target that knows no such command set may refuse the question.
            Err(FunctionError::Command { failure: CommandFailure::Command(CommandError::Status { .. }), .. }) => 0,
            Err(error) => return Err(error),
        };
        if nsid == 0 {
            return Ok(None);
        }
        let page = list(nsid, cns::COMMAND_SET_NAMESPACE)?;
        let (identity, _) = MemoryNamespace::read_from_prefix(&page)
            .map_err(|_| FunctionError::Malformed { what: "memory namespace", problem: "it is too short".into() })?;
        Ok(Some(Self { compute: compute.clone(), nsid, len_bytes: identity.size.get() }))
    }

    /// Namespace identifier.
    #[must_use]
    pub fn nsid(&self) -> u32 {
        self.nsid
    }

    /// Its length.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Reads; `start` and the buffer's length are multiples of [`MEMORY_GRANULARITY`].
    pub fn read(&self, start: u64, buffer: &mut [u8]) -> Result<(), FunctionError> {
        let part_len = self.part_len();
        let mut under_way = VecDeque::new();
        for (index, part) in buffer.chunks_mut(part_len).enumerate() {
            if under_way.len() == PARTS {
                take_read(&mut under_way)?;
            }
            let sqe = Sqe::memory_read(self.nsid, start + (index * part_len) as u64, part.len() as u32);
            let answer = self.send(sqe, CommandData::Receive(Buffer::zeroed(part.len())), true);
            under_way.push_back((answer, part));
        }
        while !under_way.is_empty() {
            take_read(&mut under_way)?;
        }
        Ok(())
    }

    /// Writes; `start` and the number of bytes are multiples of [`MEMORY_GRANULARITY`].
    pub fn write(&self, start: u64, bytes: &[u8]) -> Result<(), FunctionError> {
        let part_len = self.part_len();
        let mut under_way = VecDeque::new();
        for (index, part) in bytes.chunks(part_len).enumerate() {
            if let Some(answer) = (under_way.len() == PARTS).then(|| under_way.pop_front()).flatten() {
                answered("writing device memory", answer)?;
            }
            let sqe = Sqe::memory_write(self.nsid, start + (index * part_len) as u64, part.len() as u32);
            under_way.push_back(self.send(sqe, CommandData::Send(Buffer::copy_of(part)), true));
        }
        under_way.into_iter().try_for_each(|answer| answered("writing device memory", answer).map(drop))
    }

    /// Zeroes a range, whose ends are multiples of [`MEMORY_GRANULARITY`].
    pub fn clear(&self, range: Range<u64>) -> Result<(), FunctionError> {
        let step = 1 << 30;
        for start in range.clone().step_by(step) {
            let len = (range.end - start).min(step as u64) as u32;
            let answer = self.send(Sqe::memory_fill(self.nsid, start, len), CommandData::None, true);
            answered("zeroing device memory", answer)?;
        }
        Ok(())
    }

    /// Copies blocks of volumes, up to [`COPY_SOURCES_MAX`] runs of `len` bytes in all, to the memory from `start` on.
    pub fn copy_from_volumes(&self, start: u64, len: u64, sources: &[CopySourceEntry]) -> Result<(), FunctionError> {
        let sqe = Sqe::memory_copy(self.nsid, start, len, sources.len() as u32, 2);
        let data = CommandData::Send(Buffer::copy_of(sources.as_bytes()));
        self.told("copying blocks to device memory", sqe, data, true).map(drop)
    }

    /// Copies up to [`COPY_LEN_MAX`] bytes of the memory, whole blocks, to a volume from this block on.
    pub fn copy_to_volume(&self, nsid: u32, slba: u64, start: u64, len: u32) -> Result<(), FunctionError> {
        let source = MemoryCopySource::new(self.nsid, start, len);
        let sqe = Sqe::copy(nsid, slba, 1, COPY_FORMAT_MEMORY);
        let data = CommandData::Send(Buffer::copy_of(source.as_bytes()));
        self.told("copying device memory to blocks", sqe, data, true).map(drop)
    }

    /// Makes a set of one range and returns its number. Sets go with the host's last controller.
    pub fn create_set(&self, start: u64, len: u32) -> Result<u16, FunctionError> {
        let range = MemoryRange::new(self.nsid, start, len);
        let data = CommandData::Send(Buffer::copy_of(range.as_bytes()));
        let sqe = Sqe::create_range_set(self.compute.nsid(), 1);
        let answer =
            block_on(self.compute.connection().command(Command { sqe, data, timeout: None, repeatable: false }));
        let result = answer.result.map_err(|failure| FunctionError::command("making a memory range set", failure));
        result.map(|answer| answer.result as u16)
    }

    /// Deletes a set.
    pub fn delete_set(&self, rsid: u16) -> Result<(), FunctionError> {
        let sqe = Sqe::delete_range_set(self.compute.nsid(), rsid);
        admin(&self.compute, "deleting a memory range set", sqe, CommandData::None).map(drop)
    }

    /// The ranges of all sets of this host, by the number of their set.
    pub fn sets(&self) -> Result<Vec<(u16, Range<u64>)>, FunctionError> {
        let mut len = 4096;
        loop {
            let sqe = Sqe::get_log_page(memory_log::RANGE_SETS, 0, len as u32, CSI_COMPUTE, true);
            let data = CommandData::Receive(Buffer::zeroed(len));
            let (_, page) =
                admin(&self.compute, "listing memory range sets", sqe.with_nsid(self.compute.nsid()), data)?;
            // The whole page at once: between parts, sets come and go.
            match parse_sets(&page) {
                Some(sets) => return Ok(sets),
                None if len < SETS_LEN_MAX => len *= 4,
                None => {
                    let problem = "it does not end".into();
                    return Err(FunctionError::Malformed { what: "list of memory range sets", problem });
                }
            }
        }
    }

    /// Executes a program over ranges of the memory, whose ends are multiples of [`RANGE_GRANULARITY`]. Returns what the
    /// program returned.
    pub fn execute(
        &self,
        pind: u16,
        ranges: &[Range<u64>],
        data: &[u8],
        (cparam1, cparam2): (u64, u64),
    ) -> Result<u64, FunctionError> {
        let mut bytes = Vec::with_capacity(size_of::<MemoryRange>() * ranges.len() + data.len());
        for range in ranges {
            let len = (range.end - range.start) as u32;
            bytes.extend_from_slice(MemoryRange::new(self.nsid, range.start, len).as_bytes());
        }
        bytes.extend_from_slice(data);
        let (ranges, data_len) = (ranges.len() as u32, bytes.len() as u32);
        let execution = Execution { pind, rsid: 0, ranges, data_len, cparam1, cparam2 };
        let data = if bytes.is_empty() { CommandData::None } else { CommandData::Send(bytes.into()) };
        let sqe = Sqe::execute_program(self.compute.nsid(), &execution);
        self.told("executing a program", sqe, data, false).map(|answer| answer.result)
    }

    fn send(&self, sqe: Sqe, data: CommandData, repeatable: bool) -> RequestFuture<CommandOutcome> {
        let connection = self.compute.connection();
        connection.command_on(connection.lane(), Command { sqe, data, timeout: None, repeatable })
    }

    /// The answer, or the failure with what the target's error log says about it.
    fn told(&self, what: &'static str, sqe: Sqe, data: CommandData, repeatable: bool) -> Result<Answer, FunctionError> {
        let id = sqe.function_tag();
        let answer = self.send(sqe, data, repeatable);
        answered(what, answer).map(|(answer, _)| answer).map_err(|error| {
            let compute = self.compute.clone();
            block_on(drive(async move { compute.explain(error, id).await }))
        })
    }

    fn part_len(&self) -> usize {
        PART_LEN.min(self.compute.transfer_len_max() as usize)
    }
}

/// The ranges in a Memory Range Set List; `None`: the page is not all of it.
fn parse_sets(page: &[u8]) -> Option<Vec<(u16, Range<u64>)>> {
    let (head, mut rest) = page.split_at_checked(32)?;
    let count = u32::from_le_bytes(*head.first_chunk()?);
    let mut sets = Vec::new();
    for _ in 0..count {
        let (head, behind) = rest.split_at_checked(32)?;
        let rsid = u16::from_le_bytes(*head.first_chunk()?);
        let ranges = u16::from_le_bytes(*head[2..].first_chunk()?);
        let (ranges, behind) = <[MemoryRange]>::ref_from_prefix_with_elems(behind, ranges.into()).ok()?;
        let place = |range: &MemoryRange| range.start.get()..range.start.get() + u64::from(range.len.get());
        sets.extend(ranges.iter().map(|range| (rsid, place(range))));
        rest = behind;
    }
    Some(sets)
}

/// Takes the oldest of the reads that are under way.
fn take_read(under_way: &mut VecDeque<(RequestFuture<CommandOutcome>, &mut [u8])>) -> Result<(), FunctionError> {
    let (answer, part) = under_way.pop_front().expect("one is under way");
    let (answer, buffer) = answered("reading device memory", answer)?;
    match buffer.filter(|_| answer.received_len as usize == part.len()) {
        Some(buffer) => part.copy_from_slice(&buffer),
        None => {
            let problem = format!("{} of {} bytes came", answer.received_len, part.len());
            return Err(FunctionError::Malformed { what: "device memory", problem });
        }
    }
    Ok(())
}

fn answered(
    what: &'static str,
    answer: RequestFuture<CommandOutcome>,
) -> Result<(Answer, Option<Buffer>), FunctionError> {
    let outcome = block_on(answer);
    let answer = outcome.result.map_err(|failure| FunctionError::command(what, failure))?;
    Ok((answer, outcome.buffer))
}

/// An admin command that may be sent again after a loss.
fn admin(
    compute: &Compute,
    what: &'static str,
    sqe: Sqe,
    data: CommandData,
) -> Result<(Answer, Buffer), FunctionError> {
    let command = Command { sqe, data, timeout: None, repeatable: true };
    let (answer, buffer) = answered(what, compute.connection().command(command))?;
    Ok((answer, buffer.unwrap_or_else(|| Buffer::zeroed(0))))
}
