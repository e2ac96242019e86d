//! Arguments: from `name=value` to the bytes of the structure that the program sees.

use diskside_sbpf::image::{ArgField, ArgSchema, ArgType};

/// Why arguments are refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ArgError {
    /// The function has no argument of this name.
    #[error("the function has no argument `{name}`; it has {}", if has.is_empty() { "none".to_owned() } else { has.join(", ") })]
    Unknown {
        /// The name given.
        name: String,
        /// What there is.
        has: Vec<String>,
    },
    /// An argument without a default was not given.
    #[error("argument `{name}` ({expects}) must be given{}", doc.as_ref().map(|d| format!(": {d}")).unwrap_or_default())]
    Missing {
        /// Its name.
        name: String,
        /// Its type in words.
        expects: String,
        /// Its help.
        doc: Option<String>,
    },
    /// The value is not of the argument's type, or out of its range.
    #[error("argument `{name}`: `{value}` is not {expects}")]
    BadValue {
        /// Its name.
        name: String,
        /// The value given.
        value: String,
        /// What it should be.
        expects: String,
    },
    /// The same argument twice.
    #[error("argument `{0}` is given twice")]
    Twice(String),
}

/// Encodes `name=value` pairs.
///
/// Numbers are decimal or `0x…`; enumerations go by name; text fills a `char` array and is followed
/// by zeros; other arrays are lists with commas, or `@hex` digits. A flexible array at the end takes
/// as much as is given. Where a structure has a member `<name>_len` right for it, a text or list sets
/// that length when it is not given.
///
/// # Errors
/// What is unknown, missing, doubled or not of its type.
pub fn encode(schema: &ArgSchema, given: &[(String, String)]) -> Result<Vec<u8>, ArgError> {
    let mut bytes = vec![0; schema.len_bytes as usize];
    for (i, (name, _)) in given.iter().enumerate() {
        if !schema.fields.iter().any(|f| f.name == *name) {
            let has = schema.fields.iter().map(|f| f.name.clone()).collect();
            return Err(ArgError::Unknown { name: name.clone(), has });
        }
        if given[..i].iter().any(|g| g.0 == *name) {
            return Err(ArgError::Twice(name.clone()));
        }
    }
    let value_of = |f: &ArgField| given.iter().find(|g| g.0 == f.name).map(|g| g.1.as_str());
    for field in &schema.fields {
        let implied = implied_len(schema, field, &value_of)?;
        let value = value_of(field).or(implied.as_deref()).or(field.default.as_deref());
        match value {
            Some(v) => put(&mut bytes, field, v)?,
            None if field.is_array && field.count == 0 => {}
            None => {
                return Err(ArgError::Missing {
                    name: field.name.clone(),
                    expects: describe(field),
                    doc: field.doc.clone(),
                });
            }
        }
    }
    Ok(bytes)
}

/// The type of an argument in words, with its range.
#[must_use]
pub fn describe(field: &ArgField) -> String {
    let mut text = match field.ty {
        ArgType::Char if field.is_array && field.count > 0 => {
            format!("text of at most {} bytes", field.count)
        }
        ArgType::Char if field.is_array => "text".into(),
        _ if !field.values.is_empty() => {
            let names: Vec<_> = field.values.iter().map(|v| v.0.as_str()).collect();
            format!("one of {}", names.join(", "))
        }
        ty if field.is_array && field.count > 0 => {
            format!("a list of at most {} {}", field.count, noun(ty))
        }
        ty if field.is_array => format!("a list of {}", noun(ty)),
        ty => format!("a {}", noun(ty)),
    };
    match (field.min, field.max) {
        (Some(a), Some(b)) => text += &format!(" from {a} to {b}"),
        (Some(a), None) => text += &format!(" of at least {a}"),
        (None, Some(b)) => text += &format!(" of at most {b}"),
        (None, None) => {}
    }
    text
}

/// The length that a text or list implies for its `<name>_len` member.
fn implied_len<'a>(
    schema: &ArgSchema,
    field: &ArgField,
    value_of: &impl Fn(&ArgField) -> Option<&'a str>,
) -> Result<Option<String>, ArgError> {
    let Some(of) = field.name.strip_suffix("_len") else {
        return Ok(None);
    };
    let Some(array) = schema.fields.iter().find(|f| f.name == of && f.is_array) else {
        return Ok(None);
    };
    let Some(value) = value_of(array).or(array.default.as_deref()) else {
        return Ok(None);
    };
    Ok(Some(elements(array, value)?.len().to_string()))
}

