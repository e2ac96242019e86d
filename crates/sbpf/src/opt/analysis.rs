//! What one loop does to its variables and memory, trip by trip.

use super::graph::{Graph, Loop};
use super::linear::{Conditions, Fits, Form, Linear, State};
use crate::insn::Size;
use crate::ir::{BlockId, Check, Func, Op, Var};
use crate::region::RegionId;
use std::collections::{BTreeMap, BTreeSet};

/// What the guard of a loop has to prove, and which accesses it then covers.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// All must hold in every trip.
    pub(super) constraints: Vec<Constraint>,
    /// Accesses that they cover: block and index of the operation.
    pub(super) covered: BTreeMap<(BlockId, usize), RegionId>,
    /// Accesses in the loop, those of inner loops not counted.
    pub(super) accesses: u32,
    /// Whether there are loops inside.
    pub(super) has_inner: bool,
    /// Why accesses were left out.
    pub(super) why: Vec<String>,
}

/// `form + [0, len)` lies in a region (or in `[0, 2^bits)`), in every trip.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Constraint {
    pub(super) within: Within,
    pub(super) terms: Vec<(Var, i64)>,
    /// First byte of the lowest access, relative to the terms, in the first trip.
    pub(super) lo: i64,
    /// One past the last byte of the highest.
    pub(super) end: i64,
    /// How much the terms change in a trip, at least and at most.
    pub(super) step: (i64, i64),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Within {
    Region { region: RegionId, write: bool },
    Bits(u32),
}

/// More would cost more at each entry than they save.
const CONSTRAINTS_MAX: usize = 16;

struct Access {
    at: (BlockId, usize),
    region: Option<RegionId>,
    write: bool,
    size: Size,
    form: Form,
    conditions: Conditions,
    insn: u32,
}

/// Analyses a loop; `None` when its shape is not understood.
pub(super) fn analyse(func: &Func, graph: &Graph, the_loop: &Loop) -> Option<Plan> {
    let body = Body::new(func, graph, the_loop)?;
    let mut varying = vec![false; usize::from(func.vars)];
    varying[usize::from(Var::FUEL.0)] = true;
    // Start from "every variable is an induction variable" and take back what is not. Each round
    // that changes something marks a variable, so it ends.
    let (deltas, pass) = loop {
        let pass = body.pass(&varying);
        let mut changed = false;
        let deltas: Vec<(i64, i64)> = (0..func.vars)
            .map(|v| match pass.latch.get(Var(v)) {
                _ if varying[usize::from(v)] => (0, 0),
                Form::Linear(l) if l.terms == [(Var(v), 1)] => (l.lo, l.hi),
                _ => {
                    varying[usize::from(v)] = true;
                    changed = true;
                    (0, 0)
                }
            })
            .collect();
        if !changed {
            break (deltas, pass);
        }
    };
    Some(plan(&body, &deltas, &pass))
}

fn plan(body: &Body<'_>, deltas: &[(i64, i64)], pass: &Pass) -> Plan {
    let mut plan = Plan {
        has_inner: !body.inner_headers.is_empty(),
        accesses: body.accesses,
        ..Plan::default()
    };
    let mut needed = Conditions::new();
    for access in &pass.accesses {
        let Some(region) = access.region else {
            plan.why.push(format!(
                "insn {}: the region of the pointer is not known",
                access.insn
            ));
            continue;
        };
        let Form::Linear(form) = &access.form else {
            plan.why.push(format!(
                "insn {}: the address is not a linear function of the trip",
                access.insn
            ));
            continue;
        };
        let end = form.hi + access.size.bytes() as i64;
        let within = Within::Region {
            region,
            write: access.write,
        };
        match constrain(&plan.constraints, deltas, form, end, within) {
            Some(constraints) => {
                plan.constraints = constraints;
                plan.covered.insert(access.at, region);
                needed.extend(&access.conditions);
                needed.extend(pass.conditions_of_steps(form));
            }
            None => plan.why.push(format!(
                "insn {}: too many different addresses in this loop",
                access.insn
            )),
        }
    }
    // A condition's own form may rest on others.
    let mut done = Conditions::new();
    while let Some(i) = needed.pop_first() {
        if !done.insert(i) {
            continue;
        }
        let Fits { form, bits } = &pass.fits[i];
        needed.extend(pass.conditions_of_steps(form));
        match constrain(
            &plan.constraints,
            deltas,
            form,
            form.hi + 1,
            Within::Bits(*bits),
        ) {
            Some(constraints) => plan.constraints = constraints,
            None => {
                // Without this condition the forms do not hold: nothing is proved.
                plan.covered.clear();
                plan.why
                    .push("too many 32-bit counters in this loop".into());
                return plan;
            }
        }
    }
    plan
}

/// The constraints with one more; one with the same terms is widened.
fn constrain(
    old: &[Constraint],
    deltas: &[(i64, i64)],
    form: &Linear,
    end: i64,
    within: Within,
) -> Option<Vec<Constraint>> {
    let mut new = old.to_vec();
    if let Some(c) = new
        .iter_mut()
        .find(|c| c.within == within && c.terms == form.terms)
    {
        c.lo = c.lo.min(form.lo);
        c.end = c.end.max(end);
        return Some(new);
    }
    if new.len() == CONSTRAINTS_MAX {
        return None;
    }
    let mut step = (0i64, 0i64);
    for &(v, c) in &form.terms {
        let (lo, hi) = deltas[usize::from(v.0)];
        let (a, b) = (lo.checked_mul(c)?, hi.checked_mul(c)?);
        step = (step.0.checked_add(a.min(b))?, step.1.checked_add(a.max(b))?);
    }
    let small = |v: i64| v.unsigned_abs() < 1 << 40;
    if !small(step.0) || !small(step.1) || end.checked_sub(form.lo).is_none_or(|span| !small(span))
    {
        return None;
    }
    new.push(Constraint {
        within,
        terms: form.terms.clone(),
        lo: form.lo,
        end,
        step,
    });
    Some(new)
}

