//! The guard of a fast loop: for how many trips everything that was proved holds.

use super::ahead::{Ahead, EDGES_BITS, EDGES_MAX, TOO_MANY};
use super::analysis::Plan;
use super::constraint::{Constraint, Within};
use super::emit::{alu, divided, fresh, mov};
use super::linear::Linear;
use super::trips::{Counter, ExitTest, Relation, Tested};
use crate::insn::{AluOp, Cond, Width};
use crate::ir::{BinOp, Block, BlockId, Func, Op, Term, Value, Var};
use crate::machine::SLICE_EDGES;

/// How the fast form knows its last trip.
pub(super) enum Count {
    /// By a variable of the loop, which has the value of `limit` after the last trip.
    Up { counter: Counter, limit: Var },
    /// By a variable that is below 0 after the last trip.
    Down { trips: Var },
}

/// Most trips of a loop that pays for each of them: this many steps cannot wrap around.
const TRIPS_MAX: i64 = 1 << 20;

/// Bits of a number of trips: that or the fuel of a slice.
const TRIPS_BITS: u8 = 21;
const _: () = assert!(TRIPS_MAX < 1 << TRIPS_BITS && SLICE_EDGES < 1 << TRIPS_BITS);

/// The most that a place may move in a trip, where that is known only when the loop runs.
const STRIDE_MAX: i64 = (1 << 40) - 1;

pub(super) struct Guard<'a> {
    pub(super) func: &'a mut Func,
    pub(super) insn: u32,
    pub(super) plan: &'a Plan,
    pub(super) slow: BlockId,
    pub(super) fast: BlockId,
    /// `None` when the fast form may run for ever.
    pub(super) count: Option<&'a Count>,
    /// The loop's own test that the fast form leaves out.
    pub(super) test: Option<&'a (ExitTest, Tested)>,
    pub(super) prepaid: bool,
    pub(super) has_inner: bool,
    /// Most edges that the loops inside take in a trip, if they are to be paid by what the guard leaves.
    pub(super) inner_edges: Option<i64>,
}

/// How far places reach below and above by this many trips of an inner loop.
type Spread = (Var, (i64, i64));

/// A piece of the guard, made from its end.
struct Piece {
    ops: Vec<Op>,
    /// Goes to the slow form if so.
    refuses: Option<(Cond, Var, Value)>,
}

/// A guard that was made.
pub(super) struct Made {
    pub(super) first: BlockId,
    /// The block behind it, which makes a fast loop's limit out of its edges, and leads to it.
    pub(super) settled: BlockId,
    pub(super) edges: Var,
}

