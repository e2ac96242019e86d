//! Commands of the NVM command set: what must hold before the medium is asked (NVM 3.2).

use zerocopy::FromBytes;

use crate::buffer::BufferSlice;
use crate::status::Status;
use crate::wire::memory::{COPY_FORMAT_MEMORY, MemoryCopySource};
use crate::wire::{CSI_NVM, CopySourceEntry, DsmRange, HostBehavior, NSID_ALL, Sqe, nvm_opcode};

use super::command::{Command, Io, Transfer, check_flags, is_nvm, other_transfer};
use super::config::{Namespace, SubsystemConfig};
use super::namespaces::Namespaces;
use super::request::{ByteRange, CopySource, MediumId, Operation};
use super::reservations::{CONFLICT, Exclusion, ReservedUse};
use super::reserve::{self, is_reservation};

/// The most bytes of one Verify or Write Zeroes command, as a power of two of 4 KiB pages: 32 MiB.
pub(super) const WIDE_EXPONENT: u8 = 13;
/// The most source ranges of a Copy command.
pub(super) const COPY_RANGES_MAX: u32 = 128;
/// The most bytes of all source ranges of a Copy command, and of one of them.
pub(super) const COPY_LEN_MAX: u64 = 32 << 20;
/// Descriptor formats of Copy: 0h, and 2h with namespaces.
pub(super) const COPY_FORMATS: u16 = 1 << 0 | 1 << 2;

/// Parses a command of an I/O queue and checks it against its namespace.
pub(super) fn parse(
    sqe: &Sqe,
    config: &SubsystemConfig,
    namespaces: &Namespaces,
    all_command_sets: bool,
) -> Result<(Command, Transfer), Status> {
    check_flags(sqe)?;
    let opcode = sqe.opcode();
    let Some(namespace) = namespaces.get(sqe.nsid()) else {
        return Err(no_namespace(sqe, config, namespaces));
    };
    namespaces.path.check()?;
    if namespace.csi == CSI_NVM && is_reservation(opcode) {
        return reserve::parse(sqe, config, namespace);
    }
    if namespace.csi != CSI_NVM || !is_nvm(opcode) {
        check_other(namespaces, namespace.nsid)?;
        return parse_other(sqe, config, namespace, all_command_sets);
    }
    namespaces.exclusion(namespace.nsid).check(use_of(opcode))?;
    if opcode == nvm_opcode::COPY && sqe.copy_format() == COPY_FORMAT_MEMORY && config.has_memory() {
        return parse_copy_from_memory(sqe, config, namespace, all_command_sets);
    }
    let medium = namespace.medium;
    Ok(match opcode {
        nvm_opcode::READ => {
            let (offset, len) = check_transfer(sqe, config, namespace)?;
            (Command::Io(Io::Read { medium, offset, fua: sqe.fua() }), Transfer::ToHost(len))
        }
        nvm_opcode::WRITE => {
            check_writable(namespace)?;
            let (offset, len) = check_transfer(sqe, config, namespace)?;
            (Command::Io(Io::Write { medium, offset, fua: sqe.fua() }), Transfer::ToPool(len))
        }
        nvm_opcode::WRITE_DELTA => {
            if namespace.delta_len_max == 0 {
                return Err(Status::INVALID_OPCODE.dnr());
            }
            check_writable(namespace)?;
            let (offset, len) = check_transfer(sqe, config, namespace)?;
            // A record that is longer than its page is none.
            if len > namespace.delta_len_max || sqe.sgl().is_empty() || sqe.sgl().len() > len {
                return Err(Status::INVALID_FIELD.dnr());
            }
            (Command::Io(Io::WriteDelta { medium, offset, len }), Transfer::ToPool(sqe.sgl().len()))
        }
        nvm_opcode::COMPARE => {
            let (offset, len) = check_transfer(sqe, config, namespace)?;
            (Command::Io(Io::Compare { medium, offset }), Transfer::ToPool(len))
        }
        nvm_opcode::FLUSH => (Command::Io(Io::Flush { medium }), Transfer::None),
        nvm_opcode::WRITE_ZEROES => {
            check_writable(namespace)?;
            let range = check_wide(sqe, namespace)?;
            let deallocate = sqe.write_zeroes_deallocate() && namespace.deallocate;
            let ByteRange { offset, len } = range;
            (Command::Io(Io::WriteZeroes { medium, offset, len, fua: sqe.fua(), deallocate }), Transfer::None)
        }
        nvm_opcode::VERIFY => {
            let ByteRange { offset, len } = check_wide(sqe, namespace)?;
            (Command::Io(Io::Verify { medium, offset, len }), Transfer::None)
        }
        nvm_opcode::DATASET_MANAGEMENT => {
            let deallocate = sqe.dsm_deallocate();
            if deallocate {
                check_writable(namespace)?;
            }
            let len = sqe.dsm_ranges() * size_of::<DsmRange>() as u32;
            (Command::Io(Io::DatasetManagement { deallocate }), Transfer::ToUs(len))
        }
        _ => {
            check_writable(namespace)?;
            parse_copy(sqe, namespace)?
        }
    })
}

