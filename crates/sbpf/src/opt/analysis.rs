//! The effects of one loop on its variables and memory, trip by trip.

use super::ahead::Ahead;
use super::conditions::Conditions;
use super::constraint::{Access, Constraint, Within, constrain, cover, rests_on_data};
use super::graph::{Graph, Loop, Nest};
use super::inner::{Edges, InnerLoop};
use super::linear::{Condition, Form, Hypotheses, Hypothesis, Linear, State, Terms};
use super::slots::{self, NO_SLOTS, Slots};
use super::trips::{self, Counter, ExitTest, Tested};
use crate::ir::{BlockId, Check, Func, Op, Term, Value, Var};
use crate::region::RegionId;
use crate::work::{Exhausted, Work};
use std::collections::{BTreeMap, BTreeSet};

/// The conditions that the guard of a loop has to prove, and the accesses that it then covers.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// All must hold in every trip.
    pub(super) constraints: Vec<Constraint>,
    /// `(var, of, plus)`: `var == of + plus` must hold on entry.
    pub(super) equalities: BTreeSet<(Var, Var, i64)>,
    /// Accesses that they cover: block and index of the operation.
    pub(super) covered: BTreeMap<(BlockId, usize), RegionId>,
    /// Accesses in the loop, those of inner loops not counted.
    pub(super) accesses: u32,
    /// The number of these that are covered.
    pub(super) unchecked: u32,
    /// Variables that can count the trips, best first.
    pub(super) counters: Vec<Counter>,
    /// A test of the loop's own that gives the number of trips left.
    pub(super) exit_test: Option<(ExitTest, Tested)>,
    /// Most edges that the loops inside take in a trip, where all of them are bounded.
    pub(super) inner_edges: Option<i64>,
    /// The results that its guard finds for the loops inside.
    pub(super) ahead: Vec<Ahead>,
    /// Data decide where in a table some accesses go. If it is shorter than they might say, the guard refuses always.
    pub(super) rests_on_data: bool,
    /// Variables on the stack that it is about.
    pub(super) slots: Slots,
    /// Why accesses were left out.
    pub(super) why: Vec<String>,
}

impl Plan {
    /// Whether a loop is better off with it than with another.
    fn is_better(&self, other: &Self) -> bool {
        let gain = |plan: &Self| (plan.unchecked, plan.exit_test.is_some());
        gain(self) > gain(other)
    }
}

static NO_LENS: BTreeMap<RegionId, u64> = BTreeMap::new();

/// Why a loop has no plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum NotAnalysed {
    #[error("control enters the loop in the middle")]
    EnteredInTheMiddle,
    #[error("the loop is too long")]
    TooLong,
    #[error("the program takes more work to optimise than a load may")]
    Exhausted,
}

impl From<Exhausted> for NotAnalysed {
    fn from(_: Exhausted) -> Self {
        Self::Exhausted
    }
}

/// The facts known about a loop from outside of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given<'a> {
    /// States in which control comes to it; not all, perhaps, and each in terms of something earlier.
    pub(super) entries: &'a [State],
    /// Lengths that regions have in every call.
    pub(super) lens: &'a BTreeMap<RegionId, u64>,
    /// Variables of the function that are on the stack.
    pub(super) slots: &'a Slots,
}

/// Most forms that an analysis keeps at a time: for each variable at the end of each block.
const FORMS_MAX: usize = 200_000;

/// Analyses a loop.
pub(super) fn analyse(func: &Func, nest: &Nest, given: Given<'_>, work: &Work) -> Result<(Plan, Outlook), NotAnalysed> {
    let (plan, outlook) = analyse_with(func, nest, given, &NO_SLOTS, work)?;
    let is_all = plan.why.is_empty() && plan.exit_test.is_some();
    let slots = given.slots.loaded_in(func, nest.the_loop.blocks.iter());
    if is_all || slots.is_empty() {
        return Ok((plan, outlook));
    }
    // Where the work does not suffice for it, the result found without it stays.
    Ok(match analyse_by_slots(func, nest, given, slots, work) {
        Ok(Some(better)) if better.0.is_better(&plan) => better,
        _ => (plan, outlook),
    })
}

