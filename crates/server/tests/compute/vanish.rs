//! Hosts that go away, fall silent or give up, in the middle of all that a target does for them. Whatever it was: soon
//! nothing of it runs, nothing is kept for it, no file is half new, and others notice nothing.

#[path = "vanish/work.rs"]
mod work;

use std::io::Write as _;
use std::time::{Duration, Instant};

use self::work::{Begun, FREE, Lab, WATCHER, Work, compiled_once};
use crate::client::{COMPUTE, Client, Received, VOLUME};
use crate::common::Queue;
use diskside_nvme::Status;
use diskside_nvme::wire::Sqe;
use diskside_nvme::wire::feature;
use diskside_wire::function::{FunctionCommand, Outcome, StatisticsPage, function_log};

/// How a host ends what it began.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// All of its connections are closed.
    Closed,
    /// One of two connections is: the controller stays.
    QueueClosed,
    /// It sends garbage on one of them, and does not read on.
    Broken,
    /// It says nothing any more, until its controller is given up.
    Silent,
    /// It aborts the command that waits.
    Aborted,
    /// It cancels the call, and waits for that.
    Cancelled,
}

const GONE: [Way; 4] = [Way::Closed, Way::QueueClosed, Way::Broken, Way::Silent];
const ABORTED: [Way; 5] = [Way::Closed, Way::QueueClosed, Way::Broken, Way::Silent, Way::Aborted];
const EVERY: [Way; 6] = [Way::Closed, Way::QueueClosed, Way::Broken, Way::Silent, Way::Aborted, Way::Cancelled];
/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);
/// A Function Call ends by itself after this: what is seen later proves nothing.
const CALL_MAX: Duration = Duration::from_secs(10);

#[test]
fn what_computes_ends_with_its_host() {
    let lab = Lab::new();
    each(&lab, Work::Loop, &EVERY);
    each(&lab, Work::PreparedLoop, &ABORTED);
    each(&lab, Work::Execution, &ABORTED);
    each(&lab, Work::Traversal, &EVERY);
    each(&lab, Work::PreparedTraversal, &ABORTED);
}

#[test]
fn what_writes_ends_with_its_host() {
    let lab = Lab::new();
    for sink in work::SINKS {
        each(&lab, Work::Write(sink), &EVERY);
    }
    each(&lab, Work::PreparedWrite, &ABORTED);
}

#[test]
fn what_waits_for_memory_ends_with_its_host() {
    let lab = Lab::new();
    each(&lab, Work::MemoryRead, &EVERY);
    each(&lab, Work::MemoryWrite, &EVERY);
    each(&lab, Work::MemoryWalk, &EVERY);
}

#[test]
fn what_waits_for_its_host_ends_with_it() {
    let lab = Lab::new();
    each(&lab, Work::Stream, &EVERY);
    each(&lab, Work::HalfRequest, &EVERY);
    each(&lab, Work::HalfRead, &EVERY);
    // Its socket is full, so it cannot be told anything.
    each(&lab, Work::Unread, &GONE);
    each(&lab, Work::FileOperations, &[Way::Closed, Way::Silent]);
    each(&lab, Work::HalfLoad, &[Way::Closed, Way::Silent]);
}

fn each(lab: &Lab, work: Work, ways: &[Way]) {
    for way in ways {
        let told = std::panic::AssertUnwindSafe(|| (0..10).any(|_| once(lab, work, *way)));
        match std::panic::catch_unwind(told) {
            Ok(conclusive) => assert!(conclusive, "{work:?}, {way:?}: this machine is too slow"),
            Err(panic) => {
                eprintln!("{work:?}, {way:?}");
                std::panic::resume_unwind(panic);
            }
        }
    }
}

