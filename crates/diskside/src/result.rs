//! Reading a result: rows of the structure that the function's output points to.

use diskside_sbpf::image::{ArgField, ArgSchema, ArgType};

/// One value of a row.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// A whole number.
    Integer(i128),
    /// A floating-point number.
    Float(f64),
    /// Text, up to the first zero byte.
    Text(String),
    /// A truth value.
    Bool(bool),
    /// An array.
    List(Vec<Value>),
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Integer(v) => write!(f, "{v}"),
            // Without an exponent 1e300 has three hundred digits.
            Self::Float(v) if v.is_finite() && *v != 0.0 && !(1e-5..1e16).contains(&v.abs()) => write!(f, "{v:e}"),
            Self::Float(v) => write!(f, "{v}"),
            Self::Text(v) => f.write_str(v),
            Self::Bool(v) => write!(f, "{v}"),
            Self::List(v) => {
                let items: Vec<String> = v.iter().map(ToString::to_string).collect();
                write!(f, "[{}]", items.join(" "))
            }
        }
    }
}

/// The fields that each row has, in order. A flexible array at the end is not a field: its elements
/// follow the first row. Hidden members are none either.
pub fn columns(schema: &ArgSchema) -> impl Iterator<Item = &ArgField> {
    schema.fields.iter().filter(|f| !(f.is_hidden || f.is_array && f.count == 0))
}

/// Bytes of a row; `None` when results are not made of rows of one length.
#[must_use]
pub fn row_len(schema: &ArgSchema) -> Option<usize> {
    let flexible = schema.fields.iter().any(|f| f.is_array && f.count == 0);
    (schema.len_bytes > 0 && !flexible).then_some(schema.len_bytes as usize)
}

/// Reads the rows of a result; `None` when it is not made of whole rows.
#[must_use]
pub fn rows(schema: &ArgSchema, result: &[u8]) -> Option<Vec<Vec<Value>>> {
    let len = row_len(schema).filter(|len| result.len().is_multiple_of(*len))?;
    Some(result.chunks_exact(len).map(|row| columns(schema).map(|f| value(f, row)).collect()).collect())
}

fn value(field: &ArgField, row: &[u8]) -> Value {
    let size = field.ty.len_bytes() as usize;
    let bytes = &row[field.offset as usize..][..size * field.count.max(1) as usize];
    if !field.is_array {
        return element(field.ty, bytes);
    }
    if field.ty == ArgType::Char {
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        return Value::Text(String::from_utf8_lossy(&bytes[..end]).into_owned());
    }
    Value::List(bytes.chunks_exact(size).map(|b| element(field.ty, b)).collect())
}

fn element(ty: ArgType, bytes: &[u8]) -> Value {
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    let bits = u64::from_le_bytes(wide);
    match ty {
        ArgType::U8 | ArgType::U16 | ArgType::U32 | ArgType::U64 => Value::Integer(bits.into()),
        ArgType::I8 => Value::Integer((bits as i8).into()),
        ArgType::I16 => Value::Integer((bits as i16).into()),
        ArgType::I32 => Value::Integer((bits as i32).into()),
        ArgType::I64 => Value::Integer((bits as i64).into()),
        ArgType::F32 => Value::Float(widened(f32::from_bits(bits as u32))),
        ArgType::F64 => Value::Float(f64::from_bits(bits)),
        ArgType::Char => Value::Text(char::from(bits as u8).to_string()),
        ArgType::Bool => Value::Bool(bits != 0),
    }
}

/// The double that is written as this number is, with as few digits: 0.1 rather than 0.10000000149011612.
fn widened(number: f32) -> f64 {
    number.to_string().parse().unwrap_or_else(|_| number.into())
}

#[cfg(test)]
mod tests {
    use super::Value;

    /// A table of floats had columns of three hundred digits.
    #[test]
    fn very_great_and_very_small_floats_are_shown_with_an_exponent() {
        for (value, shown) in [
            (0.1, "0.1"),
            (-2.0, "-2"),
            (-0.0, "-0"),
            (1e15, "1000000000000000"),
            (1e16, "1e16"),
            (-1.5e300, "-1.5e300"),
            (1e-5, "0.00001"),
            (2.5e-6, "2.5e-6"),
            (f64::from_bits(1), "5e-324"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(Value::Float(value).to_string(), shown);
        }
    }
}
