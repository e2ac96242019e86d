//! The optimiser: from a check at every access to checks before loops.
//!
//! `analysis` finds out how addresses move from trip to trip of a loop. Where they move by bounded
//! steps, `version` puts a guard before the loop that computes for how many trips every access stays
//! inside its region, and lets a fast form of the loop run that many trips without checks and, where it
//! can, without paying for each trip. When the guard proves nothing, a slow form runs, which is the loop
//! as it was, so a trap is always the checked one.
//!
//! `constraint` is what a guard has to prove. `slots` follows variables that a compiler keeps on the stack,
//! so that accesses that depend on them are proved, too.
//!
//! Where it can, `ahead` has the guard of the outer loop find out once and for all what the guard of an
//! inner loop would find each time that control comes to it.
//!
//! Outer loops come first: each outermost loop that can have a guard is copied once, and the loops
//! inside it find their slow forms in that copy. So code grows to twice its size at most, however deep
//! loops are nested.
//!
//! The analysis is trusted: what it calls proved is not checked again by compiled code. The
//! interpreter checks it again, and the differential tests run both forms.

mod ahead;
mod analysis;
mod conditions;
mod constraint;
mod emit;
mod graph;
mod guard;
mod inner;
mod linear;
mod reason;
mod slots;
mod trips;
mod version;

use crate::ir::{Block, BlockId, Func, LoopReport, Module, Term};
use crate::region::RegionId;
use crate::work::Work;
use ahead::Ahead;
use analysis::{Given, NotAnalysed, Outlook, Plan};
use emit::{Around, Entrance};
use graph::{Graph, Loop, Loops, Nest};
use linear::{Hypotheses, Hypothesis, State};
pub use reason::instead;
use slots::Slots;
use std::collections::BTreeMap;
use version::Inner;

/// A function grows to this many operations at most.
const OPS_MAX: usize = 50_000;

/// This many of the loops that lie in each other get fast forms: the inner ones.
pub const HEIGHT_MAX: usize = 12;

/// A function gets no further guards when it has this many variables.
const VARS_MAX: u16 = 4096;

/// Ways to a loop that are looked at, and blocks of each.
const ENTRIES_MAX: usize = 4;
const WAY_MAX: usize = 8;

/// Most loops inside of which a guard finds out something ahead.
const AHEAD_MAX: usize = 8;

/// The module with checks hoisted out of loops, as far as the work goes. The other loops stay as they are, checked.
#[must_use]
pub fn optimise(module: &Module, work: &Work) -> Module {
    let mut module = module.clone();
    let lens = module.lens.clone();
    for func in &mut module.functions {
        // Without its loops there is nothing to hoist out of.
        let found = Graph::new(func, work).and_then(|graph| Ok((graph.loops(work)?, graph)));
        if let Ok((loops, graph)) = found {
            let (ops, owner) = (func.blocks.iter().map(size).sum(), vec![None; func.blocks.len()]);
            let (lens, slots) = (&lens, Slots::of(func));
            Hoister { ops, work, lens, slots, graph: &graph, guards: BTreeMap::new(), owner, func }.optimise(&loops);
        }
    }
    module
}

struct Hoister<'f> {
    func: &'f mut Func,
    work: &'f Work,
    lens: &'f BTreeMap<RegionId, u64>,
    slots: Slots,
    /// As it was before anything was hoisted.
    graph: &'f Graph,
    /// Operations of the function.
    ops: usize,
    /// Guards of loops that lie in none with a guard, by their headers.
    guards: BTreeMap<BlockId, BlockId>,
    /// The header of such a loop, for the blocks that belong to it or were added for it.
    owner: Vec<Option<BlockId>>,
}

