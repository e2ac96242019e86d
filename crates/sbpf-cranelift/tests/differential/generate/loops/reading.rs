//! Loops whose way depends on the bytes that they read: they look, skip, parse, or repeat.

use super::*;

impl Generator<'_> {
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
    pub(super) fn parser_loop(&mut self) {
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
}