/// The same with variables that are on the stack; `None`: stores that are not proved may write them.
fn analyse_by_slots(
    func: &Func,
    nest: &Nest,
    given: Given<'_>,
    mut slots: Slots,
    work: &Work,
) -> Result<Option<(Plan, Outlook)>, NotAnalysed> {
    let supposed = slots.supposed(func, nest.the_loop.blocks.iter());
    loop {
        let (plan, outlook) = analyse_with(func, nest, given, &slots, work)?;
        let stray: BTreeSet<_> = supposed.iter().filter(|at| !plan.covered.contains_key(at)).copied().collect();
        if slots.allows(&stray) {
            return Ok(Some((plan, outlook)));
        }
        if slots.has_stray() {
            return Ok(None);
        }
        slots = slots.with_stray(stray);
    }
}

fn analyse_with(
    func: &Func,
    nest: &Nest,
    given: Given<'_>,
    slots: &Slots,
    work: &Work,
) -> Result<(Plan, Outlook), NotAnalysed> {
    let mut body = Body::new(func, nest, slots, work)?;
    body.given = given;
    let (pass, deltas) = settle(&body)?;
    let plan = plan(&body, &deltas, &pass);
    let entries = body.inner_loops.iter().map(|(&header, inner)| (header, body.entry(header, inner, &pass))).collect();
    Ok((plan, Outlook { pass, deltas, entries }))
}

/// Checked accesses of a loop, those of loops inside not counted.
pub(super) fn accesses(func: &Func, nest: &Nest) -> u32 {
    let own = |b: &&BlockId| !nest.inner.iter().any(|inner| inner.the_loop.blocks.contains(b));
    let checked = |b: &BlockId| func.blocks[b.0 as usize].ops.iter().filter(|(op, _)| op.may_trap_on_access()).count();
    nest.the_loop.blocks.iter().filter(own).map(checked).sum::<usize>() as u32
}

/// The facts known about a loop beyond its own plan: for guards of the loops inside.
pub(super) struct Outlook {
    pub(super) pass: Pass,
    pub(super) deltas: Vec<Linear>,
    /// The state that control brings to the loops inside whenever it enters them, by their headers.
    pub(super) entries: BTreeMap<BlockId, State>,
}

/// A trip under the strongest hypotheses about the header's variables that it does not refute, and how
/// much each of these changes in it.
pub(super) fn settle(body: &Body<'_>) -> Result<(Pass, Vec<Linear>), Exhausted> {
    let func = body.func;
    // Nothing need be known of variables that the loop does not use.
    let mut hypotheses = Hypotheses { of: vec![Hypothesis::Varies; usize::from(func.vars)] };
    body.each_used(|v| hypotheses.of[usize::from(v.0)] = Hypothesis::Steps);
    body.slots.vars().for_each(|v| hypotheses.of[usize::from(v.0)] = Hypothesis::Steps);
    hypotheses.of[usize::from(Var::FUEL.0)] = Hypothesis::Varies;
    let mut refuted = vec![false; usize::from(func.vars)];
    // Each round that changes something makes a hypothesis about a variable weaker, or gives it one
    // that it had never had; so it ends.
    loop {
        let pass = body.pass(&hypotheses)?;
        if !revise(&mut hypotheses, &mut refuted, &pass, body.given.entries) {
            // No form has a term of a variable that varies.
            let deltas = (0..func.vars).map(|v| step_of(Var(v), &pass).unwrap_or_default()).collect();
            return Ok((pass, deltas));
        }
    }
}

/// How much a variable's header value changes in a trip: at least and at most, or by terms that stay the same.
fn step_of(v: Var, pass: &Pass) -> Option<Linear> {
    let l = pass.latch.get(v).linear()?;
    if !l.terms.contains(&(v, 1)) {
        return None;
    }
    let strides: Terms = l.terms.iter().copied().filter(|t| t.0 != v).collect();
    let is_one_stride = l.lo == l.hi && strides.iter().all(|t| pass.stays(t.0));
    (strides.is_empty() || is_one_stride).then_some(Linear { terms: strides, lo: l.lo, hi: l.hi })
}

