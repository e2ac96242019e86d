//! Raw bytecode as an object, which names its kind: so targets take it like any other.

use diskside_sbpf::image::Kind;
use object::write::{Object, Symbol, SymbolSection};
use object::{Architecture, BinaryFormat, Endianness, SectionKind, SymbolFlags, SymbolKind, SymbolScope};
use std::collections::BTreeSet;

/// Bytes of an instruction.
const SLOT_LEN: usize = 8;
const OP_LDDW: u8 = 0x18;
const OP_CALL: u8 = 0x85;
/// The source register of a call within the program.
const LOCAL_CALL: u8 = 1;

/// An object with this code as its one program, entered at the first instruction.
///
/// # Errors
/// What the object cannot hold.
pub(crate) fn object_of(code: &[u8], kind: Kind) -> Result<Vec<u8>, object::write::Error> {
    let mut object = Object::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::Little);
    let name = format!("{}/{NAME}", kind.name());
    let section = object.add_section(Vec::new(), name.into_bytes(), SectionKind::Text);
    object.append_section_data(section, code, SLOT_LEN as u64);
    let starts = functions(code);
    let ends = starts.iter().skip(1).copied().chain([code.len() / SLOT_LEN]);
    for (start, end) in starts.iter().zip(ends) {
        let (name, scope) = match start {
            0 => (NAME.to_owned(), SymbolScope::Dynamic),
            start => (format!("{NAME}_{start}"), SymbolScope::Compilation),
        };
        object.add_symbol(Symbol {
            name: name.into_bytes(),
            value: (start * SLOT_LEN) as u64,
            size: ((end - start) * SLOT_LEN) as u64,
            kind: SymbolKind::Text,
            scope,
            weak: false,
            section: SymbolSection::Section(section),
            flags: SymbolFlags::None,
        });
    }
    object.write()
}

/// The name of the function.
const NAME: &str = "raw";

/// Where functions begin: at the first instruction, and where calls go to. One that goes nowhere is the verifier's to refuse.
fn functions(code: &[u8]) -> BTreeSet<usize> {
    let slots: Vec<&[u8]> = code.chunks_exact(SLOT_LEN).collect();
    let mut starts = BTreeSet::from([0]);
    let mut at = 0;
    while let Some(slot) = slots.get(at) {
        let (opcode, source) = (slot[0], slot[1] >> 4);
        if opcode == OP_CALL && source == LOCAL_CALL {
            let offset = i32::from_le_bytes([slot[4], slot[5], slot[6], slot[7]]);
            let target = usize::try_from(at as i64 + 1 + i64::from(offset)).ok();
            starts.extend(target.filter(|target| *target < slots.len()));
        }
        // Its second half is not an instruction.
        at += if opcode == OP_LDDW { 2 } else { 1 };
    }
    starts
}
