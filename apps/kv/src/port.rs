//! How a store's bytes are reached.

use diskside::host::InlineVolume;
use diskside::io::request::{AsyncIo, Request, RequestFuture};
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// A file or volume that takes requests from one thread.
pub trait Port {
    /// Starts a request. Offsets, lengths and buffers are multiples of [`Self::alignment`].
    fn submit(&self, request: Request) -> RequestFuture;

    /// What requests are multiples of, in bytes.
    fn alignment(&self) -> u64;

    /// Length in bytes.
    ///
    /// # Errors
    /// What the system said.
    fn len_bytes(&self) -> io::Result<u64>;

    /// Waits until a request may have ended or somebody woke the thread, for `patience` at most.
    fn wait(&self, patience: Option<Duration>);

    /// Ends a [`wait`](Self::wait) from another thread; without one, unparking the thread does.
    fn waker(&self) -> Option<Waker> {
        None
    }
}

/// Whatever is served by threads of its own: they unpark the waiting one.
pub struct Shared(pub Arc<dyn AsyncIo>);

/// A volume whose queue is turned by the waiting thread.
#[derive(Debug)]
pub struct Inline(pub RefCell<InlineVolume>);

impl<T: Port + ?Sized> Port for Rc<T> {
    fn submit(&self, request: Request) -> RequestFuture {
        (**self).submit(request)
    }

    fn alignment(&self) -> u64 {
        (**self).alignment()
    }

    fn len_bytes(&self) -> io::Result<u64> {
        (**self).len_bytes()
    }

    fn wait(&self, patience: Option<Duration>) {
        (**self).wait(patience);
    }

    fn waker(&self) -> Option<Waker> {
        (**self).waker()
    }
}

impl Port for Shared {
    fn submit(&self, request: Request) -> RequestFuture {
        self.0.submit(request)
    }

    fn alignment(&self) -> u64 {
        self.0.alignment_bytes().into()
    }

    fn len_bytes(&self) -> io::Result<u64> {
        self.0.len_bytes()
    }

    fn wait(&self, patience: Option<Duration>) {
        match patience {
            None => std::thread::park(),
            Some(patience) => std::thread::park_timeout(patience),
        }
    }
}

impl Port for Inline {
    fn submit(&self, request: Request) -> RequestFuture {
        self.0.borrow_mut().submit(request)
    }

    fn alignment(&self) -> u64 {
        self.0.borrow().volume().block_len().into()
    }

    fn len_bytes(&self) -> io::Result<u64> {
        self.0.borrow().volume().len_bytes()
    }

    fn wait(&self, patience: Option<Duration>) {
        self.0.borrow_mut().wait(patience);
    }

    fn waker(&self) -> Option<Waker> {
        Some(self.0.borrow().waker())
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("alignment", &self.alignment()).finish_non_exhaustive()
    }
}
