//! The effect of one instruction on what is known.

use super::flow::{Flow, Stop};
use super::value::{State, Value};
use crate::insn::{AluOp, AtomicOp, CallTarget, Insn, Operand, Reg, Width};
use crate::interp::binary;
use crate::ir::BinOp;
use crate::region::{REGION_LEN_MAX, RegionId};

/// A place in the program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Here {
    /// Number of the function in the program.
    pub(super) f: usize,
    /// Its block.
    pub(super) block: usize,
    /// Slot relative to the function's start.
    pub(super) at: usize,
}

impl Flow<'_> {
    /// Follows one instruction. False when control does not continue behind it.
    pub(super) fn step(&mut self, here: Here, insn: Insn, state: &mut State, round: usize) -> Result<bool, Stop> {
        match insn {
            Insn::Alu { width, op, dst, src } => {
                let b = self.operand(here, src, state);
                let a = self.read(here, dst, state);
                let value = self.alu(here, width, op, a, b)?;
                self.write(here, dst, value, state);
            }
            Insn::Mov { width, dst, src } => {
                let value = self.operand(here, src, state);
                let value = match width {
                    Width::W64 => value,
                    Width::W32 => self.number(here, value, |n| i64::from(n as u32))?,
                };
                self.write(here, dst, value, state);
            }
            Insn::MovSx { width, dst, src, bits } => {
                let value = self.read(here, src, state);
                let value = self.number(here, value, |n| sign_extend(n, bits, width))?;
                self.write(here, dst, value, state);
            }
            Insn::Neg { width, dst } => {
                let value = self.read(here, dst, state);
                let value = self.number(here, value, |n| truncate(n.wrapping_neg(), width))?;
                self.write(here, dst, value, state);
            }
            Insn::End { dst, .. } => {
                let value = self.read(here, dst, state);
                self.number(here, value, |n| n)?;
                self.write(here, dst, Value::NUMBER, state);
            }
            Insn::LoadImm64 { dst, imm, .. } => {
                let value = self.constant(imm);
                self.write(here, dst, value, state);
            }
            Insn::Load { dst, base, off, size, signed } => {
                let base = self.read(here, base, state);
                let value = self.load(here, base, off, size, signed, state)?;
                self.write(here, dst, value, state);
            }
            Insn::Store { base, off, size, src } => {
                let value = self.operand(here, src, state);
                let base = self.read(here, base, state);
                self.store(here, base, off, size, value, state)?;
            }
            Insn::Atomic { op, fetch, size, base, off, src } => {
                let value = self.read(here, src, state);
                self.escape(here.f, value)?;
                if op == AtomicOp::Cmpxchg {
                    self.read(here, Reg::R0, state);
                }
                let base = self.read(here, base, state);
                self.atomic(here, base, off, size, state)?;
                let old = if size.bytes() == 8 { Value::ANYTHING } else { Value::NUMBER };
                if op == AtomicOp::Cmpxchg {
                    self.write(here, Reg::R0, old, state);
                } else if fetch {
                    self.write(here, src, old, state);
                }
            }
            Insn::Ja { .. } => {}
            Insn::Jmp { dst, src, .. } => {
                self.read(here, dst, state);
                self.operand(here, src, state);
            }
            Insn::Call { target: CallTarget::Local(_) } => return self.call_local(here, state, round),
            Insn::Call { target: CallTarget::Helper(import) } => self.call_helper(here, import, state)?,
            Insn::Call { target: CallTarget::Btf(_) } => {}
            Insn::Exit => self.leave(here, state),
        }
        Ok(true)
    }

    fn leave(&mut self, here: Here, state: &mut State) {
        // The entry point's result goes to the host; another function may return nothing.
        let value = if here.f == 0 { self.read(here, Reg::R0, state) } else { state.reg(0) };
        self.leak(here.f, value);
        self.exit(here.f, value.elsewhere());
    }

    /// A register's value. Reading one that is not set is an error; it is then taken as set, so that
    /// one mistake is said once.
    pub(super) fn read(&mut self, here: Here, r: Reg, state: &mut State) -> Value {
        let value = state.reg(r.0);
        if value != Value::Uninit {
            return value;
        }
        state.set(r.0, Value::ANYTHING);
        self.report_unset(here, r);
        Value::ANYTHING
    }

    fn operand(&mut self, here: Here, operand: Operand, state: &mut State) -> Value {
        match operand {
            Operand::Reg(r) => self.read(here, r, state),
            Operand::Imm(n) => Value::Scalar(Some(i64::from(n))),
        }
    }

    fn write(&mut self, here: Here, r: Reg, value: Value, state: &mut State) {
        if r == Reg::FP {
            self.find(
                here,
                "V0303",
                || "r10, the frame pointer, is written".to_owned(),
                "copy it to another register first",
            );
            return;
        }
        state.set(r.0, value);
    }

    /// The result of an operation that only numbers come out of.
    fn number(&mut self, here: Here, value: Value, f: impl FnOnce(i64) -> i64) -> Result<Value, Stop> {
        self.escape(here.f, value)?;
        Ok(match value {
            Value::Scalar(n) => Value::Scalar(n.map(f)),
            _ => Value::NUMBER,
        })
    }

    fn constant(&mut self, imm: u64) -> Value {
        let image = self.setting.image;
        let within = |region: RegionId, len: u64| imm.checked_sub(region.base()).is_some_and(|o| o <= len);
        // One past the end is a pointer too, but not where there is nothing.
        let global = [(RegionId::DATA, image.data.len()), (RegionId::RODATA, image.rodata.len())]
            .into_iter()
            .find(|g| g.1 > 0 && within(g.0, g.1 as u64));
        if let Some((region, _)) = global {
            if let Some(report) = &mut self.report {
                report.names_globals = true;
            }
            Value::Region(region)
        } else if within(RegionId::STATE, REGION_LEN_MAX) {
            if let Some(report) = &mut self.report {
                report.effects.uses_state = true;
            }
            Value::Region(RegionId::STATE)
        } else {
            Value::Scalar(Some(imm as i64))
        }
    }

    fn alu(&mut self, here: Here, width: Width, op: AluOp, a: Value, b: Value) -> Result<Value, Stop> {
        use Value::{Context, Frame, Region, Scalar, Unknown};
        if let (Scalar(a), Scalar(b)) = (a, b) {
            let value = a.zip(b).map(|(a, b)| binary(BinOp::Alu(op, width), a as u64, b as u64) as i64);
            return Ok(Scalar(value));
        }
        if width == Width::W32 {
            self.escape(here.f, a)?;
            self.escape(here.f, b)?;
            return Ok(Value::NUMBER);
        }
        let stack = a.may_be_stack() || b.may_be_stack();
        let is_pointer = |v| matches!(v, Region(_) | Frame(_) | Context(_));
        let value = match (op, a, b) {
            (AluOp::Add, p, Scalar(n)) | (AluOp::Add, Scalar(n), p) => p.plus(n),
            (AluOp::Sub, p, Scalar(n)) => p.plus(n.map(i64::wrapping_neg)),
            (AluOp::Sub, Frame(x), Frame(y)) | (AluOp::Sub, Context(x), Context(y)) => {
                Scalar(Some(i64::from(x) - i64::from(y)))
            }
            (AluOp::Sub, p, q) if is_pointer(p) && is_pointer(q) => Value::NUMBER,
            // A pointer and something that was loaded: an index, as a rule.
            (AluOp::Add, p, Unknown { stack: false }) | (AluOp::Add, Unknown { stack: false }, p) if is_pointer(p) => {
                p.plus(None)
            }
            (AluOp::Add | AluOp::Sub, ..) => Unknown { stack },
            // Aligning a pointer down keeps it in its region.
            (AluOp::And, Region(r), Scalar(Some(n))) if n < 0 => Region(r),
            _ => {
                self.escape(here.f, a)?;
                self.escape(here.f, b)?;
                Value::ANYTHING
            }
        };
        if value.may_be_stack() && !matches!(value, Frame(_)) {
            self.leak(here.f, a);
            self.leak(here.f, b);
        }
        Ok(value)
    }
}

fn truncate(n: i64, width: Width) -> i64 {
    match width {
        Width::W64 => n,
        Width::W32 => i64::from(n as u32),
    }
}

fn sign_extend(n: i64, bits: u8, width: Width) -> i64 {
    let shift = 64 - u32::from(bits);
    truncate((n << shift) >> shift, width)
}
