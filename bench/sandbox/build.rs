//! Compiles every workload's source for every kind of column, with one clang.
//!
//! `BENCH_CLANG` names another clang than clang-19; its WebAssembly linker has to be beside it.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A workload: its name, its source, the function in the sandbox, and the one outside.
struct Workload(&'static str, &'static str, &'static str, &'static str);

/// `grep_find` searches with a helper, and is held against the plain loop outside.
const WORKLOADS: [Workload; 10] = [
    Workload("stats64", "functions/stats64.bpf.c", "stats64", "stats64"),
    Workload("stats32", "functions/stats32.bpf.c", "stats32", "stats32"),
    Workload("knn", "functions/knn.bpf.c", "knn", "knn"),
    Workload("grep", "functions/grep.bpf.c", "grep_scalar", "grep_scalar"),
    Workload("bitmap", "functions/bitmap.bpf.c", "bitmap", "bitmap"),
    Workload("grep_find", "functions/grep.bpf.c", "grep_count", "grep_scalar"),
    Workload("filter", "bench/sandbox/programs/filter.bpf.c", "filter", "filter"),
    Workload("aggregate", "bench/sandbox/programs/aggregate.bpf.c", "aggregate", "aggregate"),
    Workload("empty", "bench/sandbox/programs/empty.bpf.c", "empty", "empty"),
    Workload("node_search", "bench/sandbox/programs/node_search.bpf.c", "node_search", "node_search"),
];

fn main() {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let root = here.join("../..");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    for watched in [here.join("programs"), root.join("functions"), root.join("crates/abi/include")] {
        println!("cargo:rerun-if-changed={}", watched.display());
    }
    println!("cargo:rerun-if-env-changed=BENCH_CLANG");
    println!("cargo:rerun-if-changed=build.rs");

    let build = Build {
        clang: env::var("BENCH_CLANG").unwrap_or_else(|_| "clang-19".into()),
        include: root.join("crates/abi/include"),
        programs: here.join("programs"),
        root,
        out,
    };
    let mut table = format!("pub static OBJECTS: [Object; {}] = [\n", WORKLOADS.len());
    let mut natives = String::new();
    for workload in &WORKLOADS {
        build.workload(workload, &mut table, &mut natives);
    }
    table.push_str("];\n");
    let _ = write!(table, "unsafe extern \"C\" {{\n{natives}}}\n");
    fs::write(build.out.join("objects.rs"), table).expect("OUT_DIR is writable");
}

struct Build {
    clang: String,
    include: PathBuf,
    programs: PathBuf,
    root: PathBuf,
    out: PathBuf,
}

impl Build {
    fn workload(&self, &Workload(name, source, inside, outside): &Workload, table: &mut String, natives: &mut String) {
        let source = self.root.join(source);
        let native = self.programs.join("native.c");
        let scalar = ["-O2", "-fno-vectorize", "-fno-slp-vectorize", "-fPIC", "-c"];
        let vector = ["-O3", "-march=native", "-fPIC", "-c"];
        for (suffix, flags) in [("scalar", &scalar[..]), ("vector", &vector)] {
            let object = self.out.join(format!("{name}_{suffix}.o"));
            self.compile(&native, &object, flags)
                .args([define("NAME", outside), define("ENTRY", &format!("native_{name}_{suffix}"))])
                .arg(define_path("SOURCE", &source))
                .done();
            println!("cargo:rustc-link-arg-bins={}", object.display());
            let _ = writeln!(
                natives,
                "    fn native_{name}_{suffix}(out: *mut u8, input: *const u8, in_len: u64, args: *const u8, \
                 call: *const diskside_bench_runner::CallContext) -> i64;"
            );
        }

        // A compiler that turns loops into calls of memset would make a program that must be linked.
        let bpf = ["-target", "bpf", "-mcpu=v3", "-O2", "-fno-builtin", "-g", "-c"];
        let ours = self.out.join(format!("{name}.bpf.o"));
        self.compile(&source, &ours, &bpf).done();

        let peer_unit = self.programs.join("peer.c");
        let peer = self.out.join(format!("{name}.peer.o"));
        self.compile(&peer_unit, &peer, &bpf).arg(define("NAME", outside)).arg(define_path("SOURCE", &source)).done();
        let wasm = self.out.join(format!("{name}.wasm"));
        let wasm_flags = ["--target=wasm32", "-O2", "-mbulk-memory", "-nostdlib"];
        self.compile(&peer_unit, &wasm, &wasm_flags)
            .args(["-Wl,--no-entry", "-Wl,--import-memory", "-Wl,--export=peer"])
            .arg(format!("-I{}", self.programs.join("wasm").display()))
            .arg(define("NAME", outside))
            .arg(define_path("SOURCE", &source))
            .done();
        let _ = writeln!(
            table,
            "    Object {{ name: {name:?}, program: {inside:?}, ours: include_bytes!({ours:?}), \
             native: [native_{name}_scalar, native_{name}_vector], \
             peer: include_bytes!({peer:?}), wasm: include_bytes!({wasm:?}) }},"
        );
    }

    fn compile(&self, unit: &Path, output: &Path, flags: &[&str]) -> Command {
        let mut command = Command::new(&self.clang);
        command
            .args(flags)
            .args(["-std=gnu11", "-Wall", "-Wno-unused", "-Wno-unknown-attributes"])
            .arg(format!("-I{}", self.include.display()))
            .arg(unit)
            .arg("-o")
            .arg(output);
        command
    }
}

fn define(name: &str, value: &str) -> String {
    format!("-D{name}={value}")
}

fn define_path(name: &str, path: &Path) -> String {
    format!("-D{name}=\"{}\"", path.display())
}

trait Done {
    /// Runs a command that has to succeed.
    fn done(&mut self);
}

impl Done for Command {
    fn done(&mut self) {
        let status = self
            .status()
            .unwrap_or_else(|e| panic!("{:?}: {e}; scripts/setup --for bench installs it", self.get_program()));
        assert!(status.success(), "{self:?} failed");
    }
}
