//! Calls of functions and helpers.

use super::flow::{Flow, Stop};
use super::step::Here;
use super::value::{State, Value};
use super::{Base, Class};
use crate::helpers::{Helper, Param, Return};
use crate::image::Kind;
use crate::insn::Reg;
use crate::region::RegionId;

impl Flow<'_> {
    /// Follows a call of a function of the program. False when it does not return.
    pub(super) fn call_local(&mut self, here: Here, state: &mut State, round: usize) -> Result<bool, Stop> {
        let Some(&callee) = self.setting.codes[here.f].callees.get(&here.at) else {
            return Ok(false);
        };
        let params = state.params();
        params.iter().for_each(|&p| self.leak(here.f, p));
        let Some(value) = self.call(callee, params.map(Value::elsewhere), round)? else {
            return Ok(false);
        };
        state.returned(value);
        self.distrust_slots(here.f, state);
        Ok(true)
    }

    /// Follows a call of a helper.
    pub(super) fn call_helper(&mut self, here: Here, import: u32, state: &mut State) -> Result<(), Stop> {
        let setting = &self.setting;
        let Some(import) = setting.image.imports.get(import as usize) else {
            self.find(
                here,
                "V0604",
                || format!("call of helper {import}, which the image does not import"),
                "call helpers by name, so that linking resolves them",
            );
            state.returned(Value::ANYTHING);
            return Ok(());
        };
        let helper = import.helper.and_then(|id| setting.helpers.iter().nth(usize::from(id.0)));
        let Some(helper) = helper else {
            if !import.weak {
                let near = setting.helpers.near(&import.name);
                let suggestion = if near.is_empty() {
                    "use a helper that this host lists, or declare it weak and test its address".to_owned()
                } else {
                    format!("did you mean {}?", near.join(", "))
                };
                self.find_of_class(
                    here,
                    "V0605",
                    Class::Missing,
                    || format!("this host has no helper `{}`", import.name),
                    &suggestion,
                );
            }
            // Absent and weak: the call traps if control ever comes here.
            state.returned(Value::ANYTHING);
            return Ok(());
        };
        if helper.effects.uses_files && setting.kind != Kind::Kernel {
            let name = setting.kind.name();
            self.find(
                here,
                "V0611",
                || format!("`{}` is for programs of kind kernel, and this one is of kind {name}", helper.name),
                "make it `SEC(\"kernel/NAME\")`, with one argument of type `struct ds_kernel *`",
            );
        }
        self.arguments(here, helper, state)?;
        if let Some(report) = &mut self.report {
            report.effects.uses_clock |= helper.effects.uses_clock;
            report.effects.does_io |= helper.effects.does_io;
        }
        let value = match helper.ret {
            Return::Void | Return::Scalar => Value::NUMBER,
            Return::Heap => Value::Region(RegionId::HEAP),
            // The frame is long enough from that address on; what lies below is another object.
            Return::Param(n) => state.reg(n + 1).untrusted(),
        };
        let writes =
            helper.params.iter().any(|p| matches!(p, Param::Write { .. } | Param::WriteWithin { .. } | Param::Pointer));
        state.returned(value);
        if writes {
            self.distrust_slots(here.f, state);
        }
        Ok(())
    }

    fn arguments(&mut self, here: Here, helper: &Helper, state: &mut State) -> Result<(), Stop> {
        for (n, param) in helper.params.iter().enumerate() {
            let r = Reg(n as u8 + 1);
            let value = state.reg(r.0);
            if value == Value::Uninit {
                state.set(r.0, Value::ANYTHING);
                self.find(
                    here,
                    "V0606",
                    || format!("argument {} of `{}` ({r}) is not set", n + 1, helper.name),
                    &format!("call it as `{}`", helper.prototype),
                );
                continue;
            }
            let len = match *param {
                Param::Scalar => {
                    self.escape(here.f, value)?;
                    self.scalar_argument(here, helper, n, value);
                    continue;
                }
                Param::Pointer => Some(0),
                Param::Struct(len) => Some(i64::from(len)),
                Param::Read { len, unit } | Param::Write { len, unit } => match state.reg(len + 1) {
                    Value::Scalar(Some(count)) => count.checked_mul(i64::from(unit)),
                    _ => None,
                },
                Param::ReadWithin { boundary } | Param::WriteWithin { boundary } => match state.reg(boundary + 1) {
                    Value::Scalar(len) => len,
                    _ => None,
                },
            };
            self.pass_address(here, value, len)?;
            self.pointer_argument(here, helper, n, value, len);
            if matches!(param, Param::Write { .. } | Param::WriteWithin { .. }) {
                self.written_argument(here, helper, value, len, state);
            }
        }
        Ok(())
    }

    /// Notes how much of the frame a helper gets to see.
    fn pass_address(&mut self, here: Here, value: Value, len: Option<i64>) -> Result<(), Stop> {
        let (Value::Frame(o), Some(_)) = (value, len) else {
            return self.escape(here.f, value);
        };
        self.need_addresses()?;
        if let Some(report) = &mut self.report {
            let used = &mut report.learnt[here.f].frame_used;
            *used = (*used).max(o.min(0).unsigned_abs());
        }
        Ok(())
    }

    fn scalar_argument(&mut self, here: Here, helper: &Helper, n: usize, value: Value) {
        let pointer = match value {
            Value::Frame(_) | Value::Context(_) => true,
            // A constant that equals the address of a global may be a number after all.
            Value::Region(r) => !matches!(r, RegionId::DATA | RegionId::RODATA | RegionId::STATE),
            _ => false,
        };
        if pointer {
            self.find(
                here,
                "V0608",
                || {
                    format!(
                        "argument {} of `{}` is a number, but r{} holds {}",
                        n + 1,
                        helper.name,
                        n + 1,
                        value.describe()
                    )
                },
                &format!("call it as `{}`", helper.prototype),
            );
        }
    }

    /// `len` is the number of bytes behind the pointer, where known.
    fn pointer_argument(&mut self, here: Here, helper: &Helper, n: usize, value: Value, len: Option<i64>) {
        if let Some(report) = &mut self.report {
            match value {
                Value::Region(RegionId::STATE) => report.effects.uses_state = true,
                Value::Unknown { .. } => report.wild_access = true,
                _ => {}
            }
        }
        match value {
            Value::Scalar(Some(0)) if len.is_none_or(|l| l == 0) => {}
            Value::Scalar(Some(0)) => self.find(
                here,
                "V0609",
                || {
                    format!(
                        "argument {} of `{}` is NULL, but its length is {} bytes",
                        n + 1,
                        helper.name,
                        len.unwrap_or_default()
                    )
                },
                "NULL is allowed only with length 0",
            ),
            Value::Scalar(Some(a)) if !matches!(RegionId::of(a as u64), None | Some(RegionId::NULL)) => {}
            Value::Scalar(_) => self.find(
                here,
                "V0607",
                || {
                    format!(
                        "argument {} of `{}` is a pointer, but r{} holds {}",
                        n + 1,
                        helper.name,
                        n + 1,
                        value.describe()
                    )
                },
                &format!("call it as `{}`", helper.prototype),
            ),
            Value::Frame(o) => {
                let frame = i64::from(self.setting.frame);
                let o = i64::from(o);
                let len = len.unwrap_or(0);
                if o < -frame || o > 0 || len > -o {
                    self.find(
                        here,
                        "V0403",
                        || {
                            format!(
                                "argument {} of `{}` covers {len} bytes from r10{o:+}, outside of the frame of {frame} bytes",
                                n + 1,
                                helper.name
                            )
                        },
                        "pass no more than the size of the variable",
                    );
                }
            }
            _ => {}
        }
    }

    fn written_argument(&mut self, here: Here, helper: &Helper, value: Value, len: Option<i64>, state: &mut State) {
        let contract = self.setting.contract;
        let (region, allowed) = match value {
            Value::Frame(_) | Value::Scalar(Some(0)) => return,
            Value::Context(from) => {
                let from = i64::from(from);
                // With an unknown length, at least the first byte.
                let to = from + len.unwrap_or(1);
                let within = |w: &(u32, u32)| i64::from(w.0) <= from && to <= i64::from(w.1);
                (RegionId::CONTEXT, contract.context_writable.iter().any(within))
            }
            Value::Region(RegionId::CONTEXT) => (RegionId::CONTEXT, !contract.context_writable.is_empty()),
            Value::Region(r) => (r, contract.may_write(r)),
            _ => return self.stored(here, Base::Unknown, state),
        };
        if allowed {
            return self.stored(here, Base::Region(region), state);
        }
        let kind = self.setting.kind.name();
        let place = match value {
            Value::Context(from) => format!("offset {from} of the context"),
            _ => format!("the {region} region"),
        };
        self.find(
            here,
            "V0610",
            || format!("`{}` writes to {place}, which is read-only for kind `{kind}`", helper.name),
            "let it write to the stack, the heap or the output",
        );
    }
}
