//! Programs that are short to write and long to compile: shapes that are quadratic for somebody.
//!
//! All are functions of kind `read` (`r1` output, `r2` input, `r3` its length) and verify.

use std::fmt::Write as _;

/// A shape and how large it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) size: usize,
    pub(crate) text: fn(usize) -> String,
}

/// All of them, as large as anybody has to take them.
pub(crate) const SHAPES: [Shape; 15] = [
    Shape { name: "nested", size: 400, text: nested },
    Shape { name: "nested-accesses", size: 400, text: nested_accesses },
    Shape { name: "nested-counters", size: 56, text: nested_counters },
    Shape { name: "switch", size: 10_000, text: switch },
    Shape { name: "switch-in-loop", size: 6_000, text: switch_in_loop },
    Shape { name: "straight", size: 50_000, text: straight },
    Shape { name: "straight-loads", size: 25_000, text: straight_loads },
    Shape { name: "straight-unknown", size: 12_000, text: straight_unknown },
    Shape { name: "straight-loop", size: 30_000, text: straight_loop },
    Shape { name: "diamonds", size: 6_000, text: diamonds },
    Shape { name: "diamonds-in-loop", size: 5_000, text: diamonds_in_loop },
    Shape { name: "loops", size: 3_000, text: loops },
    Shape { name: "loops-in-loop", size: 2_000, text: loops_in_loop },
    Shape { name: "many-headers", size: 2_000, text: many_headers },
    Shape { name: "spills", size: 2_000, text: spills },
];

/// Loops in loops that do nothing but count.
pub(crate) fn nested(depth: usize) -> String {
    let mut t = String::from("mov %r0, 0\nmov %r4, 0\n");
    for i in 0..depth {
        let _ = writeln!(t, "l{i}:\nadd %r4, {}", i + 1);
    }
    for i in (0..depth).rev() {
        let _ = writeln!(t, "add %r4, {}\njlt %r4, %r3, l{i}", i + 1);
    }
    t + "exit\n"
}

/// Loops in loops, each with accesses that could be hoisted.
pub(crate) fn nested_accesses(depth: usize) -> String {
    let mut t = String::from("mov %r0, 0\nmov %r4, 0\nmov %r6, %r2\n");
    for i in 0..depth {
        let _ = writeln!(t, "l{i}:\nldxb %r5, [%r6]\nadd %r0, %r5\nadd %r6, 1");
    }
    for i in (0..depth).rev() {
        let _ = writeln!(t, "add %r4, {}\njlt %r4, %r3, l{i}", i + 1);
    }
    t + "exit\n"
}

/// Loops in loops, each with a counter of its own on the stack.
pub(crate) fn nested_counters(depth: usize) -> String {
    let mut t = String::from("mov %r0, 0\nmov %r6, %r2\n");
    for i in 0..depth {
        let slot = 8 * (i + 1);
        let _ = writeln!(t, "stw [%r10-{slot}], 0\nl{i}:\nldxb %r5, [%r6+{i}]\nadd %r0, %r5");
    }
    for i in (0..depth).rev() {
        let slot = 8 * (i + 1);
        let _ = writeln!(t, "ldxw %r4, [%r10-{slot}]\nadd %r4, 1\nstxw [%r10-{slot}], %r4\njlt %r4, %r3, l{i}");
    }
    t + "exit\n"
}

/// As compilers write a `switch` without tables.
pub(crate) fn switch(arms: usize) -> String {
    let mut t = String::from("ldxw %r4, [%r2]\nmov %r0, 0\n");
    switch_on_r4(&mut t, arms);
    t + "end:\nexit\n"
}

pub(crate) fn switch_in_loop(arms: usize) -> String {
    let mut t = String::from("mov %r0, 0\nmov %r6, %r2\nadd %r3, %r2\nnext:\nldxw %r4, [%r6]\n");
    switch_on_r4(&mut t, arms);
    t + "end:\nadd %r6, 4\njlt %r6, %r3, next\nexit\n"
}

/// A chain of comparisons in front of the arms: jumps reach 32 Ki slots.
fn switch_on_r4(t: &mut String, arms: usize) {
    for i in 0..arms {
        let _ = writeln!(t, "jne %r4, {i}, n{i}\nadd %r0, {}\nja32 end\nn{i}:", i * 7);
    }
}

pub(crate) fn straight(insns: usize) -> String {
    let mut t = String::from("mov %r0, 0\nmov %r4, 1\nmov %r5, 2\nmov %r6, 3\nmov %r7, 4\n");
    let ops = ["add", "xor", "sub", "or", "mul"];
    for i in 0..insns {
        let _ = writeln!(t, "{} %r{}, %r{}", ops[i % 5], 4 + i % 4, 3 + (i * 3) % 5);
    }
    t + "mov %r0, %r4\nexit\n"
}

