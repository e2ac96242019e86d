//! The context structures: what a program is given besides its input, output and arguments.
//!
//! Pointers are program-visible addresses. `size` is the structure's length, so that a program that
//! knows a longer structure can tell which members are there.

use zerocopy::little_endian::{I32, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// [`DsCall::flags`]: the first chunk of its source.
pub const FLAG_FIRST: u32 = 1;
/// [`DsCall::flags`]: the last chunk of its source.
pub const FLAG_LAST: u32 = 2;
/// [`DsCall::record_index`] and [`DsCall::source_len`] when not known.
pub const UNKNOWN: u64 = u64::MAX;
/// [`DsRange::perm`]: the program may read.
pub const PERM_READ: u32 = 1;
/// [`DsRange::perm`]: the program may write.
pub const PERM_WRITE: u32 = 2;
/// Bytes of a block of a kernel's result, for each of which [`DsKernel::mask`] has a bit.
pub const RESULT_BLOCK_LEN: usize = 4096;
/// Length of [`DsTraverse::next`].
pub const NEXT_MAX: usize = 16;

macro_rules! context {
    ($(#[$meta:meta])* $name:ident, $len:literal { $($(#[$field_meta:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
        }

        impl $name {
            /// Length in bytes.
            pub const LEN_BYTES: usize = $len;
            /// Its members and their offsets.
            pub const FIELDS: &'static [(&'static str, usize)] =
                &[$((stringify!($field), std::mem::offset_of!($name, $field)),)*];
        }

        const _: () = assert!(size_of::<$name>() == $len);
    };
}

context! {
    /// `struct ds_call`: the fifth parameter of `read` and `write`.
    DsCall, 56 {
        /// Length of the structure.
        size: U32,
        /// [`FLAG_FIRST`], [`FLAG_LAST`].
        flags: U32,
        /// Length of the arguments in bytes.
        args_len: U64,
        /// Length of the output region in bytes.
        out_cap: U64,
        /// Offset of the first input byte in its source.
        in_offset: U64,
        /// Index of the first record, when split at fixed records; else [`UNKNOWN`].
        record_index: U64,
        /// Length of the source, or [`UNKNOWN`].
        source_len: U64,
        /// Which source.
        source_index: U32,
        /// Which chunk of it.
        chunk_index: U32,
    }
}

context! {
    /// `struct ds_next`: a read that a traversal asks for.
    DsNext, 24 {
        /// Offset in the file, in bytes.
        offset: U64,
        /// Length in bytes.
        len: U64,
        /// Index of the file.
        file: U32,
        /// Echoed to the call that gets this read.
        cookie: U32,
    }
}

context! {
    /// `struct ds_traverse`: one hop of a traversal.
    DsTraverse, 464 {
        /// Length of the structure.
        size: U32,
        /// None is defined.
        flags: U32,
        /// What was read.
        data: U64,
        /// Its length in bytes.
        data_len: U64,
        /// Its offset in the file.
        offset: U64,
        /// Index of the file.
        file: U32,
        /// Number of this hop, from 0.
        hop: U32,
        /// As in the [`DsNext`] that asked.
        cookie: U32,
        /// Number of files.
        nfiles: U32,
        /// State that travels from hop to hop.
        scratch: U64,
        /// Its length in bytes.
        scratch_cap: U64,
        /// Written by the program: bytes of scratch that travel back.
        result_len: U64,
        /// Written by the program: how many of `next` count.
        nnext: U32,
        /// 0.
        rsvd: U32,
        /// Written by the program.
        next: [DsNext; NEXT_MAX],
    }
}

context! {
    /// `struct ds_kernel`: a function that does its own file I/O.
    DsKernel, 72 {
        /// Length of the structure.
        size: U32,
        /// None is defined.
        flags: U32,
        /// Arguments.
        args: U64,
        /// Their length in bytes.
        args_len: U64,
        /// Where the result goes.
        result: U64,
        /// Room for it in bytes.
        result_cap: U64,
        /// 0; what the program returns is the length of the result.
        result_len: U64,
        /// Which blocks of the result its host gets: bit `i % 8` of byte `i / 8` is block `i`. The program may change it.
        mask: U64,
        /// Its length in bytes: a bit for each block of the room for the result.
        mask_len: U64,
        /// Number of files.
        nfiles: U32,
        /// How many of them, the first, may only be read.
        nreadonly: U32,
    }
}

context! {
    /// `struct ds_range`: a memory range of a standard execution.
    DsRange, 24 {
        /// Its address.
        addr: U64,
        /// Its length in bytes.
        len: U64,
        /// [`PERM_READ`], [`PERM_WRITE`].
        perm: U32,
        /// The memory namespace.
        nsid: U32,
    }
}

context! {
    /// `struct ds_exec` of a standard execution; `nranges` times [`DsRange`] follow.
    DsExec, 40 {
        /// Length of the structure without the ranges.
        size: U32,
        /// Number of ranges that follow.
        nranges: U32,
        /// CPARAM1 of the command.
        cparam1: U64,
        /// CPARAM2 of the command.
        cparam2: U64,
        /// The data buffer, range 0.
        data: U64,
        /// Its length in bytes.
        data_len: U64,
    }
}

context! {
    /// `struct context` of lambda-IO.
    LambdaContext, 24 {
        /// Output.
        buf_o: U64,
        /// Input.
        buf_i: U64,
        /// Length of the input in bytes.
        size_i: U64,
    }
}

context! {
    /// `struct bpf_xrp` of XRP and BPF-oF.
    BpfXrp, 352 {
        /// What was read.
        data: U64,
        /// State that travels from hop to hop.
        scratch: U64,
        /// Written by the program: not 0 when the traversal is done.
        done: I32,
        /// 0.
        rsvd: U32,
        /// Written by the program: offsets to read next.
        next_addr: [U64; 16],
        /// Written by the program: lengths to read next; 0 ends the list.
        size: [U64; 16],
        /// Written by the program: the file of each read.
        fd_arr: [I32; 16],
        /// The file that was read.
        cur_fd: I32,
        /// 0.
        rsvd2: U32,
    }
}
