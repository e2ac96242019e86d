//! Host or device: where a request of a function runs, as a pure function of measurements.
//!
//! ```
//! use diskside_dispatch::{Conditions, Dispatcher, Observation, PairId, Plan, Policy, Request, Side};
//!
//! let mut dispatcher = Dispatcher::new(Policy::default());
//! let pair = PairId { file: 1, function: 2 };
//! let request = Request::read(8 << 20);
//! // Nothing is known yet: the data is at the device, and a part is tried on the host.
//! let first = dispatcher.decide(pair, &request, &Conditions::default());
//! assert_eq!(first.plan, Plan::Device);
//! println!("{first}");
//! // The caller who ran it reports the times.
//! dispatcher.observe(pair, &Observation {
//!     side: Side::Device, len_bytes: 8 << 20, input_bytes: 8 << 20, output_bytes: 24, round_trip_s: 1e-4,
//!     queue_s: 0.0, input_s: 0.004, run_s: 0.002, output_s: 0.0, total_s: 0.0045,
//! });
//! ```
//!
//! The cost model is lambda-IO's (FAST '23, equations 1 to 3; [`model`]). Its variables are measured for
//! each pair of a file and a function; `D`, the request's length, and `c`, its cached share, are exact.
//! Two policies fill them in:
//!
//! * [`Policy::Periodic`], the paper's: the first *k* of every *n* requests run on both sides.
//! * [`Policy::Adaptive`], the default: every request that runs is a measurement of its side; the other
//!   side is measured by small parts of requests, within a budget of time. See [`adaptive`] for what
//!   that costs at most, and how much is lost at most when the world changes.
//!
//! Only programs without effects are probed, split or moved; the others run at the device, or where the
//! caller says. Nothing here reads a clock, a file or a random number: equal calls give equal decisions.

#![forbid(unsafe_code)]

pub mod adaptive;
mod decision;
mod fetch;
mod learnt;
pub mod model;
mod pair;
mod periodic;
mod probing;
pub mod trace;
mod waits;
mod window;

use std::collections::HashMap;

pub use decision::{Counts, Decision, Plan, Probe, Reason};
pub use learnt::{KEPT, Learnt, TEXT_LEN_MAX_BYTES};
pub use model::{Costs, Direction, Estimate, Side, Variables, Work};
use pair::Pair;
pub use pair::{Observation, PairView};
pub use waits::Waits;
use window::Window;

/// A file, or a volume, and a function that runs over it. The caller gives out the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PairId {
    /// Which file.
    pub file: u64,
    /// Which function.
    pub function: u64,
}

/// What is to be placed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    /// Whether results go to the caller or to the file.
    pub direction: Direction,
    /// Bytes of input: the model's *D*.
    pub len_bytes: u64,
    /// Those of them that the host holds: *c* is this over `len_bytes`.
    pub cached_bytes: u64,
    /// Whether the program has no effects but its result, so that it may run twice, or elsewhere.
    pub effect_free: bool,
    /// Whether parts may run apart, because results can be put together again.
    pub divisible: bool,
    /// Bytes of the shortest part that can run apart to measure a side; 0: any.
    pub part_len_bytes: u64,
    /// Hints of the program's author on its cost, for a side that was never measured.
    pub hints: Option<Hints>,
    /// Where the caller wants it, whatever the policy.
    pub told: Option<Side>,
}

/// Hints of a program's author on its cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hints {
    /// Bytes of output for 1,000 bytes of input.
    pub output_permille: u32,
    /// Times that it goes through its input.
    pub passes: u32,
    /// Whether it accesses memory anywhere.
    pub scattered: bool,
}

/// So much of the input must not travel, in a thousandth of it, for each pass but the first.
const PASS_PERMILLE: u64 = 100;
/// And so much if accesses are scattered.
const SCATTERED_PERMILLE: u64 = 500;

