//! The container: sections, symbols and relocations of an ELF object, checked and bounded.
//!
//! Only what the loader needs is kept, borrowed from the object's bytes. Everything later relies on
//! this: section indices of symbols and relocations are valid, names are text of at most
//! [`NAME_LEN_MAX`] bytes, and counts are within the limits below.

use super::error::ImageError;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, Rel, Rela, SectionHeader, SectionTable, Sym};
use object::{LittleEndian, SectionIndex};

/// Longest object.
pub const OBJECT_LEN_MAX: usize = 16 << 20;
/// Most sections.
pub const SECTIONS_MAX: usize = 4096;
/// Most symbols.
pub const SYMBOLS_MAX: usize = 64 << 10;
/// Most relocations of code and data together.
pub const RELOCATIONS_MAX: usize = 1 << 20;
/// Longest name of a section or symbol.
pub const NAME_LEN_MAX: usize = 1024;
/// Largest alignment of a section.
pub const ALIGN_MAX: u64 = 4096;

type Header = FileHeader64<LittleEndian>;
const LE: LittleEndian = LittleEndian;

/// An object file, read.
pub(super) struct Object<'a> {
    /// By ELF section index.
    pub(super) sections: Vec<Section<'a>>,
    /// By ELF symbol index.
    pub(super) symbols: Vec<Symbol<'a>>,
    /// Relocations of code and data sections only, in the order of the object.
    pub(super) relocations: Vec<Relocation>,
}

/// The loader's use of a section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    Code,
    ReadOnly,
    Data,
    Bss,
    Note,
    Btf,
    BtfExt,
    Maps,
    /// Constructors, thread-local data: well-formed, and refused with this reason.
    Unsupported(&'static str),
    Ignored,
}

pub(super) struct Section<'a> {
    pub(super) name: &'a str,
    pub(super) role: Role,
    /// Its bytes; empty for [`Role::Bss`].
    pub(super) data: &'a [u8],
    /// Its length in memory.
    pub(super) len: u64,
    pub(super) align: u64,
}

/// The place of a symbol's definition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Definition {
    Undefined,
    Section(usize),
    Common,
    Absolute,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SymbolType {
    Function,
    Section,
    Other,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Binding {
    Local,
    Global,
    Weak,
}

pub(super) struct Symbol<'a> {
    pub(super) name: &'a str,
    pub(super) definition: Definition,
    pub(super) ty: SymbolType,
    pub(super) binding: Binding,
    pub(super) value: u64,
    pub(super) size: u64,
}

pub(super) struct Relocation {
    /// Section that it changes.
    pub(super) section: usize,
    pub(super) offset: u64,
    /// Index into [`Object::symbols`].
    pub(super) symbol: usize,
    /// `R_BPF_*`.
    pub(super) r_type: u32,
    /// Explicit addend (RELA); otherwise it is in the relocated field.
    pub(super) addend: Option<i64>,
}

impl<'a> Object<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, ImageError> {
        limit("the object's length in bytes", bytes.len(), OBJECT_LEN_MAX)?;
        let header = file_header(bytes)?;
        let table = header.sections(LE, bytes).map_err(malformed)?;
        limit("the number of sections", table.len(), SECTIONS_MAX)?;
        let sections = read_sections(header, &table, bytes)?;
        let (symbols, symtab) = read_symbols(&table, &sections, bytes)?;
        let relocations = read_relocations(&table, &sections, &symbols, symtab, bytes)?;
        Ok(Self { sections, symbols, relocations })
    }

    /// The sections with this role and their indices, in the order of the object.
    pub(super) fn with_role(&self, role: Role) -> impl Iterator<Item = (usize, &Section<'a>)> {
        self.sections.iter().enumerate().filter(move |(_, s)| s.role == role)
    }

    /// The bytes of the only section with this role.
    pub(super) fn single(&self, role: Role) -> Result<Option<&'a [u8]>, ImageError> {
        let mut found = self.with_role(role);
        let first = found.next().map(|(_, s)| s.data);
        match found.next() {
            Some((_, s)) => Err(ImageError::section(s.name, "there is a second one")),
            None => Ok(first),
        }
    }
}

const NO_HEADER: &str = "it does not start with a whole ELF header (raw code needs a kind, chosen with `--kind`)";

