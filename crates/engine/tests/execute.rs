//! Standard executions: what a program sees of memory ranges, data and parameters, in every tier.

use diskside_engine::{CallError, CallLimits, EXECUTION_RANGES_MAX, Engine, Execution, Function, State, TierChoice};
use diskside_io::buffer::Buffer;
use diskside_sbpf::activation::Tier;
use diskside_sbpf::asm::assemble;
use diskside_sbpf::image::Kind;
use std::sync::Arc;

const TIERS: [TierChoice; 2] = [TierChoice::Only(Tier::Interpreter), TierChoice::Only(Tier::Cranelift)];

fn engine() -> Engine {
    Engine::new(diskside_sbpf::helpers::standard())
}

fn function(engine: &Engine, kind: Kind, text: &str) -> Function {
    let assembly = assemble(text).expect("the test's program assembles");
    let image = assembly.into_image(kind, engine.helpers()).expect("the test's program links");
    Function::any_from_image(&Arc::new(image), None, engine.helpers()).expect("the test's program verifies")
}

fn run(
    engine: &Engine,
    function: &Function,
    ranges: &mut [Buffer],
    data: &[u8],
    tier: TierChoice,
) -> Result<u64, CallError> {
    let ranges = ranges.iter_mut().map(|buffer| (9, &mut buffer[..])).collect();
    let limits = CallLimits::default();
    let state = None;
    engine.execute(Execution { function, ranges, data, cparam1: 0x1122, cparam2: 3, state, tier, limits, turns: None })
}

#[test]
fn an_exec_program_sees_its_ranges_its_data_and_its_parameters() {
    let engine = engine();
    // range[1][0] = cparam1; range[2][8] = range[1].len; return data[0] + nranges * 1000 + cparam2 + range[1].nsid
    let program = function(
        &engine,
        Kind::Exec,
        "
        ldxdw %r2, [%r1+8]
        ldxdw %r3, [%r1+24]
        ldxdw %r4, [%r1+64]
        ldxdw %r5, [%r1+72]
        stxdw [%r4], %r2
        ldxdw %r6, [%r1+88]
        stxdw [%r6+8], %r5
        ldxdw %r0, [%r3]
        ldxw %r7, [%r1+4]
        mul %r7, 1000
        add %r0, %r7
        ldxdw %r7, [%r1+16]
        add %r0, %r7
        ldxw %r7, [%r1+84]
        add %r0, %r7
        exit",
    );
    for tier in TIERS {
        let mut ranges = [Buffer::zeroed(64), Buffer::zeroed(4096)];
        let returned = run(&engine, &program, &mut ranges, &5_u64.to_le_bytes(), tier).unwrap();
        assert_eq!(returned, 5 + 3 * 1000 + 3 + 9);
        assert_eq!(ranges[0][..8], 0x1122_u64.to_le_bytes());
        assert_eq!(ranges[1][8..16], 64_u64.to_le_bytes());
    }
}

#[test]
fn no_range_is_left_and_none_is_another() {
    let engine = engine();
    // Reads the first byte past range 1.
    let past = function(
        &engine,
        Kind::Exec,
        "
        ldxdw %r4, [%r1+64]
        ldxdw %r5, [%r1+72]
        add %r4, %r5
        ldxb %r0, [%r4]
        exit",
    );
    // Asks for range[3], of which there is none.
    let missing = function(&engine, Kind::Exec, "ldxdw %r0, [%r1+112]\nexit");
    for tier in TIERS {
        let mut ranges = [Buffer::zeroed(64), Buffer::zeroed(64)];
        let error = run(&engine, &past, &mut ranges, &[], tier).unwrap_err().to_string();
        assert!(
            error.contains("out-of-bounds read of 1 bytes of range 1 at offset 64, which is 64 bytes long"),
            "{error}"
        );
        let error = run(&engine, &missing, &mut ranges, &[], tier).unwrap_err().to_string();
        assert!(error.contains("out-of-bounds read of 8 bytes of context at offset 112"), "{error}");
    }
}

#[test]
fn as_many_ranges_as_there_are_windows() {
    let engine = engine();
    // The last range's first byte.
    let program = function(
        &engine,
        Kind::Exec,
        "
        ldxw %r2, [%r1+4]
        sub %r2, 1
        mul %r2, 24
        mov %r3, %r1
        add %r3, %r2
        ldxdw %r4, [%r3+40]
        ldxb %r0, [%r4]
        exit",
    );
    let mut ranges: Vec<Buffer> = (0..EXECUTION_RANGES_MAX).map(|_| Buffer::zeroed(8)).collect();
    ranges.last_mut().unwrap()[0] = 77;
    for tier in TIERS {
        assert_eq!(run(&engine, &program, &mut ranges, &[], tier).unwrap(), 77);
    }
    ranges.push(Buffer::zeroed(8));
    let error = run(&engine, &program, &mut ranges, &[], TierChoice::Best).unwrap_err();
    assert!(matches!(error, CallError::BadRanges { given: 240, .. }), "{error}");
}

