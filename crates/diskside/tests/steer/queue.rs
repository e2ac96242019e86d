//! A target that other hosts keep busy.

use crate::world::{SPIN, World, endless, session, until};
use diskside::host::ConnectOptions;
use diskside::session::{
    Decision, File, Pending, Plan, Ran, Reason, RunOptions, Session, SessionFunction, SessionOptions, Where,
};

/// Other hosts, each with a function that never ends.
const HOSTS: u8 = 8;
/// Takes many turns of an engine.
const WORK: &str = "for (volatile __u64 i = 0; i < 300000000; i++) *out = i;\nreturn 8;";

fn load(world: &World) -> Vec<(Session, Pending<Ran>)> {
    let begin = |host: u8| {
        let mut connect = ConnectOptions::default();
        connect.identity.id = [host + 1; 16];
        connect.identity.nqn = format!("nqn.2026-11.org.example:host{host}").parse().expect("a name");
        let session = Session::new(SessionOptions { connect, ..SessionOptions::default() });
        let spin = world.function(&session, "load", SPIN);
        let call = world.open(&session).fold_fn(&spin, &[], &endless(Where::Device));
        (session, call)
    };
    (0..HOSTS).map(begin).collect()
}

/// So many calls run or wait for a turn.
fn until_there_are(world: &World, session: &Session, calls: u32) {
    let compute =
        session.compute(&format!("nvme-tcp://{}", world.address()).parse().expect("a URL")).expect("functions");
    until(&format!("{calls} calls are there"), || {
        let page = compute.statistics().expect("statistics").0;
        page.engines_busy.get() + page.queued.get() == calls
    });
}

fn run(file: &File, function: &SessionFunction, place: Where) -> Ran {
    file.fold_fn(function, &[], &endless(place)).wait().expect("it runs")
}

fn decide(file: &File, function: &SessionFunction) -> Decision {
    run(file, function, RunOptions::default().place).decisions[0].1
}

/// How long the device is expected to take.
fn device_s(decision: &Decision) -> f64 {
    decision.estimate.expect("both sides are measured").device_s
}

/// The session's own calls never wait for each other here: only the target's answers can tell that others are there. Nine
/// hosts share one engine, so a call waits about eight times as long as it runs; a part of that is enough to see it.
#[test]
fn requests_leave_a_device_that_other_hosts_keep_busy_and_come_back() {
    let world = World::with_engines(1000, 1);
    let session = session();
    let (file, work) = (world.open(&session), world.function(&session, "work", WORK));
    for place in [Where::Device, Where::Host].repeat(4) {
        run(&file, &work, place);
    }
    let free_s = device_s(&decide(&file, &work));
    let others = load(&world);
    until_there_are(&world, &session, HOSTS.into());
    // Other programs that compute on this machine slow one side or the other for a while; the other hosts wait for
    // good.
    until("a call waits longer than it runs, which is no part of its run", || {
        let part = run(&file, &work, Where::Device).parts.remove(0);
        part.queue > part.run
    });
    let mut busy_s = 0.0;
    until("the host is chosen, since the device is busy", || {
        // What the target's answers say counts once several agree.
        run(&file, &work, Where::Device);
        let busy = decide(&file, &work);
        busy_s = device_s(&busy);
        (busy.plan, busy.reason) == (Plan::Host, Reason::Faster) && busy_s > 2.0 * free_s
    });
    drop(others);
    until_there_are(&world, &session, 0);
    // Nothing of this session runs there, so it asks whether engines are free.
    until("the device is not waited for any more", || device_s(&decide(&file, &work)) < (free_s + busy_s) / 2.0);
}
