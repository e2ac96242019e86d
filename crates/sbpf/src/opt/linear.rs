//! Facts about a variable inside one loop: linear forms with intervals.
//!
//! A form `Σ c·h + [lo, hi]` says that the variable equals, modulo 2^64, a fixed combination of the
//! values that variables `h` had when control last entered the loop's header, plus an integer in the
//! interval. Pure intervals (no terms) hold ordinary integers.
//!
//! A 32-bit operation truncates; its result is linear only while the untruncated value fits. Such a
//! condition becomes a [`Condition::Fits`] that the guard has to prove with the bounds of the accesses.

use super::conditions::Conditions;
use crate::insn::{AluOp, Cond, Size, Width};
use crate::ir::{BinOp, BlockId, Op, Term, Value, Var};
use std::ops::Deref;
use std::rc::Rc;

/// Bounds beyond this are not tracked, so that sums of a few never overflow an `i64`.
const LIMIT: i64 = 1 << 46;
const TERMS_MAX: usize = 4;
const COEFFICIENT_MAX: i64 = 1 << 20;

/// A linear form, or nothing known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) enum Form {
    #[default]
    Any,
    Linear(Linear),
}

/// `Σ c·h + [lo, hi]`, terms sorted by variable, coefficients not 0.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Linear {
    pub(super) terms: Terms,
    pub(super) lo: i64,
    pub(super) hi: i64,
}

/// The conditions that the guard has to prove besides the bounds, because forms rest on them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Condition {
    /// The form's value lies in `[0, 2^bits)`, in every trip.
    Fits { form: Linear, bits: u32 },
    /// `var == of + plus` at the header. Where it holds in the first trip, it holds in all.
    Equal { var: Var, of: Var, plus: i64 },
}

impl Form {
    pub(super) fn of_header(v: Var) -> Self {
        Self::Linear(Linear { terms: Terms::one(v), lo: 0, hi: 0 })
    }

    fn interval(lo: i64, hi: i64) -> Self {
        Linear { terms: Terms::default(), lo, hi }.checked()
    }

    /// All values of `bits` bits, at most 46.
    fn unsigned(bits: u32) -> Self {
        if bits <= 46 { Self::interval(0, (1 << bits) - 1) } else { Self::Any }
    }

    /// A form that holds if either holds.
    pub(super) fn join(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Linear(a), Self::Linear(b)) if a.terms == b.terms => {
                Linear { terms: a.terms.clone(), lo: a.lo.min(b.lo), hi: a.hi.max(b.hi) }.checked()
            }
            _ => Self::Any,
        }
    }

    /// By how much it differs from the header's value of a variable, when that is constant.
    pub(super) fn offset_from(&self, v: Var) -> Option<i64> {
        self.linear().filter(|l| *l.terms == [(v, 1)] && l.lo == l.hi).map(|l| l.lo)
    }

    pub(super) fn linear(&self) -> Option<&Linear> {
        match self {
            Self::Any => None,
            Self::Linear(l) => Some(l),
        }
    }

    /// The interval, when there are no terms.
    pub(super) fn range(&self) -> Option<(i64, i64)> {
        self.linear().filter(|l| l.terms.is_empty()).map(|l| (l.lo, l.hi))
    }

    fn nonnegative(&self) -> Option<(i64, i64)> {
        self.range().filter(|r| r.0 >= 0)
    }

    fn constant(&self) -> Option<i64> {
        self.range().filter(|r| r.0 == r.1).map(|r| r.0)
    }
}

/// The terms of a form; shared by its copies, of which there are many.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Terms(Option<Rc<[(Var, i64)]>>);

impl Terms {
    fn one(v: Var) -> Self {
        Self(Some(Rc::new([(v, 1)])))
    }
}

impl FromIterator<(Var, i64)> for Terms {
    fn from_iter<I: IntoIterator<Item = (Var, i64)>>(terms: I) -> Self {
        let terms: Rc<[_]> = terms.into_iter().collect();
        Self((!terms.is_empty()).then_some(terms))
    }
}

impl Deref for Terms {
    type Target = [(Var, i64)];

    fn deref(&self) -> &Self::Target {
        self.0.as_deref().unwrap_or_default()
    }
}

