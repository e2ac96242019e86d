//! The measurements of a file and a function.

use crate::Request;
use crate::decision::{Decision, Plan, Reason};
use crate::fetch::{Fetch, Line};
use crate::learnt::{KEPT, Learnt};
use crate::model::{Costs, Direction, Estimate, Side};
use crate::probing::{INTERVAL_MAX, SETTLED};
use crate::window::Window;
use std::collections::VecDeque;

/// The measured cost of a request, or of a part of one, on a side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    /// Where it ran.
    pub side: Side,
    /// Bytes that the function was given.
    pub len_bytes: u64,
    /// Those of them that had to be fetched: on the host over the link, at the device from the medium.
    pub input_bytes: u64,
    /// Bytes that it gave back.
    pub output_bytes: u64,
    /// An empty exchange with the device, if there was one; else 0.
    pub round_trip_s: f64,
    /// Waiting for an engine.
    pub queue_s: f64,
    /// Fetching the input, beside the run or before it.
    pub input_s: f64,
    /// In the function.
    pub run_s: f64,
    /// Handing over the output: at the device to the host, in a write also to the medium.
    pub output_s: f64,
    /// From the request to the result, with all of the above.
    pub total_s: f64,
}

impl Observation {
    /// Whether handing over the output took time because of its length. A short one comes with the first answer: when
    /// that is late, then because of what else is on the link, such as the input of requests that run on the host.
    fn has_long_output(&self) -> bool {
        self.output_bytes >= LONG_OUTPUT_BYTES
    }

    /// Parts of one request that ran on a side at once, as one. Each had to share with the others: its own times are not
    /// what so many bytes take alone. Together they took as long as the longest, each term its share of that.
    ///
    /// `None` of no parts.
    #[must_use]
    pub fn together(parts: &[Self]) -> Option<Self> {
        let first = *parts.first()?;
        let sum = |term: fn(&Self) -> f64| parts.iter().map(term).sum::<f64>();
        let count = |bytes: fn(&Self) -> u64| parts.iter().map(bytes).sum();
        let total_s = parts.iter().map(|part| part.total_s).fold(0.0, f64::max);
        let all_s = sum(|part| part.total_s);
        let at_once = if all_s > 0.0 { total_s / all_s } else { 1.0 };
        Some(Self {
            side: first.side,
            len_bytes: count(|part| part.len_bytes),
            input_bytes: count(|part| part.input_bytes),
            output_bytes: count(|part| part.output_bytes),
            round_trip_s: first.round_trip_s,
            queue_s: sum(|part| part.queue_s) * at_once,
            input_s: sum(|part| part.input_s) * at_once,
            run_s: sum(|part| part.run_s) * at_once,
            output_s: sum(|part| part.output_s) * at_once,
            total_s,
        })
    }

    /// Its share of the time in which `at_once` calls like it ran on the side.
    pub(crate) fn shared_by(&self, at_once: f64) -> Self {
        let share = |s: f64| s / at_once;
        let (queue_s, input_s, run_s) = (share(self.queue_s), share(self.input_s), share(self.run_s));
        Self { queue_s, input_s, run_s, output_s: share(self.output_s), total_s: share(self.total_s), ..*self }
    }

    /// Getting the input, computing, and handing over the output.
    fn terms_s(&self) -> [f64; 3] {
        let output_s = if self.has_long_output() { self.output_s } else { 0.0 };
        [self.input_s.max(0.0), self.run_s.max(0.0), output_s.max(0.0)]
    }
}

/// What is known of a pair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairView {
    /// The host's terms, once they are measured.
    pub host: Option<Costs>,
    /// The device's.
    pub device: Option<Costs>,
    /// *α*.
    pub alpha: Option<f64>,
    /// *β*: the device's computing over the host's.
    pub beta: Option<f64>,
    /// Measurements of each side.
    pub measured: [u64; 2],
    /// Requests so far.
    pub requests: u64,
}

/// Shorter output is there with the first answer.
const LONG_OUTPUT_BYTES: u64 = 32 << 10;
/// A run that departs from its estimate by more than this factor, either way, is a surprise.
const SURPRISE: f64 = 1.25;
/// So many surprises in a row on the side in use are a change.
const CHANGED: usize = 3;
/// So many on the other side: there are few measurements of it.
const CHANGED_BY_PROBES: usize = 2;
/// The time of a run is estimated from runs that are at most so many times shorter: the time of a few bytes is mostly
/// the time to begin.
const COMPARABLE: u64 = 1024;
/// Of terms that are all but one of nearly no length, nothing can overlap.
const OVERLAP_MEASURABLE: f64 = 0.05;

