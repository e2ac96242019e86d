//! Interfaces as BTF describes them: the argument structure of a program, and whether helpers are
//! declared as they are.

use super::btf::{Btf, kind};
use super::elf::limit;
use super::error::ImageError;
use super::input::is_float;
use super::{ArgField, ArgSchema, ArgType};
use crate::helpers::{Helper, Param, Return};

/// Index of the parameter whose type describes the result.
pub(super) const RESULT_PARAM: usize = 0;
/// Index of the parameter whose type describes the arguments.
pub(super) const ARGS_PARAM: usize = 3;
/// The same of kernels, whose first parameter is their context.
pub(super) const KERNEL_ARGS_PARAM: usize = 1;
pub(super) const KERNEL_RESULT_PARAM: usize = 2;
/// Most fields of a schema.
const FIELDS_MAX: usize = 256;
/// Most bytes of all argument descriptions of an image.
const TOTAL_LEN_MAX: usize = 8 << 20;
/// The bytes that a member counts for besides its texts.
const MEMBER_LEN: usize = 64;
/// Most digits behind the point of a decimal in 64 bits.
const SCALE_MAX: u8 = 18;
/// Deepest nesting of structures.
const DEPTH_MAX: usize = 8;
const SIGNED: u32 = 1;
const BOOL: u32 = 4;

/// The structure that a parameter of a program points to. `None` when it points to something else.
pub(super) fn schema(
    btf: &Btf<'_>,
    program: &str,
    function: u32,
    param: usize,
    room: &mut Room,
) -> Result<Option<ArgSchema>, ImageError> {
    let Some(id) = btf.prototype(function).and_then(|p| p.params.get(param).copied()) else {
        return Ok(None);
    };
    let pointee = btf.strip(id).filter(|(_, t)| t.kind == kind::PTR).and_then(|(_, t)| btf.strip(t.size_or_type));
    let Some((id, ty)) = pointee.filter(|(_, t)| t.kind == kind::STRUCT) else {
        return Ok(None);
    };
    let mut walk = Walk { btf, program, len_bytes: ty.size_or_type, fields: Vec::new(), room };
    walk.structure(id, "", 0, 0)?;
    let mut fields = walk.fields;
    fields.sort_by_key(|f| f.offset);
    Ok(Some(ArgSchema { name: btf.name(ty).to_owned(), len_bytes: ty.size_or_type, fields }))
}

/// The rest of the bytes that argument descriptions may take: nested structures and shared
/// enumerations could otherwise describe far more than the object holds.
pub(super) struct Room {
    used: usize,
}

impl Room {
    pub(super) const fn new() -> Self {
        Self { used: 0 }
    }

    fn take(&mut self, len: usize) -> Result<(), ImageError> {
        self.used = self.used.saturating_add(len);
        limit("the length in bytes of all argument descriptions", self.used, TOTAL_LEN_MAX)
    }
}

struct Walk<'b, 'a> {
    btf: &'b Btf<'a>,
    program: &'b str,
    /// Size of the outermost structure.
    len_bytes: u32,
    fields: Vec<ArgField>,
    room: &'b mut Room,
}

impl Walk<'_, '_> {
    fn structure(&mut self, id: u32, prefix: &str, base: u32, depth: usize) -> Result<(), ImageError> {
        let btf = self.btf;
        let Some(ty) = btf.get(id) else {
            return Ok(());
        };
        for (index, m) in btf.members(ty).enumerate() {
            let name = match prefix {
                "" => m.name.to_owned(),
                _ if m.name.is_empty() => prefix.to_owned(),
                _ => format!("{prefix}.{}", m.name),
            };
            let tags = btf.tags(id, index as u32);
            let tags_len: usize = tags.iter().map(|t| t.len()).sum();
            self.room.take(MEMBER_LEN + name.len() + tags_len)?;
            let bad = |what: String| self.refused(&name, what);
            if m.is_bit_field || !m.offset_bits.is_multiple_of(8) {
                return Err(bad("bit fields are not supported; use a whole integer".into()));
            }
            let offset = base.saturating_add(m.offset_bits / 8);
            match btf.strip(m.ty) {
                Some((inner, t)) if t.kind == kind::STRUCT => {
                    if depth == DEPTH_MAX {
                        return Err(bad(format!("structures nest deeper than {DEPTH_MAX}")));
                    }
                    let first = self.fields.len();
                    self.structure(inner, &name, offset, depth + 1)?;
                    if tags.contains(&"is:hidden") {
                        self.fields[first..].iter_mut().for_each(|field| field.is_hidden = true);
                    }
                }
                _ => {
                    let field = self.field(&name, offset, m.ty, tags)?;
                    if self.fields.len() == FIELDS_MAX {
                        return Err(self.refused(&name, format!("there are more than {FIELDS_MAX} arguments")));
                    }
                    self.fields.push(field);
                }
            }
        }
        Ok(())
    }