impl Guard<'_> {
    pub(super) fn make(mut self) -> Made {
        let trips = match self.count {
            Some(Count::Down { trips }) => *trips,
            _ => fresh(self.func),
        };
        let mut pieces = vec![Piece { ops: self.plan.slots.loads(), refuses: None }, self.most_trips(trips)];
        for &(var, of, plus) in &self.plan.equalities {
            pieces.push(self.equality(var, of, plus));
        }
        let scratch = [fresh(self.func), fresh(self.func), fresh(self.func)];
        if !self.plan.constraints.is_empty() {
            pieces.push(self.constraints(trips, scratch));
        }
        for ahead in &self.plan.ahead {
            let ops = self.look_ahead(ahead, trips, scratch);
            pieces.push(Piece { ops, refuses: None });
        }
        if let Some((test, tested)) = self.test {
            pieces.push(trips_of_test(test, tested, trips, scratch));
        }
        pieces.push(Piece { ops: self.settle(trips), refuses: None });
        let settled = match self.count {
            Some(Count::Up { counter, limit }) => self.limit(counter, *limit, trips),
            _ => self.fast,
        };
        self.fast = settled;
        Made { first: self.chain(pieces), settled, edges: trips }
    }

    /// A block of its own: code that has the edges already enters here. So a compiler sees one number of trips, and
    /// that the way to the limit is a multiple of the counter's step.
    fn limit(&mut self, counter: &Counter, limit: Var, edges: Var) -> BlockId {
        let insn = self.insn;
        let mut block = Block::empty(insn, Term::Jump(self.fast));
        block.ops.extend(stepped(self.func, counter, limit, edges).into_iter().map(|op| (op, insn)));
        self.func.blocks.push(block);
        BlockId(self.func.blocks.len() as u32 - 1)
    }

    fn chain(&mut self, pieces: Vec<Piece>) -> BlockId {
        let mut next = self.fast;
        let mut block = Block::empty(self.insn, Term::Jump(next));
        // From the end: a piece that can refuse ends a block.
        for piece in pieces.into_iter().rev() {
            if let Some((cond, lhs, rhs)) = piece.refuses {
                self.func.blocks.push(block);
                next = BlockId(self.func.blocks.len() as u32 - 1);
                let width = Width::W64;
                block =
                    Block::empty(self.insn, Term::Branch { width, cond, lhs, rhs, then: self.slow, otherwise: next });
            }
            let insn = self.insn;
            block.ops.splice(0..0, piece.ops.into_iter().map(|op| (op, insn)));
        }
        self.func.blocks.push(block);
        BlockId(self.func.blocks.len() as u32 - 1)
    }

    fn most_trips(&self, trips: Var) -> Piece {
        let all = |ops| Piece { ops, refuses: None };
        match (self.count, self.prepaid, self.inner_edges) {
            (None, ..) => all(Vec::new()),
            (_, false, _) => all(vec![mov(trips, Value::Imm(TRIPS_MAX))]),
            // With T edges of its own the loop makes T + 1 trips, each of which takes up to `edges` within.
            (_, true, Some(edges)) => {
                let share = (edges as u64 + 1).next_power_of_two().trailing_zeros();
                Piece {
                    ops: vec![
                        alu(AluOp::Sub, trips, Var::FUEL, Value::Imm(edges)),
                        alu(AluOp::Arsh, trips, trips, Value::Imm(i64::from(share))),
                    ],
                    refuses: Some((Cond::SLt, trips, Value::Imm(0))),
                }
            }
            // Leave the inner loops fuel of their own, or they would take it back each time.
            (_, true, None) if self.has_inner => all(vec![alu(AluOp::Rsh, trips, Var::FUEL, Value::Imm(1))]),
            (_, true, None) => all(vec![mov(trips, Var::FUEL.into())]),
        }
    }

    /// Lowers `T` to the trips that all constraints allow; refuses when one of them allows none. There is one
    /// branch for all: what is computed from a place out of bounds is not used.
    fn constraints(&mut self, trips: Var, scratch: [Var; 3]) -> Piece {
        let worst = fresh(self.func);
        let mut ops = vec![mov(worst, Value::Imm(0))];
        for constraint in &self.plan.constraints {
            ops.extend(places(constraint, None, worst, scratch));
            ops.extend(self.trips_of(constraint, trips, worst, scratch));
        }
        Piece { ops, refuses: Some((Cond::SLt, worst, Value::Imm(0))) }
    }

    /// Finds out how many edges a loop inside takes whenever control comes to it, and lowers `T` to the trips
    /// in which they are sure to be proved. Where that is not even the first, `T` stays, and the loop asks its own
    /// guard.
    fn look_ahead(&mut self, ahead: &Ahead, trips: Var, scratch: [Var; 3]) -> Vec<Op> {
        let [negative, difference, _] = scratch;
        let (edges, worst, most) = (ahead.edges, fresh(self.func), fresh(self.func));
        // A number below 0 becomes 0: the loop ends after one trip.
        let mut ops = sum(edges, &ahead.numerator, 0, negative);
        ops.extend([
            alu(AluOp::Arsh, negative, edges, Value::Imm(63)),
            alu(AluOp::Xor, negative, negative, Value::Imm(-1)),
            alu(AluOp::And, edges, edges, negative.into()),
        ]);
        ops.extend(divided(edges, ahead.step));
        ops.extend([mov(worst, Value::Imm(EDGES_MAX)), alu(AluOp::Sub, worst, worst, edges.into())]);
        for &(var, of, plus) in &ahead.equalities {
            // One of a number and its opposite is negative, unless it is 0.
            ops.extend([
                alu(AluOp::Add, difference, of, Value::Imm(plus)),
                alu(AluOp::Sub, difference, difference, var.into()),
                alu(AluOp::Or, worst, worst, difference.into()),
                Op::Neg { width: Width::W64, dst: difference, src: difference },
                alu(AluOp::Or, worst, worst, difference.into()),
            ]);
        }
        ops.push(mov(most, Value::Imm(i64::MAX)));
        for (constraint, spread) in &ahead.constraints {
            ops.extend(places(constraint, Some((edges, *spread)), worst, scratch));
            ops.extend(self.trips_of(constraint, most, worst, scratch));
        }
        // All bits set, if not proved.
        ops.push(alu(AluOp::Arsh, worst, worst, Value::Imm(63)));
        if self.count.is_some() {
            ops.extend([
                alu(AluOp::Or, most, most, worst.into()),
                Op::Bin { op: BinOp::UMin, dst: trips, lhs: trips, rhs: most.into() },
            ]);
        }
        ops.extend([
            alu(AluOp::Or, edges, edges, worst.into()),
            alu(AluOp::And, edges, edges, Value::Imm(TOO_MANY)),
            Op::Opaque { dst: edges, src: edges, bits: EDGES_BITS },
        ]);
        ops
    }

    /// Lowers `T` to the trips that a constraint allows, whose places are in `start` and `room`. `worst` is below 0
    /// afterwards if its stride is too long.
    fn trips_of(&mut self, c: &Constraint, trips: Var, worst: Var, [start, room, quotient]: [Var; 3]) -> Vec<Op> {
        let mut ops = Vec::new();
        if !c.step.terms.is_empty() {
            let (stride, sign) = (fresh(self.func), fresh(self.func));
            ops.extend(sum(stride, &c.step, 0, quotient));
            // The room on the side that it moves to, and its magnitude.
            ops.extend([
                alu(AluOp::Arsh, sign, stride, Value::Imm(63)),
                alu(AluOp::Xor, start, start, room.into()),
                alu(AluOp::And, start, start, sign.into()),
                alu(AluOp::Xor, room, room, start.into()),
                alu(AluOp::Xor, stride, stride, sign.into()),
                alu(AluOp::Sub, stride, stride, sign.into()),
                mov(sign, Value::Imm(STRIDE_MAX)),
                alu(AluOp::Sub, sign, sign, stride.into()),
                alu(AluOp::Or, worst, worst, sign.into()),
                alu(AluOp::Div, quotient, room, stride.into()),
                // A stride of 0 never leaves.
                alu(AluOp::Sub, stride, stride, Value::Imm(1)),
                alu(AluOp::Arsh, stride, stride, Value::Imm(63)),
                alu(AluOp::Or, quotient, quotient, stride.into()),
                Op::Bin { op: BinOp::UMin, dst: trips, lhs: trips, rhs: quotient.into() },
            ]);
            return ops;
        }
        for (distance, step) in [(room, c.step.hi), (start, -c.step.lo)] {
            if step > 0 {
                ops.extend(at_most(trips, distance, step as u64, quotient));
            }
        }
        ops
    }

    /// Refuses unless `var == of + plus`.
    fn equality(&mut self, var: Var, of: Var, plus: i64) -> Piece {
        let expected = fresh(self.func);
        let ops = vec![alu(AluOp::Add, expected, of, Value::Imm(plus))];
        Piece { ops, refuses: Some((Cond::Ne, var, expected.into())) }
    }

    /// Pays for the trips.
    fn settle(&mut self, trips: Var) -> Vec<Op> {
        // Out of sight: a compiler that follows the number of trips back to its parts would compute them again
        // wherever it asks for the number.
        let mut ops = Vec::new();
        if self.count.is_some() {
            ops.push(Op::Opaque { dst: trips, src: trips, bits: TRIPS_BITS });
        }
        if self.prepaid {
            ops.push(alu(AluOp::Sub, Var::FUEL, Var::FUEL, trips.into()));
        }
        ops
    }
}

