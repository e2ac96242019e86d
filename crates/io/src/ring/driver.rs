//! The operations that a ring needs from the kernel's interface: the seam between [`Ring`](super::Ring) and its
//! drivers.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use super::config::OpId;
use super::op::{Completion, Op};
use super::provided::GroupId;
use crate::buffer::Arena;

/// How long a dropped ring waits for operations that cannot be cancelled, before it leaves their memory to them.
pub(super) const DROP_WAIT_MAX: Duration = Duration::from_secs(5);

/// Starts operations and takes their ends. Its descriptor is readable when there is something to do.
///
/// A driver that is dropped cancels what is in flight, and frees nothing that the kernel or a thread still touches.
pub(super) trait Driver: AsFd {
    /// Adds an operation. It begins with the next [`submit`](Self::submit), [`look`](Self::look) or [`sleep`](Self::sleep).
    fn push(&mut self, token: u64, op: Op) -> OpId;

    /// The same, by a thread other than the ring's from the start.
    fn push_to_worker(&mut self, token: u64, op: Op) -> OpId;

    /// Ends an operation early, if it can be. It completes all the same.
    fn cancel(&mut self, id: OpId);

    /// Operations pushed and not completed.
    fn in_flight(&self) -> usize;

    /// Makes a group of buffers to receive into.
    fn provide(&mut self, buffers: u16, len_bytes: usize) -> io::Result<GroupId>;

    /// Registers memory, once.
    fn register(&mut self, arena: &Arena) -> io::Result<()>;

    /// Registers a descriptor and keeps it open; false where there is no place for it.
    fn register_file(&mut self, file: &Arc<OwnedFd>) -> bool;

    /// Whether a descriptor is registered.
    fn is_registered(&self, file: &OwnedFd) -> bool;

    /// Ends a registration.
    fn unregister_file(&mut self, file: &OwnedFd);

    /// Begins what was pushed.
    fn submit(&mut self) -> io::Result<()>;

    /// Begins what was pushed and takes the ends that are there, without sleeping. Says whether that was work.
    fn look(&mut self) -> io::Result<bool>;

    /// Whether there are ends to take.
    fn has_completions(&mut self) -> bool;

    /// From here on the waker ends a [`sleep`](Self::sleep).
    fn listen(&mut self);

    /// Whether it can sleep although operations end.
    fn can_rest(&self) -> bool;

    /// Sleeps until an operation ends, for `rest` at least, and for `timeout` at most.
    fn sleep(&mut self, rest: Duration, timeout: Option<Duration>) -> io::Result<()>;

    /// The next end.
    fn next_completion(&mut self) -> Option<Completion>;

    /// System calls to submit or to wait, and ends taken, so far.
    fn counts(&self) -> (u64, u64);
}
