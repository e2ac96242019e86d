//! A reader for BTF, the type information that clang writes with `-g`.
//!
//! Layout: <https://docs.kernel.org/bpf/btf.html>. Types are numbered from 1 in the order of the
//! section; 0 is `void`. Nothing is trusted: every number is looked up, every chain is bounded.

use super::elf::text_at;
use super::error::ImageError;
use std::collections::HashMap;

const MAGIC: u16 = 0xeb9f;
const HEADER_LEN_MIN: usize = 24;
/// Longest chain of typedefs and qualifiers that is followed.
const CHAIN_MAX: usize = 32;

/// The kinds that matter here, by their numbers in the format.
pub(super) mod kind {
    pub(crate) const INT: u8 = 1;
    pub(crate) const PTR: u8 = 2;
    pub(crate) const ARRAY: u8 = 3;
    pub(crate) const STRUCT: u8 = 4;
    pub(crate) const UNION: u8 = 5;
    pub(crate) const ENUM: u8 = 6;
    pub(crate) const FWD: u8 = 7;
    pub(crate) const TYPEDEF: u8 = 8;
    pub(crate) const VOLATILE: u8 = 9;
    pub(crate) const CONST: u8 = 10;
    pub(crate) const RESTRICT: u8 = 11;
    pub(crate) const FUNC: u8 = 12;
    pub(crate) const FUNC_PROTO: u8 = 13;
    pub(crate) const VAR: u8 = 14;
    pub(crate) const DATASEC: u8 = 15;
    pub(crate) const FLOAT: u8 = 16;
    pub(crate) const DECL_TAG: u8 = 17;
    pub(crate) const TYPE_TAG: u8 = 18;
    pub(crate) const ENUM64: u8 = 19;
}

/// Linkage of a `FUNC` that is declared here and defined elsewhere.
const EXTERN: u16 = 2;

/// The types of an object.
pub(super) struct Btf<'a> {
    /// Index 0 is `void`.
    types: Vec<Type<'a>>,
    strings: &'a [u8],
    functions: HashMap<&'a str, u32>,
    externs: HashMap<&'a str, u32>,
    /// Declaration tags by (structure, member).
    tags: HashMap<(u32, u32), Vec<&'a str>>,
}

/// A type as it is in the section.
#[derive(Clone, Copy)]
pub(super) struct Type<'a> {
    name: u32,
    pub(super) kind: u8,
    vlen: u16,
    flag: bool,
    /// Size in bytes, or the number of the type that this one is about.
    pub(super) size_or_type: u32,
    tail: &'a [u8],
}

/// A member of a structure.
pub(super) struct Member<'a> {
    pub(super) name: &'a str,
    pub(super) ty: u32,
    pub(super) offset_bits: u32,
    pub(super) is_bit_field: bool,
}

/// A function type.
pub(super) struct Prototype {
    pub(super) ret: u32,
    pub(super) params: Vec<u32>,
}