#[derive(Debug, Default)]
pub(crate) struct Pair {
    /// When it was last used, for the bound on pairs.
    pub(crate) used: u64,
    pub(crate) requests: u64,
    pub(crate) last: Option<Plan>,
    pub(crate) probing: Probing,
    sides: [Measured; 2],
    alpha: Window,
    recall: Recall,
}

/// What outlives the pair, and what was there before it.
#[derive(Debug, Default)]
struct Recall {
    /// The last measurements of each side, the oldest first.
    recent: [VecDeque<Observation>; 2],
    /// Sides that are known from before, and were not measured since.
    recalled: [bool; 2],
}

/// The adaptive policy's memory of its probes.
#[derive(Debug)]
pub(crate) struct Probing {
    /// Time that may be spent on probes.
    pub(crate) credit_s: f64,
    /// Requests since the last one.
    pub(crate) since: u64,
    /// Requests from one to the next.
    pub(crate) interval: u64,
    /// Whether a surprise is to be confirmed.
    pub(crate) confirm: bool,
    /// Whether one by the probe that is under way would be.
    pub(crate) may_confirm: bool,
    /// First measurements that need no credit.
    pub(crate) free: u64,
}

impl Default for Probing {
    fn default() -> Self {
        Self { credit_s: 0.0, since: 1, interval: 1, confirm: false, may_confirm: false, free: SETTLED }
    }
}

#[derive(Debug, Default)]
struct Measured {
    input: Fetch,
    run: Window,
    output: Window,
    overlap: Window,
    /// Surprises in a row: slower ones count up, faster ones down.
    surprises: i32,
    /// All measurements are of calls that shared the side.
    shared: bool,
    /// Bytes of the longest one.
    longest_bytes: u64,
}

impl Measured {
    /// Whether runs of so many bytes are too long for what is known of shorter ones.
    fn is_beyond(&self, len_bytes: u64) -> bool {
        self.longest_bytes > 0 && len_bytes / COMPARABLE > self.longest_bytes
    }

    /// Whether runs of so many bytes are too short to say anything of the longest one.
    fn is_below(&self, len_bytes: u64) -> bool {
        len_bytes < self.longest_bytes / COMPARABLE
    }
}

impl Pair {
    pub(crate) fn measured(&self, side: Side) -> u64 {
        self.sides[side as usize].run.count()
    }

    /// Starts measuring again.
    pub(crate) fn restart(&mut self) {
        self.sides = Default::default();
        self.alpha.restart();
        self.recall = Recall::default();
    }

    pub(crate) fn is_recalled(&self) -> bool {
        self.recall.recalled.contains(&true)
    }

    pub(crate) fn learnt(&self) -> Learnt {
        let Probing { credit_s, since, interval, free, .. } = self.probing;
        let observations = self.recall.recent.iter().flatten().copied().collect();
        Learnt { observations, credit_s, since, interval, free, requests: self.requests }
    }

    pub(crate) fn recall(&mut self, learnt: &Learnt) {
        if Side::ALL.iter().any(|side| self.measured(*side) > 0) {
            return;
        }
        for observation in learnt.observations.iter().filter(|o| o.len_bytes > 0) {
            self.take_in(observation);
            self.recall.recalled[observation.side as usize] = true;
        }
        self.requests = self.requests.max(learnt.requests);
        let interval = learnt.interval.clamp(1, INTERVAL_MAX);
        // The kept values may come from anywhere.
        let since = learnt.since.min(INTERVAL_MAX);
        let (credit_s, free) = (learnt.credit_s, learnt.free.min(SETTLED));
        self.probing = Probing { credit_s, since, interval, free, ..Probing::default() };
    }

    /// One side's terms; `None` while a term that matters was never measured.
    pub(crate) fn costs(&self, side: Side, fetches: bool) -> Option<Costs> {
        let measured = &self.sides[side as usize];
        let input = match measured.input.line() {
            Some(input) => input,
            None if fetches => return None,
            None => Line { latency_s: 0.0, s_per_byte: 0.0 },
        };
        Some(Costs {
            input_latency_s: input.latency_s,
            input_s_per_byte: input.s_per_byte,
            run_s_per_byte: measured.run.mean()?,
            output_s_per_byte: measured.output.mean().unwrap_or(0.0),
            overlap: measured.overlap.mean().unwrap_or(0.0),
        })
    }

