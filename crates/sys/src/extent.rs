//! Where a file's bytes are on its device.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::ops::{BitOr, Range};
use std::os::fd::{AsFd, AsRawFd};

use crate::checked;

/// A run of a file's bytes that lies in one piece on the device, as the file system tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First byte in the file.
    pub logical: u64,
    /// First byte on the device that the file system is on.
    pub physical: u64,
    /// Length in bytes; may reach past the end of the file.
    pub len: u64,
    /// What else is said of it.
    pub flags: ExtentFlags,
}

/// `FIEMAP_EXTENT_*`.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct ExtentFlags(u32);

impl ExtentFlags {
    /// The last extent of the file.
    pub const LAST: Self = Self(0x1);
    /// Its place is not known.
    pub const UNKNOWN: Self = Self(0x2);
    /// It has no place yet: allocation is delayed.
    pub const DELALLOC: Self = Self(0x4);
    /// It cannot be read as it is while the file system is mounted: compressed or encrypted.
    pub const ENCODED: Self = Self(0x8);
    /// Encrypted.
    pub const DATA_ENCRYPTED: Self = Self(0x80);
    /// Its place is not a multiple of the block size.
    pub const NOT_ALIGNED: Self = Self(0x100);
    /// In the inode.
    pub const DATA_INLINE: Self = Self(0x200);
    /// Packed with bytes of other files.
    pub const DATA_TAIL: Self = Self(0x400);
    /// Allocated, but reads as zeroes.
    pub const UNWRITTEN: Self = Self(0x800);
    /// Put together from blocks: the file system has no extents.
    pub const MERGED: Self = Self(0x1000);
    /// Other files have it too.
    pub const SHARED: Self = Self(0x2000);

    const NAMES: [(Self, &'static str); 11] = [
        (Self::LAST, "LAST"),
        (Self::UNKNOWN, "UNKNOWN"),
        (Self::DELALLOC, "DELALLOC"),
        (Self::ENCODED, "ENCODED"),
        (Self::DATA_ENCRYPTED, "DATA_ENCRYPTED"),
        (Self::NOT_ALIGNED, "NOT_ALIGNED"),
        (Self::DATA_INLINE, "DATA_INLINE"),
        (Self::DATA_TAIL, "DATA_TAIL"),
        (Self::UNWRITTEN, "UNWRITTEN"),
        (Self::MERGED, "MERGED"),
        (Self::SHARED, "SHARED"),
    ];

    /// The flags of a number.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The number.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether all of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any of `other` is set.
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// These without `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl BitOr for ExtentFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Display for ExtentFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = *self;
        let mut separator = "";
        for (flag, name) in Self::NAMES {
            if self.contains(flag) {
                write!(f, "{separator}{name}")?;
                (separator, rest) = ("|", rest.without(flag));
            }
        }
        if rest.0 != 0 || self.0 == 0 {
            write!(f, "{separator}{:#x}", rest.0)?;
        }
        Ok(())
    }
}

impl fmt::Debug for ExtentFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// How much of the range was reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// All of it: what no extent covers is a hole, or past the end of the file.
    All,
    /// There are more extents than were asked for.
    Part,
}

/// Appends the extents that touch `range` to `found`, in order, but no more than `extents_max` in all.
///
/// With `sync` the file's dirty pages are written out first: those of the whole file, whatever the range is.
///
/// A file with many extents is asked about in several steps. Between them the file may change, unless a lease keeps
/// others from it.
///
/// # Errors
/// `EOPNOTSUPP` where the file system does not tell; `ENOTTY` where the file has no extents (a pipe, a device).
pub fn extents(
    file: impl AsFd,
    range: Range<u64>,
    sync: bool,
    extents_max: usize,
    found: &mut Vec<Extent>,
) -> io::Result<Told> {
    let file = file.as_fd();
    let mut start = range.start;
    while start < range.end {
        let mut request = Request {
            start,
            len: range.end - start,
            flags: if sync { FLAG_SYNC } else { 0 },
            mapped: 0,
            slots: SLOTS as u32,
            reserved: 0,
            extents: [MaybeUninit::uninit(); SLOTS],
        };
        // SAFETY: FS_IOC_FIEMAP reads the header and writes it and at most `slots` extents behind it, which is the
        // size of `Request`; the borrowed descriptor is open.
        checked(unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &raw mut request) })?;
        let mapped = (request.mapped as usize).min(SLOTS);
        for raw in &request.extents[..mapped] {
            // SAFETY: the kernel wrote the first `mapped` extents whole; any bytes are a valid `RawExtent`.
            let raw = unsafe { raw.assume_init() };
            if found.len() == extents_max {
                return Ok(Told::Part);
            }
            let extent = raw.extent();
            found.push(extent);
            start = extent.logical.saturating_add(extent.len);
            if extent.flags.contains(ExtentFlags::LAST) {
                return Ok(Told::All);
            }
        }
        if mapped < SLOTS {
            break;
        }
    }
    Ok(Told::All)
}

/// Has the file system read where all of a file is, so that who asks for its bytes does not wait for that: `RWF_NOWAIT` and rings do
/// not keep ext4 from it. Nothing happens where the file system takes no such wish, or the file has no extents.
pub fn learn_places(file: impl AsFd) {
    let mut request = Request {
        start: 0,
        len: u64::MAX,
        flags: FLAG_CACHE,
        mapped: 0,
        slots: 0,
        reserved: 0,
        extents: [MaybeUninit::uninit(); SLOTS],
    };
    for flags in [FLAG_CACHE, 0] {
        request.flags = flags;
        // SAFETY: as in `extents`; without slots the kernel counts them and writes the header alone.
        if checked(unsafe { libc::ioctl(file.as_fd().as_raw_fd(), FS_IOC_FIEMAP, &raw mut request) }).is_ok() {
            return;
        }
    }
}

const FS_IOC_FIEMAP: libc::Ioctl = 0xc020_660b;
const FLAG_SYNC: u32 = 1;
const FLAG_CACHE: u32 = 4;
/// Extents asked for at a time: most files have fewer.
const SLOTS: usize = 32;

/// `struct fiemap` with its extents.
#[repr(C)]
struct Request {
    start: u64,
    len: u64,
    flags: u32,
    mapped: u32,
    slots: u32,
    reserved: u32,
    extents: [MaybeUninit<RawExtent>; SLOTS],
}

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawExtent {
    logical: u64,
    physical: u64,
    len: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

const _: () = assert!(size_of::<RawExtent>() == 56 && size_of::<Request>() == 32 + SLOTS * 56);

impl RawExtent {
    fn extent(&self) -> Extent {
        let Self { logical, physical, len, flags, .. } = *self;
        Extent { logical, physical, len, flags: ExtentFlags(flags) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_print_by_name() {
        assert_eq!((ExtentFlags::SHARED | ExtentFlags::LAST).to_string(), "LAST|SHARED");
        assert_eq!(ExtentFlags::from_bits(0x8_0800).to_string(), "UNWRITTEN|0x80000");
        assert_eq!(ExtentFlags::default().to_string(), "0x0");
    }
}
