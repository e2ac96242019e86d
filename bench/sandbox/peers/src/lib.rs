//! The other engines. They live in a crate of their own so that measuring our tiers alone builds
//! none of them.

mod rbpf;
mod solana;
mod wasm;

use diskside_bench_runner::Engine;
use object::{Object as _, ObjectSection as _};

/// Every engine, as its users would run untrusted code with it, where it can.
pub const ENGINES: [Engine; 3] = [
    Engine { name: "rbpf JIT", safe: false, prepare: rbpf::prepare },
    Engine { name: "solana-sbpf JIT", safe: true, prepare: solana::prepare },
    Engine { name: "wasmtime (epoch)", safe: true, prepare: wasm::prepare },
];

/// The code section of an object. Its programs call nothing and have no data, so the bytes run as
/// they are.
fn code_of(object: &[u8]) -> Result<Vec<u8>, String> {
    let file = object::File::parse(object).map_err(|e| e.to_string())?;
    let section = file.section_by_name("peer/entry").ok_or("the object has no section `peer/entry`")?;
    if section.relocations().next().is_some() {
        return Err("the program needs linking, which this engine's raw form has not".into());
    }
    Ok(section.data().map_err(|e| e.to_string())?.to_vec())
}
