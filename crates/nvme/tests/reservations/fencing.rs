//! Commands that exclude a host are answered when what it had begun is over, and no later.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use diskside_nvme::controller::{Access, BlockSize, Completion, Namespace, Operation, Request, State, Visibility};
use diskside_nvme::host::{Data, Submission};
use diskside_nvme::wire::{AcquireAction, CopySourceEntry, DsmRange, ReleaseAction, ReservationType, Sqe};
use diskside_nvme::{Nqn, Status};
use zerocopy::IntoBytes;

use super::support::medium::Fault;
use super::support::pair::{Pair, Target, namespace};
use super::{
    A, B, CONFLICT, NONE, WRITES, acquire, begin, conflicts, ended, host_config, keys, posted, register, release,
    report, sent, two,
};

const KIND: ReservationType = ReservationType::WriteExclusive;

/// B's command comes, with its data, and waits for the embedder.
fn came(b: &mut Pair, sqe: Sqe, len: u32) {
    let bytes = posted(b, sqe, len);
    take(b, &bytes);
}

/// The same with these data.
fn came_with(b: &mut Pair, sqe: Sqe, data: &[u8]) {
    let submission = Submission { sqe, data: Data::SendBytes(data.to_vec()), user_data: 5, timeout: None };
    b.io.as_mut().unwrap().0.submit(b.now, submission, &mut b.memory).unwrap();
    let bytes = sent(b);
    take(b, &bytes);
}

fn take(b: &mut Pair, bytes: &[u8]) {
    let now = b.now;
    let (_, end) = b.io.as_mut().unwrap();
    assert_eq!(end.connection.handle_bytes(now, bytes, &mut b.target.memory), bytes.len());
}

fn polled(b: &mut Pair) -> Option<Request> {
    b.io.as_mut().unwrap().1.connection.poll_request()
}

/// A write of B is with the medium.
fn begun_write(b: &mut Pair) -> Request {
    came(b, Sqe::write(1, 3, 1), 512);
    polled(b).expect("the medium is asked")
}

fn end(b: &mut Pair, write: Request) {
    let (tag, now) = (write.tag, b.now);
    let done = b.target.media.carry_out(write, &mut b.target.memory, Fault::None).unwrap();
    b.io.as_mut().unwrap().1.connection.complete(now, tag, done, &mut b.target.memory);
}

fn wake(b: &mut Pair) {
    let now = b.now;
    b.io.as_mut().unwrap().1.connection.handle_wake(now);
}

fn acquires(a: &mut Pair, key: u64) {
    begin(a, Sqe::reservation_acquire(1, AcquireAction::Acquire, KIND), keys(key, 0));
}

fn preempts(a: &mut Pair, action: AcquireAction, (own, other): (u64, u64)) {
    begin(a, Sqe::reservation_acquire(1, action, KIND), keys(own, other));
}

/// A cluster that fenced a host off begins to repair the data that this host left: a write of it that came afterwards, though it
/// had begun before, would destroy the repair.
#[test]
fn a_preempt_is_answered_when_the_writes_that_had_begun_are_over() {
    for action in [AcquireAction::Preempt, AcquireAction::PreemptAndAbort] {
        let (mut a, mut b) = two();
        register(&mut a, 1);
        register(&mut b, 2);
        assert_eq!(acquire(&mut b, &mut a, 2, ReservationType::WriteExclusiveRegistrantsOnly), Status::SUCCESS);
        // B's write is with the medium.
        let write = begun_write(&mut b);
        assert!(matches!(write.operation, Operation::Write { .. }));

        let kind = ReservationType::WriteExclusiveRegistrantsOnly;
        begin(&mut a, Sqe::reservation_acquire(1, action, kind), keys(1, 2));
        assert_eq!(ended(&mut a), None, "B's queue has not heard of it");
        wake(&mut b);
        assert_eq!(ended(&mut a), None, "its write has begun");
        let cancel = polled(&mut b).expect("what still waits there stops");
        assert!(matches!(cancel.operation, Operation::Cancel) && cancel.tag == write.tag);
        end(&mut b, write);
        assert_eq!(ended(&mut a), Some(Status::SUCCESS));
        assert_eq!(ended(&mut b), Some(Status::SUCCESS));
        assert_eq!(report(&mut b), (3, 3, vec![A]));
        assert_eq!(conflicts(&mut b), WRITES);
    }
}

