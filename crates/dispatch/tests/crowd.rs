//! Requests at once share a side: its engines, its medium, the link.
//!
//! Eight requests at once took a function three times as long with `auto` as at the device: each took as long as
//! all that ran with it, and the dispatcher let a new one wait for the sum of those times.

mod world;

use diskside_dispatch::{Conditions, Dispatcher, Observation, Plan, Policy, Request, Side};
use world::{MIB, PAIR};

/// The first bytes of a link that lets bursts pass come faster.
const PROBE_FASTER: f64 = 0.4;

/// A side on which so many requests run as fast as one alone; more share what there is.
#[derive(Clone, Copy)]
struct Shared {
    input_s: f64,
    run_s: f64,
    at_full_speed: f64,
}

struct Running {
    side: Side,
    left_s: f64,
    started_s: f64,
    /// Requests on its side, integrated over its time.
    crowd_s: f64,
}

/// Runs `count` requests, `at_once` at a time, and says how long all of them took.
fn makespan_s(dispatcher: &mut Dispatcher, sides: [Shared; 2], at_once: usize, count: usize) -> f64 {
    let mut now_s = 0.0;
    let mut begun = 0;
    let mut running: Vec<Running> = Vec::new();
    loop {
        while begun < count && running.len() < at_once {
            begun += 1;
            let side = decide(dispatcher, sides, &running);
            let left_s = sides[side as usize].input_s + sides[side as usize].run_s;
            running.push(Running { side, left_s, started_s: now_s, crowd_s: 0.0 });
        }
        if running.is_empty() {
            return now_s;
        }
        let on = [Side::Host, Side::Device].map(|side| running.iter().filter(|r| r.side == side).count() as f64);
        let rate = |side: Side| (sides[side as usize].at_full_speed / on[side as usize]).min(1.0);
        let step_s = running.iter().map(|r| r.left_s / rate(r.side)).fold(f64::INFINITY, f64::min);
        now_s += step_s;
        for request in &mut running {
            request.left_s -= step_s * rate(request.side);
            request.crowd_s += step_s * on[request.side as usize];
        }
        let ended: Vec<Running>;
        (ended, running) = running.into_iter().partition(|request| request.left_s < 1e-12);
        for request in ended {
            observe(dispatcher, &request, &sides[request.side as usize], now_s);
        }
    }
}

/// Where the next request runs. A probe runs besides, and takes no time of the others.
fn decide(dispatcher: &mut Dispatcher, sides: [Shared; 2], running: &[Running]) -> Side {
    let on = |side: Side| running.iter().filter(|r| r.side == side).count() as u32;
    let conditions =
        Conditions { device_running: on(Side::Device), host_running: on(Side::Host), ..Conditions::default() };
    let request = Request { divisible: false, ..Request::read(8 * MIB) };
    let decision = dispatcher.decide(PAIR, &request, &conditions);
    if let Some(probe) = decision.probe {
        let share = probe.len_bytes as f64 / request.len_bytes as f64;
        let Shared { input_s, run_s, .. } = sides[probe.side as usize];
        let took = observation(probe.side, probe.len_bytes, input_s * share * PROBE_FASTER, run_s * share);
        dispatcher.observe_probe(PAIR, &took, 1.0);
    }
    match decision.plan {
        Plan::Host => Side::Host,
        Plan::Device => Side::Device,
        Plan::Split | Plan::Both => panic!("{decision}"),
    }
}

fn observe(dispatcher: &mut Dispatcher, request: &Running, side: &Shared, now_s: f64) {
    let total_s = now_s - request.started_s;
    let slower = total_s / (side.input_s + side.run_s);
    let took = observation(request.side, 8 * MIB, side.input_s * slower, side.run_s * slower);
    dispatcher.observe_among(PAIR, &took, request.crowd_s / total_s);
}

