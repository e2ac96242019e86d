//! Lays the functions of a module out in one piece of memory and patches the calls between them.

use crate::runtime::FUNCTION_ALIGN;
use cranelift_codegen::binemit::Reloc;
use cranelift_codegen::ir::function::FunctionParameters;
use cranelift_codegen::ir::{ExternalName, LibCall};
use cranelift_codegen::{CompiledCode, FinalizedMachReloc, FinalizedRelocTarget};
use diskside_sbpf_native::CodeMemory;
use diskside_sbpf_native::callouts::rounding;
use std::io;

/// Collects compiled functions.
#[derive(Debug, Default)]
pub(crate) struct Linker {
    code: Vec<u8>,
    starts: Vec<usize>,
    patches: Vec<Patch>,
}

#[derive(Debug)]
struct Patch {
    at: usize,
    kind: Reloc,
    target: Target,
    addend: i64,
}

#[derive(Clone, Copy, Debug)]
enum Target {
    /// A function of the module, by index.
    Function(usize),
    /// An offset in the module's code.
    Offset(usize),
    /// A function of this crate.
    Absolute(usize),
}

impl Linker {
    /// Appends a function and returns its offset.
    pub(crate) fn add(&mut self, code: &CompiledCode, names: &FunctionParameters) -> usize {
        let align = FUNCTION_ALIGN.max(code.buffer.alignment as usize);
        let start = self.code.len().next_multiple_of(align);
        self.code.resize(start, 0);
        self.code.extend_from_slice(code.code_buffer());
        self.starts.push(start);
        for reloc in code.buffer.relocs() {
            self.patches.push(Patch {
                at: start + reloc.offset as usize,
                kind: reloc.kind,
                target: target_of(reloc, start, names),
                addend: reloc.addend,
            });
        }
        start
    }

    /// Makes the code executable.
    pub(crate) fn link(self) -> io::Result<CodeMemory> {
        let Self { code, starts, patches } = self;
        CodeMemory::new(code, |code, base| {
            for p in &patches {
                let target = match p.target {
                    Target::Function(i) => base + starts[i],
                    Target::Offset(o) => base + o,
                    Target::Absolute(a) => a,
                };
                p.apply(code, base, target);
            }
        })
    }
}

impl Patch {
    fn apply(&self, code: &mut [u8], base: usize, target: usize) {
        let value = (target as i64).wrapping_add(self.addend);
        let distance = value.wrapping_sub((base + self.at) as i64);
        match self.kind {
            Reloc::Abs8 => code[self.at..self.at + 8].copy_from_slice(&value.to_le_bytes()),
            Reloc::X86PCRel4 | Reloc::X86CallPCRel4 | Reloc::X86CallPLTRel4 => {
                let distance = i32::try_from(distance).expect("a module is shorter than 2 GiB");
                code[self.at..self.at + 4].copy_from_slice(&distance.to_le_bytes());
            }
            Reloc::Arm64Call => {
                assert!((-(1 << 27)..1 << 27).contains(&distance), "a module is shorter than 128 MiB");
                let word = code[self.at..self.at + 4].try_into().expect("4 bytes");
                let word = u32::from_le_bytes(word) & !0x03ff_ffff;
                let word = word | ((distance >> 2) as u32 & 0x03ff_ffff);
                code[self.at..self.at + 4].copy_from_slice(&word.to_le_bytes());
            }
            kind => unreachable!("{kind:?} is for code models that this tier does not ask for"),
        }
    }
}

fn target_of(reloc: &FinalizedMachReloc, start: usize, names: &FunctionParameters) -> Target {
    match &reloc.target {
        FinalizedRelocTarget::Func(offset) => Target::Offset(start + *offset as usize),
        FinalizedRelocTarget::ExternalName(ExternalName::User(name)) => {
            Target::Function(names.user_named_funcs()[*name].index as usize)
        }
        FinalizedRelocTarget::ExternalName(ExternalName::LibCall(call)) => Target::Absolute(library_function(*call)),
        FinalizedRelocTarget::ExternalName(name) => {
            unreachable!("the translation names no {name:?}")
        }
    }
}

fn library_function(call: LibCall) -> usize {
    match call {
        LibCall::CeilF32 => rounding::ceil_f32 as *const () as usize,
        LibCall::CeilF64 => rounding::ceil_f64 as *const () as usize,
        LibCall::FloorF32 => rounding::floor_f32 as *const () as usize,
        LibCall::FloorF64 => rounding::floor_f64 as *const () as usize,
        LibCall::TruncF32 => rounding::trunc_f32 as *const () as usize,
        LibCall::TruncF64 => rounding::trunc_f64 as *const () as usize,
        LibCall::NearestF32 => rounding::nearest_f32 as *const () as usize,
        LibCall::NearestF64 => rounding::nearest_f64 as *const () as usize,
        call => unreachable!("the translation uses no operation that needs {call:?}"),
    }
}
