//! The `diskside` command.
//!
//! Results go to standard output, everything else to standard error. With `--json` standard output
//! is one JSON document with a `schema` number. The exit code says who has to act:
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | the function failed on the data: a trap, an error that it returned, a limit |
//! | 2 | the command line is wrong |
//! | 3 | the function cannot be loaded: it does not compile, is refused, or asks for what is not here |
//! | 4 | the environment failed: a file, memory, a thread |

#![forbid(unsafe_code)]

mod commands;
mod error;
mod output;

use clap::{CommandFactory, Parser, Subcommand};
use error::Failure;
use std::process::ExitCode;

/// Run a function at the disk's side.
#[derive(Parser)]
#[command(
    name = "diskside",
    version,
    about,
    max_term_width = 100,
    after_help = "\
Exit codes: 0 done; 1 the function failed on the data; 2 wrong usage; 3 the function cannot be \
loaded; 4 the environment failed."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a function over files and print its result.
    Run(commands::run::Run),
    /// List the shipped functions, or the helpers that functions can call.
    Functions(commands::functions::Functions),
    /// Show what is in an object: programs, helpers, effects, code, loops.
    Inspect(commands::inspect::Inspect),
    /// Check that the programs of an object may run.
    Verify(commands::verify::Verify),
    /// Explain a code of the verifier, such as V0301.
    Explain(commands::explain::Explain),
    /// Print completions for a shell.
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Run(c) => c.execute(),
        Command::Functions(c) => c.execute(),
        Command::Inspect(c) => c.execute(),
        Command::Verify(c) => c.execute(),
        Command::Explain(c) => c.execute(),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "diskside", &mut std::io::stdout());
            Ok(())
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever reads our output has read enough.
        Err(Failure::Output(e)) if e.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("diskside: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}
