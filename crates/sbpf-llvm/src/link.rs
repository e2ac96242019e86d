//! Turns an object into code: its contents and its references are checked against closed lists.
//!
//! Code and constants go into one piece of memory. A relocation is relative, lies in that piece, and
//! leads to a place in it, or to a function on the list of [`outside`], by a jump in the piece. An
//! object with anything else is refused: writable data, other relocations, other names.

use diskside_sbpf_native::CodeMemory;
use diskside_sbpf_native::callouts::{self, rounding};
use object::elf::{
    EM_X86_64, ET_REL, FileHeader64, R_X86_64_NONE, R_X86_64_PC32, R_X86_64_PLT32, SHF_ALLOC, SHF_EXECINSTR, SHF_TLS,
    SHF_WRITE, SHT_PROGBITS, SHT_X86_64_UNWIND,
};
use object::read::elf::{ElfFile64, FileHeader as _, SectionHeader as _};
use object::{LittleEndian, Object as _, ObjectSection as _, ObjectSymbol as _, RelocationFlags, RelocationTarget};
use std::collections::BTreeMap;
use std::io;

/// Why an object is not linked.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// It is not an object for this machine.
    #[error("it is no relocatable x86-64 object: {0}")]
    Malformed(String),
    /// It brings what code of a function has not.
    #[error("section `{section}`: {what}")]
    Section {
        /// The section's name.
        section: String,
        /// The problem.
        what: &'static str,
    },
    /// It refers to something that code of a function may not refer to.
    #[error("section `{section}`, relocation at {offset:#x}: {what}")]
    Relocation {
        /// The section's name.
        section: String,
        /// The place in it.
        offset: u64,
        /// The problem.
        what: String,
    },
    /// The entry is missing.
    #[error("it has no function `{}`", crate::emit::ENTRY)]
    NoEntry,
    /// The system gave no memory for code.
    #[error("no memory for machine code: {0}")]
    OutOfMemory(#[from] io::Error),
}

/// Most bytes of code and constants.
const LEN_MAX: usize = 64 << 20;
/// The bytes of a stub: `jmp [rip]` and the address.
const STUB_LEN: usize = 16;

/// Linked code, and where its entry is.
#[derive(Debug)]
pub(crate) struct Linked {
    pub(crate) memory: CodeMemory,
    pub(crate) entry: usize,
}

/// Links an object.
pub(crate) fn link(object: &[u8]) -> Result<Linked, LinkError> {
    let malformed = |e: object::Error| LinkError::Malformed(e.to_string());
    let header = FileHeader64::<LittleEndian>::parse(object).map_err(malformed)?;
    if header.e_machine(LittleEndian) != EM_X86_64 || header.e_type(LittleEndian) != ET_REL {
        return Err(LinkError::Malformed("another machine, or linked already".into()));
    }
    let file = ElfFile64::<LittleEndian>::parse(object).map_err(malformed)?;
    let mut layout = Layout::default();
    layout.place_sections(&file)?;
    layout.relocate(&file)?;
    let entry = layout.entry(&file)?;
    let Layout { code, stubs, .. } = layout;
    let memory = CodeMemory::new(code, |code, _| {
        for (address, at) in stubs.values() {
            code[*at..*at + 6].copy_from_slice(&[0xff, 0x25, 0, 0, 0, 0]);
            code[*at + 6..*at + 14].copy_from_slice(&(*address as u64).to_le_bytes());
        }
    })?;
    Ok(Linked { memory, entry })
}

#[derive(Default)]
struct Layout {
    code: Vec<u8>,
    /// Section index to where it is and how long.
    placed: BTreeMap<usize, (usize, usize)>,
    /// Name to address and where the stub is.
    stubs: BTreeMap<String, (usize, usize)>,
}

type File<'d> = ElfFile64<'d, LittleEndian>;
type Section<'d, 'f> = object::read::elf::ElfSection64<'d, 'f, LittleEndian>;

impl Layout {
    fn place_sections(&mut self, file: &File<'_>) -> Result<(), LinkError> {
        for section in file.sections() {
            let header = section.elf_section_header();
            let flags = header.sh_flags(LittleEndian);
            let kind = header.sh_type(LittleEndian);
            // Unwinding never comes here: a trap returns.
            if !flags.contains(SHF_ALLOC) || section.size() == 0 || kind == SHT_X86_64_UNWIND || is_unwind(&section) {
                continue;
            }
            let refused = |what| Err(LinkError::Section { section: name_of(&section), what });
            if flags.contains(SHF_WRITE) || flags.contains(SHF_TLS) {
                return refused("it is writable; code of a function has no data of its own");
            }
            if kind != SHT_PROGBITS {
                return refused("it is of a kind that code of a function has not");
            }
            let bytes = section.data().map_err(|e| LinkError::Malformed(e.to_string()))?;
            let align = usize::try_from(section.align()).unwrap_or(usize::MAX);
            if align > 4096 || !align.max(1).is_power_of_two() {
                return refused("its alignment is out of range");
            }
            let start = self.code.len().next_multiple_of(align.max(16));
            if start.saturating_add(bytes.len()) > LEN_MAX {
                return refused("the object is too large");
            }
            self.code.resize(start, 0xcc);
            self.code.extend_from_slice(bytes);
            self.placed.insert(section.index().0, (start, bytes.len()));
        }
        Ok(())
    }

