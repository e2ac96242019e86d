//! How rings are set up, and how their operations are named.

use std::time::Duration;

use crate::slab::Key;

/// How a ring is set up.
#[derive(Clone, Debug)]
pub struct RingConfig {
    /// Entries of the submission queue, rounded up to a power of two. The completion queue has four times as many.
    pub entries: u32,
    /// How long [`Ring::wait`](super::Ring::wait) polls at most before it sleeps, four times that for an
    /// [answer that is due](super::Ring::expect_answers). Zero sleeps at once. While pauses are longer than
    /// that, and while other threads want the processor, it polls for less or not at all.
    pub spin: Duration,
    /// Let a kernel thread submit; it sleeps after this long without work. It needs a core of its own. Only io_uring has it.
    pub sq_poll: Option<Duration>,
    /// Poll the device for completions. Only for `O_DIRECT` reads and writes on devices with poll
    /// queues; such a ring cannot be woken, receive, send or synchronise. Only io_uring has it.
    pub io_poll: bool,
}

impl Default for RingConfig {
    fn default() -> Self {
        Self { entries: 256, spin: Duration::from_micros(100), sq_poll: None, io_poll: false }
    }
}

/// Names one operation in flight of one ring. Once it is over, the name refers to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpId(pub(super) Key);
