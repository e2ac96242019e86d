//! lambda-IO's policy (section 3.4.2): profile the first *k* of every *n* requests on both sides.
//!
//! Variables are trimmed means over the profiled requests (over the last nine of them). The rest of
//! the period goes to the side that the equations say is faster.

use crate::decision::{Decision, Plan, Reason};
use crate::model::{Estimate, Side};
use crate::pair::Pair;

pub(crate) fn decide(pair: &mut Pair, period: u32, profiled: u32, estimate: Option<Estimate>) -> Decision {
    let position = pair.requests % u64::from(period.max(1));
    if position == 0 {
        pair.restart();
    }
    match estimate {
        Some(estimate) if position >= u64::from(profiled) => Decision::new(estimate.faster().into(), Reason::Faster),
        _ => Decision::new(Plan::Both, Reason::Profiling),
    }
}

/// Whether measurements count: only those of profiled requests do.
pub(crate) fn is_profiling(pair: &Pair) -> bool {
    pair.last.and_then(Plan::side).is_none() || pair.measured(Side::Host) == 0 || pair.measured(Side::Device) == 0
}