pub(crate) fn straight_loads(insns: usize) -> String {
    let mut t = String::from("mov %r0, 0\n");
    for i in 0..insns {
        let _ = writeln!(t, "ldxb %r4, [%r2+{}]\nadd %r0, %r4", i % 30_000);
    }
    t + "exit\n"
}

/// Through pointers that come from data.
pub(crate) fn straight_unknown(insns: usize) -> String {
    let mut t = String::from("mov %r0, 0\nldxdw %r4, [%r2]\n");
    for i in 0..insns {
        let _ = writeln!(t, "ldxdw %r5, [%r4+{}]\nadd %r0, %r5\nadd %r4, %r5", 8 * (i % 64));
    }
    t + "exit\n"
}

pub(crate) fn straight_loop(insns: usize) -> String {
    let mut t = String::from("mov %r0, 0\nmov %r6, %r2\nadd %r3, %r2\nnext:\n");
    for i in 0..insns / 2 {
        let _ = writeln!(t, "ldxb %r4, [%r6+{}]\nadd %r0, %r4", i % 30_000);
    }
    // Farther than a jump on a condition reaches.
    t + "add %r6, 1\njge %r6, %r3, end\nja32 next\nend:\nexit\n"
}

pub(crate) fn diamonds(count: usize) -> String {
    let mut t = String::from("mov %r0, 0\n");
    for i in 0..count {
        let _ = writeln!(t, "jlt %r3, {i}, a{i}\nadd %r0, %r3\nja b{i}\na{i}:\nxor %r0, {i}\nmul %r3, 3\nb{i}:");
    }
    t + "exit\n"
}

pub(crate) fn diamonds_in_loop(count: usize) -> String {
    let mut t = String::from("mov %r0, 0\nmov %r6, %r2\nadd %r3, %r2\nmov %r7, 0\nnext:\nldxb %r4, [%r6]\n");
    for i in 0..count {
        let _ = writeln!(t, "jlt %r4, {}, a{i}\nadd %r0, %r4\nja b{i}\na{i}:\nadd %r7, {i}\nb{i}:", i % 256);
    }
    t + "add %r6, 1\njge %r6, %r3, end\nja32 next\nend:\nexit\n"
}

pub(crate) fn loops(count: usize) -> String {
    let mut t = String::from("mov %r0, 0\nadd %r3, %r2\n");
    for i in 0..count {
        let _ = writeln!(t, "mov %r6, %r2\nl{i}:\nldxb %r4, [%r6]\nadd %r0, %r4\nadd %r6, 1\njlt %r6, %r3, l{i}");
    }
    t + "exit\n"
}

pub(crate) fn loops_in_loop(count: usize) -> String {
    let mut t = String::from("mov %r0, 0\nadd %r3, %r2\nmov %r7, %r2\nnext:\n");
    for i in 0..count {
        let _ = writeln!(t, "mov %r6, %r7\nl{i}:\nldxb %r4, [%r6]\nadd %r0, %r4\nadd %r6, 1\njlt %r6, %r3, l{i}");
    }
    t + "add %r7, 1\njge %r7, %r3, end\nja32 next\nend:\nexit\n"
}

/// One test that many loops share: each header is inside all loops before it, and control leaves from each.
pub(crate) fn many_headers(count: usize) -> String {
    let mut t = String::from("mov %r0, 0\nmov %r6, %r2\n");
    for i in 0..count {
        let _ = writeln!(t, "l{i}:\nldxb %r4, [%r6]\nadd %r6, 1\njeq %r4, {}, out", i % 256);
    }
    for i in 0..count {
        let _ = writeln!(t, "ldxb %r4, [%r6]\nadd %r6, 1\njeq %r4, {}, l{}", i % 256, (i * 7919) % count);
    }
    t + "out:\nexit\n"
}

/// Many values that are alive at a time.
pub(crate) fn spills(count: usize) -> String {
    let mut t = String::from("mov %r0, 0\nmov %r6, %r2\nadd %r3, %r2\n");
    for s in 1..=64 {
        let _ = writeln!(t, "stdw [%r10-{}], {s}", 8 * s);
    }
    t.push_str("next:\nldxb %r4, [%r6]\n");
    for i in 0..count {
        let (a, b) = (8 * (1 + i % 64), 8 * (1 + (i * 37) % 64));
        let _ = writeln!(t, "ldxdw %r5, [%r10-{a}]\nadd %r5, %r4\njsgt %r5, {i}, s{i}\nstxdw [%r10-{b}], %r5\ns{i}:");
    }
    t + "ldxdw %r0, [%r10-8]\nadd %r6, 1\njge %r6, %r3, end\nja32 next\nend:\nexit\n"
}
