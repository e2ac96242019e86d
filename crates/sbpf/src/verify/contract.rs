//! What each kind promises to its programs.

use super::{Contract, Entry};
use crate::image::{Kind, Program};
use crate::region::{REGION_COUNT, RegionId};
use std::borrow::Cow;

/// The contract of a kind.
///
/// The context structures are those of the C header, with natural C alignment:
///
/// | structure | fields: offset |
/// |---|---|
/// | `ds_call` (56 bytes) | size 0, flags 4, args_len 8, out_cap 16, in_offset 24, record_index 32, source_len 40, source_index 48, chunk_index 52 |
/// | columns (64, then the structure of the program) | `ds_call` 0, from 64 on the structure, whose pointers go to a buffer each |
/// | `ds_traverse` (464) | size 0, flags 4, *data* 8, data_len 16, offset 24, file 32, hop 36, cookie 40, nfiles 44, *scratch* 48, scratch_cap 56, **result_len** 64, **nnext** 72, rsvd 76, **next\[16\]** 80, of 24 bytes each: offset 0, len 8, file 16, cookie 20 |
/// | `ds_kernel` (72) | size 0, flags 4, *args* 8, args_len 16, *result* 24, result_cap 32, **result_len** 40, *mask* 48, mask_len 56, nfiles 64, nreadonly 68 |
/// | `ds_exec` (40, then ranges) | size 0, nranges 4, cparam1 8, cparam2 16, *data* 24, data_len 32, range\[nranges\] 40, of 24 bytes each: addr 0, len 8, perm 16, nsid 20 |
/// | `context` of lambda-IO (24) | *buf_o* 0, *buf_i* 8, size_i 16 |
/// | `bpf_xrp` (352) | *data* 0, *scratch* 8, **done** 16, **next_addr\[16\]** 24, **size\[16\]** 152, **fd_arr\[16\]** 280, cur_fd 344 |
///
/// Fields in italics hold pointers, those in bold may be written. All others are read-only.
#[must_use]
pub fn contract(kind: Kind) -> &'static Contract {
    match kind {
        Kind::Read | Kind::Write => &READ,
        Kind::Combine => &COMBINE,
        Kind::Columns => &COLUMNS,
        Kind::Traverse => &TRAVERSE,
        Kind::Kernel => &KERNEL,
        Kind::Exec => &EXEC,
        Kind::Lambda => &LAMBDA,
        Kind::LambdaIo => &LAMBDA_IO,
        Kind::Xrp => &XRP,
        Kind::Delilah => &DELILAH,
        Kind::Raw => &RAW,
    }
}

/// The contract of a program: that of its kind, and what its own types add.
#[must_use]
pub fn contract_of(program: &Program) -> Contract {
    let mut contract = contract(program.kind).clone();
    if let Some(columns) = &program.columns {
        let buffers = (RegionId::RANGE_FIRST.0..).map(RegionId);
        contract.context_len += columns.len_bytes;
        contract.context_pointers = columns.pointers().map(|at| COLUMNS_AT + at).zip(buffers).collect();
    }
    contract
}

impl Contract {
    /// Whether a program of this kind may write the region.
    #[must_use]
    pub fn may_write(&self, region: RegionId) -> bool {
        matches!(region, RegionId::STACK | RegionId::DATA | RegionId::HEAP | RegionId::STATE)
            || self.writable.contains(&region)
    }

    /// The region that a context field points to, when it is a pointer.
    #[must_use]
    pub(super) fn pointer_at(&self, offset: u32) -> Option<RegionId> {
        self.context_pointers.iter().find(|p| p.0 == offset).map(|p| p.1)
    }
}

const OUT: Entry = Entry::Region(RegionId::OUTPUT);
const IN: Entry = Entry::Region(RegionId::INPUT);
const CONTEXT: Entry = Entry::Region(RegionId::CONTEXT);
const NUMBER: Entry = Entry::Scalar;
const NONE: Entry = Entry::Uninit;

