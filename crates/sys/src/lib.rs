//! The few system calls about files and threads that nobody wraps well.
//!
//! | Module | What it wraps | Manual page or header |
//! |---|---|---|
//! | [`extent`] | where a file's bytes are on its device (`FS_IOC_FIEMAP`) | `linux/fiemap.h` |
//! | [`lease`] | leases, and the thread that hears when one is to be given up (`F_SETLEASE`) | `fcntl(2)` |
//! | [`lock`] | locks that other programs respect (`F_OFD_SETLK`) | `fcntl(2)` |
//! | [`cache`] | flushing a range, and what of it the page cache holds (`cachestat`, `mincore`) | `sync_file_range(2)` |
//! | [`attributes`] | file system, flags and identity of an open file | `ioctl_fsgetxattr(2)`, `statx(2)` |
//! | [`loopdev`] | a file as a block device (`LOOP_CONFIGURE`) | `loop(4)` |
//! | [`descriptor`] | a descriptor once more, by its number (`F_DUPFD_CLOEXEC`) | `fcntl(2)` |
//! | [`socket`] | how much a TCP socket takes before it can send it (`TCP_NOTSENT_LOWAT`) | `tcp(7)` |
//! | [`standard`] | standard input and output that were closed | `fcntl(2)` |
//! | [`processor`] | instructions that this processor lacks (`CPUID`) | Intel's manual, volume 2A |
//! | [`schedule`] | a thread's scheduling policy and priority (`sched_setscheduler`) | `sched(7)` |
//!
//! The interface is safe: descriptors are borrowed for the call, and what the kernel writes goes to memory that the
//! call owns. Nothing here decides anything; the rules are in `diskside-layout`.

pub mod attributes;
pub mod cache;
pub mod descriptor;
pub mod extent;
pub mod lease;
pub mod lock;
pub mod loopdev;
pub mod processor;
pub mod schedule;
pub mod socket;
pub mod standard;

use std::io;

/// The result of a system call that answers -1 and sets `errno`.
fn checked(answer: libc::c_int) -> io::Result<libc::c_int> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

/// Tells the kernel that this thread, and those that it starts, write out pages for others: allocations of theirs do not
/// wait for pages that only they can write. Without the right to say so (`CAP_SYS_RESOURCE`) nothing happens.
pub fn mark_as_writer_of_pages() {
    // SAFETY: PR_SET_IO_FLUSHER takes integers.
    unsafe {
        libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);
    }
}

const PR_SET_IO_FLUSHER: libc::c_int = 57;
