//! A target that other hosts keep busy.

use crate::world::{SPIN, World, at, endless, session, until};
use diskside::session::{Decision, File, Pending, Plan, Ran, Reason, RunOptions, Session, SessionFunction, Where};
use std::time::Duration;

/// Another host, whose functions take all engines.
struct Load {
    session: Session,
    spin: SessionFunction,
    file: File,
}

impl Load {
    fn new(world: &World) -> Self {
        // Each session has connections of its own, as another host has.
        let session = session();
        let (spin, file) = (world.function(&session, "load", SPIN), world.open(&session));
        Self { session, spin, file }
    }

    fn begin(&self, world: &World) -> Vec<Pending<Ran>> {
        let calls = (0..2).map(|_| self.file.fold_fn(&self.spin, &[], &endless(Where::Device))).collect();
        world.until_busy(&self.session, 2);
        calls
    }

    fn end(&self, world: &World, calls: Vec<Pending<Ran>>) {
        drop(calls);
        world.until_busy(&self.session, 0);
    }
}

fn decide(file: &File, function: &SessionFunction) -> Decision {
    file.fold_fn(function, &[], &RunOptions::default()).wait().expect("it runs").decisions[0].1
}

/// How long the device is expected to take.
fn device_s(decision: &Decision) -> f64 {
    decision.estimate.expect("both sides are measured").device_s
}

/// The session's own calls never wait for each other here: only the target's answers can tell that others are there.
#[test]
fn requests_leave_a_device_that_another_host_keeps_busy_and_come_back() {
    const WAIT: Duration = Duration::from_secs(2);
    let world = World::new(1000);
    let (session, load) = (session(), Load::new(&world));
    let (file, stats) = (world.open(&session), session.function("stats64").expect("shipped"));
    for _ in 0..4 {
        for place in [Where::Device, Where::Host] {
            file.fold_fn(&stats, &[], &at(place)).wait().expect("it runs");
        }
    }
    let before = decide(&file, &stats);
    assert!(device_s(&before) < WAIT.as_secs_f64() / 2.0, "{before}");
    for _ in 0..2 {
        let calls = load.begin(&world);
        let waiting = file.fold_fn(&stats, &[], &at(Where::Device));
        until("the call waits for an engine", || {
            let url = format!("nvme-tcp://{}", world.address()).parse().expect("a URL");
            session.compute(&url).expect("functions").statistics().expect("statistics").0.queued.get() == 1
        });
        std::thread::sleep(WAIT);
        load.end(&world, calls);
        let ran = waiting.wait().expect("it runs");
        assert!(ran.parts[0].queue >= WAIT, "{:?}", ran.parts[0]);
    }
    let calls = load.begin(&world);
    for _ in 0..5 {
        // At the device, or for a probe there, they would wait without end.
        let busy = decide(&file, &stats);
        assert!(device_s(&busy) >= WAIT.as_secs_f64(), "{busy}");
        assert_eq!((busy.plan, busy.reason), (Plan::Host, Reason::Faster), "{busy}");
    }
    load.end(&world, calls);
    // Nothing of this session runs there, so it asks whether engines are free.
    until("the device is as fast as before", || device_s(&decide(&file, &stats)) < WAIT.as_secs_f64() / 2.0);
}
