//! Loading: from bytes to a linked image.

use super::btf::Btf;
use super::elf::{Object, Role, limit};
use super::error::{ImageError, Place};
use super::functions::{CodeMap, Functions, raw_functions};
use super::input::InputElement;
use super::layout::{CODE_SLOTS_MAX, Layout, decode_slots};
use super::lines::Ext;
use super::link::{Linked, link};
use super::{Function, Image, Kind, Note, Program, args, columns, compat, elf, note};
use crate::helpers::HelperSet;
use crate::insn::Slot;
use sha2::{Digest, Sha256};
use std::collections::HashMap;

/// How to load an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LoadOptions {
    /// The kind of programs whose section names none: objects written for other systems. `None`: the one that the object's
    /// note says, if it does.
    pub kind: Option<Kind>,
}

impl Image {
    /// Loads an ELF object, or raw code where the bytes are not an ELF file and a kind is given.
    ///
    /// # Errors
    /// An [`ImageError`] that says what is wrong, where, and what to do.
    pub fn load(bytes: &[u8], helpers: &HelperSet, options: LoadOptions) -> Result<Self, ImageError> {
        match options.kind {
            Some(kind) if !bytes.starts_with(&object::elf::ELFMAG) => Self::from_raw(bytes, kind, helpers),
            _ => Self::from_elf_with(bytes, helpers, options),
        }
    }

    /// Loads an ELF object whose sections name the kinds of its programs.
    ///
    /// # Errors
    /// An [`ImageError`] that says what is wrong, where, and what to do.
    pub fn from_elf(bytes: &[u8], helpers: &HelperSet) -> Result<Self, ImageError> {
        Self::from_elf_with(bytes, helpers, LoadOptions::default())
    }

    /// Loads an ELF object.
    ///
    /// # Errors
    /// An [`ImageError`] that says what is wrong, where, and what to do.
    pub fn from_elf_with(bytes: &[u8], helpers: &HelperSet, options: LoadOptions) -> Result<Self, ImageError> {
        let object = Object::parse(bytes)?;
        refuse_maps(&object)?;
        let note = match object.single(Role::Note)? {
            Some(section) => note::parse(section)?,
            None => Note::default(),
        };
        let mut layout = Layout::new(&object)?;
        let mut linked = link(&object, &mut layout, helpers)?;
        let map = CodeMap::new(&object, &layout);
        let mut functions = Functions::collect(&map, &layout.code)?;
        let mut programs = functions.programs(&map, options.kind.or(note.kind))?;
        let kinds: Vec<Kind> = programs.iter().map(|p| p.kind).collect();
        linked.resolve_numbers(&mut layout.code, &kinds, helpers, |at| map.place(at))?;

        let mut lines = Vec::new();
        if let Some(section) = object.single(Role::Btf)? {
            let btf = Btf::parse(section)?;
            let ext = match object.single(Role::BtfExt)? {
                Some(section) => Some(Ext::parse(section, &btf)?),
                None => None,
            };
            let types = function_types(&map, ext.as_ref());
            let type_of = |f: &Function| match types.get(&f.start) {
                Some(id) => Some(*id),
                None => btf.function(&f.name),
            };
            functions.add_params(&btf, type_of);
            let mut room = args::Room::new();
            for p in &mut programs {
                let ty = type_of(&functions.list[p.function]);
                p.args = args_of(&btf, p, ty, &mut room)?;
                p.result = result_of(&btf, p, ty, &mut room);
                if p.kind == Kind::Columns {
                    p.columns = ty.map(|id| columns::columns(&btf, &p.name, id)).transpose()?;
                }
                p.input = match p.kind {
                    Kind::Read | Kind::Write => ty.and_then(|id| InputElement::of(&btf, id)),
                    _ => None,
                };
            }
            check_declarations(&object, &btf, helpers)?;
            if let Some(ext) = ext {
                lines = ext.source_lines(&btf, |section, offset| map.slot_of(section, offset))?;
            }
        }
        if let Some(program) = programs.iter().find(|p| p.kind == Kind::Columns && p.columns.is_none()) {
            return Err(columns::missing(&program.name));
        }
        let sha256 = Sha256::digest(bytes).into();
        Ok(Self {
            functions: functions.list,
            code: layout.code,
            programs,
            imports: linked.imports,
            rodata: layout.rodata,
            data: layout.data,
            lines,
            note,
            content_hash: content_hash(&sha256),
            sha256,
        })
    }

