//! The compiled forms of a program.

use diskside_sbpf::activation::{Code, Program};
use diskside_sbpf::ir::Module;
use diskside_sbpf_cranelift::{Effort, Options, compile};
use std::sync::Arc;

pub(crate) fn compiled(program: &Program) -> Vec<(&'static str, Arc<dyn Code>)> {
    let compiled = |module: &Module| Arc::new(compile(module, &Options::default()).expect("what verifies compiles"));
    let quick = Options { effort: Some(Effort::Quick), ..Options::default() };
    let quick = compile(program.optimised(), &quick).expect("what verifies compiles");
    vec![
        ("cranelift, plain", compiled(program.plain())),
        ("cranelift, optimised", compiled(program.optimised())),
        ("cranelift, in one pass", Arc::new(quick)),
    ]
}
