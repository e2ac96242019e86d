//! The tag table alone: commands, results and time in; answers out.

use std::time::{Duration, Instant};

use diskside_nvme::Status;
use diskside_nvme::wire::{Sgl, Sqe};
use diskside_wire::function::{
    Endpoint, EndpointKind, FunctionCommand, FunctionKind, FunctionRequest, Outcome, ReceiveAnswer, Trailer,
};

use super::{ABANDONED, Effect, Limits, Start, Tags, Waiter};
use crate::call::answer::{Answer, Piece};

const TAG: u64 = 7;

/// A table with a clock and names for its commands.
struct Table {
    tags: Tags<u32>,
    now: Instant,
    last: u32,
}

/// The effects: answers by name, and requests to start.
#[derive(Default)]
struct Came {
    answers: Vec<(u32, Answer)>,
    starts: Vec<Start<u32>>,
}

impl Came {
    fn names(&self) -> Vec<u32> {
        self.answers.iter().map(|(name, _)| *name).collect()
    }

    #[track_caller]
    fn only(&self) -> &Answer {
        assert_eq!(self.answers.len(), 1, "one answer: {:?}", self.answers);
        &self.answers[0].1
    }

    /// Result bytes, and what the completion says.
    fn received(&self) -> Vec<(u32, usize, ReceiveAnswer)> {
        let read = |(name, answer): &(u32, Answer)| {
            assert!(answer.status.is_success(), "{}", answer.status);
            let told = ReceiveAnswer::from_result(answer.result).unwrap();
            let len: usize = answer.pieces.iter().map(Piece::len).sum();
            assert_eq!(len, told.result_len as usize + usize::from(told.trailer_len));
            (*name, told.result_len as usize, told)
        };
        self.answers.iter().map(read).collect()
    }
}

impl Table {
    fn new() -> Self {
        let limits = Limits { tags_max: 4, send_bytes_max: 4096 };
        Self { tags: Tags::new(limits), now: Instant::now(), last: 0 }
    }

    fn waiter(&mut self) -> Waiter<u32> {
        self.last += 1;
        Waiter { queue_id: 1, entries: 16, name: self.last }
    }

    fn came(&mut self) -> Came {
        let mut came = Came::default();
        for effect in self.tags.take_effects() {
            match effect {
                Effect::Answer(name, answer) => came.answers.push((name, answer)),
                Effect::Start(start) => came.starts.push(*start),
            }
        }
        came
    }

    fn send(&mut self, sqe: Sqe, data: &[u8]) -> Came {
        let waiter = self.waiter();
        self.tags.send(self.now, waiter, &sqe, data.to_vec());
        self.came()
    }

    fn receive(&mut self, sqe: Sqe) -> Came {
        let mut sqe = sqe;
        sqe.set_sgl(Sgl::transport(sqe.function_len()));
        let waiter = self.waiter();
        self.tags.receive(self.now, waiter, &sqe);
        self.came()
    }

    fn receive_at(&mut self, offset: u64, len: u32) -> Came {
        self.receive(Sqe::function_receive(9, TAG, offset, len, 1000))
    }

    fn cancel(&mut self, wait: bool) -> Came {
        let waiter = self.waiter();
        self.tags.cancel(self.now, waiter, &Sqe::function_cancel(9, TAG, wait, 500));
        self.came()
    }

    fn pass(&mut self, time: Duration) -> Came {
        self.now += time;
        if self.tags.next_timeout().is_some_and(|at| at <= self.now) {
            self.tags.handle_timeout(self.now);
        }
        self.came()
    }

    /// Opens the tag and starts its call.
    fn open(&mut self) -> Start<u32> {
        let bytes = request();
        let mut came = self.send(part(0, &bytes).with_first(), &bytes);
        assert_eq!(came.names(), [0; 0], "a Send is answered when its request is accepted");
        let start = came.starts.remove(0);
        self.tags.accepted(TAG, start.waiter, start.send_len);
        let came = self.came();
        assert_eq!(came.answers[0].1.result, bytes.len() as u64);
        start
    }