impl Pass {
    /// What the steps of a form's variables rest on.
    fn conditions_of_steps(&self, form: &Linear) -> Conditions {
        form.terms
            .iter()
            .flat_map(|&(v, _)| self.latch.conditions(v))
            .copied()
            .collect()
    }
}

/// The blocks of a loop in an order in which each comes after all ways to it within one trip.
struct Body<'a> {
    func: &'a Func,
    graph: &'a Graph,
    the_loop: &'a Loop,
    order: Vec<BlockId>,
    /// Headers of loops inside, with the variables that these write.
    inner_headers: BTreeMap<BlockId, BTreeSet<Var>>,
    /// Blocks of loops inside.
    inner: BTreeSet<BlockId>,
    accesses: u32,
}

struct Pass {
    latch: State,
    accesses: Vec<Access>,
    fits: Vec<Fits>,
}

impl<'a> Body<'a> {
    fn new(func: &'a Func, graph: &'a Graph, the_loop: &'a Loop) -> Option<Self> {
        let order: Vec<_> = graph
            .order
            .iter()
            .copied()
            .filter(|b| the_loop.blocks.contains(b))
            .collect();
        let mut body = Self {
            func,
            graph,
            the_loop,
            order,
            inner_headers: BTreeMap::new(),
            inner: BTreeSet::new(),
            accesses: 0,
        };
        for &b in &body.order {
            let position = graph.order_of[b.0 as usize];
            for &p in &graph.predecessors[b.0 as usize] {
                if b == the_loop.header || graph.order_of[p.0 as usize] < position {
                    continue;
                }
                if !graph.dominates(b, p) {
                    return None;
                }
                let inner = graph.natural_loop(b)?;
                let mut written = BTreeSet::new();
                for &i in &inner.blocks {
                    func.blocks[i.0 as usize].ops.iter().for_each(|(op, _)| {
                        op.each_write(|v| {
                            written.insert(v);
                        });
                    });
                }
                body.inner.extend(inner.blocks);
                body.inner_headers.insert(b, written);
            }
        }
        for b in body.order.iter().filter(|b| !body.inner.contains(b)) {
            let is_access =
                |op: &Op| matches!(op, Op::Load { .. } | Op::Store { .. } | Op::Atomic { .. });
            body.accesses += func.blocks[b.0 as usize]
                .ops
                .iter()
                .filter(|(op, _)| is_access(op))
                .count() as u32;
        }
        Some(body)
    }

    /// One trip from the header.
    fn pass(&self, varying: &[bool]) -> Pass {
        let mut at_end: BTreeMap<BlockId, State> = BTreeMap::new();
        let mut pass = Pass {
            latch: State::at_header(self.func.vars, varying),
            accesses: Vec::new(),
            fits: Vec::new(),
        };
        for &b in &self.order {
            let mut state = self.entry_state(b, &at_end, varying);
            for (i, (op, insn)) in self.func.blocks[b.0 as usize].ops.iter().enumerate() {
                if !self.inner.contains(&b) {
                    pass.accesses.extend(access((b, i), op, *insn, &state));
                }
                state.step(op, &mut pass.fits);
            }
            at_end.insert(b, state);
        }
        let latches = self.graph.predecessors[self.the_loop.header.0 as usize]
            .iter()
            .filter(|p| self.the_loop.blocks.contains(p))
            .map(|p| &at_end[p]);
        pass.latch = latches
            .cloned()
            .reduce(|mut a, b| {
                a.join(&b);
                a
            })
            .expect("a loop has a latch");
        pass
    }

    fn entry_state(
        &self,
        b: BlockId,
        at_end: &BTreeMap<BlockId, State>,
        varying: &[bool],
    ) -> State {
        if b == self.the_loop.header {
            return State::at_header(self.func.vars, varying);
        }
        let mut ways = self.graph.predecessors[b.0 as usize]
            .iter()
            .filter_map(|p| at_end.get(p));
        let mut state = ways
            .next()
            .expect("a block of the loop is reached from its header")
            .clone();
        ways.for_each(|s| state.join(s));
        for &v in self.inner_headers.get(&b).into_iter().flatten() {
            state.forget(v);
        }
        state
    }
}

fn access(at: (BlockId, usize), op: &Op, insn: u32, state: &State) -> Option<Access> {
    let (base, off, size, check, write) = match *op {
        Op::Load {
            base,
            off,
            size,
            check,
            ..
        } => (base, off, size, check, false),
        Op::Store {
            base,
            off,
            size,
            check,
            ..
        } => (base, off, size, check, true),
        _ => return None,
    };
    let region = match check {
        Check::Direct(_) => return None,
        Check::Hinted(r) => Some(r),
        Check::Any => None,
    };
    let form = match state.get(base) {
        Form::Linear(l) => l.offset(off),
        Form::Any => Form::Any,
    };
    let conditions = state.conditions(base).clone();
    Some(Access {
        at,
        region,
        write,
        size,
        form,
        conditions,
        insn,
    })
}
