//! LLVM, by its C interface.

use llvm_sys::analysis::{LLVMVerifierFailureAction, LLVMVerifyModule};
use llvm_sys::core::*;
use llvm_sys::error::{LLVMDisposeErrorMessage, LLVMErrorRef, LLVMGetErrorMessage};
use llvm_sys::ir_reader::LLVMParseIRInContext;
use llvm_sys::prelude::*;
use llvm_sys::support::LLVMParseCommandLineOptions;
use llvm_sys::target::*;
use llvm_sys::target_machine::*;
use llvm_sys::transforms::pass_builder::*;
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::null_mut;

/// Bytes of remarks that are kept.
const REMARKS_LEN_MAX: usize = 1 << 20;

/// Every message of the optimiser about vectors has one of these in it.
const ABOUT_LOOPS: [&str; 4] = ["vectorized", "cost-model", "interleav", "SLP vectorized"];

/// Code for one processor.
pub(crate) struct Target {
    machine: LLVMTargetMachineRef,
    triple: CString,
    cpu: String,
    features: String,
}

impl Target {
    /// For the named processor, or the one that this runs on.
    pub(crate) fn new(cpu: Option<&str>) -> Result<Self, String> {
        let no_nul = |text: &str| CString::new(text).map_err(|_| format!("`{}` has a NUL", text.escape_debug()));
        // SAFETY: the interface's functions are called with what they ask for: initialised targets,
        // strings that end, places to write to; strings that they give are disposed of once.
        unsafe {
            LLVMInitializeX86TargetInfo();
            LLVMInitializeX86Target();
            LLVMInitializeX86TargetMC();
            LLVMInitializeX86AsmPrinter();
            let triple = no_nul(&taken(LLVMGetDefaultTargetTriple()))?;
            let (cpu, features) = match cpu {
                Some(cpu) => (cpu.to_owned(), String::new()),
                None => (taken(LLVMGetHostCPUName()), taken(LLVMGetHostCPUFeatures())),
            };
            let machine = LLVMCreateTargetMachine(
                find_target(&triple)?,
                triple.as_ptr(),
                no_nul(&cpu)?.as_ptr(),
                no_nul(&features)?.as_ptr(),
                LLVMCodeGenOptLevel::LLVMCodeGenLevelAggressive,
                LLVMRelocMode::LLVMRelocPIC,
                LLVMCodeModel::LLVMCodeModelSmall,
            );
            if machine.is_null() {
                return Err(format!("LLVM has no target machine for `{cpu}`"));
            }
            Ok(Self { machine, triple, cpu, features })
        }
    }

    /// Which LLVM, and which processor.
    pub(crate) fn identity(&self) -> String {
        let (mut major, mut minor, mut patch) = (0, 0, 0);
        // SAFETY: three places to write to.
        unsafe { LLVMGetVersion(&mut major, &mut minor, &mut patch) };
        format!("LLVM {major}.{minor}.{patch} {} {}", self.cpu, self.features)
    }

    /// Compiles text to an object; gives that with the optimiser's remarks.
    pub(crate) fn compile(&self, text: Vec<u8>) -> Result<(Vec<u8>, String), String> {
        let mut remarks = Vec::new();
        // SAFETY: as in `new`; the buffer of the text ends with the NUL that is asked for and belongs
        // to the parser from then on; `remarks` outlives the context that writes to it. Nothing of
        // LLVM's is disposed of at the end: the process ends too.
        unsafe {
            set_options();
            let context = LLVMContextCreate();
            LLVMContextSetDiagnosticHandler(context, Some(on_diagnostic), (&raw mut remarks).cast());
            let module = parse(context, &text)?;
            LLVMSetTarget(module, self.triple.as_ptr());
            let layout = LLVMCreateTargetDataLayout(self.machine);
            LLVMSetModuleDataLayout(module, layout);
            verify(module)?;
            self.optimise(module)?;
            let object = object_of(self.machine, module)?;
            let remarks = String::from_utf8_lossy(&remarks).into_owned();
            Ok((object, remarks))
        }
    }

    /// # Safety
    /// The module is whole.
    unsafe fn optimise(&self, module: LLVMModuleRef) -> Result<(), String> {
        // SAFETY: options are created, set and disposed of here.
        unsafe {
            let options = LLVMCreatePassBuilderOptions();
            LLVMPassBuilderOptionsSetLoopVectorization(options, 1);
            LLVMPassBuilderOptionsSetLoopInterleaving(options, 1);
            LLVMPassBuilderOptionsSetLoopUnrolling(options, 1);
            LLVMPassBuilderOptionsSetSLPVectorization(options, 1);
            let error: LLVMErrorRef = LLVMRunPasses(module, c"default<O3>".as_ptr(), self.machine, options);
            LLVMDisposePassBuilderOptions(options);
            if error.is_null() {
                return Ok(());
            }
            let message = LLVMGetErrorMessage(error);
            let text = CStr::from_ptr(message).to_string_lossy().into_owned();
            LLVMDisposeErrorMessage(message);
            Err(text)
        }
    }
}