/// Whether a command of the NVM command set reads its namespace or writes it, as reservations tell commands apart.
const fn use_of(opcode: u8) -> ReservedUse {
    match opcode {
        nvm_opcode::READ | nvm_opcode::COMPARE | nvm_opcode::VERIFY => ReservedUse::Read,
        _ => ReservedUse::Write,
    }
}

/// A command whose meaning is the embedder's: nobody here knows what it does with a volume.
pub(super) fn check_other(namespaces: &Namespaces, nsid: u32) -> Result<(), Status> {
    if namespaces.exclusion(nsid) == Exclusion::Nothing { Ok(()) } else { Err(CONFLICT) }
}

/// Whether a reservation excludes the host from a command that is complete.
pub(super) fn is_excluded(sqe: &Sqe, operation: &Operation, namespaces: &Namespaces) -> bool {
    let checked = match operation {
        Operation::Cancel | Operation::GiveBack(_) | Operation::Authenticate(_) => Ok(()),
        Operation::Other(other) if other.admin => Ok(()),
        Operation::Other(_) => check_other(namespaces, sqe.nsid()),
        Operation::Copy { sources, .. } => sources
            .iter()
            .try_for_each(|source| namespaces.exclusion(source.nsid).check(ReservedUse::Read))
            .and_then(|()| namespaces.exclusion(sqe.nsid()).check(ReservedUse::Write)),
        _ => namespaces.exclusion(sqe.nsid()).check(use_of(sqe.opcode())),
    };
    checked.is_err()
}

/// A command to a namespace of another command set, or with an opcode of a vendor.
fn parse_other(
    sqe: &Sqe,
    config: &SubsystemConfig,
    namespace: &Namespace,
    all_command_sets: bool,
) -> Result<(Command, Transfer), Status> {
    if namespace.csi != CSI_NVM && !all_command_sets {
        return Err(Status::IO_COMMAND_SET_NOT_ENABLED.dnr());
    }
    let declared = config
        .command_set(namespace.csi)
        .is_some_and(|set| set.io_commands.iter().any(|(opcode, _)| *opcode == sqe.opcode()));
    if !declared {
        return Err(Status::INVALID_OPCODE.dnr());
    }
    let transfer = other_transfer(sqe)?;
    check_transfer_len(transfer, config)?;
    Ok((Command::Other { nsid: namespace.nsid, medium: namespace.medium, admin: false }, transfer))
}

/// The answer to a command whose NSID names no namespace.
fn no_namespace(sqe: &Sqe, config: &SubsystemConfig, namespaces: &Namespaces) -> Status {
    // An opcode that no namespace takes is the better thing to complain about.
    let somewhere = is_nvm(sqe.opcode())
        || is_reservation(sqe.opcode())
        || namespaces.iter().any(|namespace| {
            config
                .command_set(namespace.csi)
                .is_some_and(|set| set.io_commands.iter().any(|(opcode, _)| *opcode == sqe.opcode()))
        });
    if somewhere || sqe.nsid() != 0 && sqe.nsid() != NSID_ALL {
        Status::INVALID_NAMESPACE_OR_FORMAT.dnr()
    } else {
        Status::INVALID_OPCODE.dnr()
    }
}

fn check_writable(namespace: &Namespace) -> Result<(), Status> {
    if namespace.read_only { Err(Status::NAMESPACE_WRITE_PROTECTED.dnr()) } else { Ok(()) }
}

/// Offset and length in bytes of a command that moves data: at most MDTS (Base 5.1.13.2.1), inside the namespace.
fn check_transfer(sqe: &Sqe, config: &SubsystemConfig, namespace: &Namespace) -> Result<(u64, u32), Status> {
    let len = u64::from(sqe.blocks()) << namespace.block_size.shift();
    if len > u64::from(config.transfer_len_max) {
        return Err(Status::INVALID_FIELD.dnr());
    }
    let range = check_range(namespace, sqe.slba(), sqe.blocks())?;
    Ok((range.offset, range.len as u32))
}