impl Hints {
    /// Where a read runs that nothing is measured of: at the device if enough of its input stays there. Delilah's authors found
    /// that offloading pays by the data that it keeps from moving, for operators that read it once, and least where memory is
    /// accessed everywhere.
    fn side(&self, request: &Request) -> Side {
        let missing = u128::from(request.len_bytes - request.cached_bytes);
        let travels_permille = (missing * 1000 / u128::from(request.len_bytes.max(1))) as u64;
        let scattered = if self.scattered { SCATTERED_PERMILLE } else { 0 };
        let costs_permille = u64::from(self.passes.saturating_sub(1)) * PASS_PERMILLE + scattered;
        let is_worth_it = travels_permille > u64::from(self.output_permille) + costs_permille;
        if is_worth_it { Side::Device } else { Side::Host }
    }
}

impl Request {
    /// A read of so many bytes, none of them cached, by a program without effects whose results fold.
    #[must_use]
    pub fn read(len_bytes: u64) -> Self {
        Self {
            direction: Direction::Read,
            len_bytes,
            cached_bytes: 0,
            effect_free: true,
            divisible: true,
            part_len_bytes: 0,
            hints: None,
            told: None,
        }
    }
}

/// How things stand besides the pair's own measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conditions {
    /// Whether the device can be reached.
    pub link: Link,
    /// Whether the host can read the data although the device cannot be reached.
    pub host_reads: bool,
    /// An empty exchange with the device.
    pub round_trip_s: f64,
    /// Calls before this one for each engine of the device.
    pub device_waiting: f64,
    /// Calls before this one for each thread of the host.
    pub host_waiting: f64,
    /// The caller's own calls that run at the device now.
    pub device_running: u32,
    /// Those that run on the host, over the same link.
    pub host_running: u32,
    /// How long a turn is waited for at the device, no matter who uses it: [`Waits::turn_s`].
    pub device_turn_s: f64,
    /// Bytes of a turn, the chunk of a call; 0: a call is one turn.
    pub turn_len_bytes: u64,
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            link: Link::Up,
            host_reads: false,
            round_trip_s: 0.0,
            device_waiting: 0.0,
            host_waiting: 0.0,
            device_running: 0,
            host_running: 0,
            device_turn_s: 0.0,
            turn_len_bytes: 0,
        }
    }
}

/// The state of the way to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Commands and data pass.
    Up,
    /// The connection is being made again.
    Lost,
    /// Data passes; the device runs no functions, or not this one.
    NoCompute,
}

/// How a side is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Policy {
    /// Always there.
    Fixed(Side),
    /// lambda-IO's: of every `period` requests of a pair the first `profiled` run on both sides.
    Periodic {
        /// Requests from one profiling to the next: the paper's *n*.
        period: u32,
        /// Requests that run on both sides: the paper's *k*.
        profiled: u32,
    },
    /// Every request measures; the other side is probed by small parts.
    #[default]
    Adaptive,
}

/// Why a text names no policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyError(String);

impl std::fmt::Display for PolicyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}; policies are adaptive, host, device, and lambda-io or lambda-io:n=N,k=K", self.0)
    }
}

impl std::error::Error for PolicyError {}

/// `adaptive`, `host`, `device`, `lambda-io`, or `lambda-io:n=200,k=5` with other numbers.
impl std::str::FromStr for Policy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let wrong = |what: String| Err(PolicyError(what));
        let (name, numbers) = text.split_once(':').map_or((text, None), |(name, numbers)| (name, Some(numbers)));
        match (name, numbers) {
            ("adaptive", None) => return Ok(Self::Adaptive),
            ("host", None) => return Ok(Self::Fixed(Side::Host)),
            ("device", None) => return Ok(Self::Fixed(Side::Device)),
            ("lambda-io", _) => {}
            _ => return wrong(format!("`{text}` is no policy")),
        }
        let Self::Periodic { mut period, mut profiled } = Self::PAPER else { unreachable!("the paper's is periodic") };
        for number in numbers.into_iter().flat_map(|numbers| numbers.split(',')) {
            let parsed = number.split_once('=').and_then(|(name, value)| Some((name, value.parse().ok()?)));
            match parsed {
                Some(("n", n)) => period = n,
                Some(("k", k)) => profiled = k,
                _ => return wrong(format!("`{number}` is neither n=N nor k=K")),
            }
        }
        if profiled == 0 || profiled > period {
            return wrong(format!("k={profiled} of n={period} requests cannot be profiled: k is from 1 to n"));
        }
        Ok(Self::Periodic { period, profiled })
    }
}

