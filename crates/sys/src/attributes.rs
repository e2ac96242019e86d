//! What kind of file an open file is, and on which file system.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::fstatfs;

use crate::checked;

/// The file systems with behaviour of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// ext4; ext2 and ext3 have the same magic number.
    Ext4,
    /// XFS.
    Xfs,
    /// Any other, by its magic number (`statfs(2)`).
    Other(u64),
}

/// The file system that a file is on.
///
/// # Errors
/// Those of `fstatfs`.
pub fn file_system(file: impl AsFd) -> io::Result<FileSystem> {
    let magic = fstatfs(file)?.f_type as u64;
    Ok(match magic & 0xffff_ffff {
        0xef53 => FileSystem::Ext4,
        0x5846_5342 => FileSystem::Xfs,
        other => FileSystem::Other(other),
    })
}

/// Whether the file system is one whose reads and writes wait for another process or machine already while they are begun.
///
/// # Errors
/// Those of `fstatfs`.
pub fn is_remote(file: impl AsFd) -> io::Result<bool> {
    let FileSystem::Other(magic) = file_system(file)? else { return Ok(false) };
    Ok(REMOTE.contains(&magic))
}

/// FUSE, NFS, SMB and CIFS, Ceph, 9P, AFS, and Lustre (`linux/magic.h`, and their own headers).
const REMOTE: [u64; 9] =
    [0x6573_5546, 0x6969, 0x517b, 0xfe53_4d42, 0xff53_4d42, 0x00c3_6400, 0x0102_1997, 0x5346_414f, 0x0bd0_0bd0];

/// `FS_XFLAG_REALTIME`: the data is on XFS's realtime device.
pub const XFLAG_REALTIME: u32 = 0x1;
/// `FS_XFLAG_DAX`: the data is used in place, past the page cache.
pub const XFLAG_DAX: u32 = 0x8000;

/// The extended flags (`FS_XFLAG_*`) of a file.
///
/// # Errors
/// `ENOTTY` where the file system has none.
pub fn extended_flags(file: impl AsFd) -> io::Result<u32> {
    // struct fsxattr: xflags, extsize, nextents, projid, cowextsize, 8 bytes of padding.
    let mut told = [0u32; 7];
    // SAFETY: FS_IOC_FSGETXATTR writes one `struct fsxattr` of 28 bytes.
    checked(unsafe { libc::ioctl(file.as_fd().as_raw_fd(), FS_IOC_FSGETXATTR, told.as_mut_ptr()) })?;
    Ok(told[0])
}

/// The file system's UUID, as its superblock has it; `None` where the kernel does not tell (ext4 before 6.0).
///
/// # Errors
/// Those of `ioctl`, but not that the kernel does not know the request.
pub fn file_system_uuid(file: impl AsFd) -> io::Result<Option<[u8; 16]>> {
    let file = file.as_fd();
    match file_system(file)? {
        FileSystem::Ext4 => {
            // struct fsuuid with room for the bytes behind it.
            #[repr(C)]
            struct Told {
                len: u32,
                flags: u32,
                uuid: [u8; 16],
            }
            let mut told = Told { len: 16, flags: 0, uuid: [0; 16] };
            // SAFETY: EXT4_IOC_GETFSUUID reads the length and writes at most as many bytes behind the header.
            let answer = checked(unsafe { libc::ioctl(file.as_raw_fd(), EXT4_IOC_GETFSUUID, &raw mut told) });
            known(answer.map(|_| told.uuid))
        }
        FileSystem::Xfs => {
            // struct xfs_fsop_geom_v1: the UUID is at byte 64 of 112.
            let mut told = [0u8; 112];
            // SAFETY: XFS_IOC_FSGEOMETRY_V1 writes 112 bytes.
            let answer = checked(unsafe { libc::ioctl(file.as_raw_fd(), XFS_IOC_FSGEOMETRY_V1, told.as_mut_ptr()) });
            known(answer.map(|_| told[64..80].try_into().expect("16 bytes")))
        }
        FileSystem::Other(_) => Ok(None),
    }
}

fn known<T>(answer: io::Result<T>) -> io::Result<Option<T>> {
    match answer {
        Ok(told) => Ok(Some(told)),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOTTY | libc::EOPNOTSUPP)) => Ok(None),
        Err(error) => Err(error),
    }
}

const FS_IOC_FSGETXATTR: libc::Ioctl = 0x801c_581f;
const EXT4_IOC_GETFSUUID: libc::Ioctl = 0x8008_662c;
const XFS_IOC_FSGEOMETRY_V1: libc::Ioctl = 0x8070_5864;