fn put(bytes: &mut Vec<u8>, field: &ArgField, value: &str) -> Result<(), ArgError> {
    let elements = elements(field, value)?;
    let element_len = field.ty.len_bytes() as usize;
    let start = field.offset as usize;
    let end = start + elements.len() * element_len;
    if field.is_array && field.count > 0 && elements.len() > field.count as usize {
        return Err(bad(field, value));
    }
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    for (chunk, v) in bytes[start..end].chunks_exact_mut(element_len).zip(elements) {
        chunk.copy_from_slice(&v.to_le_bytes()[..element_len]);
    }
    Ok(())
}

/// The elements of a value as bit patterns.
fn elements(field: &ArgField, value: &str) -> Result<Vec<u64>, ArgError> {
    if field.ty == ArgType::Char && field.is_array {
        return Ok(value.bytes().map(u64::from).collect());
    }
    if !field.is_array {
        return Ok(vec![element(field, value)?]);
    }
    if let Some(hex) = value.strip_prefix('@') {
        return hex_elements(field, hex).ok_or_else(|| bad(field, value));
    }
    value.split(',').filter(|v| !v.is_empty()).map(|v| element(field, v.trim())).collect()
}

fn hex_elements(field: &ArgField, hex: &str) -> Option<Vec<u64>> {
    let digits = field.ty.len_bytes() as usize * 2;
    if !hex.is_ascii() || !hex.len().is_multiple_of(digits) {
        return None;
    }
    (0..hex.len() / digits)
        .map(|i| {
            let bytes = &hex[i * digits..(i + 1) * digits];
            (0..digits / 2).try_fold(0u64, |v, j| {
                Some(v | (u64::from(u8::from_str_radix(&bytes[j * 2..j * 2 + 2], 16).ok()?) << (8 * j)))
            })
        })
        .collect()
}

fn element(field: &ArgField, text: &str) -> Result<u64, ArgError> {
    if let Some((_, v)) = field.values.iter().find(|v| v.0.eq_ignore_ascii_case(text)) {
        return Ok(*v as u64);
    }
    let refuse = || bad(field, text);
    match field.ty {
        ArgType::F32 => text.parse::<f32>().map(|v| u64::from(v.to_bits())).map_err(|_| refuse()),
        ArgType::F64 => text.parse::<f64>().map(f64::to_bits).map_err(|_| refuse()),
        ArgType::Bool => match text {
            "true" | "yes" | "1" => Ok(1),
            "false" | "no" | "0" => Ok(0),
            _ => Err(refuse()),
        },
        ArgType::Char => match text.as_bytes() {
            &[c] => Ok(u64::from(c)),
            _ => Err(refuse()),
        },
        ty => {
            let v = integer(text).ok_or_else(refuse)?;
            let (lo, hi) = range(ty);
            let in_range = (lo..=hi).contains(&v)
                && field.min.is_none_or(|m| v >= i128::from(m))
                && field.max.is_none_or(|m| v <= i128::from(m))
                && (field.values.is_empty() || field.values.iter().any(|e| i128::from(e.1) == v));
            if in_range { Ok(v as u64) } else { Err(refuse()) }
        }
    }
}

fn integer(text: &str) -> Option<i128> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(d) => (true, d),
        None => (false, text),
    };
    let v = match digits.strip_prefix("0x") {
        Some(hex) => i128::from_str_radix(hex, 16).ok()?,
        None => digits.replace('_', "").parse().ok()?,
    };
    Some(if negative { -v } else { v })
}

fn range(ty: ArgType) -> (i128, i128) {
    match ty {
        ArgType::U8 => (0, u8::MAX.into()),
        ArgType::I8 => (i8::MIN.into(), i8::MAX.into()),
        ArgType::U16 => (0, u16::MAX.into()),
        ArgType::I16 => (i16::MIN.into(), i16::MAX.into()),
        ArgType::U32 => (0, u32::MAX.into()),
        ArgType::I32 => (i32::MIN.into(), i32::MAX.into()),
        ArgType::I64 => (i64::MIN.into(), i64::MAX.into()),
        ArgType::U64 | ArgType::F32 | ArgType::F64 | ArgType::Char | ArgType::Bool => (0, u64::MAX.into()),
    }
}

fn noun(ty: ArgType) -> &'static str {
    match ty {
        ArgType::U8 => "number (u8)",
        ArgType::I8 => "number (i8)",
        ArgType::U16 => "number (u16)",
        ArgType::I16 => "number (i16)",
        ArgType::U32 => "number (u32)",
        ArgType::I32 => "number (i32)",
        ArgType::U64 => "number (u64)",
        ArgType::I64 => "number (i64)",
        ArgType::F32 => "number (f32)",
        ArgType::F64 => "number (f64)",
        ArgType::Char => "character",
        ArgType::Bool => "truth value (true, false)",
    }
}

fn bad(field: &ArgField, value: &str) -> ArgError {
    ArgError::BadValue { name: field.name.clone(), value: value.to_owned(), expects: describe(field) }
}
