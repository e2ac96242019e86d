//! The interpreter: the reference that the compilers must equal.
//!
//! It runs any checked IR, plain or optimised. An access that the IR calls proved is proved again
//! here, so that a wrong proof is found and cannot do harm.

use crate::activation::{Code, Tier};
use crate::insn::{AluOp, AtomicOp, ByteOrder, Cond, Size, Width};
use crate::ir::{BinOp, Check, Func, Module, Op, Term, Value, Var};
use crate::machine::{Machine, Status};
use crate::region::{REGION_SHIFT, RegionId};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

/// The interpreting tier.
#[derive(Clone, Debug)]
pub struct Interpreter {
    module: Arc<Module>,
}

/// The step that the interpreter is about to take.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// Instruction slot in the image.
    pub insn: u32,
    /// The function's name.
    pub function: &'a str,
    /// `None` at the end of a block.
    pub op: Option<&'a Op>,
    /// `r0` to `r10`.
    pub registers: &'a [u64],
    /// Depth of the call, 0 for the entry point.
    pub depth: usize,
}

/// Sees every step; [`ControlFlow::Break`] cancels the call.
pub type Tracer<'t> = dyn FnMut(Step<'_>) -> ControlFlow<()> + 't;

impl Interpreter {
    /// Interprets this program.
    #[must_use]
    pub fn new(module: Arc<Module>) -> Self {
        Self { module }
    }

    /// Runs like [`Code::enter`], showing each step to `tracer`.
    pub fn trace(&self, machine: &mut Machine, args: [u64; 5], fp: u64, tracer: &mut Tracer<'_>) -> (Status, u64) {
        Run { module: &self.module, machine, tracer: Some(tracer), depth: 0 }.function(0, args, fp)
    }
}

// SAFETY: every access goes through `Machine::resolve` or is asserted to lie in its region.
unsafe impl Code for Interpreter {
    fn tier(&self) -> Tier {
        Tier::Interpreter
    }

    fn code_len_bytes(&self) -> usize {
        0
    }

    // SAFETY: asks for no more than the trait says, and checks every access itself.
    unsafe fn enter(&self, machine: &mut Machine, args: &[u64; 5], fp: u64) -> (Status, u64) {
        Run { module: &self.module, machine, tracer: None, depth: 0 }.function(0, *args, fp)
    }
}

struct Run<'m, 't> {
    module: &'m Module,
    machine: &'m mut Machine,
    tracer: Option<&'m mut Tracer<'t>>,
    depth: usize,
}

/// The machine has recorded why.
struct Trapped;

impl Run<'_, '_> {
    fn function(&mut self, index: usize, args: [u64; 5], fp: u64) -> (Status, u64) {
        let func = &self.module.functions[index];
        let mut vars = vec![0u64; usize::from(func.vars)];
        vars[1..6].copy_from_slice(&args);
        vars[usize::from(Var::FP.0)] = fp;
        vars[usize::from(Var::FUEL.0)] = self.machine.slice as u64;
        let mut block = 0usize;
        loop {
            let b = &func.blocks[block];
            for (op, insn) in &b.ops {
                self.machine.at(*insn);
                if self.show(func, Some(op), *insn, &vars).is_break() {
                    self.machine.slice = vars[usize::from(Var::FUEL.0)] as i64;
                    self.machine.cancelled();
                    return (Status::Trapped, 0);
                }
                if self.op(op, &mut vars).is_err() {
                    if !matches!(op, Op::CallHelper { .. } | Op::CallLocal { .. } | Op::Refill) {
                        self.machine.slice = vars[usize::from(Var::FUEL.0)] as i64;
                    }
                    return (Status::Trapped, 0);
                }
            }
            if b.ops.last().is_none_or(|(_, i)| *i != b.term_insn) {
                let _ = self.show(func, None, b.term_insn, &vars);
            }
            block = match b.term {
                Term::Jump(b) => b.0 as usize,
                Term::Branch { width, cond, lhs, rhs, then, otherwise } => {
                    let taken = compare(width, cond, get(&vars, lhs.into()), get(&vars, rhs));
                    if taken { then.0 as usize } else { otherwise.0 as usize }
                }
                Term::Return => {
                    self.machine.slice = vars[usize::from(Var::FUEL.0)] as i64;
                    return (Status::Returned, vars[0]);
                }
            };
        }
    }

