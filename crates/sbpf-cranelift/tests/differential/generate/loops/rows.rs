//! Loops over rows, each with a loop inside.

use super::*;

impl Generator<'_> {
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
}
