//! Named states: what calls of a host share, while others run, clear it, or have run out of time.

use std::time::{Duration, Instant};

use crate::client::{COMPUTE, Client, Received, VOLUME, start};
use crate::common::{Answer, builder};
use crate::standard::compiled;
use diskside_nvme::Status;
use diskside_nvme::wire::Sqe;
use diskside_server::Running;
use diskside_wire::function::{
    ClearSelect, FunctionCommand, FunctionKind, FunctionRequest, Outcome, StateName, StatisticsPage, Trailer,
    function_log,
};

const FREE: u16 = 100;
const COUNT: &str = "count";
/// FNV-1a of it, 64 bits.
const COUNT_ID: u64 = 0xb1e5_e28e_4479_a274;

impl Client {
    /// Loads a program that counts its runs in the state; or, with an argument other than 0, for ever.
    pub(crate) fn load_counter(&mut self, pind: u16) {
        self.load(pind, &compiled("state")).ok();
        self.activate(pind, true).ok();
    }

    pub(crate) fn counts(&mut self, for_ever: bool) -> FunctionRequest {
        let sources = self.over("wc", &[], 8).sources;
        let pind = self.pind("state");
        FunctionRequest {
            args: u64::from(for_ever).to_le_bytes().to_vec(),
            sources,
            budget: u64::MAX,
            state: Some(StateName { name: COUNT.into(), len_bytes: 64 }),
            ..FunctionRequest::new(FunctionKind::Read, pind)
        }
    }

    fn count(&mut self) -> u64 {
        let request = self.counts(false);
        u64::from_le_bytes(self.result(&request).try_into().unwrap())
    }

    /// Starts a run that does not end by itself, and waits until it computes. Gives its tag.
    pub(crate) fn count_for_ever(&mut self) -> u64 {
        let (request, tag) = (self.counts(true), self.tag());
        self.send(tag, &request).ok();
        let began = Instant::now();
        while StatisticsPage::decode(&self.log(function_log::STATISTICS, 0)).unwrap().0.engines_busy.get() == 0 {
            assert!(began.elapsed() < Duration::from_secs(20), "it never began");
            std::thread::sleep(Duration::from_millis(1));
        }
        tag
    }

    /// Starts a run that does not end by itself, and waits until it has the state: an engine is busy before that.
    fn hold_state(&mut self) -> u64 {
        let tag = self.count_for_ever();
        let late = FunctionRequest { deadline_ms: 50, ..self.counts(false) };
        let began = Instant::now();
        while !is_late_within(&self.run(&late).1) {
            assert!(began.elapsed() < Duration::from_secs(20), "it never had the state");
        }
        tag
    }

    pub(crate) fn cancel(&mut self, tag: u64) {
        let answer = self.queue.command(Sqe::function_cancel(COMPUTE, tag, true, 10_000), None, 0);
        assert_eq!((answer.status, answer.result), (Status::SUCCESS, 0));
    }

    pub(crate) fn clear_state(&mut self, id: u64) -> Answer {
        self.queue.command(Sqe::function_clear(COMPUTE, ClearSelect::State, id, 0..u64::MAX), None, 0)
    }
}

/// The deadline passed after the call had got an engine.
fn is_late_within(trailer: &Trailer) -> bool {
    trailer.outcome == Outcome::Deadline && !trailer.message.contains("before an engine was free")
}

fn four_engines() -> Running {
    start(builder().volume("data=mem:1MiB,rw".parse().unwrap()).compute(|compute| compute.engines = 4))
}

/// A reactor waited for a run that used the state, for an hour if need be, and with it all its connections did.
#[test]
fn a_state_is_cleared_while_a_run_uses_it_and_nobody_waits() {
    let running = four_engines();
    let mut client = Client::connect(&running);
    client.load_counter(FREE);
    assert_eq!((client.count(), client.count()), (1, 2));
    client.clear_state(COUNT_ID).ok();
    assert_eq!(client.count(), 1, "it began anew");

    let tag = client.hold_state();
    client.clear_state(COUNT_ID).ok();
    client.queue.read(VOLUME, 0, 1).ok();
    let mut other = Client::connect_as(&running, "nqn.2026-11.org.example:other");
    other.queue.read(VOLUME, 0, 1).ok();
    client.cancel(tag);
    assert_eq!(client.count(), 1, "it was cleared behind the run");
    client.clear_state(1).fails_with(Status::INVALID_FIELD.dnr());
    assert_eq!(client.errors()[0].message, "byte 8 of the command: there is no state with this hash");
}

/// A call that waited for a state that another call used could not be cancelled, and did not hear of its deadline.
#[test]
fn a_call_that_waits_for_its_state_ends_with_its_deadline_and_by_a_cancel() {
    let running = four_engines();
    let mut client = Client::connect(&running);
    client.load_counter(FREE);
    let first = client.hold_state();
    let late = FunctionRequest { deadline_ms: 100, ..client.counts(false) };
    let (_, trailer) = client.run(&late);
    assert_eq!(trailer.outcome, Outcome::Deadline, "{}", trailer.message);
    let (waits, tag) = (client.counts(false), client.tag());
    client.send(tag, &waits).ok();
    client.cancel(tag);
    let (_, trailer) = client.finish(tag);
    assert_eq!(trailer.outcome, Outcome::Cancelled, "{}", trailer.message);
    client.cancel(first);
}

/// A Call that began late got a status that lets it be sent again, while it ran: its effect on its state happened
/// twice.
#[test]
fn a_call_that_may_be_sent_again_has_done_nothing() {
    let running =
        start(builder().volume("data=mem:1MiB,rw".parse().unwrap()).compute(|compute| compute.host_calls = 1));
    let mut client = Client::connect(&running);
    client.load_counter(FREE);
    let counts = client.counts(true);
    let handle = client.prepare(&counts);
    // The only call that this host may run, for most of the time of the next.
    let other = StateName { name: "other".into(), len_bytes: 64 };
    let first = FunctionRequest { deadline_ms: 1_500, state: Some(other), ..counts };
    let tag = client.tag();
    client.send(tag, &first).ok();
    let call = Sqe::function_call(COMPUTE, handle, &1_u64.to_le_bytes(), 4096, 2_000);
    let answer = client.queue.command(call, None, 4096);
    let is_busy = answer.status == Status::FUNCTION_BUSY;
    if !is_busy {
        let trailer = Received::of(answer).trailer.unwrap();
        assert_eq!(trailer.outcome, Outcome::Deadline, "{}", trailer.message);
    }
    let (_, trailer) = client.finish(tag);
    assert_eq!(trailer.outcome, Outcome::Deadline, "{}", trailer.message);
    let count = client.count();
    assert!(!is_busy || count == 1, "it was begun, and is to be sent again: {count}");
}
