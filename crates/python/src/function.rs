//! Functions: found, compiled or loaded, with what they say of their arguments and results.

use crate::error::Failure;
use crate::file::File;
use crate::options;
use crate::request::interruptible;
use diskside::CompileError;
use diskside::LoadError;
use diskside::args::{describe, encode, usage, wants_first_line};
use diskside::columns::{Outputs, outputs_of};
use diskside::compile::{compile_by, compile_text as compile_source, has_lowering as is_lowering_here, lower_module};
use diskside::library::{ResolveError, shipped as all_shipped};
use diskside::result::{columns, row_len};
use diskside::sandbox::image::{ArgSchema, ArgType, Kind};
use diskside::scan::{ColumnFunction, Gives};
use diskside::session::{Session, SessionFunction, SessionOptions};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// How rings get at the kernel: `io_uring` or `posix`.
#[pyfunction]
pub(crate) fn interface() -> PyResult<&'static str> {
    Ok(diskside::io::ring::interface()?.name())
}

/// A function that runs on either side, in any session.
#[pyclass(frozen)]
pub(crate) struct Function(pub(crate) SessionFunction);

/// Functions are of no session; what loads them is.
fn loader() -> &'static Session {
    static LOADER: OnceLock<Session> = OnceLock::new();
    LOADER.get_or_init(|| Session::new(SessionOptions { cache_len_bytes: 0, ..SessionOptions::default() }))
}

/// Names of the shipped functions, and the kind of each.
#[pyfunction]
pub(crate) fn shipped() -> Vec<(&'static str, &'static str)> {
    all_shipped().map(|function| (function.name, function.kind)).collect()
}

/// A shipped function by its name, `FILE.o[:NAME]`, or `FILE.c[:NAME]` to compile.
#[pyfunction]
pub(crate) fn find(py: Python<'_>, what: &str) -> PyResult<Function> {
    let found = py.detach(|| match loader().function(what) {
        Err(error) if is_of_columns(&error) => loader().columns_function(what),
        found => found,
    });
    Ok(Function(found.map_err(Failure::from)?))
}

fn is_of_columns(error: &ResolveError) -> bool {
    matches!(error, ResolveError::Load { source: LoadError::WrongKind { kind: Kind::Columns, .. }, .. })
}

/// Compiles a file to the bytes of an object.
#[pyfunction]
#[pyo3(signature = (path, clang = None))]
pub(crate) fn compile<'py>(py: Python<'py>, path: PathBuf, clang: Option<PathBuf>) -> PyResult<Bound<'py, PyBytes>> {
    object_of(py, move || compile_by(&path, clang.as_deref()))
}

/// Compiles a text to the bytes of an object; `name` is what messages call it.
#[pyfunction]
#[pyo3(signature = (name, text, clang = None))]
pub(crate) fn compile_text<'py>(
    py: Python<'py>,
    name: &str,
    text: &str,
    clang: Option<PathBuf>,
) -> PyResult<Bound<'py, PyBytes>> {
    let (name, text) = (name.to_owned(), text.to_owned());
    object_of(py, move || compile_source(&name, &text, clang.as_deref().map(Path::new)))
}

/// Compiles a module in LLVM's language, for eBPF, to the bytes of an object; `name` is what messages call it.
#[pyfunction]
pub(crate) fn lower<'py>(py: Python<'py>, name: &str, module: &[u8], stack: u32) -> PyResult<Bound<'py, PyBytes>> {
    let (name, module) = (name.to_owned(), module.to_vec());
    object_of(py, move || lower_module(Path::new(&name), &module, Some(stack)))
}

/// Whether [`lower`] has what it needs.
#[pyfunction]
pub(crate) fn has_lowering() -> bool {
    is_lowering_here()
}

fn object_of<'py>(
    py: Python<'py>,
    work: impl FnOnce() -> Result<Vec<u8>, CompileError> + Send + 'static,
) -> PyResult<Bound<'py, PyBytes>> {
    // A compiler may take long: Ctrl-C does not wait for it.
    let object = interruptible(py, move || work().map_err(|error| Failure::from(&error)))?;
    Ok(PyBytes::new(py, &object))
}

