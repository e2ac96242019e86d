//! The type of a program's input: the type of its parameter `in`.

use super::btf::{Btf, Type, kind};

/// The parameter of a program that its input is in.
const PARAM: usize = 1;
/// The typedefs of `diskside.h` whose values are floating-point numbers, as bits.
const FLOATS: [&str; 2] = ["ds_f32", "ds_f64"];
const SIGNED: u32 = 1;
/// Longest chain of typedefs and qualifiers.
const CHAIN_MAX: usize = 16;

/// An element of a program's input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InputElement {
    /// Its bytes: at least 1.
    pub len_bytes: u32,
    /// Their kind.
    pub kind: InputKind,
}

/// The kind of an [`InputElement`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InputKind {
    /// A signed integer.
    Signed,
    /// An unsigned integer.
    Unsigned,
    /// A floating-point number.
    Float,
    /// A structure.
    Record,
}

impl InputKind {
    /// The name of several of them in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Signed => "signed integers",
            Self::Unsigned => "unsigned integers",
            Self::Float => "floating-point numbers",
            Self::Record => "records",
        }
    }
}

impl InputElement {
    /// `None` when the type does not say: `void`, single bytes, and what has no size.
    pub(super) fn of(btf: &Btf<'_>, function: u32) -> Option<Self> {
        let id = btf.prototype(function)?.params.get(PARAM).copied()?;
        let (_, pointer) = btf.strip(id).filter(|(_, ty)| ty.kind == kind::PTR)?;
        let (_, ty) = btf.strip(pointer.size_or_type)?;
        let kind = match ty.kind {
            kind::INT if is_float(btf, pointer.size_or_type) => InputKind::Float,
            kind::INT if ty.size_or_type == 1 => return None,
            kind::INT if is_signed(&ty) => InputKind::Signed,
            kind::INT => InputKind::Unsigned,
            kind::FLOAT => InputKind::Float,
            kind::ENUM | kind::ENUM64 if ty.is_signed_enum() => InputKind::Signed,
            kind::ENUM | kind::ENUM64 => InputKind::Unsigned,
            kind::STRUCT | kind::UNION => InputKind::Record,
            _ => return None,
        };
        Some(Self { len_bytes: ty.size_or_type, kind }).filter(|element| element.len_bytes > 0)
    }
}

fn is_signed(ty: &Type<'_>) -> bool {
    ty.integer().is_some_and(|(encoding, _)| encoding & SIGNED != 0)
}

/// Whether a typedef on the way to the type says that its bits are those of a float.
pub(super) fn is_float(btf: &Btf<'_>, mut id: u32) -> bool {
    for _ in 0..CHAIN_MAX {
        match btf.get(id) {
            Some(ty) if ty.kind == kind::TYPEDEF && FLOATS.contains(&btf.name(ty)) => return true,
            Some(ty) if matches!(ty.kind, kind::TYPEDEF | kind::CONST | kind::VOLATILE | kind::RESTRICT) => {
                id = ty.size_or_type;
            }
            _ => return false,
        }
    }
    false
}
