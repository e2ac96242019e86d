//! Subsystem Local Memory, and what Computational Programs do with it: memory commands, memory range sets, Execute
//! Program, and the log pages that tell of them.
//!
//! The ratified documents of these command sets were not at hand. Where a value rests on one open implementation, or is
//! ours because none is published, its comment says so: `docs/standard.md` lists them all.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::command::Sqe;

/// I/O commands of a memory namespace. From one source; all obey the rule that the low two bits are the direction.
pub mod memory_opcode {
    /// Memory Copy: the data is a list of [`MemoryCopySource`](super::MemoryCopySource)s or NVM copy sources.
    pub const COPY: u8 = 0x01;
    /// Memory Read.
    pub const READ: u8 = 0x02;
    /// Memory Fill, with zeroes.
    pub const FILL: u8 = 0x04;
    /// Memory Write.
    pub const WRITE: u8 = 0x05;
    /// All of them.
    pub const ALL: [u8; 4] = [COPY, READ, FILL, WRITE];
}

/// Memory Range Set Management, an admin command of the compute namespace.
pub const RANGE_SET_MANAGEMENT: u8 = 0x89;

/// Execute Program, an I/O command of the compute namespace.
pub const EXECUTE_PROGRAM: u8 = 0x01;

/// Descriptor format of copies whose sources are bytes of a memory namespace.
pub const COPY_FORMAT_MEMORY: u8 = 4;

/// Log pages of the compute namespace and of reachability.
pub mod memory_log {
    /// Reachability Groups.
    pub const REACHABILITY_GROUPS: u8 = 0x1a;
    /// Reachability Associations.
    pub const REACHABILITY_ASSOCIATIONS: u8 = 0x1b;
    /// Program List.
    pub const PROGRAMS: u8 = 0x82;
    /// Downloadable Program Types List. The number is from one source.
    pub const PROGRAM_TYPES: u8 = 0x83;
    /// Memory Range Set List. The number is from one source.
    pub const RANGE_SETS: u8 = 0x84;
}

/// The parameters of Execute Program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Execution {
    /// Program index.
    pub pind: u16,
    /// Memory range set; 0: none.
    pub rsid: u16,
    /// Memory ranges at the start of the data.
    pub ranges: u32,
    /// Bytes of data, ranges included. Linux passes no such field on: a 0 with data means all of the data.
    pub data_len: u32,
    /// First parameter of the program.
    pub cparam1: u64,
    /// Second parameter of the program.
    pub cparam2: u64,
}

impl Sqe {
    /// Memory Read of `len` bytes at `start`.
    pub fn memory_read(nsid: u32, start: u64, len: u32) -> Self {
        Self::new(memory_opcode::READ, nsid).with_qword(10, start).with_dword(12, len)
    }

    /// Memory Write of `len` bytes at `start`.
    pub fn memory_write(nsid: u32, start: u64, len: u32) -> Self {
        Self::new(memory_opcode::WRITE, nsid).with_qword(10, start).with_dword(12, len)
    }

    /// Memory Fill of `len` bytes at `start` with zeroes.
    pub fn memory_fill(nsid: u32, start: u64, len: u32) -> Self {
        Self::new(memory_opcode::FILL, nsid).with_qword(10, start).with_dword(12, len)
    }

    /// Memory Copy of `len` bytes in all to `start`, from `ranges` (1 to 256) sources of this descriptor format.
    pub fn memory_copy(nsid: u32, start: u64, len: u64, ranges: u32, format: u8) -> Self {
        debug_assert!((1..=256).contains(&ranges), "1 to 256 ranges");
        Self::new(memory_opcode::COPY, nsid)
            .with_qword(2, len)
            .with_qword(10, start)
            .with_bits(12, 0, 8, ranges.wrapping_sub(1))
            .with_bits(12, 8, 4, format.into())
    }

    /// Memory Range Set Management: create a set of the `ranges` (1 to 255) in the data.
    pub fn create_range_set(nsid: u32, ranges: u8) -> Self {
        Self::new(RANGE_SET_MANAGEMENT, nsid).with_bits(11, 0, 8, ranges.into())
    }

    /// Memory Range Set Management: delete a set.
    pub fn delete_range_set(nsid: u32, rsid: u16) -> Self {
        Self::new(RANGE_SET_MANAGEMENT, nsid).with_bits(10, 0, 4, 1).with_bits(10, 16, 16, rsid.into())
    }

    /// Execute Program.
    pub fn execute_program(nsid: u32, execution: &Execution) -> Self {
        Self::new(EXECUTE_PROGRAM, nsid)
            .with_bits(2, 0, 16, execution.pind.into())
            .with_bits(2, 16, 16, execution.rsid.into())
            .with_dword(3, execution.ranges)
            .with_dword4(execution.data_len)
            .with_qword(10, execution.cparam1)
            .with_qword(12, execution.cparam2)
    }

