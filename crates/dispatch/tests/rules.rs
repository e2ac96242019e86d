//! The equations, and what may be placed at all.

mod world;

use diskside_dispatch::{
    Conditions, Direction, Dispatcher, Hints, Learnt, Link, Observation, PAIRS_MAX, PairId, Plan, Policy, Reason,
    Request, Side, Variables, Waits, Work,
};
use proptest::prelude::*;
use world::{MIB, PAIR, Tally, World, variables};

/// Worked by hand: 1 GB of input, half of it cached, output a tenth, computing at half speed.
#[test]
fn the_equations_give_what_they_give_on_paper() {
    let v = Variables { storage_bytes_per_s: 2e9, link_bytes_per_s: 1e9, host_bytes_per_s: 4e9, alpha: 0.1, beta: 0.5 };
    let time = |direction, cached_bytes| {
        let e = v.estimate(&Work { direction, len_bytes: 1_000_000_000, cached_bytes });
        ((e.host_s * 1e4).round() as u64, (e.device_s * 1e4).round() as u64)
    };
    assert_eq!(time(Direction::Read, 0), (17_500, 11_000));
    assert_eq!(time(Direction::Read, 500_000_000), (10_000, 11_000));
    assert_eq!(time(Direction::Write, 0), (4_000, 15_500));
}

proptest! {
    /// Costs are the equations in the form that a run can measure.
    #[test]
    fn costs_without_overlap_are_the_equations(
        storage in 1e6..1e11_f64, link in 1e6..1e11_f64, host in 1e6..1e11_f64, alpha in 0.0..40.0_f64,
        beta in 0.01..10.0_f64, len in 1..1_u64 << 40, share in 0.0..=1.0_f64, write in any::<bool>(),
    ) {
        let v = Variables {
            storage_bytes_per_s: storage, link_bytes_per_s: link, host_bytes_per_s: host, alpha, beta,
        };
        let direction = if write { Direction::Write } else { Direction::Read };
        let cached = (len as f64 * share) as u64;
        let e = v.estimate(&Work { direction, len_bytes: len, cached_bytes: cached });
        let d = len as f64;
        let moved = if write { 0.0 } else { (len - cached) as f64 };
        let host_s = v.costs(Side::Host, direction).time_s(d, moved, alpha * d);
        let device_s = v.costs(Side::Device, direction).time_s(d, d, alpha * d);
        prop_assert!((host_s / e.host_s - 1.0).abs() < 1e-9 && (device_s / e.device_s - 1.0).abs() < 1e-9);
    }

    /// Observations of any size and order neither panic nor make a decision impossible.
    #[test]
    fn any_history_leads_to_a_decision(
        steps in prop::collection::vec((any::<bool>(), 0..u64::MAX / 2, 0..u64::MAX, any::<u64>(), -1.0..1e9_f64), 0..200),
        periodic in any::<bool>(),
    ) {
        let mut dispatcher = Dispatcher::new(if periodic { Policy::PAPER } else { Policy::Adaptive });
        for (device, len, input, output, s) in steps {
            let cached_bytes = input.min(len);
            let request = Request { cached_bytes, ..Request::read(len) };
            let decision = dispatcher.decide(PAIR, &request, &Conditions::default());
            if let Some(probe) = decision.probe {
                prop_assert!(probe.len_bytes <= len && (!probe.instead || probe.len_bytes <= len / 2));
            }
            dispatcher.observe(PAIR, &Observation {
                side: if device { Side::Device } else { Side::Host }, len_bytes: len, input_bytes: input,
                output_bytes: output, round_trip_s: s, queue_s: s, input_s: s, run_s: s * 0.5, output_s: s, total_s: s,
            });
        }
    }
}

