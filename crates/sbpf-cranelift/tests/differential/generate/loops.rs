//! Loops of every shape that compilers make, and some that they do not.

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

    /// `for (p = base; p < end; p += stride)`, tested at the top or at the bottom.
    pub(super) fn pointer_loop(&mut self) {
        let Some(base) = self.pointer_register(false) else { return };
        let Some(end) = self.take() else { return };
        let Some(p) = self.take() else { return self.release(&[end]) };
        let stride = self.rng.pick(&[1, 1, 2, 4, 4, 8, 8, 8, 12, 16, 24, 64]);
        self.amount_into(end);
        let exact = self.rng.percent(30);
        if exact && stride & (stride - 1) == 0 {
            self.line(format!("and %r{end}, {}", -stride));
        }
        self.line(format!("mov %r{p}, %r{base}"));
        if self.rng.percent(15) {
            let by = self.rng.range(-9, 9);
            self.line(format!("add %r{p}, {by}"));
        }
        self.line(format!("add %r{end}, %r{p}"));
        self.holds[p] = self.holds[base];
        self.holds[end] = Holds::ReadOnly;
        let (top, done) = (self.label(), self.label());
        let slack = self.rng.pick(&[0, 0, 0, stride, stride - 1, 1]);
        let down = self.rng.percent(12);
        let (p_kept, end_kept) = (self.spill(p), self.spill(end));
        if self.rng.percent(50) {
            self.place(&top);
            self.reload(p_kept);
            self.reload(end_kept);
            if down {
                self.line(format!("jge %r{p}, %r{end}, {done}"));
                self.loop_body(&[end]);
                self.line(format!("sub %r{end}, {stride}"));
                self.store(end_kept);
            } else {
                self.top_test(p, end, stride, slack, &done);
                let late = self.rng.percent(20);
                if late {
                    self.line(format!("add %r{p}, {stride}"));
                }
                self.loop_body(&[p]);
                if !late {
                    self.line(format!("add %r{p}, {stride}"));
                }
                self.store(p_kept);
            }
            self.line(format!("ja {top}"));
        } else {
            let guard = self.rng.pick(&["jge", "jeq", "jge"]);
            if self.rng.percent(85) {
                self.line(format!("{guard} %r{p}, %r{end}, {done}"));
            }
            self.place(&top);
            self.reload(p_kept);
            self.loop_body(&[p]);
            self.maybe_break(&done);
            self.line(format!("add %r{p}, {stride}"));
            self.store(p_kept);
            self.reload(end_kept);
            let test = self.rng.pick(&["jlt", "jlt", "jne", "jslt", "jle"]);
            if self.rng.percent(20) {
                self.line(format!("jgt %r{end}, %r{p}, {top}"));
            } else {
                self.line(format!("{test} %r{p}, %r{end}, {top}"));
            }
        }
        self.place(&done);
        self.release(&[p, end]);
        self.holds[end] = Holds::Number;
    }

    pub(super) fn top_test(&mut self, p: usize, end: usize, stride: i64, slack: i64, done: &str) {
        if slack == 0 {
            match self.rng.below(4) {
                0 => self.line(format!("jeq %r{p}, %r{end}, {done}")),
                1 => self.line(format!("jle %r{end}, %r{p}, {done}")),
                _ => self.line(format!("jge %r{p}, %r{end}, {done}")),
            }
            return;
        }
        // `if (p + slack > end) break`
        let Some(t) = self.scratch() else {
            return self.line(format!("jge %r{p}, %r{end}, {done}"));
        };
        let _ = stride;
        self.line(format!("mov %r{t}, %r{p}"));
        self.line(format!("add %r{t}, {slack}"));
        self.line(format!("jgt %r{t}, %r{end}, {done}"));
        self.holds[t] = Holds::Mixed;
    }

    pub(super) fn maybe_break(&mut self, done: &str) {
        if self.rng.percent(25) && !self.registers(|h| h == Holds::Number).is_empty() {
            self.condition_to(done);
        }
    }

    /// `for (i = 0; i < n; i++) … base[i * scale]`, with 64-bit or 32-bit indices, up or down.
    pub(super) fn index_loop(&mut self) {
        let Some(base) = self.pointer_register(false) else { return };
        let Some(n) = self.take() else { return };
        let Some(i) = self.take() else { return self.release(&[n]) };
        let Some(t) = self.take() else { return self.release(&[n, i]) };
        let narrow = self.rng.percent(45);
        let w = if narrow { "32" } else { "" };
        self.amount_into(n);
        let down = self.rng.percent(25);
        if down {
            self.line(format!("mov{w} %r{i}, %r{n}"));
        } else {
            let from = self.rng.pick(&[0, 0, 0, 1, -1, 5]);
            self.line(format!("mov{w} %r{i}, {from}"));
        }
        self.holds[i] = Holds::Number;
        let (base_kept, n_kept) = (self.spill(base), self.spill(n));
        let (top, done) = (self.label(), self.label());
        let at_top = self.rng.percent(50);
        let step = self.rng.pick(&[1, 1, 1, 2, 3]);
        let signed = self.rng.percent(35);
        let (exit_up, stay_up) = if signed { ("jsge", "jslt") } else { ("jge", "jlt") };
        if !at_top && self.rng.percent(85) {
            if down {
                self.line(format!("jeq{w} %r{i}, 0, {done}"));
            } else {
                self.line(format!("{exit_up}{w} %r{i}, %r{n}, {done}"));
            }
        }
        self.place(&top);
        if at_top {
            if down {
                self.line(format!("jeq{w} %r{i}, 0, {done}"));
            } else {
                self.line(format!("{exit_up}{w} %r{i}, %r{n}, {done}"));
            }
        }
        if down {
            self.line(format!("sub{w} %r{i}, {step}"));
        }
        self.reload(base_kept);
        self.address(t, base, i, narrow);
        self.loop_body(&[t]);
        self.maybe_break(&done);
        self.reload(n_kept);
        if !down {
            self.line(format!("add{w} %r{i}, {step}"));
        }
        if at_top {
            self.line(format!("ja {top}"));
        } else if down {
            let test = self.rng.pick(&["jne", "jsgt", "jgt"]);
            self.line(format!("{test}{w} %r{i}, 0, {top}"));
        } else {
            let test = if step == 1 { self.rng.pick(&[stay_up, stay_up, "jne"]) } else { stay_up };
            self.line(format!("{test}{w} %r{i}, %r{n}, {top}"));
        }
        self.place(&done);
        if self.holds[t].is_pointer() {
            // The jump from the top may have skipped it.
            self.line(format!("mov %r{t}, 0"));
            self.holds[t] = Holds::Number;
        }
        self.release(&[n, i, t]);
    }

    /// `t = base + i * scale`, as compilers write it.
    pub(super) fn address(&mut self, t: usize, base: usize, i: usize, narrow: bool) {
        if narrow && self.rng.percent(50) {
            self.line(format!("mov32 %r{t}, %r{i}"));
        } else {
            self.line(format!("mov %r{t}, %r{i}"));
        }
        match self.rng.below(6) {
            0 => {}
            1 => {
                self.line(format!("lsh %r{t}, 32"));
                let op = self.rng.pick(&["rsh", "arsh"]);
                let by = self.rng.pick(&[32, 30, 29]);
                self.line(format!("{op} %r{t}, {by}"));
            }
            2 => {
                let by = self.rng.pick(&[3, 12, 24, 8]);
                self.line(format!("mul %r{t}, {by}"));
            }
            3 if narrow => {
                let by = self.rng.range(1, 3);
                self.line(format!("lsh32 %r{t}, {by}"));
            }
            _ => {
                let by = self.rng.range(0, 3);
                self.line(format!("lsh %r{t}, {by}"));
            }
        }
        self.line(format!("add %r{t}, %r{base}"));
        self.holds[t] = self.holds[base];
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

    /// Looks for a byte: leaves by what it finds.
    pub(super) fn search_loop(&mut self) {
        let Some(base) = self.pointer_register(false) else { return };
        let Some(end) = self.take() else { return };
        let Some(p) = self.take() else { return self.release(&[end]) };
        let Some(c) = self.take() else { return self.release(&[end, p]) };
        self.amount_into(end);
        self.line(format!("mov %r{p}, %r{base}"));
        self.line(format!("add %r{end}, %r{p}"));
        self.line(format!("mov %r{c}, 0"));
        self.holds[p] = self.holds[base];
        self.holds[end] = Holds::ReadOnly;
        self.holds[c] = Holds::Number;
        let (top, done) = (self.label(), self.label());
        self.place(&top);
        self.line(format!("jge %r{p}, %r{end}, {done}"));
        let (size, len) = self.rng.pick(&SIZES);
        self.line(format!("ldx{size} %r{c}, [%r{p}+0]"));
        self.line(format!("add %r{p}, {len}"));
        let looked_for = self.rng.pick(&[0, 10, 65, 255]);
        let test = self.rng.pick(&["jne", "jgt", "jslt", "jlt"]);
        self.line(format!("{test} %r{c}, {looked_for}, {top}"));
        if self.rng.percent(50) {
            // Found: do something and continue.
            self.loop_body(&[p]);
            self.line(format!("ja {top}"));
        }
        self.place(&done);
        self.release(&[end, p, c]);
    }

    /// One pointer moves every trip, another only sometimes or by what was read.
    pub(super) fn stepping_loop(&mut self) {
        let Some(base) = self.pointer_register(false) else { return };
        let Some(out) = self.pointer_register(true) else { return };
        let Some(end) = self.take() else { return };
        let Some(p) = self.take() else { return self.release(&[end]) };
        let Some(q) = self.take() else { return self.release(&[end, p]) };
        self.amount_into(end);
        self.line(format!("mov %r{p}, %r{base}"));
        self.line(format!("mov %r{q}, %r{out}"));
        self.line(format!("add %r{end}, %r{p}"));
        self.holds[p] = self.holds[base];
        self.holds[q] = Holds::Writable;
        self.holds[end] = Holds::ReadOnly;
        let (top, done, skip) = (self.label(), self.label(), self.label());
        let stride = self.rng.pick(&[1, 2, 4, 8]);
        self.place(&top);
        self.line(format!("jge %r{p}, %r{end}, {done}"));
        let head = self.holds;
        self.access_by(p);
        self.condition_to(&skip);
        let before = self.holds;
        self.access_by(q);
        self.line(format!("add %r{q}, {stride}"));
        if self.rng.percent(30) {
            self.line(format!("add %r{p}, {stride}"));
        }
        self.join(before);
        self.place(&skip);
        self.join(head);
        if self.rng.percent(25)
            && let Some(t) = self.scratch()
        {
            self.line(format!("ldxb %r{t}, [%r{p}+0]"));
            self.line(format!("and %r{t}, 7"));
            self.line(format!("add %r{p}, %r{t}"));
            self.holds[t] = if head[t] == Holds::Nothing { Holds::Nothing } else { Holds::Number };
        }
        self.line(format!("add %r{p}, {stride}"));
        self.line(format!("ja {top}"));
        self.place(&done);
        self.join(head);
        self.release(&[end, p, q]);
    }

    /// Bytes one by one: with a look back that a condition guards, a table by what is read or computed of it, some
    /// comparison before, and a step that data decide.
    fn parser_loop(&mut self) {
        let Some(base) = self.pointer_register(false) else { return };
        let Some(end) = self.take() else { return };
        let Some(p) = self.take() else { return self.release(&[end]) };
        let Some(c) = self.take() else { return self.release(&[end, p]) };
        let Some(i) = self.take() else { return self.release(&[end, p, c]) };
        self.amount_into(end);
        self.line(format!("mov %r{p}, %r{base}"));
        self.line(format!("add %r{end}, %r{p}"));
        self.line(format!("mov %r{c}, 0"));
        self.line(format!("mov %r{i}, 0"));
        (self.holds[p], self.holds[end]) = (self.holds[base], Holds::ReadOnly);
        (self.holds[c], self.holds[i]) = (Holds::Number, Holds::Number);
        let end_kept = self.spill(end);
        let (top, done) = (self.label(), self.label());
        self.place(&top);
        self.reload(end_kept);
        self.line(format!("jge %r{p}, %r{end}, {done}"));
        let head = self.holds;
        let size = self.rng.pick(&["b", "b", "b", "h", "w", "dw"]);
        self.line(format!("ldx{size} %r{c}, [%r{p}+0]"));
        if self.rng.percent(50) {
            let skip = self.label();
            let (at_least, back) = (self.rng.range(0, 4), self.rng.range(1, 4));
            let test = self.rng.pick(&["jlt", "jlt32", "jslt", "jgt"]);
            self.line(format!("{test} %r{i}, {at_least}, {skip}"));
            self.line(format!("ldxb %r{c}, [%r{p}-{back}]"));
            self.place(&skip);
        }
        if self.rng.percent(70)
            && let Some(table) = self.pointer_register(false)
        {
            self.table_by(c, table);
        }
        if self.rng.percent(30) {
            self.loop_body(&[p]);
        }
        match self.rng.below(4) {
            0 => self.line(format!("add %r{p}, %r{c}")),
            1 => {
                let mask = self.rng.pick(&[1, 7, 255, 8191, -1]);
                self.line(format!("and %r{c}, {mask}"));
                self.line(format!("add %r{p}, %r{c}"));
            }
            _ => {}
        }
        self.line(format!("add %r{i}, 1"));
        self.line(format!("add %r{p}, 1"));
        self.line(format!("ja {top}"));
        self.place(&done);
        self.join(head);
        self.release(&[end, p, c, i]);
    }

    /// `if (c op limit) … table[c * scale]`, where `c` is what was read, or computed of it.
    fn table_by(&mut self, c: usize, table: usize) {
        let (skip, w) = (self.label(), self.rng.pick(&["", "32", "32"]));
        match self.rng.below(4) {
            0 => {
                let by = self.rng.pick(&[-48, -9, 1, 100]);
                self.line(format!("add{w} %r{c}, {by}"));
            }
            1 => self.line(format!("mul{w} %r{c}, 3")),
            2 => {
                let mask = self.rng.pick(&[15, 255, 4095, 65535]);
                self.line(format!("and{w} %r{c}, {mask}"));
            }
            _ => {}
        }
        if self.rng.percent(70) {
            let limit = self.rng.pick(&[0, 7, 9, 100, 255, 599, -1]);
            let test = self.rng.pick(&["jgt", "jge", "jsgt", "jslt", "jlt", "jne"]);
            self.line(format!("{test}{w} %r{c}, {limit}, {skip}"));
        }
        let by = self.rng.below(4);
        self.line(format!("lsh %r{c}, {by}"));
        self.line(format!("add %r{c}, %r{table}"));
        let (size, _) = self.rng.pick(&SIZES);
        self.line(format!("ldx{size} %r{c}, [%r{c}+0]"));
        if self.holds[table] == Holds::Writable && self.rng.percent(50) {
            let off = self.rng.below(3);
            self.line(format!("stxb [%r{table}+{off}], %r{c}"));
        }
        self.place(&skip);
    }

    /// Runs of different lengths: what is read says how often the loops inside go round, mostly by a byte.
    pub(super) fn runs_loop(&mut self) {
        let Some(base) = self.pointer_register(false) else { return };
        let Some(out) = self.pointer_register(true) else { return };
        let Some(end) = self.take() else { return };
        let Some(p) = self.take() else { return self.release(&[end]) };
        let Some(q) = self.take() else { return self.release(&[end, p]) };
        let Some(left) = self.take() else { return self.release(&[end, p, q]) };
        self.amount_into(end);
        self.line(format!("mov %r{p}, %r{base}"));
        self.line(format!("mov %r{q}, %r{out}"));
        self.line(format!("mov %r{left}, 0"));
        self.line(format!("add %r{end}, %r{p}"));
        self.holds[p] = self.holds[base];
        self.holds[q] = Holds::Writable;
        self.holds[end] = Holds::ReadOnly;
        self.holds[left] = Holds::Number;
        let (top, done) = (self.label(), self.label());
        self.place(&top);
        self.line(format!("jge %r{p}, %r{end}, {done}"));
        let head = self.holds;
        self.line(format!("ldxb %r{left}, [%r{p}+0]"));
        if self.rng.percent(40) {
            let mask = self.rng.pick(&[7, 31, 63]);
            self.line(format!("and %r{left}, {mask}"));
        }
        let by = self.rng.pick(&[1, 2, 4, 8, 8, 32]);
        self.countdown(q, left, by);
        if self.rng.percent(40) {
            self.countdown(q, left, 1.max(by / 4));
        }
        if self.rng.percent(20) {
            self.maybe_break(&done);
        }
        let stride = self.rng.pick(&[1, 2, 2, 8]);
        self.line(format!("add %r{p}, {stride}"));
        self.line(format!("ja {top}"));
        self.place(&done);
        self.join(head);
        self.release(&[end, p, q, left]);
    }

    /// `for (; left >= by; left -= by, q += by)`, or nearly.
    fn countdown(&mut self, q: usize, left: usize, by: i64) {
        let (again, after) = (self.label(), self.label());
        if self.rng.percent(90) {
            self.line(format!("jlt %r{left}, {by}, {after}"));
        }
        let before = self.holds;
        self.place(&again);
        self.access_by(q);
        let piece = if self.rng.percent(85) { by } else { self.rng.pick(&[0, 1, -1, 8]) };
        self.line(format!("add %r{q}, {piece}"));
        self.line(format!("sub %r{left}, {by}"));
        let last = if self.rng.percent(80) { by - 1 } else { self.rng.pick(&[0, by, by + 3, by - 2]).max(0) };
        self.line(format!("jgt %r{left}, {last}, {again}"));
        self.join(before);
        self.place(&after);
    }

    /// Rows that lie a variable apart, each with a loop over it.
    pub(super) fn rows_loop(&mut self) {
        let Some(base) = self.pointer_register(false) else { return };
        let Some(row) = self.take() else { return };
        let Some(stride) = self.take() else { return self.release(&[row]) };
        let Some(left) = self.take() else { return self.release(&[row, stride]) };
        let Some(i) = self.take() else { return self.release(&[row, stride, left]) };
        let Some(t) = self.take() else { return self.release(&[row, stride, left, i]) };
        let taken = [row, stride, left, i, t];
        match self.rng.below(8) {
            0 => {
                let far = self.rng.pick(&WIDE);
                self.line(format!("lddw %r{stride}, {far}"));
            }
            1 => {
                let back = self.rng.range(-64, 0);
                self.line(format!("mov %r{stride}, {back}"));
            }
            2..=3 => {
                let near = self.rng.pick(&[1, 8, 16, 24, 64, 100]);
                self.line(format!("mov %r{stride}, {near}"));
            }
            _ => self.amount_into(stride),
        }
        if self.rng.percent(40) {
            self.amount_into(left);
        } else {
            let rows = self.rng.pick(&[1, 2, 3, 8, 20, 64]);
            self.line(format!("mov %r{left}, {rows}"));
        }
        self.line(format!("mov %r{row}, %r{base}"));
        self.line(format!("mov %r{i}, 0"));
        self.line(format!("mov %r{t}, %r{row}"));
        for r in [stride, left, i] {
            self.holds[r] = Holds::Number;
        }
        self.holds[row] = self.holds[base];
        self.holds[t] = self.holds[base];
        let top = self.label();
        self.place(&top);
        let head = self.holds;
        if self.rng.percent(60) {
            self.access_by(row);
        }
        for _ in 0..1 + self.rng.below(2) {
            self.row(row, stride, i, t);
        }
        if self.rng.percent(30) {
            self.loop_body(&[]);
        }
        self.join(head);
        let forward = if self.rng.percent(85) { "add" } else { "sub" };
        self.line(format!("{forward} %r{row}, %r{stride}"));
        self.line(format!("sub %r{left}, 1"));
        let test = self.rng.pick(&["jne", "jsgt", "jgt"]);
        self.line(format!("{test} %r{left}, 0, {top}"));
        self.release(&taken);
    }

    /// Goes over one row by an index, up or down, or by a pointer `t` up to an end in `i`.
    fn row(&mut self, row: usize, stride: usize, i: usize, t: usize) {
        let step = self.rng.pick(&[1, 1, 4, 8, 16, 3]);
        let inner = self.label();
        let len = match self.rng.below(3) {
            0 => format!("%r{stride}"),
            _ => self.rng.pick(&[1, 2, 8, 16, 17, 63, 64]).to_string(),
        };
        if self.rng.percent(20) {
            self.line(format!("mov %r{i}, {len}"));
            self.place(&inner);
            self.line(format!("mov %r{t}, %r{row}"));
            self.line(format!("add %r{t}, %r{i}"));
            self.access_by(t);
            self.line(format!("sub %r{i}, {step}"));
            let test = self.rng.pick(&["jgt", "jgt", "jge", "jsgt", "jne"]);
            let last = self.rng.pick(&[0, 0, step - 1, step, -1]);
            self.line(format!("{test} %r{i}, {last}, {inner}"));
        } else if self.rng.percent(50) {
            let narrow = if self.rng.percent(30) { "32" } else { "" };
            let from = self.rng.pick(&[0, 0, 0, 1, -1]);
            self.line(format!("mov{narrow} %r{i}, {from}"));
            self.place(&inner);
            self.line(format!("mov %r{t}, %r{row}"));
            self.line(format!("add %r{t}, %r{i}"));
            self.access_by(t);
            self.line(format!("add{narrow} %r{i}, {step}"));
            let test = self.rng.pick(&["jlt", "jlt", "jle", "jslt", "jne"]);
            self.line(format!("{test}{narrow} %r{i}, {len}, {inner}"));
        } else {
            self.line(format!("mov %r{t}, %r{row}"));
            self.line(format!("mov %r{i}, %r{t}"));
            self.line(format!("add %r{i}, {len}"));
            self.place(&inner);
            self.access_by(t);
            self.line(format!("add %r{t}, {step}"));
            let test = self.rng.pick(&["jlt", "jlt", "jle", "jslt", "jne"]);
            self.line(format!("{test} %r{t}, %r{i}, {inner}"));
        }
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

    // Calls.
}
