//! The optimiser's loops: which checks it hoists, and that both forms of a program agree.

use diskside_sbpf::activation::{Activation, ActivationOptions, Limits, Mappings, Program, Returned, Stopped};
use diskside_sbpf::asm::assemble;
use diskside_sbpf::image::Kind;
use diskside_sbpf::insn::{Cond, Width};
use diskside_sbpf::interp::Interpreter;
use diskside_sbpf::ir::{Block, Check, LoopReport, Module, Op, Term, Value, Var};
use diskside_sbpf::opt::instead;
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
    for len in [0, 1, 7, 8, 9, 63, 64, 65, 100, 1000, 4095, 4096] {
        for budget in [0, 1, 5, 50, 20_000] {
            let limits = Limits { budget, deadline: None, cancel: None };
            let run = |module| run(program, module, len, &limits);
            assert_eq!(run(program.plain()), run(program.optimised()), "input of {len} bytes, budget {budget}");
        }
    }
}

type Outcome = Result<Returned, Stopped>;

fn run(program: &Arc<Program>, module: &Arc<Module>, len: usize, limits: &Limits) -> (Outcome, Vec<u64>) {
    let input: Vec<u8> = (0..4096u32).map(|i| (i * 7 % 251) as u8).collect();
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
    let result = activation.call(&mappings, program.entry_registers(&[len as u64]), limits);
    (result, output)
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

/// A program in whose frame data say a place: then what it keeps there may be written by any pointer.
fn with_frame(text: &str) -> Arc<Program> {
    let by_data = "mov %r8, %r3\nand %r8, 7\nadd %r8, %r10\nstb [%r8-64], 1\n";
    program(&format!("{by_data}{text}"))
}

/// A loop with more variables than registers keeps some on the stack: what was addressed by those was checked at every access.
#[test]
fn a_pointer_and_a_bound_on_the_stack_are_as_good_as_in_registers() {
    let p = with_frame(
        "mov %r0, 0\nmov %r4, 0\nstxdw [%r10-8], %r2\nstxdw [%r10-16], %r3\nnext:\nldxdw %r7, [%r10-8]\nadd %r7, %r4\n\
         ldxb %r5, [%r7]\nadd %r0, %r5\nadd %r4, 1\nldxdw %r8, [%r10-16]\njlt %r4, %r8, next\nexit",
    );
    assert_eq!((loops(&p)[0].accesses, loops(&p)[0].unchecked), (1, 1), "{:?}", loops(&p));
    both_forms_agree(&p);
}

#[test]
fn a_pointer_may_move_on_the_stack() {
    let p = with_frame(
        "mov %r0, 0\nmov %r4, %r2\nadd %r4, %r3\nstxdw [%r10-8], %r2\nnext:\nldxdw %r7, [%r10-8]\nldxb %r5, [%r7]\n\
         add %r0, %r5\nadd %r7, 1\nstxdw [%r10-8], %r7\njlt %r7, %r4, next\nexit",
    );
    assert_eq!((loops(&p)[0].accesses, loops(&p)[0].unchecked), (1, 1), "{:?}", loops(&p));
    both_forms_agree(&p);
}

#[test]
fn a_table_on_the_stack_beside_what_was_spilled_hides_nothing() {
    let table = "mov %r8, %r10\nadd %r8, -256\nldxb %r5, [%r7]\nadd %r8, %r5\nstxb [%r8], %r4\nldxb %r5, [%r8]\n";
    let with = |slot: i32| {
        with_frame(&format!(
            "mov %r0, 0\nmov %r4, 0\nstxdw [%r10{slot}], %r2\nnext:\nldxdw %r7, [%r10{slot}]\nadd %r7, %r4\n{table}\
             add %r0, %r5\nadd %r4, 1\njlt %r4, %r3, next\nexit",
        ))
    };
    let (beside, within) = (with(-264), with(-128));
    assert_eq!((loops(&beside)[0].accesses, loops(&beside)[0].unchecked), (3, 3), "{:?}", loops(&beside));
    // It may be what a byte says any time.
    assert_eq!((loops(&within)[0].accesses, loops(&within)[0].unchecked), (3, 2), "{:?}", loops(&within));
    both_forms_agree(&beside);
    both_forms_agree(&within);
}

/// An optimiser that assumes that a store stays where it seems to go must check that it does.
#[test]
fn a_store_that_hits_what_was_spilled_is_seen() {
    // In one trip the output's pointer is one to the slot, which then leads to the input's other end.
    let p = with_frame(
        "mov %r0, 0\nmov %r4, 0\nmov %r6, %r1\nstxdw [%r10-8], %r2\nnext:\nldxdw %r7, [%r10-8]\nadd %r7, %r4\n\
         ldxb %r5, [%r7]\nadd %r0, %r5\nmov %r8, %r6\njne %r5, 77, keep\nmov %r8, %r10\nadd %r8, -8\nkeep:\n\
         mov %r9, %r2\nadd %r9, 3\nstxdw [%r8], %r9\nadd %r4, 1\njlt %r4, %r3, next\nexit",
    );
    both_forms_agree(&p);
    // By an address that is nothing but a number.
    let p = with_frame(
        "mov %r0, 0\nmov %r4, 0\nmov %r6, %r10\nadd %r6, -8\nsub %r6, %r1\nstxdw [%r10-8], %r2\nnext:\nldxdw %r7, [%r10-8]\n\
         add %r7, %r4\nldxb %r5, [%r7]\nadd %r0, %r5\nmov %r8, 0\njne %r5, 77, keep\nmov %r8, %r6\nkeep:\nadd %r8, %r1\n\
         mov %r9, %r2\nadd %r9, 3\nstxdw [%r8], %r9\nadd %r4, 1\njlt %r4, %r3, next\nexit",
    );
    both_forms_agree(&p);
}

#[test]
fn a_call_may_change_what_was_spilled() {
    let p = with_frame(
        "mov %r6, 0\nmov %r7, 0\nmov %r8, %r3\nstxdw [%r10-8], %r2\nnext:\nldxdw %r9, [%r10-8]\nadd %r9, %r7\nldxb %r5, [%r9]\n\
         add %r6, %r5\nmov %r1, %r10\nadd %r1, -8\ncall local change\nadd %r7, 1\njlt %r7, %r8, next\nmov %r0, %r6\nexit\n\
         change:\nldxdw %r2, [%r1]\nxor %r2, 1\nstxdw [%r1], %r2\nexit",
    );
    both_forms_agree(&p);
}

#[test]
fn a_loop_inside_may_change_what_was_spilled() {
    let moves = "ldxdw %r9, [%r10-8]\nadd %r9, 1\nstxdw [%r10-8], %r9\n";
    let calls = "mov %r1, %r10\nadd %r1, -8\ncall local change\n";
    for inside in [moves, calls] {
        let p = with_frame(&format!(
            "mov %r6, 0\nmov %r7, 0\nmov %r8, %r3\nstxdw [%r10-8], %r2\nnext:\nldxdw %r9, [%r10-8]\nldxb %r5, [%r9]\n\
             add %r6, %r5\nand %r5, 3\nadd %r5, 1\nstxdw [%r10-16], %r5\ninner:\n{inside}ldxdw %r5, [%r10-16]\nsub %r5, 1\n\
             stxdw [%r10-16], %r5\njne %r5, 0, inner\nadd %r7, 1\njlt %r7, %r8, next\nmov %r0, %r6\nexit\n\
             change:\nldxdw %r2, [%r1]\nadd %r2, 1\nstxdw [%r1], %r2\nmov %r0, 0\nexit",
        ));
        both_forms_agree(&p);
    }
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

/// Rows that lie a variable apart: a loop over each of them in a loop over all.
fn rows(stride: &str, row_len: &str, rows: &str, inner_step: &str, inner_test: &str) -> Arc<Program> {
    program(&format!(
        "mov %r0, 0\n{}\n{}\n{}\nmov %r6, %r2\nouter:\nldxdw %r3, [%r1]\nadd %r0, %r3\nmov %r9, %r6\nmov %r8, %r6\n\
         add %r8, %r5\ninner:\nldxb %r3, [%r9]\nadd %r0, %r3\nadd %r9, {inner_step}\n{inner_test}, inner\nadd %r6, %r4\n\
         sub %r7, 1\njsgt %r7, 0, outer\nexit",
        set("%r4", stride),
        set("%r5", row_len),
        set("%r7", rows),
    ))
}

fn set(register: &str, value: &str) -> String {
    let is_register = value.starts_with('%');
    format!("{} {register}, {value}", if is_register { "mov" } else { "lddw" })
}

/// Blocks that enter a loop inside past its guard, when there is fuel for all of it.
fn entrances(program: &Program) -> Vec<usize> {
    let func = &program.optimised().functions[0];
    let takes = |block: &Block| {
        let Term::Branch { cond: Cond::SLt, lhs, rhs: Value::Imm(0), .. } = block.term else { return false };
        let left = |op: &Op| matches!(*op, Op::Bin { dst, lhs: Var::FUEL, rhs: Value::Var(_), .. } if dst == lhs);
        lhs != Var::FUEL && block.ops.last().is_some_and(|(op, _)| left(op))
    };
    (0..func.blocks.len()).filter(|&b| takes(&func.blocks[b])).collect()
}

/// The outcome over an input of `len` bytes, and the one where guards that can be passed by end the program instead.
fn without_guards_of_loops_inside(program: &Arc<Program>, len: usize) -> (Outcome, Outcome) {
    let mut module = Module::clone(program.optimised());
    for b in entrances(program) {
        let Term::Branch { then: guard, .. } = module.functions[0].blocks[b].term else { unreachable!() };
        let guard = &mut module.functions[0].blocks[guard.0 as usize];
        guard.ops = vec![(Op::Mov { width: Width::W64, dst: Var::R0, src: Value::Imm(-1) }, 0)];
        guard.term = Term::Return;
    }
    let limits = Limits { budget: 10_000, deadline: None, cancel: None };
    (run(program, program.plain(), len, &limits).0, run(program, &Arc::new(module), len, &limits).0)
}

#[test]
fn rows_a_variable_apart_ask_one_guard_for_all_of_them() {
    for (stride, row_len, count, step, test) in [
        ("64", "64", "16", "1", "jlt %r9, %r8"),
        ("64", "64", "16", "8", "jlt %r9, %r8"),
        ("64", "48", "16", "8", "jgt %r8, %r9"),
        ("64", "64", "16", "1", "jne %r9, %r8"),
        ("64", "63", "16", "1", "jle %r9, %r8"),
        ("64", "64", "16", "1", "jslt %r9, %r8"),
        // Overlapping, all at the same place, and none longer than a byte.
        ("8", "64", "16", "1", "jlt %r9, %r8"),
        ("0", "64", "16", "1", "jlt %r9, %r8"),
        ("64", "0", "16", "1", "jlt %r9, %r8"),
        ("64", "-5", "16", "1", "jlt %r9, %r8"),
    ] {
        let p = rows(stride, row_len, count, step, test);
        assert_eq!(entrances(&p).len(), 1, "{}", p.optimised());
        let (expected, passed_by) = without_guards_of_loops_inside(&p, 1024);
        assert!(expected.is_ok(), "{expected:?}");
        assert_eq!(expected, passed_by, "stride {stride}, rows of {row_len} by {step}\n{}", p.optimised());
        both_forms_agree(&p);
    }
}

#[test]
fn rows_that_lie_outside_or_wrap_around_are_as_if_checked() {
    let numbers =
        ["0", "-1", "-64", "%r3", "%r2", "0xffffffffff", "0x10000000000", "0x7fffffffffffffff", "0x8000000000000000"];
    for stride in &numbers {
        for row_len in &numbers {
            for (count, step, test) in [
                ("64", "1", "jlt %r9, %r8"),
                ("0x8000000000000000", "16", "jle %r9, %r8"),
                ("3", "8", "jne %r9, %r8"),
                ("-1", "-1", "jgt %r9, %r8"),
            ] {
                both_forms_agree(&rows(stride, row_len, count, step, test));
            }
        }
    }
}

#[test]
fn rows_of_the_output_may_overlap_and_end_early() {
    // Each row is written from what the one before left there; the last ones may not fit.
    for (stride, row_len, count) in [
        ("24", "16", "10"),
        ("24", "16", "11"),
        ("8", "16", "31"),
        ("8", "16", "32"),
        ("0", "256", "3"),
        ("-8", "8", "3"),
    ] {
        let text = format!(
            "mov %r0, 0\n{}\n{}\n{}\nmov %r6, %r1\nouter:\nldxdw %r3, [%r1]\nadd %r0, %r3\nmov %r9, 0\ninner:\nmov %r8, %r6\n\
             add %r8, %r9\nldxdw %r3, [%r8]\nadd %r3, %r7\nstxdw [%r8], %r3\nadd %r0, %r3\nadd %r9, 8\njlt %r9, %r5, inner\n\
             add %r6, %r4\nsub %r7, 1\njne %r7, 0, outer\nexit",
            set("%r4", stride),
            set("%r5", row_len),
            set("%r7", count)
        );
        let p = program(&text);
        assert_eq!(entrances(&p).len(), 1, "{}", p.optimised());
        both_forms_agree(&p);
    }
}

#[test]
fn a_column_with_a_variable_stride_runs_unchecked() {
    for stride in ["8", "24", "0", "-8", "4096", "0x8000000000000000", "0xffffffffff", "0x10000000000", "%r3"] {
        let p = program(&format!(
            "mov %r0, 0\n{}\nmov %r7, 100\nnext:\nldxb %r3, [%r2]\nadd %r0, %r3\nadd %r2, %r4\nsub %r7, 1\njne %r7, 0, next\n\
             exit",
            set("%r4", stride)
        ));
        assert_eq!((loops(&p)[0].accesses, loops(&p)[0].unchecked), (1, 1), "{:?}", loops(&p));
        both_forms_agree(&p);
    }
}

#[test]
fn a_stride_that_changes_is_none() {
    // r4 grows: no guard knows where the next row is. The loop inside has its own.
    let p = program(
        "mov %r0, 0\nmov %r4, 1\nmov %r6, %r2\nmov %r7, 20\nouter:\nldxdw %r3, [%r1]\nmov %r9, 0\ninner:\nmov %r8, %r6\n\
         add %r8, %r9\nldxb %r3, [%r8]\nadd %r0, %r3\nadd %r9, 1\njlt %r9, 8, inner\nadd %r6, %r4\nadd %r4, 3\nsub %r7, 1\n\
         jne %r7, 0, outer\nexit",
    );
    assert!(entrances(&p).is_empty(), "{}", p.optimised());
    assert!(loops(&p).iter().all(|l| l.hoisted), "{:?}", loops(&p));
    both_forms_agree(&p);
}

#[test]
fn rows_that_grow_ask_their_own_guard() {
    let p = program(
        "mov %r0, 0\nmov %r6, 0\nouter:\nldxdw %r3, [%r1]\nmov %r9, 0\ninner:\nmov %r8, %r2\nadd %r8, %r9\nldxb %r4, [%r8]\n\
         add %r0, %r4\nadd %r9, 1\njle %r9, %r6, inner\nadd %r6, 1\njlt %r6, 40, outer\nexit",
    );
    assert!(entrances(&p).is_empty(), "{}", p.optimised());
    assert!(loops(&p).iter().all(|l| l.hoisted), "{:?}", loops(&p));
    both_forms_agree(&p);
}

/// A counter of HTTP statuses ran 17 times slower than native code: a number computed of three digits was compared
/// with 600 before it became an index, but the comparison of 32 bits was not believed, so the guard asked for
/// 32 GiB of output and always refused. What a comparison with a constant leaves is a bound now.
#[test]
fn an_index_that_was_compared_with_a_constant_has_a_bound() {
    for (test, width, unchecked) in [("jgt32", "32", 3), ("jge", "", 3), ("jlt32", "32", 1), ("jsgt32", "32", 1)] {
        let p = program(&format!(
            "mov %r0, 0\nmov %r4, %r2\nadd %r4, %r3\nnext:\nldxb %r5, [%r2]\nmul32 %r5, 100\nadd32 %r5, -5000\n\
             {test} %r5, 20, skip\nmov{width} %r6, %r5\nlsh %r6, 3\nadd %r6, %r1\nldxdw %r7, [%r6]\nadd %r7, 1\n\
             stxdw [%r6], %r7\nskip:\nadd %r2, 1\njlt %r2, %r4, next\nexit"
        ));
        assert_eq!((loops(&p)[0].accesses, loops(&p)[0].unchecked), (3, unchecked), "{test}: {:?}", loops(&p));
        if unchecked == 1 {
            assert_eq!(loops(&p)[0].why.len(), 2);
            assert!(loops(&p)[0].why[0].ends_with("the address comes from data that nothing bounds"));
        }
        both_forms_agree(&p);
    }
}

/// The sixteen greatest values took 40 times as long as in native code, because one rare store went where data said:
/// the guard of the whole loop asked for all places that it might say. It is checked where it is made now.
#[test]
fn an_address_from_anywhere_does_not_keep_the_other_accesses_checked() {
    let p = program(
        "mov %r0, 0\nmov %r4, %r2\nadd %r4, %r3\nnext:\nldxb %r5, [%r2]\nldxb %r8, [%r2+1]\nlsh %r8, 24\n\
         jlt %r5, 250, skip\nmov %r6, %r8\nadd %r6, %r1\nstxb [%r6], %r5\nskip:\nadd %r2, 1\n\
         jlt %r2, %r4, next\nexit",
    );
    assert_eq!((loops(&p)[0].accesses, loops(&p)[0].unchecked, loops(&p)[0].hoisted), (3, 2, true));
    both_forms_agree(&p);
}

/// Counting characters of UTF-8 was 15 times slower than native code: a pointer moves by what was read, by 32 bits as far
/// as was known, so not one trip was sure to stay in bounds.
#[test]
fn a_pointer_that_moves_by_anything_is_checked_inline() {
    let p = program(
        "mov %r0, 0\nmov %r4, %r2\nadd %r4, %r3\nnext:\nldxw %r5, [%r2]\nldxb %r6, [%r1+8]\nadd %r0, %r6\n\
         add %r2, %r5\njlt %r2, %r4, next\nexit",
    );
    assert_eq!((loops(&p)[0].accesses, loops(&p)[0].unchecked, loops(&p)[0].hoisted), (2, 1, true));
    let why = &loops(&p)[0].why[0];
    assert!(why.ends_with("the address moves by what is read, which nothing bounds"));
    assert_eq!(instead(why), Some("compare what was read with a constant before the pointer moves by it"));
    both_forms_agree(&p);
}

/// Two counters side by side: clang makes one access of both, through a pointer that is one or the other. The guard
/// asked whether the two pointers are equal, which they never were, and words were counted 6 times slower than natively.
#[test]
fn pointers_that_differ_at_the_start_are_not_taken_for_copies() {
    let text = |apart: i32| {
        format!(
            "mov %r0, 0\nmov %r4, %r2\nadd %r4, %r3\nmov %r6, %r1\nadd %r6, {apart}\nnext:\nldxb %r5, [%r2]\nmov %r7, %r1\n\
             jeq %r5, 10, one\nmov %r7, %r6\none:\nldxdw %r8, [%r7]\nadd %r8, 1\nstxdw [%r7], %r8\nadd %r2, 1\n\
             jlt %r2, %r4, next\nexit"
        )
    };
    let (apart, copies) = (program(&text(8)), program(&text(0)));
    assert_eq!((loops(&apart)[0].unchecked, loops(&copies)[0].unchecked), (1, 3));
    both_forms_agree(&apart);
    both_forms_agree(&copies);
}

/// A look back, which is not made in the first trip, kept its loop slow to the end: the guard was asked once. It is asked
/// again every 32 trips.
#[test]
fn a_guard_that_refused_is_asked_again() {
    let p = program(
        "mov %r0, 0\nmov %r4, 0\nnext:\nmov %r6, %r2\nadd %r6, %r4\nldxb %r5, [%r6]\njne %r5, 34, skip\njeq %r4, 0, skip\n\
         ldxb %r5, [%r6-1]\nadd %r0, %r5\nskip:\nadd %r4, 1\njlt %r4, %r3, next\nexit",
    );
    assert_eq!((loops(&p)[0].accesses, loops(&p)[0].unchecked), (2, 2));
    let asks = |b: &&Block| {
        matches!(b.ops[..], [(Op::Bin { lhs: Var::FUEL, rhs: Value::Imm(31), .. }, _)]
            if matches!(b.term, Term::Branch { cond: Cond::Eq, .. }))
    };
    assert_eq!(p.optimised().functions[0].blocks.iter().filter(asks).count(), 1);
    both_forms_agree(&p);
}

/// A table in an output of a known length is as long as the guard asks for, or the guard does not ask.
#[test]
fn a_known_length_decides_whether_a_table_is_guarded() {
    let helpers = Arc::new(diskside_sbpf::helpers::standard());
    let text = "mov %r0, 0\nmov %r4, %r2\nadd %r4, %r3\nnext:\nldxh %r5, [%r2]\nadd %r5, %r1\nldxb %r6, [%r5]\nadd %r0, %r6\n\
                add %r2, 1\njlt %r2, %r4, next\nexit";
    let unchecked = |ratio: (u32, u32), constant: u64| {
        let mut image = assemble(text).expect("assembles").into_image(Kind::Read, &helpers).expect("links");
        (image.note.out_ratio, image.note.out_constant) = (ratio, constant);
        let p = Arc::new(Program::new(&Arc::new(image), 0, &helpers).expect("verifies"));
        both_forms_agree(&p);
        (loops(&p)[0].unchecked, loops(&p)[0].why.clone())
    };
    assert_eq!(unchecked((0, 1), 65536), (2, vec![]));
    let (fewer, why) = unchecked((0, 1), 65535);
    assert_eq!(fewer, 1);
    assert!(why[0].ends_with("data may say a place beyond the end of the region"), "{why:?}");
    let (fewer, why) = unchecked((1, 1), 65536);
    assert_eq!(fewer, 1);
    assert!(why[0].ends_with("the address comes from data that nothing bounds"), "{why:?}");
}

/// Guards of loops side by side share variables, and the number of edges that the guard around them finds out for the second
/// one was in a variable of the first one's guard: a store went 4 GiB beyond its region. It has a variable of its own.
#[test]
fn what_is_found_out_ahead_is_not_overwritten_by_another_loop_inside() {
    let p = program(
        "mov %r0, 0\nmov %r9, 5\nouter:\nmov %r5, %r2\nmov %r4, %r2\nadd %r4, 40\nfirst:\nldxw %r6, [%r5+12]\nadd %r0, %r6\n\
         add %r5, 4\njsgt %r6, 1000, done\njlt %r5, %r4, first\ndone:\nmov %r4, 8\nsecond:\nsub32 %r4, 2\nmov %r6, %r4\n\
         add %r6, %r1\nstxb [%r6], %r9\njne32 %r4, 0, second\nadd %r2, 1\nsub %r9, 1\njne %r9, 0, outer\nexit",
    );
    assert!(loops(&p).iter().any(|l| l.hoisted));
    let mut made_ahead = std::collections::BTreeSet::new();
    let blocks = &p.optimised().functions[0].blocks;
    for (op, _) in blocks.iter().flat_map(|b| &b.ops) {
        if let Op::Opaque { dst, bits: 31, .. } = op {
            made_ahead.insert(*dst);
        }
    }
    for v in &made_ahead {
        // One guard computes it, in one block; elsewhere it is only read.
        let writes = |b: &&Block| b.ops.iter().any(|(op, _)| op.dst() == Some(*v));
        assert_eq!(blocks.iter().filter(writes).count(), 1, "{}", p.optimised());
    }
    assert!(!made_ahead.is_empty(), "{}", p.optimised());
    both_forms_agree(&p);
}
