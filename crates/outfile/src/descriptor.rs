//! Descriptors that this process was given: `/dev/stdout`, `/dev/fd/N`, `/proc/self/fd/N`.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::WriteError;
use crate::error::errno_of;
use crate::name::{Name, path_of};

/// The number of a descriptor of this process, if that is what the name means.
pub(crate) fn number_of(at: &Name) -> Option<i32> {
    let this = std::fs::read_link("/proc/self").ok()?;
    let directory = std::fs::read_link(path_of(at.parent.as_fd())).ok()?;
    let rest: Vec<_> = directory.strip_prefix("/proc").ok()?.strip_prefix(this).ok()?.iter().collect();
    let is_ours = match rest[..] {
        [fd] => fd == "fd",
        [task, _, fd] => task == "task" && fd == "fd",
        _ => false,
    };
    let number = std::str::from_utf8(&at.name).ok().and_then(|name| name.parse().ok());
    number.filter(|_| is_ours)
}

/// The same open file as that of a descriptor that the process was started with.
pub(crate) fn duplicate(number: i32) -> Result<OwnedFd, WriteError> {
    let closed = || WriteError::new(Errno::BADF, "this process was not started with that descriptor open for writing");
    if number == 1 && diskside_sys::standard::output_was_closed() {
        return Err(closed());
    }
    let flags = flags_of(number).ok_or_else(closed)?;
    // What exec closes is not what a shell has given.
    let is_given = number <= 2 || !flags.contains(OFlags::CLOEXEC);
    if !is_given || !flags.intersects(OFlags::WRONLY | OFlags::RDWR) {
        return Err(closed());
    }
    diskside_sys::descriptor::duplicate(number).map_err(|error| WriteError::new(errno_of(&error), ""))
}

/// How a descriptor is open.
fn flags_of(number: i32) -> Option<OFlags> {
    let told = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).ok()?;
    let flags = told.lines().find_map(|line| line.strip_prefix("flags:"))?;
    Some(OFlags::from_bits_retain(u32::from_str_radix(flags.trim(), 8).ok()?))
}