impl Linear {
    fn checked(self) -> Form {
        let small = |v: i64| (-LIMIT..=LIMIT).contains(&v);
        let coefficients = self.terms.iter().all(|t| (-COEFFICIENT_MAX..=COEFFICIENT_MAX).contains(&t.1));
        // Addresses are exact constants, and larger than the limit.
        let exact = self.terms.is_empty() && self.lo == self.hi;
        if (exact || (small(self.lo) && small(self.hi))) && coefficients && self.terms.len() <= TERMS_MAX {
            Form::Linear(self)
        } else {
            Form::Any
        }
    }

    pub(super) fn add(&self, other: &Self) -> Form {
        if other.terms.is_empty() {
            return self.moved(other.lo, other.hi);
        }
        let mut terms = self.terms.to_vec();
        for &(v, c) in other.terms.iter() {
            match terms.iter_mut().find(|t| t.0 == v) {
                Some(t) => t.1 = t.1.saturating_add(c),
                None => terms.push((v, c)),
            }
        }
        terms.retain(|t| t.1 != 0);
        terms.sort_unstable();
        match (self.lo.checked_add(other.lo), self.hi.checked_add(other.hi)) {
            (Some(lo), Some(hi)) => Self { terms: terms.into_iter().collect(), lo, hi }.checked(),
            _ => Form::Any,
        }
    }

    pub(super) fn offset(&self, by: i64) -> Form {
        self.moved(by, by)
    }

    /// Plus an interval.
    fn moved(&self, lo: i64, hi: i64) -> Form {
        match (self.lo.checked_add(lo), self.hi.checked_add(hi)) {
            (Some(lo), Some(hi)) => Self { terms: self.terms.clone(), lo, hi }.checked(),
            _ => Form::Any,
        }
    }

    pub(super) fn scale(&self, by: i64) -> Form {
        if by == 0 {
            return Form::interval(0, 0);
        }
        let terms = self.terms.iter().map(|&(v, c)| (v, c.saturating_mul(by))).collect();
        match (self.lo.checked_mul(by), self.hi.checked_mul(by)) {
            (Some(a), Some(b)) => Self { terms, lo: a.min(b), hi: a.max(b) }.checked(),
            _ => Form::Any,
        }
    }
}

impl Linear {
    /// The same value in terms of other variables, where its own have these forms.
    pub(super) fn substituted(&self, state: &State) -> Form {
        let mut sum = Form::interval(self.lo, self.hi);
        for &(v, c) in self.terms.iter() {
            let (Form::Linear(so_far), Form::Linear(of_v)) = (&sum, state.get(v)) else {
                return Form::Any;
            };
            let Form::Linear(term) = of_v.scale(c) else {
                return Form::Any;
            };
            sum = so_far.add(&term);
        }
        sum
    }

    /// Whether it is exactly 0.
    pub(super) fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}

/// The forms of all variables at one point of the loop's body, and on which conditions each depends. Copies share what neither of
/// them has changed, in groups of variables: there is a state for each block, and most differ little.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct State {
    groups: Vec<Rc<[Fact; GROUP_VARS]>>,
}

const GROUP_VARS: usize = 16;

/// What is known of one variable.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Fact {
    form: Form,
    conditions: Conditions,
}

impl State {
    /// Every variable as it is when control enters the header. `conditions` gets what that rests on.
    pub(super) fn at_header(hypotheses: &Hypotheses, conditions: &mut Vec<Condition>) -> Self {
        let groups = hypotheses.of.len().div_ceil(GROUP_VARS);
        let mut state = Self { groups: std::iter::repeat_with(Rc::default).take(groups).collect() };
        for (v, hypothesis) in hypotheses.of.iter().enumerate() {
            let v = Var(v as u16);
            let mut rests_on = Conditions::new();
            let form = match *hypothesis {
                Hypothesis::Varies => Form::Any,
                Hypothesis::Steps => Form::of_header(v),
                Hypothesis::Equals { of, plus } => {
                    let equal = Condition::Equal { var: v, of, plus };
                    rests_on.insert(index_of(equal, conditions));
                    Linear { terms: Terms::one(of), lo: plus, hi: plus }.checked()
                }
            };
            state.set(v, form, rests_on);
        }
        state
    }

    pub(super) fn get(&self, v: Var) -> &Form {
        &self.fact(v).form
    }

    pub(super) fn conditions(&self, v: Var) -> &Conditions {
        &self.fact(v).conditions
    }

    fn fact(&self, v: Var) -> &Fact {
        let v = usize::from(v.0);
        &self.groups[v / GROUP_VARS][v % GROUP_VARS]
    }