impl<'a> Btf<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, ImageError> {
        let bad = |offset, what| ImageError::Debug { section: ".BTF", offset, what };
        let (types_start, types_end, strings) =
            header(bytes).ok_or_else(|| bad(0, "the header is damaged, or for another version than 1"))?;
        let mut btf = Self {
            types: vec![Type { name: 0, kind: 0, vlen: 0, flag: false, size_or_type: 0, tail: &[] }],
            strings,
            functions: HashMap::new(),
            externs: HashMap::new(),
            tags: HashMap::new(),
        };
        let mut at = types_start;
        while at < types_end {
            let ty = read_type(&bytes[..types_end], at)
                .ok_or_else(|| bad(at, "a type is cut short or of an unknown kind"))?;
            at += 12 + ty.tail.len();
            btf.add(ty);
        }
        Ok(btf)
    }

    fn add(&mut self, ty: Type<'a>) {
        let id = self.types.len() as u32;
        self.types.push(ty);
        match ty.kind {
            kind::FUNC => {
                let names = if ty.vlen == EXTERN { &mut self.externs } else { &mut self.functions };
                if let Some(name) = text_at(self.strings, ty.name) {
                    names.entry(name).or_insert(id);
                }
            }
            kind::DECL_TAG => {
                if let (Some(member), Some(text)) = (u32_at(ty.tail, 0), text_at(self.strings, ty.name)) {
                    self.tags.entry((ty.size_or_type, member)).or_default().push(text);
                }
            }
            _ => {}
        }
    }

    pub(super) fn get(&self, id: u32) -> Option<Type<'a>> {
        self.types.get(id as usize).copied()
    }

    /// A name or any other string; `None` when it is damaged or longer than a name may be.
    pub(super) fn text(&self, offset: u32) -> Option<&'a str> {
        text_at(self.strings, offset)
    }

    /// A string cut to `len_max` bytes, for source lines.
    pub(super) fn text_cut(&self, offset: u32, len_max: usize) -> std::borrow::Cow<'a, str> {
        let rest = self.strings.get(offset as usize..).unwrap_or_default();
        let window = &rest[..rest.len().min(len_max)];
        let len = memchr::memchr(0, window).unwrap_or(window.len());
        String::from_utf8_lossy(&window[..len])
    }

    pub(super) fn name(&self, ty: Type<'a>) -> &'a str {
        self.text(ty.name).unwrap_or_default()
    }

    /// The type behind typedefs and qualifiers, with its number.
    pub(super) fn strip(&self, mut id: u32) -> Option<(u32, Type<'a>)> {
        for _ in 0..CHAIN_MAX {
            let ty = self.get(id)?;
            match ty.kind {
                kind::TYPEDEF | kind::VOLATILE | kind::CONST | kind::RESTRICT | kind::TYPE_TAG => id = ty.size_or_type,
                _ => return Some((id, ty)),
            }
        }
        None
    }

    /// The function defined in this object under this name.
    pub(super) fn function(&self, name: &str) -> Option<u32> {
        self.functions.get(name).copied()
    }

    /// The function declared in this object under this name.
    pub(super) fn extern_function(&self, name: &str) -> Option<u32> {
        self.externs.get(name).copied()
    }

    /// The prototype of a `FUNC`.
    pub(super) fn prototype(&self, function: u32) -> Option<Prototype> {
        let f = self.get(function).filter(|t| t.kind == kind::FUNC)?;
        let p = self.get(f.size_or_type).filter(|t| t.kind == kind::FUNC_PROTO)?;
        let params = p.tail.chunks_exact(8).filter_map(|c| u32_at(c, 4)).collect();
        Some(Prototype { ret: p.size_or_type, params })
    }

    /// Members of a structure or union.
    pub(super) fn members(&self, ty: Type<'a>) -> impl Iterator<Item = Member<'a>> {
        let strings = self.strings;
        ty.tail.chunks_exact(12).map(move |m| {
            let word = |i| u32_at(m, i).unwrap_or_default();
            let (offset_bits, bits) = if ty.flag { (word(8) & 0x00ff_ffff, word(8) >> 24) } else { (word(8), 0) };
            Member {
                name: text_at(strings, word(0)).unwrap_or_default(),
                ty: word(4),
                offset_bits,
                is_bit_field: bits != 0,
            }
        })
    }

    /// Texts of the `btf_decl_tag` attributes of a member.
    pub(super) fn tags(&self, structure: u32, member: u32) -> &[&'a str] {
        self.tags.get(&(structure, member)).map_or(&[], Vec::as_slice)
    }

    /// Element type and count of an array.
    pub(super) fn array(&self, ty: Type<'a>) -> Option<(u32, u32)> {
        Some((u32_at(ty.tail, 0)?, u32_at(ty.tail, 8)?))
    }

    /// Names and values of an enumeration.
    pub(super) fn enum_entries(&self, ty: Type<'a>) -> impl Iterator<Item = (&'a str, i64)> {
        let entry_len = if ty.kind == kind::ENUM64 { 12 } else { 8 };
        let strings = self.strings;
        ty.tail.chunks_exact(entry_len).filter_map(move |e| {
            let name = text_at(strings, u32_at(e, 0)?)?;
            let low = u32_at(e, 4)?;
            let value = match u32_at(e, 8) {
                Some(high) => ((u64::from(high) << 32) | u64::from(low)) as i64,
                None if ty.flag => i64::from(low as i32),
                None => i64::from(low),
            };
            Some((name, value))
        })
    }
}

impl Type<'_> {
    /// True for an enumeration with negative values.
    pub(super) const fn is_signed_enum(&self) -> bool {
        self.flag
    }

    /// Encoding bits (1 signed, 2 char, 4 bool) and width in bits of an integer.
    pub(super) fn integer(&self) -> Option<(u32, u32)> {
        let word = u32_at(self.tail, 0).filter(|_| self.kind == kind::INT)?;
        Some(((word >> 24) & 0x0f, word & 0xff))
    }
}

/// Start and end of the types, and the strings.
fn header(bytes: &[u8]) -> Option<(usize, usize, &[u8])> {
    let magic = u16::from_le_bytes([*bytes.first()?, *bytes.get(1)?]);
    let version = *bytes.get(2)?;
    let header_len = u32_at(bytes, 4)? as usize;
    if magic != MAGIC || version != 1 || header_len < HEADER_LEN_MIN {
        return None;
    }
    let part = |offset_at, len_at| {
        let start = header_len.checked_add(u32_at(bytes, offset_at)? as usize)?;
        let end = start.checked_add(u32_at(bytes, len_at)? as usize)?;
        (end <= bytes.len()).then_some((start, end))
    };
    let (types_start, types_end) = part(8, 12)?;
    let (strings_start, strings_end) = part(16, 20)?;
    Some((types_start, types_end, &bytes[strings_start..strings_end]))
}

fn read_type(bytes: &[u8], at: usize) -> Option<Type<'_>> {
    let info = u32_at(bytes, at + 4)?;
    let vlen = info as u16;
    let kind = (info >> 24) as u8 & 0x1f;
    let n = usize::from(vlen);
    let tail_len = match kind {
        kind::INT | kind::VAR | kind::DECL_TAG => 4,
        kind::ARRAY => 12,
        kind::STRUCT | kind::UNION | kind::DATASEC | kind::ENUM64 => n * 12,
        kind::ENUM | kind::FUNC_PROTO => n * 8,
        kind::PTR
        | kind::FWD
        | kind::TYPEDEF
        | kind::VOLATILE
        | kind::CONST
        | kind::RESTRICT
        | kind::FUNC
        | kind::FLOAT
        | kind::TYPE_TAG => 0,
        _ => return None,
    };
    Some(Type {
        name: u32_at(bytes, at)?,
        kind,
        vlen,
        flag: info >> 31 != 0,
        size_or_type: u32_at(bytes, at + 8)?,
        tail: bytes.get(at + 12..at + 12 + tail_len)?,
    })
}

/// A little-endian word.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let b = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}