#[pymethods]
impl Function {
    /// From the bytes of an object; without a name, the only function there.
    #[staticmethod]
    #[pyo3(signature = (object, name = None))]
    fn load(py: Python<'_>, object: &[u8], name: Option<&str>) -> PyResult<Self> {
        let loaded = py.detach(|| match loader().load(object, name) {
            Err(error) if is_of_columns(&error) => loader().load_columns(object, name),
            loaded => loaded,
        });
        Ok(Self(loaded.map_err(Failure::from)?))
    }

    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    #[getter]
    fn kind(&self) -> &'static str {
        self.0.kind().name()
    }

    #[getter]
    fn object<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.object())
    }

    #[getter]
    fn hash(&self) -> u64 {
        self.0.hash()
    }

    #[getter]
    fn combines(&self) -> bool {
        self.0.combine().is_some()
    }

    /// Whether its output says which rows of columns are wanted.
    #[getter]
    fn selects(&self) -> bool {
        self.0.note().selects
    }

    /// The columns that it reads, each once.
    #[getter]
    fn reads(&self) -> Vec<&str> {
        let fields = self.0.main().entry().columns.as_ref().map_or(&[][..], |schema| &schema.fields);
        let mut names: Vec<&str> = fields.iter().map(|field| field.column.as_str()).collect();
        let mut known = HashSet::new();
        names.retain(|name| known.insert(*name));
        names
    }

    #[getter]
    fn is_pure(&self) -> bool {
        self.0.is_pure()
    }

    /// The arguments that it takes: of each its name, type in words, default and help.
    #[getter]
    fn arguments<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let fields = self.0.args().map_or(&[][..], |schema| &schema.fields);
        let told = fields.iter().map(|field| {
            let told = PyDict::new(py);
            told.set_item("name", &field.name)?;
            told.set_item("expects", describe(field))?;
            told.set_item("type", type_name(field.ty))?;
            told.set_item("is_array", field.is_array)?;
            told.set_item("default", &field.default)?;
            told.set_item("doc", &field.doc)?;
            Ok(told)
        });
        told.collect()
    }

    /// How its arguments are written for `diskside run`.
    #[getter]
    fn usage(&self) -> String {
        self.0.args().map(usage).unwrap_or_default()
    }

    /// The members of a row of its result, each with name, type, offset in bytes and, of an array, its length; and the bytes
    /// of a row. `None` if results are not made of rows.
    #[getter]
    fn fields(&self) -> Option<(Vec<Field>, usize)> {
        let schema = self.result_schema()?;
        let len = row_len(schema)?;
        let fields = columns(schema).map(|field| {
            (field.name.clone(), type_name(field.ty), field.offset, field.is_array.then_some(field.count))
        });
        Some((fields.collect(), len))
    }

    /// Makes arguments, names and values as text, the bytes of the function's structure. Where columns go by their names, the line
    /// with these may be the first of `input`, which is compressed as the options say.
    #[pyo3(signature = (given, input=None, options=None))]
    fn encode<'py>(
        &self,
        py: Python<'py>,
        mut given: Vec<(String, String)>,
        input: Option<&File>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let wanted = self.0.args().and_then(|schema| wants_first_line(schema, &given));
        if let (Some(name), Some(input), Some(options)) = (wanted, input, options) {
            let (name, decompress) = (name.to_owned(), options::decompress(options)?);
            given.push((name, input.first_line(py, decompress)?));
        }
        let bytes = match self.0.args() {
            Some(schema) => encode(schema, &given).map_err(|error| self.wrong_arguments(error))?,
            None if given.is_empty() => Vec::new(),
            None => return Err(self.wrong_arguments("the function describes no arguments; compile it with -g").into()),
        };
        Ok(PyBytes::new(py, &bytes))
    }
}

/// Name, type, offset, and of an array its length.
type Field = (String, &'static str, u32, Option<u32>);

impl Function {
    /// The function, if it runs over the bytes of files.
    pub(crate) fn over_bytes(&self) -> Result<&SessionFunction, Failure> {
        if self.0.kind() == Kind::Columns {
            let name = self.0.name();
            let why = format!("{name}: it runs over the columns of a table: session.scan(FILE, function=...)");
            return Err(Failure::usage(why));
        }
        Ok(&self.0)
    }

    /// What a scan is given of the function, with its arguments.
    pub(crate) fn over_columns(&self, args: Vec<u8>) -> Result<ColumnFunction, Failure> {
        let (name, kind) = (self.0.name(), self.0.kind());
        if kind != Kind::Columns {
            let why = format!("function: {name} is of kind {}, and a scan runs those of kind columns", kind.name());
            return Err(Failure::usage(why));
        }
        let outputs = outputs_of(&self.0).map_err(|error| Failure::usage(format!("function: {error}")))?;
        let gives = if outputs == Outputs::Selection { Gives::Rows } else { Gives::Result };
        Ok(ColumnFunction { object: self.0.object().to_vec(), name: name.to_owned(), args, gives })
    }

    pub(crate) fn result_schema(&self) -> Option<&ArgSchema> {
        self.0.main().entry().result.as_ref()
    }

    fn wrong_arguments(&self, why: impl std::fmt::Display) -> Failure {
        Failure::usage(format!("{}: {why}", self.0.name()))
    }
}

/// As numpy and `struct` would call it.
fn type_name(of: ArgType) -> &'static str {
    match of {
        ArgType::U8 => "u1",
        ArgType::I8 => "i1",
        ArgType::U16 => "u2",
        ArgType::I16 => "i2",
        ArgType::U32 => "u4",
        ArgType::I32 => "i4",
        ArgType::U64 => "u8",
        ArgType::I64 => "i8",
        ArgType::F32 => "f4",
        ArgType::F64 => "f8",
        ArgType::Char => "char",
        ArgType::Bool => "bool",
    }
}
