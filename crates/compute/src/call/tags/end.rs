//! How waits and tags end: by time, by loss, by a refusal.

use std::time::Instant;

use diskside_nvme::Status;
use diskside_wire::function::{FunctionKind, Outcome, Trailer};

use super::{ABANDONED, CLOSED_MAX, Effect, Ending, Open, Phase, Receive, SendPart, Tags, Waiter};
use crate::call::answer::Answer;
use crate::call::control::Control;

impl<W: Copy + PartialEq> Tags<W> {
    /// When [`handle_timeout`](Self::handle_timeout) wants to be called: at the earliest when a wait may end.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.earliest
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.end_waits(&|_, until| until <= now, &|what| match what {
            Wait::EarlySend | Wait::EarlyReceive => Status::UNKNOWN_TAG.into(),
            Wait::Send => Status::FUNCTION_BUSY.into(),
            Wait::Receive { pad } => Answer::pending(pad),
            Wait::Cancel => Answer::success().with_result(1),
        });
        let abandoned = |open: &Open<W>| open.receives.is_empty() && open.touched + ABANDONED <= now;
        let tags: Vec<u64> = self.open.iter().filter(|(_, open)| abandoned(open)).map(|(tag, _)| *tag).collect();
        for tag in tags {
            // Nobody waits for the result any more.
            self.drop_tag(now, tag);
        }
        self.earliest = self.find_earliest();
    }

    pub(crate) fn find_earliest(&self) -> Option<Instant> {
        let early = self.early.values().flat_map(|early| times(&early.sends, &early.receives));
        let open = self.open.values().flat_map(|open| {
            let cancels = open.cancels.iter().map(|(_, until)| *until);
            times(&open.parts, &open.receives).chain(cancels).chain([open.touched + ABANDONED])
        });
        early.chain(open).min()
    }

    /// A connection of the controller is gone: its commands need no answer, and every call is stopped.
    pub fn lost(&mut self, now: Instant, of_connection: impl Fn(W) -> bool) {
        let gone = |waiter: &Waiter<W>| of_connection(waiter.name);
        self.end_waits(&|waiter, _| gone(waiter), &|_| Status::COMMAND_ABORT_REQUESTED.into());
        self.effects.retain(|effect| !matches!(effect, Effect::Answer(name, _) if of_connection(*name)));
        let tags: Vec<u64> = self.open.keys().copied().collect();
        for tag in tags {
            self.drop_tag(now, tag);
        }
    }

    /// Stops a call whose result nobody will take. A job that runs keeps the tag until it has ended, and a host that
    /// asks for more of the result hears how it ended.
    pub(crate) fn drop_tag(&mut self, now: Instant, tag: u64) {
        self.stop(tag);
        let Some(open) = self.open.get_mut(&tag) else { return };
        open.drop_result();
        open.touched = now;
        if open.phase != Phase::Running && open.phase != Phase::Starting {
            if let Some(open) = self.open.remove(&tag) {
                self.end_open(open, &|_| Answer::ended());
            }
            self.close(tag, Ending::Told);
        }
    }

    /// Hosts may have lost rights. Of calls that lack one, nothing of the result is handed out any more but the trailer, which says
    /// so; `is_lost` has stopped them.
    pub(crate) fn drop_lost(&mut self, is_lost: impl Fn(&Control) -> bool) {
        let lost = self.open.iter().filter(|(_, open)| is_lost(&open.control));
        let tags: Vec<u64> = lost.map(|(tag, _)| *tag).collect();
        for tag in tags {
            let Some(open) = self.open.get_mut(&tag) else { continue };
            if let Some(mut trailer) = open.trailer.take() {
                open.tell_lost(&mut trailer);
                open.trailer = Some(trailer);
            }
            open.drop_result();
            open.input.close();
            self.serve(tag);
        }
    }

    pub(crate) fn stop(&mut self, tag: u64) {
        let Some(open) = self.open.get_mut(&tag) else { return };
        match open.phase {
            Phase::Gathering => {
                if let Some(open) = self.open.remove(&tag) {
                    self.end_open(open, &|_| Status::REQUEST_REFUSED.dnr().into());
                }
                self.refuse(tag);
            }
            Phase::Starting | Phase::Running => {
                // In this order: what wakes up because its input is gone finds that it was cancelled.
                open.control.stop();
                open.input.close();
            }
            Phase::Ended => {}
        }
    }

    /// Answers everything that waits for a tag that is no more.
    pub(crate) fn end_open(&mut self, open: Open<W>, answer: &dyn Fn(Wait) -> Answer) {
        open.input.close();
        for part in open.parts {
            self.send_bytes -= part.data.len();
            self.answer_waiting(part.waiter, answer(Wait::Send));
        }
        for receive in open.receives {
            self.answer_waiting(receive.waiter, answer(Wait::Receive { pad: pad_of(&receive) }));
        }
        for (waiter, _) in open.cancels {
            self.answer_waiting(waiter, Answer::success());
        }
    }

    pub(crate) fn refuse(&mut self, tag: u64) {
        if self.open.contains_key(&tag) {
            return;
        }
        if let Some(early) = self.early.remove(&tag) {
            self.send_bytes -= early.sends.iter().map(|part| part.data.len()).sum::<usize>();
            for waiter in early.sends.iter().map(|part| part.waiter).chain(early.receives.iter().map(|r| r.waiter)) {
                self.answer_waiting(waiter, Status::REQUEST_REFUSED.dnr().into());
            }
        }
        self.close(tag, Ending::Refused);
    }

    pub(crate) fn close(&mut self, tag: u64, ending: Ending) {
        self.closed.retain(|(closed, _)| *closed != tag);
        if self.closed.len() == CLOSED_MAX {
            self.closed.pop_front();
        }
        self.closed.push_back((tag, ending));
    }

    pub(crate) fn ending(&self, tag: u64) -> Option<Ending> {
        self.closed.iter().rev().find(|(closed, _)| *closed == tag).map(|(_, ending)| *ending)
    }

    /// Ends the waits that `which` chooses.
    pub(crate) fn end_waits(&mut self, which: &dyn Fn(&Waiter<W>, Instant) -> bool, answer: &dyn Fn(Wait) -> Answer) {
        let (mut ended, mut freed) = (Vec::new(), 0);
        for early in self.early.values_mut() {
            drain(
                &mut early.sends,
                |part| which(&part.waiter, part.until),
                |part| {
                    freed += part.data.len();
                    ended.push((part.waiter, answer(Wait::EarlySend)));
                },
            );
            drain(
                &mut early.receives,
                |receive| which(&receive.waiter, receive.until),
                |receive| {
                    ended.push((receive.waiter, answer(Wait::EarlyReceive)));
                },
            );
        }
        self.early.retain(|_, early| !early.sends.is_empty() || !early.receives.is_empty());
        let mut partial = Vec::new();
        for (tag, open) in &mut self.open {
            drain(
                &mut open.parts,
                |part| which(&part.waiter, part.until),
                |part| {
                    freed += part.data.len();
                    ended.push((part.waiter, answer(Wait::Send)));
                },
            );
            drain(
                &mut open.receives,
                |receive| which(&receive.waiter, receive.until),
                |receive| {
                    let answer = answer(Wait::Receive { pad: pad_of(&receive) });
                    // The bytes that are there go along with the news that there are no more yet.
                    if answer.is_pending() && receive.offset == open.result_start {
                        partial.push((*tag, receive));
                    } else {
                        ended.push((receive.waiter, answer));
                    }
                },
            );
            drain(
                &mut open.cancels,
                |(waiter, until)| which(waiter, *until),
                |(waiter, _)| {
                    ended.push((waiter, answer(Wait::Cancel)));
                },
            );
        }
        self.send_bytes -= freed;
        for (waiter, answer) in ended {
            self.answer_waiting(waiter, answer);
        }
        for (tag, receive) in partial {
            self.hand_out(tag, &receive, true);
        }
    }
}

