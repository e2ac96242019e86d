//! Each helper against a plain reference, at every edge.

mod bounds;
mod decompress;
mod digest;
mod filter;
mod fold;
mod header;
mod heap;
mod memory;
mod regex;
mod world;

use super::{HelperSet, Param, standard};
use crate::activation::{Limits, Mappings};
use crate::machine::{Environment, Machine, NoEnvironment, Status};
use crate::region::RegionId;
use crate::trap::{Trap, TrapKind};
use std::sync::Arc;

pub(super) const INPUT: u64 = RegionId::INPUT.base();
pub(super) const OUTPUT: u64 = RegionId::OUTPUT.base();
pub(super) const ARGS: u64 = RegionId::ARGS.base();

/// A machine that calls helpers as a program would.
pub(super) struct Host {
    pub machine: Machine,
    pub helpers: Arc<HelperSet>,
}

impl Host {
    pub(super) fn new() -> Self {
        Self::with(1 << 20, Box::new(NoEnvironment))
    }

    pub(super) fn with(heap_quota_bytes: u64, environment: Box<dyn Environment + Send>) -> Self {
        let helpers = Arc::new(standard());
        let imports = helpers.iter().map(|h| Some(*h)).collect();
        let machine = Machine::new(Arc::clone(&helpers), imports, heap_quota_bytes, environment);
        let mut host = Self { machine, helpers };
        host.budget(1 << 30);
        host
    }

    pub(super) fn budget(&mut self, edges: u64) {
        self.machine.budget = edges;
        self.machine.slice = 0;
    }

    /// Maps these regions, calls `f`, unmaps them.
    pub(super) fn mapped<R>(&mut self, mappings: Mappings<'_>, f: impl FnOnce(&mut Self) -> R) -> R {
        mappings.for_each(|region, entry| {
            self.machine.regions[usize::from(region.0)] = entry;
        });
        let result = f(self);
        mappings.for_each(|region, _| {
            self.machine.regions[usize::from(region.0)] = crate::machine::RegionEntry::UNMAPPED;
        });
        result
    }

    /// Calls a helper: its result, or the trap.
    pub(super) fn call(&mut self, name: &str, args: &[u64]) -> Result<u64, Trap> {
        let id = self.helpers.find(name).unwrap_or_else(|| panic!("no helper {name}"));
        self.machine.args = [0; 5];
        self.machine.args[..args.len()].copy_from_slice(args);
        self.machine.trap = None;
        match self.machine.call_helper(u32::from(id.0), 7) {
            Status::Returned => Ok(self.machine.result),
            Status::Trapped => Err(self.machine.trap.take().expect("a trap is recorded")),
        }
    }

    /// Calls a helper over input bytes at INPUT.
    pub(super) fn over(&mut self, name: &str, input: &[u8], args: &[u64]) -> Result<u64, Trap> {
        self.mapped(Mappings::new().read_only(RegionId::INPUT, input), |host| host.call(name, args))
    }
}

/// The kind of a trap, and its reason when a helper refused.
pub(super) fn why(result: Result<u64, Trap>) -> (TrapKind, &'static str) {
    let trap = result.expect_err("the helper should not accept this");
    assert_eq!(trap.insn, 7, "a trap names the call");
    (trap.kind, trap.helper.map_or("", |h| h.1))
}