    /// Loads raw code: instruction slots in little-endian layout, entered at the first.
    ///
    /// # Errors
    /// An [`ImageError`] that says what is wrong, where, and what to do.
    pub fn from_raw(bytes: &[u8], kind: Kind, helpers: &HelperSet) -> Result<Self, ImageError> {
        limit("the object's length in bytes", bytes.len(), elf::OBJECT_LEN_MAX)?;
        if bytes.is_empty() || !bytes.len().is_multiple_of(Slot::LEN_BYTES) {
            return Err(ImageError::RawLength { len_bytes: bytes.len() });
        }
        Self::from_slots(decode_slots(bytes).collect(), &[], kind, helpers)
    }

    /// Raw code whose calls at `named` slots go to helpers by name.
    pub(crate) fn from_slots(
        mut code: Vec<Slot>,
        named: &[(usize, String)],
        kind: Kind,
        helpers: &HelperSet,
    ) -> Result<Self, ImageError> {
        limit("the number of instruction slots", code.len(), CODE_SLOTS_MAX)?;
        let place = |at: usize, symbol: &str| Place {
            section: RAW.to_owned(),
            offset: (at * Slot::LEN_BYTES) as u64,
            symbol: symbol.to_owned(),
        };
        let bytes: Vec<u8> = code.iter().flat_map(|s| s.to_bytes()).collect();
        let mut linked = Linked::by_name(&mut code, named, helpers, place)?;
        linked.resolve_numbers(&mut code, &[kind], helpers, |at| place(at, ""))?;
        let name = kind.name();
        let functions = raw_functions(name, &code)?;
        let mut image = Self::from_code(name, kind, code, linked.imports);
        image.functions = functions;
        image.sha256 = Sha256::digest(&bytes).into();
        image.content_hash = content_hash(&image.sha256);
        Ok(image)
    }
}

/// The name of the only section of raw code in errors.
pub(super) const RAW: &str = "raw code";

/// Maps that an error names.
const MAPS_MAX: usize = 256;

/// The first 64 bits of a hash, as its digits are written.
fn content_hash([a, b, c, d, e, f, g, h, ..]: &[u8; 32]) -> u64 {
    u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h])
}

fn refuse_maps(object: &Object<'_>) -> Result<(), ImageError> {
    let Some((index, section)) = object.with_role(Role::Maps).find(|(_, s)| s.len > 0) else {
        return Ok(());
    };
    let names = object
        .symbols
        .iter()
        .filter(|s| s.definition == elf::Definition::Section(index) && !s.name.is_empty())
        .filter(|s| s.ty != elf::SymbolType::Section)
        .take(MAPS_MAX)
        .map(|s| s.name.to_owned())
        .collect();
    Err(ImageError::Map { names, section: section.name.to_owned() })
}

/// BTF numbers of functions by their first slot.
fn function_types(map: &CodeMap<'_, '_>, ext: Option<&Ext<'_>>) -> HashMap<usize, u32> {
    ext.iter()
        .flat_map(|e| &e.functions)
        .filter_map(|r| Some((map.slot_of(r.section, r.offset)?, r.type_id())))
        .collect()
}

fn args_of(
    btf: &Btf<'_>,
    program: &Program,
    function: Option<u32>,
    room: &mut args::Room,
) -> Result<Option<super::ArgSchema>, ImageError> {
    match (program.kind, function) {
        (Kind::Read | Kind::Write | Kind::Columns, Some(id)) => {
            args::schema(btf, &program.name, id, args::ARGS_PARAM, room)
        }
        (Kind::Kernel, Some(id)) => args::schema(btf, &program.name, id, args::KERNEL_ARGS_PARAM, room),
        _ => Ok(None),
    }
}

/// A result that cannot be described is shown as bytes; that is not an error.
fn result_of(
    btf: &Btf<'_>,
    program: &Program,
    function: Option<u32>,
    room: &mut args::Room,
) -> Option<super::ArgSchema> {
    match (program.kind, function) {
        (Kind::Read | Kind::Columns, Some(id)) => {
            args::schema(btf, &program.name, id, args::RESULT_PARAM, room).ok().flatten()
        }
        (Kind::Kernel, Some(id)) => {
            args::schema(btf, &program.name, id, args::KERNEL_RESULT_PARAM, room).ok().flatten()
        }
        _ => None,
    }
}

fn check_declarations(object: &Object<'_>, btf: &Btf<'_>, helpers: &HelperSet) -> Result<(), ImageError> {
    let undefined = object.symbols.iter().filter(|s| s.definition == elf::Definition::Undefined && !s.name.is_empty());
    for symbol in undefined {
        if let Some(id) = helpers.find(compat::helper_by_symbol(symbol.name)) {
            args::check_declaration(btf, symbol.name, helpers.get(id))?;
        }
    }
    Ok(())
}
