//! What the optimiser makes of loops: which checks it hoists, and that both forms of a program agree.

use diskside_sbpf::activation::{Activation, ActivationOptions, Limits, Mappings, Program};
use diskside_sbpf::asm::assemble;
use diskside_sbpf::image::Kind;
use diskside_sbpf::interp::Interpreter;
use diskside_sbpf::ir::{Check, LoopReport, Op, Term, Value, Var};
use diskside_sbpf::region::RegionId;
use std::sync::Arc;

fn program(text: &str) -> Arc<Program> {
    let helpers = Arc::new(diskside_sbpf::helpers::standard());
    let image = assemble(text).expect("assembles").into_image(Kind::Read, &helpers).expect("links");
    Arc::new(Program::new(&Arc::new(image), 0, &helpers).expect("verifies"))
}

fn loops(program: &Program) -> &[LoopReport] {
    &program.optimised().functions[0].loops
}

/// Runs plain and optimised IR over inputs around every length that matters, with budgets that end in
/// the middle, and compares results, output, traps and budget left.
fn both_forms_agree(program: &Arc<Program>) {
    let input: Vec<u8> = (0..4096u32).map(|i| (i * 7 % 251) as u8).collect();
    for len in [0, 1, 7, 8, 9, 63, 64, 65, 100, 1000, 4095, 4096] {
        for budget in [0, 1, 5, 50, 20_000] {
            let run = |module| {
                let code = Arc::new(Interpreter::new(Arc::clone(module)));
                let mut activation = Activation::new(program, code, ActivationOptions::default());
                let mut output = vec![0u64; 32];
                // A trap in a small output is part of what has to agree.
                let bytes: &mut [u8] = zerocopy_bytes(&mut output);
                let context = [0; 56];
                let mappings = Mappings::new()
                    .read_only(RegionId::INPUT, &input[..len])
                    .writable(RegionId::OUTPUT, bytes)
                    .read_only(RegionId::CONTEXT, &context);
                let limits = Limits { budget, deadline: None, cancel: None };
                let result = activation.call(&mappings, program.entry_registers(&[len as u64]), &limits);
                (result, output)
            };
            assert_eq!(run(program.plain()), run(program.optimised()), "input of {len} bytes, budget {budget}");
        }
    }
}

fn zerocopy_bytes(words: &mut [u64]) -> &mut [u8] {
    let len = words.len() * 8;
    // SAFETY: eight bytes a word, all bit patterns are valid, and the borrow is exclusive.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), len) }
}

#[test]
fn a_pointer_that_advances_by_a_constant_runs_unchecked() {
    let p = program(
        "mov %r0, 0\nmov %r4, %r2\nadd %r4, %r3\nnext:\nldxb %r5, [%r2]\nadd %r0, %r5\nadd %r2, 1\njlt %r2, %r4, next\nexit",
    );
    assert_eq!((loops(&p)[0].accesses, loops(&p)[0].unchecked, loops(&p)[0].hoisted), (1, 1, true));
    both_forms_agree(&p);
}

#[test]
fn a_32_bit_index_and_a_table_by_a_byte_run_unchecked() {
    let p = program(
        "mov32 %r4, 0\nmov32 %r6, %r3\nnext:\nmov %r5, %r2\nadd %r5, %r4\nldxb %r7, [%r5]\nand %r7, 31\nlsh %r7, 3\n\
         mov %r8, %r1\nadd %r8, %r7\nldxdw %r9, [%r8]\nadd %r9, 1\nstxdw [%r8], %r9\nadd32 %r4, 1\njlt32 %r4, %r6, next\n\
         mov %r0, 256\nexit",
    );
    assert_eq!((loops(&p)[0].accesses, loops(&p)[0].unchecked), (3, 3));
    both_forms_agree(&p);
}

