//! The verifier's knowledge of a register or a stack slot.

use crate::region::RegionId;
use std::rc::Rc;

/// Most stack slots of one function that are followed at a time.
pub(super) const SLOTS_MAX: usize = 64;

/// The contents of a register or slot.
///
/// [`Value::Frame`], [`Value::Context`] and the constant of [`Value::Scalar`] are proved: code is
/// allowed to rely on them. The rest is a hint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Value {
    /// Never written on some path.
    Uninit,
    /// A number, with its value where known.
    Scalar(Option<i64>),
    /// Made from the address of this region, or NULL.
    Region(RegionId),
    /// The frame pointer plus this.
    Frame(i32),
    /// The context's address plus this.
    Context(i32),
    /// A number or a pointer.
    Unknown {
        /// Whether it may be a stack address.
        stack: bool,
    },
}

impl Value {
    /// A number that is not known.
    pub(super) const NUMBER: Self = Self::Scalar(None);
    /// Anything but a stack address of this function.
    pub(super) const ANYTHING: Self = Self::Unknown { stack: false };

    /// True when it may be the address of a stack slot.
    pub(super) fn may_be_stack(self) -> bool {
        matches!(self, Self::Frame(_) | Self::Region(RegionId::STACK) | Self::Unknown { stack: true })
    }

    /// The part that remains true when anybody may have overwritten it: the hint.
    pub(super) fn untrusted(self) -> Self {
        match self {
            Self::Frame(_) => Self::Region(RegionId::STACK),
            Self::Context(_) => Self::Region(RegionId::CONTEXT),
            Self::Scalar(_) => Self::NUMBER,
            other => other,
        }
    }

    /// The part that remains true in another function, whose frame is another one.
    pub(super) fn elsewhere(self) -> Self {
        match self {
            Self::Frame(_) => Self::Region(RegionId::STACK),
            other => other,
        }
    }

    /// A value that holds when either holds.
    pub(super) fn join(self, other: Self) -> Self {
        use Value::{Context, Frame, Region, Scalar, Uninit, Unknown};
        if self == other {
            return self;
        }
        match (self.family(), other.family()) {
            (Uninit, _) | (_, Uninit) => Uninit,
            (Scalar(_), Scalar(_)) => Self::NUMBER,
            (Region(a), Region(b)) if a == b => Region(a),
            (Region(a), Scalar(Some(0))) | (Scalar(Some(0)), Region(a)) => Region(a),
            _ => {
                debug_assert!(!matches!(self.family(), Frame(_) | Context(_)));
                Unknown { stack: self.may_be_stack() || other.may_be_stack() }
            }
        }
    }

    /// The value without its offset.
    fn family(self) -> Self {
        match self {
            Self::Frame(_) => Self::Region(RegionId::STACK),
            Self::Context(_) => Self::Region(RegionId::CONTEXT),
            other => other,
        }
    }

    /// Pointer or number plus a number.
    pub(super) fn plus(self, n: Option<i64>) -> Self {
        match (self, n) {
            (Self::Scalar(Some(a)), Some(b)) => Self::Scalar(Some(a.wrapping_add(b))),
            (Self::Scalar(_), _) => Self::NUMBER,
            (Self::Frame(a), Some(b)) => offset(a, b).map_or(self.family(), Self::Frame),
            (Self::Context(a), Some(b)) => offset(a, b).map_or(self.family(), Self::Context),
            _ => self.family(),
        }
    }

    /// Its name in messages.
    pub(super) fn describe(self) -> String {
        match self {
            Self::Uninit => "not set".to_owned(),
            Self::Scalar(Some(n)) => format!("the number {n}"),
            Self::Scalar(None) => "a number".to_owned(),
            Self::Region(r) => format!("a pointer into {r}"),
            Self::Frame(n) => format!("the stack address r10{n:+}"),
            Self::Context(0) => "the context pointer".to_owned(),
            Self::Context(n) => format!("the context pointer {n:+}"),
            Self::Unknown { .. } => "not known".to_owned(),
        }
    }
}

fn offset(a: i32, b: i64) -> Option<i32> {
    i64::from(a).checked_add(b).and_then(|n| {
        // Far outside of any frame or context; keeps later sums from overflowing.
        (n.unsigned_abs() < 1 << 30).then_some(n as i32)
    })
}

/// Followed bytes of the frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SlotValue {
    off: i32,
    len: i32,
    value: Value,
}

/// Everything known at a point of a function.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct State {
    regs: [Value; 11],
    /// Sorted by offset, without overlap. Bytes not in it may hold anything but a stack address.
    slots: Rc<Vec<SlotValue>>,
}

impl State {
    /// On entry, with these parameters.
    pub(super) fn entry(params: [Value; 5]) -> Self {
        let mut regs = [Value::Uninit; 11];
        regs[1..=5].copy_from_slice(&params);
        regs[10] = Value::Frame(0);
        Self { regs, slots: Rc::default() }
    }

    pub(super) fn reg(&self, r: u8) -> Value {
        self.regs[usize::from(r)]
    }

    pub(super) fn set(&mut self, r: u8, value: Value) {
        self.regs[usize::from(r)] = value;
    }

    pub(super) fn params(&self) -> [Value; 5] {
        let mut params = [Value::Uninit; 5];
        params.copy_from_slice(&self.regs[1..=5]);
        params
    }

    /// After a call.
    pub(super) fn returned(&mut self, value: Value) {
        self.regs[0] = value;
        self.regs[1..=5].fill(Value::Uninit);
    }

