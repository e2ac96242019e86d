//! The columns that a program of kind `columns` reads: the members of the structure that its second parameter points to.

use super::args::{number, parse_scale};
use super::btf::{Btf, Member, Type, kind};
use super::elf::limit;
use super::error::ImageError;
use super::schema::{ArgType, COLUMN_BUFFERS_MAX, ColumnField, ColumnKind, ColumnSchema};

/// The parameter whose type has the columns.
const PARAM: usize = 1;
/// The end of the name of the member that has the validity of a column.
const VALIDITY: &str = "__valid";
/// Most bytes of the structure.
const STRUCTURE_LEN_MAX: usize = 4096;
/// The structures of the header: texts, and texts by their number in a list of different ones.
const TEXT: &str = "ds_utf8";
const DICTIONARY: &str = "ds_dict";

/// The columns of a program of kind `columns`.
pub(super) fn columns(btf: &Btf<'_>, program: &str, function: u32) -> Result<ColumnSchema, ImageError> {
    let refused = |field: &str, what: String| ImageError::Column { program: program.into(), field: field.into(), what };
    let pointed = |id| btf.strip(id).filter(|(_, ty)| ty.kind == kind::PTR).map(|(_, ty)| ty.size_or_type);
    let of = btf.prototype(function).and_then(|prototype| prototype.params.get(PARAM).copied());
    let structure = of.and_then(pointed).and_then(|id| btf.strip(id)).filter(|(_, ty)| ty.kind == kind::STRUCT);
    let (id, ty) = structure.ok_or_else(|| missing(program))?;
    limit("the length in bytes of the structure of a columns program", ty.size_or_type as usize, STRUCTURE_LEN_MAX)?;
    let mut fields: Vec<ColumnField> = Vec::new();
    let mut end = 0;
    for (index, member) in btf.members(ty).enumerate() {
        let kind = kind_of(btf, &member).map_err(|what| refused(member.name, what))?;
        let offset = member.offset_bits / 8;
        let is_apart =
            member.offset_bits.is_multiple_of(8 * ColumnKind::POINTER_LEN) && offset >= end && !member.is_bit_field;
        end = offset.saturating_add(kind.len_bytes());
        if member.name.is_empty() || !is_apart || end > ty.size_or_type {
            let what = "it has no name or no place of its own: columns are members one after another, not in unions";
            return Err(refused(member.name, what.into()));
        }
        let column = member.name.strip_suffix(VALIDITY).unwrap_or(member.name).to_owned();
        let mut field = ColumnField { column, offset, kind, scale: None };
        for tag in btf.tags(id, index as u32) {
            field.scale = Some(scale_of(tag, kind).map_err(|what| refused(member.name, what))?);
        }
        fields.push(field);
        let buffers = fields.iter().map(|field| field.kind.pointers().len()).sum();
        limit("the number of buffers of a columns program (ds_utf8 has 2, ds_dict 3)", buffers, COLUMN_BUFFERS_MAX)?;
    }
    if fields.is_empty() {
        return Err(missing(program));
    }
    Ok(ColumnSchema { name: btf.name(ty).to_owned(), len_bytes: ty.size_or_type, fields })
}

/// The error of a program that does not say what it reads.
pub(super) fn missing(program: &str) -> ImageError {
    ImageError::Column {
        program: program.to_owned(),
        field: String::new(),
        what: "its second parameter points to no structure with columns, or the object has no type information: \
               compile with -g, and give the structure a member for each column"
            .to_owned(),
    }
}

fn kind_of(btf: &Btf<'_>, member: &Member<'_>) -> Result<ColumnKind, String> {
    let found = btf.strip(member.ty).map(|(_, ty)| ty);
    let is = |ty: &Type<'_>, name: &str, of: ColumnKind| {
        ty.kind == kind::STRUCT && (btf.name(*ty), ty.size_or_type) == (name, of.len_bytes())
    };
    let is_validity = member.name.ends_with(VALIDITY);
    match found {
        Some(ty) if ty.kind == kind::PTR => match (number(btf, ty.size_or_type), is_validity) {
            (Some(ArgType::U8 | ArgType::Bool), true) => Ok(ColumnKind::Validity),
            (_, true) => Err(format!("what says which values are there, NAME{VALIDITY}, is a const __u8 *")),
            (Some(of), false) => Ok(ColumnKind::Values(of)),
            (None, false) => Err("it points to no number".to_owned()),
        },
        Some(ty) if is(&ty, TEXT, ColumnKind::Text) && !is_validity => Ok(ColumnKind::Text),
        Some(ty) if is(&ty, DICTIONARY, ColumnKind::Dictionary) && !is_validity => Ok(ColumnKind::Dictionary),
        _ => Err("a column is a pointer to numbers, a struct ds_utf8 or a struct ds_dict".to_owned()),
    }
}

fn scale_of(tag: &str, kind: ColumnKind) -> Result<u8, String> {
    match (tag.strip_prefix("decimal:"), kind) {
        (Some(scale), ColumnKind::Values(ArgType::I32 | ArgType::I64)) => parse_scale(scale),
        (Some(_), _) => Err("the digits of decimals are a const __s64 *".to_owned()),
        (None, _) => Err(format!("tag `{tag}`: columns have DS_DECIMAL alone")),
    }
}
