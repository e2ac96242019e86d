//! Runs a case in all ways, compares, and makes a failing case small.

use crate::case::{Case, Origin};
use crate::compile;
use crate::ending::Ending;
use crate::generate::{Program, Source};
use crate::input::Form;
use crate::place::{self, Way};
use crate::rule::Grid;
use crate::trace::{Row, UNKNOWN};
use crate::world::World;
use diskside::LlvmOptions;
use diskside::session::{Decompress, File, SessionError, SessionFunction};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a piece that are usual.
const PIECE_LEN: usize = 4 << 20;

/// Where objects and failing cases are kept.
#[derive(Debug)]
pub struct Oracle {
    world: World,
    dir: PathBuf,
    has_llvm: bool,
}

/// A case that does not end the same way everywhere.
#[derive(Clone, Debug)]
pub struct Difference {
    /// What was run.
    pub case: Case,
    /// In which way it ended otherwise than the first; `None`: the first one ended otherwise than it should.
    pub way: Option<Way>,
    /// How.
    pub what: String,
}

/// A function of a case, ready to run.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The function.
    pub function: SessionFunction,
    args: Arguments,
    program: Option<Program>,
}

/// Arguments of a function.
#[derive(Clone, Debug)]
enum Arguments {
    /// As it sees them.
    Encoded(Vec<u8>),
    /// As they are given, to which the first line of the input comes, under this name.
    WithFirstLine(Vec<(String, String)>, String),
}

impl Loaded {
    /// Its arguments as it sees them, over an input that begins with this file.
    ///
    /// # Errors
    /// The file has no first line.
    ///
    /// # Panics
    /// If the line is not an argument.
    pub fn args(&self, first: &File, decompress: Decompress) -> Result<Vec<u8>, SessionError> {
        match &self.args {
            Arguments::Encoded(args) => Ok(args.clone()),
            Arguments::WithFirstLine(given, name) => {
                let mut given = given.clone();
                given.push((name.clone(), first.first_line(decompress)?));
                let schema = self.function.args().expect("it has arguments");
                Ok(diskside::args::encode(schema, &given).expect("a line of text is one"))
            }
        }
    }
}

impl Oracle {
    /// One with targets of its own. `dir` is for objects and failing cases.
    #[must_use]
    pub fn new(dir: &Path) -> Self {
        Self::over(World::new(), dir)
    }

    /// One with these targets.
    #[must_use]
    pub fn over(world: World, dir: &Path) -> Self {
        Self { world, dir: dir.to_owned(), has_llvm: LlvmOptions::find().is_some() }
    }

    /// Its targets and sessions.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Runs a case in all ways.
    ///
    /// # Errors
    /// The first difference, of the smallest case that was found to have one.
    pub fn check(&self, case: &Case) -> Result<(), Box<Difference>> {
        let mut ways = Way::others(case, self.has_llvm);
        // Chunks are files of exports.
        ways.retain(|way| match way {
            Way::Chunk(..) => self.world.has_exports(),
            Way::Objects(_) => self.world.has_objects(),
            _ => true,
        });
        self.check_in(case, &ways).map_err(|found| self.shrink(found))
    }

