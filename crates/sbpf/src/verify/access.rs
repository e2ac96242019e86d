//! Loads, stores and atomics: what their base is, and what can be refused before running.

use super::Base;
use super::flow::{Flow, Stop};
use super::step::Here;
use super::value::{State, Value};
use crate::image::Kind;
use crate::insn::Size;
use crate::region::RegionId;

/// Where an access goes, as far as is known.
#[derive(Clone, Copy)]
enum Target {
    /// In the frame, proved.
    Frame(i32),
    /// In the context structure, proved.
    Context(u32),
    /// Elsewhere; the hint is checked at run time.
    Dynamic(Base),
    /// Nowhere: an error was found.
    Refused,
}

impl Flow<'_> {
    pub(super) fn load(
        &mut self,
        here: Here,
        base: Value,
        off: i16,
        size: Size,
        signed: bool,
        state: &State,
    ) -> Result<Value, Stop> {
        let len = size.bytes() as i32;
        let unknown = if size == Size::DW { Value::ANYTHING } else { Value::NUMBER };
        Ok(match self.target(here, base, off, size, false)? {
            Target::Frame(o) => {
                let (value, torn) = state.load_slot(o, len);
                if torn {
                    self.lose(here.f)?;
                }
                match value {
                    Value::Scalar(Some(n)) => Value::Scalar(Some(extend(n, size, signed))),
                    value => value,
                }
            }
            Target::Context(o) => match self.setting.contract.pointer_at(o) {
                Some(region) if size == Size::DW => Value::Region(region),
                _ => Value::NUMBER,
            },
            Target::Dynamic(_) | Target::Refused => unknown,
        })
    }

    pub(super) fn store(
        &mut self,
        here: Here,
        base: Value,
        off: i16,
        size: Size,
        value: Value,
        state: &mut State,
    ) -> Result<(), Stop> {
        let target = self.target(here, base, off, size, true)?;
        if let Target::Frame(o) = target {
            let value = match value {
                Value::Scalar(Some(n)) => Value::Scalar(Some(extend(n, size, false))),
                value => value,
            };
            if state.store_slot(o, size.bytes() as i32, value) {
                self.lose(here.f)?;
            }
            return Ok(());
        }
        self.escape(here.f, value)?;
        if let Target::Dynamic(base) = target {
            self.stored(here, base, state);
        }
        Ok(())
    }

    pub(super) fn atomic(
        &mut self,
        here: Here,
        base: Value,
        off: i16,
        size: Size,
        state: &mut State,
    ) -> Result<(), Stop> {
        if matches!(base, Value::Context(_)) {
            self.find(
                here,
                "V0507",
                || "atomic operation on the context".to_owned(),
                "use a plain load and store; nobody else sees the context during a call",
            );
            return Ok(());
        }
        match self.target(here, base, off, size, true)? {
            Target::Frame(o) => {
                // Atomics go by address, so the stack has to have one.
                self.need_addresses()?;
                let len = size.bytes() as i32;
                if o % len != 0 {
                    self.find(
                        here,
                        "V0402",
                        || format!("atomic operation of {len} bytes at r10{o:+}, which is not a multiple of {len}"),
                        "align the variable to its size",
                    );
                }
                if state.store_slot(o, len, Value::ANYTHING) {
                    self.lose(here.f)?;
                }
            }
            Target::Dynamic(base) => self.stored(here, base, state),
            Target::Context(_) | Target::Refused => {}
        }
        Ok(())
    }

    /// Notes a store that is not to a constant offset of the frame or the context.
    pub(super) fn stored(&mut self, here: Here, base: Base, state: &mut State) {
        self.distrust_slots(here.f, state);
        if let Some(report) = &mut self.report {
            match base {
                Base::Region(RegionId::DATA) => report.effects.writes_globals = true,
                Base::Unknown => report.wild_store = true,
                _ => {}
            }
        }
    }

    fn target(&mut self, here: Here, base: Value, off: i16, size: Size, write: bool) -> Result<Target, Stop> {
        let len = size.bytes() as i32;
        let target = match base {
            Value::Frame(o) => self.frame(here, o + i32::from(off), len, write),
            Value::Context(o) => self.context(here, o + i32::from(off), len, write),
            Value::Region(r) => {
                self.escape(here.f, base)?;
                self.region(here, r, write)
            }
            Value::Scalar(Some(n)) => {
                let address = n.wrapping_add(i64::from(off)) as u64;
                match RegionId::of(address) {
                    None | Some(RegionId::NULL) => {
                        self.find(here, "V0501", || null_reason(n, address, write), "test the pointer before its use");
                        Target::Refused
                    }
                    Some(RegionId::STACK) => Target::Dynamic(Base::Unknown),
                    Some(r) => self.region(here, r, write),
                }
            }
            Value::Unknown { .. } => {
                self.escape(here.f, base)?;
                Target::Dynamic(Base::Unknown)
            }
            Value::Scalar(None) | Value::Uninit => Target::Dynamic(Base::Unknown),
        };
        self.note(here, target);
        Ok(target)
    }

    fn note(&mut self, here: Here, target: Target) {
        let Some(report) = &mut self.report else {
            return;
        };
        let learnt = &mut report.learnt[here.f];
        learnt.bases[here.at] = match target {
            Target::Frame(o) => {
                learnt.frame_used = learnt.frame_used.max(o.unsigned_abs());
                Base::Frame(o)
            }
            Target::Context(o) => Base::Context(o),
            Target::Dynamic(base) => {
                match base {
                    Base::Region(RegionId::STATE) => report.effects.uses_state = true,
                    Base::Unknown => report.wild_access = true,
                    _ => {}
                }
                base
            }
            Target::Refused => Base::Unknown,
        };
    }

    fn frame(&mut self, here: Here, o: i32, len: i32, write: bool) -> Target {
        let frame = self.setting.frame;
        if o >= -frame && o + len <= 0 {
            return Target::Frame(o);
        }
        let verb = if write { "write" } else { "read" };
        let suggestion = if o < -frame {
            "use less stack, or ask for a larger frame with `DS_STACK_BYTES(n)`"
        } else {
            "stay below r10: the frame ends there"
        };
        self.find(
            here,
            "V0401",
            || format!("{verb} of {len} bytes at r10{o:+}, outside of the frame of {frame} bytes"),
            suggestion,
        );
        Target::Refused
    }

    fn context(&mut self, here: Here, o: i32, len: i32, write: bool) -> Target {
        let contract = self.setting.contract;
        let size = contract.context_len as i32;
        let kind = self.setting.kind;
        if o < 0 || o + len > size {
            if kind == Kind::Exec && o >= 0 && !write {
                // In `range[]`, whose length only the call knows.
                return Target::Dynamic(Base::Region(RegionId::CONTEXT));
            }
            let verb = if write { "write" } else { "read" };
            self.find(
                here,
                "V0503",
                || {
                    format!(
                        "{verb} of {len} bytes at offset {o} of the context, which is {size} bytes long for kind `{}`",
                        kind.name()
                    )
                },
                "compile against the header of this version, and stay inside the arrays of the context",
            );
            return Target::Refused;
        }
        let (from, to) = (o as u32, (o + len) as u32);
        if !write || contract.context_writable.iter().any(|w| w.0 <= from && to <= w.1) {
            return Target::Context(from);
        }
        let pointer = contract.context_pointers.iter().any(|p| p.0 < to && from < p.0 + 8);
        if pointer {
            self.find(
                here,
                "V0505",
                || format!("write to the pointer at offset {from} of the context"),
                "copy the pointer to a variable and change that",
            );
        } else {
            self.find(
                here,
                "V0504",
                || format!("write of {len} bytes at offset {from} of the context, which is read-only there"),
                "write only the fields that are results of the kind",
            );
        }
        Target::Refused
    }

    fn region(&mut self, here: Here, r: RegionId, write: bool) -> Target {
        if write && r == RegionId::CONTEXT {
            if !self.setting.contract.context_writable.is_empty() {
                // `next[n]` of a traversal and its like: left to run time.
                return Target::Dynamic(Base::Region(r));
            }
            let kind = self.setting.kind.name();
            self.find(
                here,
                "V0506",
                || format!("write to the context, of which kind `{kind}` may write nothing"),
                "write results to the output",
            );
            return Target::Refused;
        }
        if write && !self.setting.contract.may_write(r) {
            let kind = self.setting.kind.name();
            self.find(
                here,
                "V0502",
                || format!("write to the {r} region, which is read-only for kind `{kind}`"),
                "copy the bytes to the stack, the heap or the output and change them there",
            );
            return Target::Refused;
        }
        Target::Dynamic(Base::Region(r))
    }
}

fn null_reason(base: i64, address: u64, write: bool) -> String {
    let verb = if write { "write" } else { "read" };
    if base == 0 {
        format!("{verb} through NULL")
    } else {
        format!("{verb} at the constant address {address:#x}, where nothing can be mapped")
    }
}

/// The value that a load of this size gives for the stored one.
fn extend(n: i64, size: Size, signed: bool) -> i64 {
    let shift = 64 - 8 * size.bytes() as u32;
    if signed { (n << shift) >> shift } else { (((n as u64) << shift) >> shift) as i64 }
}
