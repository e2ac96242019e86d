//! The tiers: they give the same result, trap and state, and say when they could not compile a function.

use diskside_engine::{Call, Function, Sink, State, TierChoice};
use diskside_sbpf::activation::Tier;
use diskside_sbpf::asm::assemble;
use diskside_sbpf::image::Kind;
use std::sync::Arc;

use super::{COPY, bytes, engine, function, function_noted};

/// The function gets a copy of the chunk; the rest of that copy is the output, and the return value is beside it.
#[test]
fn a_program_that_works_in_place_leaves_its_output_where_its_input_was() {
    let engine = engine();
    // Adds its length to the first byte, and 1 to the last; returns ~0 - the first byte.
    let text = "
        mov %r5, %r1
        add %r5, %r2
        ldxb %r0, [%r5-1]
        add %r0, 1
        stxb [%r5-1], %r0
        ldxb %r0, [%r1]
        add %r2, %r0
        stxb [%r1], %r2
        xor %r0, -1
        exit";
    let image = assemble(text).expect("it assembles").into_image(Kind::Delilah, engine.helpers()).expect("it links");
    let function = Function::from_image(&Arc::new(image), None, engine.helpers()).expect("it verifies");
    assert!(function.is_pure() && function.is_in_place());
    let input: Vec<u8> = (0..100).collect();
    let mut expected = input.clone();
    expected[99] += 1;
    expected[0] += 100;
    for threads in [1, 3] {
        for tier in [Tier::Interpreter, Tier::Cranelift] {
            let tier = TierChoice::Only(tier);
            let call = Call { chunk_len: Some(8), threads, tier, ..Call::new(&function, bytes(&input), Vec::new()) };
            let ran = engine.run(&call, &mut Sink::Memory).expect("it runs");
            assert_eq!(ran.result, expected, "{threads} threads");
            assert_eq!(ran.returned, Some(!0), "no errno, though it is negative");
            assert_eq!((ran.stats.chunks, ran.stats.output_bytes), (1, 100), "a request is one run");
        }
    }
    // Of others the length of the output says it.
    let copy = self::function(&engine, COPY);
    let call = Call::new(&copy, bytes(&input), Vec::new());
    assert_eq!(engine.run(&call, &mut Sink::Memory).expect("it runs").returned, None);
}

#[test]
fn every_tier_gives_the_same_trap_at_the_same_place() {
    let engine = engine();
    let f = function(&engine, "ldxdw %r0, [%r2+8]\nexit");
    let mut errors = Vec::new();
    for tier in [Tier::Interpreter, Tier::Cranelift] {
        let mut call = Call::new(&f, bytes(&[0; 12]), Vec::new());
        call.tier = TierChoice::Only(tier);
        errors.push(engine.run(&call, &mut Sink::Memory).expect_err("out of bounds").to_string());
    }
    assert_eq!(errors[0], errors[1]);
    assert!(errors[0].starts_with("memory, bytes 0..12: "), "{}", errors[0]);
}

#[test]
fn state_is_shared_by_calls_and_makes_them_impure() {
    let engine = engine();
    // state[0] += 1; returns it as 8 bytes.
    let f = function(
        &engine,
        "lddw %r6, 0xb0000000000\nldxdw %r7, [%r6]\nadd %r7, 1\nstxdw [%r6], %r7\nstxdw [%r1], %r7\nmov %r0, 8\nexit",
    );
    assert!(!f.is_pure());
    let state = State::new(8);
    for expected in 1..=3u64 {
        let mut call = Call::new(&f, bytes(b"x"), Vec::new());
        call.state = Some(state.clone());
        call.threads = 4;
        let outcome = engine.run(&call, &mut Sink::Memory).expect("runs");
        assert_eq!(outcome.result, expected.to_le_bytes());
        assert_eq!(outcome.stats.threads, 1, "a program with effects runs on one thread");
    }
    state.clear(0, usize::MAX).unwrap();
    assert_eq!(state.snapshot(), [0; 8]);
    let call = Call::new(&f, bytes(b"x"), Vec::new());
    let error = engine.run(&call, &mut Sink::Memory).expect_err("no state is mapped").to_string();
    assert!(error.contains("of state at offset 0, where nothing is mapped"), "{error}");
}

/// A function of tens of kilobytes could take seconds to compile, once for each call that found it not compiled. What
/// would take too long is compiled in one pass, or not at all; the result is the same, and the statistics say so.
#[test]
fn what_is_too_long_to_compile_runs_in_a_plainer_form_and_says_so() {
    let checked = "ldxdw %r5, [%r4]\nadd %r0, %r5\nadd %r4, %r5\n";
    let joined = "jlt %r3, 1, +1\nmul %r0, 3\nadd %r0, 1\n";
    let of = |body: &str| format!("mov %r0, 0\nmov %r4, %r2\n{body}mov %r5, %r0\nstxdw [%r1], %r5\nmov %r0, 8\nexit");
    let cases = [
        (joined.repeat(100), Tier::Cranelift, None),
        (joined.repeat(5000), Tier::Cranelift, Some("it is long, and was compiled in one pass")),
        (
            checked.repeat(9000),
            Tier::Interpreter,
            Some("function `read` is too large for the Cranelift tier; it is interpreted"),
        ),
    ];
    for (body, tier, why) in cases {
        let engine = engine();
        let text = of(&body);
        let function = function_noted(&engine, &text, |note| note.out_constant = 8);
        let run = |tier| {
            let mut call = Call::new(&function, bytes(&[0; 64]), Vec::new());
            call.tier = tier;
            engine.run(&call, &mut Sink::Memory)
        };
        let (best, interpreted) = (run(TierChoice::Best), run(TierChoice::Only(Tier::Interpreter)));
        let (best, interpreted) = (best.expect("it runs"), interpreted.expect("it runs"));
        assert_eq!((&best.result, best.stats.tier), (&interpreted.result, tier));
        assert_eq!(engine.code().stats().plainer, why.map(|why| format!("read/read: {why}")));
        if tier == Tier::Interpreter {
            let refused = run(TierChoice::Only(Tier::Cranelift)).expect_err("it is too long");
            assert_eq!(
                refused.to_string(),
                "cranelift cannot compile `read/read`: function `read` is too large for the Cranelift tier"
            );
        }
    }
}