    fn show(&mut self, func: &Func, op: Option<&Op>, insn: u32, vars: &[u64]) -> ControlFlow<()> {
        match &mut self.tracer {
            Some(t) => t(Step { insn, function: &func.name, op, registers: &vars[..11], depth: self.depth }),
            None => ControlFlow::Continue(()),
        }
    }

    fn op(&mut self, op: &Op, vars: &mut [u64]) -> Result<(), Trapped> {
        let result = match *op {
            Op::Mov { width, src, .. } => truncate(width, get(vars, src)),
            Op::MovSx { width, src, bits, .. } => truncate(width, sign_extend(get(vars, src.into()), bits)),
            Op::MovZx { src, bits, .. } => get(vars, src) & mask(bits),
            Op::Bin { op, lhs, rhs, .. } => binary(op, get(vars, lhs.into()), get(vars, rhs)),
            Op::Neg { width, src, .. } => truncate(width, get(vars, src.into()).wrapping_neg()),
            Op::End { order, src, bits, .. } => byte_order(order, bits, get(vars, src.into())),
            Op::Load { base, off, size, signed, check, .. } => {
                let host = self.host(vars, base, off, size, false, check)?;
                // SAFETY: `host` proved that `size` bytes there are mapped and readable.
                let raw = unsafe { read(host, size) };
                if signed { sign_extend(raw, size.bytes() as u8 * 8) } else { raw }
            }
            Op::Store { base, off, size, src, check } => {
                let host = self.host(vars, base, off, size, true, check)?;
                // SAFETY: `host` proved that `size` bytes there are mapped and writable.
                unsafe { write(host, size, get(vars, src)) };
                return Ok(());
            }
            Op::Atomic { op, fetch, size, base, off, src } => {
                let address = get(vars, base.into()).wrapping_add(off as u64);
                let host = self.machine.resolve_atomic(address, size.bytes()).ok_or(Trapped)?;
                let (operand, expected) = (get(vars, src.into()), vars[0]);
                // SAFETY: `resolve_atomic` proved that the bytes are mapped, writable and aligned.
                let old = unsafe { atomic(op, host, size, operand, expected) };
                if op == AtomicOp::Cmpxchg {
                    vars[0] = old;
                } else if fetch {
                    vars[usize::from(src.0)] = old;
                }
                return Ok(());
            }
            Op::CallHelper { import } => {
                self.machine.slice = vars[usize::from(Var::FUEL.0)] as i64;
                self.machine.args.copy_from_slice(&vars[1..6]);
                let insn = self.machine.insn;
                if self.machine.call_helper(import, insn) == Status::Trapped {
                    return Err(Trapped);
                }
                self.returned(vars, self.machine.result);
                return Ok(());
            }
            Op::CallLocal { function } => {
                self.machine.slice = vars[usize::from(Var::FUEL.0)] as i64;
                let callee = function as usize;
                let args = [vars[1], vars[2], vars[3], vars[4], vars[5]];
                let fp = vars[usize::from(Var::FP.0)].wrapping_add(self.module.functions[callee].frame_len);
                self.depth += 1;
                let (status, r0) = self.function(callee, args, fp);
                self.depth -= 1;
                if status == Status::Trapped {
                    return Err(Trapped);
                }
                self.returned(vars, r0);
                return Ok(());
            }
            Op::Float { op } => {
                let r0 = crate::float::eval(op, vars[1], vars[2]);
                vars[..6].fill(0);
                vars[0] = r0;
                return Ok(());
            }
            Op::ZeroFrame { len } => {
                let address = vars[usize::from(Var::FP.0)].wrapping_sub(len);
                let host = self.direct(RegionId::STACK, address, len);
                // SAFETY: `direct` asserted that `len` bytes there are stack.
                unsafe { std::ptr::write_bytes(host, 0, len as usize) };
                return Ok(());
            }
            Op::RegionLen { region, write, .. } => {
                let entry = &self.machine.regions[usize::from(region.0)];
                if write { entry.write_len } else { entry.len }
            }
            Op::Opaque { src, bits, .. } => {
                let value = vars[usize::from(src.0)];
                assert!(bits == 64 || value >> bits == 0, "the optimiser said that {value:#x} has {bits} bits");
                value
            }
            Op::Refill => {
                self.machine.slice = vars[usize::from(Var::FUEL.0)] as i64;
                if self.machine.refill() == Status::Trapped {
                    return Err(Trapped);
                }
                self.machine.slice as u64
            }
        };
        let dst = if matches!(op, Op::Refill) { Some(Var::FUEL) } else { op.dst() };
        if let Some(dst) = dst {
            vars[usize::from(dst.0)] = result;
        }
        Ok(())
    }

