//! Prints the checked IR of the programs of an object, before and after the optimiser.

use diskside_sbpf::activation::Program;
use diskside_sbpf::image::Image;
use std::sync::Arc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: ir OBJECT")?;
    let helpers = Arc::new(diskside_sbpf::helpers::standard());
    let image = Arc::new(Image::from_elf(&std::fs::read(path)?, &helpers)?);
    for i in 0..image.programs.len() {
        println!("==== {}", image.programs[i].section);
        match Program::new(&image, i, &helpers) {
            Err(findings) => findings.iter().for_each(|d| println!("{}", d)),
            Ok(program) => {
                println!("---- plain\n{}---- optimised\n{}", program.plain(), program.optimised());
                for f in &program.optimised().functions {
                    println!("{:#?}", f.loops);
                }
            }
        }
    }
    Ok(())
}