    fn fact_mut(&mut self, v: Var) -> &mut Fact {
        let v = usize::from(v.0);
        &mut Rc::make_mut(&mut self.groups[v / GROUP_VARS])[v % GROUP_VARS]
    }

    pub(super) fn forget(&mut self, v: Var) {
        self.set(v, Form::Any, Conditions::new());
    }

    /// `v` is what another variable is.
    pub(super) fn copy(&mut self, v: Var, of: Var) {
        self.set(v, self.get(of).clone(), self.conditions(of).clone());
    }

    pub(super) fn assign(&mut self, v: Var, to: Value) {
        match to {
            Value::Var(of) => self.copy(v, of),
            Value::Imm(_) => self.set(v, self.value(to), Conditions::new()),
        }
    }

    fn set(&mut self, v: Var, form: Form, conditions: Conditions) {
        *self.fact_mut(v) = Fact { form, conditions };
    }

    /// Whether a variable is certainly not another one plus this.
    pub(super) fn differ(&self, v: Var, of: Var, plus: i64) -> bool {
        match (self.get(v), self.get(of)) {
            (Form::Linear(a), Form::Linear(b)) => {
                a.terms == b.terms && a.lo == a.hi && b.lo == b.hi && a.lo != b.lo.wrapping_add(plus)
            }
            _ => false,
        }
    }

    /// Joins another way to the same point. Two ways that differ only in which variable's header
    /// value they bring go to `alike`: the two may be copies of each other.
    pub(super) fn join(&mut self, other: &Self, alike: &mut Vec<(Var, Var)>) {
        for (group, others) in self.groups.iter_mut().zip(&other.groups).filter(|(a, b)| !Rc::ptr_eq(a, b)) {
            for (i, other) in others.iter().enumerate() {
                if group[i] != *other {
                    Rc::make_mut(group)[i].join(other, alike);
                }
            }
        }
    }

    /// Gives a variable with an interval a narrower one, which something else guarantees.
    pub(super) fn narrow(&mut self, v: Var, lo: i64, hi: i64) {
        self.fact_mut(v).form = Form::interval(lo, hi);
    }

    /// Adds an interval, which rests on what is known of another variable.
    pub(super) fn widen(&mut self, v: Var, (lo, hi): (i64, i64), because_of: Var) {
        self.rest_on(v, because_of);
        let form = match self.get(v) {
            Form::Linear(l) => l.add(&Linear { terms: Terms::default(), lo, hi }),
            Form::Any => Form::Any,
        };
        self.fact_mut(v).form = form;
    }

    /// Makes the form of `v` depend on the form of another variable.
    fn rest_on(&mut self, v: Var, other: Var) {
        let others = self.conditions(other).clone();
        if others.is_subset(self.conditions(v)) {
            return;
        }
        self.fact_mut(v).conditions.extend(&others);
    }

    /// Adds the facts that follow when control goes this way at the end of a block: a variable that was
    /// compared with a constant lies on one side of it.
    pub(super) fn take_way(&mut self, term: &Term, to: BlockId) {
        let Term::Branch { width, cond, lhs, rhs, then, otherwise } = *term else {
            return;
        };
        let bound = match rhs {
            Value::Imm(i) if width == Width::W32 => Some(i64::from(i as u32)),
            Value::Imm(i) => Some(i),
            Value::Var(v) => self.get(v).constant(),
        };
        let Some(c) = bound.filter(|c| (0..LIMIT).contains(c)) else {
            return;
        };
        let cond = match (then == to, otherwise == to) {
            (true, false) => cond,
            (false, true) => match cond.negated() {
                Some(cond) => cond,
                None => return,
            },
            _ => return,
        };
        let signed = matches!(cond, Cond::SLt | Cond::SLe | Cond::SGt | Cond::SGe);
        let (lo, hi) = match self.get(lhs).nonnegative() {
            // None is negative, so signed and unsigned comparisons agree; so they do with the low halves alone.
            Some((lo, hi)) if width == Width::W64 || hi.max(c) < 1 << if signed { 31 } else { 32 } => (lo, hi),
            // As an unsigned number of 64 bits, whatever is not above a constant is small, and nothing negative is.
            None if width == Width::W64 && matches!(cond, Cond::Lt | Cond::Le | Cond::Eq) => match self.get(lhs) {
                Form::Any => (0, LIMIT),
                Form::Linear(l) if l.terms.is_empty() => (0, l.hi),
                Form::Linear(_) => return,
            },
            _ => return,
        };
        let (lo, hi) = match cond {
            Cond::Lt | Cond::SLt => (lo, hi.min(c - 1)),
            Cond::Le | Cond::SLe => (lo, hi.min(c)),
            Cond::Gt | Cond::SGt => (lo.max(c + 1), hi),
            Cond::Ge | Cond::SGe => (lo.max(c), hi),
            Cond::Eq => (lo.max(c), hi.min(c)),
            Cond::Ne | Cond::Set => return,
        };
        // Control does not go this way if nothing is left.
        if lo <= hi {
            if let Value::Var(v) = rhs {
                self.rest_on(lhs, v);
            }
            self.narrow(lhs, lo, hi);
        }
    }