fn observation(side: Side, len_bytes: u64, input_s: f64, run_s: f64) -> Observation {
    Observation {
        side,
        len_bytes,
        input_bytes: len_bytes,
        output_bytes: 24,
        round_trip_s: 0.0,
        queue_s: 0.0,
        input_s,
        run_s,
        output_s: 0.0,
        total_s: input_s + run_s,
    }
}

/// One that has measured both sides alone, as it has after some requests one at a time.
fn experienced(sides: [Shared; 2]) -> Dispatcher {
    let mut dispatcher = Dispatcher::new(Policy::Adaptive);
    for side in [Side::Host, Side::Device] {
        let Shared { input_s, run_s, .. } = sides[side as usize];
        let alone = Running { side, left_s: 0.0, started_s: 0.0, crowd_s: input_s + run_s };
        (0..3).for_each(|_| observe(&mut dispatcher, &alone, &sides[side as usize], input_s + run_s));
    }
    dispatcher
}

#[test]
fn requests_at_once_take_no_longer_than_on_the_better_side() {
    let device = |s: f64, at_full_speed| Shared { input_s: s / 2.0, run_s: s / 2.0, at_full_speed };
    // What the host reads comes over one link.
    let host = |s: f64| Shared { input_s: 0.9 * s, run_s: 0.1 * s, at_full_speed: 1.1 };
    for (name, sides) in [
        ("a fast device with two engines, a link of 1 Gb/s", [host(0.075), device(0.0147, 2.0)]),
        ("a slow device with one engine, a fast link", [host(0.008), device(0.060, 1.0)]),
        ("both alike", [host(0.020), device(0.020, 1.0)]),
        (
            "a device that is faster for one, and slower for many",
            [Shared { at_full_speed: 4.0, ..host(0.02) }, device(0.015, 1.0)],
        ),
    ] {
        for at_once in [1, 2, 4, 8, 32] {
            let alone_on = |side: Side| {
                let mut fixed = Dispatcher::new(Policy::Fixed(side));
                makespan_s(&mut fixed, sides, at_once, 256)
            };
            let best_s = alone_on(Side::Host).min(alone_on(Side::Device));
            for mut dispatcher in [experienced(sides), Dispatcher::new(Policy::Adaptive)] {
                // What is not known yet is learnt.
                makespan_s(&mut dispatcher, sides, at_once, 64);
                let took_s = makespan_s(&mut dispatcher, sides, at_once, 256);
                assert!(took_s <= 1.05 * best_s, "{name}, {at_once} at once: {took_s:.3} s, {best_s:.3} s at best");
            }
        }
    }
}

/// Eight at once, sixteen in all: two went to a host five times as slow, as that looked a little faster than to wait, and the
/// last of them ended a quarter later than all would have at the device.
#[test]
fn the_last_requests_do_not_wait_for_one_that_went_away() {
    for (host_s, device_s) in [(0.075, 0.0147), (0.066, 0.0147), (0.060, 0.0147), (0.05, 0.015)] {
        // A request that the host computes has less of the processors than was measured when it ran alone.
        for slower in [1.0, 1.2] {
            let sides = [
                Shared { input_s: 0.9 * host_s, run_s: 0.1 * host_s, at_full_speed: 1.1 },
                Shared { input_s: device_s / 2.0, run_s: device_s / 2.0, at_full_speed: 2.0 },
            ];
            let mut dispatcher = experienced(sides);
            let slowed = [Shared { input_s: slower * sides[0].input_s, ..sides[0] }, sides[1]];
            let took_s: f64 = (0..20).map(|_| makespan_s(&mut dispatcher, slowed, 8, 16)).sum();
            let best_s: f64 =
                (0..20).map(|_| makespan_s(&mut Dispatcher::new(Policy::Fixed(Side::Device)), slowed, 8, 16)).sum();
            assert!(took_s <= 1.05 * best_s, "{host_s} s, {slower} x: {took_s:.3} s, {best_s:.3} s at best");
        }
    }
}