/// A delta writes as a write does: one that had begun came behind the answer to the host that had fenced its host off.
#[test]
fn a_preempt_waits_for_deltas_that_had_begun() {
    let mut target = Target::new();
    let medium = target.media.add(64 * 512);
    let volume = Namespace { delta_len_max: 4096, ..namespace(1, medium, 64, BlockSize::B512) };
    target.subsystem.add_namespace(volume).unwrap();
    let beside = target.beside();
    let (mut a, mut b) = (Pair::connect(target, host_config(A)), Pair::connect(beside, host_config(B)));
    register(&mut a, 1);
    register(&mut b, 2);
    came_with(&mut b, Sqe::write_delta(1, 8, 8), &[0; 40]);
    let delta = polled(&mut b).expect("the medium is asked");
    let Operation::WriteDelta { record, .. } = delta.operation else { panic!("{delta:?}") };
    begin(&mut a, Sqe::reservation_acquire(1, AcquireAction::Acquire, KIND), keys(1, 0));
    wake(&mut b);
    assert_eq!(ended(&mut a), None, "its delta has begun");
    let cancel = polled(&mut b).expect("what still waits there stops");
    assert!(matches!(cancel.operation, Operation::Cancel) && cancel.tag == delta.tag);
    b.target.memory.remove(record.buffer);
    let now = b.now;
    let done = Completion::success();
    b.io.as_mut().unwrap().1.connection.complete(now, delta.tag, done, &mut b.target.memory);
    assert_eq!(ended(&mut a), Some(Status::SUCCESS));
}

/// A host with a rate kept the host that fenced it off waiting for as long as its writes waited for their turn, and then they were carried
/// out; its reads were carried out behind the writes of the new holder.
#[test]
fn commands_that_the_embedder_has_not_taken_are_refused() {
    let (mut a, mut b) = two();
    register(&mut a, 1);
    register(&mut b, 2);
    for (sqe, len) in [(Sqe::write(1, 3, 1), 512), (Sqe::read(1, 3, 1), 512), (Sqe::read(2, 3, 1), 512)] {
        came(&mut b, sqe, len);
    }
    let kind = ReservationType::ExclusiveAccess;
    begin(&mut a, Sqe::reservation_acquire(1, AcquireAction::Acquire, kind), keys(1, 0));
    wake(&mut b);
    assert_eq!(ended(&mut a), Some(Status::SUCCESS));
    let asked: Vec<_> = std::iter::from_fn(|| polled(&mut b)).collect();
    let [given_back, other] = &asked[..] else { panic!("{asked:?}") };
    let Operation::GiveBack(data) = given_back.operation else { panic!("{given_back:?}") };
    b.target.memory.remove(data.buffer);
    assert!(matches!(other.operation, Operation::Read { .. }) && other.nsid == 2);
    assert_eq!([ended(&mut b), ended(&mut b)], [Some(CONFLICT); 2]);
}

/// A host whose Keep Alive had expired was not found, since its controller was gone, and its writes came behind the answer: the case for
/// which clusters fence hosts off.
#[test]
fn a_preempt_waits_for_the_writes_of_a_host_whose_controller_is_gone() {
    let (mut a, mut b) = two();
    register(&mut a, 1);
    register(&mut b, 2);
    let write = begun_write(&mut b);
    b.admin_end.connection.handle_close(&mut b.target.memory);
    wake(&mut b);
    assert_eq!(b.io.as_ref().unwrap().1.connection.state(), State::Closed);
    begin(&mut a, Sqe::reservation_acquire(1, AcquireAction::PreemptAndAbort, KIND), keys(1, 2));
    wake(&mut b);
    assert_eq!(ended(&mut a), None, "its write has begun");
    drop(write);
    b.io = None;
    assert_eq!(ended(&mut a), Some(Status::SUCCESS));
}

