//! File operations of one controller: requests of kind 6 (`docs/wire-files.md`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use diskside_export::FileReply;
use diskside_wire::file::FileRequest;
use diskside_wire::function::{FunctionRequest, REQUEST_LEN_MAX};

use super::file_read::{FileDone, FileOwner, FileRead};
use super::{Answers, Association};
use crate::call::answer::{Problem, SHORT_LEN_MAX};
use crate::call::control::Control;
use crate::call::tags::{Effect, Waiter};
use crate::call::used::Used;
use crate::reactors::Name;
use crate::schedule::quota::{Holding, PART_BYTES};

impl Association {
    /// Hands an operation to the export that it is about, or does it here: a read of a file that is open.
    pub(crate) fn file_operation(
        self: &Arc<Self>,
        tag: u64,
        waiter: Waiter<Name>,
        send_len: u32,
        (request, holding): (FunctionRequest, Holding),
        control: Arc<Control>,
        here: &mut Answers,
    ) -> Vec<Effect<Name>> {
        if let Err(problem) = check(&request) {
            return self.effects_of(|tags| tags.refused(tag, waiter, problem));
        }
        self.context.environment.statistics.received.fetch_add(request.args.len() as u64, Ordering::Relaxed);
        let room = match self.context.host.account.hold(result_len_max(&request.args) + PART_BYTES) {
            Ok(room) => room,
            Err(no_room) => return self.effects_of(|tags| tags.refused(tag, waiter, Problem::busy(no_room))),
        };
        let uses = |export| control.note([Used::Files(export)]);
        let done = FileDone { tag, control: Arc::clone(&control), request: holding, result: room };
        // A worker of the ring waits for a reactor that polls on its processor, and a thread of the export does not.
        let by_ring = self.context.environment.has_spare_processors;
        let read = || self.context.files.plain_read(&request.args, REQUEST_LEN_MAX, by_ring, uses);
        let begun = here.serial.and_then(|_| read());
        let reply = match begun {
            Some(Ok(read)) => match read.at_once() {
                Some(reply) => Some(reply),
                None if by_ring => {
                    here.file_reads.push_back(FileRead { read, done, owner: Arc::clone(self) as _ });
                    return self.effects_of(|tags| tags.accepted(tag, waiter, send_len));
                }
                None => None,
            },
            Some(Err(refused)) => Some(refused.into()),
            None => None,
        };
        let Some(reply) = reply else {
            let me = Arc::clone(self);
            let reply = move |reply| me.file_done(done, reply, &mut Answers::default());
            let files = &self.context.files;
            let submitted = files.submit_unless(&control.cancel, request.args, REQUEST_LEN_MAX, uses, reply);
            return self.effects_of(|tags| match submitted {
                Ok(()) => tags.accepted(tag, waiter, send_len),
                Err(malformed) => {
                    let told = malformed.to_string();
                    tags.refused(tag, waiter, Problem::in_data_at(64 + malformed.at as usize, &told));
                }
            });
        };
        // It counts as a call: the host has its first answers while others are read.
        here.calls += 1;
        self.effects_of(|tags| {
            tags.accepted(tag, waiter, send_len);
            done.end(tags, reply);
        })
    }
}

impl FileOwner for Association {
    fn file_done(self: Arc<Self>, done: FileDone, reply: FileReply, here: &mut Answers) {
        if let Some(version) = &reply.dropped {
            self.context.environment.cache.clear_object(version);
        }
        self.with_tags(here, |tags| done.end(tags, reply));
    }
}

/// How long the result of an operation may be. Other bytes have no result.
fn result_len_max(args: &[u8]) -> usize {
    let asked = match FileRequest::parse(args) {
        Ok(FileRequest::Read { len, .. }) => len,
        Ok(
            FileRequest::List { len_max, .. }
            | FileRequest::ListExports { len_max, .. }
            | FileRequest::Find { len_max, .. },
        ) => len_max,
        Ok(_) => SHORT_LEN_MAX as u32,
        Err(_) => 0,
    };
    (asked as usize).min(REQUEST_LEN_MAX)
}

/// An operation is in the arguments, and nowhere else.
fn check(request: &FunctionRequest) -> Result<(), Problem> {
    let (at, what) = if request.pind != 0 {
        (8, "a file operation runs no program: PIND is 0")
    } else if !request.sources.is_empty() {
        (10, "a file operation has no sources")
    } else if !request.sinks.is_empty() {
        (12, "a file operation has no sinks")
    } else if request.program_id != 0 {
        (16, "a file operation runs no program, so none of this content hash")
    } else if request.function.is_some() || request.state.is_some() {
        (60, "a file operation runs no program: it has no function's name and no state")
    } else {
        return Ok(());
    };
    Err(Problem::in_data_at(at, what))
}