    /// After a call: its result, clobbered arguments, and the fuel that it left.
    fn returned(&mut self, vars: &mut [u64], r0: u64) {
        vars[..6].fill(0);
        vars[0] = r0;
        vars[usize::from(Var::FUEL.0)] = self.machine.slice as u64;
    }

    fn host(
        &mut self,
        vars: &[u64],
        base: Var,
        off: i64,
        size: Size,
        write: bool,
        check: Check,
    ) -> Result<*mut u8, Trapped> {
        let address = get(vars, base.into()).wrapping_add(off as u64);
        match check {
            Check::Direct(region) => Ok(self.direct(region, address, size.bytes())),
            Check::Hinted(_) | Check::Any => self.machine.resolve(address, size.bytes(), write).ok_or(Trapped),
        }
    }

    /// The host address of an access that the IR calls proved.
    fn direct(&self, region: RegionId, address: u64, len: u64) -> *mut u8 {
        let entry = &self.machine.regions[usize::from(region.0)];
        let offset = address.wrapping_sub(region.base());
        // The stack's window has length 0 when only such accesses reach it.
        let bound = if region == RegionId::STACK { self.module.stack_len } else { entry.len };
        assert!(
            offset <= bound && len <= bound - offset && offset < 1 << REGION_SHIFT,
            "bug in the sandbox: proved access of {len} bytes at {address:#x} is outside {region} ({bound} bytes)"
        );
        entry.base.wrapping_add(offset as usize)
    }
}

fn get(vars: &[u64], v: Value) -> u64 {
    match v {
        Value::Var(v) => vars[usize::from(v.0)],
        Value::Imm(i) => i as u64,
    }
}

/// What a binary operation gives (RFC 9669 section 4.1).
#[must_use]
pub fn binary(op: BinOp, a: u64, b: u64) -> u64 {
    match op {
        BinOp::UMin => a.min(b),
        BinOp::Alu(op, Width::W64) => alu64(op, a, b),
        BinOp::Alu(op, Width::W32) => u64::from(alu32(op, a as u32, b as u32)),
    }
}

fn alu64(op: AluOp, a: u64, b: u64) -> u64 {
    match op {
        AluOp::Add => a.wrapping_add(b),
        AluOp::Sub => a.wrapping_sub(b),
        AluOp::Mul => a.wrapping_mul(b),
        AluOp::Div => a.checked_div(b).unwrap_or(0),
        AluOp::SDiv if b == 0 => 0,
        AluOp::SDiv => (a as i64).wrapping_div(b as i64) as u64,
        AluOp::Mod => a.checked_rem(b).unwrap_or(a),
        AluOp::SMod if b == 0 => a,
        AluOp::SMod => (a as i64).wrapping_rem(b as i64) as u64,
        AluOp::Or => a | b,
        AluOp::And => a & b,
        AluOp::Xor => a ^ b,
        AluOp::Lsh => a.wrapping_shl(b as u32),
        AluOp::Rsh => a.wrapping_shr(b as u32),
        AluOp::Arsh => (a as i64).wrapping_shr(b as u32) as u64,
    }
}

fn alu32(op: AluOp, a: u32, b: u32) -> u32 {
    match op {
        AluOp::Add => a.wrapping_add(b),
        AluOp::Sub => a.wrapping_sub(b),
        AluOp::Mul => a.wrapping_mul(b),
        AluOp::Div => a.checked_div(b).unwrap_or(0),
        AluOp::SDiv if b == 0 => 0,
        AluOp::SDiv => (a as i32).wrapping_div(b as i32) as u32,
        AluOp::Mod => a.checked_rem(b).unwrap_or(a),
        AluOp::SMod if b == 0 => a,
        AluOp::SMod => (a as i32).wrapping_rem(b as i32) as u32,
        AluOp::Or => a | b,
        AluOp::And => a & b,
        AluOp::Xor => a ^ b,
        AluOp::Lsh => a.wrapping_shl(b),
        AluOp::Rsh => a.wrapping_shr(b),
        AluOp::Arsh => (a as i32).wrapping_shr(b) as u32,
    }
}