fn file_header(bytes: &[u8]) -> Result<&Header, ImageError> {
    let ident = bytes.get(..16).filter(|b| b.starts_with(&elf::ELFMAG)).ok_or_else(|| ImageError::elf(NO_HEADER))?;
    if ident[4] != elf::ELFCLASS64.0 {
        return Err(ImageError::elf("it is not a 64-bit object"));
    }
    let machine = |b: [u8; 2], big| {
        if big { u16::from_be_bytes(b) } else { u16::from_le_bytes(b) }
    };
    let big = ident[5] == elf::ELFDATA2MSB.0;
    let Some(m) = bytes.get(18..20) else {
        return Err(ImageError::elf("the file header is cut short"));
    };
    let m = machine([m[0], m[1]], big);
    if m != elf::EM_BPF.0 {
        return Err(ImageError::Machine { machine: m });
    }
    if big {
        return Err(ImageError::BigEndian);
    }
    let header = Header::parse(bytes).map_err(malformed)?;
    let file_type = header.e_type(LE);
    if file_type != elf::ET_REL {
        return Err(ImageError::FileType { file_type: file_type.0 });
    }
    Ok(header)
}

fn read_sections<'a>(
    header: &Header,
    table: &SectionTable<'a, Header>,
    bytes: &'a [u8],
) -> Result<Vec<Section<'a>>, ImageError> {
    if table.is_empty() {
        return Err(ImageError::elf("it has no sections"));
    }
    let names_index = header.section_strings_index(LE, bytes).map_err(malformed)?;
    let names = string_bytes(table, names_index, bytes)?;
    let mut sections = Vec::with_capacity(table.len());
    for (index, s) in table.enumerate() {
        let name = text_at(names, s.sh_name(LE))
            .ok_or_else(|| ImageError::elf(format!("section {} has a bad name", index.0)))?;
        let role = role_of(name, s);
        let len = s.sh_size(LE);
        let align = s.sh_addralign(LE).max(1);
        let data = match role {
            Role::Ignored | Role::Bss | Role::Unsupported(_) => &[][..],
            _ => s
                .data(LE, bytes)
                .map_err(|_| ImageError::section(name, "its bytes reach past the end of the object"))?,
        };
        let is_loaded = matches!(role, Role::Code | Role::ReadOnly | Role::Data | Role::Bss);
        if is_loaded && !(align.is_power_of_two() && align <= ALIGN_MAX) {
            return Err(ImageError::section(
                name,
                format!("its alignment {align} is no power of two up to {ALIGN_MAX}"),
            ));
        }
        if is_loaded && s.sh_flags(LE).contains(elf::SHF_COMPRESSED) {
            return Err(ImageError::section(name, "it is compressed"));
        }
        if role == Role::Code && (!len.is_multiple_of(8) || align > 8) {
            return Err(ImageError::section(
                name,
                format!("its length {len} or alignment {align} does not fit 8-byte instructions"),
            ));
        }
        sections.push(Section { name, role, data, len, align });
    }
    Ok(sections)
}

fn role_of(name: &str, section: &elf::SectionHeader64<LittleEndian>) -> Role {
    let flags = section.sh_flags(LE);
    let ty = section.sh_type(LE);
    match name {
        ".BTF" => return Role::Btf,
        ".BTF.ext" => return Role::BtfExt,
        ".diskside" => return Role::Note,
        ".maps" | "maps" => return Role::Maps,
        // By the convention of kernel loaders: for the kernel, of no meaning here.
        "license" | "version" | ".eh_frame" => return Role::Ignored,
        _ => {}
    }
    if !flags.contains(elf::SHF_ALLOC) || section.sh_size(LE) == 0 {
        return Role::Ignored;
    }
    if flags.contains(elf::SHF_TLS) {
        return Role::Unsupported("there is no thread-local data; use plain globals");
    }
    match ty {
        elf::SHT_PROGBITS if flags.contains(elf::SHF_EXECINSTR) => Role::Code,
        elf::SHT_PROGBITS if flags.contains(elf::SHF_WRITE) => Role::Data,
        elf::SHT_PROGBITS => Role::ReadOnly,
        elf::SHT_NOBITS if flags.contains(elf::SHF_EXECINSTR) => {
            Role::Unsupported("it is code without bytes; compile the object again")
        }
        elf::SHT_NOBITS => Role::Bss,
        elf::SHT_INIT_ARRAY | elf::SHT_FINI_ARRAY | elf::SHT_PREINIT_ARRAY => {
            Role::Unsupported("constructors and destructors do not run; initialise by constants")
        }
        _ => Role::Ignored,
    }
}