#[test]
fn copies_of_a_counter_do_not_hide_it() {
    // r8 is always the value that r9 had a trip ago, as clang writes `while (j < n) … j++`.
    let p = program(
        "mov %r8, 0\nmov %r9, 0\nmov %r0, 0\nnext:\nadd %r9, 1\nmov %r5, %r2\nadd %r5, %r8\nldxb %r4, [%r5]\n\
         add %r0, %r4\nmov %r8, %r9\njlt %r9, %r3, next\nexit",
    );
    assert!(loops(&p)[0].hoisted, "{:?}", loops(&p));
    both_forms_agree(&p);
}

#[test]
fn an_address_from_data_stays_checked_and_says_so() {
    let p = program(
        "mov %r0, 0\nmov %r4, %r2\nnext:\nldxdw %r5, [%r4]\nmov %r6, %r2\nadd %r6, %r5\nldxb %r7, [%r6]\nadd %r0, %r7\n\
         add %r4, 8\nsub %r3, 8\njsgt %r3, 0, next\nexit",
    );
    let l = &loops(&p)[0];
    assert_eq!((l.accesses, l.unchecked), (2, 1));
    assert!(l.why[0].ends_with("the address is not a linear function of the trip"), "{:?}", l.why);
    both_forms_agree(&p);
}

/// A loop that combines a large constant by `xor` made the optimiser compute the interval of the
/// result beyond what an `i64` holds: it panicked where overflow is checked, and elsewhere took an
/// interval that was wrong. Found by the differential fuzzer.
#[test]
fn the_interval_of_an_or_of_large_constants_does_not_overflow() {
    for op in ["xor", "or", "and"] {
        for constant in ["0x3ff0000000000000", "0x7fffffffffffffff", "0x4000000000000000"] {
            let p = program(&format!("l:\nlddw %r6, {constant}\n{op} %r6, 2147483647\nja l"));
            both_forms_agree(&p);
        }
    }
}

/// Blocks of the optimised form that often run and ask whether there is fuel left.
fn asking_for_fuel(program: &Program) -> usize {
    let blocks = program.optimised().functions[0].blocks.iter().filter(|b| !b.cold);
    blocks.filter(|b| matches!(b.term, Term::Branch { lhs: Var::FUEL, .. })).count()
}

/// Blocks of the optimised form that read the input unchecked and end with a test of the program's own.
fn tests_in_fast_copies(program: &Program) -> usize {
    let proved = |(op, _): &(Op, u32)| matches!(op, Op::Load { check: Check::Direct(RegionId::INPUT), .. });
    let fast = program.optimised().functions[0].blocks.iter().filter(|b| b.ops.iter().any(proved));
    let added = |v: Value| matches!(v, Value::Var(v) if v.0 >= Var::FIRST_FREE);
    let own = |t: &Term| matches!(t, Term::Branch { lhs, rhs, .. } if lhs.0 <= Var::FP.0 && !added(*rhs));
    fast.filter(|b| own(&b.term)).count()
}