    fn produce(&mut self, len: usize) -> Came {
        self.tags.produced(TAG, Piece::of(vec![1; len]));
        self.came()
    }

    fn end(&mut self) -> Came {
        self.tags.ended(self.now, TAG, Trailer::new(Outcome::Ok));
        self.came()
    }
}

fn request() -> Vec<u8> {
    let sources = vec![Endpoint::whole(EndpointKind::HostStream)];
    FunctionRequest { sources, args: vec![0; 100], ..FunctionRequest::new(FunctionKind::Read, 3) }.encode()
}

fn part(offset: u64, bytes: &[u8]) -> Sqe {
    Sqe::function_send(9, FunctionKind::Read, TAG, offset, bytes.len() as u32).with_function_timeout_ms(1000)
}

#[test]
fn receives_before_the_send_wait_for_it() {
    let mut table = Table::new();
    assert!(table.receive_at(0, 1000).answers.is_empty());
    table.open();
    assert_eq!(table.produce(400).received()[0].1, 400, "without FILL it takes what there is");
    assert!(table.produce(10).answers.is_empty());
    let came = table.end();
    assert!(came.answers.is_empty(), "nobody asks");
    let came = table.receive_at(400, 500);
    let (_, len, told) = came.received()[0];
    assert_eq!((len, told.end, told.trailer_len), (10, true, 128));
    assert!(table.receive_at(410, 500).received()[0].2.end, "a closed tag is still known");
}

#[test]
fn filled_receives_take_the_result_in_order_whatever_order_they_came_in() {
    let mut table = Table::new();
    table.open();
    let fill = |offset| Sqe::function_receive(9, TAG, offset, 300, 1000).with_fill();
    for offset in [600, 0, 300] {
        assert!(table.receive(fill(offset)).answers.is_empty());
    }
    assert!(table.produce(299).answers.is_empty(), "not full yet");
    let names = table.produce(302).names();
    assert_eq!(names.len(), 2, "601 bytes fill two");
    let came = table.end();
    assert_eq!(came.received()[0].1, 1);
    assert_eq!(came.received()[0].2.trailer_len, 128);
}

/// A Receive waited for bytes behind those that were there, and the call waited for those to be taken before it made
/// more: after each chunk of a long result nothing happened until the Receive's time was up, eight seconds later. Now
/// the call continues when there is too little for the next Receive.
#[test]
fn a_result_is_short_while_it_does_not_fill_the_receive_that_waits() {
    let mut table = Table::new();
    table.open();
    let fill = |offset| Sqe::function_receive(9, TAG, offset, 300, 1000).with_fill();
    assert!(!table.tags.is_short(TAG), "nobody asks");
    table.receive(fill(300));
    assert!(!table.tags.is_short(TAG), "the bytes before it are not asked for");
    table.receive(fill(0));
    assert!(table.tags.is_short(TAG));
    table.produce(299);
    assert!(table.tags.is_short(TAG), "one byte is missing");
    table.produce(1);
    assert!(table.tags.is_short(TAG), "the next one waits");
    table.produce(400);
    assert!(!table.tags.is_short(TAG), "nobody asks for the rest");
    table.receive(fill(600));
    assert!(table.tags.is_short(TAG), "100 bytes are there");
    table.end();
    assert!(!table.tags.is_short(TAG));
}

#[test]
fn a_trailer_that_does_not_fit_comes_with_the_next_receive() {
    let mut table = Table::new();
    table.open();
    table.produce(250);
    table.end();
    let (_, len, told) = table.receive_at(0, 300).received()[0];
    assert_eq!((len, told.end, told.trailer_len), (250, false, 0));
    let came = table.receive_at(5000, 128);
    assert_eq!(came.received()[0].2.trailer_len, 128, "also beyond the end");
}

#[test]
fn receives_behind_the_end_are_told_so_when_the_trailer_is_out() {
    let mut table = Table::new();
    table.open();
    for index in 0..4 {
        table.receive(Sqe::function_receive(9, TAG, index * 1000, 1000, 1000).with_fill());
    }
    table.produce(1500);
    let came = table.end();
    let told: Vec<_> = came.received().iter().map(|(_, len, told)| (*len, told.end, told.trailer_len > 0)).collect();
    assert_eq!(told, [(500, true, true), (0, true, false), (0, true, false)]);
    assert_eq!(table.tags.len(), 0);
}