/// A contract that promises nothing, to be filled in.
const EMPTY: Contract = Contract {
    params: [NONE; 5],
    context_len: 0,
    context_pointers: Cow::Borrowed(&[]),
    context_writable: &[],
    writable: &[],
};

static READ: Contract = Contract {
    params: [OUT, IN, NUMBER, Entry::Region(RegionId::ARGS), CONTEXT],
    context_len: 56,
    writable: &[RegionId::OUTPUT],
    ..EMPTY
};

/// Where the structure with the columns is in the context: behind `ds_call`.
pub const COLUMNS_AT: u32 = 64;

static COLUMNS: Contract = Contract {
    params: [OUT, Entry::Context(COLUMNS_AT), NUMBER, Entry::Region(RegionId::ARGS), CONTEXT],
    context_len: COLUMNS_AT,
    writable: &[RegionId::OUTPUT],
    ..EMPTY
};

static COMBINE: Contract = Contract {
    params: [Entry::Region(RegionId::ACCUMULATOR), NUMBER, NUMBER, IN, NUMBER],
    writable: &[RegionId::ACCUMULATOR],
    ..EMPTY
};

static TRAVERSE: Contract = Contract {
    params: [CONTEXT, NONE, NONE, NONE, NONE],
    context_len: 464,
    context_pointers: Cow::Borrowed(&[(8, RegionId::INPUT), (48, RegionId::SCRATCH)]),
    context_writable: &[(64, 76), (80, 464)],
    writable: &[RegionId::SCRATCH],
};

static KERNEL: Contract = Contract {
    params: [CONTEXT, Entry::Region(RegionId::ARGS), OUT, NONE, NONE],
    context_len: 72,
    context_pointers: Cow::Borrowed(&[(8, RegionId::ARGS), (24, RegionId::OUTPUT), (48, RegionId::SCRATCH)]),
    context_writable: &[(40, 48)],
    writable: &[RegionId::OUTPUT, RegionId::SCRATCH],
};

static EXEC: Contract = Contract {
    params: [CONTEXT, NONE, NONE, NONE, NONE],
    context_len: 40,
    context_pointers: Cow::Borrowed(&[(24, RegionId::RANGE_FIRST)]),
    writable: &RANGES,
    ..EMPTY
};

static LAMBDA: Contract = Contract { params: [OUT, IN, NUMBER, NONE, NONE], writable: &[RegionId::OUTPUT], ..EMPTY };

static LAMBDA_IO: Contract = Contract {
    params: [CONTEXT, NONE, NONE, NONE, NONE],
    context_len: 24,
    context_pointers: Cow::Borrowed(&[(0, RegionId::OUTPUT), (8, RegionId::INPUT)]),
    writable: &[RegionId::OUTPUT],
    ..EMPTY
};

static XRP: Contract = Contract {
    params: [CONTEXT, NONE, NONE, NONE, NONE],
    context_len: 352,
    context_pointers: Cow::Borrowed(&[(0, RegionId::INPUT), (8, RegionId::SCRATCH)]),
    context_writable: &[(16, 20), (24, 344)],
    writable: &[RegionId::SCRATCH],
};

static DELILAH: Contract = Contract {
    params: [Entry::Region(RegionId::RANGE_FIRST), NUMBER, Entry::Region(RegionId::STATE), NUMBER, NONE],
    writable: &[RegionId::RANGE_FIRST],
    ..EMPTY
};

static RAW: Contract = Contract { params: [IN, NUMBER, NONE, NONE, NONE], writable: &[RegionId::INPUT], ..EMPTY };

/// Every memory range. Which of them are writable is decided when they are mapped.
static RANGES: [RegionId; REGION_COUNT - RegionId::RANGE_FIRST.0 as usize] = {
    let mut ranges = [RegionId::RANGE_FIRST; REGION_COUNT - RegionId::RANGE_FIRST.0 as usize];
    let mut i = 0;
    while i < ranges.len() {
        ranges[i] = RegionId(RegionId::RANGE_FIRST.0 + i as u8);
        i += 1;
    }
    ranges
};