#[test]
fn a_program_with_effects_is_neither_probed_nor_moved() {
    for policy in [Policy::Adaptive, Policy::PAPER] {
        let mut world = World::new(variables(0.01), 0.0);
        let mut dispatcher = Dispatcher::new(policy);
        let request = Request { effect_free: false, ..Request::read(8 * MIB) };
        for _ in 0..500 {
            let decision = world.step(&mut dispatcher, PAIR, &request, &mut Tally::default());
            assert_eq!((decision.plan, decision.probe, decision.reason), (Plan::Device, None, Reason::Effects));
        }
    }
}

/// A scan is measured by row groups, which may be a sixteenth of it. Probes were paid for as if they were a small part.
#[test]
fn a_probe_is_as_long_as_what_can_run_apart_and_paid_for_as_such() {
    let probes = |part_len_bytes| {
        let (mut world, mut tally) = (World::new(variables(0.01), 0.0), Tally::default());
        let mut dispatcher = Dispatcher::new(Policy::Adaptive);
        let request = Request { part_len_bytes, ..Request::read(64 * MIB) };
        let decisions: Vec<_> = (0..2000).map(|_| world.step(&mut dispatcher, PAIR, &request, &mut tally)).collect();
        let probes: Vec<_> = decisions.into_iter().filter_map(|decision| decision.probe).collect();
        assert!(probes.iter().all(|probe| probe.len_bytes >= part_len_bytes), "{probes:?}");
        probes.len()
    };
    let (small, large) = (probes(0), probes(16 * MIB));
    assert!(large > 0 && large < small, "{large} of a quarter, {small} of any part");
}

#[test]
fn a_lost_link_leaves_the_host_what_it_holds() {
    let mut dispatcher = Dispatcher::new(Policy::Adaptive);
    let lost = Conditions { link: Link::Lost, ..Conditions::default() };
    let cached = Request { cached_bytes: MIB, ..Request::read(MIB) };
    assert_eq!(dispatcher.decide(PAIR, &cached, &lost).reason, Reason::LinkLost);
    let partly = Request { cached_bytes: MIB - 1, ..cached };
    assert_ne!(dispatcher.decide(PAIR, &partly, &lost).reason, Reason::LinkLost);
    let reads = Conditions { host_reads: true, ..lost };
    assert_eq!(dispatcher.decide(PAIR, &partly, &reads).plan, Plan::Host, "it has another way to the data");
    let effects = Request { effect_free: false, ..partly };
    assert_ne!(dispatcher.decide(PAIR, &effects, &reads).reason, Reason::LinkLost);
    let no_compute = Conditions { link: Link::NoCompute, ..Conditions::default() };
    assert_eq!(dispatcher.decide(PAIR, &partly, &no_compute).plan, Plan::Host);
}

#[test]
fn who_is_told_a_side_gets_it() {
    let mut dispatcher = Dispatcher::new(Policy::Fixed(Side::Host));
    let decision = dispatcher.decide(PAIR, &Request::read(MIB), &Conditions::default());
    assert_eq!((decision.plan, decision.reason), (Plan::Host, Reason::Told));
    let told = Request { told: Some(Side::Device), ..Request::read(MIB) };
    assert_eq!(dispatcher.decide(PAIR, &told, &Conditions::default()).plan, Plan::Device);
}

#[test]
fn a_busy_device_sends_requests_to_the_host() {
    let mut world = World::new(variables(2.0), 0.0);
    let mut dispatcher = Dispatcher::new(Policy::Adaptive);
    let request = Request::read(8 * MIB);
    for _ in 0..50 {
        world.step(&mut dispatcher, PAIR, &request, &mut Tally::default());
    }
    assert_eq!(dispatcher.decide(PAIR, &request, &Conditions::default()).plan, Plan::Device);
    let busy = Conditions { device_waiting: 20.0, ..Conditions::default() };
    let decision = dispatcher.decide(PAIR, &request, &busy);
    assert_eq!((decision.plan, decision.reason), (Plan::Host, Reason::Faster), "{decision}");
}

