//! The properties of compiled code besides giving the interpreter's results.

use diskside_sbpf::activation::{Activation, ActivationOptions, Code, Limits, Mappings, Program, Tier};
use diskside_sbpf::asm::assemble;
use diskside_sbpf::helpers;
use diskside_sbpf::image::Kind;
use diskside_sbpf::machine::CancelToken;
use diskside_sbpf::region::RegionId;
use diskside_sbpf::trap::TrapKind;
use diskside_sbpf_cranelift::{Options, compile, intermediate_code};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn program(text: &str) -> Arc<Program> {
    let helpers = Arc::new(helpers::standard());
    let image = assemble(text).expect("it assembles").into_image(Kind::Raw, &helpers).expect("it links");
    Arc::new(Program::new(&Arc::new(image), 0, &helpers).expect("it verifies"))
}

/// Sums the bytes of the input.
const SUM: &str = "
    mov %r0, 0
    add %r2, %r1
    ja test
next:
    ldxb %r3, [%r1+0]
    add %r0, %r3
    add %r1, 1
test:
    jlt %r1, %r2, next
    exit
";

/// A call maps over what the call before has left behind, which may be memory that is gone: of that nothing may
/// be reached when the next call maps less.
#[test]
fn a_call_does_not_reach_what_only_the_call_before_it_mapped() {
    let program = program("ldxb %r0, [%r1+0]\nmov %r3, 7\nlsh %r3, 40\nldxb %r1, [%r3+0]\nadd %r0, %r1\nexit");
    let code = Arc::new(compile(program.optimised(), &Options::default()).expect("it compiles"));
    let mut activation = Activation::new(&program, code, ActivationOptions::default());
    let input = [1u8; 8];
    let limits = Limits::for_bytes(0, 0);
    let registers = program.entry_registers(&[8]);
    for turn in 0..3 {
        let gone = vec![turn as u8; 4096];
        let both = Mappings::new().read_only(RegionId::INPUT, &input).read_only(RegionId::OUTPUT, &gone);
        assert_eq!(activation.call(&both, registers, &limits).map(|r| r.value), Ok(1 + turn));
        drop(gone);
        let one = Mappings::new().read_only(RegionId::INPUT, &input);
        let stopped = activation.call(&one, registers, &limits).expect_err("the second region is not mapped");
        assert_eq!((stopped.trap.kind, stopped.trap.region), (TrapKind::Unmapped, Some(RegionId::OUTPUT)));
        let none = Mappings::new();
        let stopped = activation.call(&none, registers, &limits).expect_err("nor is the first");
        assert_eq!((stopped.trap.kind, stopped.trap.region), (TrapKind::Unmapped, Some(RegionId::INPUT)));
    }
}

/// The slow form of a loop makes several loads by one callout: the trap is still that of the very load that is
/// out of bounds, and what was loaded before a base changes is not taken for what comes after.
#[test]
fn loads_that_are_made_together_trap_one_by_one() {
    let program = program(
        "
        mov %r0, 0
        mov %r6, %r1
        add %r2, %r1
    next:
        ldxdw %r3, [%r1+0]
        ldxw %r4, [%r1+8]
        add %r0, %r3
        ldxsb %r5, [%r6+0]
        ldxh %r3, [%r1+12]
        add %r0, %r4
        add %r6, 1
        ldxb %r4, [%r6+3]
        add %r0, %r5
        add %r0, %r3
        lsh %r0, 1
        add %r0, %r4
        add %r1, 14
        jlt %r1, %r2, next
        exit",
    );
    let compiled: Arc<dyn Code> = Arc::new(compile(program.optimised(), &Options::default()).expect("it compiles"));
    let interpreted: Arc<dyn Code> = Arc::new(program.interpreter());
    let input: Vec<u8> = (0..100u8).map(|i| i.wrapping_mul(37)).collect();
    for len in 0..=input.len() {
        let run = |code: &Arc<dyn Code>| {
            let mut activation = Activation::new(&program, Arc::clone(code), ActivationOptions::default());
            let mappings = Mappings::new().read_only(RegionId::INPUT, &input[..len]);
            activation.call(&mappings, program.entry_registers(&[len as u64]), &Limits::for_bytes(0, 0))
        };
        assert_eq!(run(&compiled), run(&interpreted), "{len} bytes");
    }
}

fn executable_pages() -> Vec<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux has it");
    maps.lines().filter(|l| l.split(' ').nth(1).is_some_and(|p| p.contains('x'))).map(str::to_owned).collect()
}

