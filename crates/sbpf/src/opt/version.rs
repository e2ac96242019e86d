//! A fast and a slow form of a loop under one guard.
//!
//! ```text
//!            entry                      guard:  T = most trips that every constraint allows
//!              |                                if none: slow
//!            guard <-------------+              limit = where the counter is after T + 1 trips
//!           /     \              |
//!        slow      fast          |      fast latch:  counter != limit ? goto fast : goto stop
//!        loop      loop          |      stop:        the loop's own exit test, if it was left out;
//!          \        | \---stop---+                   pays for the edge; goto guard
//!           \      exits
//!            after
//! ```
//! The counter is a variable that the loop steps anyway; a loop without one counts `T` down.
//!
//! A *prepaid* loop takes `T` retreating edges from `FUEL` in the guard and gives back what it did not
//! use at each exit. Nothing inside may see that: so a loop is prepaid only when its fast form has no
//! call and no access that can trap; and before a refill of an inner loop all goes back to `FUEL`, and
//! the limit is set to this very trip. Where the edges of inner loops are bounded, the guard leaves enough for
//! them, and they ask for no refill. Any other loop pays for each trip, as it did.
//!
//! A guard admits at most a slice of trips, so deadline and cancellation stay prompt.

use super::ahead::Ahead;
use super::analysis::Plan;
use super::emit::{Around, Entrance, Twins, alu, divided, fresh, mov, retarget};
use super::graph::{Loop, Nest, natural_loop_among};
use super::guard::{Count, Guard};
use super::trips::{Counter, Tested};
use crate::insn::{AluOp, Cond, Width};
use crate::ir::lower::{charge, is_negative, out_of_fuel};
use crate::ir::{Block, BlockId, Check, Func, Op, Term, Value, Var};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A loop inside, which has its final form.
#[derive(Clone, Debug)]
pub(super) struct Inner {
    pub(super) header: BlockId,
    /// Blocks that were added for it.
    pub(super) added: Range<u32>,
}

impl Inner {
    /// Whether it has no guard of its own.
    fn is_as_it_was(&self) -> bool {
        self.added.is_empty()
    }
}

/// Copies the blocks of a loop; the copies lead to each other, and out of the loop as the originals.
pub(super) fn copy(func: &mut Func, the_loop: &Loop) -> Twins {
    let first = func.blocks.len() as u32;
    let twins: Twins = the_loop.blocks.iter().copied().zip((first..).map(BlockId)).collect();
    for &b in &the_loop.blocks {
        let mut twin = func.blocks[b.0 as usize].clone();
        twin.cold = true;
        for s in twin.term.successors().collect::<BTreeSet<_>>() {
            if let Some(&to) = twins.get(&s) {
                retarget(&mut twin.term, s, to);
            }
        }
        func.blocks.push(twin);
    }
    twins
}

/// Takes the checks off the accesses that a plan covers.
pub(super) fn cover(func: &mut Func, plan: &Plan) {
    for (&(b, i), &region) in &plan.covered {
        if let (Op::Load { check, .. } | Op::Store { check, .. }, _) = &mut func.blocks[b.0 as usize].ops[i] {
            *check = Check::Direct(region);
        }
    }
}

/// Accesses of a loop, those of loops inside not counted, that are checked in its twins alone.
pub(super) fn covered_before(func: &Func, nest: &Nest, twins: &Twins) -> u32 {
    let own = |b: &&BlockId| !nest.inner.iter().any(|i| i.the_loop.blocks.contains(b));
    let checked = |b: BlockId| func.blocks[b.0 as usize].ops.iter().filter(|(op, _)| op.may_trap_on_access()).count();
    nest.the_loop.blocks.iter().filter(own).map(|b| (checked(twins[b]) - checked(*b)) as u32).sum()
}

/// A loop that got its fast form.
pub(super) struct Made {
    pub(super) guard: BlockId,
    /// How control enters it, if it is one that a loop around may enter without the guard.
    pub(super) entrance: Option<Entrance>,
}