    fn value(&self, v: Value) -> Form {
        match v {
            Value::Var(v) => self.get(v).clone(),
            Value::Imm(i) => Form::Linear(Linear { terms: Terms::default(), lo: i, hi: i }),
        }
    }

    /// Passes over one operation. New conditions are added to `fits`.
    pub(super) fn step(&mut self, op: &Op, fits: &mut Vec<Condition>) {
        let Some(dst) = op.dst() else {
            op.each_write(|v| self.forget(v));
            return;
        };
        let mut new = Vec::new();
        let form = self.result(op, &mut new);
        let mut conditions = Conditions::new();
        if !matches!(op, Op::Load { .. } | Op::Atomic { .. }) && form != Form::Any {
            op.each_read(|v| conditions.extend(self.conditions(v)));
        }
        for condition in new {
            let index = index_of(condition, fits);
            conditions.insert(index);
        }
        self.set(dst, form, conditions);
    }

    /// The form that an operation gives its destination.
    fn result(&self, op: &Op, fits: &mut Vec<Condition>) -> Form {
        match *op {
            Op::Mov { width: Width::W64, src, .. } => self.value(src),
            Op::Mov { width: Width::W32, src, .. } => zero_extend(&self.value(src), 32, fits),
            Op::MovZx { src, bits, .. } => zero_extend(&self.value(src), u32::from(bits), fits),
            Op::MovSx { width, src, bits, .. } => {
                let form = sign_extend(self.get(src), u32::from(bits), fits);
                if width == Width::W32 { zero_extend(&form, 32, fits) } else { form }
            }
            Op::Bin { op: BinOp::Alu(op, width), lhs, rhs, .. } => {
                let (mut a, mut b) = (self.get(lhs).clone(), self.value(rhs));
                if width == Width::W64 {
                    return alu(op, &a, &b, 64);
                }
                a = zero_extend(&a, 32, fits);
                // A negative immediate is a subtraction; as such it stays linear.
                if !(matches!(op, AluOp::Add | AluOp::Sub) && matches!(rhs, Value::Imm(_))) {
                    b = zero_extend(&b, 32, fits);
                }
                zero_extend(&alu(op, &a, &b, 32), 32, fits)
            }
            Op::Neg { width: Width::W64, src, .. } => self.get(src).linear().map_or(Form::Any, |l| l.scale(-1)),
            Op::Neg { width: Width::W32, .. } => Form::unsigned(32),
            Op::End { bits, .. } => Form::unsigned(u32::from(bits)),
            Op::Load { size, signed, .. } => loaded(size, signed),
            Op::Atomic { size: Size::W, .. } => Form::unsigned(32),
            _ => Form::Any,
        }
    }
}

impl Fact {
    fn join(&mut self, other: &Self, alike: &mut Vec<(Var, Var)>) {
        if self.form != other.form {
            alike.extend(differ_in_variable(&self.form, &other.form));
            self.form = self.form.join(&other.form);
        }
        self.conditions.extend(&other.conditions);
    }
}

/// The hypotheses about each variable at the header.
#[derive(Clone, Debug)]
pub(super) struct Hypotheses {
    pub(super) of: Vec<Hypothesis>,
}

/// The hypothesis about one variable at the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hypothesis {
    /// It changes from trip to trip by a bounded step, or by a stride that stays the same.
    Steps,
    /// It always equals another variable, which steps, plus a constant.
    Equals { of: Var, plus: i64 },
    /// Nothing.
    Varies,
}

pub(super) fn index_of(condition: Condition, all: &mut Vec<Condition>) -> usize {
    all.iter().position(|c| *c == condition).unwrap_or_else(|| {
        all.push(condition);
        all.len() - 1
    })
}