#[test]
fn a_read_program_takes_its_input_its_output_and_its_arguments() {
    let engine = engine();
    // Copies the input to the output; returns its length and the first byte of the arguments together.
    let program = function(
        &engine,
        Kind::Read,
        "
        mov %r6, %r3
        ldxb %r7, [%r4]
        call helper ds_memcpy
        mov %r0, %r6
        add %r0, %r7
        exit",
    );
    for tier in TIERS {
        let mut ranges = [Buffer::copy_of(&[3; 64]), Buffer::zeroed(128)];
        assert_eq!(run(&engine, &program, &mut ranges, &[7], tier).unwrap(), 64 + 7);
        let error = run(&engine, &program, &mut ranges, &[65], tier).unwrap_err();
        assert!(matches!(error, CallError::OutputFull { returned: 129, cap: 128, .. }), "{error}");
        assert_eq!((&ranges[1][..64], &ranges[1][64..]), (&[3; 64][..], &[0; 64][..]));
        let mut short = [Buffer::copy_of(&[3; 64]), Buffer::zeroed(32)];
        let error = run(&engine, &program, &mut short, &[7], tier).unwrap_err().to_string();
        assert!(error.contains("output") && error.contains("32 bytes long"), "{error}");
        let error = run(&engine, &program, &mut ranges[..1], &[7], tier).unwrap_err().to_string();
        assert_eq!(error, "read/read was given 1 memory ranges: it takes two: its input and its output");
    }
}

/// Adds one to the first byte of its data; with a state, counts there. Returns the count, or the length of its data.
const IN_PLACE: &str = "
    mov %r0, %r2
    ldxb %r5, [%r1]
    add %r5, 1
    stxb [%r1], %r5
    jlt %r4, 8, done
    ldxdw %r0, [%r3]
    add %r0, 1
    stxdw [%r3], %r0
done:
    exit";

#[test]
fn a_program_that_works_in_place_takes_one_range_and_finds_its_state_again() {
    let engine = engine();
    let program = function(&engine, Kind::Delilah, IN_PLACE);
    let state = State::new(16);
    let run = |ranges: &mut [Buffer], data: &[u8], state: Option<&State>, tier| {
        let ranges = ranges.iter_mut().map(|buffer| (9, &mut buffer[..])).collect();
        let limits = CallLimits { budget: Some(100), ..CallLimits::default() };
        let state = state.cloned();
        let (function, cparam1, cparam2) = (&program, 0, 0);
        engine.execute(Execution { function, ranges, data, cparam1, cparam2, state, tier, limits, turns: None })
    };
    for (runs, tier) in (0..).zip(TIERS) {
        let mut slot = [Buffer::copy_of(&[5; 64])];
        assert_eq!(run(&mut slot, &[], None, tier).unwrap(), 64, "its length");
        assert_eq!((slot[0][0], slot[0][1]), (6, 5));
        assert_eq!(run(&mut slot, &[], Some(&state), tier).unwrap(), 2 * runs + 1);
        assert_eq!(run(&mut slot, &[], Some(&state), tier).unwrap(), 2 * runs + 2);
        assert_eq!(slot[0][0], 8);
        let told = |ranges: &mut [Buffer], data: &[u8]| run(ranges, data, None, tier).unwrap_err().to_string();
        let wrong =
            |given: usize| format!("delilah/delilah was given {given} memory ranges: it takes one, and no data");
        assert_eq!(told(&mut [Buffer::zeroed(8), Buffer::zeroed(8)], &[]), wrong(2));
        assert_eq!(told(&mut [], &[]), wrong(0));
        assert_eq!(told(&mut slot, &[1]), wrong(1));
    }
    assert_eq!(state.snapshot(), [&4_u64.to_le_bytes()[..], &[0; 8]].concat());
}

/// Memory beyond its data and its state is absent, for each tier.
#[test]
fn a_program_that_works_in_place_stays_in_its_data_and_its_state() {
    let engine = engine();
    let cases = [
        (
            "add %r1, %r2\nstb [%r1], 1",
            "out-of-bounds write of 1 bytes of range 0 at offset 64, which is 64 bytes long",
        ),
        ("sub %r1, 8\nstdw [%r1], 1", "of range 0 at offset -8, which is 64 bytes long"),
        ("lddw %r5, 0x100000000\nadd %r1, %r5\nldxb %r0, [%r1]", "of range 0 at offset 4294967296"),
        ("add %r3, %r4\nstdw [%r3], 1", "out-of-bounds write of 8 bytes of state at offset 16, which is 16 bytes long"),
        ("stdw [%r3+9], 1", "of state at offset 9, which is 16 bytes long"),
    ];
    for (body, expected) in cases {
        let program = function(&engine, Kind::Delilah, &format!("{body}\nmov %r0, 0\nexit"));
        for tier in TIERS {
            let state = State::new(16);
            let mut slot = Buffer::zeroed(64);
            let execution = Execution {
                function: &program,
                ranges: vec![(9, &mut slot[..])],
                data: &[],
                cparam1: 0,
                cparam2: 0,
                state: Some(state.clone()),
                tier,
                limits: CallLimits::default(),
                turns: None,
            };
            let error = engine.execute(execution).unwrap_err().to_string();
            assert!(error.contains(expected), "{body}: {error}");
            assert_eq!((&slot[..], state.snapshot()), (&[0; 64][..], vec![0; 16]), "{body}");
        }
    }
}

/// A call without a state got one all the same: it is absent, and its length says so.
#[test]
fn without_a_state_there_is_none() {
    let engine = engine();
    let program = function(&engine, Kind::Delilah, "ldxdw %r0, [%r3]\nadd %r0, %r4\nexit");
    for tier in TIERS {
        let error = run(&engine, &program, &mut [Buffer::zeroed(8)], &[], tier).unwrap_err().to_string();
        assert!(error.contains("state"), "{error}");
    }
}