/// Of 16 requests, eight at once, six went to a side whose probes had come through a burst of the link.
#[test]
fn a_side_that_is_known_by_probes_is_tried_by_one_request() {
    let sides = [
        Shared { input_s: 0.070, run_s: 0.005, at_full_speed: 1.1 },
        Shared { input_s: 0.007, run_s: 0.007, at_full_speed: 2.0 },
    ];
    let took_s = makespan_s(&mut Dispatcher::new(Policy::Adaptive), sides, 8, 32);
    let best_s = makespan_s(&mut Dispatcher::new(Policy::Fixed(Side::Device)), sides, 8, 32);
    assert!(took_s <= 1.05 * best_s, "{took_s:.3} s, {best_s:.3} s at best");
}

/// Requests at once paid for probes with the time that each of them waited for the others, several times too much. Where no probe is
/// like the last, so that the next one is due at once, a fifth of the requests had one.
#[test]
fn probes_take_no_more_time_however_many_requests_run_at_once() {
    let [host, device] = [
        Shared { input_s: 0.070, run_s: 0.005, at_full_speed: 1.0 },
        Shared { input_s: 0.007, run_s: 0.007, at_full_speed: 1.0 },
    ];
    for at_once in [1_u32, 2, 4] {
        let mut dispatcher = experienced([host, device]);
        let (mut took_s, mut probed_s, mut probes) = (0.0, 0.0, 0);
        for _ in 0..4096 {
            let conditions = Conditions { device_running: at_once - 1, ..Conditions::default() };
            let request = Request { divisible: false, ..Request::read(8 * MIB) };
            let decision = dispatcher.decide(PAIR, &request, &conditions);
            assert_eq!(decision.plan, Plan::Device, "{at_once} at once: {decision}");
            if let Some(probe) = decision.probe {
                let share = probe.len_bytes as f64 / request.len_bytes as f64;
                let noise = if probes % 2 == 0 { 0.3 } else { 3.0 };
                let took = observation(Side::Host, probe.len_bytes, host.input_s * share * noise, host.run_s * share);
                dispatcher.observe_probe(PAIR, &took, 1.0);
                probes += 1;
                probed_s += took.total_s;
            }
            let crowd = f64::from(at_once);
            let took = observation(Side::Device, 8 * MIB, device.input_s * crowd, device.run_s * crowd);
            dispatcher.observe_among(PAIR, &took, crowd);
            took_s += took.total_s / crowd;
        }
        assert!(
            probes > 0 && probed_s < 0.01 * took_s,
            "{at_once} at once: {probes} probes, {probed_s:.3} s of {took_s:.1}"
        );
    }
}

#[test]
fn what_was_measured_in_a_crowd_is_forgotten_when_one_runs_alone() {
    let sides = [
        Shared { input_s: 0.09, run_s: 0.01, at_full_speed: 1.0 },
        Shared { input_s: 0.01, run_s: 0.01, at_full_speed: 2.0 },
    ];
    let mut dispatcher = Dispatcher::new(Policy::Adaptive);
    let crowded = Running { side: Side::Device, left_s: 0.0, started_s: 0.0, crowd_s: 8.0 * 0.08 };
    observe(&mut dispatcher, &crowded, &sides[1], 0.08);
    let run_s =
        |dispatcher: &Dispatcher| dispatcher.view(PAIR).unwrap().device.unwrap().run_s_per_byte * (8 * MIB) as f64;
    assert!((run_s(&dispatcher) - 0.005).abs() < 1e-9);
    let alone = Running { side: Side::Device, left_s: 0.0, started_s: 0.0, crowd_s: 0.02 };
    observe(&mut dispatcher, &alone, &sides[1], 0.02);
    assert!((run_s(&dispatcher) - 0.01).abs() < 1e-9);
    // And one in a crowd changes nothing of it.
    observe(&mut dispatcher, &crowded, &sides[1], 0.08);
    assert!((run_s(&dispatcher) - 0.01).abs() < 1e-9);
}
