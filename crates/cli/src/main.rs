//! The `diskside` command.
//!
//! Results go to standard output, everything else to standard error. With `--json` standard output
//! is one JSON document with a `schema` number. The exit code says who has to act:
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | the function failed on the data: a trap, an error that it returned, a limit |
//! | 2 | the command line is wrong, or a variable |
//! | 3 | the function cannot be loaded: it does not compile, is refused, or asks for what is not here |
//! | 4 | the environment failed: a file, memory, a thread, a standard output that is full |
//! | 130 | a signal stopped the function |

#![forbid(unsafe_code)]
// They panic when nobody reads.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod commands;
mod error;
mod interrupt;
mod journal;
mod output;
mod output_file;
mod progress;
mod traces;

use clap::{CommandFactory, Parser, Subcommand};
use diskside::io::ring::check_variable;
use error::Failure;
use output::say;
use std::io::Write as _;
use std::process::ExitCode;
use traces::Exporter;

/// Run a function at the disk's side.
#[derive(Parser)]
#[command(
    name = "diskside",
    version,
    max_term_width = 100,
    after_help = "\
Exit codes: 0 done; 1 the function failed on the data; 2 wrong usage; 3 the function cannot be \
loaded; 4 the environment failed; 130 a signal stopped the function."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a function over files, here and at targets, and print its result.
    Run(commands::run::Run),
    /// Scan a table in a Parquet, Arrow, CSV or JSON lines file: columns, rows that fulfil a condition, sums.
    Scan(commands::scan::Scan),
    /// Launch a kernel: a program that reads and writes files itself, here or at the target that has them.
    Launch(commands::launch::Launch),
    /// Execute a program over memory ranges, as NVMe's Execute Program does, on this machine.
    Execute(commands::execute::Execute),
    /// Compile a function's source to an object that runs everywhere.
    Build(commands::build::Build),
    /// Sign an object, for servers that run what is signed alone.
    Sign(commands::sign::Sign),
    /// List the shipped functions, those of a target, or the helpers that functions can call.
    Functions(commands::functions::Functions),
    /// Show what is in an object: programs, helpers, effects, code, loops.
    Inspect(commands::inspect::Inspect),
    /// Check that the programs of an object may run.
    Verify(commands::verify::Verify),
    /// Explain a code of the verifier, such as V0301.
    Explain(commands::explain::Explain),
    /// Serve volumes, directories and functions over NVMe/TCP.
    Serve(commands::serve::Serve),
    /// Say whether a server's configuration is good, and otherwise what is wrong in which line.
    CheckConfig(commands::check_config::CheckConfig),
    /// Say what this machine lacks for Diskside, and what to do.
    Doctor(commands::doctor::Doctor),
    /// Measure where a function over a file at a server runs faster.
    Bench(commands::bench::Bench),
    /// Make keys, and allow hosts with them.
    Key(commands::key::Key),
    /// At a server: let a host in that gets its name, key and rights as one text.
    Invite(commands::invite::Invite),
    /// Keep the key for a server that a text of `diskside invite` holds, and try it.
    Join(commands::join::Join),
    /// List the subsystems of a target.
    Discover(commands::discover::Discover),
    /// Show a subsystem and its volumes.
    Info(commands::info::Info),
    /// Copy between files here, files of exports, and volumes.
    Cp(commands::cp::Cp),
    /// List the exports of a target, or a directory of one.
    Ls(commands::exports::Ls),
    /// Print files of exports.
    Cat(commands::exports::Cat),
    /// Show what is known of a file of an export.
    Stat(commands::exports::Stat),
    /// Make directories in exports.
    Mkdir(commands::names::Mkdir),
    /// Give a file or a directory of an export another name there.
    Mv(commands::names::Mv),
    /// Remove files of exports.
    Rm(commands::names::Rm),
    /// Zero a named state of functions at a target, or drop what it keeps in memory.
    Clear(commands::clear::Clear),
    /// Show what a target does, live.
    Top(commands::top::Top),
    /// Tell Prometheus what a target does.
    Metrics(commands::metrics::Metrics),
    /// Show a volume as a block device of this machine (root).
    Attach(commands::attach::Attach),
    /// Take an attached block device away (root).
    Detach(commands::attach::Detach),
    /// Time reads of one block of a volume.
    Ping(commands::ping::Ping),
    /// Print completions for a shell.
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages of all commands.
    Manual(commands::manual::Manual),
}

