//! Shows what becomes of an object's programs: `dump OBJECT [ir|clif|asm]…`, all three by default,
//! with the processor time that compiling takes.

use diskside_sbpf::activation::Program;
use diskside_sbpf::helpers;
use diskside_sbpf::image::{Image, LoadOptions};
use diskside_sbpf_cranelift::{Options, compile, intermediate_code};
use rustix::time::{ClockId, clock_gettime};
use std::error::Error;
use std::sync::Arc;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: dump OBJECT [ir|clif|asm]...")?;
    let parts: Vec<String> = args.collect();
    let wanted = |part: &str| parts.is_empty() || parts.iter().any(|p| p == part);
    let helpers = Arc::new(helpers::standard());
    let image = Arc::new(Image::load(&std::fs::read(&path)?, &helpers, LoadOptions::default())?);
    for (i, entry) in image.programs.iter().enumerate() {
        let program =
            Program::new(&image, i, &helpers).map_err(|d| d.iter().map(|d| format!("{d}\n")).collect::<String>())?;
        let module = program.optimised();
        println!("== {}", entry.section);
        if wanted("ir") {
            println!("{module}");
        }
        if wanted("clif") {
            println!("{}", intermediate_code(module)?);
        }
        let options = Options { disassembly: true, ..Options::default() };
        if wanted("asm") {
            println!("{}", compile(module, &options)?.disassembly());
        }
        let mut micros = Vec::new();
        for _ in 0..9 {
            let started = cpu_micros();
            std::hint::black_box(compile(module, &Options::default())?);
            micros.push(cpu_micros() - started);
        }
        micros.sort_unstable();
        let ops: usize = module.functions.iter().flat_map(|f| &f.blocks).map(|b| b.ops.len()).sum();
        println!("compiled {ops} operations in {} us (median of 9)", micros[4]);
    }
    Ok(())
}

/// Processor time of this thread: other programs do not count.
fn cpu_micros() -> i64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec * 1_000_000 + now.tv_nsec / 1000
}
