//! Failures, as Python has them: classes by kind, which `diskside.errors` defines.

use diskside::CallError;
use diskside::host::function::FunctionError;
use diskside::library::ResolveError;
use diskside::sandbox::region::RegionId;
use diskside::sandbox::trap::TrapKind;
use diskside::session::{FailureKind, SessionError};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::error::Error;
use std::io;

/// Something failed, without Python's lock.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: &'static str,
    text: String,
    errno: Option<i32>,
    trap: Option<Trap>,
}

/// Where a function was stopped.
#[derive(Debug)]
struct Trap {
    kind: Option<TrapKind>,
    instruction: u32,
    range: (u64, u64),
    /// The region, the offset in it, and its length.
    region: Option<(RegionId, i64, u64)>,
    returned: Option<i64>,
}

impl Failure {
    pub(crate) fn usage(text: impl ToString) -> Self {
        Self::new("usage", text)
    }

    pub(crate) fn environment(text: impl ToString) -> Self {
        Self::new("environment", text)
    }

    /// An operation on a file of an export failed.
    pub(crate) fn of_file(name: &str, error: &FunctionError) -> Self {
        let text = Self::in_words_of_python(&format!("{name}: {error}"));
        Self { errno: error.errno(), ..Self::environment(text) }
    }

    fn new(kind: &'static str, text: impl ToString) -> Self {
        Self { kind, text: text.to_string(), errno: None, trap: None }
    }

    /// The commands' options have other names here.
    pub(crate) fn in_words_of_python(text: &str) -> String {
        let mut text = text.replace("--delimiter $'", "delimiter='").replace("(--columns)", "(columns=)");
        for option in ["types", "delimiter", "where"] {
            text = text.replace(&format!("--{option} '"), &format!("{option}='"));
        }
        for (option, value) in [("input", "csv"), ("input", "arrow"), ("input", "jsonl"), ("place", "host")] {
            text = text.replace(&format!("--{option} {value}"), &format!("{option}=\"{value}\""));
        }
        text.replace("--input says", "input= says")
            .replace("--no-partitions", "partitions=False")
            .replace("--loss-timeout-ms", "loss_timeout")
            .replace("--insecure (insecure = true in the file)", "insecure=True")
            .replace("--budget gives", "budget= gives")
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        let errno = match &error {
            SessionError::Device { source, .. } => source.errno(),
            SessionError::File { source, .. } | SessionError::Open { source, .. } | SessionError::Output(source) => {
                errno_of(source)
            }
            SessionError::Call(CallError::Errno { code, .. }) => {
                code.checked_neg().and_then(|errno| i32::try_from(errno).ok())
            }
            _ => None,
        };
        let text = Self::in_words_of_python(&error.to_string());
        Self { kind: kind_name(error.kind()), errno, trap: trap_of(&error), text }
    }
}

impl From<ResolveError> for Failure {
    fn from(error: ResolveError) -> Self {
        let (kind, errno) = match &error {
            ResolveError::Unknown { .. } => {
                return Self::usage(
                    error.to_string().replace("`diskside functions` lists", "diskside.shipped() gives"),
                );
            }
            ResolveError::Read { source, .. } => ("environment", errno_of(source)),
            ResolveError::Compile(error) => return error.into(),
            ResolveError::Load { .. } | ResolveError::NotRaw { .. } => ("refused", None),
        };
        Self { errno, ..Self::new(kind, error) }
    }
}

impl From<&diskside::CompileError> for Failure {
    fn from(error: &diskside::CompileError) -> Self {
        use diskside::CompileError as E;
        let (kind, errno) = match error {
            E::NoClang(_) => ("no_clang", None),
            E::Refused { .. } => ("compile", None),
            E::Child { .. } => ("environment", None),
            E::CannotRun { source, .. } | E::Read { source, .. } | E::Environment { source, .. } => {
                ("environment", errno_of(source))
            }
        };
        Self { errno, ..Self::new(kind, error) }
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        Python::attach(|py| failure.raise(py).unwrap_or_else(|broken| broken))
    }
}