    fn relocate(&mut self, file: &File<'_>) -> Result<(), LinkError> {
        for section in file.sections() {
            let Some(&(start, len)) = self.placed.get(&section.index().0) else {
                continue;
            };
            for (offset, relocation) in section.relocations() {
                let RelocationFlags::Elf { r_type } = relocation.flags() else {
                    continue;
                };
                if r_type == R_X86_64_NONE {
                    continue;
                }
                let refused = |what: String| LinkError::Relocation { section: name_of(&section), offset, what };
                if !matches!(r_type, R_X86_64_PC32 | R_X86_64_PLT32) {
                    return Err(refused(format!("type {r_type} is not on the list")));
                }
                let at = usize::try_from(offset).ok().filter(|o| o.checked_add(4).is_some_and(|end| end <= len));
                let at = start + at.ok_or_else(|| refused("it lies outside of the section".into()))?;
                let target = self.target(file, relocation.target()).map_err(refused)?;
                let value = (target as i64).saturating_add(relocation.addend());
                // An addend counts from the field; the place meant is a little later.
                if !(-16..=self.code.len() as i64).contains(&value) {
                    return Err(refused("it leads out of the code".into()));
                }
                let distance = i32::try_from(value - at as i64).map_err(|_| refused("it leads too far".into()))?;
                self.code[at..at + 4].copy_from_slice(&distance.to_le_bytes());
            }
        }
        Ok(())
    }

    /// Where a relocation leads to, as an offset in the code.
    fn target(&mut self, file: &File<'_>, target: RelocationTarget) -> Result<usize, String> {
        let RelocationTarget::Symbol(index) = target else {
            return Err("it leads to no symbol".into());
        };
        let symbol = file.symbol_by_index(index).map_err(|e| e.to_string())?;
        if let Some(section) = symbol.section_index() {
            let &(start, len) =
                self.placed.get(&section.0).ok_or("it leads to a section that is not part of the code")?;
            let offset = usize::try_from(symbol.address()).ok().filter(|o| *o <= len);
            return Ok(start + offset.ok_or("it leads out of its section")?);
        }
        let name = symbol.name().map_err(|e| e.to_string())?;
        if let Some(&(_, at)) = self.stubs.get(name) {
            return Ok(at);
        }
        let address = outside(name).ok_or_else(|| format!("`{name}` is not on the list of what code may call"))?;
        let at = self.code.len().next_multiple_of(STUB_LEN);
        self.code.resize(at + STUB_LEN, 0xcc);
        self.stubs.insert(name.to_owned(), (address, at));
        Ok(at)
    }

    fn entry(&self, file: &File<'_>) -> Result<usize, LinkError> {
        let symbol = file.symbols().find(|s| s.name() == Ok(crate::emit::ENTRY) && s.is_definition());
        let symbol = symbol.ok_or(LinkError::NoEntry)?;
        let section = symbol.section_index().ok_or(LinkError::NoEntry)?;
        let executable = file
            .section_by_index(section)
            .is_ok_and(|s| s.elf_section_header().sh_flags(LittleEndian).contains(SHF_EXECINSTR));
        let &(start, len) = self.placed.get(&section.0).filter(|_| executable).ok_or(LinkError::NoEntry)?;
        let offset = usize::try_from(symbol.address()).ok().filter(|o| *o < len).ok_or(LinkError::NoEntry)?;
        Ok(start + offset)
    }
}

/// The functions that code may call.
fn outside(name: &str) -> Option<usize> {
    Some(match name {
        "ds_load" => callouts::load as *const () as usize,
        "ds_store" => callouts::store as *const () as usize,
        "ds_resolve_atomic" => callouts::resolve_atomic as *const () as usize,
        "ds_refill" => callouts::refill as *const () as usize,
        "ds_helper" => callouts::helper as *const () as usize,
        // Functions that LLVM makes from loops that copy, fill and compare.
        "memcpy" => libc::memcpy as *const () as usize,
        "memmove" => libc::memmove as *const () as usize,
        "memset" => libc::memset as *const () as usize,
        "memcmp" | "bcmp" => libc::memcmp as *const () as usize,
        // Roundings, for processors that have no instruction for them.
        "ceilf" => rounding::ceil_f32 as *const () as usize,
        "ceil" => rounding::ceil_f64 as *const () as usize,
        "floorf" => rounding::floor_f32 as *const () as usize,
        "floor" => rounding::floor_f64 as *const () as usize,
        "truncf" => rounding::trunc_f32 as *const () as usize,
        "trunc" => rounding::trunc_f64 as *const () as usize,
        "roundevenf" => rounding::nearest_f32 as *const () as usize,
        "roundeven" => rounding::nearest_f64 as *const () as usize,
        _ => return None,
    })
}

fn is_unwind(section: &Section<'_, '_>) -> bool {
    section.name() == Ok(".eh_frame")
}

fn name_of(section: &Section<'_, '_>) -> String {
    section.name().unwrap_or("?").escape_debug().to_string()
}
