//! A plug-in for the public eBPF conformance suite.
//!
//! The suite starts this program once for each test. The memory of the test is the first argument,
//! the program comes on standard input (or after `--program`), both as hexadecimal bytes with spaces
//! between them. On entry `r1` is the address of the memory and `r2` its length. At the end `r0` is
//! printed as a hexadecimal number; when the program is refused or stopped, the reason goes to
//! standard error and the exit status is 1.

#![forbid(unsafe_code)]

mod run;

use clap::{Parser, ValueEnum};
use run::{Format, Request, Tier};
use std::io::{BufRead, Read};
use std::process::ExitCode;

/// Longest line of hexadecimal text that is read: three characters for each byte of the largest
/// object, with room for more spaces.
const INPUT_LEN_MAX: u64 = 128 << 20;

/// Runs an eBPF program over a memory block and prints r0: a plug-in for bpf_conformance.
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// Memory as hexadecimal bytes, such as "01 ff 20"
    memory: Option<String>,
    /// Program as hexadecimal bytes, instead of one line on standard input
    #[arg(long, value_name = "HEX")]
    program: Option<String>,
    /// The program is an ELF object instead of instructions
    #[arg(long)]
    elf: bool,
    /// Print the disassembled program to standard error
    #[arg(long)]
    debug: bool,
    /// Tier that runs the program
    #[arg(long, value_enum, default_value_t = TierName::Interp)]
    tier: TierName,
}

#[derive(Clone, Copy, ValueEnum)]
enum TierName {
    /// The interpreter
    Interp,
    /// The Cranelift compiler
    Cranelift,
    /// LLVM, by the program diskside-llvm
    Llvm,
}

fn main() -> ExitCode {
    let cli = Cli::parse_from(arguments(std::env::args()));
    match answer(&cli) {
        Ok(r0) => {
            println!("{r0:x}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// The suite passes its plug-in options as one argument, and empty ones where there are none.
fn arguments(args: impl Iterator<Item = String>) -> Vec<String> {
    let mut out = Vec::new();
    for arg in args {
        if arg.starts_with("--") {
            out.extend(arg.split_whitespace().map(str::to_owned));
        } else if !arg.trim().is_empty() {
            out.push(arg);
        }
    }
    out
}

fn answer(cli: &Cli) -> Result<u64, String> {
    let text = match &cli.program {
        Some(text) => text.clone(),
        None => read_line()?,
    };
    let request = Request {
        program: bytes(&text).map_err(|e| format!("program: {e}"))?,
        memory: bytes(cli.memory.as_deref().unwrap_or_default()).map_err(|e| format!("memory: {e}"))?,
        format: if cli.elf { Format::Elf } else { Format::Raw },
        tier: match cli.tier {
            TierName::Interp => Tier::Interpreter,
            TierName::Cranelift => Tier::Cranelift,
            TierName::Llvm => Tier::Llvm,
        },
        debug: cli.debug,
    };
    request.run()
}

fn read_line() -> Result<String, String> {
    let mut line = String::new();
    let stdin = std::io::stdin().lock();
    stdin.take(INPUT_LEN_MAX).read_line(&mut line).map_err(|e| format!("standard input cannot be read: {e}"))?;
    Ok(line)
}

/// Hexadecimal bytes, with or without spaces between them.
fn bytes(text: &str) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(text.len() / 2);
    for word in text.split_whitespace() {
        let digits = word.as_bytes();
        // A single digit is a byte of its own.
        let pairs = if digits.len() == 1 { digits.chunks(1) } else { digits.chunks(2) };
        for pair in pairs {
            let byte = std::str::from_utf8(pair)
                .ok()
                .filter(|_| digits.len() == 1 || digits.len().is_multiple_of(2))
                .and_then(|p| u8::from_str_radix(p, 16).ok())
                .ok_or_else(|| format!("`{word}` is no sequence of hexadecimal bytes"))?;
            out.push(byte);
        }
    }
    Ok(out)
}
