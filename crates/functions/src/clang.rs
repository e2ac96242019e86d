//! The clang that compiles functions, and how it is called. Also part of this crate's build script.

use std::path::PathBuf;

/// Options for any function's source; `-o OBJECT` and the headers' `-I` are the caller's.
///
/// Without `-fno-builtin`, clang before 19 refuses loops that it takes for a memset.
pub const OPTIONS: [&str; 8] = ["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-fno-builtin", "-Wall", "-c"];

/// Versioned names to look for after `clang` itself. The oldest knows what the header uses.
const VERSIONS: std::ops::RangeInclusive<u32> = 14..=30;

/// `DISKSIDE_CLANG`, `clang`, or the newest `clang-N`.
#[must_use]
pub fn find() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("DISKSIDE_CLANG") {
        return Some(named.into());
    }
    let path = std::env::var_os("PATH")?;
    let versioned = VERSIONS.rev().map(|n| format!("clang-{n}"));
    std::iter::once("clang".to_owned())
        .chain(versioned)
        .find_map(|name| std::env::split_paths(&path).map(|dir| dir.join(&name)).find(|file| file.is_file()))
}