impl Hoister<'_> {
    fn optimise(&mut self, loops: &Loops) {
        let vars = self.func.vars;
        let mut vars_max = vars;
        let mut waiting: Vec<usize> = loops.outermost.iter().rev().copied().collect();
        while let Some(index) = waiting.pop() {
            if loops.height(index) > HEIGHT_MAX {
                self.skip(loops, index);
                waiting.extend(loops.inner(index).iter().rev());
                continue;
            }
            // Guards of one nest need not know what those of another compute: they share variables.
            self.func.vars = vars;
            let nest = loops.nest(index);
            let entries = self.entries(&nest.the_loop);
            self.hoist(&nest, None, &entries);
            vars_max = vars_max.max(self.func.vars);
        }
        self.func.vars = vars_max;
        self.enter_by_guards();
        self.func.loops.sort_by_key(|l| l.insn);
        drop_unreachable(self.func);
    }

    /// Lets control that comes from outside of an outermost loop to its header go to its guard instead.
    fn enter_by_guards(&mut self) {
        self.owner.resize(self.func.blocks.len(), None);
        for (block, owner) in self.func.blocks.iter_mut().zip(&self.owner) {
            for s in block.term.successors() {
                if let Some(&guard) = self.guards.get(&s)
                    && *owner != Some(s)
                {
                    emit::retarget(&mut block.term, s, guard);
                }
            }
        }
    }

    /// Reports a loop that has too many others inside.
    fn skip(&mut self, loops: &Loops, index: usize) {
        let checked = |b: &BlockId| {
            let ops = &self.func.blocks[b.0 as usize].ops;
            ops.iter().filter(|(op, _)| op.may_trap_on_access()).count() as u32
        };
        self.func.loops.push(LoopReport {
            insn: version::first_insn(self.func, loops.header(index)),
            insns: version::insns(self.func, loops.own(index)),
            accesses: loops.own(index).iter().map(checked).sum(),
            unchecked: 0,
            hoisted: false,
            why: vec![format!("{} loops lie in each other here, more than {HEIGHT_MAX}", loops.height(index))],
        });
    }

    /// Hoists checks out of a loop and the loops inside. Gives how a loop around may get past the guard.
    fn hoist(&mut self, nest: &Nest, around: Option<Around<'_>>, entries: &[State]) -> Option<(Entrance, Plan)> {
        let the_loop = &nest.the_loop;
        let mut report = LoopReport {
            insn: version::first_insn(self.func, the_loop.header),
            insns: version::insns(self.func, &the_loop.blocks),
            accesses: 0,
            unchecked: 0,
            hoisted: false,
            why: Vec::new(),
        };
        let given = Given { entries, lens: self.lens, slots: &self.slots };
        let looked = self.look_for_entries(around);
        let analysis = match looked.and_then(|()| analysis::analyse(self.func, nest, given, self.work)) {
            Ok(analysis) => {
                let (plan, outlook) = &analysis;
                report.accesses = plan.accesses;
                report.unchecked = plan.unchecked;
                report.why.clone_from(&plan.why);
                report.hoisted = !plan.covered.is_empty() || self.looks_ahead(nest, outlook);
                Some(analysis)
            }
            Err(why) => {
                report.accesses = analysis::accesses(self.func, nest);
                report.why.push(why.to_string());
                None
            }
        };
        let grown: usize = the_loop.blocks.iter().map(|b| size(&self.func.blocks[b.0 as usize])).sum();
        let grown = if around.is_none() { grown } else { 0 };
        if report.hoisted && (self.ops + grown > OPS_MAX || self.func.vars >= VARS_MAX) {
            report.why.push("the function would grow too much".into());
            (report.hoisted, report.unchecked) = (false, 0);
        }
        let analysis = analysis.filter(|_| report.hoisted);
        if let Some(around) = around {
            // The accesses that the guard of an outer loop has covered already.
            let covered = version::covered_before(self.func, nest, around.twins);
            report.accesses += covered;
            report.unchecked += covered;
            report.hoisted |= covered > 0;
        }
        self.func.loops.push(report);
        let first = self.func.blocks.len();
        let Some((mut plan, outlook)) = analysis else {
            let here = around.map(|around| Around { the_loop, added_from: first, ..around });
            let (vars, mut vars_max) = (self.func.vars, self.func.vars);
            for inner in &nest.inner {
                self.func.vars = vars;
                self.hoist(inner, here, &[]);
                vars_max = vars_max.max(self.func.vars);
            }
            self.func.vars = vars_max;
            return None;
        };
        let copied = around.is_none().then(|| version::copy(self.func, the_loop));
        let twins = around.map(|a| a.twins).or(copied.as_ref()).expect("one or the other");
        version::cover(self.func, &plan);
        self.count_ops_from(first);
        let here = Around { the_loop, added_from: self.func.blocks.len(), twins };
        let mut inner_loops = Vec::new();
        let mut vars_max = self.func.vars;
        for inner in &nest.inner {
            let vars = self.func.vars;
            let first = self.func.blocks.len() as u32;
            let header = inner.the_loop.header;
            let entry = outlook.entries.get(&header).cloned();
            let hoisted = self.hoist(inner, Some(here), entry.as_slice());
            inner_loops.push(Inner { header, added: first..self.func.blocks.len() as u32 });
            vars_max = vars_max.max(self.func.vars);
            // A result found ahead has to stay, trip after trip: in a variable that no loop inside uses.
            self.func.vars = vars_max;
            if let Some((entrance, inside)) = hoisted
                && plan.ahead.len() < AHEAD_MAX
                && let Some(ahead) = Ahead::new(self.func, &outlook, header, &inside)
            {
                ahead.take(self.func, &entrance, &here);
                plan.ahead.push(ahead);
                vars_max = vars_max.max(self.func.vars);
            } else {
                // The next one may use the same variables: none is of use outside of the loop that it was made for.
                self.func.vars = vars;
            }
        }
        self.func.vars = vars_max;
        if plan.rests_on_data {
            // Then the slow form is not rare.
            for b in &the_loop.blocks {
                self.func.blocks[twins[b].0 as usize].cold = self.func.blocks[b.0 as usize].cold;
            }
        }
        let added = self.func.blocks.len();
        let made = version::version(self.func, &plan, &here, &inner_loops, around.as_ref());
        self.count_ops_from(added);
        if around.is_none() {
            self.guards.insert(the_loop.header, made.guard);
            the_loop.blocks.iter().for_each(|b| self.owner[b.0 as usize] = Some(the_loop.header));
            self.owner.resize(first, None);
            self.owner.resize(self.func.blocks.len(), Some(the_loop.header));
        }
        made.entrance.map(|entrance| (entrance, plan))
    }

    /// The facts known where control comes to a loop, from straight code before it.
    fn entries(&self, the_loop: &Loop) -> Vec<State> {
        let outside = |b: &&BlockId| !the_loop.blocks.contains(b);
        let entries = self.graph.predecessors(the_loop.header).iter().filter(outside).take(ENTRIES_MAX);
        let mut states = Vec::new();
        for &entry in entries {
            let mut way = vec![entry];
            while let &[before] = self.graph.predecessors(*way.last().expect("never empty"))
                && way.len() < WAY_MAX
            {
                way.push(before);
            }
            let ops: usize = way.iter().map(|b| self.func.blocks[b.0 as usize].ops.len()).sum();
            if self.work.spend(4 * (ops as u64 + u64::from(self.func.vars))).is_err() {
                break;
            }
            let hypotheses = Hypotheses { of: vec![Hypothesis::Steps; usize::from(self.func.vars)] };
            let mut conditions = Vec::new();
            let mut state = State::at_header(&hypotheses, &mut conditions);
            for b in way.into_iter().rev() {
                self.func.blocks[b.0 as usize].ops.iter().for_each(|(op, _)| state.step(op, &mut conditions));
            }
            states.push(state);
        }
        states
    }

    /// Takes the work of finding what leads to the loop, once it has a guard.
    fn look_for_entries(&self, around: Option<Around<'_>>) -> Result<(), NotAnalysed> {
        let blocks = around.map_or(0, |a| a.the_loop.blocks.len() + self.func.blocks.len() - a.added_from);
        Ok(self.work.spend(blocks as u64 / 2)?)
    }

    fn count_ops_from(&mut self, first: usize) {
        self.ops += self.func.blocks[first..].iter().map(size).sum::<usize>();
    }

    /// Whether a guard of a loop without accesses of its own could replace one of a loop inside.
    fn looks_ahead(&mut self, nest: &Nest, outlook: &Outlook) -> bool {
        nest.inner.iter().filter(|inner| inner.inner.is_empty()).any(|inner| {
            let entry = outlook.entries.get(&inner.the_loop.header).cloned();
            let given = Given { entries: entry.as_slice(), lens: self.lens, slots: &self.slots };
            let inside = analysis::analyse(self.func, inner, given, self.work);
            let inside = inside.ok().filter(|(plan, _)| !plan.covered.is_empty());
            let vars = self.func.vars;
            let could =
                inside.is_some_and(|(plan, _)| Ahead::new(self.func, outlook, inner.the_loop.header, &plan).is_some());
            self.func.vars = vars;
            could
        })
    }
}

fn size(block: &Block) -> usize {
    block.ops.len() + 1
}

/// Removes blocks that nothing leads to any more.
fn drop_unreachable(func: &mut Func) {
    let is_reachable = graph::reachable(func);
    let mut new_ids = Vec::with_capacity(is_reachable.len());
    let mut next = 0;
    for &reachable in &is_reachable {
        new_ids.push(BlockId(next));
        next += u32::from(reachable);
    }
    let mut reachable = is_reachable.into_iter();
    func.blocks.retain(|_| reachable.next().expect("one for each block"));
    for block in &mut func.blocks {
        match &mut block.term {
            Term::Jump(to) => *to = new_ids[to.0 as usize],
            Term::Branch { then, otherwise, .. } => {
                *then = new_ids[then.0 as usize];
                *otherwise = new_ids[otherwise.0 as usize];
            }
            Term::Return => {}
        }
    }
}
