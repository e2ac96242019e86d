//! `diskside manual`: the commands' own definition as manual pages, or as one document.

use crate::error::Failure;
use crate::output;
use clap::Args;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Writes a manual page for each command.
#[derive(Args)]
pub(crate) struct Manual {
    /// The directory to write them into, such as /usr/local/share/man/man1; it is created if it does not exist.
    #[arg(required_unless_present = "markdown")]
    directory: Option<PathBuf>,
    /// Print all commands as one Markdown document instead.
    #[arg(long, conflicts_with = "directory")]
    markdown: bool,
}

impl Manual {
    pub(crate) fn execute(self, command: clap::Command) -> Result<(), Failure> {
        let Some(directory) = self.directory else {
            return Ok(output::stdout().write_all(markdown(command).as_bytes())?);
        };
        pages(command, &directory)
            .map_err(|e| Failure::Environment(format!("{}: cannot write the manual pages: {e}", directory.display())))
    }
}

/// `diskside.1`, `diskside-run.1`, and so on.
fn pages(command: clap::Command, directory: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)?;
    clap_mangen::generate_to(command, directory)
}

fn markdown(command: clap::Command) -> String {
    let options = clap_markdown::MarkdownOptions::new()
        .title("Commands".to_owned())
        .show_footer(false)
        .show_table_of_contents(false)
        .show_aliases(false);
    let text = clap_markdown::help_markdown_command_custom(&command, &options);
    let mut page = String::with_capacity(text.len());
    let mut in_example = false;
    let mut after_heading = false;
    for line in text.trim_end().lines().map(str::trim_end) {
        // Help shows commands below such a line, indented for terminals.
        after_heading = matches!(line, "Example:" | "Examples:") || (after_heading && line.starts_with("  "));
        let is_example = after_heading && line.starts_with("  ");
        if is_example != in_example {
            page.push_str(if is_example { "\n```console\n" } else { "```\n" });
            in_example = is_example;
        }
        page.push_str(if is_example { line.trim_start() } else { line });
        page.push('\n');
    }
    page
}