/// A device that others keep busy: two calls that waited say so, requests go to the host, and nobody waits for a probe of
/// it; once it is free they go back at once.
#[test]
fn a_device_that_others_keep_busy_is_left_to_them_until_it_is_free() {
    let mut world = World::new(variables(2.0), 0.05);
    let mut dispatcher = Dispatcher::new(Policy::Adaptive);
    let (request, mut waits) = (Request::read(32 * MIB), Waits::default());
    for _ in 0..50 {
        world.step(&mut dispatcher, PAIR, &request, &mut Tally::default());
    }
    let conditions =
        |waits: &Waits| Conditions { device_turn_s: waits.turn_s(), turn_len_bytes: 8 * MIB, ..Conditions::default() };
    let turns = diskside_dispatch::turns(request.len_bytes, 8 * MIB);
    let host_s = world.truth.estimate(&world::work(&request)).host_s;
    assert_eq!(dispatcher.decide(PAIR, &request, &conditions(&waits)).plan, Plan::Device);
    waits.note(host_s, turns);
    assert_eq!(dispatcher.decide(PAIR, &request, &conditions(&waits)).plan, Plan::Device, "one may be an outlier");
    waits.note(host_s, turns);
    for at in 0..200 {
        let decision = dispatcher.decide(PAIR, &request, &conditions(&waits));
        assert_eq!((decision.plan, decision.probe), (Plan::Host, None), "request {at}: {decision}");
        let expected_s = decision.estimate.expect("both are measured").device_s;
        assert!(expected_s > host_s, "{decision}");
    }
    waits.note(0.0, turns);
    assert_eq!(dispatcher.decide(PAIR, &request, &conditions(&waits)).plan, Plan::Host, "one may be an outlier");
    waits.clear();
    assert_eq!(dispatcher.decide(PAIR, &request, &conditions(&waits)).plan, Plan::Device);
}

/// The waits for others' calls are a part of the time of each turn, so long requests wait longer.
#[test]
fn waits_are_of_turns_and_one_of_three_is_not_heard() {
    let mut waits = Waits::default();
    for (waited_s, turns, expected_s) in
        [(0.8, 4, 0.0), (0.2, 1, 0.2), (0.0, 1, 0.2), (f64::NAN, 1, 0.2), (0.0, 0, 0.0), (-1.0, 1, 0.0), (9.0, 3, 0.0)]
    {
        waits.note(waited_s, turns);
        assert_eq!(waits.turn_s(), expected_s, "after {waited_s} s in {turns} turns");
    }
    let of = |len, turn| diskside_dispatch::turns(len, turn);
    assert_eq!([of(0, 8), of(1, 8), of(8, 8), of(9, 8), of(u64::MAX, 1), of(9, 0)], [1, 1, 1, 2, u64::MAX, 1]);
}

/// A load that comes and goes costs a bounded share, however it falls.
#[test]
fn a_load_that_comes_and_goes_costs_little_beside_always_knowing() {
    let mut world = World::new(variables(3.0), 0.05);
    let mut dispatcher = Dispatcher::new(Policy::Adaptive);
    let (request, mut waits, mut random) = (Request::read(8 * MIB), Waits::default(), 1_u64);
    let truth = world.truth.estimate(&world::work(&request));
    let (mut taken_s, mut best_s) = (0.0, 0.0);
    for at in 0..4000 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let is_busy = at / 200 % 2 == 1;
        // Calls of others are up to twice as long as this one on the host.
        let wait_s = if is_busy { truth.host_s * (1.0 + (random >> 11) as f64 / (1_u64 << 53) as f64) } else { 0.0 };
        // The session asks once in a while whether engines are free again.
        if at % 10 == 0 && !is_busy && waits.turn_s() > 0.0 {
            waits.clear();
        }
        let conditions = Conditions { device_turn_s: waits.turn_s(), turn_len_bytes: 8 * MIB, ..Conditions::default() };
        let decision = world.step_under(&mut dispatcher, PAIR, &request, &mut Tally::default(), &conditions);
        let side = decision.plan.side().expect("nothing is cached, so nothing is split");
        if side == Side::Device {
            waits.note(wait_s, 1);
        } else if decision.probe.is_some() {
            taken_s += wait_s;
            waits.note(wait_s, 1);
        }
        taken_s += truth.on(side) + if side == Side::Device { wait_s } else { 0.0 };
        best_s += truth.host_s.min(truth.device_s + wait_s);
    }
    assert!(taken_s < 1.06 * best_s, "{:.3} times as long as with the best choices", taken_s / best_s);
}

