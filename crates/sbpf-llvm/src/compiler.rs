//! The child: found, started, given time, listened to.

use crate::wire::{ANSWER_LEN_MAX, Answer};
use diskside_child::Program;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Name of the program that holds LLVM.
pub const PROGRAM: &str = "diskside-llvm";
/// The variable that says where it is; empty for nowhere.
pub const VARIABLE: &str = "DISKSIDE_LLVM";

/// The program that compiles, started again for each function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Compiler {
    program: Program,
    cpu: Option<String>,
    time_max: Duration,
}

/// Why a child gave no object.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// It is not there, or may not be started.
    #[error("{} cannot be started: {error}", .program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// It took too long and was stopped.
    #[error("the compiler did not answer within {} ms and was stopped", .time_max.as_millis())]
    TimedOut {
        /// The time that it was given.
        time_max: Duration,
    },
    /// It ended otherwise than well.
    #[error("the compiler ended with {status}")]
    Crashed {
        /// How it ended.
        status: ExitStatus,
    },
    /// Its output is not an answer.
    #[error("the compiler's answer makes no sense: {0}")]
    Garbage(&'static str),
    /// It said no.
    #[error("LLVM refused: {0}")]
    Refused(String),
    /// The pipe to or from it broke.
    #[error("talking to the compiler: {0}")]
    Pipe(std::io::Error),
}

/// Whether this processor can run code for a baseline; `None` for an unknown one.
#[cfg(target_arch = "x86_64")]
fn has_baseline(name: &str) -> Option<bool> {
    use std::arch::is_x86_feature_detected as has;
    let v2 = has!("sse4.2") && has!("ssse3") && has!("popcnt") && has!("cmpxchg16b");
    let v3 = v2 && has!("avx2") && has!("bmi1") && has!("bmi2") && has!("f16c") && has!("fma") && has!("lzcnt");
    let v3 = v3 && has!("movbe") && has!("xsave");
    let v4 = v3 && has!("avx512f") && has!("avx512bw") && has!("avx512cd") && has!("avx512dq") && has!("avx512vl");
    match name {
        "x86-64" => Some(true),
        "x86-64-v2" => Some(v2),
        "x86-64-v3" => Some(v3),
        "x86-64-v4" => Some(v4),
        _ => None,
    }
}

/// As above: this tier has no baselines of other processors.
#[cfg(not(target_arch = "x86_64"))]
fn has_baseline(_name: &str) -> Option<bool> {
    None
}

impl Compiler {
    /// The time that it may take by default.
    pub const TIME_MAX: Duration = Duration::from_secs(20);

    /// The program at this place.
    #[must_use]
    pub fn at(program: impl Into<PathBuf>) -> Self {
        Self::of(Program::at(program))
    }

    fn of(program: Program) -> Self {
        Self { program, cpu: None, time_max: Self::TIME_MAX }
    }

    /// The one that `DISKSIDE_LLVM` names, that lies beside the running program, or that `PATH` finds: programs that use
    /// libdiskside lie anywhere. `None` when there is none, or `DISKSIDE_LLVM` is empty.
    #[must_use]
    pub fn find() -> Option<Self> {
        Program::find(PROGRAM, VARIABLE).map(Self::of)
    }

    /// Compiles for a baseline instead of the processor that it runs on: `x86-64`, `x86-64-v2`,
    /// `x86-64-v3` or `x86-64-v4`.
    ///
    /// # Errors
    /// It is none of these, or this processor lacks it.
    pub fn with_baseline(mut self, name: &str) -> Result<Self, String> {
        match has_baseline(name) {
            Some(true) => self.cpu = Some(name.to_owned()),
            Some(false) => return Err(format!("this processor is no {name}")),
            None => return Err(format!("`{name}` is none of x86-64, x86-64-v2, x86-64-v3 and x86-64-v4")),
        }
        Ok(self)
    }

    /// Stops it after this time.
    #[must_use]
    pub fn with_time_max(mut self, time_max: Duration) -> Self {
        self.time_max = time_max;
        self
    }

    /// Where it is.
    #[must_use]
    pub fn program(&self) -> &Path {
        self.program.path()
    }

    /// The LLVM and the processor: all that the code depends on besides its input.
    ///
    /// # Errors
    /// Why it did not say.
    pub fn identity(&self) -> Result<String, ChildError> {
        let bytes = self.run(&["--identity"], &[])?;
        let text = String::from_utf8(bytes).map_err(|_| ChildError::Garbage("its identity is no text"))?;
        Ok(text.trim_end().to_owned())
    }

    /// Has it compile text to an object; gives that with the optimiser's remarks.
    pub(crate) fn compile(&self, text: &str) -> Result<(Vec<u8>, String), ChildError> {
        let bytes = self.run(&[], text.as_bytes())?;
        match Answer::parse(&bytes).map_err(ChildError::Garbage)? {
            Answer::Object { remarks, object } => Ok((object, remarks)),
            Answer::Error(message) => Err(ChildError::Refused(message)),
        }
    }

    /// Has it make an eBPF object, with stack frames of this many bytes, from the bitcode that a front end wrote for eBPF.
    /// Operations that eBPF has no instructions for become calls of the sandbox's helpers.
    ///
    /// # Errors
    /// The problem with the module ([`ChildError::Refused`], lines as clang prints them), or with the child.
    pub fn lower(&self, bitcode: &[u8], stack_bytes: u32) -> Result<Vec<u8>, ChildError> {
        let bytes = self.run(&["--bpf", &stack_bytes.to_string()], bitcode)?;
        match Answer::parse(&bytes).map_err(ChildError::Garbage)? {
            Answer::Object { object, .. } => Ok(object),
            Answer::Error(message) => Err(ChildError::Refused(message)),
        }
    }

    fn run(&self, flags: &[&str], input: &[u8]) -> Result<Vec<u8>, ChildError> {
        let mut args: Vec<OsString> = flags.iter().map(OsString::from).collect();
        if let Some(cpu) = &self.cpu {
            args.extend(["--cpu".into(), cpu.into()]);
        }
        let mut child = self
            .program
            .command()
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| ChildError::Start { program: self.program().to_owned(), error })?;
        let answer = self.converse(&mut child, input);
        if answer.is_err() {
            // It may have ended already.
            let _ = child.kill();
        }
        let status = child.wait().map_err(ChildError::Pipe)?;
        let (bytes, written) = answer?;
        if !status.success() {
            return Err(ChildError::Crashed { status });
        }
        written.map_err(ChildError::Pipe)?;
        if bytes.len() > ANSWER_LEN_MAX {
            return Err(ChildError::Garbage("it is too long"));
        }
        Ok(bytes)
    }

    /// Writes all and reads all, in the time given. Dropping the pipes when the child is killed ends
    /// the thread.
    fn converse(&self, child: &mut Child, input: &[u8]) -> Result<(Vec<u8>, std::io::Result<()>), ChildError> {
        let (Some(mut to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(ChildError::Garbage("it has no pipes"));
        };
        let (send, done) = channel();
        let input = input.to_vec();
        std::thread::Builder::new()
            .name("llvm child".into())
            .spawn(move || {
                let written = to.write_all(&input);
                drop(to);
                let mut bytes = Vec::new();
                let read = from.take(ANSWER_LEN_MAX as u64 + 1).read_to_end(&mut bytes);
                let _ = send.send(read.map(|_| (bytes, written)));
            })
            .map_err(ChildError::Pipe)?;
        match done.recv_timeout(self.time_max) {
            Ok(answer) => answer.map_err(ChildError::Pipe),
            Err(_) => Err(ChildError::TimedOut { time_max: self.time_max }),
        }
    }
}