#[test]
fn a_test_that_counts_trips_is_made_after_the_last_one_only() {
    // r4 counts up by the second number from the first, or down; the limit is r6.
    for (width, start, step, limit, test) in [
        ("", "0", 1, "%r3", "jlt %r4, %r6, next"),
        ("", "0", 1, "%r3", "jgt %r6, %r4, next"),
        ("", "0", 1, "%r3", "jne %r4, %r6, next"),
        ("", "0", 3, "%r3", "jlt %r4, %r6, next"),
        ("", "0", 3, "%r3", "jne %r4, %r6, next"),
        ("", "1", 2, "%r3", "jle %r4, %r6, next"),
        ("", "-5", 1, "%r3", "jslt %r4, %r6, next"),
        ("", "-5", 4, "%r3", "jsle %r4, %r6, next"),
        ("", "%r3", -1, "0", "jgt %r4, %r6, next"),
        ("", "%r3", -1, "0", "jsgt %r4, %r6, next"),
        ("", "%r3", -7, "0", "jsgt %r4, %r6, next"),
        ("", "%r3", -1, "1", "jsge %r4, %r6, next"),
        ("", "%r3", -1, "5", "jge %r4, %r6, next"),
        ("", "%r3", -1, "0", "jne %r4, %r6, next"),
        ("", "0", 1, "%r3", "jeq %r4, %r6, done\nja next"),
        ("32", "0", 1, "%r3", "jlt32 %r4, %r6, next"),
        ("32", "0", 1, "%r3", "jne32 %r4, %r6, next"),
        ("32", "0", 5, "%r3", "jslt32 %r4, %r6, next"),
        ("32", "7", 1, "100", "jle32 %r4, %r6, next"),
        ("32", "0", 1, "-1", "jslt32 %r4, %r6, next"),
        ("32", "-3", 1, "9", "jlt32 %r4, %r6, next"),
        ("32", "%r3", -1, "0", "jsgt32 %r4, %r6, next"),
    ] {
        let text = format!(
            "mov %r0, 0\nmov{width} %r4, {start}\nmov{width} %r6, {limit}\nmov %r7, %r2\nnext:\nldxb %r5, [%r7]\n\
             add %r0, %r5\nadd %r7, 1\nadd{width} %r4, {step}\n{test}\ndone:\nexit"
        );
        let p = program(&text);
        assert!(loops(&p)[0].hoisted, "{text}: {:?}", loops(&p));
        assert_eq!(tests_in_fast_copies(&p), 0, "{text}\n{}", p.optimised());
        both_forms_agree(&p);
    }
}

#[test]
fn a_test_of_what_was_read_stays_in_every_trip() {
    let p = program("mov %r0, 0\nnext:\nldxb %r5, [%r2]\nadd %r0, 1\nadd %r2, 1\njne %r5, 3, next\nexit");
    assert!(loops(&p)[0].hoisted);
    assert_eq!(tests_in_fast_copies(&p), 1);
    both_forms_agree(&p);
}

#[test]
fn a_short_countdown_inside_is_covered_by_the_guard_around_it() {
    // Writes each byte of the input as often as it says, by pieces of a few bytes, from place to place.
    for (piece, entry, repeat, covered) in [
        (8, "jlt %r5, 8, done", "jgt %r5, 7, next", true),
        (8, "jle %r5, 7, done", "jge %r5, 8, next", false),
        (8, "jlt32 %r5, 8, done", "jgt %r5, 7, next", true),
        (8, "jslt %r5, 8, done", "jgt %r5, 7, next", true),
        (8, "jlt %r5, 20, done", "jgt %r5, 12, next", true),
        (1, "jeq %r5, 0, done", "jgt %r5, 0, next", false),
        (1, "jlt %r5, 1, done", "jgt %r5, 0, next", false),
        // The first trip may wrap around, or a later one.
        (8, "jlt %r5, 7, done", "jgt %r5, 7, next", false),
        (8, "jlt %r5, 8, done", "jgt %r5, 6, next", false),
        (8, "jeq %r5, 8, done", "jgt %r5, 7, next", false),
    ] {
        let text = format!(
            "mov %r0, 0\nmov %r4, %r2\nadd %r4, %r3\nouter:\nldxb %r5, [%r2]\n{entry}\nnext:\nstxb [%r1], %r5\n\
             add %r1, {piece}\nsub %r5, {piece}\n{repeat}\ndone:\nstxb [%r1], %r5\nadd %r2, 1\njlt %r2, %r4, outer\nexit"
        );
        let p = program(&text);
        let outer = &loops(&p)[0];
        assert_eq!(outer.unchecked == outer.accesses, covered, "{text}\n{:?}\n{}", loops(&p), p.optimised());
        // The guard leaves enough for the loop inside, which only the end of the guard's trips asks for.
        assert_eq!(asking_for_fuel(&p) == 1, covered, "{text}\n{}", p.optimised());
        both_forms_agree(&p);
    }
}
