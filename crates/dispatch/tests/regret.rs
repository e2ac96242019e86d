//! How much the choice costs beside always knowing best, in worlds that stay, change and mislead.

mod world;

use diskside_dispatch::adaptive::INTERVAL_MAX;
use diskside_dispatch::{Direction, Dispatcher, PairId, Plan, Policy, Probe, Reason, Request, Side, Variables};
use proptest::prelude::*;
use world::{MIB, PAIR, Tally, World, variables};

fn run(world: &mut World, dispatcher: &mut Dispatcher, requests: u64) -> Tally {
    let mut tally = Tally::default();
    for _ in 0..requests {
        world.step(dispatcher, PAIR, &Request::read(8 * MIB), &mut tally);
    }
    tally
}

#[test]
fn in_a_world_that_stays_regret_is_under_two_percent_and_probing_under_half_a_percent() {
    for ratio in [0.02, 0.1, 0.5, 0.9, 1.1, 2.0, 5.0, 20.0] {
        for noise in [0.0, 0.05, 0.2] {
            let mut world = World::new(variables(ratio), noise);
            let tally = run(&mut world, &mut Dispatcher::new(Policy::Adaptive), 4000);
            let probing = tally.probing_s / tally.taken_s;
            assert!(probing < 0.005, "device over host {ratio}, noise {noise}: probing takes {probing:.4}");
            assert!(tally.regret() < 0.02, "device over host {ratio}, noise {noise}: regret {:.4}", tally.regret());
        }
    }
}

#[test]
fn the_papers_policy_pays_for_its_profiling_and_the_default_does_not() {
    // Profiling runs 5 of 200 requests on both sides: 2.5 % of what the slower side is slower.
    let tally_of = |policy| run(&mut World::new(variables(0.1), 0.05), &mut Dispatcher::new(policy), 4000);
    let (paper, adaptive) = (tally_of(Policy::PAPER), tally_of(Policy::Adaptive));
    assert!(paper.regret() > 0.02, "{:.4}", paper.regret());
    assert!(adaptive.regret() < paper.regret() / 2.0, "{:.4} and {:.4}", adaptive.regret(), paper.regret());
}

#[test]
fn outliers_do_not_move_requests() {
    let mut world = World::new(variables(3.0), 0.1);
    world.outlier_each = 20;
    let mut dispatcher = Dispatcher::new(Policy::Adaptive);
    run(&mut world, &mut dispatcher, 4000);
    let moved = dispatcher.counts().planned(Plan::Host);
    assert!(moved < 40, "{moved} of 4000 requests went to the slower side");
}

/// The world turns around each `each` requests. After a turn, the side in use has become the slower
/// one, or the other has become the faster one: at most so many requests go wrong.
#[test]
fn after_the_world_turns_around_a_bounded_number_of_requests_goes_wrong() {
    for (a, b) in [(0.2, 5.0), (0.5, 2.0), (0.02, 20.0)] {
        let mut world = World::new(variables(a), 0.05);
        let mut dispatcher = Dispatcher::new(Policy::Adaptive);
        run(&mut world, &mut dispatcher, 500);
        for turn in 0..10 {
            world.truth = variables(if turn % 2 == 0 { b } else { a });
            let better = world.truth.estimate(&world::work(&Request::read(8 * MIB))).faster();
            let mut tally = Tally::default();
            let wrong = (0..1000)
                .filter(|_| {
                    let decision = world.step(&mut dispatcher, PAIR, &Request::read(8 * MIB), &mut tally);
                    decision.plan != Plan::from(better)
                })
                .count() as u64;
            assert!(wrong <= 4 + 2 * INTERVAL_MAX, "turn {turn} from {a} to {b}: {wrong} requests went wrong");
        }
    }
}

