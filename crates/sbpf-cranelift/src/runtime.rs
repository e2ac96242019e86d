//! State that all modules of a process share: the instruction set of this machine and the thunks by which
//! compiled code reaches its callouts.

use crate::CompileError;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{AbiParam, InstBuilder, Signature, types};
use cranelift_codegen::isa::{CallConv, OwnedTargetIsa};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_codegen::{Context, isa};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use diskside_sbpf::machine::Machine;
use diskside_sbpf_native::CodeMemory;
use diskside_sbpf_native::callouts;
use std::sync::OnceLock;

/// The calling convention of everything but thunks: what `extern "C"` is on the platforms that have
/// io_uring.
pub(crate) const CALL_CONV: CallConv = CallConv::SystemV;

/// Shared by all compilations.
pub(crate) struct Runtime {
    pub(crate) isa: OwnedTargetIsa,
    /// The same, with registers allocated in one pass: code that spills more, of functions that would take the
    /// other way too long.
    pub(crate) quick_isa: OwnedTargetIsa,
    pub(crate) thunks: Thunks,
    _memory: CodeMemory,
}

/// Addresses of code that takes the machine, saves every register, and calls out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Thunks {
    pub(crate) load: u64,
    pub(crate) store: u64,
    pub(crate) resolve_atomic: u64,
    pub(crate) refill: u64,
    pub(crate) load_all: u64,
}

/// A callout with its arguments in the machine.
type Callout = unsafe extern "C" fn(*mut Machine);

impl Runtime {
    /// The one of this process.
    pub(crate) fn get() -> Result<&'static Self, CompileError> {
        static RUNTIME: OnceLock<Result<Runtime, CompileError>> = OnceLock::new();
        RUNTIME.get_or_init(Self::new).as_ref().map_err(Clone::clone)
    }

    fn new() -> Result<Self, CompileError> {
        let isa = host_isa("backtracking")?;
        let quick_isa = host_isa("single_pass")?;
        let callouts: [Callout; 5] =
            [callouts::load, callouts::store, callouts::resolve_atomic, callouts::refill, callouts::load_all];
        let mut code = Vec::new();
        let mut offsets = [0; 5];
        for (callout, offset) in callouts.into_iter().zip(&mut offsets) {
            code.resize(code.len().next_multiple_of(FUNCTION_ALIGN), 0);
            *offset = code.len();
            code.extend(compile_thunk(&isa, callout)?);
        }
        let memory = CodeMemory::new(code, |_, _| {}).map_err(|e| CompileError::out_of_memory(&e))?;
        let [load, store, resolve_atomic, refill, load_all] = offsets.map(|o| memory.at(o).addr() as u64);
        let thunks = Thunks { load, store, resolve_atomic, refill, load_all };
        Ok(Self { isa, quick_isa, thunks, _memory: memory })
    }
}

/// Functions start at multiples of this: a line of the processor's decoder.
pub(crate) const FUNCTION_ALIGN: usize = 64;

/// The signature of a thunk.
pub(crate) fn thunk_signature() -> Signature {
    let mut signature = Signature::new(CallConv::PreserveAll);
    signature.params.push(AbiParam::new(types::I64));
    signature
}

fn compile_thunk(isa: &OwnedTargetIsa, callout: Callout) -> Result<Vec<u8>, CompileError> {
    let mut context = Context::new();
    context.func.signature = thunk_signature();
    let mut builder_context = FunctionBuilderContext::new();
    let mut b = FunctionBuilder::new(&mut context.func, &mut builder_context);
    let entry = b.create_block();
    b.append_block_params_for_function_params(entry);
    b.switch_to_block(entry);
    let mut native = Signature::new(CALL_CONV);
    native.params.push(AbiParam::new(types::I64));
    let native = b.import_signature(native);
    let target = b.ins().iconst(types::I64, callout as usize as i64);
    let machine = b.block_params(entry)[0];
    b.ins().call_indirect(native, target, &[machine]);
    b.ins().return_(&[]);
    b.seal_all_blocks();
    b.finalize(isa.frontend_config());
    let compiled =
        context.compile(&**isa, &mut ControlPlane::default()).map_err(|e| CompileError::bug("callout", &e.inner))?;
    debug_assert!(compiled.buffer.relocs().is_empty(), "a thunk's target is absolute");
    Ok(compiled.code_buffer().to_vec())
}

fn host_isa(regalloc: &str) -> Result<OwnedTargetIsa, CompileError> {
    let unsupported = |why: String| CompileError::UnsupportedHost { why };
    let mut flags = settings::builder();
    let debug = if cfg!(debug_assertions) { "true" } else { "false" };
    for (name, value) in [
        // Our optimiser has found all that its optimiser would find; and it defers arithmetic to the end of a block,
        // where so many loaded values wait that the hottest loops spill.
        ("opt_level", "none"),
        ("regalloc_algorithm", regalloc),
        ("enable_verifier", debug),
        ("unwind_info", "false"),
        // Only frames longer than a page are probed: those could jump over a thread's guard page.
        ("enable_probestack", "true"),
        ("probestack_strategy", "inline"),
    ] {
        flags.set(name, value).map_err(|e| unsupported(e.to_string()))?;
    }
    let builder: isa::Builder = cranelift_native::builder().map_err(|e| unsupported(e.to_owned()))?;
    builder.finish(settings::Flags::new(flags)).map_err(|e| unsupported(e.to_string()))
}
