//! C source to eBPF objects.
//!
//! clang compiles what eBPF has instructions for. Where it refuses a source for floating-point numbers, signed division,
//! copies of many bytes or the size of the stack, its bitcode goes through [`Compiler`], the confined child that holds
//! LLVM, which turns these into calls of the sandbox's helpers. A stack that is too small grows until the variables fit.

#![forbid(unsafe_code)]

mod explain;

use diskside_functions::clang;
use diskside_sbpf_llvm::{ChildError, Compiler};
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Why source did not become an object.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// No clang that can compile for BPF.
    #[error("no clang was found to compile {}: install one (Debian: apt-get install clang-19), or set DISKSIDE_CLANG", .0.display())]
    NoClang(PathBuf),
    /// The source is refused.
    #[error("{} does not compile:\n{stderr}", path.display())]
    Refused {
        /// Which file.
        path: PathBuf,
        /// What was said of it.
        stderr: String,
    },
    /// Clang cannot be run.
    #[error("{} cannot be run to compile {}: {source}; set DISKSIDE_CLANG to a clang that can", clang.display(), path.display())]
    CannotRun {
        /// The compiler.
        clang: PathBuf,
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The child that lowers gave no answer.
    #[error("{} cannot be compiled: {source}", path.display())]
    Child {
        /// Which file.
        path: PathBuf,
        /// What became of it.
        source: ChildError,
    },
    /// The source cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The environment is at fault.
    #[error("cannot compile {}: {source}", path.display())]
    Environment {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// The programs that compile.
#[derive(Clone, Debug)]
pub struct Toolchain {
    clang: Option<PathBuf>,
    lowering: Option<Compiler>,
    time_max: Duration,
}

/// Bytes of a stack that a source does not ask for.
const STACK_BYTES: u32 = 512;
/// The sizes that are tried when the variables do not fit: up to the most that an object may ask for.
const STACKS_BYTES: [u32; 6] = [2048, 8192, 32 << 10, 128 << 10, 512 << 10, 1 << 20];

/// Headers of C that functions include by C's names.
const LIBC: [&str; 1] = ["math.h"];

/// Compiles `path` with the headers of this product and the programs that are here.
///
/// # Errors
/// No clang, or what was said of the source.
pub fn compile(path: &Path) -> Result<Vec<u8>, CompileError> {
    Toolchain::find().compile(path)
}

/// As [`compile`], by this clang instead of the one that is found.
///
/// # Errors
/// No clang, or what was said of the source.
pub fn compile_by(path: &Path, clang: Option<&Path>) -> Result<Vec<u8>, CompileError> {
    Toolchain::find().with_clang(clang).compile(path)
}

/// As [`compile_by`], a source that is in no file. `name`, such as `sum.bpf.c`, is what messages and traps call it.
///
/// # Errors
/// No clang, or what was said of the source.
pub fn compile_text(name: &str, text: &str, clang: Option<&Path>) -> Result<Vec<u8>, CompileError> {
    // A name alone, so that nothing is written elsewhere.
    let called = Path::new(Path::new(name).file_name().unwrap_or_else(|| "function.bpf.c".as_ref()));
    let environment = |source| CompileError::Environment { path: called.to_owned(), source };
    let dir = headers().map_err(environment)?;
    std::fs::write(dir.path().join(called), text).map_err(environment)?;
    Toolchain::find().with_clang(clang).compile_in(dir, called, text, true)
}

/// Makes an object of LLVM's bitcode for eBPF, as any front end writes it.
///
/// # Errors
/// What was said of it.
pub fn lower(path: &Path, stack_bytes: Option<u32>) -> Result<Vec<u8>, CompileError> {
    let bitcode = std::fs::read(path).map_err(|source| CompileError::Read { path: path.to_owned(), source })?;
    lower_module(path, &bitcode, stack_bytes)
}

/// As [`lower`], a module that is in no file: bitcode, or text in LLVM's language. `name` is what messages call it.
///
/// # Errors
/// What was said of it.
pub fn lower_module(name: &Path, module: &[u8], stack_bytes: Option<u32>) -> Result<Vec<u8>, CompileError> {
    let refused = |stderr| CompileError::Refused { path: name.to_owned(), stderr };
    let child = Compiler::find().ok_or_else(|| refused(explain::NO_LOWERING.to_owned()))?;
    match child.lower(module, stack_bytes.unwrap_or(STACK_BYTES)) {
        Ok(object) => Ok(object),
        Err(ChildError::Refused(text)) => Err(refused(explain::explain(&text, &explain::Means::default()))),
        Err(source) => Err(CompileError::Child { path: name.to_owned(), source }),
    }
}

/// Whether the child is here that lowers floating-point numbers, signed division and long copies.
#[must_use]
pub fn has_lowering() -> bool {
    Compiler::find().is_some()
}

impl Toolchain {
    /// The programs that are here: see [`clang::find_newest`] and [`Compiler::find`].
    #[must_use]
    pub fn find() -> Self {
        Self { clang: clang::find_newest(), lowering: Compiler::find(), time_max: TIME_MAX }
    }

    /// The same without the child that lowers.
    #[must_use]
    pub fn without_lowering(self) -> Self {
        Self { lowering: None, ..self }
    }

    /// The same with another clang, if one is named.
    #[must_use]
    pub fn with_clang(self, clang: Option<&Path>) -> Self {
        Self { clang: clang.map(Path::to_owned).or(self.clang), ..self }
    }

    /// Compiles a source.
    ///
    /// # Errors
    /// As [`compile`].
    pub fn compile(&self, path: &Path) -> Result<Vec<u8>, CompileError> {
        let text = std::fs::read(path).map_err(|source| CompileError::Read { path: path.to_owned(), source })?;
        let dir = headers().map_err(|source| CompileError::Environment { path: path.to_owned(), source })?;
        self.compile_in(dir, path, &String::from_utf8_lossy(&text), false)
    }

    /// Compiles a source with the headers of a directory; `inside` when it lies there, too.
    fn compile_in(&self, dir: TempDir, path: &Path, text: &str, inside: bool) -> Result<Vec<u8>, CompileError> {
        let clang = self.clang.as_deref().ok_or_else(|| CompileError::NoClang(path.to_owned()))?;
        let source = Source { path, clang, lowering: self.lowering.as_ref(), time_max: self.time_max, dir, inside };
        let declared = declared_stack(text);
        let mut refusal = match source.attempt(declared.unwrap_or(STACK_BYTES), false)? {
            Ok(object) => return Ok(object),
            Err(refusal) => refusal,
        };
        if declared.is_none() {
            for bytes in STACKS_BYTES {
                if !explain::is_about_stack(&refusal) {
                    break;
                }
                refusal = match source.attempt(bytes, true)? {
                    Ok(object) => return Ok(object),
                    Err(refusal) => refusal,
                };
            }
        }
        let means = explain::Means { declared_stack: declared.is_some(), lowering: self.lowering.is_some() };
        Err(CompileError::Refused { path: path.to_owned(), stderr: explain::explain(&refusal, &means) })
    }
}

/// A directory with all that functions include.
fn headers() -> std::io::Result<TempDir> {
    let dir = tempfile::tempdir()?;
    std::fs::create_dir(dir.path().join("diskside"))?;
    for header in diskside_abi::HEADERS {
        std::fs::write(dir.path().join(header.name), header.text)?;
        // A header of ours with the name of one of C's replaces it: that of the machine is about the machine.
        if let Some(name) = header.name.strip_prefix("diskside/").filter(|name| LIBC.contains(name)) {
            std::fs::write(dir.path().join(name), format!("#include \"{}\"\n", header.name))?;
        }
    }
    Ok(dir)
}

/// One source, and what compiles it.
struct Source<'s> {
    path: &'s Path,
    clang: &'s Path,
    lowering: Option<&'s Compiler>,
    time_max: Duration,
    /// With the headers.
    dir: TempDir,
    /// Whether the source lies there.
    inside: bool,
}

/// An object, or what the compilers say of the source.
type Attempt = Result<Vec<u8>, String>;

impl Source<'_> {
    /// Compiles with stack frames of so many bytes; `noted` when the source does not say so itself.
    fn attempt(&self, stack_bytes: u32, noted: bool) -> Result<Attempt, CompileError> {
        let mut options = Vec::new();
        if noted {
            let note = self.dir.path().join("diskside_stack.h");
            let text = format!("#include \"diskside.h\"\nDS_STACK_BYTES({stack_bytes});\n");
            std::fs::write(&note, text).map_err(|source| self.environment(source))?;
            options.extend(["-include".into(), note.into_os_string()]);
        }
        let mut direct = options.clone();
        if stack_bytes != STACK_BYTES {
            direct.extend(clang::stack_options(stack_bytes).into_iter().map(OsString::from));
        }
        let refusal = match self.clang(&direct)? {
            Ok(object) => return Ok(Ok(object)),
            // Lowering makes no stack smaller.
            Err(stderr) if explain::is_about_instructions(&stderr) && !explain::is_about_stack(&stderr) => stderr,
            Err(stderr) => return Ok(Err(stderr)),
        };
        let Some(child) = self.lowering else {
            // An older clang; the function may do with less.
            let smaller = refusal.contains(explain::NO_STACK_OPTION);
            return if smaller { self.clang(&options) } else { Ok(Err(refusal)) };
        };
        options.push("-emit-llvm".into());
        let bitcode = match self.clang(&options)? {
            Ok(bitcode) => bitcode,
            Err(stderr) => return Ok(Err(stderr)),
        };
        match child.lower(&bitcode, stack_bytes) {
            Ok(object) => Ok(Ok(object)),
            Err(ChildError::Refused(text)) => Ok(Err(text)),
            Err(source) => Err(CompileError::Child { path: self.path.to_owned(), source }),
        }
    }

    /// Runs clang, for the newest instruction set that it knows.
    fn clang(&self, options: &[OsString]) -> Result<Attempt, CompileError> {
        let newest = self.run(options, &["-mcpu=v4"])?;
        match newest {
            Err(stderr) if stderr.contains(explain::NO_V4) => self.run(options, &[]),
            other => Ok(other),
        }
    }

    fn run(&self, options: &[OsString], instruction_set: &[&str]) -> Result<Attempt, CompileError> {
        let object = self.dir.path().join("function.o");
        // The directory's random name would make another object of the same source each time: nothing kept or learnt by the
        // object's content would ever be found again.
        let mut same_names = OsString::from("-fdebug-prefix-map=");
        same_names.extend([self.dir.path().as_os_str(), "=diskside".as_ref()]);
        let mut command = clang::command(self.clang);
        if self.inside {
            // There it has no directory, neither in messages nor in what the object says of its lines.
            command.current_dir(self.dir.path()).arg("-fdebug-compilation-dir=.");
        }
        // In a file: nobody reads a pipe while it is waited for.
        let said = self.dir.path().join("said");
        let stderr = File::create(&said).map_err(|source| self.environment(source))?;
        let started = command
            .args(clang::OPTIONS)
            .args(instruction_set)
            // All are looked at to see what is wrong with a source.
            .arg("-ferror-limit=0")
            .args(options)
            .arg(&same_names)
            .arg(self.path)
            .arg("-I")
            .arg(self.dir.path())
            .arg("-o")
            .arg(&object)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn();
        let mut child = started.map_err(|source| {
            let (clang, path) = (self.clang.to_owned(), self.path.to_owned());
            CompileError::CannotRun { clang, path, source }
        })?;
        let status = wait(&mut child, self.time_max).map_err(|source| self.environment(source))?;
        let Some(status) = status else {
            let seconds = self.time_max.as_secs();
            return Ok(Err(format!("clang had not ended within {seconds} s, and was stopped: what does it include?")));
        };
        if status.success() {
            return Ok(Ok(std::fs::read(object).map_err(|source| self.environment(source))?));
        }
        let said = std::fs::read(said).map_err(|source| self.environment(source))?;
        if said.is_empty() {
            return Ok(Err(format!("clang said nothing, and ended with {status}: it may have had too little memory")));
        }
        Ok(Err(String::from_utf8_lossy(&said).into_owned()))
    }

    fn environment(&self, source: std::io::Error) -> CompileError {
        CompileError::Environment { path: self.path.to_owned(), source }
    }
}