    /// The text of a difference for a user: how to see it again.
    #[must_use]
    pub fn tell(&self, difference: &Difference) -> String {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let Difference { case, way, what } = difference;
        let way = way.map_or_else(|| format!("{:?}", Way::first(case)), |way| format!("{way:?}"));
        let name = format!("failure-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let path = self.dir.join(name).with_extension("case");
        let mut kept = case.clone();
        if let Origin::Generated(seed, name) = &case.origin {
            let source = path.with_extension("bpf.c");
            if std::fs::write(&source, Source::of(*seed).text).is_ok() {
                kept.origin = Origin::Source(source, name.clone());
            }
        }
        let written = std::fs::write(&path, format!("# {way}\n{kept}"));
        let again = match written {
            Ok(()) => format!("DISKSIDE_ORACLE_CASE={} cargo test -p diskside-oracle a_case", path.display()),
            Err(error) => format!("{} cannot be written: {error}", path.display()),
        };
        format!("{way} gave {what}\nof\n{case}again: {again}\n")
    }

    /// How a case ends over files of this machine, which is how it is to end everywhere.
    #[must_use]
    pub fn first(&self, case: &Case, loaded: &Loaded) -> Ending {
        Way::first(case).run(&self.world, case, loaded)
    }

    /// A case's arguments as its function sees them, over files of this machine.
    ///
    /// # Errors
    /// Of these its function wants the first line of a file that has none.
    pub fn args(&self, case: &Case, loaded: &Loaded) -> Result<Vec<u8>, SessionError> {
        loaded.args(&place::here(&self.world.told, &self.world, &case.inputs[0]), Decompress::Auto)
    }

    fn check_in(&self, case: &Case, ways: &[Way]) -> Result<(), Box<Difference>> {
        let failed = |way: Option<Way>, what: String| Box::new(Difference { case: case.clone(), way, what });
        let loaded = self.load(case).map_err(|why| failed(None, why))?;
        let wanted = self.first(case, &loaded);
        if let Some(what) = self.against_the_rule(case, &loaded, &wanted) {
            return Err(failed(None, what));
        }
        match (&case.fails, &wanted) {
            (Some(text), Ending::Failed(found)) if !fits(&found.text, text) => {
                return Err(failed(None, format!("`{}` instead of `{text}`", found.text)));
            }
            (Some(text), Ending::Gave(_)) => return Err(failed(None, format!("{wanted} instead of `{text}`"))),
            _ => {}
        }
        for &way in ways {
            let found = way.run(&self.world, case, &loaded);
            let differs = match way {
                Way::Local(_, threads) | Way::Device(_, threads) if threads > 1 => {
                    found.without_log().difference(&wanted.clone().without_log())
                }
                _ => found.difference(&wanted),
            };
            if let Some(what) = differs {
                return Err(failed(Some(way), what));
            }
        }
        Ok(())
    }

    /// For a program that traces: whether its calls are those of the rule.
    fn against_the_rule(&self, case: &Case, loaded: &Loaded, ending: &Ending) -> Option<String> {
        let program = loaded.program.as_ref().filter(|program| program.traces)?;
        let (Ending::Gave(gave), [input], None) = (ending, &case.inputs[..], case.split) else { return None };
        let bytes = input.bytes();
        let len = bytes.len() as u64;
        let grid = Grid {
            records: program.declared.cuts(case.folds),
            piece_records: program.declared.piece_records,
            chunk_len: case.chunk_len.unwrap_or(PIECE_LEN) as u64,
        };
        let pieces = grid.pieces(&bytes, case.range.clone().unwrap_or(0..len));
        // The length of decompressed bytes is unknown before their end.
        let source_len = if matches!(input.form, Form::Plain | Form::Npy) { len } else { UNKNOWN };
        let wanted: Vec<Row> = pieces.iter().map(|piece| Row::of(piece, source_len)).collect();
        let found = Row::read(&gave.bytes);
        if found == wanted {
            return None;
        }
        let at = found.iter().zip(&wanted).take_while(|(a, b)| a == b).count();
        let (here, there) = (found.get(at), wanted.get(at));
        let counts = (found.len(), wanted.len());
        Some(format!("{} calls instead of {}; call {at} was {here:?} instead of {there:?}", counts.0, counts.1))
    }

    /// The function of a case.
    ///
    /// # Errors
    /// Why it cannot be compiled or loaded, or what is wrong with its arguments.
    pub fn load(&self, case: &Case) -> Result<Loaded, String> {
        let session = &self.world.told;
        let (function, program) = match &case.origin {
            Origin::Shipped(name) => (session.function(name).map_err(|error| error.to_string())?, None),
            Origin::Generated(seed, name) => {
                let Source { text, programs } = Source::of(*seed);
                let program = programs.into_iter().find(|program| program.name == *name);
                let program = program.ok_or_else(|| format!("the source of seed {seed} has no {name}"))?;
                (self.load_source(&text, "case.bpf.c", name)?, Some(program))
            }
            Origin::Source(path, name) => {
                let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
                (self.load_source(&text, &called(path), name)?, None)
            }
        };
        let args = match function.args() {
            Some(schema) => match diskside::args::wants_first_line(schema, &case.args) {
                Some(name) => Arguments::WithFirstLine(case.args.clone(), name.to_owned()),
                None => {
                    let args = diskside::args::encode(schema, &case.args);
                    Arguments::Encoded(args.map_err(|error| error.to_string())?)
                }
            },
            None => Arguments::Encoded(Vec::new()),
        };
        Ok(Loaded { function, args, program })
    }

    fn load_source(&self, text: &str, file: &str, name: &str) -> Result<SessionFunction, String> {
        let object = compile::object(text, file, &self.dir.join("objects"))?;
        self.world.told.load(&object, Some(name)).map_err(|error| format!("{error}\n{text}"))
    }

    /// Makes inputs shorter and leaves things out as long as it still fails in the same way.
    fn shrink(&self, mut found: Box<Difference>) -> Box<Difference> {
        if found.case.fails.is_some() {
            // Of another case it would be another text.
            return found;
        }
        // A choice by measurement may be another at times.
        let ways: Vec<Way> = found.way.map_or_else(Vec::new, |way| vec![way; 3]);
        let mut left = SHRINKS_MAX;
        while let Some(smaller) = smaller(&found.case).into_iter().find_map(|case| {
            left = usize::checked_sub(left, 1)?;
            self.check_in(&case, &ways).err()
        }) {
            found = smaller;
        }
        found
    }
}

/// What a source is called, wherever it lies.
fn called(path: &Path) -> String {
    path.file_name().map_or_else(|| "case.bpf.c".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Whether a text is a pattern, in which `%` is anything.
fn fits(text: &str, pattern: &str) -> bool {
    let mut parts = pattern.split('%');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut is_open = false;
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
        is_open = part.is_empty();
    }
    rest.is_empty() || is_open
}

/// Cases that are tried to make one small.
const SHRINKS_MAX: usize = 60;

/// Cases with less in them.
fn smaller(case: &Case) -> Vec<Case> {
    let mut cases = Vec::new();
    for (at, input) in case.inputs.iter().enumerate().filter(|(_, input)| input.len > 0) {
        for len in [input.len / 2, input.len - input.len.div_ceil(4), input.len - 1] {
            let mut smaller = case.clone();
            smaller.inputs[at].len = len;
            if let Some(range) = &mut smaller.range {
                *range = range.start.min(len as u64)..range.end.min(len as u64);
            }
            cases.push(smaller);
        }
        if case.inputs.len() > 1 {
            let mut smaller = case.clone();
            smaller.inputs.remove(at);
            cases.push(smaller);
        }
    }
    if case.range.is_some() {
        cases.push(Case { range: None, ..case.clone() });
    }
    if case.budget.is_some() {
        cases.push(Case { budget: None, ..case.clone() });
    }
    cases
}