    /// SB of Memory Read, Write and Fill, SDADDR of Memory Copy (dwords 10 and 11): first byte.
    pub const fn memory_start(&self) -> u64 {
        self.qword(10)
    }

    /// LEN of Memory Read, Write and Fill (dword 12), not 0's based.
    pub const fn memory_len(&self) -> u32 {
        self.dword(12)
    }

    /// LEN of Memory Copy (dwords 2 and 3).
    pub const fn memory_copy_len(&self) -> u64 {
        self.qword(2)
    }

    /// SEL of Memory Range Set Management (dword 10 bits 3:0): 0 create, 1 delete. The values are from one source.
    pub const fn range_set_select(&self) -> u32 {
        self.bits(10, 0, 4)
    }

    /// RSID of Memory Range Set Management (dword 10 bits 31:16).
    pub const fn range_set_id(&self) -> u16 {
        self.bits(10, 16, 16) as u16
    }

    /// NUMR of Memory Range Set Management (dword 11 bits 7:0), not 0's based.
    pub const fn range_set_len(&self) -> u8 {
        self.bits(11, 0, 8) as u8
    }

    /// The fields of Execute Program.
    pub const fn execution(&self) -> Execution {
        Execution {
            pind: self.bits(2, 0, 16) as u16,
            rsid: self.bits(2, 16, 16) as u16,
            ranges: self.dword(3),
            data_len: self.dword4(),
            cparam1: self.qword(10),
            cparam2: self.qword(12),
        }
    }
}

/// A range of a memory namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct MemoryRange {
    /// MNSID: the memory namespace.
    pub nsid: U32,
    /// LEN: length in bytes.
    pub len: U32,
    /// SB: first byte.
    pub start: U64,
    reserved: [u8; 16],
}
const _: () = assert!(size_of::<MemoryRange>() == 32);

impl MemoryRange {
    /// A range.
    pub const fn new(nsid: u32, start: u64, len: u32) -> Self {
        Self { nsid: U32::new(nsid), len: U32::new(len), start: U64::new(start), reserved: [0; 16] }
    }
}

/// A source of a copy in descriptor format 4h: bytes of a memory namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct MemoryCopySource {
    /// SNSID: the memory namespace.
    pub nsid: U32,
    reserved4: [u8; 4],
    /// SADDR: first byte.
    pub start: U64,
    /// NBYTE: length in bytes.
    pub len: U32,
    reserved20: [u8; 2],
    options: U16,
    reserved24: [u8; 8],
}
const _: () = assert!(size_of::<MemoryCopySource>() == 32);

impl MemoryCopySource {
    /// A source.
    pub const fn new(nsid: u32, start: u64, len: u32) -> Self {
        Self {
            nsid: U32::new(nsid),
            reserved4: [0; 4],
            start: U64::new(start),
            len: U32::new(len),
            reserved20: [0; 2],
            options: U16::ZERO,
            reserved24: [0; 8],
        }
    }

    /// FCO (SOPT bit 15): only a fast copy is wanted.
    pub const fn fast_only(&self) -> bool {
        self.options.get() & 1 << 15 != 0
    }

    /// Sets FCO.
    #[must_use]
    pub const fn with_fast_only(mut self) -> Self {
        self.options = U16::new(self.options.get() | 1 << 15);
        self
    }
}

/// Identify Namespace of the compute command set (CNS 05h, CSI 04h). From one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ComputeNamespace {
    /// MAXACT: programs that can be active.
    pub programs_active_max: U16,
    /// MAXMEMRS: memory range sets.
    pub range_sets_max: U16,
    /// MRSG: ranges start and end at multiples of 2 to this power bytes.
    pub range_granularity_exponent: U16,
    /// MAXMEMR: ranges of one set, or of one Execute Program.
    pub ranges_max: u8,
    reserved7: u8,
    /// MAXPB: MiB of all downloaded programs.
    pub program_mib_max: U64,
    /// LPG: programs are loaded in multiples of 2 to this power bytes.
    pub load_granularity_exponent: u8,
}

/// Identify Namespace of the memory command set (CNS 05h, CSI 03h). No source publishes this layout: it is ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct MemoryNamespace {
    /// Size in bytes.
    pub size: U64,
    /// Starts and lengths of commands are multiples of 2 to this power bytes.
    pub granularity_exponent: u8,
    reserved9: [u8; 7],
    /// Sources of one Memory Copy.
    pub copy_ranges_max: U16,
}

