//! The Cranelift tier: compiles the sandbox's checked IR to machine code.
//!
//! [`compile`] turns a [`Module`] into a [`CompiledModule`], which is [`Code`]: one native function
//! for each function of the program. Compiling takes well under a millisecond for a small function.
//! A trap returns through the native frames as a status; no signal handler is involved.
//!
//! Memory for code is written first and executed after, never both at once, and is freed when the
//! module is dropped.

mod cost;
mod layout;
mod link;
mod liveness;
mod runtime;
mod translate;

pub use cost::{Cost, Effort};

use cranelift_codegen::Context;
use cranelift_codegen::control::ControlPlane;
use cranelift_frontend::FunctionBuilderContext;
use diskside_sbpf::activation::{Code, Tier};
use diskside_sbpf::ir::{Func, Module};
use diskside_sbpf::machine::{Machine, Status};
use diskside_sbpf_native::{CodeMemory, EntryPoint};
use runtime::Runtime;
use std::fmt::Write as _;

/// How to compile.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Keep a listing of the machine code: see [`CompiledModule::disassembly`].
    pub disassembly: bool,
    /// How to compile; by default as the cost allows.
    pub effort: Option<Effort>,
}

/// Why a module was not compiled. The interpreter can still run it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CompileError {
    /// The processor or platform lacks what the code generator needs.
    #[error("the Cranelift tier does not support this machine: {why}")]
    UnsupportedHost {
        /// The feature that is missing.
        why: String,
    },
    /// Compiling it would take more than a load may.
    #[error("function `{function}` is too large for the Cranelift tier")]
    TooLarge {
        /// Its name, or that of the program that it belongs to.
        function: String,
    },
    /// The system gave no memory for code.
    #[error("no memory for machine code: {why}")]
    OutOfMemory {
        /// The system's message.
        why: String,
    },
    /// A mistake in this tier.
    #[error("bug in the Cranelift tier: function `{function}`: {what}")]
    Bug {
        /// The function being compiled.
        function: String,
        /// The code generator's message.
        what: String,
    },
}

/// Machine code of a program.
#[derive(Debug)]
pub struct CompiledModule {
    memory: CodeMemory,
    entry: EntryPoint,
    functions: Vec<CompiledFunction>,
    cost: Cost,
    effort: Effort,
    /// The lists that the code refers to.
    _lists: translate::Lists,
}

#[derive(Debug)]
struct CompiledFunction {
    name: String,
    len_bytes: usize,
    listing: Option<String>,
}

/// Compiles every function of a module for this machine.
///
/// # Errors
/// [`CompileError`]; nothing in a verified program itself is an error.
pub fn compile(module: &Module, options: &Options) -> Result<CompiledModule, CompileError> {
    let runtime = Runtime::get()?;
    let too_large = |func: &Func| CompileError::TooLarge { function: func.name.clone() };
    if !cost::is_small_enough(module) {
        return Err(too_large(&module.functions[0]));
    }
    let mut context = Context::new();
    let mut builder_context = FunctionBuilderContext::new();
    let mut linker = link::Linker::default();
    let mut functions = Vec::with_capacity(module.functions.len());
    let mut starts = Vec::with_capacity(module.functions.len());
    let mut lists = translate::Lists::new();
    let mut cost = Cost::default();
    let mut effort = Effort::Full;
    for func in &module.functions {
        context.clear();
        context.set_disasm(options.disassembly);
        translate::translate(module, func, runtime, &mut context.func, &mut builder_context, &mut lists);
        cost += Cost::of(&context.func);
        let allowed = cost.effort().ok_or_else(|| too_large(func))?;
        let wanted = options.effort.unwrap_or(allowed);
        effort = effort.max(wanted);
        let isa = match wanted {
            Effort::Full => &runtime.isa,
            Effort::Quick => &runtime.quick_isa,
        };
        context
            .compile(&**isa, &mut ControlPlane::default())
            .map_err(|e| CompileError::from_codegen(&func.name, &e.inner))?;
        let code = context.take_compiled_code().expect("compilation succeeded");
        starts.push(linker.add(&code, &context.func.params));
        functions.push(CompiledFunction {
            name: func.name.clone(),
            len_bytes: code.code_buffer().len(),
            listing: code.vcode,
        });
    }
    let memory = linker.link().map_err(|e| CompileError::out_of_memory(&e))?;
    // SAFETY: the module's first function starts there, which was translated with that signature.
    let entry = unsafe { memory.entry_point(starts[0]) };
    Ok(CompiledModule { memory, entry, functions, cost, effort, _lists: lists })
}

/// The Cranelift intermediate code of every function, as text: for developers of this tier.
///
/// # Errors
/// As [`compile`].
pub fn intermediate_code(module: &Module) -> Result<String, CompileError> {
    let runtime = Runtime::get()?;
    let mut text = String::new();
    for func in &module.functions {
        let mut out = cranelift_codegen::ir::Function::new();
        let mut builder_context = FunctionBuilderContext::new();
        translate::translate(module, func, runtime, &mut out, &mut builder_context, &mut translate::Lists::new());
        let _ = writeln!(text, "; {}\n{}", func.name, out.display());
    }
    Ok(text)
}

impl CompiledModule {
    /// The size of the code generator's input.
    #[must_use]
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// The machine code as text, function by function; empty unless [`Options::disassembly`] asked
    /// for it.
    #[must_use]
    pub fn disassembly(&self) -> String {
        let mut text = String::new();
        for f in &self.functions {
            if let Some(listing) = &f.listing {
                let _ = writeln!(text, "{}: {} bytes\n{listing}", f.name, f.len_bytes);
            }
        }
        text
    }
}

// SAFETY: each operation of the checked IR is translated to what it says: an access is made only
// where the IR calls it proved or a check has passed, and nothing else is written but the machine.
unsafe impl Code for CompiledModule {
    fn tier(&self) -> Tier {
        Tier::Cranelift
    }

    fn code_len_bytes(&self) -> usize {
        self.memory.code_len_bytes()
    }

    fn plainer(&self) -> Option<&'static str> {
        (self.effort == Effort::Quick).then_some("it is long, and was compiled in one pass")
    }

    // SAFETY: as the trait says: the caller has mapped what the checked IR may reach.
    unsafe fn enter(&self, machine: &mut Machine, args: &[u64; 5], fp: u64) -> (Status, u64) {
        // SAFETY: the memory is this module's; the entry keeps to the contract of `Code`, and the caller keeps its
        // part of it.
        unsafe { self.entry.enter(machine, args, fp) }
    }
}

impl CompileError {
    pub(crate) fn out_of_memory(e: &std::io::Error) -> Self {
        Self::OutOfMemory { why: e.to_string() }
    }

    pub(crate) fn bug(function: &str, e: &cranelift_codegen::CodegenError) -> Self {
        Self::Bug { function: function.to_owned(), what: e.to_string() }
    }

    fn from_codegen(function: &str, e: &cranelift_codegen::CodegenError) -> Self {
        use cranelift_codegen::CodegenError as E;
        match e {
            E::ImplLimitExceeded | E::CodeTooLarge => Self::TooLarge { function: function.to_owned() },
            e => Self::bug(function, e),
        }
    }
}
