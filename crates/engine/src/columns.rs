//! Functions over columns: called for some rows of a table after others, with a buffer for each part of a column.
//!
//! Nothing that such a function is told depends on where the rows come from: the same rows give the same bytes wherever it runs.

use crate::Engine;
use crate::call::errno_text;
use crate::code::{OnMiss, TierChoice, TierError};
use crate::environment::{CallEnvironment, Log, Why};
use crate::function::Function;
use crate::worker::{Output, source_line};
use diskside_abi::context::{DsCall, UNKNOWN};
use diskside_io::buffer::{Buffer, Hugepages};
use diskside_sbpf::activation::{Activation, ActivationOptions, Limits, Mappings, Program, Ranges, Stopped};
use diskside_sbpf::image::{ArgSchema, ColumnKind, ColumnSchema};
use diskside_sbpf::region::RegionId;
use diskside_sbpf::trap::{Trap, TrapKind};
use diskside_sbpf::verify::COLUMNS_AT;
use std::sync::Arc;
use zerocopy::IntoBytes as _;

/// Most bytes of what results fold into.
pub const FOLDED_LEN_MAX: usize = 8 << 20;
/// Most bytes of the output of one call.
pub const OUTPUT_LEN_MAX: u64 = 64 << 20;
/// Most bytes that `ds_alloc` gives out at one time.
const HEAP_LEN_MAX: u64 = 16 << 20;
/// Where `count` is in `struct ds_dict`.
const DICTIONARY_COUNT_AT: u32 = 24;

/// What becomes of the outputs of a function over columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outputs {
    /// Each says which rows are selected: a byte for each.
    Selection,
    /// The `combine` of the function folds them.
    Folded,
    /// They stand one after another.
    Concatenated,
}

/// Some rows of a table, as a function sees them.
#[derive(Debug, Default)]
pub struct Rows<'a> {
    /// How many.
    pub count: u64,
    /// The buffers of all members of the structure, in their order.
    pub buffers: Vec<&'a [u8]>,
    /// How many texts the dictionaries have, in the order of their members.
    pub dictionary_lens: Vec<u64>,
}

/// Why a function over columns has no result.
#[derive(Debug, thiserror::Error)]
pub enum ColumnsError {
    /// It was stopped.
    #[error("{function} was stopped at instruction {insn}{source_line}: {told}", insn = .trap.insn)]
    Stopped {
        /// Which program.
        function: String,
        /// ` (file:line: text)`, or empty.
        source_line: String,
        /// Why.
        trap: Box<Trap>,
        /// The same, with names of columns.
        told: String,
    },
    /// It returned a negative number: an errno.
    #[error("{function} returned {code}: {why}")]
    Errno {
        /// Which program.
        function: String,
        /// The number.
        code: i64,
        /// Why.
        why: String,
    },
    /// It returned a length that no output of its has.
    #[error("{function} returned {returned}, but {what}")]
    Length {
        /// Which program.
        function: String,
        /// What it returned.
        returned: u64,
        /// What it should be.
        what: String,
    },
    /// There is no memory for its output.
    #[error("{function}: no memory for {len} bytes of output; ask for less with DS_OUTPUT in its source")]
    Memory {
        /// Which program.
        function: String,
        /// Bytes that were asked for.
        len: u64,
    },
    /// It cannot be run over columns so.
    #[error("{function} {what}")]
    Unfit {
        /// Which program.
        function: String,
        /// Why not, and what to do.
        what: String,
    },
    /// The tier cannot run it.
    #[error(transparent)]
    Tier(#[from] TierError),
}

/// A function over columns that is called for some rows after others.
#[derive(Debug)]
pub struct ColumnCalls {
    main: Activated,
    folder: Option<Folder>,
    outputs: Outputs,
    output: Output,
    args: Vec<u8>,
    context: Vec<u8>,
    /// Where the context has the lengths of dictionaries.
    dictionaries: Vec<usize>,
    function: Function,
}

#[derive(Debug)]
struct Activated {
    program: Arc<Program>,
    activation: Activation,
    why: Why,
}

#[derive(Debug)]
struct Folder {
    combine: Activated,
    accumulator: Buffer,
    len: usize,
}

impl ColumnCalls {
    /// Compiles a function and gives it memory.
    ///
    /// # Errors
    /// It cannot be run so: it has an effect, its outputs become nothing, or the arguments are too short.
    pub fn new(engine: &Engine, function: &Function, args: Vec<u8>, tier: TierChoice) -> Result<Self, ColumnsError> {
        let outputs = outputs_of(function)?;
        let unfit = |what: &str| unfit(function, what);
        let columns = schema(function).ok_or_else(|| unfit("has no columns"))?;
        if let Some(schema) = function.args().filter(|schema| args.len() < schema.len_bytes as usize) {
            let wants = format!("wants arguments of {} bytes, and has {}", schema.len_bytes, args.len());
            return Err(unfit(&wants));
        }
        let dictionaries = columns.fields.iter().filter(|field| field.kind == ColumnKind::Dictionary);
        let dictionaries =
            dictionaries.map(|field| (COLUMNS_AT + field.offset + DICTIONARY_COUNT_AT) as usize).collect();
        let folder = match function.combine().filter(|_| outputs == Outputs::Folded) {
            None => None,
            Some(combine) => Some(Folder::new(engine, combine, tier)?),
        };
        Ok(Self {
            main: Activated::new(engine, function.main(), tier)?,
            folder,
            outputs,
            output: Output::default(),
            context: context(columns, args.len()),
            args,
            dictionaries,
            function: function.clone(),
        })
    }