/// One program of the Program List (LID 82h): which stands at its index. From one source; the page begins with a
/// record of the same size, whose first dword is their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ProgramDescriptor {
    state: u8,
    /// PTYPE.
    pub program_type: u8,
    reserved2: [u8; 6],
    /// PID.
    pub puid: U64,
    reserved16: [u8; 48],
}
const _: () = assert!(size_of::<ProgramDescriptor>() == 64);

/// The party that put a program into its place of the list (PEOCC).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ProgramOccupancy {
    /// Nobody: there is none.
    Empty = 0,
    /// A host.
    Downloaded = 1,
    /// The device.
    DeviceDefined = 2,
}

impl ProgramDescriptor {
    /// An empty place.
    pub fn empty() -> Self {
        Self::new_zeroed()
    }

    /// A program.
    pub fn new(occupancy: ProgramOccupancy, active: bool, program_type: u8, puid: Option<u64>) -> Self {
        let state = occupancy as u8 | u8::from(active) << 2 | u8::from(puid.is_some()) << 3;
        Self { state, program_type, puid: puid.unwrap_or(0).into(), ..Self::empty() }
    }

    /// PEOCC (bits 1:0); `None`: a reserved value.
    pub const fn occupancy(&self) -> Option<ProgramOccupancy> {
        match self.state & 3 {
            0 => Some(ProgramOccupancy::Empty),
            1 => Some(ProgramOccupancy::Downloaded),
            2 => Some(ProgramOccupancy::DeviceDefined),
            _ => None,
        }
    }

    /// ACT (bit 2).
    pub const fn is_active(&self) -> bool {
        self.state & 4 != 0
    }

    /// The whole page.
    pub fn page(programs: impl Iterator<Item = Self>) -> Vec<u8> {
        let mut page = vec![0; size_of::<Self>()];
        let mut count = 0_u32;
        for program in programs {
            page.extend_from_slice(program.as_bytes());
            count += 1;
        }
        page[..4].copy_from_slice(&count.to_le_bytes());
        page
    }
}

/// The Downloadable Program Types List (LID 83h). No source publishes this layout: a record of 16 bytes that begins with
/// the number of types, then one of 16 bytes for each that begins with the type.
pub fn program_types_page(types: &[u8]) -> Vec<u8> {
    let mut page = vec![0; 16 * (types.len() + 1)];
    page[..4].copy_from_slice(&(types.len() as u32).to_le_bytes());
    for (record, program_type) in page.chunks_exact_mut(16).skip(1).zip(types) {
        record[0] = *program_type;
    }
    page
}

/// The Memory Range Set List (LID 84h). No source publishes this layout: a record of 32 bytes that begins with the
/// number of sets; then for each set a record of 32 bytes, 0 RSID u16, 2 number of ranges u16, and its ranges.
pub fn range_sets_page<'a>(sets: impl Iterator<Item = (u16, &'a [MemoryRange])>) -> Vec<u8> {
    let mut page = vec![0; 32];
    let mut count = 0_u32;
    for (rsid, ranges) in sets {
        let mut record = [0; 32];
        record[..2].copy_from_slice(&rsid.to_le_bytes());
        record[2..4].copy_from_slice(&(ranges.len() as u16).to_le_bytes());
        page.extend_from_slice(&record);
        page.extend_from_slice(ranges.as_bytes());
        count += 1;
    }
    page[..4].copy_from_slice(&count.to_le_bytes());
    page
}

