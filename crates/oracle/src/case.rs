//! The run of a case: a function, its arguments, and its input. As text, a line for each thing.

use crate::input::{Form, Input};
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Where a function comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// It is shipped, by this name.
    Shipped(String),
    /// The program of this name of a C source.
    Source(PathBuf, String),
    /// The program of this name of a [generated](crate::generate::Source) source, by its seed.
    Generated(u64, String),
}

/// How records end, where the caller says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Said {
    /// After newlines.
    Lines,
    /// After so many bytes.
    Records(u32),
}

/// One case.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Case {
    /// What runs.
    pub origin: Origin,
    /// Its arguments.
    pub args: Vec<(String, String)>,
    /// Over which files: each is at a target of its own where it is at one.
    pub inputs: Vec<Input>,
    /// Over which bytes of the only file; `None` for all.
    pub range: Option<Range<u64>>,
    /// Bytes of a piece; `None` for what is usual.
    pub chunk_len: Option<usize>,
    /// How records end; `None` for what the function says.
    pub split: Option<Said>,
    /// Iterations of a piece.
    pub budget: Option<u64>,
    /// Whether results are folded.
    pub folds: bool,
    /// Bytes of the named state, if it has one.
    pub state_len: Option<u32>,
    /// The error that it ends with everywhere, with `FILE` for the file's name and `%` for anything.
    pub fails: Option<String>,
}

impl Case {
    /// Over all of an input, with what is usual.
    #[must_use]
    pub fn new(origin: Origin, input: Input) -> Self {
        Self {
            origin,
            args: Vec::new(),
            inputs: vec![input],
            range: None,
            chunk_len: None,
            split: None,
            budget: None,
            folds: true,
            state_len: None,
            fails: None,
        }
    }

    /// Whether a file is not stored as the function sees it.
    #[must_use]
    pub fn is_packed(&self) -> bool {
        self.inputs.iter().any(|input| input.form != Form::Plain)
    }

    /// The same over files that are stored as the function sees them.
    #[must_use]
    pub fn unpacked(&self) -> Self {
        let inputs = self.inputs.iter().map(|input| Input { form: Form::Plain, ..*input }).collect();
        Self { inputs, ..self.clone() }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::Shipped(name) => writeln!(f, "function {name}")?,
            Origin::Source(path, name) => writeln!(f, "source {} {name}", path.display())?,
            Origin::Generated(seed, name) => writeln!(f, "generated {seed} {name}")?,
        }
        let args: Vec<String> = self.args.iter().map(|(name, value)| format!("{name}={value}")).collect();
        if !args.is_empty() {
            writeln!(f, "args {}", args.join(" "))?;
        }
        let inputs: Vec<String> = self.inputs.iter().map(ToString::to_string).collect();
        writeln!(f, "input {}", inputs.join("+"))?;
        if let Some(range) = &self.range {
            writeln!(f, "range {}..{}", range.start, range.end)?;
        }
        if let Some(len) = self.chunk_len {
            writeln!(f, "chunk {len}")?;
        }
        match self.split {
            Some(Said::Lines) => writeln!(f, "split lines")?,
            Some(Said::Records(len)) => writeln!(f, "split records:{len}")?,
            None => {}
        }
        if let Some(budget) = self.budget {
            writeln!(f, "budget {budget}")?;
        }
        if let Some(len) = self.state_len {
            writeln!(f, "state {len}")?;
        }
        if !self.folds {
            writeln!(f, "no-combine")?;
        }
        if let Some(text) = &self.fails {
            writeln!(f, "fails {text}")?;
        }
        Ok(())
    }
}

/// The cases of a text: `function`, `source` or `generated` begins one, and what may be said more than once (`args`, `input`,
/// `chunk`, `split`) makes a case of each combination, over one `range` after another. A line that begins with `#` is a comment.
///
/// # Errors
/// The line that is wrong, and why.
pub fn parse(text: &str) -> Result<Vec<Case>, String> {
    let mut cases = Vec::new();
    let mut written: Option<Written> = None;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (what, rest) = line.split_once(' ').unwrap_or((line, ""));
        let wrong = |why: String| format!("line {}: {why}", number + 1);
        if let Some(origin) = origin(what, rest).map_err(wrong)? {
            cases.extend(written.replace(Written::of(origin)).into_iter().flat_map(Written::cases));
            continue;
        }
        let written =
            written.as_mut().ok_or_else(|| wrong("it begins with `function`, `source` or `generated`".into()))?;
        written.take(what, rest.trim()).map_err(wrong)?;
    }
    cases.extend(written.into_iter().flat_map(Written::cases));
    Ok(cases)
}

fn origin(what: &str, rest: &str) -> Result<Option<Origin>, String> {
    let two = || rest.trim().split_once(' ').ok_or_else(|| format!("`{what}` is followed by two words"));
    Ok(Some(match what {
        "function" => Origin::Shipped(rest.trim().to_owned()),
        "source" => Origin::Source(two()?.0.into(), two()?.1.trim().to_owned()),
        "generated" => {
            let (seed, name) = two()?;
            Origin::Generated(seed.parse().map_err(|_| format!("`{seed}` is no seed"))?, name.trim().to_owned())
        }
        _ => return Ok(None),
    }))
}