#[test]
fn a_preempt_does_not_wait_for_a_host_that_is_gone() {
    let (mut a, mut b) = two();
    register(&mut a, 1);
    register(&mut b, 2);
    acquire(&mut b, &mut a, 2, ReservationType::WriteExclusive);
    let kind = ReservationType::WriteExclusive;
    begin(&mut a, Sqe::reservation_acquire(1, AcquireAction::Preempt, kind), keys(1, 2));
    assert_eq!(ended(&mut a), None);
    drop(b);
    assert_eq!(ended(&mut a), Some(Status::SUCCESS));
    // Its registration would have stayed, had it not been preempted.
    assert_eq!(report(&mut a), (3, 1, vec![A]));
}

#[test]
fn commands_of_a_host_that_is_preempted_are_aborted_where_nothing_is_reserved_too() {
    let (mut a, mut b) = two();
    register(&mut a, 1);
    register(&mut b, 2);
    came(&mut b, Sqe::verify(1, 0, 1), 0);
    let verify = polled(&mut b).expect("the medium is asked");
    let kind = ReservationType::WriteExclusive;
    begin(&mut a, Sqe::reservation_acquire(1, AcquireAction::PreemptAndAbort, kind), keys(1, 2));
    wake(&mut b);
    let cancel = polled(&mut b).expect("the embedder is asked to cancel it");
    assert!(matches!(cancel.operation, Operation::Cancel) && cancel.tag == verify.tag);
    assert_eq!(ended(&mut a), Some(Status::SUCCESS), "reads are not waited for");
}

/// Its writes may still be with the medium: the embedder drops a connection when it has none of them any more.
#[test]
fn a_preempt_waits_for_the_writes_of_a_connection_that_was_lost_meanwhile() {
    for is_woken in [true, false] {
        let (mut a, mut b) = two();
        register(&mut a, 1);
        register(&mut b, 2);
        let write = begun_write(&mut b);
        acquires(&mut a, 1);
        if is_woken {
            wake(&mut b);
        }
        assert_eq!(ended(&mut a), None);
        let (_, end) = b.io.as_mut().unwrap();
        end.connection.handle_close(&mut b.target.memory);
        assert_eq!(ended(&mut a), None, "its write has begun");
        drop(write);
        b.io = None;
        assert_eq!(ended(&mut a), Some(Status::SUCCESS));
    }
}

#[test]
fn a_write_whose_data_came_behind_the_reservation_is_refused() {
    let (mut a, mut b) = two();
    register(&mut a, 1);
    // More than a capsule carries: its data is asked for.
    let bytes = posted(&mut b, Sqe::write(1, 0, 32), 16 << 10);
    let now = b.now;
    let (_, end) = b.io.as_mut().unwrap();
    let asked = end.exchange(&mut b.target, now, &bytes);
    assert!(!asked.is_empty(), "an R2T");
    assert_eq!(acquire(&mut a, &mut b, 1, ReservationType::WriteExclusive), Status::SUCCESS);
    b.io.as_mut().unwrap().0.handle_bytes(now, &asked, &mut b.memory);
    assert_eq!(ended(&mut b), Some(CONFLICT));
    assert!(b.target.media.media[0].iter().all(|byte| *byte == 0));
    assert_eq!(b.target.memory.in_use(), 0, "the buffer is given back");
}

/// A host whose command timed out connects again and repeats it. There was nothing to change any more, so it was answered at once, with
/// the other host's write under way.
#[test]
fn an_acquire_that_is_repeated_waits_like_the_first_one() {
    let (mut a, mut b) = two();
    register(&mut a, 1);
    let write = begun_write(&mut b);
    acquires(&mut a, 1);
    wake(&mut b);
    assert_eq!(ended(&mut a), None);
    let beside = a.target.beside();
    drop(a);
    let mut a = Pair::connect(beside, host_config(A));
    acquires(&mut a, 1);
    wake(&mut b);
    assert_eq!(ended(&mut a), None, "B's write is with the medium");
    let cancel = polled(&mut b).expect("it is to be stopped");
    assert!(matches!(cancel.operation, Operation::Cancel) && polled(&mut b).is_none(), "and that is said once");
    end(&mut b, write);
    assert_eq!(ended(&mut a), Some(Status::SUCCESS));
}

