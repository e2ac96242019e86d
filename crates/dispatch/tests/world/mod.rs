//! A world with two sides whose speeds the dispatcher does not know.

#![allow(dead_code, unreachable_pub, reason = "each test uses its part")]

use diskside_dispatch::{
    Conditions, Decision, Direction, Dispatcher, Observation, PairId, Plan, Request, Side, Variables, Work,
};

pub const PAIR: PairId = PairId { file: 1, function: 1 };
pub const MIB: u64 = 1 << 20;

/// How fast things are, and how much that varies from request to request.
pub struct World {
    pub truth: Variables,
    /// Times vary by this share, up and down.
    pub noise: f64,
    /// Of so many requests one takes ten times as long; 0: none does.
    pub outlier_each: u64,
    /// The time of getting the input besides, however much it is. Less than nothing: so much comes at once.
    pub latency_s: [f64; 2],
    /// What the first run of a side takes besides.
    pub first_s: [Option<f64>; 2],
    random: u64,
}

/// What a run of requests took, and what it would have taken.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub taken_s: f64,
    /// With the better side, or both, for each request, and no probes.
    pub best_s: f64,
    pub host_s: f64,
    pub device_s: f64,
    /// Spent on probes, as if nothing ran meanwhile.
    pub probing_s: f64,
}

impl Tally {
    pub fn regret(&self) -> f64 {
        self.taken_s / self.best_s - 1.0
    }
}

/// A device that takes so many times less time than the host for what is not cached.
pub fn variables(device_over_host: f64) -> Variables {
    let (link_bytes_per_s, beta) = if device_over_host >= 1.0 {
        (1e9 / (device_over_host - 0.75), 0.5)
    } else {
        (1e9, 0.25 / (1.75 / device_over_host - 0.5))
    };
    Variables { storage_bytes_per_s: 2e9, link_bytes_per_s, host_bytes_per_s: 4e9, alpha: 1e-6, beta }
}

impl World {
    pub fn new(truth: Variables, noise: f64) -> Self {
        Self { truth, noise, outlier_each: 0, latency_s: [0.0; 2], first_s: [None; 2], random: 0x9e37_79b9_7f4a_7c15 }
    }

    /// Decides, runs and observes one request.
    pub fn step(
        &mut self,
        dispatcher: &mut Dispatcher,
        pair: PairId,
        request: &Request,
        tally: &mut Tally,
    ) -> Decision {
        self.step_under(dispatcher, pair, request, tally, &Conditions::default())
    }

    /// [`step`](Self::step) under conditions that do not change how long its runs take.
    pub fn step_under(
        &mut self,
        dispatcher: &mut Dispatcher,
        pair: PairId,
        request: &Request,
        tally: &mut Tally,
        conditions: &Conditions,
    ) -> Decision {
        let decision = dispatcher.decide(pair, request, conditions);
        let (len, cached) = (request.len_bytes, request.cached_bytes);
        let split_s = (cached > 0 && cached < len && request.divisible).then(|| {
            let here = self.run(Side::Host, request.direction, cached, cached).total_s;
            here.max(self.run(Side::Device, request.direction, len - cached, 0).total_s)
        });
        let [host_s, device_s] = [(Side::Host, cached), (Side::Device, 0)]
            .map(|(side, cached)| self.run(side, request.direction, len, cached).total_s);
        tally.host_s += host_s;
        tally.device_s += device_s;
        tally.best_s += host_s.min(device_s).min(split_s.unwrap_or(f64::INFINITY));
        let probed = decision.probe.map_or(0, |probe| probe.len_bytes);
        let left = if decision.probe.is_some_and(|probe| probe.instead) { len - probed } else { len };
        // What the host holds stays in the plan.
        let cached_left = cached.min(left);
        let mut runs = Vec::new();
        match decision.plan {
            Plan::Host | Plan::Device if left == 0 => {}
            Plan::Host => runs.push(self.noisy(Side::Host, request.direction, left, cached_left)),
            Plan::Device => runs.push(self.noisy(Side::Device, request.direction, left, cached_left)),
            Plan::Both => {
                runs.push(self.noisy(Side::Host, request.direction, len, cached));
                runs.push(self.noisy(Side::Device, request.direction, len, cached));
            }
            Plan::Split => {
                runs.push(self.noisy(Side::Host, request.direction, cached, cached));
                runs.push(self.noisy(Side::Device, request.direction, len - cached, 0));
            }
        }
        tally.taken_s += runs.iter().map(|run| run.total_s).fold(0.0, f64::max);
        for run in &runs {
            dispatcher.observe(pair, run);
        }
        if let Some(probe) = decision.probe {
            let cached_in = probed.saturating_sub(len - cached);
            let run = self.noisy(probe.side, request.direction, probed, cached_in);
            if request.direction == Direction::Write && !probe.instead {
                tally.taken_s += run.run_s;
                tally.probing_s += run.run_s;
                dispatcher.rehearse(pair, probe.side, run.len_bytes, run.run_s);
                return decision;
            }
            tally.taken_s += run.total_s;
            tally.probing_s += run.total_s;
            dispatcher.observe(pair, &run);
        }
        decision
    }

    fn noisy(&mut self, side: Side, direction: Direction, len: u64, cached: u64) -> Observation {
        let mut factor = 1.0 + self.noise * (2.0 * self.random() - 1.0);
        if self.outlier_each > 0 && self.random() * (self.outlier_each as f64) < 1.0 {
            factor *= 10.0;
        }
        let run = self.run(side, direction, len, cached);
        let first_s = self.first_s[side as usize].take().unwrap_or(0.0);
        Observation {
            input_s: run.input_s * factor,
            run_s: run.run_s * factor + first_s,
            output_s: run.output_s * factor,
            total_s: run.total_s * factor + first_s,
            ..run
        }
    }

    fn run(&self, side: Side, direction: Direction, len: u64, cached: u64) -> Observation {
        let costs = self.truth.costs(side, direction);
        let input = match (side, direction) {
            (Side::Host, Direction::Read) => len - cached,
            (Side::Host, Direction::Write) => 0,
            (Side::Device, _) => len,
        };
        let output = self.truth.alpha * len as f64;
        let input_s = input as f64 * costs.input_s_per_byte;
        // However much comes at once, it is not there before it is asked for.
        let latency_s = if input == 0 { 0.0 } else { self.latency_s[side as usize].max(-0.9 * input_s) };
        Observation {
            side,
            len_bytes: len,
            input_bytes: input,
            output_bytes: output as u64,
            round_trip_s: 0.0,
            queue_s: 0.0,
            input_s: input_s + latency_s,
            run_s: len as f64 * costs.run_s_per_byte,
            output_s: output * costs.output_s_per_byte,
            total_s: costs.time_s(len as f64, input as f64, output) + latency_s,
        }
    }

    /// Xorshift: the same numbers in every run.
    fn random(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1_u64 << 53) as f64
    }
}

pub fn work(request: &Request) -> Work {
    Work { direction: request.direction, len_bytes: request.len_bytes, cached_bytes: request.cached_bytes }
}