    fn field(&mut self, name: &str, offset: u32, id: u32, tags: &[&str]) -> Result<ArgField, ImageError> {
        let (element, count, is_array) = self.flatten(name, id)?;
        let enum_len = self.enum_len(element);
        self.room.take(enum_len)?;
        let bad = |what: String| self.refused(name, what);
        let (ty, values) = self.element(element).ok_or_else(|| {
            bad("its type is no number, enumeration, array or structure of them; \
                 pointers and unions have no meaning outside the caller"
                .into())
        })?;
        let end = u64::from(offset) + u64::from(count) * u64::from(ty.len_bytes());
        if end > u64::from(self.len_bytes) || (is_array && count == 0 && offset != self.len_bytes) {
            return Err(bad("it reaches past the end of the structure, or is a flexible array before it".into()));
        }
        let mut field = ArgField {
            name: name.to_owned(),
            offset,
            ty,
            count,
            is_array,
            values,
            default: None,
            min: None,
            max: None,
            doc: None,
            is_record_len: false,
            is_regex: false,
            is_column: false,
            is_column_names: false,
            is_hidden: false,
            scale: None,
        };
        for tag in tags {
            apply_tag(&mut field, tag).map_err(|what| bad(format!("tag `{tag}`: {what}")))?;
        }
        check(&field).map_err(bad)?;
        Ok(field)
    }

    /// Element type and count of a possibly multi-dimensional array; (the type, 1) otherwise.
    fn flatten(&self, name: &str, id: u32) -> Result<(u32, u32, bool), ImageError> {
        let mut id = id;
        let mut count = 1u32;
        let mut is_array = false;
        for _ in 0..DEPTH_MAX {
            let array = self.btf.strip(id).filter(|(_, t)| t.kind == kind::ARRAY).and_then(|(_, t)| self.btf.array(t));
            let Some((element, n)) = array else {
                return Ok((id, count, is_array));
            };
            count = count.checked_mul(n).ok_or_else(|| self.refused(name, "the array is too long".into()))?;
            is_array = true;
            id = element;
        }
        Err(self.refused(name, format!("arrays nest deeper than {DEPTH_MAX}")))
    }

    fn element(&self, id: u32) -> Option<(ArgType, Vec<(String, i64)>)> {
        let (_, ty) = self.btf.strip(id)?;
        if matches!(ty.kind, kind::ENUM | kind::ENUM64) {
            let entries = self.btf.enum_entries(ty);
            let values = entries.map(|(n, v)| (n.to_owned(), v)).collect();
            return Some((sized(ty.size_or_type, ty.is_signed_enum())?, values));
        }
        Some((number(self.btf, id)?, Vec::new()))
    }

    /// Bytes of the names of an enumeration, before they are copied.
    fn enum_len(&self, id: u32) -> usize {
        match self.btf.strip(id) {
            Some((_, t)) if matches!(t.kind, kind::ENUM | kind::ENUM64) => {
                let names = self.btf.enum_entries(t);
                names.map(|(name, _)| name.len() + MEMBER_LEN).sum()
            }
            _ => 0,
        }
    }

    fn refused(&self, field: &str, what: String) -> ImageError {
        ImageError::Argument { program: self.program.to_owned(), field: field.to_owned(), what }
    }
}

/// The type of a number, by its BTF type.
pub(super) fn number(btf: &Btf<'_>, id: u32) -> Option<ArgType> {
    let (_, ty) = btf.strip(id)?;
    match (ty.kind, ty.size_or_type) {
        (kind::INT, len_bytes) => {
            let (encoding, bits) = ty.integer()?;
            if bits != len_bytes.checked_mul(8)? && encoding & BOOL == 0 {
                return None;
            }
            match btf.name(ty) {
                _ if encoding & BOOL != 0 && len_bytes == 1 => Some(ArgType::Bool),
                // Their bits are those of a floating-point number.
                _ if is_float(btf, id) && len_bytes == 4 => Some(ArgType::F32),
                _ if is_float(btf, id) && len_bytes == 8 => Some(ArgType::F64),
                "char" => Some(ArgType::Char),
                _ => sized(len_bytes, encoding & SIGNED != 0),
            }
        }
        (kind::FLOAT, 4) => Some(ArgType::F32),
        (kind::FLOAT, 8) => Some(ArgType::F64),
        _ => None,
    }
}

fn sized(len_bytes: u32, signed: bool) -> Option<ArgType> {
    Some(match (len_bytes, signed) {
        (1, false) => ArgType::U8,
        (1, true) => ArgType::I8,
        (2, false) => ArgType::U16,
        (2, true) => ArgType::I16,
        (4, false) => ArgType::U32,
        (4, true) => ArgType::I32,
        (8, false) => ArgType::U64,
        (8, true) => ArgType::I64,
        _ => return None,
    })
}