/// The host that fenced B off dies, and a third one takes its place: B was excluded before, and its write still under way.
#[test]
fn a_third_host_waits_for_what_the_second_one_waited_for() {
    let (mut a, mut b) = two();
    let mut c = Pair::connect(a.target.beside(), host_config(0xc));
    register(&mut a, 1);
    register(&mut c, 3);
    let write = begun_write(&mut b);
    acquires(&mut a, 1);
    wake(&mut b);
    assert_eq!(ended(&mut a), None);
    drop(a);
    preempts(&mut c, AcquireAction::Preempt, (3, 1));
    wake(&mut b);
    assert_eq!(ended(&mut c), None, "B's write is with the medium");
    end(&mut b, write);
    assert_eq!(ended(&mut c), Some(Status::SUCCESS));
}

/// The fence of a first command was held for a write that a second one refused, and stood for ever.
#[test]
fn a_fence_falls_when_the_command_for_which_it_is_held_is_refused() {
    let (mut a, mut b) = two();
    register(&mut a, 1);
    register(&mut b, 2);
    let write = begun_write(&mut b);
    preempts(&mut a, AcquireAction::PreemptAndAbort, (1, 2));
    wake(&mut b);
    assert_eq!(ended(&mut a), None);
    came(&mut b, Sqe::write(1, 5, 1), 512);
    acquires(&mut a, 1);
    wake(&mut b);
    assert_eq!(ended(&mut a), None);
    end(&mut b, write);
    assert_eq!([ended(&mut a), ended(&mut a)], [Some(Status::SUCCESS); 2]);
}

/// Preempt and Abort is about the host that it preempts: a third one, which only may not write, lost its reads.
#[test]
fn an_abort_leaves_the_reads_of_others() {
    let (mut a, mut b) = two();
    let mut c = Pair::connect(a.target.beside(), host_config(0xc));
    register(&mut a, 1);
    register(&mut b, 2);
    begin(&mut a, Sqe::reservation_acquire(1, AcquireAction::Acquire, KIND), keys(1, 0));
    wake(&mut b);
    wake(&mut c);
    assert_eq!(ended(&mut a), Some(Status::SUCCESS));
    for reader in [&mut b, &mut c] {
        came(reader, Sqe::verify(1, 0, 1), 0);
    }
    preempts(&mut a, AcquireAction::PreemptAndAbort, (1, 2));
    wake(&mut b);
    wake(&mut c);
    assert_eq!(ended(&mut a), Some(Status::SUCCESS));
    assert_eq!(ended(&mut b), Some(Status::COMMAND_ABORT_REQUESTED));
    assert!(matches!(polled(&mut c).expect("it is asked for").operation, Operation::Verify { .. }));
}

/// Where nothing is reserved, a host that is preempted may write: only its commands of before are to end, if that is asked for. One with
/// a rate kept the other waiting for its turn.
#[test]
fn a_preempt_without_a_reservation_ends_commands_only_if_it_aborts() {
    for (action, told) in
        [(AcquireAction::Preempt, None), (AcquireAction::PreemptAndAbort, Some(Status::COMMAND_ABORT_REQUESTED))]
    {
        let (mut a, mut b) = two();
        register(&mut a, 1);
        register(&mut b, 2);
        came(&mut b, Sqe::write(1, 3, 1), 512);
        preempts(&mut a, action, (1, 2));
        wake(&mut b);
        assert_eq!(ended(&mut a), Some(Status::SUCCESS));
        let request = polled(&mut b).expect("the write, or its buffer");
        if let Operation::GiveBack(data) = request.operation {
            b.target.memory.remove(data.buffer);
        }
        assert_eq!(ended(&mut b), told);
        assert_eq!(conflicts(&mut b), NONE);
    }
}