impl Failure {
    fn raise(self, py: Python<'_>) -> PyResult<PyErr> {
        let trap = match &self.trap {
            None => None,
            Some(trap) => {
                let told = PyDict::new(py);
                told.set_item("kind", trap.kind.map(trap_name))?;
                told.set_item("instruction", trap.instruction)?;
                told.set_item("range", trap.range)?;
                told.set_item("region", trap.region.map(|(region, ..)| region.to_string()))?;
                told.set_item("offset", trap.region.map(|(_, offset, _)| offset))?;
                told.set_item("bound", trap.region.map(|(.., bound)| bound))?;
                told.set_item("returned", trap.returned)?;
                Some(told)
            }
        };
        let errors = py.import("diskside.errors")?;
        let made = errors.call_method1("_made", (self.kind, self.text, self.errno, trap))?;
        Ok(PyErr::from_value(made))
    }
}

/// A defect of the package, as an exception.
pub(crate) fn defect(what: &'static str) -> PyErr {
    PyRuntimeError::new_err(what)
}

/// The errno of an error, also of one that says more than its number.
fn errno_of(error: &io::Error) -> Option<i32> {
    let mut inner = error.get_ref().map(|inner| inner as &(dyn Error + 'static));
    let mut errno = error.raw_os_error();
    while let (None, Some(cause)) = (errno, inner) {
        errno = if let Some(error) = cause.downcast_ref::<io::Error>() {
            errno_of(error)
        } else if let Some(error) = cause.downcast_ref::<FunctionError>() {
            error.errno()
        } else {
            cause.downcast_ref::<diskside::outfile::WriteError>().map(|error| error.errno.raw_os_error())
        };
        inner = cause.source();
    }
    errno
}

fn kind_name(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Usage => "usage",
        FailureKind::Trap => "trap",
        FailureKind::Budget => "budget",
        FailureKind::Deadline => "deadline",
        FailureKind::OutputFull => "output_full",
        FailureKind::Returned => "returned",
        FailureKind::Refused => "refused",
        FailureKind::Changed => "changed",
        FailureKind::Cancelled => "cancelled",
        _ => "environment",
    }
}

fn trap_name(kind: TrapKind) -> &'static str {
    match kind {
        TrapKind::OutOfBounds => "out_of_bounds",
        TrapKind::Unmapped => "unmapped",
        TrapKind::ReadOnly => "read_only",
        TrapKind::Misaligned => "misaligned",
        TrapKind::Budget => "budget",
        TrapKind::Deadline => "deadline",
        TrapKind::Cancelled => "cancelled",
        TrapKind::Helper => "helper",
    }
}

fn trap_of(error: &SessionError) -> Option<Trap> {
    match error {
        SessionError::Call(CallError::Trapped { place, trap, .. }) => Some(Trap {
            kind: Some(trap.kind),
            instruction: trap.insn,
            range: (place.range.start, place.range.end),
            region: trap.region.map(|region| (region, trap.offset, trap.bound)),
            returned: None,
        }),
        SessionError::Call(CallError::Errno { place, code, .. }) => Some(Trap {
            kind: None,
            instruction: 0,
            range: (place.range.start, place.range.end),
            region: None,
            returned: Some(*code),
        }),
        // Where a source could not be read, no function was stopped.
        SessionError::Device { source, .. } if error.kind() != FailureKind::Environment => {
            let trailer = source.trailer()?;
            let place = trailer.place?;
            let kind = TrapKind::from_u16(trailer.trap_kind);
            let region = region_of(trailer.region, trailer.trap_offset, trailer.bound).filter(|_| kind.is_some());
            Some(Trap {
                kind,
                instruction: trailer.insn,
                range: (place.offset, place.offset.saturating_add(place.len)),
                region,
                returned: kind.is_none().then_some(trailer.returned),
            })
        }
        SessionError::OnRows { stop, .. } => {
            let kind = TrapKind::from_u16(stop.trap_kind);
            // One whose output has a length that no rows have was neither stopped, nor did it return an error.
            (kind.is_some() || stop.returned < 0).then(|| Trap {
                kind,
                instruction: stop.insn,
                range: stop.row_group.map_or((0, 0), |row_group| (row_group, row_group.saturating_add(1))),
                region: region_of(stop.region, stop.offset, stop.bound).filter(|_| kind.is_some()),
                returned: kind.is_none().then_some(stop.returned),
            })
        }
        _ => None,
    }
}

/// The memory of an access, with the offset in it and its length. Bit 15 says that it was a write.
fn region_of(region: u16, offset: u64, bound: u64) -> Option<(RegionId, i64, u64)> {
    let region = u8::try_from(region & !(1 << 15)).ok().filter(|region| *region != 0)?;
    Some((RegionId(region), offset.cast_signed(), bound))
}