/// Confronts the hypotheses with what a trip does. True when one had to change.
fn revise(hypotheses: &mut Hypotheses, refuted: &mut [bool], pass: &Pass, entries: &[State]) -> bool {
    // If a condition does not hold when control comes to the loop, its guard would find that out each time.
    let may_equal = |v: usize, of: Var, plus: i64| !entries.iter().any(|e| e.differ(Var(v as u16), of, plus));
    let mut weakened = false;
    let mut proposals = Vec::new();
    let mut varies = Vec::new();
    for (v, refuted) in refuted.iter_mut().enumerate() {
        let var = Var(v as u16);
        let latch = match pass.latch.get(var) {
            Form::Linear(l) => Some(l),
            Form::Any => None,
        };
        match hypotheses.of[v] {
            Hypothesis::Varies => {}
            Hypothesis::Equals { of, plus } => {
                let holds = pass
                    .exact_step(of)
                    .and_then(|step| step.checked_add(plus))
                    .is_some_and(|c| latch.is_some_and(|l| *l.terms == [(of, 1)] && (l.lo, l.hi) == (c, c)));
                if !holds {
                    hypotheses.of[v] = Hypothesis::Steps;
                    *refuted = true;
                    weakened = true;
                }
            }
            Hypothesis::Steps if step_of(var, pass).is_some() => {}
            Hypothesis::Steps => match latch {
                Some(Linear { terms, lo, hi }) if lo == hi && matches!(terms[..], [(_, 1)]) && !*refuted => {
                    // It takes over another variable's value of this trip.
                    let of = terms[0].0;
                    match pass.exact_step(of).and_then(|step| lo.checked_sub(step)) {
                        Some(plus) if may_equal(v, of, plus) => proposals.push((v, Hypothesis::Equals { of, plus })),
                        _ => varies.push(v),
                    }
                }
                _ => varies.push(v),
            },
        }
    }
    if weakened {
        return true;
    }
    for &(a, b) in &pass.alike {
        let steps = |v: Var| hypotheses.of[usize::from(v.0)] == Hypothesis::Steps;
        if steps(a) && steps(b) && !refuted[usize::from(b.0)] && may_equal(usize::from(b.0), a, 0) {
            proposals.push((usize::from(b.0), Hypothesis::Equals { of: a, plus: 0 }));
        }
    }
    // One at a time: a proposal may depend on a variable that another would redefine.
    if let Some(&(v, hypothesis)) = proposals.first() {
        hypotheses.of[v] = hypothesis;
        return true;
    }
    for &v in &varies {
        hypotheses.of[v] = Hypothesis::Varies;
    }
    !varies.is_empty()
}

fn plan(body: &Body<'_>, deltas: &[Linear], pass: &Pass) -> Plan {
    let mut plan = Plan { accesses: body.accesses, slots: body.slots.clone(), ..Plan::default() };
    let mut needed = Conditions::new();
    for access in &pass.accesses {
        match cover(&plan.constraints, deltas, access, body.given.lens) {
            Ok((region, constraints)) => {
                plan.constraints = constraints;
                plan.rests_on_data |= rests_on_data(deltas, &access.form);
                plan.unchecked += u32::from(!body.inner.contains(&access.at.0));
                plan.covered.insert(access.at, region);
                needed.extend(&access.conditions);
                if let Form::Linear(form) = &access.form {
                    needed.extend(&pass.conditions_of_steps(form));
                }
            }
            // One of a loop inside may be covered by a guard of that loop.
            Err(_) if body.inner.contains(&access.at.0) => {}
            Err(why) => plan.why.push(format!("insn {}: {why}", access.insn)),
        }
    }
    let Some(done) = pass.prove(needed, deltas, &mut plan.constraints, &mut plan.equalities) else {
        // Without these conditions the forms do not hold: nothing is proved.
        plan.covered.clear();
        plan.constraints.clear();
        plan.equalities.clear();
        plan.unchecked = 0;
        plan.why.push("too many 32-bit counters in this loop".into());
        return plan;
    };
    plan.inner_edges = pass.inner_edges.as_ref().filter(|e| e.rest_on.is_subset(&done)).map(|e| e.most);
    plan.exit_test = trips::exit_test(body, pass, &done);
    let tested = plan.exit_test.as_ref().and_then(|(test, _)| test.of.terms.first());
    plan.counters = trips::counters(body, pass, &done, tested.map(|t| t.0));
    plan
}

impl Pass {
    /// The constraints that prove conditions, and the conditions that those rest on. `None` when it is too much.
    pub(super) fn prove(
        &self,
        mut needed: Conditions,
        deltas: &[Linear],
        constraints: &mut Vec<Constraint>,
        equalities: &mut BTreeSet<(Var, Var, i64)>,
    ) -> Option<Conditions> {
        let mut done = Conditions::new();
        while let Some(i) = needed.pop_first() {
            if !done.insert(i) {
                continue;
            }
            match &self.conditions[i] {
                Condition::Fits { form, bits } => {
                    needed.extend(&self.conditions_of_steps(form));
                    let end = form.hi.saturating_add(1);
                    *constraints = constrain(constraints, deltas, form, end, Within::Bits(*bits))?;
                }
                &Condition::Equal { var, of, plus } => {
                    equalities.insert((var, of, plus));
                    needed.extend(self.latch.conditions(var));
                    needed.extend(self.latch.conditions(of));
                }
            }
        }
        Some(done)
    }