#[test]
fn the_paper_profiles_the_first_five_of_two_hundred() {
    let mut world = World::new(variables(5.0), 0.05);
    let mut dispatcher = Dispatcher::new(Policy::PAPER);
    for at in 0..1000 {
        let decision = world.step(&mut dispatcher, PAIR, &Request::read(8 * MIB), &mut Tally::default());
        let expected = if at % 200 < 5 { Plan::Both } else { Plan::Device };
        assert_eq!(decision.plan, expected, "request {at}");
    }
    let counts = dispatcher.counts();
    assert_eq!((counts.of(Reason::Profiling), counts.of(Reason::Faster), counts.total()), (25, 975, 1000));
}

#[test]
fn counts_are_told_in_words_and_begin_anew() {
    let mut world = World::new(variables(5.0), 0.0);
    let mut dispatcher = Dispatcher::new("lambda-io:k=2,n=10".parse().expect("a policy"));
    assert_eq!(dispatcher.counts().to_string(), "0 decisions");
    for _ in 0..10 {
        world.step(&mut dispatcher, PAIR, &Request::read(8 * MIB), &mut Tally::default());
    }
    let told = Request { told: Some(Side::Host), ..Request::read(MIB) };
    dispatcher.decide(PAIR, &told, &Conditions::default());
    let words = "11 decisions: host 1, device 8, both 2; told 1, profiling 2, faster 8";
    assert_eq!(dispatcher.counts().to_string(), words);
    dispatcher.clear_counts();
    assert_eq!((dispatcher.counts().total(), dispatcher.view(PAIR).map(|view| view.requests)), (0, Some(11)));
    let mut adaptive = Dispatcher::new(Policy::Adaptive);
    adaptive.decide(PAIR, &Request::read(8 * MIB), &Conditions::default());
    assert_eq!(adaptive.counts().to_string(), "1 decision: device 1; unmeasured 1; 1 with a probe");
}

#[test]
fn policies_are_named_by_text() {
    let periodic = |period, profiled| Ok(Policy::Periodic { period, profiled });
    assert_eq!("adaptive".parse(), Ok(Policy::Adaptive));
    assert_eq!("lambda-io".parse(), Ok(Policy::PAPER));
    assert_eq!("lambda-io:n=50".parse::<Policy>(), periodic(50, 5));
    assert_eq!("lambda-io:k=7,n=70".parse::<Policy>(), periodic(70, 7));
    for (text, words) in [
        ("", "`` is no policy"),
        ("adaptive:n=1", "`adaptive:n=1` is no policy"),
        ("lambda-io:", "`` is neither n=N nor k=K"),
        ("lambda-io:n", "`n` is neither"),
        ("lambda-io:n=-1", "`n=-1` is neither"),
        ("lambda-io:k=0", "k=0 of n=200 requests cannot be profiled"),
        ("lambda-io:n=4", "k=5 of n=4 requests cannot be profiled"),
    ] {
        let error = text.parse::<Policy>().expect_err(text).to_string();
        assert!(error.contains(words) && error.ends_with("lambda-io or lambda-io:n=N,k=K"), "{error}");
    }
}

