//! The child that holds LLVM: reads a module, writes an object.
//!
//!     diskside-llvm [--cpu NAME] < TEXT > ANSWER
//!     diskside-llvm --bpf STACK_BYTES < BITCODE > ANSWER
//!     diskside-llvm [--cpu NAME] --identity
//!
//! The first is the tier: from checked IR to code of this machine. The second is for sources: from a module that clang, or
//! another front end, made for eBPF to an eBPF object.
//!
//! It is started for one module and trusts none of it. Before the first byte of the text is read it
//! gives up everything but its two pipes: see `confine`.

mod bpf;
mod confine;
mod llvm;
mod lower;

use diskside_sbpf_llvm::wire::{Answer, TEXT_LEN_MAX};
use std::io::{Read, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    diskside_child::set_process_name(c"diskside-llvm");
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("diskside-llvm: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let mut cpu = None;
    let mut identity = false;
    let mut stack_bytes = None;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--cpu" => cpu = Some(args.next().ok_or("--cpu needs a name, such as x86-64-v3")?),
            "--bpf" => {
                let number = args.next().and_then(|number| number.parse::<u32>().ok());
                stack_bytes = Some(number.ok_or("--bpf needs the bytes of a stack frame")?);
            }
            "--identity" => identity = true,
            _ => return Err(format!("unknown argument `{arg}`; it is started by diskside, not by hand")),
        }
    }
    if let Some(stack_bytes) = stack_bytes {
        let target = bpf::Target::new(stack_bytes);
        confine::confine()?;
        let answer = match target.and_then(|target| target.compile(read()?)) {
            Ok(object) => Answer::Object { remarks: String::new(), object },
            Err(message) => Answer::Error(message),
        };
        return write(&answer.to_bytes());
    }
    let target = llvm::Target::new(cpu.as_deref());
    if identity {
        return write(target?.identity().as_bytes());
    }
    confine::confine()?;
    let answer = match target.and_then(|target| target.compile(read()?)) {
        Ok((object, remarks)) => Answer::Object { remarks, object },
        Err(message) => Answer::Error(message),
    };
    write(&answer.to_bytes())
}

fn read() -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    let mut input = std::io::stdin().lock().take(TEXT_LEN_MAX as u64 + 1);
    input.read_to_end(&mut text).map_err(|e| format!("standard input: {e}"))?;
    if text.len() > TEXT_LEN_MAX {
        return Err("the text is too long".into());
    }
    Ok(text)
}

fn write(bytes: &[u8]) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|e| format!("standard output: {e}"))
}
