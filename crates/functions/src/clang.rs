//! The clang that compiles functions, and how it is called. Also part of this crate's build script.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Options for any function's source; `-o OBJECT` and the headers' `-I` are the caller's.
///
/// Without `-fno-builtin`, clang before 19 refuses loops that it takes for a memset. There is no C library: `stdint.h` and the
/// like are clang's own. Floating-point operations are neither fused nor do they set `errno`.
pub const OPTIONS: [&str; 12] = [
    "-O2",
    "-g",
    "-target",
    "bpf",
    "-mcpu=v3",
    "-ffreestanding",
    "-fno-builtin",
    "-fno-math-errno",
    "-ffp-contract=off",
    "-Wall",
    "-fno-crash-diagnostics",
    "-c",
];

/// Options for stack frames of this many bytes, which clang before 19 does not know.
#[must_use]
pub fn stack_options(len_bytes: u32) -> Vec<String> {
    vec!["-mllvm".into(), format!("-bpf-stack-size={len_bytes}")]
}

/// Versioned names to look for after `clang` itself. The oldest knows what the header uses.
const VERSIONS: std::ops::RangeInclusive<u32> = 14..=30;
/// The first that knows all of eBPF, and the LLVM that `diskside-llvm` has: it reads this one's bitcode.
const PREFERRED: &str = "clang-19";

/// Calls this clang. Zig is one, too: the clang in it is its command `clang`, and the Python package `ziglang` brings it to
/// machines without another.
#[must_use]
pub fn command(clang: &Path) -> Command {
    let mut command = Command::new(clang);
    if clang.file_stem().is_some_and(|name| name == "zig") {
        command.arg("clang");
    }
    command
}

/// `DISKSIDE_CLANG`, `clang`, or the newest `clang-N`.
#[must_use]
pub fn find() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("DISKSIDE_CLANG") {
        return Some(named.into());
    }
    let versioned = VERSIONS.rev().map(|n| format!("clang-{n}"));
    std::iter::once("clang".to_owned()).chain(versioned).find_map(|name| in_path(&name))
}

/// `DISKSIDE_CLANG`, the clang that knows all of eBPF, or [`find`].
#[must_use]
pub fn find_newest() -> Option<PathBuf> {
    if std::env::var_os("DISKSIDE_CLANG").is_some() {
        return find();
    }
    in_path(PREFERRED).or_else(find)
}

fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
}
