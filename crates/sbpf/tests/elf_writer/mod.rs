//! Writes small eBPF objects, well-formed or not, byte by byte.

#![allow(dead_code, reason = "each test uses a part")]

/// Section flags of ELF: writable, in memory, executable.
pub(crate) const WRITE: u64 = 1;
pub(crate) const ALLOC: u64 = 2;
pub(crate) const EXEC: u64 = 4;
/// Section types of ELF.
pub(crate) const PROGBITS: u32 = 1;
pub(crate) const RELA: u32 = 4;
pub(crate) const NOBITS: u32 = 8;
pub(crate) const REL: u32 = 9;
/// Relocation types of eBPF.
pub(crate) const R_64_64: u32 = 1;
pub(crate) const R_ABS64: u32 = 2;
pub(crate) const R_64_32: u32 = 10;
/// `st_info`: binding and type.
pub(crate) const LOCAL: u8 = 0x00;
pub(crate) const LOCAL_FUNC: u8 = 0x02;
pub(crate) const GLOBAL: u8 = 0x10;
pub(crate) const GLOBAL_FUNC: u8 = 0x12;
pub(crate) const WEAK: u8 = 0x20;
pub(crate) const UNDEFINED: u16 = 0;
pub(crate) const COMMON: u16 = 0xfff2;

const HEADER_LEN: usize = 64;

#[derive(Clone)]
pub(crate) struct Section {
    pub(crate) name: String,
    pub(crate) ty: u32,
    pub(crate) flags: u64,
    pub(crate) data: Vec<u8>,
    /// Instead of the length of `data`.
    pub(crate) len: Option<u64>,
    pub(crate) align: u64,
    pub(crate) link: u32,
    pub(crate) info: u32,
}

#[derive(Clone)]
pub(crate) struct Symbol {
    pub(crate) name: String,
    pub(crate) info: u8,
    pub(crate) section: u16,
    pub(crate) value: u64,
    pub(crate) size: u64,
}

/// A REL section: the section that it changes, and offset, symbol number from 1 and type of each entry.
#[derive(Clone)]
struct Relocations {
    target: u32,
    entries: Vec<(u64, u32, u32)>,
}

/// An object. Sections are numbered from 1 in the order in which they are added; the symbol table
/// and its strings come after them.
#[derive(Clone, Default)]
pub(crate) struct Object {
    pub(crate) sections: Vec<Section>,
    pub(crate) symbols: Vec<Symbol>,
    relocations: Vec<Relocations>,
}

impl Object {
    /// Adds a section and returns its number.
    pub(crate) fn section(&mut self, name: &str, ty: u32, flags: u64, data: &[u8]) -> u16 {
        self.sections.push(Section {
            name: name.to_owned(),
            ty,
            flags,
            data: data.to_vec(),
            len: None,
            align: 8,
            link: 0,
            info: 0,
        });
        self.sections.len() as u16
    }

    /// Adds a code section.
    pub(crate) fn code(&mut self, name: &str, slots: &[u64]) -> u16 {
        let data: Vec<u8> = slots.iter().flat_map(|s| s.to_le_bytes()).collect();
        self.section(name, PROGBITS, ALLOC | EXEC, &data)
    }

    /// Adds a symbol and returns its number.
    pub(crate) fn symbol(&mut self, name: &str, info: u8, section: u16, value: u64, size: u64) -> u32 {
        self.symbols.push(Symbol { name: name.to_owned(), info, section, value, size });
        self.symbols.len() as u32
    }

    /// Adds a REL section for a section.
    pub(crate) fn relocate(&mut self, section: u16, entries: &[(u64, u32, u32)]) {
        self.relocations.push(Relocations { target: u32::from(section), entries: entries.to_vec() });
    }

    /// The object's bytes.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut sections = self.sections.clone();
        let symtab = sections.len() + self.relocations.len() + 1;
        for Relocations { target, entries } in &self.relocations {
            let data = entries.iter().flat_map(|(offset, symbol, ty)| {
                let info = (u64::from(*symbol) << 32) | u64::from(*ty);
                [offset.to_le_bytes(), info.to_le_bytes()].concat()
            });
            sections.push(Section {
                name: ".rel".to_owned(),
                ty: REL,
                flags: 0,
                data: data.collect(),
                len: None,
                align: 8,
                link: symtab as u32,
                info: *target,
            });
        }
        let mut strings = vec![0];
        let mut symbol_bytes = vec![0; 24];
        for s in &self.symbols {
            symbol_bytes.extend(name_offset(&mut strings, &s.name).to_le_bytes());
            symbol_bytes.extend([s.info, 0]);
            symbol_bytes.extend(s.section.to_le_bytes());
            symbol_bytes.extend(s.value.to_le_bytes());
            symbol_bytes.extend(s.size.to_le_bytes());
        }
        let table = |name: &str, ty, data, link| Section {
            name: name.to_owned(),
            ty,
            flags: 0,
            data,
            len: None,
            align: 8,
            link,
            info: 0,
        };
        sections.push(table(".symtab", 2, symbol_bytes, symtab as u32 + 1));
        let mut headers: Vec<u32> = sections.iter().map(|s| name_offset(&mut strings, &s.name)).collect();
        headers.push(name_offset(&mut strings, ".strtab"));
        sections.push(table(".strtab", 3, strings, 0));
        assemble(&sections, &headers)
    }
}

fn name_offset(strings: &mut Vec<u8>, name: &str) -> u32 {
    if name.is_empty() {
        return 0;
    }
    let at = strings.len() as u32;
    strings.extend(name.as_bytes());
    strings.push(0);
    at
}

fn assemble(sections: &[Section], names: &[u32]) -> Vec<u8> {
    let mut body = vec![0; HEADER_LEN];
    let mut table = vec![0; 64];
    for (s, name) in sections.iter().zip(names) {
        body.resize(body.len().next_multiple_of(8), 0);
        let offset = body.len() as u64;
        body.extend(&s.data);
        table.extend(name.to_le_bytes());
        table.extend(s.ty.to_le_bytes());
        for word in [s.flags, 0, offset, s.len.unwrap_or(s.data.len() as u64)] {
            table.extend(word.to_le_bytes());
        }
        table.extend(s.link.to_le_bytes());
        table.extend(s.info.to_le_bytes());
        table.extend(s.align.to_le_bytes());
        let entry_len: u64 = match s.ty {
            2 => 24,
            REL => 16,
            _ => 0,
        };
        table.extend(entry_len.to_le_bytes());
    }
    body.resize(body.len().next_multiple_of(8), 0);
    let table_at = body.len() as u64;
    body.extend(table);
    let count = sections.len() as u16 + 1;
    let header = [
        &b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0"[..],
        &[1, 0, 247, 0, 1, 0, 0, 0],
        &[0; 16],
        &table_at.to_le_bytes(),
        &[0; 4],
        &[64, 0, 0, 0, 0, 0, 64, 0],
        &count.to_le_bytes(),
        &(count - 1).to_le_bytes(),
    ]
    .concat();
    body[..HEADER_LEN].copy_from_slice(&header);
    body
}
