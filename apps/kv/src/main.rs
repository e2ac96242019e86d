//! The `diskside-kv` command: a BPF-KV store in a file or on a volume.
//!
//! Results go to standard output, everything else to standard error. Exit codes: 0 done; 1 a key is
//! not there, or the store is not sound; 2 wrong usage; 4 the environment failed.

#![forbid(unsafe_code)]
// They panic when nobody reads.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod cli;

use clap::Parser;
use cli::{Cli, Failure};
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

fn main() -> ExitCode {
    // Without /dev it stays as the standard library has it.
    let _ = diskside_sys::standard::fail_where_closed();
    // A file that becomes longer than `ulimit -f` allows is an error that names it.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::<AtomicBool>::default());
    let result = match Cli::try_parse() {
        Ok(cli) => cli.execute(),
        Err(error) if error.use_stderr() => {
            // When standard error cannot be written, the exit code still says it.
            let _ = error.print();
            return ExitCode::from(Failure::WRONG_USAGE);
        }
        // Help and the version.
        Err(help) => help.print().map(|()| 0).map_err(Failure::Output),
    };
    // What is kept back until a line is whole, too.
    match result.and_then(|code| std::io::stdout().flush().map(|()| code).map_err(Failure::Output)) {
        Ok(code) => ExitCode::from(code),
        // The reader of our output has read enough.
        Err(Failure::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(failure) => {
            say(format_args!("diskside-kv: {failure}"));
            ExitCode::from(failure.exit_code())
        }
    }
}

/// A line to standard error. When that is full or closed, nobody is left to hear of it.
fn say(text: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