/// A page of Reachability Groups (LID 1Ah: identifiers of namespaces) or Reachability Associations (LID 1Bh: of groups),
/// whose records have one form.
pub fn reachability_page(change_count: u64, records: &[(u32, &[u32])]) -> Vec<u8> {
    let mut page = change_count.to_le_bytes().to_vec();
    page.extend_from_slice(&(records.len() as u16).to_le_bytes());
    page.resize(16, 0);
    for (id, members) in records {
        page.extend_from_slice(&id.to_le_bytes());
        page.extend_from_slice(&(members.len() as u32).to_le_bytes());
        page.extend_from_slice(&change_count.to_le_bytes());
        page.extend_from_slice(&[0; 16]);
        members.iter().for_each(|member| page.extend_from_slice(&member.to_le_bytes()));
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    /// Bytes of a command that are not those of an empty one.
    fn changed(sqe: Sqe) -> Vec<(usize, u8)> {
        let blank = Sqe::new(sqe.opcode(), 0);
        let pairs = blank.as_bytes().iter().zip(sqe.as_bytes()).enumerate();
        pairs.filter(|(_, (a, b))| a != b).map(|(at, (_, byte))| (at, *byte)).collect()
    }

    #[test]
    fn fields_of_commands_stand_where_they_belong() {
        let range = [(40, 1), (41, 2), (48, 3), (49, 4)];
        for (sqe, opcode) in [
            (Sqe::memory_read(0, 0x0201, 0x0403), 2),
            (Sqe::memory_write(0, 0x0201, 0x0403), 5),
            (Sqe::memory_fill(0, 0x0201, 0x0403), 4),
        ] {
            assert_eq!((sqe.opcode(), changed(sqe)), (opcode, range.to_vec()));
            assert_eq!((sqe.memory_start(), sqe.memory_len()), (0x0201, 0x0403));
        }
        let copy = Sqe::memory_copy(0, 0x0201, 0x0403_0000_0000, 256, 4);
        assert_eq!((copy.opcode(), changed(copy)), (1, vec![(12, 3), (13, 4), (40, 1), (41, 2), (48, 0xff), (49, 4)]));
        assert_eq!((copy.memory_copy_len(), copy.memory_start()), (0x0403_0000_0000, 0x0201));
        assert_eq!((copy.copy_ranges(), copy.copy_format()), (256, 4));
        let create = Sqe::create_range_set(0, 9);
        assert_eq!((create.opcode(), changed(create)), (0x89, vec![(44, 9)]));
        assert_eq!((create.range_set_select(), create.range_set_len()), (0, 9));
        let delete = Sqe::delete_range_set(0, 0x0201);
        assert_eq!((delete.opcode(), changed(delete)), (0x89, vec![(40, 1), (42, 1), (43, 2)]));
        assert_eq!((delete.range_set_select(), delete.range_set_id()), (1, 0x0201));
        let execution = Execution {
            pind: 0x0201,
            rsid: 0x0403,
            ranges: 5,
            data_len: 6,
            cparam1: 7,
            cparam2: 0x0800_0000_0000_0000,
        };
        let execute = Sqe::execute_program(0, &execution);
        let want = vec![(8, 1), (9, 2), (10, 3), (11, 4), (12, 5), (16, 6), (40, 7), (55, 8)];
        assert_eq!((execute.opcode(), changed(execute)), (1, want));
        assert_eq!(execute.execution(), execution);
    }

    #[test]
    fn structures_are_byte_exact() {
        assert_eq!(MemoryRange::new(0x0201, 0x0403, 0x0605).as_bytes()[..10], [1, 2, 0, 0, 5, 6, 0, 0, 3, 4]);
        let source = MemoryCopySource::new(0x0201, 0x0403, 0x0605).with_fast_only();
        let mut want = [0; 32];
        (want[0], want[1], want[8], want[9], want[16], want[17], want[23]) = (1, 2, 3, 4, 5, 6, 0x80);
        assert_eq!(source.as_bytes(), want);
        assert!(source.fast_only());
        assert_eq!(
            [
                offset_of!(ComputeNamespace, range_sets_max),
                offset_of!(ComputeNamespace, range_granularity_exponent),
                offset_of!(ComputeNamespace, ranges_max),
                offset_of!(ComputeNamespace, program_mib_max),
                offset_of!(ComputeNamespace, load_granularity_exponent),
                offset_of!(MemoryNamespace, granularity_exponent),
                offset_of!(MemoryNamespace, copy_ranges_max),
            ],
            [2, 4, 6, 8, 16, 8, 16]
        );
        let program = ProgramDescriptor::new(ProgramOccupancy::DeviceDefined, true, 0xc0, Some(0x0201));
        assert_eq!(program.as_bytes()[..10], [0b1110, 0xc0, 0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!((program.occupancy(), program.is_active()), (Some(ProgramOccupancy::DeviceDefined), true));
        let page = ProgramDescriptor::page([ProgramDescriptor::empty(), program].into_iter());
        assert_eq!(
            (page.len(), &page[..4], &page[64..66], &page[128..130]),
            (192, &[2, 0, 0, 0][..], &[0, 0][..], &[0b1110, 0xc0][..])
        );
    }

    #[test]
    fn pages_are_byte_exact() {
        let page = program_types_page(&[0xc0]);
        assert_eq!((page.len(), page[0], page[16]), (32, 1, 0xc0));
        let range = MemoryRange::new(3, 64, 128);
        let page = range_sets_page([(0x0201, &[range][..])].into_iter());
        assert_eq!((page.len(), page[0], &page[32..36]), (96, 1, &[1, 2, 1, 0][..]));
        assert_eq!(page[64..96], *range.as_bytes());
        let page = reachability_page(9, &[(1, &[5, 6]), (2, &[])]);
        assert_eq!(page.len(), 16 + 40 + 32);
        assert_eq!((page[0], page[8], page[16], page[20], page[24], page[48], page[52]), (9, 2, 1, 2, 9, 5, 6));
        assert_eq!((page[56], page[60]), (2, 0));
    }
}