#[test]
fn a_decision_says_why_in_words() {
    let mut world = World::new(variables(5.0), 0.0);
    let mut dispatcher = Dispatcher::new(Policy::Adaptive);
    let mut tally = Tally::default();
    let first = world.step(&mut dispatcher, PAIR, &Request::read(64 * MIB), &mut tally).to_string();
    assert_eq!(first, "device: one side is not measured yet; 262144 bytes on the host besides, to measure it");
    let second = dispatcher.decide(PAIR, &Request::read(64 * MIB), &Conditions::default()).to_string();
    assert!(second.starts_with("device: it is faster there (expected: host 335."), "{second}");
}

#[test]
fn pairs_are_bounded_and_the_one_least_used_is_forgotten() {
    let mut dispatcher = Dispatcher::new(Policy::Adaptive);
    for file in 0..PAIRS_MAX as u64 + 10 {
        dispatcher.decide(PAIR, &Request::read(MIB), &Conditions::default());
        dispatcher.decide(PairId { file: file + 100, function: 0 }, &Request::read(MIB), &Conditions::default());
    }
    assert_eq!(dispatcher.pairs(), PAIRS_MAX);
    assert!(dispatcher.view(PAIR).is_some() && dispatcher.view(PairId { file: 100, function: 0 }).is_none());
    dispatcher.forget(PAIR);
    assert!(dispatcher.view(PAIR).is_none());
}

/// Commands that run one request and end choose as one long process does, once they keep what they learnt.
#[test]
fn processes_of_one_request_choose_as_one_long_process_does() {
    for ratio in [0.05, 0.5, 2.0, 20.0] {
        let mut world = World::new(variables(ratio), 0.05);
        let (mut kept, mut tally, mut wrong) = (None::<Learnt>, Tally::default(), 0);
        let request = Request::read(64 * MIB);
        let better = Plan::from(world.truth.estimate(&world::work(&request)).faster());
        for run in 0..300 {
            let mut dispatcher = Dispatcher::new(Policy::Adaptive);
            if let Some(kept) = &kept {
                dispatcher.recall(PAIR, kept);
            }
            let decision = world.step(&mut dispatcher, PAIR, &request, &mut tally);
            assert_eq!(decision.recalled, run > 0, "{decision}");
            wrong += u64::from(run > 0 && decision.plan != better);
            let text = dispatcher.learnt(PAIR).expect("it was measured").to_text();
            kept = Some(Learnt::from_text(&text).expect("our own text"));
        }
        assert_eq!(wrong, 0, "device over host {ratio}");
        assert!(tally.probing_s < 0.006 * tally.taken_s, "{ratio}: {:.4}", tally.probing_s / tally.taken_s);
        // Probes continue: the other side is measured again and again.
        world.truth = variables(1.0 / ratio);
        let turned = Plan::from(world.truth.estimate(&world::work(&request)).faster());
        let found = (0..400).position(|_| {
            let mut dispatcher = Dispatcher::new(Policy::Adaptive);
            dispatcher.recall(PAIR, kept.as_ref().expect("kept"));
            let decision = world.step(&mut dispatcher, PAIR, &request, &mut tally);
            kept = dispatcher.learnt(PAIR);
            decision.plan == turned
        });
        assert!(found.is_some_and(|runs| runs <= 4 + 2 * 64), "{ratio}: {found:?}");
    }
}

#[test]
fn what_was_measured_here_is_not_replaced_by_what_was_recalled() {
    let mut world = World::new(variables(5.0), 0.0);
    let mut dispatcher = Dispatcher::new(Policy::Adaptive);
    let request = Request::read(64 * MIB);
    world.step(&mut dispatcher, PAIR, &request, &mut Tally::default());
    let before = dispatcher.view(PAIR);
    let mut other = Dispatcher::new(Policy::Adaptive);
    World::new(variables(0.1), 0.0).step(&mut other, PAIR, &request, &mut Tally::default());
    dispatcher.recall(PAIR, &other.learnt(PAIR).expect("it was measured"));
    assert_eq!(dispatcher.view(PAIR), before);
    assert!(!dispatcher.decide(PAIR, &request, &Conditions::default()).recalled);
}

