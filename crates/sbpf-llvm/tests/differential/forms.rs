//! The compiled forms of a program.

use diskside_sbpf::activation::{Code, Program};
use diskside_sbpf::ir::Module;
use diskside_sbpf_llvm::{Compiler, compile};
use std::sync::Arc;

pub(crate) fn compiled(program: &Program) -> Vec<(&'static str, Arc<dyn Code>)> {
    let compiler = Compiler::at(env!("CARGO_BIN_EXE_diskside-llvm"));
    let compiled = |module: &Module| Arc::new(compile(module, &compiler).expect("what verifies compiles").code);
    vec![("llvm, plain", compiled(program.plain())), ("llvm, optimised", compiled(program.optimised()))]
}
