//! The `diskside-kv` command: a BPF-KV store in a file or on a volume.
//!
//! Results go to standard output, everything else to standard error. Exit codes: 0 done; 1 a key is
//! not there, or the store is not sound; 2 wrong usage; 4 the environment failed.

#![forbid(unsafe_code)]

mod cli;

use clap::Parser;
use cli::{Cli, Failure};
use std::process::ExitCode;

fn main() -> ExitCode {
    match Cli::parse().execute() {
        Ok(code) => ExitCode::from(code),
        // Whoever reads our output has read enough.
        Err(Failure::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("diskside-kv: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}