impl Policy {
    /// The paper's policy with the paper's numbers.
    pub const PAPER: Self = Self::Periodic { period: 200, profiled: 5 };
}

/// Most pairs that are remembered; the one that was used least recently gives way.
pub const PAIRS_MAX: usize = 4096;

/// A call shares its side if so many calls run there on the average.
const CROWDED: f64 = 1.5;
/// And it has to wait for them if it takes so many times longer than alone.
const SLOWED: f64 = 1.2;

/// Chooses sides, for any number of pairs.
#[derive(Debug)]
pub struct Dispatcher {
    policy: Policy,
    pairs: HashMap<PairId, Pair>,
    /// How long calls that run alone take at each side, of any pair.
    service_s: [Window; 2],
    /// How long after another they end, if several run at once: they share engines, the medium, the link.
    shared_s: [Window; 2],
    counts: Counts,
    tick: u64,
}

impl Dispatcher {
    /// One that knows nothing yet.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            pairs: HashMap::new(),
            service_s: Default::default(),
            shared_s: Default::default(),
            counts: Counts::default(),
            tick: 0,
        }
    }

    /// The policy.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Where a request runs, and why.
    pub fn decide(&mut self, id: PairId, request: &Request, conditions: &Conditions) -> Decision {
        debug_assert!(request.cached_bytes <= request.len_bytes, "more is cached than there is");
        let policy = self.policy;
        let alone = self.pair(id).estimate(request, conditions.round_trip_s, [0.0; 2]);
        let waiting_s = self.waiting_s(conditions, request.len_bytes, alone);
        let pair = self.pair(id);
        let estimate = pair.estimate(request, conditions.round_trip_s, waiting_s);
        let mut decision = forced(policy, request, conditions).unwrap_or_else(|| match policy {
            Policy::Fixed(side) => Decision::new(side.into(), Reason::Told),
            Policy::Periodic { period, profiled } => periodic::decide(pair, period, profiled, estimate),
            Policy::Adaptive => {
                let is_busy = [conditions.host_running, conditions.device_running].map(|running| running > 0);
                adaptive::decide(pair, request, estimate, waiting_s, is_busy)
            }
        });
        decision.estimate = estimate;
        decision.recalled = estimate.is_some() && pair.is_recalled();
        pair.note(&decision);
        self.counts.add(&decision);
        decision
    }

    /// Takes note of what a request, or a part of one, took on a side.
    pub fn observe(&mut self, id: PairId, observation: &Observation) {
        self.observe_among(id, observation, 1.0);
    }

    /// The same of one that shared its side: `at_once` calls of the caller ran there on the average while it did,
    /// itself included. Its time says how fast the side is for all of them, and little of a call that runs alone.
    pub fn observe_among(&mut self, id: PairId, observation: &Observation, at_once: f64) {
        if at_once >= CROWDED {
            let (side, shared) = (observation.side as usize, observation.shared_by(at_once));
            let known_s = self.shared_s[side].mean();
            let pair = self.pair(id);
            let alone_s = pair.alone_s(observation);
            if pair.has_seen_none_alone(observation.side) {
                pair.observe_shared(&shared);
            }
            // One that took as long as it takes alone says only that its side is at least so fast.
            let is_slowed = alone_s.is_none_or(|alone_s| observation.total_s > SLOWED * alone_s);
            if is_slowed || known_s.is_none_or(|known_s| shared.total_s < known_s) {
                self.shared_s[side].push(shared.total_s);
            }
            return;
        }
        self.service_s[observation.side as usize].push((observation.total_s - observation.queue_s).max(0.0));
        let policy = self.policy;
        let pair = self.pair(id);
        if !matches!(policy, Policy::Periodic { .. }) || periodic::is_profiling(pair) {
            pair.observe(observation);
        }
    }

    /// The same of a probe: it is shorter than what others wait for, and of one that shared its side little is known.
    pub fn observe_probe(&mut self, id: PairId, observation: &Observation, at_once: f64) {
        let pair = self.pair(id);
        if at_once < CROWDED {
            pair.observe(observation);
        } else if pair.has_seen_none_alone(observation.side) {
            pair.observe_shared(&observation.shared_by(at_once));
        }
    }

    /// Takes note of what a function took over so many bytes whose output was dropped: the probe of a write.
    pub fn rehearse(&mut self, id: PairId, side: Side, len_bytes: u64, run_s: f64) {
        self.pair(id).rehearse(side, len_bytes, run_s);
    }

    /// Decisions so far, by reason.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Counts decisions from 0 on again; what was learnt stays.
    pub fn clear_counts(&mut self) {
        self.counts = Counts::default();
    }

    /// What is known of a pair.
    #[must_use]
    pub fn view(&self, id: PairId) -> Option<PairView> {
        self.pairs.get(&id).map(Pair::view)
    }

    /// The measurements of a pair, to keep; `None` if there are none.
    #[must_use]
    pub fn learnt(&self, id: PairId) -> Option<Learnt> {
        self.pairs.get(&id).map(Pair::learnt).filter(|learnt| !learnt.observations.is_empty())
    }

    /// Begins a pair with what was learnt of it, or of one like it, unless it was measured already.
    pub fn recall(&mut self, id: PairId, learnt: &Learnt) {
        self.pair(id).recall(learnt);
    }

    /// Forgets a pair, for instance when its file was replaced.
    pub fn forget(&mut self, id: PairId) {
        self.pairs.remove(&id);
    }

    /// Pairs that are remembered.
    #[must_use]
    pub fn pairs(&self) -> usize {
        self.pairs.len()
    }

    /// How much longer a request takes on either side than `alone`.
    fn waiting_s(&self, conditions: &Conditions, len_bytes: u64, alone: Option<Estimate>) -> [f64; 2] {
        let waiting = [conditions.host_waiting, conditions.device_waiting];
        let running = [conditions.host_running, conditions.device_running].map(f64::from);
        let [host_s, device_s] = Side::ALL.map(|side| {
            let at = side as usize;
            match self.shared_s[at].mean() {
                // It ends behind those that run now; up to some of them run as fast as if they were alone.
                Some(shared_s) if running[at] > 0.0 => {
                    let own_s = alone.map_or(shared_s, |alone| alone.on(side));
                    ((running[at] + 1.0) * shared_s - own_s).max(0.0)
                }
                _ => waiting[at].max(0.0) * self.service_s[at].mean().unwrap_or(0.0),
            }
        });
        // The wait for others includes the delay by the caller's own calls; so the longer counts, not both.
        [host_s, device_s.max(conditions.device_turn_s.max(0.0) * turns(len_bytes, conditions.turn_len_bytes) as f64)]
    }

    fn pair(&mut self, id: PairId) -> &mut Pair {
        self.tick += 1;
        if self.pairs.len() >= PAIRS_MAX && !self.pairs.contains_key(&id) {
            let oldest = self.pairs.iter().min_by_key(|(_, pair)| pair.used).map(|(id, _)| *id);
            if let Some(oldest) = oldest {
                self.pairs.remove(&oldest);
            }
        }
        let pair = self.pairs.entry(id).or_default();
        pair.used = self.tick;
        pair
    }
}