/// Requests of 256 KiB as they were: a device of a third of a millisecond was slower a few times by chance, the last time
/// most, and what it had shown before was forgotten. So the next requests went to a host that takes seven times as long.
#[test]
fn a_few_outliers_do_not_make_a_side_what_the_last_of_them_was() {
    let recorded = "\
host 131072 262144 32 0.000169 0 0.002577 0.00001 0 0.004834
host 131072 262144 32 0.00019 0 0.001085 0.000009 0 0.001383
host 131072 262144 32 0.000137 0 0.000312 0.000009 0 0.000589
host 131072 262144 32 0.000154 0 0.000966 0.000008 0 0.001174
device 262144 262144 32 0.000222 0.000301 0.000112 0.000017 0 0.000582
device 262144 262144 32 0.000104 0.000021 0.000123 0.000017 0.000014 0.000315
device 262144 262144 32 0.000104 0.000076 0.000109 0.000014 0.000216 0.000551
device 262144 262144 32 0.000132 0.00002 0.00016 0.000022 0 0.000339
device 262144 262144 32 0.000132 0.000176 0.000119 0.000015 0.000176 0.000651
device 262144 262144 32 0.000167 0.000006 0.000126 0.000015 0 0.000305
device 262144 262144 32 0.000167 0.000091 0.00061 0.000017 0.00008 0.001069
device 262144 262144 32 0.000186 0.000119 0.000119 0.000015 0 0.000431
device 262144 262144 32 0.000171 0.000119 0.000368 0.000433 0.000032 0.001169
device 262144 262144 32 0.000082 0.00001 0.000148 0.000015 0.000092 0.000388
device 262144 262144 32 0.000082 0.000038 0.001165 0.000015 0 0.001337
host 262144 262144 32 0.000104 0 0.000578 0.000024 0 0.000952
";
    let mut dispatcher = Dispatcher::new(Policy::Adaptive);
    let request = Request::read(256 << 10);
    for observation in diskside_dispatch::trace::parse(recorded).unwrap() {
        dispatcher.decide(PAIR, &request, &Conditions::default());
        dispatcher.observe(PAIR, &observation);
    }
    let next = dispatcher.decide(PAIR, &request, &Conditions { round_trip_s: 0.0001, ..Conditions::default() });
    assert_eq!(next.plan, Plan::Device, "{next}");
}

/// Short requests are slower and faster in turn; that does not make another world, and nothing is forgotten.
#[test]
fn noise_to_both_sides_is_no_change() {
    let mut dispatcher = Dispatcher::new(Policy::Adaptive);
    let run = |dispatcher: &mut Dispatcher, side: Side, s: f64| {
        dispatcher.decide(PAIR, &Request::read(MIB), &Conditions::default());
        dispatcher.observe(
            PAIR,
            &Observation {
                side,
                len_bytes: MIB,
                input_bytes: MIB,
                output_bytes: 32,
                round_trip_s: 0.0,
                queue_s: 0.0,
                input_s: s,
                run_s: 0.0,
                output_s: 0.0,
                total_s: s,
            },
        );
    };
    run(&mut dispatcher, Side::Host, 0.009);
    (0..9).for_each(|_| run(&mut dispatcher, Side::Device, 0.001));
    (0..40).for_each(|turn| run(&mut dispatcher, Side::Device, if turn % 2 == 0 { 0.0014 } else { 0.0006 }));
    assert_eq!(dispatcher.view(PAIR).unwrap().measured[Side::Device as usize], 49);
}

