//! An ELF object of anybody: an image or an error, and a verdict on each of its programs.
#![no_main]

use diskside_sbpf::activation::Program;
use diskside_sbpf::helpers::{HelperSet, standard};
use diskside_sbpf::image::Image;
use libfuzzer_sys::fuzz_target;
use std::sync::{Arc, LazyLock};

static HELPERS: LazyLock<Arc<HelperSet>> = LazyLock::new(|| Arc::new(standard()));

fuzz_target!(|bytes: &[u8]| {
    let Ok(image) = Image::from_elf(bytes, &HELPERS) else { return };
    let image = Arc::new(image);
    for program in 0..image.programs.len() {
        match Program::new(&image, program, &HELPERS) {
            Ok(program) => drop(program.optimised().functions.len()),
            Err(findings) => assert!(!findings.is_empty(), "who refuses says why"),
        }
    }
});
