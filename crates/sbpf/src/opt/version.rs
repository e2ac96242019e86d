//! Two copies of a loop under one guard.
//!
//! ```text
//!            entry                      guard:  T = most trips that all constraints allow, and FUEL
//!              |                                if none: slow
//!            guard <-------------+              FUEL -= T          (pays T retreating edges)
//!           /     \              |
//!        slow      fast          |      fast latch:  T -= 1; if T < 0 goto again; goto fast
//!        loop      loop          |      again:       FUEL -= 1 (refill when it is out)
//!          \        | \--again---+      fast exit:   FUEL += T          (what was not used)
//!           \      exits
//!            after
//! ```
//! Tests that end the loop and whose outcome the guard can tell ([`super::exits`]) are left out of the
//! fast copy: `T` is at most the trips after which they say "another", and the one before the fast latch
//! is made between it and `again`.
//!
//! The guard runs again after at most a slice of trips, so deadline and cancellation stay prompt.
//! `T` is paid in advance, but nothing inside may see that: before a call and before a refill of an
//! inner loop, `T` goes back to `FUEL` (the fast copy then meets its guard at the next latch).
//!
//! Loops are versioned from the inside out, so the blocks made here know of no outer trip counter;
//! versioning an outer loop adds its own to whatever it copies.

use super::analysis::{Constraint, Plan, Within};
use super::exits::{ExitTest, Stays};
use super::graph::Loop;
use crate::insn::{AluOp, Cond, Width};
use crate::ir::lower::{charge, is_negative, out_of_fuel};
use crate::ir::{BinOp, Block, BlockId, Check, Func, Op, Term, Value, Var};
use std::collections::BTreeMap;

/// Adds the fast copy of a loop. The blocks of the loop become the slow copy.
pub(super) fn version(func: &mut Func, the_loop: &Loop, plan: &Plan) {
    let entries = entries(func, the_loop);
    let mut versioning = Versioning {
        trips: fresh(func),
        scratch: [fresh(func), fresh(func), fresh(func)],
        insn: first_insn(func, the_loop.header),
        func,
        copies: BTreeMap::new(),
    };
    versioning.copy(the_loop, plan);
    let guard = versioning.guard(the_loop.header, plan);
    versioning.fix_copies(the_loop, guard, plan);
    for (block, edge) in entries {
        retarget(&mut func.blocks[block.0 as usize].term, edge, guard);
    }
    for b in &the_loop.blocks {
        func.blocks[b.0 as usize].cold = true;
    }
}

/// Instruction slot at which a block starts.
pub(super) fn first_insn(func: &Func, b: BlockId) -> u32 {
    let block = &func.blocks[b.0 as usize];
    block.ops.first().map_or(block.term_insn, |(_, insn)| *insn)
}

fn fresh(func: &mut Func) -> Var {
    func.vars += 1;
    Var(func.vars - 1)
}

/// Blocks outside the loop that go to its header.
fn entries(func: &Func, the_loop: &Loop) -> Vec<(BlockId, BlockId)> {
    (0..func.blocks.len() as u32)
        .map(BlockId)
        .filter(|b| !the_loop.blocks.contains(b))
        .filter(|b| func.blocks[b.0 as usize].term.successors().any(|s| s == the_loop.header))
        .map(|b| (b, the_loop.header))
        .collect()
}

fn retarget(term: &mut Term, from: BlockId, to: BlockId) {
    let change = |b: &mut BlockId| {
        if *b == from {
            *b = to;
        }
    };
    match term {
        Term::Jump(b) => change(b),
        Term::Branch { then, otherwise, .. } => {
            change(then);
            change(otherwise);
        }
        Term::Return => {}
    }
}

struct Versioning<'f> {
    func: &'f mut Func,
    trips: Var,
    scratch: [Var; 3],
    insn: u32,
    /// From blocks of the loop to their fast copies.
    copies: BTreeMap<BlockId, BlockId>,
}