    /// What becomes of its outputs.
    #[must_use]
    pub fn outputs(&self) -> Outputs {
        self.outputs
    }

    /// Its columns.
    ///
    /// # Panics
    /// Never: a function without them is not activated.
    #[must_use]
    pub fn columns(&self) -> &ColumnSchema {
        schema(&self.function).expect("checked when it was made")
    }

    /// The structures that its result consists of; `None`: its object does not say.
    #[must_use]
    pub fn result_schema(&self) -> Option<&ArgSchema> {
        self.function.main().entry().result.as_ref()
    }

    /// Calls it for some rows and gives its output: of one that selects, a byte for each row.
    ///
    /// # Errors
    /// Why it did not end well.
    ///
    /// # Panics
    /// If the buffers are not those of its members.
    pub fn call(&mut self, rows: &Rows<'_>) -> Result<&[u8], ColumnsError> {
        assert_eq!(rows.buffers.len(), self.columns().pointers().count(), "a buffer for each pointer");
        let cap = match self.outputs {
            Outputs::Selection => rows.count,
            Outputs::Folded | Outputs::Concatenated => self.function.output_cap(rows.count),
        };
        let (name, memory) = (self.main.name(), |len| ColumnsError::Memory { function: self.main.name(), len });
        if cap > OUTPUT_LEN_MAX {
            return Err(memory(cap));
        }
        let output = self.output.zeroed(cap, Hugepages::No).map_err(|_| memory(cap))?;
        self.context[..DsCall::LEN_BYTES].copy_from_slice(call_of(self.args.len(), cap).as_bytes());
        for (at, len) in self.dictionaries.iter().zip(&rows.dictionary_lens) {
            self.context[*at..*at + 8].copy_from_slice(&len.to_le_bytes());
        }
        let mut buffers = Ranges::new();
        for buffer in &rows.buffers {
            buffers.push_read_only(buffer);
        }
        let mappings = Mappings::new()
            .writable(RegionId::OUTPUT, output)
            .read_only(RegionId::ARGS, &self.args)
            .read_only(RegionId::CONTEXT, &self.context)
            .ranges(&mut buffers);
        let in_len = rows.buffers.iter().map(|buffer| buffer.len() as u64).sum();
        let len = self.main.run(&mappings, &[rows.count], Limits::for_bytes(in_len, cap), cap)?;
        if self.outputs == Outputs::Selection && len as u64 != rows.count {
            let what =
                format!("it selects rows, of which there are {}: it returns as many bytes, one for each", rows.count);
            return Err(ColumnsError::Length { function: name, returned: len as u64, what });
        }
        Ok(&self.output.bytes()[..len])
    }

    /// Calls it for some rows and folds its output.
    ///
    /// # Errors
    /// Why it, or its `combine`, did not end well.
    pub fn add(&mut self, rows: &Rows<'_>) -> Result<(), ColumnsError> {
        let len = self.call(rows)?.len();
        let Self { folder, output, .. } = self;
        folder.as_mut().map_or(Ok(()), |folder| folder.fold(&output.bytes()[..len]))
    }

    /// Folds what the same function came to over other rows, which follow.
    ///
    /// # Errors
    /// Why its `combine` did not end well.
    pub fn fold(&mut self, folded: &[u8]) -> Result<(), ColumnsError> {
        self.folder.as_mut().map_or(Ok(()), |folder| folder.fold(folded))
    }

    /// What its outputs are folded into so far.
    #[must_use]
    pub fn folded(&self) -> &[u8] {
        self.folder.as_ref().map_or(&[], |folder| &folder.accumulator[..folder.len])
    }
}

/// The columns that a function reads.
#[must_use]
pub fn schema(function: &Function) -> Option<&ColumnSchema> {
    function.main().entry().columns.as_ref()
}

/// What becomes of the outputs of a function.
///
/// # Errors
/// Nothing does, or two things, or it has effects: then its result would depend on where and how often it is called.
pub fn outputs_of(function: &Function) -> Result<Outputs, ColumnsError> {
    if !function.is_pure() {
        let what = "uses a clock, a log or a state, which functions over columns have not: its result would depend on where it runs";
        return Err(unfit(function, what));
    }
    let note = function.note();
    match (note.selects, function.combine().is_some(), note.concatenates) {
        (true, false, false) => Ok(Outputs::Selection),
        (false, true, false) => Ok(Outputs::Folded),
        (false, false, true) => Ok(Outputs::Concatenated),
        (false, false, false) => {
            let what = "is called for some rows after others, and does not say what becomes of its outputs: write a \
                        combine/NAME that folds them, or DS_CONCATENATE, or DS_SELECT";
            Err(unfit(function, what))
        }
        _ => Err(unfit(
            function,
            "says two things of its outputs: of combine/NAME, DS_CONCATENATE and DS_SELECT one is meant",
        )),
    }
}

impl Activated {
    fn new(engine: &Engine, program: &Arc<Program>, tier: TierChoice) -> Result<Self, ColumnsError> {
        let environment = CallEnvironment::new(Log::default(), None);
        let why = environment.why();
        let options = ActivationOptions { heap_quota_bytes: HEAP_LEN_MAX, environment: Box::new(environment) };
        let code = engine.code().get(program, tier, OnMiss::CallingThread)?;
        Ok(Self { activation: Activation::new(program, code, options), program: Arc::clone(program), why })
    }