    /// Equations 1 to 3 with what was measured; `None` while a side is not.
    pub(crate) fn estimate(&self, request: &Request, round_trip_s: f64, waiting_s: [f64; 2]) -> Option<Estimate> {
        let len = request.len_bytes as f64;
        let cached = request.cached_bytes as f64;
        let alpha = self.alpha.mean().unwrap_or(0.0);
        let (host_moves, device_moves) = match request.direction {
            Direction::Read => (len - cached, len),
            Direction::Write => (0.0, len),
        };
        if self.sides.iter().any(|side| side.is_beyond(request.len_bytes)) {
            return None;
        }
        let mut host = self.costs(Side::Host, host_moves > 0.0)?;
        let device = self.costs(Side::Device, device_moves > 0.0)?;
        if request.direction == Direction::Write && self.sides[Side::Host as usize].output.count() == 0 {
            // The host's output takes the link that the device's input took, and the device's medium.
            host.output_s_per_byte = device.input_s_per_byte + device.output_s_per_byte;
        }
        let [host_waiting_s, device_waiting_s] = waiting_s;
        let host_trip_s = if host_moves > 0.0 || request.direction == Direction::Write { round_trip_s } else { 0.0 };
        let host_s = host.time_s(len, host_moves, alpha * len) + host_trip_s + host_waiting_s;
        let device_s = device.time_s(len, device_moves, alpha * len) + round_trip_s + device_waiting_s;
        let mixed = request.direction == Direction::Read && request.divisible && cached > 0.0 && cached < len;
        let split_s = mixed.then(|| {
            let rest = len - cached;
            let here_s = host.time_s(cached, 0.0, alpha * cached) + host_waiting_s;
            let there_s = device.time_s(rest, rest, alpha * rest) + round_trip_s + device_waiting_s;
            here_s.max(there_s)
        });
        Some(Estimate { host_s, device_s, split_s })
    }

    pub(crate) fn note(&mut self, decision: &Decision) {
        self.requests += 1;
        if !matches!(decision.reason, Reason::LinkLost | Reason::NoCompute) {
            self.last = Some(decision.plan);
        }
    }

    /// Whether a side was measured with requests like this one, not only with short parts of them.
    pub(crate) fn knows_whole(&self, side: Side, request: &Request) -> bool {
        let moved = if side == Side::Host { request.len_bytes - request.cached_bytes } else { request.len_bytes };
        moved == 0 || self.sides[side as usize].input.knows(moved)
    }

    /// Whether all that is known of a side comes from calls that shared it with others.
    pub(crate) fn has_seen_none_alone(&self, side: Side) -> bool {
        self.sides[side as usize].shared || self.measured(side) == 0
    }

    /// How long a call like this one takes alone, if one was ever seen.
    pub(crate) fn alone_s(&self, o: &Observation) -> Option<f64> {
        let costs = self.costs(o.side, o.input_bytes > 0).filter(|_| !self.has_seen_none_alone(o.side))?;
        Some(costs.time_s(o.len_bytes as f64, o.input_bytes as f64, o.output_bytes as f64) + o.round_trip_s)
    }

    /// The cost of a call that shared its side: better than knowing nothing of it.
    pub(crate) fn observe_shared(&mut self, o: &Observation) {
        self.observe_any(o);
        self.sides[o.side as usize].shared = self.measured(o.side) > 0;
    }

    pub(crate) fn observe(&mut self, o: &Observation) {
        if std::mem::take(&mut self.sides[o.side as usize].shared) {
            self.sides[o.side as usize] = Measured::default();
        }
        self.observe_any(o);
    }