/// False: it took so long that it proves nothing.
fn once(lab: &Lab, work: Work, way: Way) -> bool {
    let mut watcher = Client::connect_as(&lab.running, WATCHER);
    let is_alone = |watcher: &mut Client| watcher.can_load_at(FREE) && watcher.can_load_at(FREE + 1);
    until("those of before are gone", &mut watcher, is_alone);
    lab.refresh(&mut watcher, work);
    let mut client = Client::connect(&lab.running);
    let began = Instant::now();
    let begun = lab.begin(&mut client, &mut watcher, work);
    serves(&mut watcher);

    let after = end(client, &mut watcher, work, &begun, way);
    if way == Way::Cancelled {
        // A fence: not soon, but now.
        let page = statistics(&mut watcher);
        assert!(is_idle(&page, &begun), "{page:?}");
        lab.check(&mut watcher, work);
    }
    until("nothing of it is left", &mut watcher, |watcher| is_idle(&statistics(watcher), &begun));
    if let After::Stays { client: mut host, .. } = after {
        if has_program(&mut host) {
            host.activate(FREE, false).ok();
            until("its program is used no more", &mut watcher, |_| {
                let unload = Sqe::unload_program(COMPUTE, FREE);
                let answer = host.controller.admin.command(unload, None, 0);
                assert!(answer.status.is_success() || answer.status == Status::PROGRAM_IN_USE, "{}", answer.status);
                answer.status.is_success()
            });
        }
        let is_conclusive = !work.ends_by_itself() || began.elapsed() < CALL_MAX;
        lab.check(&mut watcher, work);
        serves(&mut watcher);
        // It may have one call at a time: the old one is not counted any more.
        serves(&mut host);
        return is_conclusive;
    }
    // They go with the last thing that runs for it.
    until("its programs are gone", &mut watcher, |watcher| watcher.can_load_at(FREE));
    let is_conclusive = !work.ends_by_itself() || began.elapsed() < CALL_MAX;
    lab.check(&mut watcher, work);
    serves(&mut watcher);
    until("its files are closed", &mut watcher, |_| lab.open_files().is_empty());
    if work == Work::HalfLoad {
        let object = compiled_once("late");
        until("its place is free for others", &mut watcher, |watcher| {
            let answer = watcher.load(FREE, &object);
            assert!(answer.status.is_success() || answer.status.is(Status::PROGRAM_IN_USE), "{}", answer.status);
            answer.status.is_success()
        });
        watcher.controller.admin.command(Sqe::unload_program(COMPUTE, FREE), None, 0).ok();
    }
    lab.check(&mut watcher, work);
    // The silent host had its sockets open till now.
    drop(after);
    serves(&mut Client::connect(&lab.running));
    is_conclusive
}

/// What is left of a host.
enum After {
    Gone,
    Silent {
        _client: Client,
    },
    /// With the connection that it broke, which nobody reads.
    Stays {
        client: Client,
        _broken: Option<Queue>,
    },
}

/// Ends what has begun.
fn end(mut client: Client, watcher: &mut Client, work: Work, begun: &Begun, way: Way) -> After {
    match way {
        Way::Closed => After::Gone,
        Way::QueueClosed => {
            // The new queue takes the place of the old one, whose connection is closed.
            let before = ended(watcher);
            client.queue = client.controller.io_queue(2, 64);
            until("its end", watcher, |watcher| !begun.is_counted() || ended(watcher) > before);
            is_told_that_it_was_cancelled(&mut client, begun, None);
            After::Stays { client, _broken: None }
        }
        Way::Broken => {
            let before = ended(watcher);
            client.queue.wire.write_all(&[0xff; 64]).unwrap();
            let queue = client.controller.io_queue(2, 64);
            let broken = std::mem::replace(&mut client.queue, queue);
            until("its end", watcher, |watcher| !begun.is_counted() || ended(watcher) > before);
            is_told_that_it_was_cancelled(&mut client, begun, None);
            After::Stays { client, _broken: Some(broken) }
        }
        Way::Silent => {
            let soon = Sqe::set_features(feature::KEEP_ALIVE_TIMER, 100);
            client.controller.admin.command(soon, None, 0).ok();
            After::Silent { _client: client }
        }
        Way::Aborted => {
            let cid = begun.waits.expect("a command waits");
            client.controller.admin.command(Sqe::abort(1, cid), None, 0).ok();
            let ended = client.queue.wait(cid).unwrap();
            match begun.tag {
                Some(_) => {
                    assert_eq!(ended.status, Status::COMMAND_ABORT_REQUESTED);
                    let page = statistics(watcher);
                    assert_eq!(page.tags_open.get(), 1, "the Receive ends, its call goes on: {page:?}");
                    cancel(&mut client, begun, None);
                }
                None if work == Work::Execution => assert_eq!(ended.status, Status::COMMAND_ABORT_REQUESTED),
                None => {
                    let trailer = Received::of(ended).trailer.expect("there is room for one");
                    assert_eq!(trailer.outcome, Outcome::Cancelled, "{}", trailer.message);
                }
            }
            After::Stays { client, _broken: None }
        }
        Way::Cancelled => {
            cancel(&mut client, begun, begun.waits);
            After::Stays { client, _broken: None }
        }
    }
}