/// Range of a Verify or Write Zeroes: at most VSL, WZSL (NVM 4.1.5.4), inside the namespace.
fn check_wide(sqe: &Sqe, namespace: &Namespace) -> Result<ByteRange, Status> {
    let len = u64::from(sqe.blocks()) << namespace.block_size.shift();
    if len > 4096 << WIDE_EXPONENT {
        return Err(Status::INVALID_FIELD.dnr());
    }
    check_range(namespace, sqe.slba(), sqe.blocks())
}

fn check_range(namespace: &Namespace, slba: u64, blocks: u32) -> Result<ByteRange, Status> {
    let end = slba.checked_add(blocks.into()).filter(|end| *end <= namespace.blocks);
    if end.is_none() {
        return Err(Status::LBA_OUT_OF_RANGE.dnr());
    }
    // A namespace has at most 2^63 bytes, so that nothing inside it can overflow.
    let shift = namespace.block_size.shift();
    Ok(ByteRange { offset: slba << shift, len: u64::from(blocks) << shift })
}

fn check_transfer_len(transfer: Transfer, config: &SubsystemConfig) -> Result<(), Status> {
    match transfer {
        Transfer::ToPool(len) | Transfer::ToHost(len) if len > config.transfer_len_max => {
            Err(Status::INVALID_FIELD.dnr())
        }
        _ => Ok(()),
    }
}

/// A copy from memory namespaces, whose medium is the embedder's: so is the whole command.
fn parse_copy_from_memory(
    sqe: &Sqe,
    config: &SubsystemConfig,
    namespace: &Namespace,
    all_command_sets: bool,
) -> Result<(Command, Transfer), Status> {
    if !all_command_sets {
        return Err(Status::INVALID_FIELD.dnr());
    }
    check_writable(namespace)?;
    if sqe.copy_ranges() > COPY_RANGES_MAX {
        return Err(Status::COMMAND_SIZE_LIMIT_EXCEEDED.dnr());
    }
    if sqe.slba() >= namespace.blocks {
        return Err(Status::LBA_OUT_OF_RANGE.dnr());
    }
    let transfer = Transfer::ToPool(sqe.copy_ranges() * size_of::<MemoryCopySource>() as u32);
    check_transfer_len(transfer, config)?;
    Ok((Command::Other { nsid: namespace.nsid, medium: namespace.medium, admin: false }, transfer))
}

fn parse_copy(sqe: &Sqe, namespace: &Namespace) -> Result<(Command, Transfer), Status> {
    let format = sqe.copy_format();
    if format >= 16 || COPY_FORMATS & 1 << format == 0 {
        return Err(Status::INVALID_FIELD.dnr());
    }
    if sqe.copy_ranges() > COPY_RANGES_MAX {
        return Err(Status::COMMAND_SIZE_LIMIT_EXCEEDED.dnr());
    }
    if sqe.slba() >= namespace.blocks {
        return Err(Status::LBA_OUT_OF_RANGE.dnr());
    }
    let offset = sqe.slba() << namespace.block_size.shift();
    let len = sqe.copy_ranges() * size_of::<CopySourceEntry>() as u32;
    Ok((Command::Io(Io::Copy { offset, format, fua: sqe.fua() }), Transfer::ToUs(len)))
}

