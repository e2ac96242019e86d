//! Compiles the natural functions of `functions/` natively, once scalar and once for this machine's vectors.
//!
//! `BENCH_CLANG` names another clang than clang-19. Floating point is neither fused nor reordered, so that results can be
//! compared to the last bit.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let include = here.join("../../crates/abi/include");
    let wrapper = here.join("../sandbox/programs/native.c");
    for watched in [&here.join("functions"), &include, &wrapper, &here.join("build.rs")] {
        println!("cargo:rerun-if-changed={}", watched.display());
    }
    println!("cargo:rerun-if-env-changed=BENCH_CLANG");
    let build = Build { clang: env::var("BENCH_CLANG").unwrap_or_else(|_| "clang-19".into()), include, wrapper, out };

    let mut table = String::from("&[\n");
    let mut natives = String::new();
    for source in sources(&here.join("functions")) {
        let name = source.file_name().expect("listed files have names").to_string_lossy().replace(".bpf.c", "");
        build.natives(&name, &source, &mut natives);
        let about = about(&source);
        let _ = writeln!(
            table,
            "    Compiled {{ name: {name:?}, about: {about:?}, source: {source:?}, native: [{name}_scalar, {name}_vector] }},"
        );
    }
    table.push(']');
    fs::write(build.out.join("compiled.rs"), table).expect("OUT_DIR is writable");
    fs::write(build.out.join("natives.rs"), format!("unsafe extern \"C\" {{\n{natives}}}\n")).expect("as above");
}

struct Build {
    clang: String,
    include: PathBuf,
    wrapper: PathBuf,
    out: PathBuf,
}

impl Build {
    /// The two native builds, linked into the program; their declarations go to `declarations`.
    fn natives(&self, name: &str, source: &Path, declarations: &mut String) {
        let scalar = ["-O2", "-fno-vectorize", "-fno-slp-vectorize"];
        let vector = ["-O3", "-march=native"];
        for (suffix, flags) in [("scalar", &scalar[..]), ("vector", &vector)] {
            let object = self.out.join(format!("{name}_{suffix}.o"));
            let done = self
                .clang(&object)
                .args(flags)
                .args(["-fPIC", &format!("-DNAME={name}"), &format!("-DENTRY={name}_{suffix}")])
                .arg(format!("-DSOURCE=\"{}\"", source.display()))
                .arg(&self.wrapper)
                .status();
            let done = done.unwrap_or_else(|e| panic!("{}: {e}; scripts/setup --for bench installs it", self.clang));
            assert!(done.success(), "{} does not compile natively", source.display());
            println!("cargo:rustc-link-arg-bins={}", object.display());
            let _ = writeln!(
                declarations,
                "    fn {name}_{suffix}(out: *mut u8, input: *const u8, in_len: u64, args: *const u8, \
                 call: *const diskside_bench_runner::CallContext) -> i64;"
            );
        }
    }

    fn clang(&self, output: &Path) -> Command {
        let mut command = Command::new(&self.clang);
        command
            .args(["-std=gnu11", "-Wall", "-Wno-unused", "-Wno-unknown-attributes", "-ffp-contract=off", "-c"])
            .arg(format!("-I{}", self.include.display()))
            .arg("-o")
            .arg(output);
        command
    }
}

fn sources(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).expect("the directory is there");
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|path| path.to_string_lossy().ends_with(".bpf.c"));
    files.sort();
    files
}

/// The comment that a source begins with.
fn about(source: &Path) -> String {
    let text = fs::read_to_string(source).expect("it is readable");
    let comment = text.strip_prefix("/*").and_then(|rest| rest.split("*/").next());
    comment.unwrap_or_else(|| panic!("{} begins with no comment", source.display())).trim().to_owned()
}