#[test]
fn code_is_never_writable_and_goes_with_its_module() {
    let program = program(SUM);
    let many: Vec<_> =
        (0..MODULES).map(|_| compile(program.optimised(), &Options::default()).expect("it compiles")).collect();
    let pages = executable_pages();
    assert!(pages.iter().all(|l| !l.split(' ').nth(1).is_some_and(|p| p.contains('w'))), "{pages:?}");
    let anonymous_kib = |pages: &[String]| -> u64 {
        let ranges = pages.iter().filter(|l| l.split_whitespace().nth(4) == Some("0"));
        let len = |l: &String| {
            let (from, to) = l.split(' ').next().and_then(|r| r.split_once('-')).expect("a range");
            let number = |n| u64::from_str_radix(n, 16).expect("hexadecimal");
            number(to) - number(from)
        };
        ranges.map(len).sum::<u64>() / 1024
    };
    let with = anonymous_kib(&pages);
    assert!(many.iter().all(|m| m.code_len_bytes() > 0 && m.tier() == Tier::Cranelift));
    drop(many);
    let without = anonymous_kib(&executable_pages());
    // Each has a page at least. Tests beside this one have come to a few of their own meanwhile.
    assert!(without + 4 * MODULES / 2 <= with, "{without} KiB after, {with} KiB before");
}

const MODULES: u64 = 200;

#[test]
fn listings_show_what_was_compiled() {
    let program = program(SUM);
    let silent = compile(program.optimised(), &Options::default()).expect("it compiles");
    assert_eq!(silent.disassembly(), "");
    let listed =
        compile(program.optimised(), &Options { disassembly: true, ..Options::default() }).expect("it compiles");
    assert!(listed.disassembly().contains("ret"), "{}", listed.disassembly());
    let clif = intermediate_code(program.optimised()).expect("it translates");
    assert!(clif.contains("return"), "{clif}");
}

#[test]
fn a_hoisted_loop_is_cancelled_from_another_thread() {
    // Sums the input over and over: only the other thread ends it.
    let program = program(
        "
        mov %r0, 0
        add %r2, %r1
    again:
        mov %r4, %r1
    next:
        ldxb %r3, [%r4+0]
        add %r0, %r3
        add %r4, 1
        jlt %r4, %r2, next
        ja again
        exit",
    );
    assert!(program.optimised().functions[0].loops.iter().any(|l| l.hoisted));
    let code = compile(program.optimised(), &Options::default()).expect("it compiles");
    let mut activation = Activation::new(&program, Arc::new(code), ActivationOptions::default());
    let mut input = vec![1u64; 1 << 20];
    let input = zerocopy::IntoBytes::as_mut_bytes(&mut input[..]);
    let token = CancelToken::new();
    let limits = Limits { budget: u64::MAX / 2, deadline: None, cancel: Some(token.clone()) };
    let registers = program.entry_registers(&[input.len() as u64]);
    let mappings = Mappings::new().writable(RegionId::INPUT, input);
    let stopped = std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(5));
            token.cancel();
        });
        activation.call(&mappings, registers, &limits).expect_err("it has no end")
    });
    assert_eq!(stopped.trap.kind, TrapKind::Cancelled);
}

#[test]
fn the_deadline_ends_an_endless_loop() {
    let program = program("mov %r0, 0\nagain:\n add %r0, 1\n ja again\n exit");
    let code = compile(program.optimised(), &Options::default()).expect("it compiles");
    let mut activation = Activation::new(&program, Arc::new(code), ActivationOptions::default());
    let deadline = Some(Instant::now() + Duration::from_millis(3));
    let limits = Limits { budget: u64::MAX / 2, deadline, cancel: None };
    let registers = program.entry_registers(&[0]);
    let stopped = activation.call(&Mappings::new(), registers, &limits).expect_err("it has no end");
    assert_eq!(stopped.trap.kind, TrapKind::Deadline);
}

#[test]
fn calls_come_from_many_threads() {
    let program = program(SUM);
    let code: Arc<dyn Code> = Arc::new(compile(program.optimised(), &Options::default()).expect("it compiles"));
    std::thread::scope(|scope| {
        for n in 1..5u64 {
            let (program, code) = (&program, Arc::clone(&code));
            scope.spawn(move || {
                let mut activation = Activation::new(program, code, ActivationOptions::default());
                let mut input = vec![n * 0x0101_0101_0101_0101; 1000];
                let input = zerocopy::IntoBytes::as_mut_bytes(&mut input[..]);
                let limits = Limits::for_bytes(input.len() as u64, 0);
                let registers = program.entry_registers(&[input.len() as u64]);
                for _ in 0..50 {
                    let mappings = Mappings::new().writable(RegionId::INPUT, input);
                    let returned = activation.call(&mappings, registers, &limits).expect("it returns");
                    assert_eq!(returned.value, n * 8000);
                }
            });
        }
    });
}
