//! A function of the user's over the columns of a file: from its object to what it is called with.

use crate::bind::Binder;
use crate::lines::type_name;
use arrow_array::cast::AsArray as _;
use arrow_array::types::Decimal128Type;
use arrow_array::{Array, ArrayRef, BooleanArray, StringArray};
use arrow_buffer::Buffer;
use arrow_schema::{DataType, Schema};
use diskside_child::MayMakeCode;
use diskside_engine::columns::{ColumnCalls, ColumnsError, Outputs, Rows};
use diskside_engine::{Engine, TierChoice};
use diskside_sbpf::helpers::standard;
use diskside_sbpf::image::{ArgType, ColumnField, ColumnKind};
use diskside_scan::{Failure, FailureKind, Gives, Plan, Stop};
use std::collections::HashMap;

/// The function of a plan, ready to be called.
pub(crate) struct Function {
    calls: ColumnCalls,
    name: String,
}

/// What a function fails with: its message follows the place.
pub(crate) struct Wrong {
    pub(crate) kind: FailureKind,
    pub(crate) what: String,
}

/// Loads, verifies and compiles the function of a plan, if it has one. Then the process makes no more code.
pub(crate) fn prepare(plan: &Plan, may_make_code: MayMakeCode, input: &str) -> Result<Option<Function>, Failure> {
    let function = Function::load(plan);
    let failure = |kind, what: &dyn std::fmt::Display| Failure { kind, message: format!("{input}: {what}") };
    may_make_code.forbid_code().map_err(|error| failure(FailureKind::Bug, &error))?;
    function.map_err(|wrong| failure(wrong.kind, &wrong.what))
}

impl Function {
    fn load(plan: &Plan) -> Result<Option<Self>, Wrong> {
        let Some(of) = &plan.function else { return Ok(None) };
        let (engine, name) = (Engine::new(standard()), (!of.name.is_empty()).then_some(of.name.as_str()));
        let loaded = engine.load_columns(&of.object, name);
        let loaded = loaded.map_err(|error| refused(&format_args!("the function of the scan: {error}")))?;
        let name = loaded.main().entry().section.clone();
        let calls = ColumnCalls::new(&engine, &loaded, of.args.clone(), TierChoice::Best)?;
        let function = Self { calls, name };
        let expected: &[Outputs] = match of.gives {
            Gives::Rows => &[Outputs::Selection],
            Gives::Result => &[Outputs::Folded, Outputs::Concatenated],
            Gives::Partial => &[Outputs::Folded],
        };
        if !expected.contains(&function.outputs()) {
            return Err(refused(&format_args!("the plan wants of {} what it does not give", function.name)));
        }
        if of.gives == Gives::Rows {
            return Ok(Some(function));
        }
        if !plan.columns.is_empty() || plan.aggregates() || !plan.order.is_empty() || plan.limit.is_some() {
            return Err(refused(&format_args!(
                "{} gives a result of its own, and no rows whose columns could go out, be aggregated, sorted or limited; one \
                 with DS_SELECT in its source does",
                function.name
            )));
        }
        if function.calls.result_schema().is_none() {
            return Err(refused(&format_args!(
                "the result of {} has no columns: its first parameter points to a structure of numbers, whose members are \
                 the columns, and the object is compiled with -g",
                function.name
            )));
        }
        Ok(Some(function))
    }

    pub(crate) fn outputs(&self) -> Outputs {
        self.calls.outputs()
    }