fn read_symbols<'a>(
    table: &SectionTable<'a, Header>,
    sections: &[Section<'a>],
    bytes: &'a [u8],
) -> Result<(Vec<Symbol<'a>>, usize), ImageError> {
    let symtab = table.symbols(LE, bytes, elf::SHT_SYMTAB).map_err(malformed)?;
    limit("the number of symbols", symtab.len(), SYMBOLS_MAX)?;
    let names = string_bytes(table, symtab.string_section(), bytes)?;
    let mut symbols = Vec::with_capacity(symtab.len());
    for (index, s) in symtab.enumerate() {
        // A source file's name is bytes.
        let name = if s.st_type() == elf::STT_FILE { Some("") } else { text_at(names, s.st_name(LE)) };
        let name = name.ok_or_else(|| ImageError::elf(format!("symbol {} has a bad name", index.0)))?;
        let bad = |what: &str| ImageError::elf(format!("symbol {} (`{name}`) is in {what}", index.0));
        let definition = if s.is_undefined(LE) {
            Definition::Undefined
        } else if s.is_common(LE) {
            Definition::Common
        } else if s.is_absolute(LE) {
            Definition::Absolute
        } else {
            let section =
                symtab.symbol_section(LE, s, index).map_err(malformed)?.ok_or_else(|| bad("a reserved section"))?;
            if section.0 >= sections.len() {
                return Err(bad("a section that does not exist"));
            }
            Definition::Section(section.0)
        };
        symbols.push(Symbol {
            name,
            definition,
            ty: match s.st_type() {
                elf::STT_FUNC => SymbolType::Function,
                elf::STT_SECTION => SymbolType::Section,
                _ => SymbolType::Other,
            },
            binding: match s.st_bind() {
                elf::STB_LOCAL => Binding::Local,
                elf::STB_WEAK => Binding::Weak,
                _ => Binding::Global,
            },
            value: s.st_value(LE),
            size: s.st_size(LE),
        });
    }
    Ok((symbols, symtab.section().0))
}

fn read_relocations(
    table: &SectionTable<'_, Header>,
    sections: &[Section<'_>],
    symbols: &[Symbol<'_>],
    symtab: usize,
    bytes: &[u8],
) -> Result<Vec<Relocation>, ImageError> {
    let mut out = Vec::new();
    for (index, s) in table.enumerate() {
        if !matches!(s.sh_type(LE), elf::SHT_REL | elf::SHT_RELA) {
            continue;
        }
        let name = sections[index.0].name;
        let target = s.info_link(LE).0;
        let Some(changed) = sections.get(target) else {
            return Err(ImageError::section(name, "it relocates a section that does not exist"));
        };
        if !matches!(changed.role, Role::Code | Role::ReadOnly | Role::Data) {
            continue;
        }
        let mut push = |offset: u64, symbol: u32, r_type: u32, addend: Option<i64>| {
            let symbol = symbol as usize;
            if symbol >= symbols.len() {
                return Err(ImageError::section(
                    name,
                    format!("the relocation of offset {offset:#x} names a missing symbol"),
                ));
            }
            out.push(Relocation { section: target, offset, symbol, r_type, addend });
            limit("the number of relocations", out.len(), RELOCATIONS_MAX)
        };
        let link = if let Some((rels, link)) = s.rel(LE, bytes).map_err(malformed)? {
            for r in rels {
                push(r.r_offset(LE), r.r_sym(LE), r.r_type(LE).0, None)?;
            }
            link
        } else if let Some((relas, link)) = s.rela(LE, bytes).map_err(malformed)? {
            for r in relas {
                let addend = Some(r.r_addend(LE));
                push(r.r_offset(LE), r.r_sym(LE, false), r.r_type(LE, false).0, addend)?;
            }
            link
        } else {
            continue;
        };
        if link.0 != symtab {
            return Err(ImageError::section(name, "it refers to another symbol table"));
        }
    }
    Ok(out)
}

/// The bytes of a string table; none for index 0.
fn string_bytes<'a>(
    table: &SectionTable<'a, Header>,
    index: SectionIndex,
    bytes: &'a [u8],
) -> Result<&'a [u8], ImageError> {
    if index.0 == 0 {
        return Ok(&[]);
    }
    let section = table.section(index).map_err(malformed)?;
    section.data(LE, bytes).map_err(malformed)
}

/// The text at an offset of a string table, looking no further than a name may reach: tables
/// without terminators must not make reading all names quadratic.
pub(super) fn text_at(strings: &[u8], offset: u32) -> Option<&str> {
    if offset == 0 {
        return Some("");
    }
    let rest = strings.get(offset as usize..)?;
    let window = &rest[..rest.len().min(NAME_LEN_MAX + 1)];
    let len = memchr::memchr(0, window)?;
    std::str::from_utf8(&window[..len]).ok()
}

/// Refuses an amount above a limit.
pub(super) fn limit(what: &'static str, value: usize, limit: usize) -> Result<(), ImageError> {
    if value <= limit {
        return Ok(());
    }
    Err(ImageError::Limit { what, value: value as u64, limit: limit as u64 })
}

fn malformed(e: object::read::Error) -> ImageError {
    ImageError::elf(e.to_string())
}