impl<W> Open<W> {
    /// Hands out nothing more of the result.
    fn drop_result(&mut self) {
        self.result.clear();
        self.result_end = self.result_start;
        self.dropped = true;
    }

    /// Has the trailer say that the host lost a right, if it did. A file operation that was done and has no result stays done.
    pub(super) fn tell_lost(&self, trailer: &mut Trailer) {
        let is_done = self.kind == FunctionKind::File && trailer.outcome == Outcome::Ok && trailer.result_len == 0;
        if let Some(lost) = self.control.lost().filter(|_| !is_done) {
            lost.replace(trailer);
            trailer.result_len = self.result_start;
        }
    }
}

/// What a command waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    EarlySend,
    EarlyReceive,
    Send,
    Receive { pad: Option<u32> },
    Cancel,
}

pub(crate) fn pad_of<W>(receive: &Receive<W>) -> Option<u32> {
    receive.pad.then_some(receive.len)
}

fn times<'a, W>(sends: &'a [SendPart<W>], receives: &'a [Receive<W>]) -> impl Iterator<Item = Instant> + 'a {
    sends.iter().map(|part| part.until).chain(receives.iter().map(|receive| receive.until))
}

fn drain<T>(list: &mut Vec<T>, which: impl Fn(&T) -> bool, mut take: impl FnMut(T)) {
    let mut at = 0;
    while at < list.len() {
        if which(&list[at]) { take(list.remove(at)) } else { at += 1 }
    }
}
