//! Rows as JSON: numbers are JSON numbers, whole ones in full.

use diskside::result::{Value, columns};
use diskside::sandbox::image::ArgSchema;
use serde_json::json;
use std::io::Write;

/// One row as an object.
pub(super) fn row(schema: &ArgSchema, row: &[Value]) -> serde_json::Value {
    columns(schema).zip(row).map(|(field, v)| (field.name.clone(), value(v))).collect::<serde_json::Map<_, _>>().into()
}

/// More elements of a list that is open, as [`crate::output::print_json`] would write them.
pub(super) fn write_rows(
    out: &mut impl Write,
    schema: &ArgSchema,
    rows: &[Vec<Value>],
    mut is_first: bool,
) -> std::io::Result<()> {
    for fields in rows {
        if !std::mem::take(&mut is_first) {
            writeln!(out, ",")?;
        }
        write!(out, "    {}", row(schema, fields))?;
    }
    Ok(())
}

/// JSON has no numbers that are not finite.
fn value(v: &Value) -> serde_json::Value {
    match v {
        Value::Integer(i) => i64::try_from(*i).map_or_else(|_| json!(*i as u64), |i| json!(i)),
        Value::Float(f) => json!(f),
        Value::Text(t) => json!(t),
        Value::Bool(b) => json!(b),
        Value::List(l) => l.iter().map(value).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Large numbers were strings, others numbers, in one column.
    #[test]
    fn numbers_are_numbers_in_full() {
        for (v, text) in [
            (Value::Integer(u64::MAX.into()), "18446744073709551615"),
            (Value::Integer(i64::MIN.into()), "-9223372036854775808"),
            (Value::Integer(0), "0"),
            (Value::Float(0.1), "0.1"),
            (Value::Float(1e300), "1e+300"),
            (Value::Float(-0.0), "-0.0"),
            (Value::Float(f64::NAN), "null"),
            (Value::Float(f64::INFINITY), "null"),
            (Value::Float(f64::NEG_INFINITY), "null"),
            (Value::List(vec![Value::Integer(1), Value::Float(f64::NAN)]), "[1,null]"),
        ] {
            assert_eq!(value(&v).to_string(), text);
        }
    }
}
