//! The LLVM tier: compiles the sandbox's checked IR in a child process, with vectors.
//!
//! This library needs no LLVM. It writes a [`Module`] as LLVM's text, and starts a [`Compiler`], the
//! program `diskside-llvm` (feature `compiler`), which optimises it for the processor and gives back
//! an object with remarks on what became of each loop. The object is checked for what it may refer
//! to, linked, and mapped to be executed; [`CompiledModule`] is [`Code`] like that of any tier.
//!
//! The child has limits on memory and time, and can open neither files nor sockets. Whatever happens
//! to it is a [`CompileError`] here, and another tier continues.

mod compiler;
mod emit;
mod link;
pub mod remarks;
pub mod wire;

pub use compiler::{ChildError, Compiler, PROGRAM, VARIABLE};
pub use link::LinkError;

use diskside_sbpf::activation::{Code, Tier};
use diskside_sbpf::ir::Module;
use diskside_sbpf::machine::{Machine, Status};
use diskside_sbpf_native::{CodeMemory, EntryPoint};

/// The version of what this tier emits: part of what an object in a cache depends on.
pub const EMITTER_VERSION: u32 = 2;

/// Why a module was not compiled. Another tier can still run it.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// The platform is none that this tier writes code for.
    #[error("the LLVM tier compiles for x86-64 only")]
    UnsupportedHost,
    /// The text is longer than a child takes.
    #[error("the program is too large for the LLVM tier")]
    TooLarge,
    /// The child gave no object.
    #[error(transparent)]
    Child(#[from] ChildError),
    /// The object is not what it should be.
    #[error("the compiler's object is refused: {0}")]
    Object(#[from] LinkError),
}

/// Machine code of a program.
#[derive(Debug)]
pub struct CompiledModule {
    memory: CodeMemory,
    entry: EntryPoint,
}

/// The output of a child for a module.
#[derive(Debug)]
pub struct Compiled {
    /// The code.
    pub code: CompiledModule,
    /// The object that it came from: see [`CompiledModule::from_object`].
    pub object: Vec<u8>,
    /// The messages of LLVM's optimiser, a line each; [`remarks::outcomes`] understands them.
    pub remarks: String,
}

/// Compiles every function of a module.
///
/// # Errors
/// [`CompileError`]; nothing in a verified program itself is an error.
pub fn compile(module: &Module, compiler: &Compiler) -> Result<Compiled, CompileError> {
    if !cfg!(target_arch = "x86_64") {
        return Err(CompileError::UnsupportedHost);
    }
    let text = intermediate_code(module);
    if text.len() > wire::TEXT_LEN_MAX {
        return Err(CompileError::TooLarge);
    }
    let (object, remarks) = compiler.compile(&text)?;
    let code = CompiledModule::from_object(&object)?;
    Ok(Compiled { code, object, remarks })
}

/// The text that a module becomes: for developers of this tier.
#[must_use]
pub fn intermediate_code(module: &Module) -> String {
    emit::emit(module)
}

impl CompiledModule {
    /// Links an object that [`compile`] gave, now or in an earlier process.
    ///
    /// # Errors
    /// Anything that it has or refers to and that code of a function may not.
    pub fn from_object(object: &[u8]) -> Result<Self, LinkError> {
        let linked = link::link(object)?;
        // SAFETY: the symbol of the entry function is at this place, and that function is emitted with that signature.
        let entry = unsafe { linked.memory.entry_point(linked.entry) };
        Ok(Self { memory: linked.memory, entry })
    }
}

// SAFETY: each operation of the checked IR is written with its own meaning: an access is made only where the IR calls
// it proved or a check has passed, and nothing else is written except the machine. The IR proves every other fact that
// LLVM gets.
unsafe impl Code for CompiledModule {
    fn tier(&self) -> Tier {
        Tier::Llvm
    }

    fn code_len_bytes(&self) -> usize {
        self.memory.code_len_bytes()
    }

    // SAFETY: as the trait says: the caller has mapped what the checked IR may reach.
    unsafe fn enter(&self, machine: &mut Machine, args: &[u64; 5], fp: u64) -> (Status, u64) {
        // SAFETY: the memory is this module's; the entry keeps to the contract of `Code`, and the caller keeps its
        // part of it.
        unsafe { self.entry.enter(machine, args, fp) }
    }
}