#[test]
fn padding_fills_the_buffer() {
    let mut table = Table::new();
    table.open();
    table.produce(10);
    let came = table.receive(Sqe::function_receive(9, TAG, 0, 300, 1000).with_pad());
    let answer = came.only();
    assert_eq!((answer.pieces.iter().map(Piece::len).sum::<usize>(), answer.result), (300, 10));
}

#[test]
fn time_ends_what_waits_each_with_its_answer() {
    let mut table = Table::new();
    table.receive(Sqe::function_receive(9, 99, 0, 300, 100));
    table.open();
    table.receive(Sqe::function_receive(9, TAG, 0, 300, 200).with_fill());
    table.produce(100);
    assert!(table.pass(Duration::from_millis(99)).answers.is_empty());
    assert!(table.pass(Duration::from_millis(1)).only().status.is(Status::UNKNOWN_TAG));
    let came = table.pass(Duration::from_millis(100));
    let (_, len, told) = came.received()[0];
    assert_eq!((len, told.pending, told.end), (100, true, false), "what is there goes along");
    // What is left of the buffer can be asked for.
    table.produce(250);
    table.receive(Sqe::function_receive(9, TAG, 100, 300, 200).with_fill());
    let came = table.pass(Duration::from_millis(200));
    let (_, len, told) = came.received()[0];
    assert_eq!((len, told.pending), (172, true), "128 bytes are left to ask for");
    // The longest wait is ten seconds.
    table.receive(Sqe::function_receive(9, TAG, 350, 300, u32::MAX).with_fill());
    assert!(table.pass(Duration::from_secs(10)).received()[0].2.pending);
}

#[test]
fn a_result_that_nobody_asks_for_is_given_up() {
    let mut table = Table::new();
    let start = table.open();
    table.produce(100);
    table.pass(ABANDONED);
    assert!(start.control.cancel.is_cancelled());
    table.end();
    table.pass(ABANDONED);
    assert_eq!(table.tags.len(), 0);
    assert!(table.receive_at(0, 300).received()[0].2.end);
}

#[test]
fn a_cancel_that_waits_is_answered_when_the_job_has_ended() {
    let mut table = Table::new();
    let start = table.open();
    assert!(table.cancel(true).answers.is_empty());
    assert!(start.control.cancel.is_cancelled());
    let came = table.end();
    assert_eq!((came.only().status, came.only().result), (Status::SUCCESS, 0));
    let mut table = Table::new();
    table.open();
    table.cancel(true);
    assert_eq!(table.pass(Duration::from_millis(500)).only().result, 1, "it still runs");
    assert_eq!(table.cancel(false).only().result, 0);
}

#[test]
fn parts_of_a_request_may_come_in_any_order() {
    let bytes = request();
    let (first, rest) = bytes.split_at(50);
    let (second, third) = rest.split_at(70);
    let mut table = Table::new();
    assert!(table.send(part(120, third).with_last(), third).answers.is_empty());
    assert!(table.send(part(50, second), second).answers.is_empty());
    let came = table.send(part(0, first).with_first(), first);
    assert_eq!((came.answers.len(), came.starts.len()), (2, 1), "the last waits for the request to be accepted");
    assert_eq!(came.starts[0].request.args.len(), 100);
}

#[test]
fn a_request_that_ends_early_or_cannot_be_is_refused_with_all_that_waits_for_it() {
    let bytes = request();
    let mut table = Table::new();
    table.receive_at(0, 300);
    let came = table.send(part(0, &bytes[..80]).with_first().with_last(), &bytes[..80]);
    let statuses: Vec<_> = came.answers.iter().map(|(_, answer)| answer.status).collect();
    assert!(statuses[0].is(Status::INVALID_FIELD) && statuses[1].is(Status::REQUEST_REFUSED), "{statuses:?}");
    assert!(table.receive_at(0, 300).only().status.is(Status::REQUEST_REFUSED));
    // The tag can be used again.
    table.open();
}

