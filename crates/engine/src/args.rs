//! Arguments: from `name=value` to the bytes of the structure that the program sees.

use diskside_sbpf::helpers::check_regex;
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
    /// The value is not a regular expression.
    #[error("argument `{name}`: `{value}` is no regular expression: {why}")]
    BadRegex {
        /// Its name.
        name: String,
        /// The value given.
        value: String,
        /// What is wrong, and where.
        why: String,
    },
    /// The same argument twice.
    #[error("argument `{0}` is given twice")]
    Twice(String),
    /// The structure of its arguments is longer than any call has room for.
    #[error("its arguments take {len_bytes} bytes, and a call has room for {LEN_MAX}")]
    TooLong {
        /// Bytes of the structure.
        len_bytes: u64,
    },
}

/// Bytes of arguments: an object may say any length.
const LEN_MAX: u64 = 16 << 20;

/// Encodes `name=value` pairs.
///
/// Numbers are decimal or `0x…`; enumerations go by name; text fills a `char` array and is followed
/// by zeros; other arrays are lists with commas, or `@hex` digits. A flexible array at the end takes
/// as much as is given; it may be left out only with a default, which may be empty. Where a structure
/// has a member `<name>_len` right for it, a text or list sets that length when it is not given.
///
/// # Errors
/// What is unknown, missing, doubled or not of its type.
pub fn encode(schema: &ArgSchema, given: &[(String, String)]) -> Result<Vec<u8>, ArgError> {
    if u64::from(schema.len_bytes) > LEN_MAX {
        return Err(ArgError::TooLong { len_bytes: schema.len_bytes.into() });
    }
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

/// The argument that must be the first line of the input before [`encode`]: that with the names of the columns, where it is not
/// given and a column goes by its name.
#[must_use]
pub fn wants_first_line<'a>(schema: &'a ArgSchema, given: &[(String, String)]) -> Option<&'a str> {
    let value_of =
        |field: &ArgField| given.iter().find(|(name, _)| *name == field.name).map(|(_, value)| value.as_str());
    let is_name = |value: &str| !value.is_empty() && value.parse::<u64>().is_err();
    let names = schema.fields.iter().find(|field| field.is_column_names && value_of(field).is_none())?;
    let mut columns = schema.fields.iter().filter(|field| field.is_column);
    columns.any(|column| value_of(column).is_some_and(is_name)).then_some(&names.name)
}

/// The arguments as options of `diskside run`: those that must be given first, the others in brackets.
#[must_use]
pub fn usage(schema: &ArgSchema) -> String {
    let is_implied = |f: &ArgField| implied_len(schema, f, &|_| Some("")).is_ok_and(|len| len.is_some());
    let (needed, optional): (Vec<_>, Vec<_>) =
        schema.fields.iter().filter(|f| !is_implied(f)).partition(|f| f.default.is_none());
    let option = |f: &ArgField| format!("--arg {}={}", f.name, placeholder(f));
    let needed = needed.into_iter().map(option);
    let optional = optional.into_iter().map(|f| format!("[{}]", option(f)));
    needed.chain(optional).collect::<Vec<_>>().join(" ")
}

/// The placeholder of an argument's value in a usage line.
fn placeholder(field: &ArgField) -> String {
    let names = || field.values.iter().map(|v| v.0.as_str()).collect::<Vec<_>>().join("|");
    match field.ty {
        ArgType::Char if field.is_regex => "REGEX".into(),
        ArgType::Char if field.is_array => "TEXT".into(),
        ArgType::Char => "CHARACTER".into(),
        ArgType::Bool => "true|false".into(),
        _ if !field.values.is_empty() => names(),
        _ if field.is_array => "NUMBER,...".into(),
        _ => "NUMBER".into(),
    }
}

