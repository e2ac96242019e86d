//! One run: load, verify, activate, call.

pub(crate) use diskside_sbpf::activation::Tier;
use diskside_sbpf::activation::{Activation, ActivationOptions, Code, Limits, Mappings, Program};
use diskside_sbpf::disasm::listing;
use diskside_sbpf::helpers::{HelperSet, standard};
use diskside_sbpf::image::{Image, Kind, LoadOptions};
use diskside_sbpf::region::RegionId;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// How the program is written down.
#[derive(Clone, Copy)]
pub(crate) enum Format {
    /// Instruction slots.
    Raw,
    /// An ELF object; its first program runs.
    Elf,
}

/// What the suite asks for.
pub(crate) struct Request {
    pub(crate) program: Vec<u8>,
    pub(crate) memory: Vec<u8>,
    pub(crate) format: Format,
    pub(crate) tier: Tier,
    pub(crate) debug: bool,
}

impl Request {
    /// Runs the program and returns `r0`.
    pub(crate) fn run(&self) -> Result<u64, String> {
        let helpers = Arc::new(standard());
        let image = Arc::new(self.image(&helpers)?);
        if self.debug {
            for function in 0..image.functions.len() {
                eprint!("{}", listing(&image, function));
            }
        }
        let program = Program::new(&image, 0, &helpers).map_err(|findings| {
            let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
            lines.join("\n")
        })?;
        let program = Arc::new(program);
        let code = self.code(&program)?;
        let mut activation = Activation::new(&program, code, ActivationOptions::default());

        let len = self.memory.len();
        // In words, so that the memory is aligned for atomic operations.
        let mut words = vec![0u64; len.div_ceil(8)];
        let memory = &mut words.as_mut_bytes()[..len];
        memory.copy_from_slice(&self.memory);
        let mappings = Mappings::new().writable(RegionId::INPUT, memory);
        let args = program.entry_registers(&[len as u64]);
        let limits = Limits::for_bytes(len as u64, 0);
        match activation.call(&mappings, args, &limits) {
            Ok(returned) => Ok(returned.value),
            Err(stopped) => Err(format!("instruction {}: {}", stopped.trap.insn, stopped.trap)),
        }
    }

    fn image(&self, helpers: &HelperSet) -> Result<Image, String> {
        match self.format {
            Format::Raw => Image::from_raw(&self.program, Kind::Raw, helpers),
            Format::Elf => {
                let options = LoadOptions { kind: Some(Kind::Raw) };
                Image::from_elf_with(&self.program, helpers, options)
            }
        }
        .map_err(|e| e.to_string())
    }

    fn code(&self, program: &Arc<Program>) -> Result<Arc<dyn Code>, String> {
        match self.tier {
            Tier::Interpreter => Ok(Arc::new(program.interpreter())),
            Tier::Cranelift => {
                let options = diskside_sbpf_cranelift::Options::default();
                diskside_sbpf_cranelift::compile(program.optimised(), &options)
                    .map(|code| Arc::new(code) as Arc<dyn Code>)
                    .map_err(|e| e.to_string())
            }
            Tier::Llvm => {
                let compiler = diskside_sbpf_llvm::Compiler::find()
                    .ok_or("the LLVM tier's compiler is not here: put diskside-llvm beside this program")?;
                diskside_sbpf_llvm::compile(program.optimised(), &compiler)
                    .map(|compiled| Arc::new(compiled.code) as Arc<dyn Code>)
                    .map_err(|e| e.to_string())
            }
        }
    }
}
