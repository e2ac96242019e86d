//! Runs shipped functions in both tiers, whole or in chunks.
#![allow(dead_code, reason = "each test binary uses a part")]

pub(crate) mod twins;

use diskside_abi::context::{DsCall, FLAG_FIRST, FLAG_LAST, UNKNOWN};
use diskside_engine::args;
use diskside_sbpf::activation::{Activation, ActivationOptions, Code, Limits, Mappings, Program, Returned, Stopped};
use diskside_sbpf::helpers::{HelperSet, standard};
use diskside_sbpf::image::{Image, Kind, Split};
use diskside_sbpf::region::RegionId;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};
use zerocopy::IntoBytes;

/// A function, ready to be called in each tier.
pub(crate) struct Function {
    pub(crate) image: Arc<Image>,
    main: Loaded,
    combine: Option<Loaded>,
}

/// A program and its code in each tier.
struct Loaded {
    program: Arc<Program>,
    tiers: OnceLock<[Arc<dyn Code>; 2]>,
}

impl Loaded {
    fn tiers(&self) -> [Arc<dyn Code>; 2] {
        let options = diskside_sbpf_cranelift::Options::default();
        let compile = || {
            let compiled = diskside_sbpf_cranelift::compile(self.program.optimised(), &options);
            let interpreter: Arc<dyn Code> = Arc::new(self.program.interpreter());
            let compiled: Arc<dyn Code> = Arc::new(compiled.expect("it compiles"));
            [interpreter, compiled]
        };
        self.tiers.get_or_init(compile).clone()
    }
}

/// Memory that a program may write: aligned as it must be.
struct Buffer {
    words: Vec<u64>,
    len: usize,
}

impl Buffer {
    fn new(len: usize) -> Self {
        Self { words: vec![0; len.div_ceil(8)], len }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.words.as_mut_bytes()[..self.len]
    }
}

pub(crate) fn helpers() -> Arc<HelperSet> {
    Arc::new(standard())
}

/// Loads a shipped function by name.
pub(crate) fn shipped(name: &str) -> Arc<Function> {
    static LOADED: Mutex<BTreeMap<String, Arc<Function>>> = Mutex::new(BTreeMap::new());
    if let Some(function) = LOADED.lock().unwrap().get(name) {
        return Arc::clone(function);
    }
    let all = diskside_functions::shipped();
    let found = all.iter().find(|f| f.name == name).unwrap_or_else(|| panic!("{name} is not shipped"));
    let function = Arc::new(load(found.object, name));
    LOADED.lock().unwrap().insert(name.to_owned(), Arc::clone(&function));
    function
}

