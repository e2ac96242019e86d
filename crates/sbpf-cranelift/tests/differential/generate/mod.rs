//! Programs that verify, by grammar: straight code, branches, loops of every shape that compilers
//! make (and some that they do not), memory through every kind of pointer, helpers, calls.
//!
//! A program is text in the syntax of `diskside_sbpf::asm`, so a failing one can be read, shortened
//! line by line and kept as a test.

mod calls;
mod loops;

use crate::rng::Rng;
use diskside_sbpf::helpers::{Helper, HelperSet, Param, Return};
use diskside_sbpf::image::Kind;

/// What a register holds, as far as the generator knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holds {
    Nothing,
    Number,
    /// A pointer that may be written through.
    Writable,
    /// A pointer that may only be read through.
    ReadOnly,
    /// The context: constant offsets only, never passed on.
    Context,
    /// Whatever came together from two paths.
    Mixed,
}

impl Holds {
    fn is_pointer(self) -> bool {
        matches!(self, Self::Writable | Self::ReadOnly)
    }
}

const IMMEDIATES: [i64; 24] = [
    0,
    1,
    -1,
    2,
    3,
    4,
    7,
    8,
    15,
    16,
    31,
    32,
    33,
    63,
    64,
    100,
    127,
    128,
    255,
    256,
    0x7fff,
    -0x8000,
    0x7fff_ffff,
    -0x8000_0000,
];
const WIDE: [u64; 12] = [
    0,
    1,
    u64::MAX,
    1 << 63,
    (1 << 63) - 1,
    1 << 32,
    0xffff_ffff,
    0x7ff0_0000_0000_0000,
    0x3ff0_0000_0000_0000,
    0x7ff8_dead_0000_0001,
    0xc1e0_0000_0000_0000,
    0x7f80_0001,
];
const SIZES: [(&str, i64); 4] = [("b", 1), ("h", 2), ("w", 4), ("dw", 8)];
const CONDITIONS: [&str; 11] = ["jeq", "jne", "jgt", "jge", "jlt", "jle", "jset", "jsgt", "jsge", "jslt", "jsle"];

/// A generated program.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) kind: Kind,
    pub(crate) lines: Vec<String>,
    /// Bytes of `.data` and `.rodata`.
    pub(crate) data_len: usize,
    pub(crate) rodata_len: usize,
}

/// A function that calls can go to.
#[derive(Clone, Copy, Debug)]
struct Signature {
    writes: bool,
    params: u8,
}

struct Generator<'a> {
    rng: &'a mut Rng,
    helpers: &'a [Helper],
    lines: Vec<String>,
    holds: [Holds; 10],
    locked: [bool; 10],
    statements_left: usize,
    loop_depth: usize,
    labels: &'a mut usize,
    /// Functions after this one, which it may call.
    callees: Vec<(usize, Signature)>,
    data_len: usize,
    rodata_len: usize,
}

/// Makes a program from a seed.
pub(crate) fn generate(rng: &mut Rng, helpers: &HelperSet) -> Source {
    let kind = rng.pick(&[Kind::Read, Kind::Read, Kind::Read, Kind::Read, Kind::Raw, Kind::Combine, Kind::Lambda]);
    let helpers: Vec<Helper> = helpers.iter().copied().collect();
    let data_len = if rng.percent(30) { 256 } else { 0 };
    let rodata_len = if rng.percent(30) { 128 } else { 0 };
    let count = if rng.percent(35) { 1 + rng.below(3) } else { 0 };
    let signatures: Vec<Signature> =
        (0..count).map(|_| Signature { writes: rng.percent(60), params: 1 + rng.below(4) as u8 }).collect();
    let mut labels = 0;
    let mut lines = Vec::new();
    for f in 0..=count {
        let callees = (f..count).map(|i| (i, signatures[i])).collect();
        let statements = if f == 0 { 4 + rng.below(24) } else { 2 + rng.below(8) };
        let mut g = Generator {
            rng,
            helpers: &helpers,
            lines: Vec::new(),
            holds: [Holds::Nothing; 10],
            locked: [false; 10],
            statements_left: statements,
            loop_depth: 0,
            labels: &mut labels,
            callees,
            data_len,
            rodata_len,
        };
        if f == 0 {
            g.entry(kind);
        } else {
            g.lines.push(format!("f{}:", f - 1));
            let s = signatures[f - 1];
            g.holds[1] = if s.writes { Holds::Writable } else { Holds::ReadOnly };
            for r in 2..=usize::from(s.params) {
                g.holds[r] = Holds::Number;
            }
            if g.rng.percent(70) {
                g.line("mov %r6, %r1".into());
                g.holds[6] = g.holds[1];
            }
        }
        g.body();
        g.finish();
        lines.append(&mut g.lines);
    }
    Source { kind, lines, data_len, rodata_len }
}

