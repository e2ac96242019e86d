//! Compiles a source as `diskside` does, and runs its function `f` in all three tiers.
#![allow(dead_code, reason = "each test binary uses a part")]

use diskside_abi::context::{DsCall, FLAG_FIRST, FLAG_LAST, UNKNOWN};
use diskside_compile::{CompileError, compile};
use diskside_sbpf::activation::{Activation, ActivationOptions, Code, Limits, Mappings, Program};
use diskside_sbpf::helpers::standard;
use diskside_sbpf::image::Image;
use diskside_sbpf::region::RegionId;
use diskside_sbpf_llvm::Compiler;
use std::sync::Arc;
use zerocopy::IntoBytes;

pub(crate) const TIERS: [&str; 3] = ["interpreter", "Cranelift", "LLVM"];

/// A program and its code in each tier.
pub(crate) struct Compiled {
    program: Arc<Program>,
    codes: [Arc<dyn Code>; 3],
}

/// The object of a source, or what is said of it.
pub(crate) fn object(source: &str) -> Result<Vec<u8>, String> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f.bpf.c");
    std::fs::write(&path, source).expect("written");
    match compile(&path) {
        Ok(object) => Ok(object),
        Err(CompileError::Refused { stderr, .. }) => Err(stderr.replace(&path.display().to_string(), "f.bpf.c")),
        Err(error) => panic!("{error}"),
    }
}

/// Compiles a source that compiles.
pub(crate) fn compiled(source: &str) -> Compiled {
    let object = object(source).unwrap_or_else(|said| panic!("{said}\n{source}"));
    let helpers = Arc::new(standard());
    let image = Arc::new(Image::from_elf(&object, &helpers).expect("it loads"));
    let index = image.program("f").expect("it has the program");
    let program = Program::new(&image, index, &helpers)
        .unwrap_or_else(|found| panic!("{}", found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")));
    let llvm = Compiler::find().expect("diskside-llvm is beside the tests");
    let cranelift = diskside_sbpf_cranelift::compile(program.optimised(), &diskside_sbpf_cranelift::Options::default());
    let llvm = diskside_sbpf_llvm::compile(program.optimised(), &llvm);
    let codes: [Arc<dyn Code>; 3] = [
        Arc::new(program.interpreter()),
        Arc::new(cranelift.expect("Cranelift compiles it")),
        Arc::new(llvm.expect("LLVM compiles it").code),
    ];
    Compiled { program: Arc::new(program), codes }
}

impl Compiled {
    /// The outputs of the tiers over an input.
    pub(crate) fn run(&self, input: &[u8], out_cap: usize) -> [Vec<u8>; 3] {
        self.codes.clone().map(|code| {
            let mut output = vec![0u64; out_cap.div_ceil(8)];
            let call = DsCall {
                size: (size_of::<DsCall>() as u32).into(),
                flags: (FLAG_FIRST | FLAG_LAST).into(),
                args_len: 0.into(),
                out_cap: (out_cap as u64).into(),
                in_offset: 0.into(),
                record_index: UNKNOWN.into(),
                source_len: (input.len() as u64).into(),
                source_index: 0.into(),
                chunk_index: 0.into(),
            };
            let mut activation = Activation::new(&self.program, code, ActivationOptions::default());
            let mappings = Mappings::new()
                .read_only(RegionId::INPUT, input)
                .read_only(RegionId::ARGS, &[])
                .read_only(RegionId::CONTEXT, call.as_bytes())
                .writable(RegionId::OUTPUT, &mut output.as_mut_bytes()[..out_cap]);
            let registers = self.program.entry_registers(&[input.len() as u64]);
            let limits = Limits::for_bytes(input.len() as u64, out_cap as u64);
            let returned = activation.call(&mappings, registers, &limits).expect("it returns");
            let len = usize::try_from(returned.value).expect("a length");
            output.as_bytes()[..len].to_vec()
        })
    }
}
