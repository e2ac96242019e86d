//! Loads, stores and atomics, each with the check that the IR asks for.
//!
//! An access that is checked inline continues in one of two ways: straight, or by a cold block that
//! calls out to the full check. The inline test may refuse what the full check allows, never the
//! other way round. In blocks that rarely run, every check calls out: that is less code.

use super::{Result, Translator, argument_offset, trusted};
use crate::liveness::Form;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self as clif, AtomicRmwOp, BlockArg, InstBuilder, types};
use cranelift_frontend::Variable;
use diskside_sbpf::insn::{AtomicOp, Size};
use diskside_sbpf::ir::{BlockId, Check, Op, Value, Var};
use diskside_sbpf::machine::{Machine, RegionEntry};
use diskside_sbpf::region::{REGION_COUNT, REGION_SHIFT, RegionId};
use diskside_sbpf_native::callouts::{self, Access};
use std::collections::BTreeMap;
use std::mem::offset_of;

/// The facts about regions that the function loads once: they stay the same for a call, except for the heap,
/// which helpers may grow.
#[derive(Debug, Default)]
pub(super) struct Regions {
    /// Host address minus program-visible address.
    displacement: BTreeMap<RegionId, Known>,
    /// Displacements again, for each innermost loop that has proved accesses: a value that lives only as
    /// long as the loop is likelier to get a register. The loop is named by its header.
    in_loop: BTreeMap<(usize, RegionId), Variable>,
    /// Where `r10` points to, when the frame is accessed by it.
    frame: Option<clif::Value>,
    /// For an access of this size: the first offset at which it would leave the region.
    bound: BTreeMap<(RegionId, Size, bool), Known>,
}

/// A value that was loaded at the start.
#[derive(Clone, Copy, Debug)]
enum Known {
    /// For good.
    Fixed(clif::Value),
    /// Until the next call.
    Reloaded(Variable),
}

/// The program-visible address of each region. In memory rather than as constants: a difference from
/// a constant would be computed again in every loop that uses it.
static WINDOWS: [u64; REGION_COUNT] = {
    let mut windows = [0; REGION_COUNT];
    let mut i = 0;
    while i < REGION_COUNT {
        windows[i] = RegionId(i as u8).base();
        i += 1;
    }
    windows
};

/// One access.
#[derive(Clone, Copy)]
struct Place {
    base: Var,
    off: i64,
    size: Size,
    insn: u32,
}