/// Makes the blocks of a loop its fast form, under a guard that falls back on the twins. Those are of an outer loop,
/// if there is one. Without one, the ways into the loop from outside are left to the caller.
pub(super) fn version(
    func: &mut Func,
    plan: &Plan,
    here: &Around<'_>,
    inner_loops: &[Inner],
    around: Option<&Around<'_>>,
) -> Made {
    let (header, twins, outermost) = (here.the_loop.header, here.twins, around.is_none());
    let now = natural_loop_among(func, header, here.blocks(func));
    let leads_there = |b: &BlockId| func.blocks[b.0 as usize].term.successors().any(|s| s == header);
    let outside = around.map(|around| around.blocks(func)).unwrap_or_default();
    let entries: Vec<BlockId> = outside.into_iter().filter(|b| !now.contains(b) && leads_there(b)).collect();
    let prepaid = !now.iter().flat_map(|b| &func.blocks[b.0 as usize].ops).any(|(op, _)| sees_fuel(op));
    let for_ever = plan.constraints.iter().all(|c| c.step.is_zero()) && plan.ahead.iter().all(Ahead::is_for_ever);
    let limited = prepaid || !for_ever;
    let insn = first_insn(func, header);
    let mut versioning = Versioning { insn, func, header, inner_loops, now };
    // At the end of a slice there is not enough left for them, and a trip or some are slow: so the way back from
    // the slow form has to be there.
    let inner_edges = plan.inner_edges.filter(|_| prepaid && outermost && inner_loops.iter().all(Inner::is_as_it_was));
    if inner_edges.is_some() {
        versioning.take_inner_edges_unasked();
    }
    let count = limited.then(|| versioning.choose_counter(plan, prepaid));
    // Without a test at its start a fast loop ends in the slow form, which must not be that of a loop
    // around it.
    let may_leave_out = |tested: &Tested| outermost || matches!(tested, Tested::AtLatch(_));
    let counts_up = matches!(count, Some(Count::Up { .. }));
    let test = plan.exit_test.as_ref().filter(|(_, tested)| counts_up && may_leave_out(tested));
    // The guard comes last and the way back to it first: this block holds its place.
    let guard = versioning.push(Block::empty(insn, Term::Return));
    if prepaid {
        let count = count.as_ref().expect("a prepaid loop is limited");
        versioning.give_back_at_refills(count);
        versioning.give_back_at_exits(count);
    }
    versioning.make_latches(count.as_ref(), test.map(|t| &t.1), prepaid, guard);
    let has_inner = !inner_loops.is_empty();
    let made = Guard {
        func: versioning.func,
        insn: versioning.insn,
        plan,
        slow: twins[&header],
        fast: header,
        count: count.as_ref(),
        test,
        prepaid,
        has_inner,
        inner_edges,
    }
    .make();
    func.blocks[guard.0 as usize].term = Term::Jump(made.first);
    for b in &entries {
        retarget(&mut func.blocks[b.0 as usize].term, header, guard);
    }
    if outermost {
        // A loop that fell back on the slow form because of an inner loop may be fast in the next trip; one that did for
        // something else, such as a look back beyond the start, some trips later.
        let again = if has_inner { guard } else { tries_again(func, insn, guard, twins[&header]) };
        for twin in twins.values() {
            retarget(&mut func.blocks[twin.0 as usize].term, twins[&header], again);
        }
    }
    let is_plain = prepaid && !has_inner;
    let entrance = Entrance { from: entries, guard, settled: made.settled, edges: made.edges, insn };
    Made { guard, entrance: is_plain.then_some(entrance) }
}

/// Trips of a slow form after which the guard runs again.
const SLOW_TRIPS: i64 = 32;

