//! Shows what becomes of an object's programs: `dump OBJECT [ir|llvm|remarks|object]…`; `object` writes
//! the linkable object to standard output, for a disassembler.

use diskside_sbpf::activation::Program;
use diskside_sbpf::helpers;
use diskside_sbpf::image::{Image, LoadOptions};
use diskside_sbpf_llvm::{Compiler, compile, intermediate_code};
use std::error::Error;
use std::io::Write;
use std::sync::Arc;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: dump OBJECT [ir|llvm|remarks|object]...")?;
    let parts: Vec<String> = args.collect();
    let wanted = |part: &str| parts.iter().any(|p| p == part);
    let helpers = Arc::new(helpers::standard());
    let image = Arc::new(Image::load(&std::fs::read(&path)?, &helpers, LoadOptions::default())?);
    for (i, entry) in image.programs.iter().enumerate() {
        let program =
            Program::new(&image, i, &helpers).map_err(|d| d.iter().map(|d| format!("{d}\n")).collect::<String>())?;
        let module = program.optimised();
        eprintln!("; == {}", entry.section);
        if wanted("ir") {
            println!("{module}");
        }
        if wanted("llvm") {
            println!("{}", intermediate_code(module));
        }
        if wanted("remarks") || wanted("object") {
            let compiler = Compiler::find().ok_or("diskside-llvm is not built")?;
            let compiled = compile(module, &compiler)?;
            if wanted("remarks") {
                print!("{}", compiled.remarks);
            }
            if wanted("object") {
                std::io::stdout().write_all(&compiled.object)?;
            }
        }
    }
    Ok(())
}