/// `limit` = where the counter is after `edges + 1` trips.
fn stepped(func: &mut Func, counter: &Counter, limit: Var, edges: Var) -> Vec<Op> {
    let by = counter.step.unsigned_abs();
    let distance = fresh(func);
    // Multiplied as a whole: were the last step added behind, a code generator would leave it out
    // and compare with the value before the step, which then lives in another register.
    let mut ops = vec![alu(AluOp::Add, distance, edges, Value::Imm(1))];
    ops.extend(match by {
        1 => None,
        _ if by.is_power_of_two() => {
            Some(alu(AluOp::Lsh, distance, distance, Value::Imm(i64::from(by.trailing_zeros()))))
        }
        _ => Some(alu(AluOp::Mul, distance, distance, Value::Imm(by as i64))),
    });
    let way = if counter.step > 0 { AluOp::Add } else { AluOp::Sub };
    ops.push(alu(way, limit, counter.var, distance.into()));
    ops
}

/// `start` = the first byte touched in the first trip, relative to the region; `room` = bytes that stay free
/// behind the last one. `worst` is below 0 afterwards if one of them would be.
fn places(c: &Constraint, spread: Option<Spread>, worst: Var, [start, room, scratch]: [Var; 3]) -> Vec<Op> {
    let (base, limit) = match c.within {
        Within::Region { region, write } => (region.base(), Op::RegionLen { dst: room, region, write }),
        Within::Bits(bits) => (0, mov(room, Value::Imm(1 << bits))),
    };
    let from = Linear { terms: c.terms.clone(), lo: c.lo, hi: c.lo };
    let mut ops = sum(start, &from, 0i64.wrapping_sub(base as i64), scratch);
    ops.push(limit);
    ops.push(alu(AluOp::Sub, room, room, Value::Imm(c.end - c.lo)));
    if let Some((edges, (down, up))) = spread {
        let mut take = |from: Var, times: i64| {
            if times != 0 {
                ops.push(alu(AluOp::Mul, scratch, edges, Value::Imm(times)));
                ops.push(alu(AluOp::Sub, from, from, scratch.into()));
            }
        };
        take(start, down);
        take(room, down + up);
    }
    // Lengths are below 2^48, spans below 2^41, and what a spread adds is below 2^54. So if neither the start nor
    // the room behind a first trip at 0 is negative, their difference does not wrap around, and tells whether there
    // is room behind this one.
    ops.extend([
        alu(AluOp::Or, worst, worst, room.into()),
        alu(AluOp::Or, worst, worst, start.into()),
        alu(AluOp::Sub, room, room, start.into()),
        alu(AluOp::Or, worst, worst, room.into()),
    ]);
    ops
}