    fn observe_any(&mut self, o: &Observation) {
        if o.len_bytes == 0 {
            return;
        }
        let measured = &self.sides[o.side as usize];
        let is_comparable = !measured.is_beyond(o.len_bytes) && !measured.is_below(o.len_bytes);
        let predicted_s = self.costs(o.side, o.input_bytes > 0).filter(|_| is_comparable).map(|costs| {
            Costs { overlap: 0.0, ..costs }.time_s(o.len_bytes as f64, o.input_bytes as f64, o.output_bytes as f64)
        });
        let terms_s = o.terms_s();
        let sum_s: f64 = terms_s.iter().sum();
        let side = &mut self.sides[o.side as usize];
        // The cost of a fetch of a new length was not known. It can only be faster than was thought.
        let known = o.input_bytes == 0 || side.input.knows(o.input_bytes);
        let surprise =
            predicted_s.map_or(0, |p| i32::from(known && sum_s > p * SURPRISE) - i32::from(sum_s * SURPRISE < p));
        let is_probe = self.last.and_then(Plan::side).is_some_and(|side| side != o.side);
        // Slower and faster in turn is noise.
        let in_a_row = side.surprises.signum() == surprise;
        side.surprises = if in_a_row { side.surprises + surprise } else { surprise };
        let enough = if is_probe { CHANGED_BY_PROBES } else { CHANGED };
        if side.surprises.unsigned_abs() as usize >= enough {
            self.begin_anew(o, surprise < 0, enough - 1);
        }
        let side = &mut self.sides[o.side as usize];
        if is_probe {
            self.probing.confirm = side.surprises != 0 && self.probing.may_confirm;
            self.probing.may_confirm = false;
            let interval = self.probing.interval;
            self.probing.interval = if surprise != 0 { 1 } else { (interval * 2).min(INTERVAL_MAX) };
        }
        self.take_in(o);
    }

    /// So many surprises in a row are not outliers: the world has changed. A side is then known only by what its last
    /// measurements say: one alone may be an outlier of the new world.
    fn begin_anew(&mut self, o: &Observation, faster: bool, kept: usize) {
        let recent = std::mem::take(&mut self.recall.recent[o.side as usize]);
        let side = &mut self.sides[o.side as usize];
        let mut input = std::mem::take(&mut side.input);
        if o.input_bytes > 0 {
            input.begin_anew(o.input_bytes, faster);
        }
        *side = Measured { input, ..Measured::default() };
        self.alpha.restart();
        recent.iter().skip(recent.len().saturating_sub(kept)).for_each(|o| self.take_in(o));
    }

    /// Adds a measurement to those of its side.
    fn take_in(&mut self, o: &Observation) {
        let (side, recent) = (&mut self.sides[o.side as usize], &mut self.recall.recent[o.side as usize]);
        if side.is_below(o.len_bytes) {
            return;
        }
        if side.is_beyond(o.len_bytes) {
            *side = Measured { shared: side.shared, ..Measured::default() };
            recent.clear();
        }
        side.longest_bytes = side.longest_bytes.max(o.len_bytes);
        if recent.len() == KEPT {
            recent.pop_front();
        }
        recent.push_back(*o);
        self.recall.recalled[o.side as usize] = false;
        let terms_s = o.terms_s();
        let sum_s: f64 = terms_s.iter().sum();
        let side = &mut self.sides[o.side as usize];
        let per = |seconds: f64, bytes: u64| seconds / bytes as f64;
        if o.input_bytes > 0 {
            side.input.push(o.input_bytes, terms_s[0]);
        }
        side.run.push(per(terms_s[1], o.len_bytes));
        if o.has_long_output() {
            side.output.push(per(terms_s[2], o.output_bytes));
        }
        let longest_s = terms_s.iter().copied().fold(0.0, f64::max);
        if sum_s - longest_s > OVERLAP_MEASURABLE * sum_s {
            let waited_s = if o.has_long_output() { 0.0 } else { o.output_s.max(0.0) };
            let busy_s = o.total_s - o.queue_s - o.round_trip_s - waited_s;
            side.overlap.push(((sum_s - busy_s) / (sum_s - longest_s)).clamp(0.0, 1.0));
        }
        self.alpha.push(o.output_bytes as f64 / o.len_bytes as f64);
    }

    /// Only what the function itself took was measured.
    pub(crate) fn rehearse(&mut self, side: Side, len_bytes: u64, run_s: f64) {
        if len_bytes > 0 {
            let side = &mut self.sides[side as usize];
            side.longest_bytes = side.longest_bytes.max(len_bytes);
            side.run.push(run_s.max(0.0) / len_bytes as f64);
        }
    }

    pub(crate) fn view(&self) -> PairView {
        let run = |side: Side| self.sides[side as usize].run.mean();
        PairView {
            host: self.costs(Side::Host, false),
            device: self.costs(Side::Device, false),
            alpha: self.alpha.mean(),
            beta: run(Side::Host).zip(run(Side::Device)).map(|(host, device)| host / device),
            measured: [self.measured(Side::Host), self.measured(Side::Device)],
            requests: self.requests,
        }
    }
}