/// Asks the guard again once in some trips. Each trip takes an edge, so the number of edges left counts them.
fn tries_again(func: &mut Func, insn: u32, guard: BlockId, slow: BlockId) -> BlockId {
    let left = fresh(func);
    let term =
        Term::Branch { width: Width::W64, cond: Cond::Eq, lhs: left, rhs: Value::Imm(0), then: guard, otherwise: slow };
    let mut block = Block::empty(insn, term);
    block.ops.push((alu(AluOp::And, left, Var::FUEL, Value::Imm(SLOW_TRIPS - 1)), insn));
    block.cold = func.blocks[slow.0 as usize].cold;
    func.blocks.push(block);
    BlockId(func.blocks.len() as u32 - 1)
}

/// Instruction slot at which a block starts.
pub(super) fn first_insn(func: &Func, b: BlockId) -> u32 {
    let block = &func.blocks[b.0 as usize];
    block.ops.first().map_or(block.term_insn, |(_, insn)| *insn)
}

/// Instruction slots of blocks, in order.
pub(super) fn insns<'b>(func: &Func, blocks: impl IntoIterator<Item = &'b BlockId>) -> Vec<u32> {
    let of_block = |b: &BlockId| {
        let block = &func.blocks[b.0 as usize];
        block.ops.iter().map(|(_, insn)| *insn).chain([block.term_insn])
    };
    let mut insns: Vec<u32> = blocks.into_iter().flat_map(of_block).collect();
    insns.sort_unstable();
    insns.dedup();
    insns
}

/// Whether an operation looks at `FUEL`, or ends the program with what is in it.
fn sees_fuel(op: &Op) -> bool {
    op.may_trap_on_access() || matches!(op, Op::CallHelper { .. } | Op::CallLocal { .. })
}

struct Versioning<'f> {
    func: &'f mut Func,
    header: BlockId,
    insn: u32,
    inner_loops: &'f [Inner],
    /// The blocks of the loop, with those added for the loops inside.
    now: BTreeSet<BlockId>,
}