/// Only the side that is not in use changes: nothing that runs shows it, a probe has to.
#[test]
fn a_side_that_becomes_faster_unseen_is_found_by_the_next_probe_and_one_more() {
    let slow_device = Variables { beta: 0.01, ..variables(2.0) };
    let mut world = World::new(slow_device, 0.02);
    let mut dispatcher = Dispatcher::new(Policy::Adaptive);
    run(&mut world, &mut dispatcher, 2000);
    world.truth = variables(2.0);
    let mut tally = Tally::default();
    let wrong = (0..2000)
        .take_while(|_| world.step(&mut dispatcher, PAIR, &Request::read(8 * MIB), &mut tally).plan != Plan::Device)
        .count() as u64;
    assert!(wrong <= INTERVAL_MAX + 3, "{wrong} requests went wrong");
}

/// A disk that seeks, an engine that wakes up, a link whose buffers take the first megabyte at once: a probe of 128 KiB takes
/// much longer, or much less, than its share of a request. It was taken for its share, so a side that was slow for a moment
/// was thought to be for good.
#[test]
fn what_a_request_takes_whatever_its_length_is_not_taken_for_slowness() {
    for ratio in [0.2, 3.0, 5.0] {
        for latency_s in [[0.0, 0.002], [0.001, 0.005], [-0.004, 0.0], [-0.004, 0.002]] {
            let mut world = World::new(variables(ratio), 0.1);
            world.latency_s = latency_s;
            let mut dispatcher = Dispatcher::new(Policy::Adaptive);
            let tally = run(&mut world, &mut dispatcher, 4000);
            assert!(tally.regret() < 0.02, "{ratio}, {latency_s:?}: regret {:.4}", tally.regret());

            let (better, worse) = if tally.device_s < tally.host_s { (Plan::Device, 0.05) } else { (Plan::Host, 20.0) };
            for turn in 0..10 {
                world.truth = variables(worse);
                run(&mut world, &mut dispatcher, 100);
                world.truth = variables(ratio);
                let mut tally = Tally::default();
                let wrong = (0..1000)
                    .filter(|_| world.step(&mut dispatcher, PAIR, &Request::read(8 * MIB), &mut tally).plan != better)
                    .count() as u64;
                assert!(wrong <= 4 + 2 * INTERVAL_MAX, "{ratio}, {latency_s:?}, turn {turn}: {wrong} went wrong");
            }
        }
    }
}

#[test]
fn with_half_of_the_file_cached_both_sides_together_beat_either() {
    let mut world = World::new(variables(4.0), 0.05);
    let mut dispatcher = Dispatcher::new(Policy::Adaptive);
    let mut tally = Tally::default();
    for pass in 0..20 {
        for at in 0..200 {
            let cached_bytes = if at < 100 { 0 } else { 8 * MIB };
            let cached_bytes = if at % 7 == 0 { 3 * MIB } else { cached_bytes };
            world.step(&mut dispatcher, PAIR, &Request { cached_bytes, ..Request::read(8 * MIB) }, &mut tally);
        }
        if pass == 0 {
            tally = Tally::default();
        }
    }
    assert!(tally.regret() < 0.02, "{:.4}", tally.regret());
    assert!(tally.taken_s < 0.9 * tally.host_s.min(tally.device_s));
    assert!(dispatcher.counts().of(Reason::FasterTogether) > 0);
}

#[test]
fn writes_are_never_run_twice_and_find_the_faster_side() {
    for alpha in [0.1, 32.0] {
        let mut world = World::new(Variables { alpha, beta: 0.5, ..variables(1.0) }, 0.05);
        let mut dispatcher = Dispatcher::new(Policy::Adaptive);
        let request = Request { direction: Direction::Write, divisible: false, ..Request::read(8 * MIB) };
        let mut tally = Tally::default();
        for _ in 0..2000 {
            let probe = world.step(&mut dispatcher, PAIR, &request, &mut tally).probe;
            let whole = |probe: Probe| probe.instead && probe.len_bytes == 8 * MIB && probe.side == Side::Device;
            let rehearsal = |probe: Probe| !probe.instead && probe.len_bytes == 128 << 10 && probe.side == Side::Host;
            assert!(probe.is_none_or(|probe| whole(probe) || rehearsal(probe)), "{probe:?}");
        }
        assert!(tally.probing_s < 0.006 * tally.taken_s, "alpha {alpha}: {:.4}", tally.probing_s / tally.taken_s);
        assert!(tally.regret() < 0.02, "alpha {alpha}: {:.4}", tally.regret());
    }
}

