//! File operations of one controller: requests of kind 6 (`docs/wire-files.md`).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use diskside_wire::file::FileRequest;
use diskside_wire::function::{FunctionRequest, Outcome, REQUEST_LEN_MAX, Trailer};

use super::{Answers, Association};
use crate::call::answer::{Piece, Problem, SHORT_LEN_MAX};
use crate::call::control::Control;
use crate::call::tags::{Effect, Waiter};
use crate::call::trailer;
use crate::call::used::Used;
use crate::reactors::Name;
use crate::schedule::quota::{Holding, PART_BYTES};
use diskside_export::FileReply;

impl Association {
    /// Hands an operation to the export that it is about.
    pub(crate) fn file_operation(
        self: &Arc<Self>,
        tag: u64,
        waiter: Waiter<Name>,
        send_len: u32,
        (request, holding): (FunctionRequest, Holding),
        control: Arc<Control>,
    ) -> Vec<Effect<Name>> {
        if let Err(problem) = check(&request) {
            return self.effects_of(|tags| tags.refused(tag, waiter, problem));
        }
        self.context.environment.statistics.received.fetch_add(request.args.len() as u64, Ordering::Relaxed);
        let room = match self.context.host.account.hold(result_len_max(&request.args) + PART_BYTES) {
            Ok(room) => room,
            Err(no_room) => return self.effects_of(|tags| tags.refused(tag, waiter, Problem::busy(no_room))),
        };
        let (me, cancel, note) = (Arc::clone(self), control.cancel.clone(), Arc::clone(&control));
        let reply = move |reply: FileReply| {
            drop(holding);
            me.file_done(tag, &control, reply, room);
        };
        let uses = |export| note.note([Used::Files(export)]);
        let submitted = self.context.files.submit_unless(&cancel, request.args, REQUEST_LEN_MAX, uses, reply);
        self.effects_of(|tags| match submitted {
            Ok(()) => tags.accepted(tag, waiter, send_len),
            Err(malformed) => {
                let told = malformed.to_string();
                tags.refused(tag, waiter, Problem::in_data_at(64 + malformed.at as usize, &told));
            }
        })
    }

    fn file_done(self: &Arc<Self>, tag: u64, control: &Control, reply: FileReply, mut room: Holding) {
        let mut trailer = match &reply.returned {
            Ok(returned) => Trailer { returned: *returned as i64, ..Trailer::new(Outcome::Ok) },
            Err(error) => trailer::of_file(error),
        };
        // An operation that was done all the same is reported as it ended: its effect stays.
        if control.cancel.is_cancelled() && trailer.outcome != Outcome::Ok {
            trailer.outcome = Outcome::Cancelled;
        }
        if let Some(version) = &reply.dropped {
            self.context.environment.cache.clear_object(version);
        }
        trailer.result_len = reply.result.len() as u64;
        trailer.generation = reply.version;
        trailer.durable = reply.durable_bytes;
        self.with_tags(&mut Answers::default(), |tags| {
            if !reply.result.is_empty() {
                room.shrink(reply.result.len() + PART_BYTES);
                tags.produced(tag, Piece::held(reply.result, room));
            }
            tags.ended(Instant::now(), tag, trailer);
        });
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