/// Half of the file is cached here and there, two requests at once. One that ran on the host fetched so much that the short
/// results of the device came 40 ms late, behind its bytes: taken as what each byte of a result costs, that kept all
/// requests on the host, which takes five times as long.
#[test]
fn short_results_that_come_late_do_not_make_the_device_slow() {
    let recorded = "\
host 131072 262144 128 0.000322 0 0.001067 0.000058 0 0.009757
device 8257536 8257536 128 0.000322 0.0001 0.008378 0.004768 0.004082 0.01787
device 1048576 1048576 128 0.000279 0.000886 0.002334 0.000434 0.039966 0.044037
device 1048576 1048576 128 0.000279 0.001052 0.00305 0.000548 0.039013 0.044045
device 2097152 2097152 128 0.000279 0.001341 0.002928 0.002092 0.037297 0.044038
host 8388608 5242880 128 0.000279 0 0.046345 0.005024 0 0.052773
host 8388608 3145728 128 0.000353 0 0.035034 0.004145 0 0.041538
host 8388608 4194304 128 0.000397 0 0.059706 0.006273 0 0.067984
";
    let mut dispatcher = Dispatcher::new(Policy::Adaptive);
    let request = Request { cached_bytes: 4 << 20, ..Request::read(8 << 20) };
    for observation in diskside_dispatch::trace::parse(recorded).unwrap() {
        dispatcher.decide(PAIR, &request, &Conditions::default());
        dispatcher.observe(PAIR, &observation);
    }
    let next = dispatcher.decide(PAIR, &request, &Conditions { round_trip_s: 0.0003, ..Conditions::default() });
    assert_ne!(next.plan, Plan::Host, "{next}");
}

/// Six parts of 1 MiB each waited for the others' reads of the disk; each was taken for what so many bytes take alone, and
/// the device for six times as slow as it was.
#[test]
fn parts_that_ran_at_once_are_one_measurement() {
    let part = Observation {
        side: Side::Device,
        len_bytes: MIB,
        input_bytes: MIB,
        output_bytes: 32,
        round_trip_s: 1e-4,
        queue_s: 0.001,
        input_s: 0.005,
        run_s: 0.001,
        output_s: 0.0,
        total_s: 0.006,
    };
    let longer = Observation { len_bytes: 2 * MIB, input_bytes: 2 * MIB, total_s: 0.008, ..part };
    let all = Observation::together(&[part, part, longer, part]).expect("parts");
    assert_eq!((all.len_bytes, all.input_bytes, all.output_bytes, all.total_s), (5 * MIB, 5 * MIB, 128, 0.008));
    let share = 0.008 / (3.0 * 0.006 + 0.008);
    let near = |a: f64, b: f64| (a - b).abs() < 1e-12;
    assert!(near(all.input_s, 0.02 * share) && near(all.run_s, 0.004 * share) && near(all.queue_s, 0.004 * share));
    assert_eq!((Observation::together(&[part]), Observation::together(&[])), (Some(part), None));
}

/// The estimate for a file of 280 MB was the time over one of 13 bytes, times the length: 27 hours.
#[test]
fn a_few_bytes_say_nothing_of_many() {
    let long = Request::read(280_000_000);
    let mut dispatcher = Dispatcher::new(Policy::Adaptive);
    let run = |side, len_bytes, run_s| Observation {
        side,
        len_bytes,
        input_bytes: len_bytes,
        output_bytes: 13,
        round_trip_s: 1e-4,
        queue_s: 0.0,
        input_s: 1e-4,
        run_s,
        output_s: 0.0,
        total_s: run_s + 2e-4,
    };
    for _ in 0..3 {
        dispatcher.observe(PAIR, &run(Side::Host, 13, 5e-3));
        dispatcher.observe(PAIR, &run(Side::Device, 13, 1e-4));
    }
    let decision = dispatcher.decide(PAIR, &long, &Conditions::default());
    assert!(decision.estimate.is_none(), "{decision:?}");
    let short = dispatcher.decide(PAIR, &Request::read(2000), &Conditions::default());
    assert!(short.estimate.is_some(), "{short:?}");
    // The first long ones are believed at once, and short ones after them change nothing.
    dispatcher.observe(PAIR, &run(Side::Host, 280_000_000, 0.1));
    dispatcher.observe(PAIR, &run(Side::Device, 1_093_750, 0.001));
    for _ in 0..20 {
        dispatcher.observe(PAIR, &run(Side::Host, 13, 5e-3));
        dispatcher.observe(PAIR, &run(Side::Device, 13, 1e-4));
    }
    let estimate = dispatcher.decide(PAIR, &long, &Conditions::default()).estimate.expect("both are known");
    assert!(estimate.host_s < 0.3 && estimate.device_s < 0.6, "{estimate:?}");
}