/// The type of an argument in words, with its range.
#[must_use]
pub fn describe(field: &ArgField) -> String {
    let mut text = match field.ty {
        ArgType::Char if field.is_regex => "a regular expression".into(),
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
    if let (true, Err(why)) = (field.is_regex, check_regex(value)) {
        return Err(ArgError::BadRegex { name: field.name.clone(), value: value.to_owned(), why });
    }
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
    let hex: Vec<char> = hex.chars().collect();
    if !hex.len().is_multiple_of(digits) {
        return None;
    }
    hex.chunks_exact(digits)
        .map(|bytes| {
            (0..digits / 2).try_fold(0u64, |v, j| {
                let high = u64::from(bytes[j * 2].to_digit(16)?);
                let low = u64::from(bytes[j * 2 + 1].to_digit(16)?);
                Some(v | (high << 4 | low) << (8 * j))
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
    if digits.contains(['+', '-']) {
        return None; // the parsers below would take another sign
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// An argument without anything special.
    fn field(name: &str, offset: u32, ty: ArgType) -> ArgField {
        ArgField {
            name: name.into(),
            offset,
            ty,
            count: 1,
            is_array: false,
            default: None,
            min: None,
            max: None,
            values: Vec::new(),
            doc: None,
            is_record_len: false,
            is_regex: false,
            is_column: false,
            is_column_names: false,
            is_hidden: false,
            scale: None,
        }
    }

    fn array(name: &str, offset: u32, ty: ArgType, count: u32) -> ArgField {
        ArgField { count, is_array: true, ..field(name, offset, ty) }
    }

    fn schema(len_bytes: u32, fields: Vec<ArgField>) -> ArgSchema {
        ArgSchema { name: "args".into(), len_bytes, fields }
    }

    fn encoded(schema: &ArgSchema, given: &[(&str, &str)]) -> Result<Vec<u8>, String> {
        let given: Vec<_> = given.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        encode(schema, &given).map_err(|e| e.to_string())
    }

    #[test]
    fn numbers_go_to_their_places_in_their_widths() {
        let fields = vec![
            field("a", 0, ArgType::U8),
            field("b", 2, ArgType::I16),
            field("c", 4, ArgType::U32),
            field("d", 8, ArgType::I64),
            field("e", 16, ArgType::F32),
            field("f", 24, ArgType::F64),
            field("g", 32, ArgType::Bool),
            field("h", 33, ArgType::Char),
        ];
        let given = [
            ("h", "x"),
            ("a", "0xff"),
            ("b", "-2"),
            ("c", "1_000"),
            ("d", "-9223372036854775808"),
            ("e", "1.5"),
            ("f", "-0.25"),
            ("g", "yes"),
        ];
        let bytes = encoded(&schema(40, fields), &given).expect("all are right");
        let mut expected = vec![0; 40];
        expected[0] = 0xff;
        expected[2..4].copy_from_slice(&(-2i16).to_le_bytes());
        expected[4..8].copy_from_slice(&1000u32.to_le_bytes());
        expected[8..16].copy_from_slice(&i64::MIN.to_le_bytes());
        expected[16..20].copy_from_slice(&1.5f32.to_le_bytes());
        expected[24..32].copy_from_slice(&(-0.25f64).to_le_bytes());
        expected[32] = 1;
        expected[33] = b'x';
        assert_eq!(bytes, expected);
    }

    #[test]
    fn what_is_no_number_or_too_large_is_refused() {
        let refused = |ty, value: &str| {
            let error = encoded(&schema(8, vec![field("n", 0, ty)]), &[("n", value)]).expect_err(value);
            assert!(error.starts_with(&format!("argument `n`: `{value}` is not a ")), "{error}");
        };
        for (ty, values) in [
            (ArgType::U8, &["256", "-1", "", "x", "1.0"][..]),
            (ArgType::I8, &["128", "-129"]),
            (ArgType::U32, &["0x100000000", "4294967296"]),
            (ArgType::U64, &["18446744073709551616", "-1"]),
            (ArgType::I64, &["9223372036854775808", "--1", "-+1", "0x-1", "-0x-1", "1 "]),
            (ArgType::F64, &["one", ""]),
            (ArgType::Bool, &["2", "maybe"]),
            (ArgType::Char, &["", "ab"]),
        ] {
            values.iter().for_each(|value| refused(ty, value));
        }
    }

    #[test]
    fn limits_and_names_of_values_are_kept() {
        let limited = ArgField { min: Some(1), max: Some(10), ..field("k", 0, ArgType::U32) };
        let schema_of = |f: ArgField| schema(4, vec![f]);
        assert_eq!(encoded(&schema_of(limited.clone()), &[("k", "10")]), Ok(vec![10, 0, 0, 0]));
        for value in ["0", "11"] {
            let error = encoded(&schema_of(limited.clone()), &[("k", value)]).expect_err(value);
            assert_eq!(error, format!("argument `k`: `{value}` is not a number (u32) from 1 to 10"));
        }
        let named = ArgField { values: vec![("eq".into(), 0), ("ge".into(), 5)], ..field("op", 0, ArgType::U32) };
        for value in ["ge", "GE", "5"] {
            assert_eq!(encoded(&schema_of(named.clone()), &[("op", value)]), Ok(vec![5, 0, 0, 0]));
        }
        let error = encoded(&schema_of(named), &[("op", "4")]).expect_err("it has no such value");
        assert_eq!(error, "argument `op`: `4` is not one of eq, ge");
    }

    #[test]
    fn names_are_known_given_once_and_not_left_out() {
        let with_default = ArgField { default: Some("7".into()), ..field("k", 0, ArgType::U8) };
        let needed = ArgField { doc: Some("what to look for".into()), ..field("n", 1, ArgType::U8) };
        let schema = schema(2, vec![with_default, needed]);
        assert_eq!(encoded(&schema, &[("n", "1")]), Ok(vec![7, 1]));
        for (given, expected) in [
            (&[("n", "1"), ("m", "2")][..], "the function has no argument `m`; it has k, n"),
            (&[("n", "1"), ("n", "1")], "argument `n` is given twice"),
            (&[("k", "1")], "argument `n` (a number (u8)) must be given: what to look for"),
        ] {
            assert_eq!(encoded(&schema, given), Err(expected.to_owned()));
        }
        let none = ArgSchema { name: String::new(), len_bytes: 0, fields: Vec::new() };
        assert_eq!(encoded(&none, &[]), Ok(Vec::new()));
        assert_eq!(encoded(&none, &[("x", "1")]), Err("the function has no argument `x`; it has none".into()));
    }

    #[test]
    fn texts_and_lists_fill_their_arrays() {
        let text = schema(8, vec![array("name", 2, ArgType::Char, 4)]);
        assert_eq!(encoded(&text, &[("name", "ab")]), Ok(vec![0, 0, b'a', b'b', 0, 0, 0, 0]));
        assert_eq!(encoded(&text, &[("name", "")]), Ok(vec![0; 8]));
        assert_eq!(
            encoded(&text, &[("name", "abcde")]),
            Err("argument `name`: `abcde` is not text of at most 4 bytes".into())
        );
        let list = schema(4, vec![array("keys", 0, ArgType::U16, 2)]);
        assert_eq!(encoded(&list, &[("keys", "1, 0x203")]), Ok(vec![1, 0, 3, 2]));
        assert_eq!(encoded(&list, &[("keys", "@0100ff02")]), Ok(vec![1, 0, 0xff, 2]));
        for value in ["1,2,3", "1,x", "@01", "@0g00", "@+100", "@é00", "65536"] {
            assert!(encoded(&list, &[("keys", value)]).is_err(), "{value}");
        }
    }

    #[test]
    fn a_flexible_array_takes_what_is_given_and_tells_its_length() {
        let len = field("key_len", 0, ArgType::U8);
        let flexible = schema(1, vec![len, array("key", 1, ArgType::Char, 0)]);
        assert_eq!(encoded(&flexible, &[("key", "abc")]), Ok(b"\x03abc".to_vec()));
        // One's own length wins, if only to see what the function says.
        assert_eq!(encoded(&flexible, &[("key", "abc"), ("key_len", "2")]), Ok(b"\x02abc".to_vec()));
        assert_eq!(
            encoded(&flexible, &[]),
            Err("argument `key_len` (a number (u8)) must be given".into()),
            "nothing says how long it is"
        );
        let too_long = "x".repeat(256);
        assert_eq!(
            encoded(&flexible, &[("key", &too_long)]),
            Err("argument `key_len`: `256` is not a number (u8)".into())
        );
    }

    /// An object that says that its arguments take two gigabytes had the client allocate them.
    #[test]
    fn arguments_of_any_length_are_not_made_room_for() {
        let told = "its arguments take 2147483648 bytes, and a call has room for 16777216";
        assert_eq!(encoded(&schema(1 << 31, Vec::new()), &[]), Err(told.into()));
    }

    /// A function that looks for a text ran without one, found it in every row and exited with 0, because arrays without a
    /// length could always be left out. Now they are given, even if empty, or have a default.
    #[test]
    fn a_flexible_array_must_be_given_unless_it_has_a_default() {
        let doc = Some("what to look for".to_owned());
        let row_len = ArgField { default: Some("0".into()), ..field("row_len", 0, ArgType::U8) };
        let pattern = ArgField { doc, ..array("pattern", 1, ArgType::Char, 0) };
        let needed = schema(1, vec![row_len.clone(), pattern.clone()]);
        assert_eq!(encoded(&needed, &[]), Err("argument `pattern` (text) must be given: what to look for".into()));
        assert_eq!(encoded(&needed, &[("pattern", "")]), Ok(vec![0]));
        let with_default = ArgField { default: Some(String::new()), ..pattern };
        assert_eq!(encoded(&schema(1, vec![row_len, with_default]), &[]), Ok(vec![0]));
    }

    #[test]
    fn usage_has_what_must_be_given_first() {
        let row_len = ArgField { default: Some("0".into()), ..field("row_len", 0, ArgType::U8) };
        let op = ArgField { values: vec![("eq".into(), 0), ("ge".into(), 1)], ..field("op", 1, ArgType::U8) };
        let key_len = field("key_len", 2, ArgType::U8);
        let keys = array("keys", 4, ArgType::U16, 2);
        let schema = schema(8, vec![row_len, op, key_len, keys, array("key", 8, ArgType::Char, 0)]);
        assert_eq!(usage(&schema), "--arg op=eq|ge --arg keys=NUMBER,... --arg key=TEXT [--arg row_len=NUMBER]");
    }
}
