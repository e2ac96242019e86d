//! A medium that fails on purpose.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use diskside_io::Errno;

use crate::medium::{Access, Action, Medium, Properties, Step};

/// How often what goes wrong, in accesses of a million. The same seed and the same accesses in the same order
/// give the same faults.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan {
    /// What the choice is made from.
    pub seed: u64,
    /// Reads and writes that fail with `EIO`.
    pub eio_ppm: u32,
    /// Writes that fail with `ENOSPC`.
    pub enospc_ppm: u32,
    /// Flushes that fail with `EIO`.
    pub flush_eio_ppm: u32,
    /// Reads and writes that move only a part.
    pub short_ppm: u32,
    /// Accesses that start late.
    pub delay_ppm: u32,
    /// By how much at most.
    pub delay_max: Duration,
}

/// Any medium, with the faults of a [`FaultPlan`].
#[derive(Debug)]
pub struct FaultyMedium {
    inner: Arc<dyn Medium>,
    plan: FaultPlan,
    block_bytes: u32,
    accesses: AtomicU64,
}

impl FaultyMedium {
    /// `inner`, with faults; short transfers end at multiples of `block_bytes`.
    pub fn new(inner: Arc<dyn Medium>, block_bytes: u32, plan: FaultPlan) -> Self {
        Self { inner, plan, block_bytes, accesses: AtomicU64::new(0) }
    }

    /// Accesses that were started so far.
    pub fn accesses(&self) -> u64 {
        self.accesses.load(Ordering::Relaxed)
    }

    /// A fault that shows at once: the error.
    fn failure(&self, access: &Access<'_>, dice: &mut Dice) -> Option<Errno> {
        let plan = &self.plan;
        match access {
            Access::Flush => dice.hits(plan.flush_eio_ppm).then_some(Errno::IO),
            _ if dice.hits(plan.eio_ppm) => Some(Errno::IO),
            _ => (access.is_write() && dice.hits(plan.enospc_ppm)).then_some(Errno::NOSPC),
        }
    }

    /// The first blocks of `len`, at least one and not all.
    fn shorter(&self, len: usize, dice: &mut Dice) -> usize {
        let block = self.block_bytes as usize;
        let blocks = len / block;
        if blocks < 2 || !dice.hits(self.plan.short_ppm) {
            return len;
        }
        block * (1 + dice.below(blocks as u64 - 1) as usize)
    }
}

impl Medium for FaultyMedium {
    fn properties(&self) -> &Properties {
        self.inner.properties()
    }

    fn start(&self, access: &Access<'_>) -> Step {
        let mut dice = Dice(self.plan.seed ^ self.accesses.fetch_add(1, Ordering::Relaxed).wrapping_mul(ODD));
        let delay = match dice.hits(self.plan.delay_ppm) {
            true => self.plan.delay_max.mul_f64(dice.below(1000) as f64 / 1000.0),
            false => Duration::ZERO,
        };
        if let Some(errno) = self.failure(access, &mut dice) {
            return Step { delay, action: Action::Failed(errno) };
        }
        let access = match *access {
            Access::Read { offset, len } => Access::Read { offset, len: self.shorter(len, &mut dice) },
            Access::Write { offset, data, durable } => {
                Access::Write { offset, data: &data[..self.shorter(data.len(), &mut dice)], durable }
            }
            ref other => other.clone(),
        };
        let step = self.inner.start(&access);
        Step { delay: delay.max(step.delay), action: step.action }
    }

    fn reads_at_once(&self) -> usize {
        self.inner.reads_at_once()
    }

    fn drop_cached(&self) -> Result<(), Errno> {
        self.inner.drop_cached()
    }

    fn refused(&self, access: &Access<'_>) {
        self.inner.refused(access);
    }
}

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(ODD);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    fn hits(&mut self, ppm: u32) -> bool {
        self.below(1_000_000) < u64::from(ppm)
    }
}

const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