/// # Safety
/// Targets are initialised.
pub(crate) unsafe fn find_target(triple: &CStr) -> Result<LLVMTargetRef, String> {
    let mut target = null_mut();
    let mut message = null_mut();
    // SAFETY: a string that ends, and places to write to.
    unsafe {
        match LLVMGetTargetFromTriple(triple.as_ptr(), &mut target, &mut message) {
            0 => Ok(target),
            _ => Err(taken(message)),
        }
    }
}

/// A module of its text or bitcode.
///
/// # Safety
/// The context is one.
pub(crate) unsafe fn parse(context: LLVMContextRef, bytes: &[u8]) -> Result<LLVMModuleRef, String> {
    let mut module = null_mut();
    let mut message = null_mut();
    // SAFETY: the buffer is a copy that ends with the NUL that is asked for and belongs to the parser from then on.
    unsafe {
        let buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(bytes.as_ptr().cast(), bytes.len(), c"program".as_ptr());
        match LLVMParseIRInContext(context, buffer, &mut module, &mut message) {
            0 => Ok(module),
            _ => Err(taken(message)),
        }
    }
}

/// # Safety
/// The module is one.
pub(crate) unsafe fn verify(module: LLVMModuleRef) -> Result<(), String> {
    let mut message = null_mut();
    let action = LLVMVerifierFailureAction::LLVMReturnStatusAction;
    // SAFETY: a place to write to; the message is disposed of once.
    unsafe {
        let broken = LLVMVerifyModule(module, action, &mut message) != 0;
        let message = taken(message);
        if broken { Err(message) } else { Ok(()) }
    }
}

/// # Safety
/// The module is whole.
pub(crate) unsafe fn object_of(machine: LLVMTargetMachineRef, module: LLVMModuleRef) -> Result<Vec<u8>, String> {
    // SAFETY: the buffer is copied and disposed of once.
    unsafe {
        let mut message = null_mut();
        let mut buffer = null_mut();
        let kind = LLVMCodeGenFileType::LLVMObjectFile;
        if LLVMTargetMachineEmitToMemoryBuffer(machine, module, kind, &mut message, &mut buffer) != 0 {
            return Err(taken(message));
        }
        let start = LLVMGetBufferStart(buffer).cast::<u8>();
        let object = std::slice::from_raw_parts(start, LLVMGetBufferSize(buffer)).to_vec();
        LLVMDisposeMemoryBuffer(buffer);
        Ok(object)
    }
}

/// Turns on the optimiser's messages about loops, and lets loops start where the processor fetches: only then do
/// short ones run a byte a cycle.
fn set_options() {
    let options = [
        c"diskside-llvm",
        c"-pass-remarks=loop-vectorize|slp-vectorizer",
        c"-pass-remarks-missed=loop-vectorize",
        c"-pass-remarks-analysis=loop-vectorize",
        c"-x86-experimental-pref-innermost-loop-alignment=5", // a power of two
    ];
    let options = options.map(CStr::as_ptr);
    // SAFETY: so many strings that end.
    unsafe { LLVMParseCommandLineOptions(options.len() as i32, options.as_ptr(), c"".as_ptr()) };
}

/// Keeps a remark as a line.
extern "C" fn on_diagnostic(info: LLVMDiagnosticInfoRef, remarks: *mut c_void) {
    // SAFETY: the context hands over the pointer that it was given, to a `Vec<u8>` that nobody else
    // holds while LLVM works, and a diagnostic whose text is ours to dispose of.
    unsafe {
        let remarks = &mut *remarks.cast::<Vec<u8>>();
        let text = taken(LLVMGetDiagInfoDescription(info));
        if !ABOUT_LOOPS.iter().any(|about| text.contains(about)) {
            return;
        }
        if remarks.len() + text.len() < REMARKS_LEN_MAX {
            remarks.extend(text.bytes().map(|b| if b == b'\n' { b' ' } else { b }));
            remarks.push(b'\n');
        }
    }
}

/// A string that LLVM gave away.
///
/// # Safety
/// It ends, and nobody else disposes of it; or it is null.
pub(crate) unsafe fn taken(message: *mut c_char) -> String {
    if message.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe {
        let text = CStr::from_ptr(message).to_string_lossy().into_owned();
        LLVMDisposeMessage(message);
        text
    }
}
