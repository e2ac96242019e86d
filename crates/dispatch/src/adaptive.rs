//! The default policy: every request measures its side; the other is probed by small parts.
//!
//! * **Choice.** The side that the model says is faster, or both at once ([`Plan::Split`]) when that is
//!   faster by a twentieth. Estimates within 3 % of each other are a tie: the request stays where
//!   the last one was. Of several requests at once one goes to the side that is slower for it alone only when that
//!   looks faster by a fifth than to wait for the others.
//! * **Probes.** A part of the request, 1/256 of it, at least 128 KiB and what can run apart, runs on the other side besides the plan, and its
//!   result is dropped: a run only to measure is not part of an answer, because it is not a piece of the request's grid.
//!   Requests of a few MiB are over before a probe could pay, so the first 16 of them that take little time are not
//!   probed. Bytes are
//!   written once: to measure the host for a write, the function runs there over a part and its output is
//!   dropped, since what the output would take is known from the device's link and medium; to measure
//!   the device, a write runs there instead.
//! * **Their cost.** Each request adds 0.4 % of its time, without its waits for others, to a credit; a probe takes all
//!   of the time that it is expected to need out of it. So probing takes less than 0.5 % of the time, except for the
//!   first three measurements of a side, of which one may be wrong, and for the one probe that confirms a surprise. A
//!   probe of a device that others keep busy waits as any call does, and that is paid for, too.
//! * **What they tell.** A small part takes its latency as a whole request does: what fetching takes whatever its length is
//!   told apart by the lengths that were measured. A side whose probes became faster is tried by one whole request.
//! * **Loss when the world changes.** When the side in use slows down, the third request knows.
//!   When the other side becomes faster, a probe finds out: the next one is due after at most
//!   `max(INTERVAL_MAX, r)` requests, where `r` is how many times slower that side was thought to be,
//!   and a second one confirms it. Until then each request loses what the sides differ by, no more.
//!
//! The bounds hold in simulation: `tests/regret.rs`.

use crate::Request;
use crate::decision::{Decision, Plan, Probe, Reason};
use crate::model::{Direction, Estimate, Side};
use crate::pair::Pair;
pub use crate::probing::{INTERVAL_MAX, SETTLED};

/// Share of the time that may go into probes.
pub const PROBE_SHARE: f64 = 0.004;
/// The part of a request that is a probe.
const PROBE_PARTS: u64 = 256;
/// Shorter probes measure what a request costs whatever its length.
pub const PROBE_LEN_MIN_BYTES: u64 = 128 << 10;
/// A probe is not a small part of shorter requests.
const PROBED_LEN_MIN_BYTES: u64 = 4 << 20;
/// So many shorter requests come before the first probe, unless one takes longer than this.
const SHORT_REQUESTS: u64 = 16;
const SHORT_S: f64 = 0.02;
/// Estimates this close are equal.
const TIE: f64 = 1.03;
/// A side that is slower for one request must look so much faster than waiting behind the caller's own requests at the other:
/// what those still take is a guess, and the request that is wrong about it ends last.
const AWAY: f64 = 0.8;
/// A first measurement waits no longer than this share of a request.
const WAIT_SMALL: f64 = 0.05;
/// The gain that both sides at once must bring.
const SPLIT_GAIN: f64 = 0.95;
/// Probes without an answer double the pause to the next, up to this.
const UNANSWERED_MAX: u64 = 1024;
/// Credit for so many requests can be saved up.
const CREDIT_REQUESTS_MAX: f64 = 1024.0;

/// `is_busy`: whether requests of the caller run on a side now.
pub(crate) fn decide(
    pair: &mut Pair,
    request: &Request,
    estimate: Option<Estimate>,
    waiting_s: [f64; 2],
    is_busy: [bool; 2],
) -> Decision {
    pair.probing.since += 1;
    let Some(estimate) = estimate else { return first(pair, request) };
    let (mut plan, mut reason) = choose(pair.last, &estimate, waiting_s, is_busy);
    // The first bytes of a link may come faster than others: a side that is known by probes is tried by one request first.
    if let Some(side) = plan.side()
        && is_busy[side as usize]
        && is_busy[side.other() as usize]
        && !pair.knows_whole(side, request)
    {
        (plan, reason) = (side.other().into(), Reason::Tried);
    }
    let mut decision = Decision::new(plan, reason);
    let time_s = plan.side().map_or_else(|| estimate.split_s.unwrap_or(0.0), |side| estimate.on(side));
    // Eight requests at once take eight times as long, and no more time in all.
    let own_s = time_s - plan.side().map_or(0.0, |side| waiting_s[side as usize]);
    // A first measurement has in it what is done once: compiling, opening, warming up.
    let young = plan.side().is_some_and(|side| pair.measured(side.other()) < SETTLED)
        && pair.probing.free > 0
        && probe_is_small(request, plan);
    let probing = &mut pair.probing;
    probing.credit_s = (probing.credit_s + PROBE_SHARE * own_s).min(CREDIT_REQUESTS_MAX * PROBE_SHARE * own_s);
    if let Some(side) = plan.side().map(Side::other) {
        let probe = part(request, side);
        // However short it is, it waits for its turn; but then a first measurement is not a small thing any more.
        let waits_s = waiting_s[side as usize];
        let share = probe.len_bytes as f64 / request.len_bytes.max(1) as f64;
        let expected_s = (estimate.on(side) - waits_s) * share + waits_s;
        let young = young && waits_s <= WAIT_SMALL * time_s;
        let due = probing.since > probing.interval && probing.credit_s >= expected_s;
        if (due || young || probing.confirm) && request.len_bytes > 0 {
            probing.credit_s -= expected_s;
            probing.since = 0;
            // An unpaid probe is not confirmed: where nothing is like the last time, that would not end.
            probing.may_confirm = due;
            probing.confirm = false;
            if young && !due {
                probing.free -= 1;
            }
            decision.probe = Some(probe);
        }
    }
    decision
}

