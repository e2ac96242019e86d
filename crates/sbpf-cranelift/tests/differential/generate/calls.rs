//! Calls of helpers, of intrinsics and of the program's own functions.

use super::*;

impl Generator<'_> {
    pub(super) fn has_helper(&self, name: &str) -> bool {
        self.helpers.iter().any(|h| h.name == name)
    }

    pub(super) fn clobber(&mut self) {
        for r in 1..6 {
            self.holds[r] = Holds::Nothing;
        }
    }

    pub(super) fn may_call(&self) -> bool {
        !(0..6).any(|r| self.locked[r])
    }

    pub(super) fn helper_call(&mut self) {
        if !self.may_call() {
            return;
        }
        let plain: Vec<Helper> = self.helpers.iter().filter(|h| h.float.is_none()).copied().collect();
        let h = self.rng.pick(&plain);
        let kept: Vec<usize> = (6..10).collect();
        let mut arguments = Vec::new();
        for p in h.params {
            let pointer = |g: &mut Self, write: bool| {
                let fitting: Vec<usize> = kept
                    .iter()
                    .copied()
                    .filter(|&r| g.holds[r] == Holds::Writable || (!write && g.holds[r] == Holds::ReadOnly))
                    .collect();
                (!fitting.is_empty()).then(|| format!("%r{}", g.rng.pick(&fitting)))
            };
            let argument = match p {
                Param::Scalar => {
                    let numbers: Vec<usize> =
                        kept.iter().copied().filter(|&r| self.holds[r] == Holds::Number).collect();
                    if numbers.is_empty() || self.rng.percent(70) {
                        Some(self.rng.pick(&[0, 1, 2, 3, 4, 5, 8, 16, 40]).to_string())
                    } else {
                        Some(format!("%r{}", self.rng.pick(&numbers)))
                    }
                }
                Param::Read { .. } | Param::ReadWithin { .. } | Param::Struct(_) | Param::Pointer => {
                    pointer(self, false)
                }
                Param::Write { .. } | Param::WriteWithin { .. } => pointer(self, true),
            };
            let Some(argument) = argument else { return };
            arguments.push(argument);
        }
        for (i, a) in arguments.iter().enumerate() {
            self.line(format!("mov %r{}, {a}", i + 1));
        }
        self.line(format!("call {}", h.name));
        self.clobber();
        self.holds[0] = match h.ret {
            Return::Heap => Holds::Writable,
            Return::Void | Return::Scalar => Holds::Number,
            Return::Param(_) => Holds::Mixed,
        };
    }

    pub(super) fn float_call(&mut self) {
        if !self.may_call() {
            return;
        }
        let floats: Vec<Helper> = self.helpers.iter().filter(|h| h.float.is_some()).copied().collect();
        if floats.is_empty() {
            return;
        }
        let chain = 1 + self.rng.below(3);
        for link in 0..chain {
            let h = self.rng.pick(&floats);
            for (i, _) in h.params.iter().enumerate() {
                let r = i + 1;
                let numbers: Vec<usize> = (6..10).filter(|&r| self.holds[r] == Holds::Number).collect();
                if link > 0 && self.rng.percent(60) {
                    self.line(format!("mov %r{r}, %r0"));
                } else if !numbers.is_empty() && self.rng.percent(40) {
                    let n = self.rng.pick(&numbers);
                    self.line(format!("mov %r{r}, %r{n}"));
                } else {
                    let v = self.float_bits();
                    self.line(format!("lddw %r{r}, {v:#x}"));
                }
            }
            self.line(format!("call {}", h.name));
            self.clobber();
            self.holds[0] = Holds::Number;
        }
        if self.rng.percent(60) {
            // For later operations, also in the next trip, which may read it as a number, as bits, or as both.
            let (to, width) = (self.target(), self.rng.pick(&["", "", "", "32"]));
            self.line(format!("mov{width} %r{to}, %r0"));
            self.holds[to] = Holds::Number;
        }
    }

    pub(super) fn float_bits(&mut self) -> u64 {
        let values = [
            0.0f64,
            -0.0,
            1.0,
            -1.5,
            0.5,
            2.5,
            3.5,
            1e300,
            -1e-310,
            9.3e18,
            -9.3e18,
            1.9e19,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
            16_777_217.0,
        ];
        let v = self.rng.pick(&values);
        match self.rng.below(4) {
            0 => v.to_bits(),
            1 => u64::from((v as f32).to_bits()),
            2 => v.to_bits() ^ (1 << self.rng.below(64)),
            _ => self.rng.next_u64(),
        }
    }

    pub(super) fn local_call(&mut self) {
        if !self.may_call() || self.callees.is_empty() {
            return;
        }
        let (callee, signature) = self.rng.pick(&self.callees.clone());
        let pointers: Vec<usize> = (6..10)
            .filter(|&r| self.holds[r] == Holds::Writable || (!signature.writes && self.holds[r] == Holds::ReadOnly))
            .collect();
        if pointers.is_empty() {
            return;
        }
        let p = self.rng.pick(&pointers);
        self.line(format!("mov %r1, %r{p}"));
        for r in 2..=usize::from(signature.params) {
            let numbers: Vec<usize> = (6..10).filter(|&r| self.holds[r] == Holds::Number).collect();
            if numbers.is_empty() || self.rng.percent(50) {
                let i = self.rng.pick(&IMMEDIATES);
                self.line(format!("mov %r{r}, {i}"));
            } else {
                let n = self.rng.pick(&numbers);
                self.line(format!("mov %r{r}, %r{n}"));
            }
        }
        self.line(format!("call local f{callee}"));
        self.clobber();
        self.holds[0] = Holds::Number;
    }
}
