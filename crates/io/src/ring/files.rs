//! Descriptors that are registered with a ring.
//!
//! An operation names a registered descriptor by its place in the ring's table. So the kernel need not look it up, count
//! the use and give it back each time, which in a process of many threads are writes to memory that they share.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use io_uring::IoUring;

/// The most descriptors of one ring; a process may have no more than `RLIMIT_NOFILE` in a table, often 1,024.
const FILES_MAX: u32 = 1024;
/// Nothing is at this place of the kernel's table.
const NOTHING: i32 = -1;

/// The table of a ring. It is made when something is registered for the first time.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// By number. As long as it is registered a descriptor is held open, so that its number is nothing else's.
    by_number: Vec<Option<Registered>>,
    /// Places that can be used, once there is a table.
    free: Option<Vec<u32>>,
}

#[derive(Debug)]
struct Registered {
    place: u32,
    #[expect(dead_code, reason = "it is kept open, not used")]
    file: Arc<OwnedFd>,
}

impl Files {
    /// Where a descriptor is in the table.
    pub(super) fn place(&self, file: &OwnedFd) -> Option<u32> {
        Some(self.by_number.get(number(file))?.as_ref()?.place)
    }

    /// Puts a descriptor into the table, unless it is there. False if that cannot be.
    pub(super) fn add(&mut self, uring: &IoUring, file: &Arc<OwnedFd>) -> bool {
        if self.place(file).is_some() {
            return true;
        }
        let free = self.free.get_or_insert_with(|| make_table(uring));
        let Some(place) = free.pop() else { return false };
        if update(uring, place, file.as_raw_fd()).is_err() {
            free.push(place);
            return false;
        }
        let number = number(file);
        if self.by_number.len() <= number {
            self.by_number.resize_with(number + 1, || None);
        }
        self.by_number[number] = Some(Registered { place, file: Arc::clone(file) });
        true
    }

    /// Takes a descriptor out of the table.
    pub(super) fn remove(&mut self, uring: &IoUring, file: &OwnedFd) {
        let Some(registered) = self.by_number.get_mut(number(file)).and_then(Option::take) else { return };
        // If the kernel is out of memory it keeps it open until the ring ends, and its place is not used again.
        if update(uring, registered.place, NOTHING).is_ok() {
            self.free.get_or_insert_default().push(registered.place);
        }
    }
}

/// An empty table; gives its places. None where the kernel refuses it.
fn make_table(uring: &IoUring) -> Vec<u32> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let len = limit.map_or(FILES_MAX, |limit| limit.min(FILES_MAX.into()) as u32);
    match uring.submitter().register_files_sparse(len) {
        Ok(()) => (0..len).rev().collect(),
        Err(_) => Vec::new(),
    }
}

fn update(uring: &IoUring, place: u32, number: i32) -> io::Result<()> {
    uring.submitter().register_files_update(place, &[number]).map(drop)
}

fn number(file: &OwnedFd) -> usize {
    // Open descriptors have numbers from 0 on.
    file.as_raw_fd() as usize
}