fn main() -> ExitCode {
    // Without /dev it stays as the standard library has it.
    let _ = diskside_sys::standard::fail_where_closed();
    let missing = diskside_sys::processor::missing_instructions();
    if !missing.is_empty() {
        say(format_args!(
            "diskside: this processor lacks {}: build diskside from its source with RUSTFLAGS=-Ctarget-cpu=native",
            missing.join(", ")
        ));
        return ExitCode::from(Failure::Environment(String::new()).exit_code());
    }
    let result = match Cli::try_parse() {
        Ok(cli) => {
            log_to_stderr();
            interrupt::survive_file_size_limit();
            // A server has threads only once it is confined.
            let is_server = matches!(cli.command, Command::Serve(_));
            let exporter = if is_server { None } else { Exporter::from_environment() };
            // Until the command has ended.
            let _exporting = exporter.and_then(|exporter| exporter.start("diskside"));
            check_environment().and_then(|()| run(cli.command))
        }
        Err(error) if error.use_stderr() => {
            let plain = error.render().to_string();
            match plain.chars().any(|c| c.is_control() && c != '\n') {
                true => say(plain.trim_end()),
                // When standard error cannot be written, the exit code still says it.
                false => drop(error.print()),
            }
            return ExitCode::from(Failure::Usage(String::new()).exit_code());
        }
        // Help and the version.
        Err(help) => help.print().map_err(Failure::Output),
    };
    // What is kept back until a line is whole, too.
    match result.and_then(|()| Ok(std::io::stdout().flush()?)) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of our output has read enough.
        Err(Failure::Output(e)) if e.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(failure) => {
            output::say_at(journal::ERROR, format_args!("diskside: {failure}"));
            ExitCode::from(failure.exit_code())
        }
    }
}

/// A variable with a wrong value is wrong usage, as an option with one is, whether or not this command would come to need it.
fn check_environment() -> Result<(), Failure> {
    check_variable().map_err(|error| Failure::Usage(error.to_string()))
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Run(c) => c.execute(),
        Command::Scan(c) => c.execute(),
        Command::Launch(c) => c.execute(),
        Command::Execute(c) => c.execute(),
        Command::Build(c) => c.execute(),
        Command::Sign(c) => c.execute(),
        Command::Functions(c) => c.execute(),
        Command::Inspect(c) => c.execute(),
        Command::Verify(c) => c.execute(),
        Command::Explain(c) => c.execute(),
        Command::Serve(c) => c.execute(),
        Command::CheckConfig(c) => c.execute(),
        Command::Doctor(c) => c.execute(),
        Command::Bench(c) => c.execute(),
        Command::Key(c) => c.execute(),
        Command::Invite(c) => c.execute(),
        Command::Join(c) => c.execute(),
        Command::Discover(c) => c.execute(),
        Command::Info(c) => c.execute(),
        Command::Cp(c) => c.execute(),
        Command::Ls(c) => c.execute(),
        Command::Cat(c) => c.execute(),
        Command::Stat(c) => c.execute(),
        Command::Mkdir(c) => c.execute(),
        Command::Mv(c) => c.execute(),
        Command::Rm(c) => c.execute(),
        Command::Clear(c) => c.execute(),
        Command::Top(c) => c.execute(),
        Command::Metrics(c) => c.execute(),
        Command::Attach(c) => c.execute(),
        Command::Detach(c) => c.execute(),
        Command::Ping(c) => c.execute(),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "diskside", &mut script);
            Ok(output::stdout().write_all(&script)?)
        }
        Command::Manual(c) => c.execute(Cli::command()),
    }
}

/// Events go to standard error: warnings, or what `DISKSIDE_LOG` asks for (`info`, `debug`, …).
fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("DISKSIDE_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    let events = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| progress::AboveBar)
        .with_ansi(output::stderr_has_colours())
        // It would tell of them on standard error, which failed, and panic.
        .log_internal_errors(false)
        .with_target(false);
    if journal::is_stderr() {
        events.event_format(journal::Events::new()).init();
    } else {
        events.init();
    }
}
