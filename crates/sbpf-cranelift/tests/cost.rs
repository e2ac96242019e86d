//! The bounds of loading, in units of work and instructions of the code generator, which are the same everywhere.
//!
//! Objects of 10 to 25 KB with loops nested 100 to 400 deep took seconds to minutes and gigabytes to compile: the
//! optimiser kept forms of all variables for all blocks of each loop around others, made variables for each guard, and
//! looked at the whole function for each loop; and registers of a function of any size were allocated with care. Nobody
//! counted it. Now work is counted, loops around too many others stay as they are, and what is long for the code
//! generator is compiled in one pass or refused, by name, before that begins.

mod shapes;

use diskside_sbpf::activation::{Activation, ActivationOptions, Code, Limits, Mappings, Program};
use diskside_sbpf::asm::assemble;
use diskside_sbpf::image::{Image, Kind};
use diskside_sbpf::ir::Module;
use diskside_sbpf::opt::{HEIGHT_MAX, optimise};
use diskside_sbpf::region::RegionId;
use diskside_sbpf::work::Work;
use diskside_sbpf_cranelift::{CompileError, Cost, Options, compile};
use shapes::{SHAPES, Shape, nested_accesses};
use std::sync::Arc;

fn image(text: &str) -> Arc<Image> {
    let helpers = diskside_sbpf::helpers::standard();
    Arc::new(assemble(text).expect("assembles").into_image(Kind::Read, &helpers).expect("links"))
}

fn load(text: &str, work: &Work) -> Arc<Program> {
    let helpers = Arc::new(diskside_sbpf::helpers::standard());
    Arc::new(Program::with_work(&image(text), 0, &helpers, work).expect("verifies"))
}

fn run(program: &Arc<Program>, code: Arc<dyn Code>) -> String {
    let input: Vec<u8> = (0..40_000u32).map(|i| (i * 7 % 251) as u8).collect();
    let context = [0; 56];
    let mappings = Mappings::new().read_only(RegionId::INPUT, &input).read_only(RegionId::CONTEXT, &context);
    let mut activation = Activation::new(program, code, ActivationOptions::default());
    let limits = Limits { budget: 3000, deadline: None, cancel: None };
    format!("{:?}", activation.call(&mappings, program.entry_registers(&[input.len() as u64]), &limits))
}

/// Compiles, and says what the code generator was given; zero when that was refused.
fn compiled(shape: &str, program: &Arc<Program>, module: &Module, expected: &str) -> Cost {
    match compile(module, &Options::default()) {
        Ok(code) => {
            let cost = code.cost();
            assert_eq!(run(program, Arc::new(code)), expected, "{shape}");
            cost
        }
        Err(CompileError::TooLarge { .. }) => Cost::default(),
        Err(e) => panic!("{shape}: {e}"),
    }
}

#[test]
fn no_shape_takes_more_work_than_a_load_may() {
    for Shape { name, size, text } in SHAPES {
        let work = Work::default();
        let program = load(&text(size), &work);
        assert!(work.spent() <= Work::LOAD, "{name}");
        let expected = run(&program, Arc::new(program.interpreter()));
        for module in [program.plain(), program.optimised()] {
            let cost = compiled(name, &program, module, &expected);
            assert!(cost.insns <= 140_000 && cost.blocks <= 40_000, "{name}: {cost:?}");
            let ops: usize = module.functions.iter().flat_map(|f| &f.blocks).map(|b| b.ops.len() + 1).sum();
            let plain: usize = program.plain().functions.iter().flat_map(|f| &f.blocks).map(|b| b.ops.len() + 1).sum();
            assert!(ops <= plain.max(60_000), "{name} grew to {ops} operations");
            assert!(module.functions.iter().all(|f| f.vars < 6000), "{name}");
        }
    }
}

#[test]
fn what_everybody_has_to_take_is_compiled() {
    for (name, size) in [("nested", 400), ("nested-accesses", 400), ("switch", 10_000), ("straight", 50_000)] {
        let shape = SHAPES.iter().find(|s| s.name == name).expect("it is there");
        let program = load(&(shape.text)(size), &Work::default());
        assert!(compile(program.optimised(), &Options::default()).is_ok(), "{name}");
    }
}

#[test]
fn loops_around_too_many_others_stay_checked_and_say_so() {
    let program = load(&nested_accesses(100), &Work::default());
    let loops = &program.optimised().functions[0].loops;
    assert_eq!(loops.len(), 100);
    let (around, inner) = loops.split_at(100 - HEIGHT_MAX);
    for (i, l) in around.iter().enumerate() {
        assert_eq!((l.accesses, l.hoisted), (1, false), "{i}");
        assert_eq!(l.why, [format!("{} loops lie in each other here, more than {HEIGHT_MAX}", 100 - i)]);
    }
    assert!(inner.last().is_some_and(|l| l.hoisted), "the innermost one runs unchecked");
}

#[test]
fn without_work_left_a_program_keeps_its_checks() {
    let text = (SHAPES.iter().find(|s| s.name == "loops").expect("it is there").text)(50);
    let all = load(&text, &Work::default());
    let needed = {
        let work = Work::default();
        let _ = optimise(all.plain(), &work);
        work.spent()
    };
    assert!(all.optimised().functions[0].loops.iter().all(|l| l.hoisted));
    let expected = run(&all, Arc::new(all.interpreter()));
    // Wherever it runs out, what was done before stays and what comes after is left as it was.
    let mut hoisted_before = 0;
    for part in 0..=20 {
        let program = load(&text, &Work::new(needed * part / 20));
        let loops = &program.optimised().functions[0].loops;
        let hoisted = loops.iter().filter(|l| l.hoisted).count();
        let why = "the program takes more work to optimise than a load may";
        assert!(loops.iter().all(|l| l.hoisted || l.why == [why]), "{loops:?}");
        assert!(hoisted >= hoisted_before);
        hoisted_before = hoisted;
        compiled("loops", &program, program.optimised(), &expected);
    }
    assert_eq!(hoisted_before, 50);
}

#[test]
fn a_refusal_names_the_function() {
    let program = load(&(SHAPES[6].text)(25_000), &Work::default());
    let refused = compile(program.plain(), &Options::default()).expect_err("it is too large");
    assert_eq!(refused.to_string(), "function `read` is too large for the Cranelift tier");
}