/// Makes the request for the medium from a parsed command and its data. `None`: there is nothing to ask for, the command
/// has succeeded.
pub(super) fn request(
    sqe: &Sqe,
    io: &Io,
    len: u32,
    data: Option<BufferSlice>,
    parameters: &[u8],
    context: &Context<'_>,
) -> Result<Option<(MediumId, Operation)>, Status> {
    let durable = |fua: bool| fua || !context.write_cache;
    // The namespace may have gone, or changed, while the data was on its way.
    let current = context.namespaces.get(sqe.nsid()).ok_or(Status::INVALID_NAMESPACE_OR_FORMAT.dnr())?;
    // So may a reservation have been made.
    context.namespaces.exclusion(sqe.nsid()).check(use_of(sqe.opcode()))?;
    let same = |medium: MediumId| {
        if current.medium == medium { Ok(medium) } else { Err(Status::INVALID_NAMESPACE_OR_FORMAT.dnr()) }
    };
    let writes = !matches!(
        io,
        Io::Read { .. }
            | Io::Compare { .. }
            | Io::Flush { .. }
            | Io::Verify { .. }
            | Io::DatasetManagement { deallocate: false }
    );
    if writes {
        check_writable(current)?;
    }
    let inside = |offset: u64, len: u64| {
        let size = current.blocks << current.block_size.shift();
        if offset.checked_add(len).is_some_and(|end| end <= size) {
            Ok(())
        } else {
            Err(Status::LBA_OUT_OF_RANGE.dnr())
        }
    };
    Ok(Some(match *io {
        Io::Read { medium, offset, fua } => (same(medium)?, Operation::Read { offset, len, fua }),
        Io::Write { medium, offset, fua } => {
            inside(offset, len.into())?;
            let data = data.ok_or(Status::INTERNAL_ERROR)?;
            (same(medium)?, Operation::Write { offset, data, fua: durable(fua) })
        }
        Io::WriteDelta { medium, offset, len } => {
            inside(offset, len.into())?;
            let record = data.ok_or(Status::INTERNAL_ERROR)?;
            (same(medium)?, Operation::WriteDelta { offset, len, record })
        }
        Io::Compare { medium, offset } => {
            inside(offset, len.into())?;
            let data = data.ok_or(Status::INTERNAL_ERROR)?;
            (same(medium)?, Operation::Compare { offset, data })
        }
        Io::Flush { medium } => (same(medium)?, Operation::Flush),
        Io::WriteZeroes { medium, offset, len, fua, deallocate } => {
            let range = ByteRange { offset, len };
            (same(medium)?, Operation::WriteZeroes { range, fua: durable(fua), deallocate })
        }
        Io::Verify { medium, offset, len } => (same(medium)?, Operation::Verify { range: ByteRange { offset, len } }),
        Io::DatasetManagement { deallocate } => {
            let ranges = dsm_ranges(current, parameters)?;
            // All else that it can say are hints, and so is this one where blocks cannot be deallocated.
            if !deallocate || !current.deallocate || ranges.is_empty() {
                return Ok(None);
            }
            (current.medium, Operation::Deallocate { ranges })
        }
        Io::Copy { offset, format, fua } => {
            let sources = copy_sources(sqe, current, offset, format, parameters, context)?;
            (current.medium, Operation::Copy { sources, offset, fua: durable(fua) })
        }
    }))
}

/// The inputs of a request, besides the command.
pub(super) struct Context<'a> {
    pub(super) namespaces: &'a Namespaces,
    pub(super) write_cache: bool,
    pub(super) host_behavior: Option<HostBehavior>,
}

fn dsm_ranges(namespace: &Namespace, parameters: &[u8]) -> Result<Vec<ByteRange>, Status> {
    let entries = <[DsmRange]>::ref_from_bytes(parameters).map_err(|_| Status::INTERNAL_ERROR)?;
    let mut ranges = Vec::with_capacity(entries.len());
    for entry in entries.iter().filter(|entry| entry.blocks.get() > 0) {
        ranges.push(check_range(namespace, entry.slba.get(), entry.blocks.get())?);
    }
    Ok(ranges)
}

fn copy_sources(
    sqe: &Sqe,
    destination: &Namespace,
    offset: u64,
    format: u8,
    parameters: &[u8],
    context: &Context<'_>,
) -> Result<Vec<CopySource>, Status> {
    if !context.host_behavior.is_some_and(|behavior| behavior.copy_format(format)) {
        return Err(Status::INVALID_FIELD.dnr());
    }
    let entries = <[CopySourceEntry]>::ref_from_bytes(parameters).map_err(|_| Status::INTERNAL_ERROR)?;
    let mut sources = Vec::with_capacity(entries.len());
    let mut total = 0;
    for entry in entries {
        let nsid = if format == 0 { sqe.nsid() } else { entry.snsid.get() };
        let source = context.namespaces.get(nsid).ok_or(Status::INVALID_NAMESPACE_OR_FORMAT.dnr())?;
        if source.csi != CSI_NVM || source.block_size != destination.block_size {
            return Err(Status::INCOMPATIBLE_NAMESPACE_OR_FORMAT.dnr());
        }
        context.namespaces.exclusion(nsid).check(ReservedUse::Read)?;
        let range = check_range(source, entry.slba.get(), entry.blocks())?;
        total += range.len;
        sources.push(CopySource { nsid, medium: source.medium, range });
    }
    if total > COPY_LEN_MAX {
        return Err(Status::COMMAND_SIZE_LIMIT_EXCEEDED.dnr());
    }
    let size = destination.blocks << destination.block_size.shift();
    let end = offset + total;
    if end > size {
        return Err(Status::LBA_OUT_OF_RANGE.dnr());
    }
    let overlaps = |source: &CopySource| {
        source.nsid == destination.nsid && source.range.offset < end && offset < source.range.offset + source.range.len
    };
    if sources.iter().any(overlaps) {
        return Err(Status::OVERLAPPING_IO_RANGE.dnr());
    }
    Ok(sources)
}
