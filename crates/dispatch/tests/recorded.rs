//! The choice over what requests took on real machines: `bench/pushdown/run --trace` wrote these files, one
//! line for each request on the host and one for each at the device.

use diskside_dispatch::{Conditions, Dispatcher, Learnt, Observation, PairId, Plan, Policy, Request, Side, trace};
use std::path::Path;

const PAIR: PairId = PairId { file: 1, function: 1 };
/// Requests of a run: recorded ones again and again.
const REQUESTS: usize = 4000;

/// What the same requests took on either side, in any order.
struct Recorded {
    name: String,
    sides: [Vec<Observation>; 2],
}

fn recorded() -> Vec<Recorded> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces");
    let mut all: Vec<Recorded> = std::fs::read_dir(directory)
        .expect("recorded traces")
        .map(|entry| {
            let path = entry.expect("a file").path();
            let text = std::fs::read_to_string(&path).expect("text");
            let observations = trace::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let of = |side| observations.iter().copied().filter(|o| o.side == side).collect();
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            Recorded { name, sides: [of(Side::Host), of(Side::Device)] }
        })
        .collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(all.len() >= 4 && all.iter().all(|r| r.sides.iter().all(|side| side.len() >= 16)), "traces are missing");
    all
}

impl Recorded {
    fn took(&self, side: Side, at: usize) -> Observation {
        let of_side = &self.sides[side as usize];
        of_side[at % of_side.len()]
    }

    fn request(&self, at: usize) -> Request {
        let host = self.took(Side::Host, at);
        Request { cached_bytes: host.len_bytes.saturating_sub(host.input_bytes), ..Request::read(host.len_bytes) }
    }

    /// Runs a request where the dispatcher says; seconds that it took, probes on top.
    fn step(&self, dispatcher: &mut Dispatcher, at: usize) -> f64 {
        let request = self.request(at);
        let round_trip_s = self.took(Side::Device, at).round_trip_s;
        let decision = dispatcher.decide(PAIR, &request, &Conditions { round_trip_s, ..Conditions::default() });
        let probed = decision.probe.filter(|probe| probe.instead).map_or(0, |probe| probe.len_bytes);
        let left = (request.len_bytes - probed) as f64 / request.len_bytes as f64;
        let mut runs = match decision.plan {
            Plan::Host => vec![part(self.took(Side::Host, at), left)],
            Plan::Device => vec![part(self.took(Side::Device, at), left)],
            // Half cached requests were not recorded: pieces are cached, or not, as a whole.
            Plan::Split | Plan::Both => unreachable!("{decision}"),
        };
        if let Some(probe) = decision.probe {
            runs.push(part(self.took(probe.side, at + 1), probe.len_bytes as f64 / request.len_bytes as f64));
        }
        runs.iter().for_each(|run| dispatcher.observe(PAIR, run));
        runs.iter().map(|run| run.total_s).sum()
    }
}

/// A share of a request takes its share of the time, except the way there and back.
fn part(o: Observation, share: f64) -> Observation {
    let bytes = |bytes: u64| (bytes as f64 * share) as u64;
    Observation {
        len_bytes: bytes(o.len_bytes),
        input_bytes: bytes(o.input_bytes),
        input_s: o.input_s * share,
        run_s: o.run_s * share,
        total_s: o.round_trip_s + (o.total_s - o.round_trip_s) * share,
        ..o
    }
}

#[test]
fn over_recorded_requests_the_choice_loses_less_than_two_percent() {
    for recorded in recorded() {
        let mut dispatcher = Dispatcher::new(Policy::Adaptive);
        let mut taken_s = 0.0;
        let mut sides_s = [0.0; 2];
        for at in 0..REQUESTS {
            taken_s += recorded.step(&mut dispatcher, at);
            Side::ALL.iter().for_each(|&side| sides_s[side as usize] += recorded.took(side, at).total_s);
        }
        let regret = taken_s / sides_s[0].min(sides_s[1]) - 1.0;
        assert!(regret < 0.02, "{}: regret {regret:.4}, host and device {sides_s:?}", recorded.name);
    }
}

/// As commands do: each begins with what the ones before it have learnt.
#[test]
fn over_recorded_requests_one_for_each_process_the_choice_is_as_good() {
    for recorded in recorded() {
        let mut kept = Learnt::default();
        let (mut taken_s, mut sides_s) = (0.0, [0.0; 2]);
        for at in 0..REQUESTS {
            let mut dispatcher = Dispatcher::new(Policy::Adaptive);
            dispatcher.recall(PAIR, &kept);
            taken_s += recorded.step(&mut dispatcher, at);
            kept = dispatcher.learnt(PAIR).expect("it ran");
            Side::ALL.iter().for_each(|&side| sides_s[side as usize] += recorded.took(side, at).total_s);
        }
        let regret = taken_s / sides_s[0].min(sides_s[1]) - 1.0;
        assert!(regret < 0.02, "{}: regret {regret:.4}, host and device {sides_s:?}", recorded.name);
    }
}

/// The most misleading order of the same requests: the side in use at its slowest first, the other at its fastest.
#[test]
fn an_adversarial_order_of_recorded_requests_costs_little() {
    for mut recorded in recorded() {
        recorded.sides[0].sort_by(|a, b| b.total_s.total_cmp(&a.total_s));
        recorded.sides[1].sort_by(|a, b| a.total_s.total_cmp(&b.total_s));
        for _ in 0..2 {
            let mut dispatcher = Dispatcher::new(Policy::Adaptive);
            let (mut taken_s, mut sides_s) = (0.0, [0.0; 2]);
            for at in 0..REQUESTS {
                taken_s += recorded.step(&mut dispatcher, at);
                Side::ALL.iter().for_each(|&side| sides_s[side as usize] += recorded.took(side, at).total_s);
            }
            let best_s = f64::min(sides_s[0], sides_s[1]);
            assert!(taken_s < 1.06 * best_s, "{}: {taken_s:.3} s, at best {best_s:.3} s", recorded.name);
            recorded.sides.iter_mut().for_each(|side| side.reverse());
        }
    }
}