impl Versioning<'_> {
    fn push(&mut self, block: Block) -> BlockId {
        self.func.blocks.push(block);
        BlockId(self.func.blocks.len() as u32 - 1)
    }

    /// Copies the blocks, with covered accesses unchecked. Edges still go to the originals.
    fn copy(&mut self, the_loop: &Loop, plan: &Plan) {
        for &b in &the_loop.blocks {
            let mut block = self.func.blocks[b.0 as usize].clone();
            for (i, (op, _)) in block.ops.iter_mut().enumerate() {
                if let (Some(&region), Op::Load { check, .. } | Op::Store { check, .. }) =
                    (plan.covered.get(&(b, i)), op)
                {
                    *check = Check::Direct(region);
                }
            }
            self.give_back_before_calls(&mut block);
            block.reserved.push(self.trips);
            let copy = self.push(block);
            self.copies.insert(b, copy);
        }
    }

    /// Calls and refills must find all fuel in `FUEL`.
    fn give_back_before_calls(&self, block: &mut Block) {
        let calls = |op: &Op| matches!(op, Op::CallHelper { .. } | Op::CallLocal { .. } | Op::Refill);
        if !block.ops.iter().any(|(op, _)| calls(op)) {
            return;
        }
        let mut ops = Vec::with_capacity(block.ops.len() + 2);
        for (op, insn) in block.ops.drain(..) {
            if calls(&op) {
                ops.push((add(Var::FUEL, self.trips), insn));
                ops.push((zero(self.trips), insn));
            }
            ops.push((op, insn));
        }
        block.ops = ops;
    }

    /// Sends the edges of the fast copy where they belong.
    fn fix_copies(&mut self, the_loop: &Loop, guard: BlockId, plan: &Plan) {
        let mut exits: BTreeMap<BlockId, BlockId> = BTreeMap::new();
        for copy in self.copies.clone().into_values() {
            if self.is_refill(copy) {
                self.split_refill(copy);
            }
            if self.pays_for(copy, the_loop.header) {
                let insn = self.func.blocks[copy.0 as usize].term_insn;
                let mut used_up = self.again(insn, guard);
                let test = plan.exits.iter().find(|e| self.copies[&e.latch] == copy);
                if let Some(test) = test {
                    used_up = self.late_test(test, used_up, &mut exits);
                }
                self.make_latch(copy, used_up);
                continue;
            }
            if let Some(test) = plan.exits.iter().find(|e| self.copies[&e.block] == copy) {
                self.func.blocks[copy.0 as usize].term = Term::Jump(self.copies[&test.latch]);
                continue;
            }
            let mut term = self.func.blocks[copy.0 as usize].term;
            for s in term.successors().collect::<Vec<_>>() {
                let to = match self.copies.get(&s) {
                    Some(&c) => c,
                    None if !the_loop.blocks.contains(&s) => *exits.entry(s).or_insert_with(|| self.exit(s)),
                    None => continue,
                };
                retarget(&mut term, s, to);
            }
            self.func.blocks[copy.0 as usize].term = term;
        }
    }

    /// The way out of the fast copy: unused trips go back.
    fn exit(&mut self, to: BlockId) -> BlockId {
        let mut block = Block::empty(self.insn, Term::Jump(to));
        block.ops.push((add(Var::FUEL, self.trips), self.insn));
        block.ops.push((zero(self.trips), self.insn));
        self.push(block)
    }

    fn is_refill(&self, b: BlockId) -> bool {
        self.func.blocks[b.0 as usize].ops.last().is_some_and(|(op, _)| *op == Op::Refill)
    }

    /// What was given back may be enough: then the host need not be asked.
    fn split_refill(&mut self, b: BlockId) {
        let block = &mut self.func.blocks[b.0 as usize];
        let refill = block.ops.pop().expect("a refill block ends with a refill");
        let (term, insn, reserved) = (block.term, block.term_insn, block.reserved.clone());
        let asks = self.push(Block { ops: vec![refill], term, term_insn: insn, cold: true, reserved });
        let Term::Jump(target) = term else { unreachable!("a refill block ends with a jump") };
        self.func.blocks[b.0 as usize].term = out_of_fuel(asks, target);
        // `asks` goes where the refill went; its edge is fixed like that of any copy.
        if let Some(&copy) = self.copies.get(&target) {
            self.func.blocks[asks.0 as usize].term = Term::Jump(copy);
        }
    }

    /// Whether the block ends with the charge of an edge to the header.
    fn pays_for(&self, b: BlockId, header: BlockId) -> bool {
        let block = &self.func.blocks[b.0 as usize];
        let pays = block.ops.last().is_some_and(|(op, _)| *op == charge());
        pays && matches!(
            block.term,
            Term::Branch { cond: Cond::SLt, lhs: Var::FUEL, otherwise, .. } if otherwise == header
        )
    }

    /// Makes a test after the last trip that the guard allowed: out of the loop, or to `again`.
    fn late_test(&mut self, test: &ExitTest, again: BlockId, exits: &mut BTreeMap<BlockId, BlockId>) -> BlockId {
        let original = &self.func.blocks[test.block.0 as usize];
        let (mut term, insn) = (original.term, original.term_insn);
        for s in term.successors().collect::<Vec<_>>() {
            let to = if s == test.latch { again } else { *exits.entry(s).or_insert_with(|| self.exit(s)) };
            retarget(&mut term, s, to);
        }
        // No trip is left, and none was taken too many: the edge of the last one is not paid yet.
        let mut block = Block::empty(insn, term);
        block.ops.push((zero(self.trips), insn));
        self.push(block)
    }

    /// A latch that uses up one trip instead of paying; when there is none left, control goes to
    /// `used_up`.
    fn make_latch(&mut self, b: BlockId, used_up: BlockId) {
        let insn = self.func.blocks[b.0 as usize].term_insn;
        let Term::Branch { otherwise: header, .. } = self.func.blocks[b.0 as usize].term else {
            unreachable!("a charge ends with a branch")
        };
        let trips = self.trips;
        let block = &mut self.func.blocks[b.0 as usize];
        *block.ops.last_mut().expect("a charge is an operation") = (sub(trips, Value::Imm(1)), insn);
        block.term = is_negative(trips, used_up, self.copies[&header]);
    }

    /// Pays for the edge that was not paid in advance, and goes to the guard.
    fn again(&mut self, insn: u32, guard: BlockId) -> BlockId {
        let mut asks = Block::empty(insn, Term::Jump(guard));
        asks.ops.push((Op::Refill, insn));
        asks.cold = true;
        let asks = self.push(asks);
        let mut pays = Block::empty(insn, out_of_fuel(asks, guard));
        pays.ops.push((zero(self.trips), insn));
        pays.ops.push((charge(), insn));
        self.push(pays)
    }

    /// The guard's first block.
    fn guard(&mut self, header: BlockId, plan: &Plan) -> BlockId {
        let insn = self.insn;
        let slow = header;
        let mut pays = Block::empty(insn, Term::Jump(self.copies[&header]));
        pays.ops.push((sub(Var::FUEL, self.trips.into()), insn));
        let mut next = self.push(pays);
        for test in plan.exits.iter().rev() {
            next = self.exit_trips(test, next);
        }
        for constraint in plan.constraints.iter().rev() {
            next = self.constraint(constraint, next, slow);
        }
        for &(var, of, plus) in plan.equalities.iter().rev() {
            next = self.equality(var, of, plus, next, slow);
        }
        let mut first = Block::empty(insn, Term::Jump(next));
        first.ops.push((mov(self.trips, Var::FUEL.into()), insn));
        if plan.has_inner {
            // Leave the inner loops fuel of their own, or they would take it back each time.
            first.ops.push((alu(AluOp::Rsh, self.trips, self.trips, Value::Imm(1)), insn));
        }
        self.push(first)
    }

    /// Goes to `slow` unless `var == of + plus`.
    fn equality(&mut self, var: Var, of: Var, plus: i64, next: BlockId, slow: BlockId) -> BlockId {
        let expected = self.scratch[0];
        let differs = Term::Branch {
            width: Width::W64,
            cond: Cond::Ne,
            lhs: var,
            rhs: expected.into(),
            then: slow,
            otherwise: next,
        };
        let mut block = Block::empty(self.insn, differs);
        block.ops.push((mov(expected, of.into()), self.insn));
        block.ops.push((alu(AluOp::Add, expected, expected, Value::Imm(plus)), self.insn));
        self.push(block)
    }

    /// Lowers `T` to the trips after which a test surely says "another"; 0 when it says so after none.
    fn exit_trips(&mut self, test: &ExitTest, next: BlockId) -> BlockId {
        let [start, limit, quotient] = self.scratch;
        let (insn, trips) = (self.insn, self.trips);
        let signed = matches!(test.stays, Stays::Short { signed: true } | Stays::ShortOrEqual { signed: true });
        let mut ops = vec![mov(start, Value::Imm(test.constant))];
        self.add_terms(&test.terms, start, quotient, &mut ops);
        ops.push(match (test.width, test.limit) {
            (Width::W64, limit_value) => mov(limit, limit_value),
            (Width::W32, Value::Imm(i)) if signed => mov(limit, Value::Imm(i64::from(i as i32))),
            (Width::W32, Value::Imm(i)) => mov(limit, Value::Imm(i64::from(i as u32))),
            (Width::W32, Value::Var(v)) if signed => Op::MovSx { width: Width::W64, dst: limit, src: v, bits: 32 },
            (Width::W32, v @ Value::Var(_)) => Op::MovZx { dst: limit, src: v, bits: 32 },
        });
        // The distance to go, towards the limit; as an unsigned number it is exact.
        let distance = match test.step > 0 {
            true => vec![sub(limit, start.into())],
            false => vec![alu(AluOp::Sub, limit, start, limit.into())],
        };
        let step = test.step.unsigned_abs() as i64;
        let divide = match step.count_ones() {
            1 => alu(AluOp::Rsh, limit, limit, Value::Imm(i64::from(step.trailing_zeros()))),
            _ => alu(AluOp::Div, limit, limit, Value::Imm(step)),
        };
        let at_most = Op::Bin { op: BinOp::UMin, dst: trips, lhs: trips, rhs: limit.into() };
        let plus_one = alu(AluOp::Add, limit, limit, Value::Imm(1));
        let tag = |ops: Vec<Op>| ops.into_iter().map(|op| (op, insn)).collect::<Vec<_>>();
        let (count, outside) = match (test.stays, test.step > 0) {
            // It may be stepped over; then it is met later, if ever.
            (Stays::Unequal, _) => {
                let mut only = Block::empty(insn, Term::Jump(next));
                only.ops = tag([ops, distance, vec![divide, at_most]].concat());
                return self.push(only);
            }
            (Stays::Short { signed }, up) => {
                (vec![sub(limit, Value::Imm(1)), divide, plus_one, at_most], beyond(signed, up, true))
            }
            (Stays::ShortOrEqual { signed }, up) => (vec![divide, plus_one, at_most], beyond(signed, up, false)),
        };
        let mut some = Block::empty(insn, Term::Jump(next));
        some.ops = tag([distance, count].concat());
        let some = self.push(some);
        let mut none = Block::empty(insn, Term::Jump(next));
        none.ops.push((zero(trips), insn));
        let none = self.push(none);
        let over = Term::Branch {
            width: Width::W64,
            cond: outside,
            lhs: start,
            rhs: limit.into(),
            then: none,
            otherwise: some,
        };
        let mut first = Block::empty(insn, over);
        first.ops = tag(ops);
        self.push(first)
    }

    /// Adds terms to a sum.
    fn add_terms(&self, terms: &[(Var, i64)], sum: Var, product: Var, ops: &mut Vec<Op>) {
        for &(v, k) in terms {
            if k == 1 {
                ops.push(add(sum, v));
            } else {
                ops.push(alu(AluOp::Mul, product, v, Value::Imm(k)));
                ops.push(add(sum, product));
            }
        }
    }

    /// Lowers `T` to the trips that one constraint allows; goes to `slow` when it allows none.
    fn constraint(&mut self, c: &Constraint, next: BlockId, slow: BlockId) -> BlockId {
        let [start, room, quotient] = self.scratch;
        let insn = self.insn;
        let (base, limit) = match c.within {
            Within::Region { region, write } => (region.base(), Op::RegionLen { dst: room, region, write }),
            Within::Bits(bits) => (0, mov(room, Value::Imm(1 << bits))),
        };
        // start = first byte touched in the first trip, relative to the region.
        let mut ops = vec![mov(start, Value::Imm(c.lo.wrapping_sub(base as i64)))];
        self.add_terms(&c.terms, start, quotient, &mut ops);
        ops.push(limit);
        // room = bytes that stay free behind the last byte of the first trip.
        let trips = vec![sub(room, start.into()), sub(room, Value::Imm(c.end - c.lo))];
        let mut lower = Vec::new();
        let mut at_most = |distance: Var, step: i64| {
            if step > 0 {
                lower.push(match step.count_ones() {
                    1 => alu(AluOp::Rsh, quotient, distance, Value::Imm(i64::from(step.trailing_zeros()))),
                    _ => alu(AluOp::Div, quotient, distance, Value::Imm(step)),
                });
                lower.push(Op::Bin { op: BinOp::UMin, dst: self.trips, lhs: self.trips, rhs: quotient.into() });
            }
        };
        at_most(room, c.step.1);
        at_most(start, -c.step.0);
        let tag = |ops: Vec<Op>| ops.into_iter().map(|op| (op, insn)).collect::<Vec<_>>();
        let mut last = Block::empty(insn, Term::Jump(next));
        last.ops = tag(lower);
        let last = if last.ops.is_empty() { next } else { self.push(last) };
        let mut middle = Block::empty(insn, is_negative(room, slow, last));
        middle.ops = tag(trips);
        let middle = self.push(middle);
        let inside = Term::Branch {
            width: Width::W64,
            cond: Cond::Ge,
            lhs: start,
            rhs: room.into(),
            then: slow,
            otherwise: middle,
        };
        let mut first = Block::empty(insn, inside);
        first.ops = tag(ops);
        self.push(first)
    }
}

/// Whether something that steps up (or down) towards a limit is there already.
fn beyond(signed: bool, up: bool, or_equal: bool) -> Cond {
    match (signed, up, or_equal) {
        (false, true, true) => Cond::Ge,
        (false, true, false) => Cond::Gt,
        (false, false, true) => Cond::Le,
        (false, false, false) => Cond::Lt,
        (true, true, true) => Cond::SGe,
        (true, true, false) => Cond::SGt,
        (true, false, true) => Cond::SLe,
        (true, false, false) => Cond::SLt,
    }
}

fn alu(op: AluOp, dst: Var, lhs: Var, rhs: Value) -> Op {
    Op::Bin { op: BinOp::Alu(op, Width::W64), dst, lhs, rhs }
}

fn add(dst: Var, by: Var) -> Op {
    alu(AluOp::Add, dst, dst, by.into())
}

fn sub(dst: Var, by: Value) -> Op {
    alu(AluOp::Sub, dst, dst, by)
}

fn mov(dst: Var, src: Value) -> Op {
    Op::Mov { width: Width::W64, dst, src }
}

fn zero(dst: Var) -> Op {
    mov(dst, Value::Imm(0))
}
