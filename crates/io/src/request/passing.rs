//! Steps of futures in threads that others need, such as a queue's: they must neither sleep nor compute for long.

use std::cell::Cell;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Thread {
    /// It is the caller's, who may do with it what it likes.
    Own,
    /// It belongs to others.
    Passed,
    /// The same, and the step is to be continued elsewhere.
    Left,
}

thread_local! {
    static THREAD: Cell<Thread> = const { Cell::new(Thread::Own) };
}

/// Takes a step, in a thread that is the step's `own` or belongs to others; true if it is to be continued in one of its own.
pub fn step(own: bool, work: impl FnOnce()) -> bool {
    let before = THREAD.replace(if own { Thread::Own } else { Thread::Passed });
    work();
    THREAD.replace(before) == Thread::Left
}

/// Whether this is a step in a thread that belongs to others.
pub fn is_passing() -> bool {
    THREAD.get() != Thread::Own
}

/// Asks for the step to be continued in a thread of its own, when it has ended.
pub fn leave() {
    THREAD.set(Thread::Left);
}