    /// Whether a variable has the same header value in all trips.
    pub(super) fn stays(&self, v: Var) -> bool {
        self.latch.get(v).offset_from(v) == Some(0)
    }

    /// How much a variable's header value changes in a trip, when it is always the same.
    pub(super) fn exact_step(&self, v: Var) -> Option<i64> {
        self.step(v).filter(|s| s.0 == s.1).map(|s| s.0)
    }

    /// Whether a condition says no more than that a value fits its low half.
    pub(super) fn is_about_width(&self, condition: usize) -> bool {
        matches!(self.conditions[condition], Condition::Fits { .. })
    }

    /// How much a variable's header value changes in a trip, at least and at most.
    pub(super) fn step(&self, v: Var) -> Option<(i64, i64)> {
        step_of(v, self).filter(|s| s.terms.is_empty()).map(|s| (s.lo, s.hi))
    }

    /// How much a form changes in a trip, when it is always the same.
    pub(super) fn step_of_form(&self, form: &Linear) -> Option<i64> {
        form.terms.iter().try_fold(0i64, |sum, &(v, c)| sum.checked_add(self.exact_step(v)?.checked_mul(c)?))
    }

    /// The conditions that the steps of a form's variables rest on.
    pub(super) fn conditions_of_steps(&self, form: &Linear) -> Conditions {
        let mut rests_on = Conditions::new();
        for &(v, _) in form.terms.iter() {
            rests_on.extend(self.latch.conditions(v));
            let strides = step_of(v, self).map(|step| step.terms).unwrap_or_default();
            strides.iter().for_each(|&(u, _)| rests_on.extend(self.latch.conditions(u)));
        }
        rests_on
    }
}

/// The blocks of a loop in an order in which each comes after all ways to it within one trip.
pub(super) struct Body<'a> {
    pub(super) func: &'a Func,
    pub(super) graph: Graph,
    pub(super) the_loop: &'a Loop,
    pub(super) order: Vec<BlockId>,
    work: &'a Work,
    /// Loops inside, by their headers.
    pub(super) inner_loops: BTreeMap<BlockId, InnerLoop>,
    /// Blocks of loops inside.
    pub(super) inner: BTreeSet<BlockId>,
    given: Given<'a>,
    /// Variables on the stack that are followed.
    pub(super) slots: &'a Slots,
    accesses: u32,
}

/// The effects of one trip.
pub(super) struct Pass {
    /// When it goes back to the header.
    pub(super) latch: State,
    /// At the end of each block.
    pub(super) at_end: BTreeMap<BlockId, State>,
    accesses: Vec<Access>,
    conditions: Vec<Condition>,
    /// The edges that the loops inside take, if there are any and all are bounded.
    inner_edges: Option<Edges>,
    /// Variables that may be copies of each other.
    alike: Vec<(Var, Var)>,
}

impl<'a> Body<'a> {
    pub(super) fn new(func: &'a Func, nest: &'a Nest, slots: &'a Slots, work: &'a Work) -> Result<Self, NotAnalysed> {
        let the_loop = &nest.the_loop;
        if the_loop.blocks.len() * usize::from(func.vars) > FORMS_MAX {
            return Err(NotAnalysed::TooLong);
        }
        let graph = Graph::within(func, the_loop, work)?;
        for &b in &graph.order {
            let retreats = |p: &&BlockId| graph.order_of[p.0 as usize] >= graph.order_of[b.0 as usize];
            if graph.predecessors(b).iter().filter(retreats).any(|&p| !graph.dominates(b, p)) {
                return Err(NotAnalysed::EnteredInTheMiddle);
            }
        }
        let mut inside = Vec::new();
        nest.each_inner(&mut |inner| inside.push(inner));
        let mut inner_loops = BTreeMap::new();
        let mut inner_blocks = BTreeSet::new();
        for inner in inside {
            inner_loops.insert(inner.the_loop.header, InnerLoop::new(func, inner, slots, work)?);
            inner_blocks.extend(inner.the_loop.blocks.iter().copied());
        }
        let order = graph.order.clone();
        let accesses = accesses(func, nest);
        let given = Given { entries: &[], lens: &NO_LENS, slots: &NO_SLOTS };
        Ok(Self { func, graph, the_loop, order, work, inner_loops, inner: inner_blocks, given, slots, accesses })
    }