fn differ_in_variable(a: &Form, b: &Form) -> Option<(Var, Var)> {
    let (a, b) = (a.linear()?, b.linear()?);
    match (&*a.terms, &*b.terms) {
        (&[(u, c)], &[(v, d)]) if c == d && a.lo == b.lo && a.hi == b.hi => Some((u.min(v), u.max(v))),
        _ => None,
    }
}

fn loaded(size: Size, signed: bool) -> Form {
    let bits = size.bytes() as u32 * 8;
    match (bits, signed) {
        (64, _) => Form::Any,
        (_, false) => Form::unsigned(bits),
        (_, true) => Form::interval(-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
    }
}

/// The low `bits` bits of a value.
fn zero_extend(form: &Form, bits: u32, fits: &mut Vec<Condition>) -> Form {
    let whole = Form::unsigned(bits);
    match form {
        Form::Linear(l) if l.terms.is_empty() => {
            if l.lo >= 0 && l.hi < 1 << bits {
                form.clone()
            } else {
                whole
            }
        }
        // Narrower truncations of a running value wrap on purpose: a ring index, say.
        Form::Linear(l) if bits == 32 => {
            fits.push(Condition::Fits { form: l.clone(), bits });
            form.clone()
        }
        _ => whole,
    }
}

fn sign_extend(form: &Form, bits: u32, fits: &mut Vec<Condition>) -> Form {
    let half = 1i64 << (bits - 1);
    let whole = Form::interval(-half, half - 1);
    match form {
        Form::Linear(l) if l.terms.is_empty() => {
            if l.lo >= -half && l.hi < half {
                form.clone()
            } else {
                whole
            }
        }
        Form::Linear(l) if bits == 32 => {
            fits.push(Condition::Fits { form: l.clone(), bits: 31 });
            form.clone()
        }
        _ => whole,
    }
}

/// Arithmetic on forms. In 32 bits the operands are zero-extended already, the result is not.
fn alu(op: AluOp, a: &Form, b: &Form, bits: u32) -> Form {
    let linear = match (a, b) {
        (Form::Linear(x), Form::Linear(y)) => match op {
            AluOp::Add => return x.add(y),
            AluOp::Sub => match y.scale(-1) {
                Form::Linear(y) => return x.add(&y),
                Form::Any => return Form::Any,
            },
            AluOp::Mul => b.constant().map(|k| x.scale(k)).or_else(|| a.constant().map(|k| y.scale(k))),
            AluOp::Lsh => b.constant().filter(|k| (0..i64::from(bits.min(46))).contains(k)).map(|k| x.scale(1 << k)),
            _ => None,
        },
        _ => None,
    };
    linear.unwrap_or_else(|| bounded(op, a, b, bits))
}

/// Intervals of operations that are not linear.
fn bounded(op: AluOp, a: &Form, b: &Form, bits: u32) -> Form {
    let (ra, rb) = (a.nonnegative(), b.nonnegative());
    let constant = b.constant();
    match op {
        AluOp::And => match (ra, rb) {
            (Some(x), Some(y)) => Form::interval(0, x.1.min(y.1)),
            (Some(x), None) | (None, Some(x)) => Form::interval(0, x.1),
            (None, None) => Form::Any,
        },
        AluOp::Or | AluOp::Xor => match (ra, rb) {
            // At most all bits up to the highest one of either.
            (Some(x), Some(y)) => Form::unsigned(64 - (x.1 | y.1).leading_zeros()),
            _ => Form::Any,
        },
        AluOp::Rsh => match (ra, constant) {
            (Some(x), Some(k)) if (0..i64::from(bits)).contains(&k) => Form::interval(x.0 >> k, x.1 >> k),
            (_, Some(k)) if (1..i64::from(bits)).contains(&k) => Form::unsigned(bits - k as u32),
            _ => Form::Any,
        },
        AluOp::Arsh if bits == 64 => match (a.range(), constant) {
            (Some(x), Some(k)) if (0..64).contains(&k) => Form::interval(x.0 >> k, x.1 >> k),
            _ => Form::Any,
        },
        AluOp::Mod => match constant {
            Some(m) if m > 0 => Form::interval(0, ra.map_or(m - 1, |x| x.1.min(m - 1))),
            _ => Form::Any,
        },
        AluOp::Div => match (ra, constant) {
            (Some(x), Some(d)) if d > 0 => Form::interval(x.0 / d, x.1 / d),
            _ => Form::Any,
        },
        _ => Form::Any,
    }
}
