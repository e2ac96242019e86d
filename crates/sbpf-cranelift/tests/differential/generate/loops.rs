//! Loops of every shape that compilers make, and some that they do not.

mod counted;
mod reading;
mod rows;

use super::*;

/// A register that is kept on the stack now and then, and where.
#[derive(Clone, Copy)]
pub(super) struct Spill(Option<(usize, i64)>);

impl Generator<'_> {
    /// The body of a loop. A register that it leaves unset although it was set at the head is set again.
    pub(super) fn loop_body(&mut self, pointers: &[usize]) {
        let head = self.holds;
        self.loop_depth += 1;
        for &p in pointers {
            for _ in 0..1 + self.rng.below(3) {
                self.access_by(p);
            }
        }
        self.some_statements(if self.loop_depth > 2 { 2 } else { 4 });
        self.loop_depth -= 1;
        for (r, was) in head.into_iter().enumerate() {
            if self.holds[r] == Holds::Nothing && was != Holds::Nothing {
                self.line(format!("mov %r{r}, {r}"));
                self.holds[r] = Holds::Number;
            }
        }
        self.join(head);
    }

    pub(super) fn a_loop(&mut self) {
        if self.loop_depth >= 3 {
            return self.arithmetic();
        }
        match self.rng.below(30) {
            0..=6 => self.pointer_loop(),
            7..=12 => self.index_loop(),
            13..=14 => self.counter_loop(),
            15..=16 => self.search_loop(),
            17..=18 => self.stepping_loop(),
            19..=20 => self.runs_loop(),
            21..=23 => self.rows_loop(),
            24..=28 => self.parser_loop(),
            _ => self.open_loop(),
        }
    }

    /// Takes a register for the length of a loop.
    pub(super) fn take(&mut self) -> Option<usize> {
        // One that calls preserve, where possible: then the body may call.
        let free = |g: &Self, rs: std::ops::Range<usize>| -> Vec<usize> {
            rs.filter(|&r| !g.locked[r] && !g.holds[r].is_pointer()).collect()
        };
        let mut all = free(self, 6..10);
        if all.is_empty() || self.rng.percent(50) {
            all = free(self, 0..10);
        }
        if all.is_empty() || self.locked.iter().filter(|l| **l).count() > 6 {
            return None;
        }
        let r = self.rng.pick(&all);
        self.locked[r] = true;
        Some(r)
    }

    pub(super) fn release(&mut self, registers: &[usize]) {
        for &r in registers {
            self.locked[r] = false;
        }
    }

    /// Keeps a register on the stack during a loop, as compilers do that have too few; sometimes where the body writes, too.
    pub(super) fn spill(&mut self, r: usize) -> Spill {
        let spill = self.rng.percent(30).then(|| (r, -8 * self.rng.range(1, 24)));
        self.store(Spill(spill));
        Spill(spill)
    }

    pub(super) fn store(&mut self, spill: Spill) {
        if let Spill(Some((r, place))) = spill {
            self.line(format!("stxdw [%r10{place}], %r{r}"));
        }
    }

    pub(super) fn reload(&mut self, spill: Spill) {
        if let Spill(Some((r, place))) = spill {
            self.line(format!("ldxdw %r{r}, [%r10{place}]"));
        }
    }

    /// How many bytes or trips: a constant, or something that the input decides.
    pub(super) fn amount_into(&mut self, r: usize) {
        let numbers = self.registers(|h| h == Holds::Number);
        if numbers.is_empty() || self.rng.percent(40) {
            let n = self.rng.pick(&[0, 1, 2, 7, 8, 9, 16, 31, 32, 64, 65, 100]);
            self.line(format!("mov %r{r}, {n}"));
        } else {
            let n = self.rng.pick(&numbers);
            self.line(format!("mov %r{r}, %r{n}"));
            match self.rng.below(9) {
                0..=4 => {
                    let mask = self.rng.pick(&[15, 63, 127, 1023]);
                    self.line(format!("and %r{r}, {mask}"));
                }
                5 => {
                    let by = self.rng.range(-9, 9);
                    self.line(format!("add %r{r}, {by}"));
                }
                6 => {
                    let by = self.rng.range(1, 4);
                    self.line(format!("rsh %r{r}, {by}"));
                }
                _ => {}
            }
        }
        self.holds[r] = Holds::Number;
    }

    pub(super) fn maybe_break(&mut self, done: &str) {
        if self.rng.percent(25) && !self.registers(|h| h == Holds::Number).is_empty() {
            self.condition_to(done);
        }
    }

    /// Counts down without touching memory by the counter.
    pub(super) fn counter_loop(&mut self) {
        let Some(i) = self.take() else { return };
        let n = self.rng.pick(&[1, 2, 3, 10, 50, 300]);
        self.line(format!("mov %r{i}, {n}"));
        self.holds[i] = Holds::Number;
        let (top, done) = (self.label(), self.label());
        self.place(&top);
        let p = self.pointer_register(false);
        self.loop_body(p.as_slice());
        self.maybe_break(&done);
        let w = self.rng.pick(&["", "32"]);
        self.line(format!("add{w} %r{i}, -1"));
        self.line(format!("jne{w} %r{i}, 0, {top}"));
        self.place(&done);
        self.release(&[i]);
    }

    /// A loop with no bound but the budget, or whatever a condition makes of it.
    pub(super) fn open_loop(&mut self) {
        let Some(i) = self.take() else { return };
        self.line(format!("mov %r{i}, 0"));
        self.holds[i] = Holds::Number;
        let (top, done) = (self.label(), self.label());
        self.place(&top);
        self.line(format!("add %r{i}, 1"));
        let p = self.pointer_register(false);
        self.loop_body(p.as_slice());
        if self.rng.percent(70) {
            self.condition_to(&done);
        }
        if self.rng.percent(80) {
            self.line(format!("jgt %r{i}, 70, {done}"));
        }
        self.line(format!("ja {top}"));
        self.place(&done);
        self.release(&[i]);
    }
}
