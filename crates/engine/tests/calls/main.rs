//! A call gives the same result however its input is cut, on however many threads, in every tier.

mod ends;
mod memory;
mod pieces;
mod tiers;

use diskside_engine::split::Split;
use diskside_engine::{Engine, Function, Source};
use diskside_sbpf::asm::assemble;
use diskside_sbpf::image::{Kind, Note};
use std::sync::Arc;

fn engine() -> Engine {
    Engine::new(diskside_sbpf::helpers::standard())
}

/// Assembles a `read` program.
fn function(engine: &Engine, text: &str) -> Function {
    function_noted(engine, text, |_| ())
}

/// Assembles a `read` program whose object says more of it.
fn function_noted(engine: &Engine, text: &str, say: impl FnOnce(&mut Note)) -> Function {
    let assembly = assemble(text).expect("the test's program assembles");
    let mut image = assembly.into_image(Kind::Read, engine.helpers()).expect("the test's program links");
    (image.note.split, image.note.concatenates) = (Some(Split::Bytes), true);
    say(&mut image.note);
    Function::from_image(&Arc::new(image), None, engine.helpers()).expect("the test's program verifies")
}

/// Copies its input to its output.
const COPY: &str = "
    mov %r6, %r1
    mov %r7, %r3
    call helper ds_memcpy
    mov %r0, %r7
    exit";

fn bytes(b: &[u8]) -> Vec<Source> {
    vec![Source::Bytes { name: "memory".into(), bytes: b.into() }]
}

/// Gives the chunk's length as 8 bytes.
const LENGTH: &str = "stxdw [%r1], %r3\nmov %r0, 8\nexit";

/// The lengths of all chunks, from the result of [`LENGTH`].
fn lens(result: &[u8]) -> Vec<u64> {
    result.chunks(8).map(|b| u64::from_le_bytes(b.try_into().expect("8 bytes"))).collect()
}