impl Generator<'_> {
    fn line(&mut self, text: String) {
        self.lines.push(format!("  {text}"));
    }

    fn label(&mut self) -> String {
        *self.labels += 1;
        format!("l{}", self.labels)
    }

    fn place(&mut self, label: &str) {
        self.lines.push(format!("{label}:"));
    }

    /// Keeps the parameters in registers that calls preserve.
    fn entry(&mut self, kind: Kind) {
        use Holds::{Context, Number, ReadOnly, Writable};
        let params: &[Holds] = match kind {
            Kind::Read => &[Writable, ReadOnly, Number, ReadOnly, Context],
            Kind::Combine => &[Writable, Number, Number, ReadOnly, Number],
            Kind::Lambda => &[Writable, ReadOnly, Number],
            _ => &[Writable, Number],
        };
        for (i, p) in params.iter().enumerate() {
            self.holds[i + 1] = *p;
        }
        let mut saved = 6;
        for (i, p) in params.iter().enumerate() {
            if saved < 10 && (*p != Context || self.rng.percent(30)) {
                self.line(format!("mov %r{saved}, %r{}", i + 1));
                self.holds[saved] = *p;
                saved += 1;
            }
        }
    }

    fn body(&mut self) {
        while self.statements_left > 0 {
            self.statement();
        }
    }

    /// Folds what the registers hold into `r0` and returns.
    fn finish(&mut self) {
        if self.holds[0] == Holds::Nothing {
            self.line("mov %r0, 0".into());
        }
        for r in 1..10 {
            if !matches!(self.holds[r], Holds::Nothing | Holds::Context) {
                self.line("mul %r0, 31".into());
                self.line(format!("xor %r0, %r{r}"));
            }
        }
        self.line("exit".into());
    }

    fn statement(&mut self) {
        self.statements_left = self.statements_left.saturating_sub(1);
        match self.rng.below(100) {
            0..=24 => self.arithmetic(),
            25..=31 => self.set(),
            32..=51 => self.access(),
            52..=57 => self.stack_access(),
            58..=60 => self.atomic(),
            61..=69 => self.branch(),
            70..=86 => self.a_loop(),
            87..=90 => self.helper_call(),
            91..=93 => self.float_call(),
            94..=95 => self.local_call(),
            96 => self.leave_early(),
            97 => self.allocate(),
            _ => self.pointer(),
        }
    }

    // Registers.

    fn registers(&self, which: impl Fn(Holds) -> bool) -> Vec<usize> {
        (0..10).filter(|&r| which(self.holds[r])).collect()
    }

    fn number(&mut self) -> usize {
        let all = self.registers(|h| h == Holds::Number);
        if !all.is_empty() && !self.rng.percent(5) {
            return self.rng.pick(&all);
        }
        let r = self.target();
        let i = self.rng.pick(&IMMEDIATES);
        self.line(format!("mov %r{r}, {i}"));
        self.holds[r] = Holds::Number;
        r
    }

    fn pointer_register(&mut self, writable: bool) -> Option<usize> {
        let all = self.registers(|h| h == Holds::Writable || (!writable && h == Holds::ReadOnly));
        (!all.is_empty()).then(|| self.rng.pick(&all))
    }

    /// A register that may be overwritten.
    fn target(&mut self) -> usize {
        let free: Vec<usize> = (0..10).filter(|&r| !self.locked[r]).collect();
        // Parameters are kept for long: without pointers there is nothing to do.
        let expendable: Vec<usize> = free.iter().copied().filter(|&r| !self.holds[r].is_pointer()).collect();
        if !expendable.is_empty() && self.rng.percent(95) {
            self.rng.pick(&expendable)
        } else if free.is_empty() {
            0
        } else {
            self.rng.pick(&free)
        }
    }

    fn scratch(&mut self) -> Option<usize> {
        let free: Vec<usize> = (0..10).filter(|&r| !self.locked[r] && !self.holds[r].is_pointer()).collect();
        (!free.is_empty()).then(|| self.rng.pick(&free))
    }

    fn operand(&mut self) -> String {
        if self.rng.percent(50) {
            let i = if self.rng.percent(70) {
                self.rng.pick(&IMMEDIATES)
            } else {
                self.rng.range(-0x8000_0000, 0x7fff_ffff)
            };
            i.to_string()
        } else {
            format!("%r{}", self.number())
        }
    }

    // Straight code.

    fn arithmetic(&mut self) {
        let candidates: Vec<usize> = (0..10).filter(|&r| !self.locked[r] && self.holds[r] == Holds::Number).collect();
        let dst = if candidates.is_empty() {
            let Some(r) = self.scratch() else { return };
            self.line(format!("mov %r{r}, 77"));
            self.holds[r] = Holds::Number;
            r
        } else {
            self.rng.pick(&candidates)
        };
        let suffix = self.rng.pick(&["", "32"]);
        match self.rng.below(20) {
            0 => self.line(format!("neg{suffix} %r{dst}")),
            1 => {
                let order = self.rng.pick(&["le", "be", "swap"]);
                let bits = self.rng.pick(&[16, 32, 64]);
                self.line(format!("{order}{bits} %r{dst}"));
            }
            2 => {
                let op = self.rng.pick(&["movsx832", "movsx1632", "movsx864", "movsx1664", "movsx3264"]);
                let src = self.number();
                self.line(format!("{op} %r{dst}, %r{src}"));
            }
            3 => {
                self.line(format!("lsh %r{dst}, 32"));
                let op = self.rng.pick(&["arsh", "rsh"]);
                self.line(format!("{op} %r{dst}, 32"));
            }
            4..=5 => {
                let src = self.number();
                self.line(format!("mov{suffix} %r{dst}, %r{src}"));
            }
            6..=8 => {
                let op = self.rng.pick(&["div", "sdiv", "mod", "smod"]);
                let operand = self.operand();
                self.line(format!("{op}{suffix} %r{dst}, {operand}"));
            }
            9..=11 => {
                let op = self.rng.pick(&["lsh", "rsh", "arsh"]);
                let amount = if self.rng.percent(60) {
                    self.rng.range(0, if suffix == "32" { 31 } else { 63 }).to_string()
                } else {
                    format!("%r{}", self.number())
                };
                self.line(format!("{op}{suffix} %r{dst}, {amount}"));
            }
            _ => {
                let op = self.rng.pick(&["add", "sub", "mul", "or", "and", "xor"]);
                let operand = self.operand();
                self.line(format!("{op}{suffix} %r{dst}, {operand}"));
            }
        }
    }

    fn set(&mut self) {
        let r = self.target();
        if self.rng.percent(40) {
            let v = self.rng.pick(&WIDE) ^ (self.rng.next_u64() & if self.rng.percent(30) { u64::MAX } else { 0 });
            self.line(format!("lddw %r{r}, {v:#x}"));
        } else {
            let i = self.rng.pick(&IMMEDIATES);
            let suffix = self.rng.pick(&["", "32"]);
            self.line(format!("mov{suffix} %r{r}, {i}"));
        }
        self.holds[r] = Holds::Number;
    }

    /// A pointer made from others: moved, masked into a range, from two paths, from globals, wild.
    fn pointer(&mut self) {
        let Some(dst) = self.scratch() else { return };
        match self.rng.below(12) {
            0..=3 => {
                let Some(p) = self.pointer_register(false) else { return };
                self.line(format!("mov %r{dst}, %r{p}"));
                let by = self.rng.range(-2, 40);
                self.line(format!("add %r{dst}, {by}"));
                self.holds[dst] = self.holds[p];
            }
            4..=5 => {
                let Some(p) = self.pointer_register(false) else { return };
                let n = self.number();
                if n == dst {
                    return;
                }
                self.line(format!("mov %r{dst}, %r{n}"));
                let mask = self.rng.pick(&[7, 15, 31, 63]);
                self.line(format!("and %r{dst}, {mask}"));
                self.line(format!("add %r{dst}, %r{p}"));
                self.holds[dst] = self.holds[p];
            }
            6 if self.data_len > 0 => {
                let offset = self.rng.below(self.data_len) as u64;
                self.line(format!("lddw %r{dst}, {:#x}", (3u64 << 40) + offset));
                self.holds[dst] = Holds::Writable;
            }
            7 if self.rodata_len > 0 => {
                let offset = self.rng.below(self.rodata_len) as u64;
                self.line(format!("lddw %r{dst}, {:#x}", (2u64 << 40) + offset));
                self.holds[dst] = Holds::ReadOnly;
            }
            8 => {
                self.line(format!("mov %r{dst}, %r10"));
                let by = self.rng.pick(&[-8, -16, -64, -128]);
                self.line(format!("add %r{dst}, {by}"));
                self.holds[dst] = Holds::Writable;
            }
            9..=10 => {
                let (Some(p), Some(q)) = (self.pointer_register(false), self.pointer_register(false)) else {
                    return;
                };
                let n = self.number();
                if n == dst {
                    return;
                }
                let skip = self.label();
                self.line(format!("mov %r{dst}, %r{p}"));
                self.line(format!("jset %r{n}, 1, {skip}"));
                self.line(format!("mov %r{dst}, %r{q}"));
                self.place(&skip);
                let both = (self.holds[p], self.holds[q]) == (Holds::Writable, Holds::Writable);
                self.holds[dst] = if both { Holds::Writable } else { Holds::ReadOnly };
            }
            _ => {
                let region = self.rng.below(18) as u64;
                let offset = self.rng.pick(&[0, 1, 8, 100, (1 << 40) - 4, (1 << 40) - 70_000]);
                self.line(format!("lddw %r{dst}, {:#x}", (region << 40) + offset));
                // A store to a constant address that nobody may write would not verify.
                self.holds[dst] = Holds::Number;
            }
        }
    }

    // Memory.

    fn access(&mut self) {
        let Some(p) = self.pointer_register(false) else { return };
        self.access_by(p);
    }

    /// Loads from or stores to where a register points, at a small offset.
    fn access_by(&mut self, p: usize) {
        let (size, len) = self.rng.pick(&SIZES);
        let offset = if self.rng.percent(85) { len * self.rng.range(0, 3) } else { self.rng.range(-9, 48) };
        if self.holds[p] == Holds::Writable && self.rng.percent(50) {
            if self.rng.percent(25) {
                let i = self.rng.pick(&IMMEDIATES);
                self.line(format!("st{size} [%r{p}{offset:+}], {i}"));
            } else {
                let mut v = self.number();
                if v == p {
                    v = 10;
                }
                self.line(format!("stx{size} [%r{p}{offset:+}], %r{v}"));
            }
            return;
        }
        let dst = if self.rng.percent(3) && !self.locked[p] { Some(p) } else { self.scratch() };
        let Some(dst) = dst else { return };
        let sign = if size != "dw" && self.rng.percent(25) { "s" } else { "" };
        self.line(format!("ldx{sign}{size} %r{dst}, [%r{p}{offset:+}]"));
        self.holds[dst] = Holds::Number;
        // The loaded value is used by something, or it would be dead.
        if self.rng.percent(50) {
            let others: Vec<usize> =
                self.registers(|h| h == Holds::Number).into_iter().filter(|&r| r != dst && !self.locked[r]).collect();
            if !others.is_empty() {
                let r = self.rng.pick(&others);
                let op = self.rng.pick(&["add", "xor", "sub", "mul", "add32", "xor32", "or", "and32"]);
                self.line(format!("{op} %r{r}, %r{dst}"));
            }
        }
    }

    fn stack_access(&mut self) {
        let (size, len) = self.rng.pick(&SIZES);
        let slot = -8 * self.rng.range(1, 12);
        let offset = if self.rng.percent(85) { slot } else { slot + len * self.rng.range(0, 8 / len - 1) };
        match self.rng.below(4) {
            0..=1 => {
                let v = if self.rng.percent(10) { self.pointer_register(true).unwrap_or(10) } else { self.number() };
                self.line(format!("stx{size} [%r10{offset:+}], %r{v}"));
            }
            2 => {
                let i = self.rng.pick(&IMMEDIATES);
                self.line(format!("st{size} [%r10{offset:+}], {i}"));
            }
            _ => {
                let Some(dst) = self.scratch() else { return };
                self.line(format!("ldx{size} %r{dst}, [%r10{offset:+}]"));
                self.holds[dst] = Holds::Number;
            }
        }
    }

    fn atomic(&mut self) {
        let on_stack = self.rng.percent(25);
        let base = if on_stack { Some(10) } else { self.pointer_register(true) };
        let Some(base) = base else { return };
        let offset = if on_stack {
            -8 * self.rng.range(1, 4)
        } else if self.rng.percent(90) {
            8 * self.rng.range(0, 3)
        } else {
            self.rng.range(-4, 12)
        };
        let suffix = self.rng.pick(&["", "32"]);
        let op = self.rng.pick(&["add", "or", "and", "xor", "xchg", "cmpxchg"]);
        let value = self.number();
        let fetch = matches!(op, "xchg" | "cmpxchg") || self.rng.percent(50);
        if op == "cmpxchg" {
            if self.locked[0] {
                return;
            }
            if matches!(self.holds[0], Holds::Nothing) {
                self.line("mov %r0, 0".into());
            }
            self.holds[0] = Holds::Number;
        }
        if value == base || (fetch && self.locked[value]) {
            return;
        }
        let prefix = if fetch && !matches!(op, "xchg" | "cmpxchg") { "fetch " } else { "" };
        self.line(format!("lock {prefix}{op}{suffix} [%r{base}{offset:+}], %r{value}"));
    }

    fn allocate(&mut self) {
        if (0..6).any(|r| self.locked[r]) || !self.has_helper("ds_alloc") {
            return;
        }
        let len = self.rng.pick(&[1, 8, 64, 100, 5000, 0]);
        self.line(format!("mov %r1, {len}"));
        self.line("call ds_alloc".into());
        self.clobber();
        let Some(dst) = (6..10).find(|&r| !self.locked[r] && !self.holds[r].is_pointer()) else {
            self.holds[0] = Holds::Writable;
            return;
        };
        self.line(format!("mov %r{dst}, %r0"));
        self.holds[0] = Holds::Mixed;
        self.holds[dst] = Holds::Writable;
    }

    // Control.

    fn condition_to(&mut self, label: &str) {
        let a = self.number();
        let cond = self.rng.pick(&CONDITIONS);
        let suffix = self.rng.pick(&["", "32"]);
        let b = self.operand();
        self.line(format!("{cond}{suffix} %r{a}, {b}, {label}"));
    }

    fn branch(&mut self) {
        let (other, end) = (self.label(), self.label());
        self.condition_to(&other);
        let before = self.holds;
        self.some_statements(3);
        let with_else = self.rng.percent(50);
        if with_else {
            self.line(format!("ja {end}"));
        }
        let first = std::mem::replace(&mut self.holds, before);
        self.place(&other);
        if with_else {
            self.some_statements(3);
            self.place(&end);
        }
        self.join(first);
    }

    fn some_statements(&mut self, most: usize) {
        for _ in 0..self.rng.below(most + 1) {
            if self.statements_left > 0 {
                self.statement();
            }
        }
    }

    fn join(&mut self, other: [Holds; 10]) {
        for (mine, theirs) in self.holds.iter_mut().zip(other) {
            *mine = match (*mine, theirs) {
                (a, b) if a == b => a,
                (Holds::Nothing, _) | (_, Holds::Nothing) => Holds::Nothing,
                (Holds::Context, _) | (_, Holds::Context) => Holds::Nothing,
                (a, b) if a.is_pointer() && b.is_pointer() => Holds::ReadOnly,
                _ => Holds::Mixed,
            };
        }
    }

    fn leave_early(&mut self) {
        let skip = self.label();
        self.condition_to(&skip);
        let before = self.holds;
        self.finish();
        self.holds = before;
        self.place(&skip);
    }
}
