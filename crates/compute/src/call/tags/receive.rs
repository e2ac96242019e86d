//! Handing out results: which Receive gets which bytes, and which of them the trailer.

use diskside_wire::function::{RECEIVE_LEN_MIN, ReceiveAnswer, TRAILER_LEN};

use diskside_nvme::Status;

use super::end::pad_of;
use super::{Ending, Open, Receive, Tags};
use crate::call::answer::{Answer, Piece};

impl<W: Copy + PartialEq> Tags<W> {
    /// Answers the Receives of a tag as far as there is something for them, in the order of their offsets.
    pub(crate) fn serve(&mut self, tag: u64) {
        while let Some(open) = self.open.get_mut(&tag) {
            let Some(receive) = open.receives.first() else { return };
            if receive.offset < open.result_start {
                let receive = open.receives.remove(0);
                self.answer_waiting(receive.waiter, Status::RESULT_OFFSET_PASSED.dnr().into());
                continue;
            }
            if !open.can_serve(receive) {
                return;
            }
            let receive = open.receives.remove(0);
            self.hand_out(tag, &receive, false);
        }
    }

    /// Gives a Receive what there is for it. `pending`: its time is up.
    pub(crate) fn hand_out(&mut self, tag: u64, receive: &Receive<W>, pending: bool) {
        let Some(open) = self.open.get_mut(&tag) else { return };
        let available = open.result_end - open.result_start;
        let mut result_len = available.min(receive.len.into()) as u32;
        // Its host asks for the rest by another, which has 128 bytes at least.
        if pending && result_len < receive.len {
            result_len = result_len.min(receive.len - RECEIVE_LEN_MIN);
        }
        let mut pieces = open.take_result(result_len);
        if result_len > 0 {
            open.control.taken();
        }
        let mut answer = ReceiveAnswer { result_len, pending, ..ReceiveAnswer::default() };
        let room = (receive.len - result_len) as usize;
        if room >= TRAILER_LEN
            && open.result_start == open.result_end
            && let Some(trailer) = &open.trailer
        {
            let bytes = trailer.encode(room.min(usize::from(u16::MAX)));
            answer.trailer_len = bytes.len() as u16;
            answer.end = true;
            answer.pending = false;
            pieces.push(Piece::of(bytes));
        }
        self.answer_waiting(receive.waiter, Answer::pieces(pieces, pad_of(receive)).with_result(answer.to_result()));
        if answer.end
            && let Some(open) = self.open.remove(&tag)
        {
            self.end_open(open, &|_| Answer::ended());
            self.close(tag, Ending::Told);
        }
    }
}

impl<W> Open<W> {
    /// Whether this Receive, the first of all, can be answered now.
    fn can_serve(&self, receive: &Receive<W>) -> bool {
        let available = self.result_end - self.result_start;
        let ended = self.trailer.is_some();
        if receive.offset > self.result_start {
            // Beyond what is there: only the trailer is left, or the bytes between are still to be asked for.
            return ended && available == 0;
        }
        available >= receive.len.into() || ended || available > 0 && !receive.fill
    }

    /// The next bytes of the result, as they lie.
    fn take_result(&mut self, mut len: u32) -> Vec<Piece> {
        self.result_start += u64::from(len);
        let mut pieces = Vec::new();
        while len > 0 {
            let Some(mut piece) = self.result.pop_front() else { unreachable!("the result is as long as was counted") };
            if piece.len() > len as usize {
                self.result.push_front(piece.split_off(len as usize));
            }
            len -= piece.len() as u32;
            pieces.push(piece);
        }
        pieces
    }
}