    fn name(&self) -> String {
        self.program.entry().section.clone()
    }

    fn run(
        &mut self,
        mappings: &Mappings<'_>,
        numbers: &[u64],
        limits: Limits,
        cap: u64,
    ) -> Result<usize, ColumnsError> {
        self.activation.forget();
        let registers = self.program.entry_registers(numbers);
        let returned = self.activation.call(mappings, registers, &limits);
        let returned = returned.map_err(|stopped| self.stopped(stopped, &limits))?.value.cast_signed();
        let (function, why) = (self.name(), self.why.take());
        match u64::try_from(returned) {
            Err(_) => {
                Err(ColumnsError::Errno { function, code: returned, why: why.unwrap_or_else(|| errno_text(returned)) })
            }
            Ok(returned) if returned > cap => {
                let what = format!("there is room for {cap} bytes: ask for more with DS_OUTPUT in its source");
                Err(ColumnsError::Length { function, returned, what })
            }
            Ok(returned) => Ok(returned as usize),
        }
    }

    fn stopped(&self, stopped: Stopped, limits: &Limits) -> ColumnsError {
        let mut trap = stopped.trap;
        if trap.kind == TrapKind::Budget {
            trap.bound = limits.budget;
        }
        let columns = self.program.entry().columns.as_ref();
        let name = |region: RegionId| {
            let buffer = region.0.checked_sub(RegionId::RANGE_FIRST.0).map(usize::from);
            let column = buffer.and_then(|buffer| columns?.column_of(buffer));
            column.map_or_else(|| region.to_string(), |column| format!("column `{column}`"))
        };
        let (told, source_line) = (trap.told(&name).to_string(), source_line(&self.program, &trap));
        ColumnsError::Stopped { function: self.name(), source_line, told, trap: Box::new(trap) }
    }
}

impl Folder {
    fn new(engine: &Engine, combine: &Arc<Program>, tier: TierChoice) -> Result<Self, ColumnsError> {
        let combine = Activated::new(engine, combine, tier)?;
        let accumulator = Buffer::try_with_hugepages(FOLDED_LEN_MAX, Hugepages::No);
        let memory = |_| ColumnsError::Memory { function: combine.name(), len: FOLDED_LEN_MAX as u64 };
        Ok(Self { accumulator: accumulator.map_err(memory)?, combine, len: 0 })
    }

    fn fold(&mut self, part: &[u8]) -> Result<(), ColumnsError> {
        let cap = FOLDED_LEN_MAX as u64;
        let mappings = Mappings::new()
            .writable(RegionId::ACCUMULATOR, &mut self.accumulator[..FOLDED_LEN_MAX])
            .read_only(RegionId::INPUT, part);
        let numbers = [self.len as u64, cap, part.len() as u64];
        let limits = Limits::for_bytes((self.len + part.len()) as u64, 0);
        self.len = self.combine.run(&mappings, &numbers, limits, cap)?;
        Ok(())
    }
}

/// The context: `ds_call`, then the structure with a pointer to each buffer.
fn context(columns: &ColumnSchema, args_len: usize) -> Vec<u8> {
    let mut context = vec![0; (COLUMNS_AT + columns.len_bytes) as usize];
    context[..DsCall::LEN_BYTES].copy_from_slice(call_of(args_len, 0).as_bytes());
    for (at, region) in columns.pointers().zip(RegionId::RANGE_FIRST.0..) {
        let at = (COLUMNS_AT + at) as usize;
        context[at..at + 8].copy_from_slice(&RegionId(region).base().to_le_bytes());
    }
    context
}

fn call_of(args_len: usize, out_cap: u64) -> DsCall {
    DsCall {
        size: (DsCall::LEN_BYTES as u32).into(),
        args_len: (args_len as u64).into(),
        out_cap: out_cap.into(),
        record_index: UNKNOWN.into(),
        source_len: UNKNOWN.into(),
        ..DsCall::default()
    }
}

fn unfit(function: &Function, what: &str) -> ColumnsError {
    ColumnsError::Unfit { function: function.main().entry().section.clone(), what: what.to_owned() }
}