/// Where nothing is measured the device was tried first, also by functions whose output is longer than their input.
#[test]
fn hints_decide_until_both_sides_are_measured() {
    let hints = |output_permille, passes, scattered| Some(Hints { output_permille, passes, scattered });
    let ask = |hints, cached_bytes| {
        let mut dispatcher = Dispatcher::new(Policy::Adaptive);
        let request = Request { hints, cached_bytes, ..Request::read(64 * MIB) };
        dispatcher.decide(PAIR, &request, &Conditions::default())
    };
    for (hints, cached, plan) in [
        (hints(1, 1, false), 0, Plan::Device),
        (hints(999, 1, false), 0, Plan::Device),
        (hints(1000, 1, false), 0, Plan::Host),
        (hints(32_000, 1, false), 0, Plan::Host),
        (hints(0, 10, false), 0, Plan::Device),
        (hints(0, 11, false), 0, Plan::Host),
        (hints(499, 1, true), 0, Plan::Device),
        (hints(500, 1, true), 0, Plan::Host),
        // Half of the input needs no way.
        (hints(499, 1, false), 32 * MIB, Plan::Device),
        (hints(500, 1, false), 32 * MIB, Plan::Host),
        (hints(u32::MAX, u32::MAX, true), 0, Plan::Host),
    ] {
        let decision = ask(hints, cached);
        assert_eq!((decision.plan, decision.reason), (plan, Reason::Hinted), "{hints:?} {cached}");
        let other = decision.probe.expect("the other side is measured").side;
        assert_eq!(Plan::from(other.other()), plan, "{hints:?}");
    }
    assert_eq!(ask(None, 0).reason, Reason::Unmeasured);
    // The host has all of it.
    assert_eq!(ask(hints(0, 1, false), 64 * MIB).reason, Reason::Unmeasured);
    let written = Request { hints: hints(5000, 1, false), direction: Direction::Write, ..Request::read(MIB) };
    let decision = Dispatcher::new(Policy::Adaptive).decide(PAIR, &written, &Conditions::default());
    assert_eq!((decision.plan, decision.reason), (Plan::Device, Reason::Unmeasured));
}

/// What was measured counts, whatever the hints say.
#[test]
fn wrong_hints_cost_one_request() {
    let mut world = World::new(variables(5.0), 0.0);
    let mut dispatcher = Dispatcher::new(Policy::Adaptive);
    let wrong = Some(Hints { output_permille: 5000, passes: 9, scattered: true });
    let request = Request { hints: wrong, ..Request::read(64 * MIB) };
    let first = world.step(&mut dispatcher, PAIR, &request, &mut Tally::default());
    assert_eq!((first.plan, first.reason), (Plan::Host, Reason::Hinted));
    for _ in 0..20 {
        let decision = world.step(&mut dispatcher, PAIR, &request, &mut Tally::default());
        assert_ne!(decision.reason, Reason::Hinted);
    }
    let decision = world.step(&mut dispatcher, PAIR, &request, &mut Tally::default());
    assert_eq!((decision.plan, decision.reason), (Plan::Device, Reason::Faster), "{decision}");
}
