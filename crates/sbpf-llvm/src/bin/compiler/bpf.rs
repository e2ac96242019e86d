//! From a module that a front end made for eBPF to an object, with what eBPF's back end refuses lowered before.

use crate::llvm::{find_target, object_of, parse, taken, verify};
use crate::lower;
use diskside_sbpf_llvm::wire::Answer;
use llvm_sys::LLVMDiagnosticSeverity;
use llvm_sys::core::*;
use llvm_sys::error::{LLVMErrorRef, LLVMGetErrorMessage};
use llvm_sys::error_handling::LLVMInstallFatalErrorHandler;
use llvm_sys::prelude::*;
use llvm_sys::support::LLVMParseCommandLineOptions;
use llvm_sys::target::*;
use llvm_sys::target_machine::*;
use llvm_sys::transforms::pass_builder::*;
use std::ffi::{CStr, CString, c_char, c_void};
use std::io::Write;

/// The instruction set: the first with signed division.
const CPU: &CStr = c"v4";
const TRIPLE: &CStr = c"bpfel-unknown-none";
/// Bytes of what the back end says.
const MESSAGES_LEN_MAX: usize = 64 << 10;

/// Back end of eBPF, with stack frames of this many bytes.
pub(crate) struct Target {
    machine: LLVMTargetMachineRef,
}

impl Target {
    pub(crate) fn new(stack_bytes: u32) -> Result<Self, String> {
        let stack = CString::new(format!("-bpf-stack-size={stack_bytes}")).map_err(|e| e.to_string())?;
        let options = [c"diskside-llvm".as_ptr(), stack.as_ptr()];
        // SAFETY: initialised targets, strings that end, so many options.
        unsafe {
            LLVMInitializeBPFTargetInfo();
            LLVMInitializeBPFTarget();
            LLVMInitializeBPFTargetMC();
            LLVMInitializeBPFAsmPrinter();
            LLVMInitializeBPFAsmParser();
            LLVMParseCommandLineOptions(options.len() as i32, options.as_ptr(), c"".as_ptr());
            LLVMInstallFatalErrorHandler(Some(on_fatal));
            let machine = LLVMCreateTargetMachine(
                find_target(TRIPLE)?,
                TRIPLE.as_ptr(),
                CPU.as_ptr(),
                c"".as_ptr(),
                LLVMCodeGenOptLevel::LLVMCodeGenLevelDefault,
                LLVMRelocMode::LLVMRelocDefault,
                LLVMCodeModel::LLVMCodeModelDefault,
            );
            if machine.is_null() {
                return Err("LLVM has no target machine for eBPF".into());
            }
            Ok(Self { machine })
        }
    }

    /// Compiles bitcode to an object.
    pub(crate) fn compile(&self, bitcode: Vec<u8>) -> Result<Vec<u8>, String> {
        let mut messages = String::new();
        // SAFETY: `messages` outlives all that writes to it; nothing of LLVM's is disposed of at the end: the process
        // ends too.
        unsafe {
            let context = LLVMContextCreate();
            LLVMContextSetDiagnosticHandler(context, Some(on_diagnostic), (&raw mut messages).cast());
            let module = parse(context, &bitcode)?;
            if !CStr::from_ptr(LLVMGetTarget(module)).to_bytes().starts_with(b"bpf") {
                return Err("the module is not for eBPF: compile with -target bpf".into());
            }
            LLVMSetTarget(module, TRIPLE.as_ptr());
            LLVMSetModuleDataLayout(module, LLVMCreateTargetDataLayout(self.machine));
            verify(module)?;
            // The back end knows no vectors either; lowering is for single values.
            self.run(module, c"function(scalarizer)")?;
            lower::lower(context, module)?;
            verify(module)?;
            self.run(module, c"function(early-cse,instcombine<no-verify-fixpoint>)")?;
            lower::align_accesses(module);
            let object = object_of(self.machine, module);
            if messages.is_empty() { object } else { Err(messages) }
        }
    }

    /// # Safety
    /// The module is whole.
    unsafe fn run(&self, module: LLVMModuleRef, passes: &CStr) -> Result<(), String> {
        // SAFETY: options are created and disposed of here, the message of an error is copied.
        unsafe {
            let options = LLVMCreatePassBuilderOptions();
            let error: LLVMErrorRef = LLVMRunPasses(module, passes.as_ptr(), self.machine, options);
            LLVMDisposePassBuilderOptions(options);
            if error.is_null() {
                return Ok(());
            }
            Err(CStr::from_ptr(LLVMGetErrorMessage(error)).to_string_lossy().into_owned())
        }
    }
}

/// Keeps an error as a line, as clang would print it.
extern "C" fn on_diagnostic(info: LLVMDiagnosticInfoRef, messages: *mut c_void) {
    // SAFETY: the context hands over the pointer that it was given, to a `String` that nobody else holds while LLVM
    // works, and a diagnostic whose text is ours to dispose of.
    unsafe {
        let messages = &mut *messages.cast::<String>();
        let text = taken(LLVMGetDiagInfoDescription(info));
        let is_error = LLVMGetDiagInfoSeverity(info) == LLVMDiagnosticSeverity::LLVMDSError;
        if is_error && messages.len() + text.len() < MESSAGES_LEN_MAX {
            // `FILE:LINE:COLUMN: in function NAME SIGNATURE: MESSAGE`
            match text.split_once(": in function ") {
                Some((place, rest)) => {
                    let message = rest.rsplit_once("): ").map_or(rest, |(_, message)| message);
                    messages.push_str(&format!("{place}: error: {message}\n"));
                }
                None => messages.push_str(&format!("{text}\n")),
            }
        }
    }
}

/// The last word before LLVM ends the process.
extern "C" fn on_fatal(reason: *const c_char) {
    // SAFETY: LLVM hands over a string that ends.
    let reason = unsafe { CStr::from_ptr(reason) }.to_string_lossy().into_owned();
    let answer = Answer::Error(reason).to_bytes();
    let mut out = std::io::stdout();
    let written = out.write_all(&answer).and_then(|()| out.flush());
    std::process::exit(i32::from(written.is_err()));
}
