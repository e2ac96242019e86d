//! Loops over memory by a pointer or an index, up to an end or down to the beginning.

use super::*;

impl Generator<'_> {
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

    fn top_test(&mut self, p: usize, end: usize, stride: i64, slack: i64, done: &str) {
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
    fn address(&mut self, t: usize, base: usize, i: usize, narrow: bool) {
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
}
