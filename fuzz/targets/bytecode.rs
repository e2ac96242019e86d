//! Any instructions: they are refused, or run the same in the interpreter and compiled.
//!
//! The first byte chooses the kind, the second the budget, the third the length of the input; then
//! instructions follow.
#![no_main]

use diskside_sbpf::activation::{Activation, ActivationOptions, Code, Limits, Mappings, Program, Returned, Stopped};
use diskside_sbpf::helpers::{HelperSet, standard};
use diskside_sbpf::image::{Image, Kind};
use diskside_sbpf::interp::Interpreter;
use diskside_sbpf::region::RegionId;
use diskside_sbpf_cranelift::{Options, compile};
use libfuzzer_sys::fuzz_target;
use std::sync::{Arc, LazyLock};

static HELPERS: LazyLock<Arc<HelperSet>> = LazyLock::new(|| Arc::new(standard()));
const KINDS: [Kind; 3] = [Kind::Read, Kind::Lambda, Kind::Raw];

fuzz_target!(|bytes: &[u8]| {
    let Some((&[kind, budget, input_len], code)) = bytes.split_first_chunk::<3>() else { return };
    let kind = KINDS[usize::from(kind) % KINDS.len()];
    let Ok(image) = Image::from_raw(code, kind, &HELPERS) else { return };
    let Ok(program) = Program::new(&Arc::new(image), 0, &HELPERS) else { return };
    let program = Arc::new(program);
    let input: Vec<u8> = (0..input_len).collect();
    let run = |code: Arc<dyn Code>| run(&program, code, &input, budget.into());
    let reference = run(Arc::new(program.interpreter()));
    let optimised = run(Arc::new(Interpreter::new(Arc::clone(program.optimised()))));
    assert_eq!(reference, optimised, "the optimiser changed the program");
    let compiled = compile(program.optimised(), &Options::default()).expect("what verifies compiles");
    assert_eq!(reference, run(Arc::new(compiled)), "compiled, it does something else");
});

fn run(program: &Arc<Program>, code: Arc<dyn Code>, input: &[u8], budget: u64) -> (Result<Returned, Stopped>, Vec<u8>) {
    let mut output = vec![0_u64; 32];
    let mut context = vec![0_u64; 58];
    let mut activation = Activation::new(program, code, ActivationOptions::default());
    let output_bytes = zerocopy::IntoBytes::as_mut_bytes(&mut output[..]);
    let context_bytes = zerocopy::IntoBytes::as_mut_bytes(&mut context[..]);
    let mappings = Mappings::new()
        .writable(RegionId::OUTPUT, output_bytes)
        .read_only(RegionId::INPUT, input)
        .writable(RegionId::CONTEXT, context_bytes);
    let mut limits = Limits::for_bytes(input.len() as u64, 0);
    limits.budget = budget;
    let args = program.entry_registers(&[input.len() as u64]);
    let result = activation.call(&mappings, args, &limits);
    (result, zerocopy::IntoBytes::as_bytes(&output[..]).to_vec())
}
