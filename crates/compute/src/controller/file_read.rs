//! A read of a file that the reactor of its connection does, by its ring.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use diskside_export::{FileReply, PlainRead};
use diskside_io::Errno;
use diskside_io::buffer::Buffer;
use diskside_io::ring::Op;
use diskside_wire::function::{Outcome, Trailer};

use super::answers::Answers;
use crate::call::answer::Piece;
use crate::call::control::Control;
use crate::call::tags::Tags;
use crate::call::trailer;
use crate::reactors::Name;
use crate::schedule::quota::{Holding, PART_BYTES};

/// A read of a file that the reactor of its connection does, by its ring.
#[derive(Debug)]
pub struct FileRead {
    pub(super) read: PlainRead,
    pub(super) done: FileDone,
    pub(super) owner: Arc<dyn FileOwner>,
}

/// A file operation, as its tag knows it.
#[derive(Debug)]
pub(crate) struct FileDone {
    pub(super) tag: u64,
    pub(super) control: Arc<Control>,
    /// The charges of the request and of its result.
    pub(super) request: Holding,
    pub(super) result: Holding,
}

/// The controller whose host asked for an operation.
pub(crate) trait FileOwner: fmt::Debug + Send + Sync {
    /// It has ended.
    fn file_done(self: Arc<Self>, done: FileDone, reply: FileReply, here: &mut Answers);
}

impl FileRead {
    /// The operation that is next, by a worker of the ring: none that reads if the host does not want it any more.
    pub fn operation(&mut self) -> Op {
        if self.done.control.cancel.is_cancelled() { Op::Nop } else { self.read.operation() }
    }

    /// Takes the result of that operation. False: there is another one.
    pub fn completed(&mut self, result: Result<u32, Errno>, buffer: Option<Buffer>) -> bool {
        self.read.completed(result, buffer)
    }

    /// Answers: with the bytes, or that they are not wanted any more.
    pub fn answer(self, here: &mut Answers) {
        self.owner.file_done(self.done, self.read.reply(), here);
    }

    /// The read itself.
    pub fn read(&self) -> &PlainRead {
        &self.read
    }
}

impl FileDone {
    /// Tells the tag how it ended.
    pub(super) fn end(self, tags: &mut Tags<Name>, reply: FileReply) {
        let Self { tag, control, request, mut result } = self;
        drop(request);
        let mut trailer = match &reply.returned {
            Ok(returned) => Trailer { returned: *returned as i64, ..Trailer::new(Outcome::Ok) },
            Err(error) => trailer::of_file(error),
        };
        // An operation that was done all the same is reported as it ended: its effect stays.
        if control.cancel.is_cancelled() && trailer.outcome != Outcome::Ok {
            trailer.outcome = Outcome::Cancelled;
        }
        trailer.result_len = reply.result.len() as u64;
        trailer.generation = reply.version;
        trailer.durable = reply.durable_bytes;
        if !reply.result.is_empty() {
            result.shrink(reply.result.len() + PART_BYTES);
            tags.produced(tag, Piece::held(reply.result, result));
        }
        tags.ended(Instant::now(), tag, trailer);
    }
}