/// Waits for clang; `None`: it took longer than `time_max`, and is gone. It may read what never ends, such as a FIFO that a source
/// includes.
fn wait(child: &mut Child, time_max: Duration) -> std::io::Result<Option<ExitStatus>> {
    let started = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if started.elapsed() > time_max {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// The longest that a function takes to compile.
const TIME_MAX: Duration = Duration::from_secs(60);
/// Between two looks at whether clang has ended.
const PAUSE_MAX: Duration = Duration::from_millis(2);

/// The bytes of stack that a source asks for with `DS_STACK_BYTES`.
fn declared_stack(source: &str) -> Option<u32> {
    let number = source.split("DS_STACK_BYTES(").nth(1)?.split(')').next()?.trim().to_ascii_lowercase();
    match number.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => number.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A source with a function of this body, and what comes before it.
    fn source(before: &str, body: &str) -> (TempDir, PathBuf) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("f.bpf.c");
        let text = format!(
            "#include \"diskside.h\"\n{before}\nSEC(\"read/f\")\n__s64 f(void *out, const void *in, __u64 in_len, \
             const void *args, const struct ds_call *call) {{\nint unused;\n{body}\nreturn 8; }}\n"
        );
        std::fs::write(&path, text).expect("written");
        (dir, path)
    }

    /// The error for a function without the child that lowers, as users see it.
    fn refused(body: &str) -> String {
        let (_dir, path) = source("struct big { __u64 v[400]; };", body);
        let error =
            Toolchain::find().without_lowering().compile(&path).expect_err("eBPF has no such thing").to_string();
        error.replace(&path.display().to_string(), "f.bpf.c")
    }

    /// An include of a FIFO was waited for without end.
    #[test]
    fn a_compiler_that_does_not_end_is_stopped() {
        let (dir, path) = source("#include \"fifo.h\"", "");
        let made = std::process::Command::new("mkfifo").arg(dir.path().join("fifo.h")).status().expect("mkfifo runs");
        assert!(made.success());
        let hasty = Toolchain { time_max: Duration::from_secs(5), ..Toolchain::find() };
        let error = hasty.compile(&path).expect_err("it never ends").to_string();
        assert!(error.contains("clang had not ended within 5 s"), "{error}");
    }

    /// Clang named functions of its own library, asked for a bug report or for a kernel's maps, and left files in /tmp.
    #[test]
    fn without_the_child_what_ebpf_has_not_is_said_with_its_remedy() {
        let float = "eBPF has no instructions for float and double. diskside-llvm makes it: install LLVM 19 (scripts/setup \
                     --for llvm), then make install, or keep the values as bits (ds_f32, ds_f64) and write ds_f64_mul(a, \
                     b); `diskside functions --helpers` lists all of them";
        let copy = "clang cannot copy or fill so many bytes, or a number that it does not know, by instructions. \
                    diskside-llvm makes it: install LLVM 19 (scripts/setup --for llvm), then make install, or write \
                    ds_memcpy(to, from, bytes)";
        for (body, line, expected) in [
            ("double *o = out;\nconst double *i = in;\n*o = i[0] * i[1];", 8, float),
            ("*(struct big *)out = *(const struct big *)in;", 6, copy),
        ] {
            assert_eq!(refused(body), format!("f.bpf.c does not compile:\nf.bpf.c:{line}: {expected}"));
        }
    }

    /// The stack was 512 bytes unless the source said DS_STACK_BYTES, and an array of 256 numbers was answered with
    /// advice about the kernel's maps. It is as large as the variables need now.
    #[test]
    fn a_stack_grows_until_the_variables_fit() {
        for (before, body, fits) in [
            ("", "volatile __u64 v[256]; v[in_len % 256] = 1;\n*(__u64 *)out = v[0];", true),
            ("", "volatile __u64 v[100000]; v[in_len % 256] = 1;\n*(__u64 *)out = v[0];", true),
            ("", "volatile __u64 v[200000]; v[in_len % 256] = 1;\n*(__u64 *)out = v[0];", false),
            ("DS_STACK_BYTES(4096);", "volatile __u64 v[256]; v[in_len % 256] = 1;\n*(__u64 *)out = v[0];", true),
            ("DS_STACK_BYTES(1024);", "volatile __u64 v[256]; v[in_len % 256] = 1;\n*(__u64 *)out = v[0];", false),
        ] {
            let (_dir, path) = source(before, body);
            match compile(&path) {
                Ok(object) => assert!(fits && object.starts_with(b"\x7fELF"), "{before} {body}"),
                Err(error) => {
                    let error = error.to_string();
                    assert!(error.contains("f.bpf.c:4: the local variables do not fit"), "{error}");
                    assert!(!fits || error.contains("clang-19"), "{before} {body}: {error}");
                }
            }
        }
    }

    #[test]
    fn signed_numbers_divide_or_the_clang_is_named() {
        let (_dir, path) = source("", "__s64 *o = out; const __s64 *i = in;\n*o = i[0] / i[1];");
        match Toolchain::find().without_lowering().compile(&path) {
            Ok(object) => assert!(object.starts_with(b"\x7fELF")),
            Err(error) => {
                assert!(error.to_string().contains("f.bpf.c:7: this clang has no signed division"), "{error}");
            }
        }
    }

    /// A source that is in no file had a file in a directory with a random name, which messages told.
    #[test]
    fn a_source_in_no_file_is_called_by_its_name() {
        let source = "#include \"diskside.h\"\nSEC(\"read/f\")\n__s64 f(__u64 *out, const void *in, __u64 in_len,\nconst void \
                      *args, const struct ds_call *call) { *out = in_len; return 8; }\n";
        let object = compile_text("f.bpf.c", source, None).expect("it compiles");
        assert!(
            object == compile_text("f.bpf.c", source, None).expect("it compiles"),
            "two objects of one source differ"
        );
        let error = compile_text("f.bpf.c", "int f(", None).expect_err("no C").to_string();
        assert!(error.starts_with("f.bpf.c does not compile:\nf.bpf.c:1:"), "{error}");
        let error = compile_text("f.bpf.c", source, Some(Path::new("/no/clang"))).expect_err("none there").to_string();
        assert!(error.starts_with("/no/clang cannot be run to compile f.bpf.c: "), "{error}");
    }

    #[test]
    fn a_stack_is_as_large_as_the_source_says() {
        assert_eq!(declared_stack("DS_STACK_BYTES(4096);"), Some(4096));
        assert_eq!(declared_stack("DS_STACK_BYTES( 0x1000 );"), Some(4096));
        assert_eq!(declared_stack("DS_STACK_BYTES(SIZE);"), None);
    }

    /// Its debug information named the directory of the headers, which is another one each time. So what was measured of a
    /// function of one's own was never used by the next command, and targets counted each run as another function.
    #[test]
    fn the_same_source_becomes_the_same_object() {
        for body in ["*(__u64 *)out = in_len;", "volatile __u64 v[256]; v[in_len % 256] = 1;\n*(__u64 *)out = v[0];"] {
            let (_dir, path) = source("", body);
            let Ok(first) = compile(&path) else { continue };
            assert!(first == compile(&path).expect("it compiles"), "two objects of one source differ");
        }
    }
}
