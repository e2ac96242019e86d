//! One source in the sandbox and natively.

use super::{Function, load};
use diskside_functions::clang;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

fn compile(compiler: &Path, options: &[&str], source: &str, to: &Path) {
    let output = Command::new(compiler)
        .args(options)
        .arg("-I")
        .arg(tests().join("../../abi/include"))
        .arg(tests().join(source))
        .arg("-o")
        .arg(to)
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{source}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The function in the sandbox, and the program that is its native twin.
pub(crate) struct Twins {
    function: Function,
    native: PathBuf,
}

impl Twins {
    /// The function `name` of `name.bpf.c`.
    pub(crate) fn of(name: &str) -> Self {
        let native = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}_native"));
        let strict = ["-std=gnu11", "-O2", "-Wall", "-Werror", "-Wno-unknown-attributes", "-Wno-unused-function"];
        // The header's helpers hash as XXH3 does only in the sandbox; the order of rows does not depend on it.
        let hash = "-Dds_hash64(at,len,seed)=((len)*2654435761u)";
        let (source, entry) = (format!("-DSOURCE=\"{name}.bpf.c\""), format!("-DENTRY={name}"));
        let clang = clang::find().expect("clang is here");
        compile(&clang, &[&strict[..], &[hash, &source, &entry, "-lm"]].concat(), "library_native.c", &native);
        Self { function: object(name, name), native }
    }

    /// What both twins give, which has to be the same.
    pub(crate) fn run(&self, input: &[u8]) -> Vec<u8> {
        let mut child = Command::new(&self.native)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the native twin runs");
        child.stdin.take().expect("a pipe").write_all(input).expect("it reads");
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}", output.status);
        let inside = self.function.run(input, &[]).expect("it returns");
        let shown = input.escape_ascii().to_string();
        assert!(inside == output.stdout, "the sandbox and native code differ over {shown:?}");
        inside
    }
}

/// The function `entry` of `name.bpf.c`, compiled for the sandbox.
pub(crate) fn object(name: &str, entry: &str) -> Function {
    let clang = clang::find().expect("clang is here");
    let object = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}_{entry}.bpf.o"));
    compile(&clang, &[&clang::OPTIONS[..], &["-Werror"]].concat(), &format!("{name}.bpf.c"), &object);
    load(&std::fs::read(object).expect("it is written"), entry)
}