/// Whether a condition holds.
#[must_use]
pub fn compare(width: Width, cond: Cond, a: u64, b: u64) -> bool {
    let (a, b, sa, sb) = match width {
        Width::W64 => (a, b, a as i64, b as i64),
        Width::W32 => (a & mask(32), b & mask(32), i64::from(a as i32), i64::from(b as i32)),
    };
    match cond {
        Cond::Eq => a == b,
        Cond::Ne => a != b,
        Cond::Gt => a > b,
        Cond::Ge => a >= b,
        Cond::Lt => a < b,
        Cond::Le => a <= b,
        Cond::Set => a & b != 0,
        Cond::SGt => sa > sb,
        Cond::SGe => sa >= sb,
        Cond::SLt => sa < sb,
        Cond::SLe => sa <= sb,
    }
}

fn byte_order(order: ByteOrder, bits: u8, v: u64) -> u64 {
    let swapped = v.swap_bytes() >> (64 - u32::from(bits));
    match order {
        ByteOrder::ToLe => v & mask(bits),
        ByteOrder::ToBe | ByteOrder::Swap => swapped,
    }
}

fn mask(bits: u8) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

fn truncate(width: Width, v: u64) -> u64 {
    match width {
        Width::W64 => v,
        Width::W32 => v & mask(32),
    }
}

fn sign_extend(v: u64, bits: u8) -> u64 {
    let shift = 64 - u32::from(bits);
    (((v << shift) as i64) >> shift) as u64
}

/// # Safety
/// `size` bytes at `p` are readable.
unsafe fn read(p: *const u8, size: Size) -> u64 {
    // SAFETY: the caller's promise; unaligned reads need no alignment.
    unsafe {
        match size {
            Size::B => u64::from(p.read()),
            Size::H => u64::from(u16::from_le(p.cast::<u16>().read_unaligned())),
            Size::W => u64::from(u32::from_le(p.cast::<u32>().read_unaligned())),
            Size::DW => u64::from_le(p.cast::<u64>().read_unaligned()),
        }
    }
}

/// # Safety
/// `size` bytes at `p` are writable.
unsafe fn write(p: *mut u8, size: Size, v: u64) {
    // SAFETY: the caller's promise; unaligned writes need no alignment.
    unsafe {
        match size {
            Size::B => p.write(v as u8),
            Size::H => p.cast::<u16>().write_unaligned((v as u16).to_le()),
            Size::W => p.cast::<u32>().write_unaligned((v as u32).to_le()),
            Size::DW => p.cast::<u64>().write_unaligned(v.to_le()),
        }
    }
}

/// # Safety
/// `size` (4 or 8) bytes at `p` are writable and aligned to their size.
unsafe fn atomic(op: AtomicOp, p: *mut u8, size: Size, v: u64, expected: u64) -> u64 {
    if size == Size::DW {
        // SAFETY: the caller's promise.
        let a = unsafe { AtomicU64::from_ptr(p.cast()) };
        match op {
            AtomicOp::Add => a.fetch_add(v, SeqCst),
            AtomicOp::Or => a.fetch_or(v, SeqCst),
            AtomicOp::And => a.fetch_and(v, SeqCst),
            AtomicOp::Xor => a.fetch_xor(v, SeqCst),
            AtomicOp::Xchg => a.swap(v, SeqCst),
            AtomicOp::Cmpxchg => a.compare_exchange(expected, v, SeqCst, SeqCst).unwrap_or_else(|old| old),
        }
    } else {
        // SAFETY: the caller's promise.
        let a = unsafe { AtomicU32::from_ptr(p.cast()) };
        let v = v as u32;
        u64::from(match op {
            AtomicOp::Add => a.fetch_add(v, SeqCst),
            AtomicOp::Or => a.fetch_or(v, SeqCst),
            AtomicOp::And => a.fetch_and(v, SeqCst),
            AtomicOp::Xor => a.fetch_xor(v, SeqCst),
            AtomicOp::Xchg => a.swap(v, SeqCst),
            AtomicOp::Cmpxchg => a.compare_exchange(expected as u32, v, SeqCst, SeqCst).unwrap_or_else(|old| old),
        })
    }
}