    /// The value of `len` bytes of the frame at `off`. The flag tells that part of a stack address is
    /// read as a number.
    pub(super) fn load_slot(&self, off: i32, len: i32) -> (Value, bool) {
        let mut torn = false;
        for s in self.overlapping(off, len) {
            if s.off == off && s.len == len {
                return (s.value, false);
            }
            torn |= s.value.may_be_stack();
        }
        let value = if len == 8 { Value::ANYTHING } else { Value::NUMBER };
        (value, torn)
    }

    /// Writes `len` bytes of the frame. The flag tells that a stack address is no longer followed.
    pub(super) fn store_slot(&mut self, off: i32, len: i32, value: Value) -> bool {
        let mut lost = value.may_be_stack() && len != 8;
        let follow = match value {
            Value::Scalar(Some(_)) => true,
            Value::Scalar(None) | Value::Uninit | Value::Unknown { stack: false } => false,
            _ => len == 8,
        };
        let new = SlotValue { off, len, value };
        let first = self.first_behind(off);
        let overlapping = self.overlapping(off, len).count();
        if overlapping == 0 && !follow || overlapping == 1 && self.slots[first] == new {
            return lost;
        }
        let slots = Rc::make_mut(&mut self.slots);
        lost |= slots[first..first + overlapping]
            .iter()
            .any(|s| s.value.may_be_stack() && (s.off < off || s.off + s.len > off + len));
        if !follow {
            slots.drain(first..first + overlapping);
            return lost;
        }
        if overlapping > 0 {
            slots[first] = new;
            slots.drain(first + 1..first + overlapping);
            return lost;
        }
        slots.insert(first, new);
        if slots.len() > SLOTS_MAX {
            // A pointer is worth more than a constant.
            let constant = |s: &SlotValue| matches!(s.value, Value::Scalar(_));
            let dropped = slots.iter().position(constant).unwrap_or(first);
            lost |= slots.remove(dropped).value.may_be_stack();
        }
        lost
    }

    /// Somebody may have written anywhere on the stack. Returns whether an offset into the own frame
    /// is no longer known.
    pub(super) fn distrust_slots(&mut self) -> bool {
        let mut blurred = false;
        if self.slots.iter().any(|s| s.value != s.value.untrusted()) {
            for s in Rc::make_mut(&mut self.slots) {
                blurred |= matches!(s.value, Value::Frame(_));
                s.value = s.value.untrusted();
            }
        }
        blurred
    }

    /// Joins another state into this one.
    pub(super) fn join(&mut self, other: &Self) -> Joined {
        let mut outcome = Joined::default();
        for (a, b) in self.regs.iter_mut().zip(&other.regs) {
            let joined = a.join(*b);
            outcome.changed |= joined != *a;
            outcome.blurred |= blurs(*a, *b, joined);
            *a = joined;
        }
        if !Rc::ptr_eq(&self.slots, &other.slots) && self.slots != other.slots {
            let slots = join_slots(&self.slots, &other.slots, &mut outcome);
            if slots != *self.slots {
                outcome.changed = true;
                self.slots = Rc::new(slots);
            }
        }
        outcome
    }

    /// Index of the first entry that does not end before `off`.
    fn first_behind(&self, off: i32) -> usize {
        self.slots.partition_point(|s| s.off + s.len <= off)
    }

    fn overlapping(&self, off: i32, len: i32) -> impl Iterator<Item = &SlotValue> {
        self.slots[self.first_behind(off)..].iter().take_while(move |s| s.off < off + len)
    }
}

/// The effect of a join.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Joined {
    /// The state has changed.
    pub(super) changed: bool,
    /// A stack address is no longer followed.
    pub(super) lost: bool,
    /// An offset into the own frame is no longer known.
    pub(super) blurred: bool,
}

/// Whether a join of an address of the own frame gave an address without its offset.
fn blurs(a: Value, b: Value, joined: Value) -> bool {
    let is_frame = |v| matches!(v, Value::Frame(_));
    (is_frame(a) || is_frame(b)) && !is_frame(joined) && joined.may_be_stack()
}

/// Slots that both know; of the others only those that may hold a stack address.
fn join_slots(a: &[SlotValue], b: &[SlotValue], outcome: &mut Joined) -> Vec<SlotValue> {
    const MIXED: Value = Value::Unknown { stack: true };
    let mut joined: Vec<SlotValue> = Vec::with_capacity(a.len());
    let (mut i, mut j) = (0, 0);
    let mut keep = |s: SlotValue, other: Value, value: Value| {
        outcome.blurred |= blurs(s.value, other, value);
        let fits = joined.last().is_none_or(|l| l.off + l.len <= s.off);
        if fits && joined.len() < SLOTS_MAX {
            joined.push(SlotValue { value, ..s });
        } else {
            outcome.lost |= value.may_be_stack();
        }
    };
    loop {
        match (a.get(i), b.get(j)) {
            (None, None) => break,
            (Some(x), Some(y)) if x.off == y.off && x.len == y.len => {
                match x.value.join(y.value) {
                    Value::Unknown { stack: false } | Value::Scalar(None) => {}
                    value => keep(*x, y.value, value),
                }
                i += 1;
                j += 1;
            }
            (Some(x), y) if y.is_none_or(|y| x.off <= y.off) => {
                if x.value.may_be_stack() {
                    keep(*x, MIXED, MIXED);
                }
                i += 1;
            }
            (_, y) => {
                if let Some(y) = y.filter(|y| y.value.may_be_stack()) {
                    keep(*y, MIXED, MIXED);
                }
                j += 1;
            }
        }
    }
    joined
}
