//! A file as a block device.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags, open};

use crate::checked;

/// How a loop device is made.
#[derive(Clone, Copy, Debug)]
pub struct LoopOptions {
    /// Bytes of a logical block.
    pub block_len: u32,
    /// Refuses writes.
    pub read_only: bool,
    /// Reads and writes the file past its page cache.
    pub direct: bool,
    /// Goes away when its last user closes it, be it a mount.
    pub autoclear: bool,
}

/// A loop device in use, and this process's hold of it.
#[derive(Debug)]
pub struct LoopDevice {
    device: File,
    path: PathBuf,
}

impl LoopDevice {
    /// Makes a free loop device show `file`. Needs root.
    ///
    /// # Errors
    /// `EACCES` or `EPERM` without root; `ENOENT` where the kernel has no loop devices; `EINVAL` for a block length that
    /// the file cannot have.
    pub fn attach(file: impl AsFd, options: LoopOptions) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let control = open("/dev/loop-control", flags, Mode::empty())?;
        loop {
            // SAFETY: LOOP_CTL_GET_FREE takes nothing and returns a number.
            let number = checked(unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) })?;
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let access = if options.read_only { OFlags::RDONLY } else { OFlags::RDWR };
            let device = open(&path, access | OFlags::CLOEXEC, Mode::empty())?;
            match configure(device.as_fd().as_raw_fd(), file.as_fd().as_raw_fd(), options) {
                // Someone else was quicker.
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
                result => return result.map(|()| Self { device: device.into(), path }),
            }
        }
    }

    /// Opens the loop device of this path.
    ///
    /// # Errors
    /// There is none, or no right to it.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        Ok(Self { device: File::open(&path)?, path })
    }

    /// Its path, `/dev/loopN`.
    #[must_use]
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// Takes the file away from the device: at once, or, while others use the device, when the last of them closes it.
    ///
    /// # Errors
    /// `ENXIO`: it shows no file.
    pub fn detach(self) -> io::Result<()> {
        // SAFETY: LOOP_CLR_FD takes nothing.
        checked(unsafe { libc::ioctl(self.device.as_raw_fd(), LOOP_CLR_FD) })?;
        Ok(())
    }
}

fn configure(device: libc::c_int, file: libc::c_int, options: LoopOptions) -> io::Result<()> {
    let mut flags = 0;
    for (wanted, flag) in [(options.read_only, 1), (options.autoclear, 4), (options.direct, 16)] {
        flags |= if wanted { flag } else { 0 };
    }
    let mut config = LoopConfig {
        fd: file as u32,
        block_len: options.block_len,
        info: LoopInfo64 { numbers: [0; 5], unused: [0; 3], flags, rest: [0; 180] },
        reserved: [0; 8],
    };
    // SAFETY: LOOP_CONFIGURE reads one `struct loop_config`.
    checked(unsafe { libc::ioctl(device, LOOP_CONFIGURE, &raw mut config) })?;
    Ok(())
}

const LOOP_CLR_FD: libc::Ioctl = 0x4c01;
const LOOP_CONFIGURE: libc::Ioctl = 0x4c0a;
const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4c82;

/// `struct loop_config`.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_len: u32,
    info: LoopInfo64,
    reserved: [u64; 8],
}

/// `struct loop_info64`: of its fields only the flags are used here.
#[repr(C)]
struct LoopInfo64 {
    /// device, inode, rdevice, offset, sizelimit
    numbers: [u64; 5],
    /// number, encrypt_type, encrypt_key_size
    unused: [u32; 3],
    flags: u32,
    /// file_name, crypt_name, encrypt_key, init
    rest: [u8; 180],
}

const _: () = assert!(size_of::<LoopInfo64>() == 240 && size_of::<LoopConfig>() == 312);