/// A side, or a term of it, was never measured: measure it by a part.
fn first(pair: &mut Pair, request: &Request) -> Decision {
    let fetches = request.direction == Direction::Read && request.cached_bytes < request.len_bytes;
    // The requests that were first may still run: what only their probes said is not a reason to leave their side.
    let known =
        |side: Side| pair.costs(side, side == Side::Device || fetches).is_some() && pair.knows_whole(side, request);
    let hints = request.hints.filter(|_| request.direction == Direction::Read);
    let (side, reason) = match (known(Side::Host), known(Side::Device), hints) {
        (true, false, _) => (Side::Host, Reason::Unmeasured),
        (false, true, _) => (Side::Device, Reason::Unmeasured),
        // Where the data is.
        _ if request.direction == Direction::Read && !fetches => (Side::Host, Reason::Unmeasured),
        (false, false, Some(hints)) => (hints.side(request), Reason::Hinted),
        _ => (Side::Device, Reason::Unmeasured),
    };
    let mut decision = Decision::new(side.into(), reason);
    let len = request.len_bytes as f64;
    // The first have in them what is done once.
    let takes_long = pair.measured(side) >= SETTLED
        && pair.costs(side, false).is_some_and(|costs| costs.time_s(len, len, 0.0) > SHORT_S);
    let is_short = request.direction == Direction::Read && request.len_bytes < PROBED_LEN_MIN_BYTES && !takes_long;
    let probing = &mut pair.probing;
    let interval = if is_short { probing.interval.max(SHORT_REQUESTS) } else { probing.interval };
    if probing.since > interval && request.len_bytes > 0 {
        decision.probe = Some(part(request, side.other()));
        probing.since = 0;
        probing.interval = (probing.interval * 2).min(UNANSWERED_MAX);
    }
    decision
}

fn choose(last: Option<Plan>, estimate: &Estimate, waiting_s: [f64; 2], is_busy: [bool; 2]) -> (Plan, Reason) {
    let mut faster = estimate.faster();
    let alone_s = |side: Side| estimate.on(side) - waiting_s[side as usize];
    let other = faster.other();
    if is_busy[other as usize] && alone_s(other) < alone_s(faster) && estimate.on(faster) > AWAY * estimate.on(other) {
        faster = other;
    }
    if let Some(split_s) = estimate.split_s
        && split_s < SPLIT_GAIN * estimate.on(faster)
    {
        return (Plan::Split, Reason::FasterTogether);
    }
    match last.and_then(Plan::side) {
        Some(side) if side != faster && estimate.on(side) <= TIE * estimate.on(faster) => (side.into(), Reason::Tie),
        _ => (faster.into(), Reason::Faster),
    }
}

/// Whether measuring the other side takes a small part of a request: then it needs no credit.
fn probe_is_small(request: &Request, plan: Plan) -> bool {
    let is_short = request.direction == Direction::Read && request.len_bytes < PROBED_LEN_MIN_BYTES;
    !is_short && plan.side().is_some_and(|side| part(request, side.other()).len_bytes < request.len_bytes)
}

/// The part of a request that measures a side. Data is written only once.
fn part(request: &Request, side: Side) -> Probe {
    if request.direction == Direction::Write && side == Side::Device {
        return Probe { side, len_bytes: request.len_bytes, instead: true };
    }
    let len = (request.len_bytes / PROBE_PARTS).max(PROBE_LEN_MIN_BYTES).max(request.part_len_bytes);
    Probe { side, len_bytes: len.min(request.len_bytes), instead: false }
}