#[test]
fn tags_waits_and_bytes_have_their_bounds() {
    let mut table = Table::new();
    let bytes = request();
    for tag in 0..4 {
        let sqe = Sqe::function_send(9, FunctionKind::Read, 100 + tag, 0, 80).with_first();
        assert!(table.send(sqe, &bytes[..80]).only().status.is_success());
    }
    let sqe = Sqe::function_send(9, FunctionKind::Read, 104, 0, 80).with_first();
    assert!(table.send(sqe, &bytes[..80]).only().status.is(Status::TAG_LIMIT_EXCEEDED));
    let early = Sqe::function_send(9, FunctionKind::Read, 500, 10, 4097);
    assert!(table.send(early, &[0; 4097]).only().status.is(Status::FUNCTION_BUSY));
    let waits = (0..9).map(|_| table.receive(Sqe::function_receive(9, 600, 0, 300, 1000)).answers.len());
    assert_eq!(waits.sum::<usize>(), 1, "8 of 16 entries may wait");
    assert_eq!(table.pass(Duration::from_secs(1)).answers.len(), 8);
    let waits = (0..9).map(|_| table.receive(Sqe::function_receive(9, 600, 0, 300, 1000)).answers.len());
    assert_eq!(waits.sum::<usize>(), 1, "who stopped waiting is not counted any more");
}

#[test]
fn a_lost_connection_stops_every_call_and_is_not_answered() {
    let mut table = Table::new();
    let start = table.open();
    table.receive_at(0, 300);
    let last = table.last;
    table.tags.lost(table.now, |name| name == last);
    assert!(table.came().answers.is_empty());
    assert!(start.control.cancel.is_cancelled());
    assert!(table.produce(100).answers.is_empty());
    table.end();
    let came = table.receive_at(0, 300);
    assert!(came.received()[0].2.end, "another queue of the controller learns how it ended");
}

/// Bytes that nobody had asked for yet were dropped with the connection, and with them the place where the result
/// continues: a host that asked from there got *Result Offset Passed*, and never heard how the call ended.
#[test]
fn another_queue_is_told_from_where_the_result_was_left() {
    let mut table = Table::new();
    let start = table.open();
    table.produce(1000);
    assert_eq!(table.receive_at(0, 300).received()[0].1, 300);
    table.tags.lost(table.now, |_| false);
    table.produce(1000);
    assert_eq!(table.tags.unclaimed(TAG), 0, "nothing of it is kept");
    assert!(start.control.cancel.is_cancelled());
    assert!(table.receive_at(300, 300).answers.is_empty(), "it has not ended");
    let came = table.end();
    let told = came.received()[0];
    assert_eq!((told.1, told.2.end, told.2.trailer_len > 0), (0, true, true));
    assert_eq!(table.tags.len(), 0);
}

#[test]
fn an_aborted_receive_ends_and_its_call_goes_on() {
    let mut table = Table::new();
    let start = table.open();
    table.receive_at(0, 300);
    let last = table.last;
    table.tags.abort(last);
    assert!(table.came().only().status.is(Status::COMMAND_ABORT_REQUESTED));
    assert!(!start.control.cancel.is_cancelled());
    table.produce(10);
    assert_eq!(table.receive_at(0, 300).received()[0].1, 10);
}

/// Input that had arrived before its request was accepted once stayed behind until its time was up.
#[test]
fn input_that_came_before_its_request_is_consumed_when_that_is_accepted() {
    let mut table = Table::new();
    let len = request().len() as u64;
    assert!(table.send(part(len, b"input").with_last(), b"input").answers.is_empty());
    let bytes = request();
    let start = table.send(part(0, &bytes).with_first(), &bytes).starts.remove(0);
    table.tags.accepted(TAG, start.waiter, start.send_len);
    let mut results: Vec<_> = table.came().answers.iter().map(|(_, answer)| answer.result).collect();
    results.sort_unstable();
    assert_eq!(results, [5, len]);
    assert_eq!(start.input.received_bytes(), 5);
}