fn apply_tag(field: &mut ArgField, tag: &str) -> Result<(), String> {
    const KNOWN: &str = "tags are default:…, min:…, max:…, doc:…, is:record_len, is:regex, is:column, is:column_names, is:hidden, \
         decimal:… and type:f32 or type:f64";
    let (key, value) = tag.split_once(':').ok_or(KNOWN)?;
    let number = || parse_integer(value).ok_or_else(|| format!("`{value}` is no integer"));
    match key {
        "default" => field.default = Some(value.to_owned()),
        "doc" => field.doc = Some(value.trim().to_owned()),
        "min" => field.min = Some(number()?),
        "max" => field.max = Some(number()?),
        "is" => match (value, field.ty, field.is_array) {
            ("record_len", ArgType::U8 | ArgType::U16 | ArgType::U32 | ArgType::U64, false) => {
                field.is_record_len = true;
            }
            ("record_len", ..) => return Err("the length of a record is one unsigned integer".to_owned()),
            ("regex", ArgType::Char, true) => field.is_regex = true,
            ("regex", ..) => return Err("a regular expression is an array of char".to_owned()),
            ("column", ArgType::Char, true) => field.is_column = true,
            ("column_names", ArgType::Char, true) => field.is_column_names = true,
            ("column" | "column_names", ..) => return Err("names of columns are arrays of char".to_owned()),
            ("hidden", ..) => field.is_hidden = true,
            _ => return Err("only record_len, regex, column, column_names and hidden can be said".to_owned()),
        },
        "decimal" => match (field.ty, field.is_array) {
            (ArgType::I32 | ArgType::I64 | ArgType::U32 | ArgType::U64, false) => {
                field.scale = Some(parse_scale(value)?);
            }
            _ => return Err("the digits of a decimal are one integer of 32 or 64 bits".to_owned()),
        },
        "type" => {
            field.ty = match (value, field.ty.len_bytes()) {
                ("f32", 4) => ArgType::F32,
                ("f64", 8) => ArgType::F64,
                ("f32" | "f64", n) => return Err(format!("the member has {n} bytes")),
                _ => return Err("only f32 and f64 can be asked for".to_owned()),
            };
        }
        _ => return Err(KNOWN.to_owned()),
    }
    Ok(())
}

/// The digits behind the point of a decimal.
pub(super) fn parse_scale(value: &str) -> Result<u8, String> {
    match value.parse() {
        Ok(scale) if scale <= SCALE_MAX => Ok(scale),
        _ => Err(format!("a decimal has 0 to {SCALE_MAX} digits behind the point")),
    }
}

/// Checks that the default of a single value can be read and lies within its bounds.
fn check(field: &ArgField) -> Result<(), String> {
    if let (Some(min), Some(max)) = (field.min, field.max)
        && min > max
    {
        return Err(format!("its minimum {min} is above its maximum {max}"));
    }
    let Some(text) = field.default.as_deref().filter(|_| !field.is_array) else {
        return Ok(());
    };
    let unreadable = || format!("its default `{text}` is no {:?}", field.ty);
    let value = match field.ty {
        ArgType::F32 | ArgType::F64 => {
            text.parse::<f64>().map_err(|_| unreadable())?;
            return Ok(());
        }
        ArgType::Bool if matches!(text, "true" | "false") => return Ok(()),
        ArgType::Char if text.chars().count() == 1 => return Ok(()),
        // An unsigned value above `i64::MAX` has nothing to be compared with.
        ArgType::U64 if text.parse::<u64>().is_ok_and(|v| v > i64::MAX as u64) => return Ok(()),
        _ => match field.values.iter().find(|(name, _)| name == text) {
            Some((_, value)) => *value,
            None => parse_integer(text).ok_or_else(unreadable)?,
        },
    };
    let below = field.min.is_some_and(|min| value < min);
    let above = field.max.is_some_and(|max| value > max);
    if below || above {
        return Err(format!("its default {value} is out of its bounds"));
    }
    Ok(())
}

/// An integer, decimal or with `0x`.
fn parse_integer(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let value = match digits.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16).ok()?,
        None => digits.parse().ok()?,
    };
    Some(if negative { -value } else { value })
}

/// Compares the declaration of a helper with the helper.
pub(super) fn check_declaration(btf: &Btf<'_>, symbol: &str, helper: &Helper) -> Result<(), ImageError> {
    let Some(declared) = btf.extern_function(symbol).and_then(|id| btf.prototype(id)) else {
        return Ok(());
    };
    let wrong = |what: String| {
        Err(ImageError::Signature { helper: helper.name.to_owned(), what, prototype: helper.prototype.to_owned() })
    };
    if declared.params.len() != helper.params.len() {
        return wrong(format!("{} parameters", declared.params.len()));
    }
    for (i, (id, param)) in declared.params.iter().zip(helper.params).enumerate() {
        let wants_pointer = !matches!(param, Param::Scalar);
        if is_pointer(btf, *id) != wants_pointer {
            let what = if wants_pointer { "a number" } else { "a pointer" };
            return wrong(format!("{what} as parameter {}", i + 1));
        }
    }
    let returns_pointer = matches!(helper.ret, Return::Heap | Return::Param(_));
    let is_void = declared.ret == 0;
    if is_pointer(btf, declared.ret) != returns_pointer && !is_void {
        let what = if returns_pointer { "number" } else { "pointer" };
        return wrong(format!("a {what} as result"));
    }
    if helper.ret == Return::Void && !is_void {
        return wrong("a result".to_owned());
    }
    Ok(())
}

fn is_pointer(btf: &Btf<'_>, id: u32) -> bool {
    btf.strip(id).is_some_and(|(_, t)| t.kind == kind::PTR)
}