impl Versioning<'_> {
    fn push(&mut self, block: Block) -> BlockId {
        self.func.blocks.push(block);
        BlockId(self.func.blocks.len() as u32 - 1)
    }

    fn block(&self, b: BlockId) -> &Block {
        &self.func.blocks[b.0 as usize]
    }

    /// Loops inside, for whose edges the guard leaves enough, pay without asking whether there is enough.
    fn take_inner_edges_unasked(&mut self) {
        for &b in &self.now {
            let block = &mut self.func.blocks[b.0 as usize];
            if let Term::Branch { cond: Cond::SLt, lhs: Var::FUEL, otherwise, .. } = block.term
                && otherwise != self.header
            {
                block.term = Term::Jump(otherwise);
            }
        }
        self.now = natural_loop_among(self.func, self.header, std::mem::take(&mut self.now));
    }

    /// Takes the first counter that is known wherever edges have to be given back.
    fn choose_counter(&mut self, plan: &Plan, prepaid: bool) -> Count {
        let mut asked: Vec<BlockId> = Vec::new();
        if prepaid {
            asked.extend(self.exits().into_iter().map(|(from, _)| from));
            asked.extend(self.inner_refills());
        }
        let known = |c: &&Counter| asked.iter().all(|&b| self.offset_at(c, b).is_some());
        match plan.counters.iter().find(known).cloned() {
            Some(counter) => Count::Up { counter, limit: fresh(self.func) },
            None => Count::Down { trips: fresh(self.func) },
        }
    }

    /// How far the counter is from its value at the header, at the end of a block. Loops inside do not
    /// write it.
    fn offset_at(&self, counter: &Counter, b: BlockId) -> Option<i64> {
        let original = self.inner_loops.iter().find(|i| i.added.contains(&b.0)).map_or(b, |i| i.header);
        counter.after.get(&original).copied()
    }

    /// Edges that leave the loop.
    fn exits(&self) -> Vec<(BlockId, BlockId)> {
        let ways = |&b: &BlockId| self.block(b).term.successors().map(move |s| (b, s));
        self.now.iter().flat_map(ways).filter(|(_, s)| !self.now.contains(s)).collect()
    }

    /// Blocks of inner loops that ask for fuel.
    fn inner_refills(&self) -> Vec<BlockId> {
        let asks = |&b: &BlockId| {
            let block = self.block(b);
            block.ops.last().is_some_and(|(op, _)| *op == Op::Refill) && block.term != Term::Jump(self.header)
        };
        self.now.iter().copied().filter(asks).collect()
    }

    /// Gives back the unused edges on the ways out.
    fn give_back_at_exits(&mut self, count: &Count) {
        let mut made: BTreeMap<(BlockId, Option<i64>), BlockId> = BTreeMap::new();
        for (from, to) in self.exits() {
            let offset = match count {
                Count::Up { counter, .. } => self.offset_at(counter, from),
                Count::Down { .. } => None,
            };
            let exit = match made.get(&(to, offset)) {
                Some(&exit) => exit,
                None => {
                    let mut block = Block::empty(self.insn, Term::Jump(to));
                    block.cold = self.block(to).cold;
                    block.ops = self.give_back(count, offset);
                    let exit = self.push(block);
                    made.insert((to, offset), exit);
                    exit
                }
            };
            retarget(&mut self.func.blocks[from.0 as usize].term, to, exit);
        }
    }

    /// A refill of an inner loop finds all fuel in `FUEL`. That may be enough: then the host is not asked.
    fn give_back_at_refills(&mut self, count: &Count) {
        for b in self.inner_refills() {
            let mut ops;
            match count {
                Count::Up { counter, limit } => {
                    let offset = self.offset_at(counter, b).expect("the counter was chosen so");
                    ops = self.give_back(count, Some(offset));
                    let last = alu(AluOp::Add, *limit, counter.var, Value::Imm(counter.step - offset));
                    ops.push((last, self.insn));
                }
                Count::Down { trips } => {
                    ops = self.give_back(count, None);
                    ops.push((mov(*trips, Value::Imm(0)), self.insn));
                }
            }
            let block = &mut self.func.blocks[b.0 as usize];
            let refill = block.ops.pop().expect("a refill block ends with a refill");
            let Term::Jump(target) = block.term else { unreachable!("a refill block ends with a jump") };
            block.ops.extend(ops);
            let mut asks = Block::empty(block.term_insn, Term::Jump(target));
            asks.ops.push(refill);
            asks.cold = true;
            let asks = self.push(asks);
            self.func.blocks[b.0 as usize].term = out_of_fuel(asks, target);
        }
    }

    /// `FUEL` plus the edges that were paid and not taken.
    fn give_back(&mut self, count: &Count, offset: Option<i64>) -> Vec<(Op, u32)> {
        let insn = self.insn;
        let ops = match count {
            Count::Down { trips } => vec![alu(AluOp::Add, Var::FUEL, Var::FUEL, (*trips).into())],
            Count::Up { counter, limit } => {
                // With h the counter at the header of this trip: (limit - h) / step - 1.
                let offset = offset.expect("the counter was chosen so");
                let (step, left) = (counter.step, fresh(self.func));
                let (from, to) = if step > 0 { (counter.var, *limit) } else { (*limit, counter.var) };
                let beyond = if step > 0 { offset - step } else { step - offset };
                let mut ops = vec![alu(AluOp::Sub, left, to, from.into())];
                if beyond != 0 {
                    ops.push(alu(AluOp::Add, left, left, Value::Imm(beyond)));
                }
                ops.extend(divided(left, step.unsigned_abs()));
                ops.push(alu(AluOp::Add, Var::FUEL, Var::FUEL, left.into()));
                ops
            }
        };
        ops.into_iter().map(|op| (op, insn)).collect()
    }

    /// Rewrites the ends of trips.
    fn make_latches(&mut self, count: Option<&Count>, tested: Option<&Tested>, prepaid: bool, guard: BlockId) {
        let latches: Vec<BlockId> = self.now.iter().copied().filter(|&b| self.pays_for_trip(b)).collect();
        let Some(count) = count else { return };
        let mut done = BTreeSet::new();
        match tested {
            Some(Tested::AtLatch(blocks)) => {
                for &b in blocks {
                    done.insert(self.merge_test(b, count, prepaid, guard));
                }
            }
            // The guard admits no trip that this test would end.
            Some(&Tested::Before(b)) => {
                let inside = self.stays_at(b);
                self.func.blocks[b.0 as usize].term = Term::Jump(inside);
            }
            None => {}
        }
        for b in latches.into_iter().filter(|b| !done.contains(b)) {
            let insn = self.block(b).term_insn;
            let stop = self.stop(insn, guard);
            let (pay, paying) = (self.func.blocks[b.0 as usize].ops.pop(), self.block(b).term);
            let next = if prepaid {
                self.header
            } else {
                let mut block = Block::empty(insn, paying);
                block.ops.extend(pay);
                self.push(block)
            };
            self.end_trip(b, count, next, stop);
        }
    }

    /// Ends a block with the question whether another trip may follow.
    fn end_trip(&mut self, b: BlockId, count: &Count, next: BlockId, stop: BlockId) {
        let block = &mut self.func.blocks[b.0 as usize];
        block.term = match count {
            Count::Up { counter, limit } => Term::Branch {
                width: Width::W64,
                cond: Cond::Ne,
                lhs: counter.var,
                rhs: (*limit).into(),
                then: next,
                otherwise: stop,
            },
            Count::Down { trips } => {
                let insn = block.term_insn;
                block.ops.push((alu(AluOp::Sub, *trips, *trips, Value::Imm(1)), insn));
                is_negative(*trips, stop, next)
            }
        };
    }

    /// Leaves an exit test at the end of a trip to the last one. Gives the latch that followed it.
    fn merge_test(&mut self, b: BlockId, count: &Count, prepaid: bool, guard: BlockId) -> BlockId {
        let latch = self.stays_at(b);
        let insn = self.block(latch).term_insn;
        let stop = self.stop(insn, guard);
        let (mut test, test_insn) = (self.block(b).term, self.block(b).term_insn);
        retarget(&mut test, latch, stop);
        if prepaid {
            // All that was paid for was used: nothing to give back on this way out.
            for s in test.successors().filter(|&s| s != stop).collect::<Vec<_>>() {
                if let Term::Jump(out) = self.block(s).term {
                    retarget(&mut test, s, out);
                }
            }
        }
        let test = self.push(Block::empty(test_insn, test));
        let next = if prepaid { self.header } else { latch };
        self.end_trip(b, count, next, test);
        latch
    }

    fn stays_at(&self, b: BlockId) -> BlockId {
        self.block(b).term.successors().find(|s| self.now.contains(s)).expect("a test of the loop's own")
    }

    /// Pays for an edge, and goes to the guard.
    fn stop(&mut self, insn: u32, guard: BlockId) -> BlockId {
        let mut asks = Block::empty(insn, Term::Jump(guard));
        asks.ops.push((Op::Refill, insn));
        asks.cold = true;
        let asks = self.push(asks);
        let mut pays = Block::empty(insn, out_of_fuel(asks, guard));
        pays.ops.push((charge(), insn));
        self.push(pays)
    }

    /// Whether the block ends with the charge of an edge to the header.
    fn pays_for_trip(&self, b: BlockId) -> bool {
        let block = self.block(b);
        block.ops.last().is_some_and(|(op, _)| *op == charge())
            && matches!(block.term, Term::Branch { cond: Cond::SLt, lhs: Var::FUEL, otherwise, .. } if otherwise == self.header)
    }
}