/// Turns of a call over so many bytes.
#[must_use]
pub fn turns(len_bytes: u64, turn_len_bytes: u64) -> u64 {
    if turn_len_bytes == 0 { 1 } else { len_bytes.div_ceil(turn_len_bytes).max(1) }
}

/// What leaves no choice.
fn forced(policy: Policy, request: &Request, conditions: &Conditions) -> Option<Decision> {
    let cached = request.direction == Direction::Read && request.cached_bytes == request.len_bytes;
    if let Some(side) = request.told {
        return Some(Decision::new(side.into(), Reason::Told));
    }
    match conditions.link {
        Link::NoCompute => Some(Decision::new(Plan::Host, Reason::NoCompute)),
        // Waiting for the device is all that is left to do, unless the host has the data.
        Link::Lost
            if request.effect_free
                && (cached || conditions.host_reads)
                && !matches!(policy, Policy::Fixed(Side::Device)) =>
        {
            Some(Decision::new(Plan::Host, Reason::LinkLost))
        }
        Link::Lost | Link::Up => match policy {
            Policy::Fixed(_) => None,
            Policy::Periodic { .. } | Policy::Adaptive if !request.effect_free => {
                Some(Decision::new(Plan::Device, Reason::Effects))
            }
            Policy::Periodic { .. } | Policy::Adaptive => None,
        },
    }
}