/// The first call at a device compiles the function: its time said nothing of the second, and a short request was
/// sent to the slower side for as long as no probe could be afforded.
#[test]
fn a_first_measurement_that_is_wrong_is_found_out_at_once() {
    for (first, len) in [(Side::Device, MIB / 4), (Side::Device, 8 * MIB), (Side::Host, 8 * MIB)] {
        let mut world = World::new(variables(if first == Side::Device { 3.0 } else { 0.3 }), 0.05);
        let mut dispatcher = Dispatcher::new(Policy::Adaptive);
        world.first_s[first as usize] = Some(0.05);
        let mut tally = Tally::default();
        let request = Request::read(len);
        let wrong = (0..200)
            .filter(|_| world.step(&mut dispatcher, PAIR, &request, &mut tally).plan != Plan::from(first))
            .count();
        assert!(wrong <= 3, "{first:?}, {len} bytes: {wrong} of 200 requests went to the slower side");
    }
}

/// A device that computes fifty times slower than the host was given the first sixteen requests of 1 MiB, half a second each,
/// before anything was asked of the host.
#[test]
fn a_short_request_that_takes_long_is_probed() {
    let truth =
        Variables { storage_bytes_per_s: 8e9, link_bytes_per_s: 8e9, host_bytes_per_s: 1e8, alpha: 0.0, beta: 0.02 };
    let (mut world, mut dispatcher) = (World::new(truth, 0.0), Dispatcher::new(Policy::Adaptive));
    let (request, mut tally) = (Request::read(MIB), Tally::default());
    let slow =
        (0..100).filter(|_| world.step(&mut dispatcher, PAIR, &request, &mut tally).plan == Plan::Device).count();
    assert!(slow <= 4, "{slow} of 100 requests went to the device");
}

#[test]
fn pairs_are_placed_apart() {
    let (mut near, mut far) = (World::new(variables(0.1), 0.05), World::new(variables(5.0), 0.05));
    let mut dispatcher = Dispatcher::new(Policy::Adaptive);
    let other = PairId { file: 1, function: 2 };
    let (mut a, mut b) = (Tally::default(), Tally::default());
    let mut last = (Plan::Both, Plan::Both);
    for _ in 0..500 {
        last.0 = near.step(&mut dispatcher, PAIR, &Request::read(8 * MIB), &mut a).plan;
        last.1 = far.step(&mut dispatcher, other, &Request::read(8 * MIB), &mut b).plan;
    }
    assert_eq!(last, (Plan::Host, Plan::Device));
    assert!(a.regret() < 0.03 && b.regret() < 0.03, "{:.4} {:.4}", a.regret(), b.regret());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever the speeds, lengths and noise: over many requests the choice loses less than 6 %, the
    /// first ones included, and probes cost less than half a percent and one first measurement.
    #[test]
    fn no_world_costs_much(
        storage in 1e8..1e10_f64, link in 1e7..1e10_f64, host in 1e8..2e10_f64,
        alpha in 0.0..2.0_f64, beta in 0.02..4.0_f64, noise in 0.0..0.1_f64, mib in 1..64_u64,
    ) {
        let truth = Variables {
            storage_bytes_per_s: storage, link_bytes_per_s: link, host_bytes_per_s: host, alpha, beta,
        };
        let mut world = World::new(truth, noise);
        let mut dispatcher = Dispatcher::new(Policy::Adaptive);
        let request = Request::read(mib * MIB);
        let mut tally = Tally::default();
        for _ in 0..1500 {
            world.step(&mut dispatcher, PAIR, &request, &mut tally);
        }
        let estimate = truth.estimate(&world::work(&request));
        let first_s = estimate.host_s.max(estimate.device_s);
        prop_assert!(tally.probing_s < 0.005 * tally.taken_s + 2.0 * first_s);
        prop_assert!(tally.taken_s < 1.06 * tally.best_s + 3.0 * first_s, "regret {}", tally.regret());
        let view = dispatcher.view(PAIR).expect("was used");
        prop_assert!(view.measured[Side::Host as usize] > 0 && view.measured[Side::Device as usize] > 0);
    }
}