    pub(crate) fn calls(&mut self) -> &mut ColumnCalls {
        &mut self.calls
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The slots of its columns, one for each member.
    pub(crate) fn bind(&self, binder: &mut Binder<'_>, schema: &Schema) -> Result<Vec<usize>, Failure> {
        let fields = &self.calls.columns().fields;
        let mut slots = Vec::with_capacity(fields.len());
        for field in fields {
            let slot = binder.slot(&field.column)?;
            let data_type = schema.field_with_name(&field.column).map_err(|error| binder.wrong(error))?.data_type();
            self.check(field, data_type).map_err(|what| binder.wrong(what))?;
            slots.push(slot);
        }
        Ok(slots)
    }

    /// Whether a member has the type of its column.
    fn check(&self, field: &ColumnField, data_type: &DataType) -> Result<(), String> {
        let (name, column, of) = (&self.name, &field.column, type_name(data_type));
        let declared = declared(data_type);
        let fits = match field.kind {
            ColumnKind::Validity => true,
            ColumnKind::Values(ArgType::U8 | ArgType::Bool) if *data_type == DataType::Boolean => true,
            ColumnKind::Values(wanted) => value_of(data_type).is_some_and(|(found, _)| found == wanted),
            ColumnKind::Text | ColumnKind::Dictionary => is_text(data_type),
        };
        if !fits {
            return Err(format!("column `{column}` is of type {of}, and {name} declares it otherwise: {declared}"));
        }
        match (field.scale, scale_of(data_type)) {
            (Some(wanted), found) if found != Some(wanted) => Err(format!(
                "column `{column}` is of type {of}, and {name} wants a decimal with {wanted} digits behind the point"
            )),
            _ => Ok(()),
        }
    }

    /// Which rows it selects.
    pub(crate) fn select(&mut self, slots: &[usize], columns: &[ArrayRef], rows: usize) -> Result<BooleanArray, Wrong> {
        self.with_rows(slots, columns, rows, |calls, rows| {
            calls.call(rows).map(|mask| mask.iter().map(|selected| Some(*selected != 0)).collect())
        })
    }

    /// Its output for rows.
    pub(crate) fn output(&mut self, slots: &[usize], columns: &[ArrayRef], rows: usize) -> Result<Vec<u8>, Wrong> {
        self.with_rows(slots, columns, rows, |calls, rows| calls.call(rows).map(<[u8]>::to_vec))
    }

    /// Folds its output for rows.
    pub(crate) fn add(&mut self, slots: &[usize], columns: &[ArrayRef], rows: usize) -> Result<(), Wrong> {
        self.with_rows(slots, columns, rows, ColumnCalls::add)
    }

    fn with_rows<T>(
        &mut self,
        slots: &[usize],
        columns: &[ArrayRef],
        rows: usize,
        call: impl FnOnce(&mut ColumnCalls, &Rows<'_>) -> Result<T, ColumnsError>,
    ) -> Result<T, Wrong> {
        let fields = &self.calls.columns().fields;
        let (mut buffers, mut dictionary_lens) = (Vec::new(), Vec::new());
        for (field, slot) in fields.iter().zip(slots) {
            let (array, column) = (&columns[*slot], &field.column);
            let says_nulls = |other: &ColumnField| other.kind == ColumnKind::Validity && other.column == *column;
            if array.null_count() > 0 && !fields.iter().any(says_nulls) {
                return Err(refused(&format_args!(
                    "column `{column}` has NULL, and {} has no member that says in which rows: add `const __u8 \
                     *{column}__valid;` (in Python \"{column}__valid\": \"u1\"), or leave these rows out (--where '{column} is not null')",
                    self.name
                )));
            }
            match field.kind {
                ColumnKind::Values(_) => {
                    let values = values(array).ok_or_else(|| Wrong {
                        kind: FailureKind::File,
                        what: format!("column `{column}` has a decimal of more digits than its type"),
                    })?;
                    buffers.push(values);
                }
                ColumnKind::Validity => {
                    buffers.push(Buffer::from_iter((0..rows).map(|row| u8::from(array.is_valid(row)))));
                }
                ColumnKind::Text => buffers.extend(texts(strings(array).map(Option::unwrap_or_default))),
                ColumnKind::Dictionary => {
                    let (codes, different) = dictionary(array);
                    buffers.push(Buffer::from_vec(codes));
                    buffers.extend(texts(different.iter().copied()));
                    dictionary_lens.push(different.len() as u64);
                }
            }
        }
        let buffers = buffers.iter().map(|buffer| &buffer[..]).collect();
        Ok(call(&mut self.calls, &Rows { count: rows as u64, buffers, dictionary_lens })?)
    }
}

/// Added to the region of an access that was a write.
const WRITE: u16 = 1 << 15;

impl From<ColumnsError> for Wrong {
    fn from(error: ColumnsError) -> Self {
        let kind = match &error {
            ColumnsError::Unfit { .. } => FailureKind::Plan,
            ColumnsError::Stopped { trap, .. } => FailureKind::Function(Stop {
                trap_kind: trap.kind as u16,
                region: trap.region.map_or(0, |region| region.0.into()) | if trap.write { WRITE } else { 0 },
                insn: trap.insn,
                offset: trap.offset.cast_unsigned(),
                bound: trap.bound,
                ..Stop::default()
            }),
            ColumnsError::Errno { code, .. } => FailureKind::Function(Stop { returned: *code, ..Stop::default() }),
            _ => FailureKind::Function(Stop::default()),
        };
        Self { kind, what: error.to_string() }
    }
}

fn refused(what: &dyn std::fmt::Display) -> Wrong {
    Wrong { kind: FailureKind::Plan, what: what.to_string() }
}

/// The type of the values of a column, as C and as a member has them; `None`: they are not numbers of 64 bits or less.
fn value_of(data_type: &DataType) -> Option<(ArgType, &'static str)> {
    Some(match data_type {
        DataType::Boolean => (ArgType::Bool, "const __u8"),
        DataType::Int8 => (ArgType::I8, "const __s8"),
        DataType::UInt8 => (ArgType::U8, "const __u8"),
        DataType::Int16 => (ArgType::I16, "const __s16"),
        DataType::UInt16 => (ArgType::U16, "const __u16"),
        DataType::Int32 | DataType::Date32 | DataType::Time32(_) | DataType::Decimal32(..) => {
            (ArgType::I32, "const __s32")
        }
        DataType::UInt32 => (ArgType::U32, "const __u32"),
        DataType::Int64
        | DataType::Date64
        | DataType::Timestamp(..)
        | DataType::Time64(_)
        | DataType::Duration(_)
        | DataType::Decimal64(..)
        | DataType::Decimal128(..=18, _) => (ArgType::I64, "const __s64"),
        DataType::UInt64 => (ArgType::U64, "const __u64"),
        DataType::Float32 => (ArgType::F32, "const float"),
        DataType::Float64 => (ArgType::F64, "const double"),
        _ => return None,
    })
}

/// How a member for a column is declared.
fn declared(data_type: &DataType) -> String {
    match value_of(data_type) {
        Some((_, of)) => format!("it is `{of} *`, in Python \"{}\"", in_python(data_type, of)),
        None if is_text(data_type) => {
            "it is `struct ds_utf8` or `struct ds_dict`, in Python \"text\" or \"dictionary\"".into()
        }
        None if matches!(data_type, DataType::Decimal128(..) | DataType::Decimal256(..)) => {
            "a function takes decimals of at most 18 digits".into()
        }
        None => "a function takes numbers, dates, times, booleans and texts".into(),
    }
}

/// What `columns=` of a function in Python says of it.
fn in_python(data_type: &DataType, in_c: &str) -> String {
    if let Some(scale) = scale_of(data_type) {
        return format!("decimal({scale})");
    }
    let kind = match in_c.trim_start_matches("const ") {
        "float" => "f4",
        "double" => "f8",
        "__s8" => "i1",
        "__u8" => "u1",
        "__s16" => "i2",
        "__u16" => "u2",
        "__s32" => "i4",
        "__u32" => "u4",
        "__u64" => "u8",
        _ => "i8",
    };
    kind.into()
}

fn scale_of(data_type: &DataType) -> Option<u8> {
    match data_type {
        DataType::Decimal32(_, scale) | DataType::Decimal64(_, scale) | DataType::Decimal128(_, scale) => {
            u8::try_from(*scale).ok()
        }
        _ => None,
    }
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// The values of numbers as they are in memory, decimals in 64 bits; those behind NULL are of no meaning. `None`: a decimal does
/// not fit.
fn values(array: &ArrayRef) -> Option<Buffer> {
    if let Some(booleans) = array.as_boolean_opt() {
        return Some(booleans.values().iter().map(u8::from).collect());
    }
    if let Some(decimals) = array.as_primitive_opt::<Decimal128Type>() {
        let narrow = |digits: Option<i128>| i64::try_from(digits.unwrap_or_default()).ok();
        return decimals.iter().map(narrow).collect::<Option<Vec<i64>>>().map(Buffer::from_vec);
    }
    let (data, width) = (array.to_data(), array.data_type().primitive_width().expect("checked: it is a number"));
    Some(data.buffers()[0].slice_with_length(data.offset() * width, data.len() * width))
}

fn strings(array: &ArrayRef) -> Box<dyn Iterator<Item = Option<&str>> + '_> {
    match array.data_type() {
        DataType::Utf8View => Box::new(array.as_string_view().iter()),
        DataType::LargeUtf8 => Box::new(array.as_string::<i64>().iter()),
        _ => Box::new(array.as_string::<i32>().iter()),
    }
}

/// Where each text begins, and the bytes of all.
fn texts<'a>(of: impl Iterator<Item = &'a str>) -> [Buffer; 2] {
    let texts = StringArray::from_iter_values(of);
    [texts.offsets().inner().inner().clone(), texts.values().clone()]
}

/// For each row the number of its text, and the texts in the order in which rows have them first.
fn dictionary(array: &ArrayRef) -> (Vec<u32>, Vec<&str>) {
    let (mut codes, mut different, mut known) = (Vec::with_capacity(array.len()), Vec::new(), HashMap::new());
    for text in strings(array) {
        let code = text.map_or(0, |text| {
            *known.entry(text).or_insert_with(|| {
                different.push(text);
                different.len() as u32 - 1
            })
        });
        codes.push(code);
    }
    (codes, different)
}
