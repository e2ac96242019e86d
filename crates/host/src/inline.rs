//! A volume whose queue is turned by the thread that uses it.

use std::fmt;
use std::marker::PhantomData;
use std::task::Waker;
use std::time::Duration;

use diskside_io::request::{Request, RequestFuture, promise};

use crate::connection::Connection;
use crate::error::HostError;
use crate::job::{Command, CommandOutcome, Staged};
use crate::options::ConnectOptions;
use crate::queue::Queue;
use crate::url::Url;
use crate::volume::{Volume, nsid_of};

/// A volume with one I/O queue pair that has no thread of its own.
///
/// The owner submits, and turns the queue by [`poll`](Self::poll) or [`wait`](Self::wait): no request
/// is handed from thread to thread, which at depth 1 is the larger part of a round trip on a busy or
/// small machine. Losses are treated as for any [`Volume`], but only while the owner turns the queue.
pub struct InlineVolume {
    /// `None` only while it is being dropped.
    queue: Option<Box<Queue>>,
    volume: Volume,
    /// A queue's ring belongs to the thread that made it.
    not_send: PhantomData<*const ()>,
}

impl InlineVolume {
    /// Connects to the volume that a URL names. `io_queues` of the options does not matter: there is one.
    pub fn connect(url: &Url, options: &ConnectOptions) -> Result<Self, HostError> {
        let nsid = nsid_of(url)?;
        let (connection, queue) = Connection::connect_inline(url, options)?;
        match connection.volume(nsid) {
            Ok(volume) => Ok(Self { queue: Some(Box::new(queue)), volume, not_send: PhantomData }),
            Err(error) => {
                // Before the connection goes, which waits for its queues.
                queue.end();
                Err(error)
            }
        }
    }

    /// Starts a request; it leaves with the next [`poll`](Self::poll) or [`wait`](Self::wait).
    pub fn submit(&mut self, request: Request) -> RequestFuture {
        let (staged, future) = self.volume.prepare(request);
        if let (Some(staged), Some(queue)) = (staged, &mut self.queue) {
            queue.stage(staged);
        }
        future
    }

    /// Starts any command, as [`submit`](Self::submit) does. Its namespace is what its `sqe` says.
    pub fn command(&mut self, command: Command) -> RequestFuture<CommandOutcome> {
        let (promise, future) = promise();
        if let Some(queue) = &mut self.queue {
            queue.stage(Staged::Command { command, promise });
        }
        future
    }

    /// Does what can be done without waiting.
    pub fn poll(&mut self) {
        self.turn(Some(Duration::ZERO));
    }

    /// Waits until something happens, or for `patience` at most, and does what there is to do.
    pub fn wait(&mut self, patience: Option<Duration>) {
        self.turn(patience);
    }

    /// What ends a [`wait`](Self::wait) from another thread.
    pub fn waker(&self) -> Waker {
        match &self.queue {
            Some(queue) => queue.waker().into(),
            None => Waker::noop().clone(),
        }
    }

    /// Turns the queue until the request has ended.
    pub fn block_on(&mut self, mut request: RequestFuture) -> diskside_io::request::Outcome {
        loop {
            match request.try_take() {
                Ok(outcome) => return outcome,
                Err(pending) => request = pending,
            }
            self.turn(None);
        }
    }

    /// The same volume for other threads. Their requests move only while the owner turns the queue.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    fn turn(&mut self, patience: Option<Duration>) {
        if self.queue.as_mut().is_some_and(|queue| !queue.turn(patience)) {
            // Only a failed ring ends a queue that nobody closed; it has failed all its requests.
            self.end();
        }
    }

    fn end(&mut self) {
        if let Some(queue) = self.queue.take() {
            queue.end();
        }
    }
}

impl Drop for InlineVolume {
    fn drop(&mut self) {
        if let Some(queue) = &mut self.queue {
            queue.close_now();
            while queue.turn(None) {}
        }
        self.end();
    }
}

impl fmt::Debug for InlineVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InlineVolume").field("volume", &self.volume).finish_non_exhaustive()
    }
}