/// `trips = min(trips, distance / step)`.
fn at_most(trips: Var, distance: Var, step: u64, quotient: Var) -> Vec<Op> {
    let min = |by: Var| Op::Bin { op: BinOp::UMin, dst: trips, lhs: trips, rhs: by.into() };
    match step {
        1 => vec![min(distance)],
        _ => {
            let mut ops = vec![mov(quotient, distance.into())];
            ops.extend(divided(quotient, step));
            ops.push(min(quotient));
            ops
        }
    }
}

/// Lowers `T` to the trips before an exit test ends the loop, or to some fewer.
fn trips_of_test(test: &ExitTest, tested: &Tested, trips: Var, [a, b, quotient]: [Var; 3]) -> Piece {
    let signed = match test.relation {
        Relation::Below { signed } | Relation::BelowOrEqual { signed } => signed,
        Relation::Above { signed } | Relation::AboveOrEqual { signed } => signed,
        Relation::Different => false,
    };
    let narrow = test.width == Width::W32;
    // An offset that turns a signed comparison into an unsigned one.
    let bias = match (signed, narrow) {
        (false, _) => 0,
        (true, true) => 1 << 31,
        (true, false) => i64::MIN,
    };
    let step = test.step.abs();
    let mut ops = sum(a, &test.of, bias, quotient);
    ops.extend(sum(b, &test.bound, bias, quotient));
    if narrow {
        ops.extend([a, b].map(|v| Op::MovZx { dst: v, src: v.into(), bits: 32 }));
    }
    // How many trips pass is a quotient, rounded down. Where a sum wraps around it comes out smaller,
    // which is safe: the test is made again when the trips are over.
    let min = Op::Bin { op: BinOp::UMin, dst: quotient, lhs: a, rhs: b.into() };
    let mut adjust = |by: i64| {
        if by != 0 {
            ops.push(alu(AluOp::Add, b, b, Value::Imm(by)));
        }
    };
    match test.relation {
        Relation::Below { .. } => adjust(step - 1),
        Relation::BelowOrEqual { .. } => adjust(step),
        Relation::Above { .. } => adjust(1 - step),
        Relation::AboveOrEqual { .. } => adjust(-step),
        Relation::Different => {}
    }
    match test.relation {
        Relation::Below { .. } | Relation::BelowOrEqual { .. } => {
            ops.extend([min, alu(AluOp::Sub, quotient, b, quotient.into())]);
        }
        Relation::Above { .. } | Relation::AboveOrEqual { .. } => {
            ops.extend([min, alu(AluOp::Sub, quotient, a, quotient.into())]);
        }
        Relation::Different => {
            let (from, to) = if test.step > 0 { (a, b) } else { (b, a) };
            ops.push(alu(AluOp::Sub, quotient, to, from.into()));
            if narrow {
                ops.push(Op::MovZx { dst: quotient, src: quotient.into(), bits: 32 });
            }
            if step > 1 {
                ops.push(alu(AluOp::Add, quotient, quotient, Value::Imm(step - 1)));
            }
        }
    }
    ops.extend(divided(quotient, step as u64));
    let min = Op::Bin { op: BinOp::UMin, dst: trips, lhs: trips, rhs: quotient.into() };
    match tested {
        Tested::AtLatch(_) => {
            ops.push(min);
            Piece { ops, refuses: None }
        }
        Tested::Before(_) => {
            // The last trip must pass the test, too.
            ops.push(alu(AluOp::Sub, a, quotient, Value::Imm(1)));
            ops.push(Op::Bin { op: BinOp::UMin, dst: trips, lhs: trips, rhs: a.into() });
            Piece { ops, refuses: Some((Cond::Eq, quotient, Value::Imm(0))) }
        }
    }
}

/// `dst` = a form's value plus a constant.
fn sum(dst: Var, form: &Linear, plus: i64, scratch: Var) -> Vec<Op> {
    let constant = form.lo.wrapping_add(plus);
    let mut ops = Vec::new();
    let mut begun = false;
    for &(v, k) in form.terms.iter() {
        let term = if k == 1 {
            v
        } else {
            let into = if begun { scratch } else { dst };
            ops.push(alu(AluOp::Mul, into, v, Value::Imm(k)));
            into
        };
        if !begun {
            if term != dst {
                ops.push(mov(dst, term.into()));
            }
            begun = true;
        } else {
            ops.push(alu(AluOp::Add, dst, dst, term.into()));
        }
    }
    if !begun {
        ops.push(mov(dst, Value::Imm(constant)));
    } else if constant != 0 {
        ops.push(alu(AluOp::Add, dst, dst, Value::Imm(constant)));
    }
    ops
}