    /// Calls `f` with every variable that the loop reads or writes.
    fn each_used(&self, mut f: impl FnMut(Var)) {
        for b in &self.order {
            let block = &self.func.blocks[b.0 as usize];
            for (op, _) in &block.ops {
                op.each_read(&mut f);
                op.each_write(&mut f);
            }
            if let Term::Branch { lhs, rhs, .. } = block.term {
                f(lhs);
                if let Value::Var(rhs) = rhs {
                    f(rhs);
                }
            }
        }
    }

    /// One trip from the header.
    fn pass(&self, hypotheses: &Hypotheses) -> Result<Pass, Exhausted> {
        let ops: usize = self.order.iter().map(|b| self.func.blocks[b.0 as usize].ops.len()).sum();
        // A form takes some looks to join or to copy, an operation to follow.
        self.work.spend(8 * (self.order.len() * hypotheses.of.len() + 4 * ops) as u64)?;
        let mut conditions = Vec::new();
        let mut alike = Vec::new();
        let mut accesses = Vec::new();
        let mut bounded = BTreeSet::new();
        let mut inner_edges = Edges::default();
        let at_header = State::at_header(hypotheses, &mut conditions);
        let mut at_end: BTreeMap<BlockId, State> = BTreeMap::new();
        for &b in &self.order {
            let mut state = match b == self.the_loop.header {
                true => at_header.clone(),
                false => self.join_ways(b, &at_end, &mut alike),
            };
            if let Some(edges) = self.inner_loops.get(&b).and_then(|inner| inner.enter(&mut state)) {
                bounded.insert(b);
                inner_edges.most += edges.most;
                inner_edges.rest_on.extend(&edges.rest_on);
            }
            for (i, (op, insn)) in self.func.blocks[b.0 as usize].ops.iter().enumerate() {
                // A loop inside whose trips are not bounded has a guard of its own.
                if !self.inner.contains(&b) || bounded.iter().any(|h| self.inner_loops[h].blocks.contains(&b)) {
                    accesses.extend(access((b, i), op, *insn, &state));
                }
                let place = slots::place(&state, op);
                state.step(op, &mut conditions);
                self.slots.follow(&mut state, (b, i), op, place);
            }
            at_end.insert(b, state);
        }
        let latch = self.join_ways(self.the_loop.header, &at_end, &mut alike);
        let all_bounded = !bounded.is_empty() && bounded.len() == self.inner_loops.len();
        let inner_edges = all_bounded.then_some(inner_edges);
        Ok(Pass { latch, at_end, accesses, conditions, inner_edges, alike })
    }

    /// The state in which control comes to a loop inside from outside of it.
    fn entry(&self, header: BlockId, inner: &InnerLoop, pass: &Pass) -> State {
        let outside = self.graph.predecessors(header).iter().filter(|p| !inner.blocks.contains(p));
        let at_end = outside.filter_map(|p| Some((*p, pass.at_end.get(p)?.clone()))).collect();
        self.join_ways(header, &at_end, &mut Vec::new())
    }

    /// The state before a block, from all ways within the loop that come to it.
    fn join_ways(&self, b: BlockId, at_end: &BTreeMap<BlockId, State>, alike: &mut Vec<(Var, Var)>) -> State {
        let mut ways = self.graph.predecessors(b).iter().filter_map(|p| {
            let mut state = at_end.get(p)?.clone();
            state.take_way(&self.func.blocks[p.0 as usize].term, b);
            Some(state)
        });
        let mut state = ways.next().expect("a block of the loop is reached from its header");
        ways.for_each(|s| state.join(&s, alike));
        state
    }
}

fn access(at: (BlockId, usize), op: &Op, insn: u32, state: &State) -> Option<Access> {
    let (base, off, size, check, write) = match *op {
        Op::Load { base, off, size, check, .. } => (base, off, size, check, false),
        Op::Store { base, off, size, check, .. } => (base, off, size, check, true),
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
    Some(Access { at, region, write, size, form, conditions, insn })
}