impl Translator<'_> {
    /// Loads what the function's inline checks and proved accesses need.
    pub(super) fn load_regions(&mut self) {
        let ops = self.func.blocks.iter().flat_map(|b| b.ops.iter().map(|(op, _)| (op, b.cold)));
        for (op, cold) in ops {
            let (check, size, write) = match *op {
                Op::Load { check, size, .. } => (check, size, false),
                Op::Store { check, size, .. } => (check, size, true),
                Op::ZeroFrame { .. } => (Check::Direct(RegionId::STACK), Size::B, true),
                _ => continue,
            };
            let region = match check {
                Check::Direct(region) => region,
                Check::Hinted(region) if !cold => region,
                _ => continue,
            };
            if !self.regions.displacement.contains_key(&region) {
                let x = self.load_displacement(region);
                let known = self.known(region, x);
                self.regions.displacement.insert(region, known);
            }
            let key = (region, size, write);
            if matches!(check, Check::Hinted(_)) && !self.regions.bound.contains_key(&key) {
                let x = self.load_bound(key);
                let known = self.known(region, x);
                self.regions.bound.insert(key, known);
            }
        }
    }

    /// Loads again what a call may have changed.
    pub(super) fn reload_regions(&mut self) {
        let displacements = self.regions.displacement.iter().map(|(k, v)| (*k, *v));
        for (region, known) in displacements.collect::<Vec<_>>() {
            if let Known::Reloaded(variable) = known {
                let x = self.load_displacement(region);
                self.b.def_var(variable, x);
            }
        }
        let bounds = self.regions.bound.iter().map(|(k, v)| (*k, *v));
        for (key, known) in bounds.collect::<Vec<_>>() {
            if let Known::Reloaded(variable) = known {
                let x = self.load_bound(key);
                self.b.def_var(variable, x);
            }
        }
    }

    fn known(&mut self, region: RegionId, x: clif::Value) -> Known {
        if region != RegionId::HEAP {
            return Known::Fixed(x);
        }
        let variable = self.b.declare_var(types::I64);
        self.b.def_var(variable, x);
        Known::Reloaded(variable)
    }

    fn recall(&mut self, known: Known) -> clif::Value {
        match known {
            Known::Fixed(x) => x,
            Known::Reloaded(variable) => self.b.use_var(variable),
        }
    }

    fn load_displacement(&mut self, region: RegionId) -> clif::Value {
        let base = entry_offset(region) + offset_of!(RegionEntry, base);
        let base = self.load_machine(types::I64, base);
        let window = self.load_window(region);
        self.b.ins().isub(base, window)
    }

    /// Finds the loops' proved accesses. Outside of its loop such a displacement is the common one.
    pub(super) fn declare_loop_regions(&mut self) {
        let func = self.func;
        for (index, block) in func.blocks.iter().enumerate() {
            let header = self.loops.innermost[index];
            let Some(header) = header.filter(|_| !block.cold) else { continue };
            for (op, _) in &block.ops {
                if let Op::Load { check: Check::Direct(region), base, .. }
                | Op::Store { check: Check::Direct(region), base, .. } = *op
                    && base != Var::FP
                    && region != RegionId::HEAP
                {
                    let key = (header, region);
                    if !self.regions.in_loop.contains_key(&key) {
                        let common = self.recall(self.regions.displacement[&region]);
                        let variable = self.b.declare_var(types::I64);
                        self.b.def_var(variable, common);
                        self.regions.in_loop.insert(key, variable);
                    }
                }
            }
        }
    }

    /// Loads the displacements of a loop where it is entered.
    pub(super) fn enter_loop(&mut self, from: usize, to: BlockId) {
        let header = to.0 as usize;
        let is_entry = self.loops.innermost[header] == Some(header)
            && self.loops.innermost[from] != Some(header)
            && self.loops.depths[from] < self.loops.depths[header];
        if !is_entry {
            return;
        }
        let all = self.regions.in_loop.range((header, RegionId(0))..=(header, RegionId(u8::MAX)));
        let all: Vec<(RegionId, Variable)> = all.map(|(key, v)| (key.1, *v)).collect();
        for (region, variable) in all {
            let x = self.load_displacement(region);
            self.b.def_var(variable, x);
        }
    }

    /// The frame's end in the host, from the frame pointer: as a difference, which is computed once,
    /// and not as the sum that each access would add up again.
    pub(super) fn load_frame(&mut self, fp: clif::Value) {
        let in_stack = |op: &Op| match *op {
            Op::Load { base, check, .. } | Op::Store { base, check, .. } => {
                base == Var::FP && check == Check::Direct(RegionId::STACK)
            }
            _ => false,
        };
        if self.func.blocks.iter().flat_map(|b| &b.ops).any(|(op, _)| in_stack(op)) {
            let base = entry_offset(RegionId::STACK) + offset_of!(RegionEntry, base);
            let base = self.load_machine(types::I64, base);
            let window = self.load_window(RegionId::STACK);
            let below = self.b.ins().isub(window, fp);
            self.regions.frame = Some(self.b.ins().isub(base, below));
        }
    }

    fn load_window(&mut self, region: RegionId) -> clif::Value {
        let windows = self.b.ins().iconst(types::I64, WINDOWS.as_ptr() as i64);
        let at = i32::from(region.0) * size_of::<u64>() as i32;
        self.b.ins().load(types::I64, trusted(), windows, at)
    }

    /// The host address of an access that is proved, without its offset.
    fn proved(&mut self, region: RegionId, base: Var) -> clif::Value {
        if let (RegionId::STACK, Var::FP, Some(frame)) = (region, base, self.regions.frame) {
            return frame;
        }
        let base = self.read_full(base);
        let in_loop = self.in_loop.and_then(|header| self.regions.in_loop.get(&(header, region)));
        if let Some(&variable) = in_loop {
            let displacement = self.b.use_var(variable);
            return self.b.ins().iadd(displacement, base);
        }
        self.host_address(region, base)
    }

    fn load_bound(&mut self, (region, size, write): (RegionId, Size, bool)) -> clif::Value {
        let len = self.load_region_len(region, write);
        if size == Size::B {
            return len;
        }
        // Saturates: a region shorter than the access allows none.
        let less = self.b.ins().iconst(types::I64, size.bytes() as i64 - 1);
        let fits = self.b.ins().icmp(IntCC::UnsignedGreaterThan, len, less);
        let bound = self.b.ins().isub(len, less);
        let zero = self.b.ins().iconst(types::I64, 0);
        self.b.ins().select(fits, bound, zero)
    }

    /// The length of a region, from the machine.
    pub(super) fn load_region_len(&mut self, region: RegionId, write: bool) -> clif::Value {
        self.load_machine(types::I64, entry_offset(region) + len_offset(write))
    }

    /// The host address of a program-visible one that is known to lie in a region.
    pub(super) fn host_address(&mut self, region: RegionId, address: clif::Value) -> clif::Value {
        let displacement = self.recall(self.regions.displacement[&region]);
        self.b.ins().iadd(displacement, address)
    }

    pub(super) fn access(&mut self, op: &Op, insn: u32) {
        match *op {
            Op::Load { dst, base, off, size, signed, check } => {
                let place = Place { base, off, size, insn };
                self.load(dst, place, signed, check);
            }
            Op::Store { base, off, size, src, check } => {
                let place = Place { base, off, size, insn };
                self.store(place, src, check);
            }
            Op::Atomic { op, fetch, size, base, off, src } => {
                let place = Place { base, off, size, insn };
                self.atomic(op, fetch, place, src);
            }
            _ => unreachable!("only accesses come here"),
        }
    }

    fn load(&mut self, dst: Var, place: Place, signed: bool, check: Check) {
        let wanted = self.wanted(dst);
        if let Check::Direct(region) = check {
            if wanted != Form::Dead {
                let host = self.proved(region, place.base);
                if let Some(ty) = self.loads_number(dst, place.size) {
                    let (host, off) = self.displaced(host, place.off);
                    let x = self.b.ins().load(ty, trusted(), host, off);
                    return self.define_number(dst, x);
                }
                let result = self.plain_load(host, place.off, place.size, signed, wanted);
                self.define(dst, result);
            }
            return;
        }
        let access = Access { insn: place.insn, size: place.size, signed };
        if self.cold {
            self.call_out(place, access, self.runtime.thunks.load);
            let x = self.load_machine(types::I64, offset_of!(Machine, result));
            let done = self.b.create_block();
            self.return_to(done, &[]);
            self.enter_block(done);
            return self.define(dst, Result::Full(x));
        }
        let (slow, host, off) = self.inline_check(place, false, check);
        let done = self.b.create_block();
        let result = self.plain_load(host, off, place.size, signed, wanted);
        let (x, full) = match result {
            Result::Full(x) => (x, true),
            Result::ZeroExtended(x) => (x, false),
        };
        let args: &[BlockArg] = if wanted == Form::Dead { &[] } else { &[x.into()] };
        self.b.ins().jump(done, args);

        self.enter_block(slow);
        self.call_out(place, access, self.runtime.thunks.load);
        let mut y = self.load_machine(types::I64, offset_of!(Machine, result));
        if !full {
            y = self.b.ins().ireduce(types::I32, y);
        }
        let args: &[BlockArg] = if wanted == Form::Dead { &[] } else { &[y.into()] };
        self.return_to(done, args);

        self.enter_block(done);
        if wanted != Form::Dead {
            let ty = if full { types::I64 } else { types::I32 };
            let x = self.b.append_block_param(done, ty);
            self.define(dst, if full { Result::Full(x) } else { Result::ZeroExtended(x) });
        }
    }

    fn store(&mut self, place: Place, src: Value, check: Check) {
        let ty = if place.size == Size::DW { types::I64 } else { types::I32 };
        let value = self.read_as(ty, src);
        if let Check::Direct(region) = check {
            let host = self.proved(region, place.base);
            return self.plain_store(host, place.off, place.size, value);
        }
        let done = self.b.create_block();
        if !self.cold {
            let (slow, host, off) = self.inline_check(place, true, check);
            self.plain_store(host, off, place.size, value);
            self.b.ins().jump(done, &[]);
            self.enter_block(slow);
        }
        let wide = if ty == types::I64 { value } else { self.b.ins().uextend(types::I64, value) };
        self.store_machine(wide, argument_offset(callouts::VALUE));
        let access = Access { insn: place.insn, size: place.size, signed: false };
        self.call_out(place, access, self.runtime.thunks.store);
        self.return_to(done, &[]);
        self.enter_block(done);
    }

    fn atomic(&mut self, op: AtomicOp, fetch: bool, place: Place, src: Var) {
        let ty = if place.size == Size::DW { types::I64 } else { types::I32 };
        let value = self.read_as(ty, src.into());
        let (slow, host, off) = self.lookup(place, true, true);
        let host = self.b.ins().iadd_imm_s(host, off);
        let done = self.b.create_block();
        let address = self.b.append_block_param(done, types::I64);
        self.b.ins().jump(done, &[host.into()]);

        self.enter_block(slow);
        let access = Access { insn: place.insn, size: place.size, signed: false };
        self.call_out(place, access, self.runtime.thunks.resolve_atomic);
        let found = self.load_machine(types::I64, offset_of!(Machine, result));
        self.return_to(done, &[found.into()]);

        self.enter_block(done);
        let rmw = |op| move |t: &mut Self| t.b.ins().atomic_rmw(ty, trusted(), op, address, value);
        let old = match op {
            AtomicOp::Add => rmw(AtomicRmwOp::Add)(self),
            AtomicOp::Or => rmw(AtomicRmwOp::Or)(self),
            AtomicOp::And => rmw(AtomicRmwOp::And)(self),
            AtomicOp::Xor => rmw(AtomicRmwOp::Xor)(self),
            AtomicOp::Xchg => rmw(AtomicRmwOp::Xchg)(self),
            AtomicOp::Cmpxchg => {
                let expected = self.read_as(ty, Var::R0.into());
                self.b.ins().atomic_cas(trusted(), address, expected, value)
            }
        };
        let dst = match op {
            AtomicOp::Cmpxchg => Var::R0,
            _ if fetch => src,
            _ => return,
        };
        let old = if ty == types::I64 { Result::Full(old) } else { Result::ZeroExtended(old) };
        self.define(dst, old);
    }

    /// Tests inline and continues where the test has passed. Gives the block for when it has not, and
    /// the host address with what is still to be added to it.
    fn inline_check(&mut self, place: Place, write: bool, check: Check) -> (clif::Block, clif::Value, i64) {
        let Check::Hinted(region) = check else {
            return self.lookup(place, write, false);
        };
        let base = self.read_full(place.base);
        let offset = place.off.wrapping_sub(region.base() as i64);
        let offset = self.b.ins().iadd_imm_s(base, offset);
        let bound = self.recall(self.regions.bound[&(region, place.size, write)]);
        let inside = self.b.ins().icmp(IntCC::UnsignedLessThan, offset, bound);
        let slow = self.cold_block();
        let fast = self.b.create_block();
        self.b.ins().brif(inside, fast, &[], slow, &[]);
        self.enter_block(fast);
        let host = self.host_address(region, base);
        (slow, host, place.off)
    }

    /// Looks the address up in the machine's regions; `aligned` tests that as well.
    fn lookup(&mut self, place: Place, write: bool, aligned: bool) -> (clif::Block, clif::Value, i64) {
        let slow = self.cold_block();
        let base = self.read_full(place.base);
        let address = self.b.ins().iadd_imm_s(base, place.off);
        let index = self.b.ins().ushr_imm_s(address, i64::from(REGION_SHIFT));
        let known = self.b.ins().icmp_imm_s(IntCC::UnsignedLessThan, index, REGION_COUNT as i64);
        self.branch_on(known, slow);
        if aligned {
            let odd = self.b.ins().band_imm_s(address, place.size.bytes() as i64 - 1);
            let even = self.b.ins().icmp_imm_s(IntCC::Equal, odd, 0);
            self.branch_on(even, slow);
        }
        let entry = self.b.ins().imul_imm_s(index, size_of::<RegionEntry>() as i64);
        let entry = self.b.ins().iadd(self.machine, entry);
        let field = |o: usize| (offset_of!(Machine, regions) + o) as i32;
        let len = self.b.ins().load(types::I64, trusted(), entry, field(len_offset(write)));
        let offset = self.b.ins().band_imm_s(address, (1 << REGION_SHIFT) - 1);
        // Neither can overflow: an offset is below 2^40.
        let end = self.b.ins().iadd_imm_s(offset, place.size.bytes() as i64);
        let inside = self.b.ins().icmp(IntCC::UnsignedLessThanOrEqual, end, len);
        self.branch_on(inside, slow);
        let first = self.b.ins().load(types::I64, trusted(), entry, field(offset_of!(RegionEntry, base)));
        let host = self.b.ins().iadd(first, offset);
        (slow, host, 0)
    }

    /// Goes on in a new block when the condition holds.
    fn branch_on(&mut self, condition: clif::Value, otherwise: clif::Block) {
        let next = self.b.create_block();
        self.b.ins().brif(condition, next, &[], otherwise, &[]);
        self.enter_block(next);
    }

    /// Has the machine make an access.
    fn call_out(&mut self, place: Place, access: Access, thunk: u64) {
        let base = self.read_full(place.base);
        let address = self.b.ins().iadd_imm_s(base, place.off);
        self.store_machine(address, argument_offset(callouts::ADDRESS));
        let access = self.b.ins().iconst(types::I64, access.pack() as i64);
        self.store_machine(access, argument_offset(callouts::ACCESS));
        self.call_thunk(thunk);
    }

    /// After a callout: back to the straight way, or to the trap.
    pub(super) fn return_to(&mut self, done: clif::Block, args: &[BlockArg]) {
        let status = self.thunk_status();
        let trap = self.access_trap();
        self.b.ins().brif(status, trap, &[], done, args);
    }

    fn plain_load(&mut self, host: clif::Value, off: i64, size: Size, signed: bool, wanted: Form) -> Result {
        let (host, off) = self.displaced(host, off);
        let f = trusted();
        let wide = wanted == Form::Full;
        match (size, signed) {
            (Size::DW, _) => Result::Full(self.b.ins().load(types::I64, f, host, off)),
            (Size::W, true) if wide => Result::Full(self.b.ins().sload32(f, host, off)),
            (Size::W, false) if wide => Result::Full(self.b.ins().uload32(f, host, off)),
            (Size::W, _) => Result::ZeroExtended(self.b.ins().load(types::I32, f, host, off)),
            (Size::H, true) if wide => Result::Full(self.b.ins().sload16(types::I64, f, host, off)),
            (Size::B, true) if wide => Result::Full(self.b.ins().sload8(types::I64, f, host, off)),
            (Size::H, true) => Result::ZeroExtended(self.b.ins().sload16(types::I32, f, host, off)),
            (Size::B, true) => Result::ZeroExtended(self.b.ins().sload8(types::I32, f, host, off)),
            (Size::H, false) => {
                let ty = if wide { types::I64 } else { types::I32 };
                let x = self.b.ins().uload16(ty, f, host, off);
                if wide { Result::Full(x) } else { Result::ZeroExtended(x) }
            }
            (Size::B, false) => {
                let ty = if wide { types::I64 } else { types::I32 };
                let x = self.b.ins().uload8(ty, f, host, off);
                if wide { Result::Full(x) } else { Result::ZeroExtended(x) }
            }
        }
    }

    fn plain_store(&mut self, host: clif::Value, off: i64, size: Size, value: clif::Value) {
        let (host, off) = self.displaced(host, off);
        let f = trusted();
        match size {
            Size::B => self.b.ins().istore8(f, value, host, off),
            Size::H => self.b.ins().istore16(f, value, host, off),
            Size::W | Size::DW => self.b.ins().store(f, value, host, off),
        };
    }

    /// Splits an address so that the constant fits the instruction.
    fn displaced(&mut self, host: clif::Value, off: i64) -> (clif::Value, i32) {
        match i32::try_from(off) {
            Ok(off) => (host, off),
            Err(_) => (self.b.ins().iadd_imm_s(host, off), 0),
        }
    }
}

fn entry_offset(region: RegionId) -> usize {
    offset_of!(Machine, regions) + usize::from(region.0) * size_of::<RegionEntry>()
}

fn len_offset(write: bool) -> usize {
    if write { offset_of!(RegionEntry, write_len) } else { offset_of!(RegionEntry, len) }
}