/// Cases of more pieces take too long: of a long input and short pieces there is none.
const PIECES_MAX: usize = 500;

/// What is written of one function.
struct Written {
    origin: Origin,
    args: Vec<Vec<(String, String)>>,
    inputs: Vec<Vec<Input>>,
    ranges: Vec<Option<Range<u64>>>,
    chunk_lens: Vec<Option<usize>>,
    splits: Vec<Option<Said>>,
    budget: Option<u64>,
    folds: bool,
    state_len: Option<u32>,
    fails: Option<String>,
}

impl Written {
    fn of(origin: Origin) -> Self {
        Self {
            origin,
            args: Vec::new(),
            inputs: Vec::new(),
            ranges: Vec::new(),
            chunk_lens: Vec::new(),
            splits: Vec::new(),
            budget: None,
            folds: true,
            state_len: None,
            fails: None,
        }
    }

    fn take(&mut self, what: &str, rest: &str) -> Result<(), String> {
        let number = |text: &str| text.parse::<u64>().map_err(|_| format!("`{text}` is no number"));
        match what {
            "args" => {
                let pair = |arg: &str| arg.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
                let args = rest.split(' ').filter(|arg| !arg.is_empty()).map(pair).collect::<Option<_>>();
                self.args.push(args.ok_or("an argument is NAME=VALUE")?);
            }
            "input" => {
                for inputs in rest.split(' ') {
                    self.inputs.push(inputs.split('+').map(some).collect::<Result<Vec<_>, _>>()?.concat());
                }
            }
            "range" => {
                for range in rest.split(' ') {
                    let (start, end) = range.split_once("..").ok_or("a range is START..END, or .. for all")?;
                    let all = start.is_empty() && end.is_empty();
                    self.ranges.push(if all { None } else { Some(number(start)?..number(end)?) });
                }
            }
            "chunk" => {
                for len in rest.split(' ') {
                    self.chunk_lens.push(if len == "usual" { None } else { Some(number(len)? as usize) });
                }
            }
            "split" => self.splits.push(match rest.strip_prefix("records:") {
                Some(len) => Some(Said::Records(number(len)? as u32)),
                None if rest == "lines" => Some(Said::Lines),
                None if rest == "function" => None,
                None => return Err("split is lines, records:N or function".into()),
            }),
            "budget" => self.budget = Some(number(rest)?),
            "state" => self.state_len = Some(number(rest)? as u32),
            "fails" => self.fails = Some(rest.to_owned()),
            "no-combine" => self.folds = false,
            _ => return Err(format!("`{what}` is not among what a case says")),
        }
        Ok(())
    }

    /// Each combination, except the ranges, and those that are too much.
    fn cases(self) -> Vec<Case> {
        fn or<T: Clone>(list: &[T], usual: T) -> Vec<T> {
            if list.is_empty() { vec![usual] } else { list.to_vec() }
        }
        let mut cases: Vec<Case> = Vec::new();
        let ranges = or(&self.ranges, None);
        for args in or(&self.args, Vec::new()) {
            for split in or(&self.splits, None) {
                for inputs in &self.inputs {
                    for chunk_len in or(&self.chunk_lens, None) {
                        let len = inputs[0].len as u64;
                        if chunk_len.is_some_and(|chunk_len| len > (chunk_len * PIECES_MAX) as u64) {
                            continue;
                        }
                        let fits = |range: &&Range<u64>| range.end <= len && inputs.len() == 1;
                        // Ranges take turns: each with every other would be many.
                        let range = ranges[cases.len() % ranges.len()].as_ref().filter(fits).cloned();
                        cases.push(Case {
                            origin: self.origin.clone(),
                            args: args.clone(),
                            inputs: inputs.clone(),
                            range,
                            chunk_len,
                            split,
                            budget: self.budget,
                            folds: self.folds,
                            state_len: self.state_len,
                            fails: self.fails.clone(),
                        });
                    }
                }
            }
        }
        cases
    }
}

/// An input, or `N*INPUT`: so many, each of another seed.
fn some(text: &str) -> Result<Vec<Input>, String> {
    let Some((count, input)) = text.split_once('*') else { return Ok(vec![text.parse()?]) };
    let count: u64 = count.parse().map_err(|_| format!("`{count}` is no number of inputs"))?;
    let input: Input = input.parse()?;
    Ok((0..count).map(|number| Input { seed: input.seed + number, ..input }).collect())
}

/// The cases of a file, whose sources lie beside it.
///
/// # Errors
/// As [`parse`], and if it cannot be read.
pub fn read(path: &Path) -> Result<Vec<Case>, String> {
    let failed = |why: String| format!("{}: {why}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    let mut cases = parse(&text).map_err(failed)?;
    for case in &mut cases {
        if let Origin::Source(source, _) = &mut case.origin {
            *source = path.with_file_name(&*source);
        }
    }
    Ok(cases)
}