thread_local! {
    static MEANWHILE: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

/// Does something while B's connection takes its snapshot of the namespaces.
#[derive(Debug)]
struct Slow;

impl Visibility for Slow {
    fn access(&self, host: &Nqn, _: &Namespace) -> Access {
        if host.as_str().ends_with(":b")
            && let Some(act) = MEANWHILE.with_borrow_mut(Option::take)
        {
            act();
        }
        Access::Write
    }
}

/// A fence that came between a connection's look around and its look at the fences was noted with the old namespaces; a write that waited
/// for memory then began behind the answer.
#[test]
fn a_fence_is_noted_with_the_change_that_put_it_up() {
    let (mut a, mut b) = two();
    register(&mut a, 1);
    b.target.memory.pool_max = Some(1);
    // The first one's data is asked for, and has the buffer; the second one's came with it, and waits for one.
    came(&mut b, Sqe::write(1, 0, 32), 16 << 10);
    came(&mut b, Sqe::write(1, 40, 1), 512);
    assert!(polled(&mut b).is_none());
    a.target.subsystem.set_visibility(Arc::new(Slow));
    a.run();
    let a = Rc::new(RefCell::new(a));
    let of_a = Rc::clone(&a);
    MEANWHILE.set(Some(Box::new(move || acquires(&mut of_a.borrow_mut(), 1))));
    wake(&mut b);
    let answered = ended(&mut a.borrow_mut());
    b.target.memory.pool_max = Some(2);
    let now = b.now;
    b.io.as_mut().unwrap().1.connection.handle_buffers(now, &mut b.target.memory);
    let begun = polled(&mut b);
    assert!(answered.is_none() || begun.is_none(), "{answered:?}, then {begun:?} begins");
    assert!(MEANWHILE.with_borrow(Option::is_none), "it was done");
}

#[test]
fn all_that_writes_is_waited_for_and_only_in_its_namespace() {
    let (range, copy) = (DsmRange::new(0, 1), CopySourceEntry::new(0, 8, 1));
    let block = [9; 512];
    let all: [(Sqe, &[u8], bool); 8] = [
        (Sqe::write(1, 3, 1), &block, true),
        (Sqe::write_zeroes(1, 0, 1, false), &[], true),
        (Sqe::deallocate(1, 1), range.as_bytes(), true),
        (Sqe::copy(1, 16, 1, 0), copy.as_bytes(), true),
        (Sqe::verify(1, 0, 1), &[], false),
        (Sqe::compare(1, 0, 1), &block, false),
        (Sqe::flush(1), &[], false),
        (Sqe::write(2, 3, 1), &block, false),
    ];
    for (sqe, data, is_waited_for) in all {
        let (mut a, mut b) = two();
        register(&mut a, 1);
        match data {
            [] => came(&mut b, sqe, 0),
            data => came_with(&mut b, sqe, data),
        }
        let request = polled(&mut b).unwrap_or_else(|| panic!("{sqe:?} is asked for"));
        acquires(&mut a, 1);
        wake(&mut b);
        let answered = ended(&mut a);
        assert_eq!(answered.is_none(), is_waited_for, "{sqe:?}");
        end(&mut b, request);
        assert_eq!(answered.or_else(|| ended(&mut a)), Some(Status::SUCCESS), "{sqe:?}");
    }
}

/// The embedder may have commands of a connection that it has closed. A wake found none, and let the fence fall.
#[test]
fn a_wake_behind_the_close_lets_no_fence_fall() {
    let (mut a, mut b) = two();
    register(&mut a, 1);
    let write = begun_write(&mut b);
    let (_, end) = b.io.as_mut().unwrap();
    end.connection.handle_close(&mut b.target.memory);
    acquires(&mut a, 1);
    wake(&mut b);
    assert_eq!(ended(&mut a), None, "the medium has its write");
    drop(write);
    b.io = None;
    assert_eq!(ended(&mut a), Some(Status::SUCCESS));
}

/// Of two hosts that fence each other off at once, with writes of both under way, the later one is heard.
#[test]
fn two_hosts_that_fence_each_other_off_are_both_answered() {
    let (mut a, mut b) = two();
    register(&mut a, 1);
    register(&mut b, 2);
    let (of_a, of_b) = (begun_write(&mut a), begun_write(&mut b));
    acquires(&mut a, 1);
    preempts(&mut b, AcquireAction::Preempt, (2, 1));
    wake(&mut a);
    wake(&mut b);
    for (pair, write) in [(&mut a, of_a), (&mut b, of_b)] {
        end(pair, write);
    }
    let count = |pair: &mut Pair| (0..5).filter_map(|_| ended(pair)).count();
    assert_eq!((count(&mut a), count(&mut b)), (2, 2));
    assert_eq!(conflicts(&mut a), WRITES);
}

/// A host that came and went left a fence each time, as long as a write of another one hung.
#[test]
fn fences_of_hosts_that_are_gone_go_too() {
    let (mut a, mut b) = two();
    register(&mut a, 1);
    let _write = begun_write(&mut b);
    for _ in 0..100 {
        acquires(&mut a, 1);
        release(&mut a, 1, KIND);
        wake(&mut b);
        let beside = a.target.beside();
        drop(a);
        a = Pair::connect(beside, host_config(A));
    }
    let fences = format!("{:?}", b.io.as_ref().unwrap().1.connection).matches("Fence {").count();
    assert!(fences < 10, "{fences} fences");
}

#[test]
fn a_connection_has_few_commands_that_wait_and_a_volume_few_changes() {
    let (mut a, mut b) = two();
    register(&mut a, 1);
    let write = begun_write(&mut b);
    let mut answers = Vec::new();
    for _ in 0..9 {
        acquires(&mut a, 1);
        answers.extend(ended(&mut a));
    }
    assert_eq!(answers, [Status::COMMAND_INTERRUPTED], "eight wait");
    wake(&mut b);
    end(&mut b, write);
    for _ in 0..8 {
        assert_eq!(ended(&mut a), Some(Status::SUCCESS));
    }
    drop(b);
    let toggle = |a: &mut Pair| {
        let released = release(a, 1, KIND);
        acquires(a, 1);
        (released, ended(a).unwrap())
    };
    let at_once = (0..300).take_while(|_| toggle(&mut a) == (Status::SUCCESS, Status::SUCCESS)).count();
    assert_eq!(at_once, 127, "256 changes with the first acquire, of which the last acquire is not made");
    a.now += std::time::Duration::from_secs(1);
    let later = (0..300).take_while(|_| toggle(&mut a) == (Status::SUCCESS, Status::SUCCESS)).count();
    assert!((49..=51).contains(&later), "{later} of a hundred changes in a second");
}

/// The embedder writes for a host beside its queues, too: outputs of functions, and copies of device memory.
#[test]
fn writes_of_the_embedder_are_waited_for() {
    let (mut a, mut b) = two();
    register(&mut a, 1);
    let of_b = b.io.as_ref().unwrap().1.connection.reservations();
    let (one, other) = (of_b.begin_write(1).unwrap(), of_b.begin_write(2).unwrap());
    acquires(&mut a, 1);
    wake(&mut b);
    assert_eq!(ended(&mut a), None);
    assert!(of_b.begin_write(1).is_none(), "no more begin");
    drop(one);
    assert_eq!(ended(&mut a), Some(Status::SUCCESS), "the other one is to another volume");
    drop(other);
    let of_a = a.io.as_ref().unwrap().1.connection.reservations();
    assert!(of_a.begin_write(1).is_some(), "the holder writes");
    begin(&mut a, Sqe::reservation_release(1, ReleaseAction::Release, KIND), 1_u64.to_le_bytes().to_vec());
    assert_eq!(ended(&mut a), Some(Status::SUCCESS));
    assert!(of_b.begin_write(1).is_some());
}