/// Such input was acknowledged as consumed, and nobody ever read it.
#[test]
fn a_call_without_a_host_stream_takes_nothing_beyond_its_request() {
    let sources = vec![Endpoint::new(EndpointKind::Volume(1), 0, 64)];
    let bytes = FunctionRequest { sources, ..FunctionRequest::new(FunctionKind::Read, 3) }.encode();
    let len = bytes.len() as u64;
    let told = |answer: &Answer| (answer.status, answer.record.clone().unwrap().message);
    let beyond = "the request ends before this, and has no host stream as a source";
    // Beside the request, before it is accepted, and behind it.
    let more = [&bytes[..], b"more"].concat();
    let mut table = Table::new();
    let came = table.send(part(0, &more).with_first(), &more);
    assert!(came.starts.is_empty());
    assert_eq!(told(came.only()), (Status::INVALID_FIELD.dnr(), format!("byte {len} of the data: {beyond}")));
    let mut table = Table::new();
    let start = table.send(part(0, &bytes).with_first(), &bytes).starts.remove(0);
    assert!(table.send(part(len, b"more"), b"more").answers.is_empty());
    table.tags.accepted(TAG, start.waiter, start.send_len);
    let answers = table.came().answers;
    assert_eq!((answers.len(), answers[0].1.result), (2, len));
    let refused = (Status::INVALID_FIELD.dnr(), format!("byte 48 of the command: {beyond}"));
    assert_eq!(told(&answers[1].1), refused);
    assert_eq!(told(table.send(part(len, b"more").with_last(), b"more").only()), refused);
    // That there is no more may be said.
    assert_eq!(table.send(part(len, b"").with_last(), b"").only().status, Status::SUCCESS);
    assert_eq!(start.input.received_bytes(), 0);
    assert!(table.end().answers.is_empty() && table.receive_at(0, 300).received()[0].2.end);
}

/// A part that came after its call had failed, but before anybody had asked for the trailer, was taken for the start of
/// a request: its Send failed with "the request ends before its end", and the trailer was gone.
#[test]
fn input_that_comes_after_its_call_has_ended_is_not_consumed_and_leaves_the_trailer_alone() {
    let len = request().len() as u64;
    for last in [false, true] {
        let mut table = Table::new();
        table.open();
        table.tags.ended(table.now, TAG, Trailer { message: "trapped".into(), ..Trailer::new(Outcome::Trap) });
        assert!(table.came().answers.is_empty(), "nobody asks yet");
        let sqe = part(len, b"input");
        let came = table.send(if last { sqe.with_last() } else { sqe }, b"input");
        assert_eq!((came.only().status, came.only().result), (Status::SUCCESS, 0), "no byte of it was consumed");
        // Whatever the bytes are: also a whole request is not one.
        let came = table.send(part(len + 5, &request()).with_last(), &request());
        assert!(came.starts.is_empty());
        assert_eq!((came.only().status, came.only().result), (Status::SUCCESS, 0));
        let came = table.receive_at(0, 300);
        let told = came.received()[0].2;
        assert!(told.end && told.trailer_len > 128);
        let trailer: Vec<u8> = came.only().pieces.iter().flat_map(|piece| piece.bytes().to_vec()).collect();
        let trailer = Trailer::decode(&trailer).unwrap();
        assert_eq!((trailer.outcome, trailer.message.as_str()), (Outcome::Trap, "trapped"));
    }
}

/// A file operation may end on its thread before the reactor that started it says that it was accepted: its tag then
/// counted as running for good, and a cancel waited in vain.
#[test]
fn what_ends_before_it_is_said_to_be_accepted_has_ended() {
    let mut table = Table::new();
    let bytes = request();
    let start = table.send(part(0, &bytes).with_first().with_last(), &bytes).starts.remove(0);
    table.tags.ended(table.now, TAG, Trailer::new(Outcome::Ok));
    table.tags.accepted(TAG, start.waiter, start.send_len);
    assert_eq!(table.came().only().result, bytes.len() as u64, "the Send was consumed");
    let came = table.cancel(true);
    assert_eq!((came.only().status, came.only().result), (Status::SUCCESS, 0), "nothing runs any more");
    assert!(table.receive_at(0, 300).received()[0].2.end);
}
