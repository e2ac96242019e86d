//! The interface of a Diskside program: the C header and its layout-checked Rust mirror.
//!
//! Authors include `diskside.h` (and `lambda_io.h`, `xrp.h` or `delilah.h` for sources of other
//! systems). A host fills the structures of [`context`] and maps them for a program. Both describe
//! one layout: little-endian, naturally aligned, without holes.

#![forbid(unsafe_code)]

pub mod context;
pub mod filter;

/// Version of the program ABI, as in the note that `diskside.h` puts into each object.
pub const ABI_VERSION: u32 = 1;

/// A header file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// File name, as in `#include`.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

/// All headers that authors may include. They include one another by name, so they belong into one
/// directory; those of the library into `diskside` below it.
pub const HEADERS: [Header; 14] = [
    Header { name: "diskside.h", text: include_str!("../include/diskside.h") },
    Header { name: "diskside_native.h", text: include_str!("../include/diskside_native.h") },
    Header { name: "lambda_io.h", text: include_str!("../include/lambda_io.h") },
    Header { name: "xrp.h", text: include_str!("../include/xrp.h") },
    Header { name: "delilah.h", text: include_str!("../include/delilah.h") },
    Header { name: "isp_agent.h", text: include_str!("../include/isp_agent.h") },
    Header { name: "diskside/bits.h", text: include_str!("../include/diskside/bits.h") },
    Header { name: "diskside/groups.h", text: include_str!("../include/diskside/groups.h") },
    Header { name: "diskside/math.h", text: include_str!("../include/diskside/math.h") },
    Header { name: "diskside/sketch.h", text: include_str!("../include/diskside/sketch.h") },
    Header { name: "diskside/sort.h", text: include_str!("../include/diskside/sort.h") },
    Header { name: "diskside/tables.h", text: include_str!("../include/diskside/tables.h") },
    Header { name: "diskside/text.h", text: include_str!("../include/diskside/text.h") },
    Header { name: "diskside/topk.h", text: include_str!("../include/diskside/topk.h") },
];

/// Error numbers that programs return, negated (`DS_E…` in the header). Any other negative value is
/// an error of the program's own.
#[must_use]
pub const fn error_name(value: i64) -> Option<&'static str> {
    Some(match value {
        -2 => "DS_ENOENT",
        -5 => "DS_EIO",
        -7 => "DS_E2BIG",
        -9 => "DS_EBADF",
        -11 => "DS_EAGAIN",
        -12 => "DS_ENOMEM",
        -13 => "DS_EACCES",
        -22 => "DS_EINVAL",
        -28 => "DS_ENOSPC",
        -30 => "DS_EROFS",
        -34 => "DS_ERANGE",
        -74 => "DS_EBADMSG",
        -75 => "DS_EOVERFLOW",
        -116 => "DS_ESTALE",
        _ => return None,
    })
}