/// Cancels the call, and reads to its end. `open`: a Receive of it waits.
fn cancel(client: &mut Client, begun: &Begun, open: Option<u16>) {
    let tag = begun.tag.expect("it has a tag");
    let answer = client.queue.command(Sqe::function_cancel(COMPUTE, tag, true, 10_000), None, 0);
    assert_eq!((answer.status, answer.result), (Status::SUCCESS, 0));
    is_told_that_it_was_cancelled(client, begun, open);
}

/// Reads on to the end. A request that was not whole is refused instead.
fn is_told_that_it_was_cancelled(client: &mut Client, begun: &Begun, open: Option<u16>) {
    let Some(tag) = begun.tag else { return };
    let mut at = begun.taken;
    let mut cid = open.unwrap_or_else(|| client.post_receive(tag, at, 4096, 10_000));
    loop {
        let answer = client.queue.wait(cid).unwrap();
        if answer.status.is(Status::REQUEST_REFUSED) {
            return assert!(begun.is_half);
        }
        let received = Received::of(answer);
        at += received.bytes.len() as u64;
        if let Some(trailer) = received.trailer {
            return assert_eq!(trailer.outcome, Outcome::Cancelled, "{}", trailer.message);
        }
        assert!(!received.answer.end || open == Some(cid), "the end comes with its trailer");
        cid = client.post_receive(tag, at, 1 << 20, 10_000);
    }
}

/// The target serves this host.
fn serves(client: &mut Client) {
    let request = client.over("stats64", &[], 4096);
    assert_eq!(client.result(&request).len(), 32);
    client.queue.read(VOLUME, 0, 1).ok();
}

fn statistics(client: &mut Client) -> StatisticsPage {
    let len = 16 << 10;
    let sqe = Sqe::get_log_page(function_log::STATISTICS, 0, len, 0, false);
    StatisticsPage::decode(&client.controller.admin.command(sqe, None, len as usize).ok()).unwrap().0
}

/// Calls that did not end well.
fn ended(client: &mut Client) -> u64 {
    statistics(client).failed.get()
}

fn has_program(client: &mut Client) -> bool {
    client.programs().iter().any(|program| program.pind.get() == FREE)
}

fn is_idle(page: &StatisticsPage, begun: &Begun) -> bool {
    let others = begun.others_engines();
    (page.engines_busy.get(), page.queued.get(), page.tags_open.get()) == (others, 0, 0)
}

/// Waits until it holds.
fn until(what: &str, watcher: &mut Client, mut holds: impl FnMut(&mut Client) -> bool) {
    let began = Instant::now();
    while !holds(watcher) {
        assert!(began.elapsed() < PATIENCE, "{what}: {:?}", statistics(watcher));
        std::thread::sleep(Duration::from_millis(1));
    }
}