/// Loads the function of this name from an object.
pub(crate) fn load(object: &[u8], name: &str) -> Function {
    let helpers = helpers();
    let image = Image::from_elf(object, &helpers).unwrap_or_else(|e| panic!("{name}: {e}"));
    let image = Arc::new(image);
    let program = |combine: bool| {
        let index = image.programs.iter().position(|p| p.name == name && (p.kind == Kind::Combine) == combine)?;
        match Program::new(&image, index, &helpers) {
            Ok(program) => Some(Loaded { program: Arc::new(program), tiers: OnceLock::new() }),
            Err(found) => panic!("{name}: {}", found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")),
        }
    };
    let main = program(false).unwrap_or_else(|| panic!("{name} is not in its object"));
    let combine = program(true);
    Function { image, main, combine }
}

impl Function {
    pub(crate) fn kind(&self) -> Kind {
        self.main.program.entry().kind
    }

    pub(crate) fn is_pure(&self) -> bool {
        self.main.program.verified().effects.is_pure()
    }

    pub(crate) fn folds(&self) -> bool {
        self.combine.is_some()
    }

    pub(crate) fn split(&self) -> Option<Split> {
        self.image.note.split
    }

    /// Encodes arguments as the command line does.
    pub(crate) fn args(&self, given: &[(&str, &str)]) -> Vec<u8> {
        let given: Vec<_> = given.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        match &self.main.program.entry().args {
            Some(schema) => args::encode(schema, &given).unwrap_or_else(|e| panic!("{e}")),
            None => Vec::new(),
        }
    }

    /// Runs over the whole input.
    pub(crate) fn run(&self, input: &[u8], given: &[(&str, &str)]) -> Result<Vec<u8>, i64> {
        self.chunk(input, 0, true, &self.args(given), self.out_cap(input.len()))
    }

    /// Runs over chunks that end at `cuts`, and folds or concatenates the outputs.
    pub(crate) fn run_in_chunks(&self, input: &[u8], cuts: &[usize], given: &[(&str, &str)]) -> Result<Vec<u8>, i64> {
        let args = self.args(given);
        let mut parts = Vec::new();
        let mut start = 0;
        for &end in cuts.iter().chain([&input.len()]) {
            let chunk = &input[start..end];
            let cap = self.out_cap(chunk.len());
            parts.push(self.chunk(chunk, start as u64, end == input.len(), &args, cap)?);
            start = end;
        }
        if self.combine.is_some() { self.fold(&parts) } else { Ok(parts.concat()) }
    }

    /// The room that the note asks for.
    pub(crate) fn out_cap(&self, in_len: usize) -> usize {
        let note = &self.image.note;
        let (num, den) = note.out_ratio;
        in_len * num as usize / den as usize + note.out_constant as usize
    }

    /// Folds parts with the function's `combine`.
    pub(crate) fn fold(&self, parts: &[Vec<u8>]) -> Result<Vec<u8>, i64> {
        let combine = self.combine.as_ref().expect("the function folds");
        let cap: usize = parts.iter().map(Vec::len).sum::<usize>() + 64;
        let mut acc = Buffer::new(cap);
        let mut acc_len = 0;
        for part in parts {
            let mut results = Vec::new();
            for code in combine.tiers() {
                let mut own = Buffer { words: acc.words.clone(), len: cap };
                let mut activation = Activation::new(&combine.program, code, ActivationOptions::default());
                let mappings =
                    Mappings::new().writable(RegionId::ACCUMULATOR, own.bytes()).read_only(RegionId::INPUT, part);
                let registers = combine.program.entry_registers(&[acc_len, cap as u64, part.len() as u64]);
                let limits = Limits::for_bytes(part.len() as u64, cap as u64);
                let returned = activation.call(&mappings, registers, &limits);
                results.push((outcome(returned), own.words));
            }
            let (first, rest) = results.split_first().unwrap();
            assert!(rest.iter().all(|r| r == first), "the tiers disagree");
            let (returned, words) = first.clone();
            let len = returned.unwrap_or_else(|trap| panic!("combine: {trap}")).0 as i64;
            if len < 0 {
                return Err(len);
            }
            acc_len = len as u64;
            acc.words = words;
        }
        Ok(acc.bytes()[..acc_len as usize].to_vec())
    }

    /// Runs one chunk in each tier and checks that they agree, to the last unit of budget.
    pub(crate) fn chunk(
        &self,
        input: &[u8],
        in_offset: u64,
        is_last: bool,
        args: &[u8],
        out_cap: usize,
    ) -> Result<Vec<u8>, i64> {
        let (outcome, words) = self.outcome(input, in_offset, is_last, args, out_cap);
        let (value, _) = outcome.unwrap_or_else(|trap| panic!("{}: {trap}", self.main.program.entry().name));
        match value as i64 {
            error if error < 0 => Err(error),
            len => Ok(words.as_bytes()[..len as usize].to_vec()),
        }
    }

    /// As [`Function::chunk`]: what was returned or the trap, the budget left, and the output.
    pub(crate) fn outcome(
        &self,
        input: &[u8],
        in_offset: u64,
        is_last: bool,
        args: &[u8],
        out_cap: usize,
    ) -> (Result<(u64, u64), String>, Vec<u64>) {
        let flags = if in_offset == 0 { FLAG_FIRST } else { 0 } | if is_last { FLAG_LAST } else { 0 };
        let call = DsCall {
            size: (DsCall::LEN_BYTES as u32).into(),
            flags: flags.into(),
            args_len: (args.len() as u64).into(),
            out_cap: (out_cap as u64).into(),
            in_offset: in_offset.into(),
            record_index: UNKNOWN.into(),
            source_len: UNKNOWN.into(),
            source_index: 0.into(),
            chunk_index: 0.into(),
        };
        let lambda = diskside_abi::context::LambdaContext {
            buf_o: RegionId::OUTPUT.base().into(),
            buf_i: RegionId::INPUT.base().into(),
            size_i: (input.len() as u64).into(),
        };
        let mut results = Vec::new();
        for code in self.main.tiers() {
            let mut out = Buffer::new(out_cap);
            let mappings = Mappings::new().read_only(RegionId::INPUT, input).writable(RegionId::OUTPUT, out.bytes());
            let mappings = match self.kind() {
                Kind::LambdaIo => mappings.read_only(RegionId::CONTEXT, lambda.as_bytes()),
                Kind::Lambda => mappings,
                _ => mappings.read_only(RegionId::ARGS, args).read_only(RegionId::CONTEXT, call.as_bytes()),
            };
            let mut activation = Activation::new(&self.main.program, code, ActivationOptions::default());
            let registers = self.main.program.entry_registers(&[input.len() as u64]);
            let limits = Limits::for_bytes(input.len() as u64, out_cap as u64);
            let returned = activation.call(&mappings, registers, &limits);
            results.push((outcome(returned), out.words));
        }
        let first = results.swap_remove(0);
        for other in results {
            assert_eq!(first.0, other.0, "{}: the tiers disagree", self.main.program.entry().name);
            assert!(first.1 == other.1, "{}: the tiers' outputs differ", self.main.program.entry().name);
        }
        first
    }
}

fn outcome(returned: Result<Returned, Stopped>) -> Result<(u64, u64), String> {
    match returned {
        Ok(r) => Ok((r.value, r.edges_left)),
        Err(stopped) => Err(stopped.to_string()),
    }
}

/// The output as little-endian words.
pub(crate) fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().unwrap())).collect()
}

/// Bytes of numbers, little-endian.
pub(crate) fn bytes_of<T: Copy, const N: usize>(values: &[T], to_bytes: fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|&v| to_bytes(v)).collect()
}

/// Ascending cuts of `len` at multiples of `unit`.
pub(crate) fn cuts(picks: &[proptest::sample::Index], len: usize, unit: usize) -> Vec<usize> {
    let units = len / unit;
    let mut cuts: Vec<usize> = picks.iter().filter(|_| units > 0).map(|p| p.index(units + 1) * unit).collect();
    cuts.sort_unstable();
    cuts
}

pub(crate) const EINVAL: i64 = -22;
pub(crate) const ENOSPC: i64 = -28;
