//! `diskside mkdir`, `mv` and `rm`: what changes the names in exports.

use super::exports::{failed, not_there, parse_export, refuse_no_export, refuse_pattern, session};
use super::volume::{Connect, session_failure};
use crate::error::Failure;
use clap::Args;
use diskside::ExportUrl;
use diskside::host::function::{Files, FunctionError};
use diskside::wire::file::FileKind;

const URL: &str = "diskside://HOST[:PORT]/EXPORT/PATH";
/// Linux' EEXIST.
const EXISTS: i32 = 17;

/// Arguments of `mkdir`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  diskside mkdir diskside://server/data/reports
  diskside mkdir --parents diskside://server/data/2026/11/23")]
pub(crate) struct Mkdir {
    /// Directories
    #[arg(required = true, value_name = URL, value_parser = parse_export)]
    urls: Vec<ExportUrl>,
    /// Make the directories above, too, and do not mind those that are there
    #[arg(long, short)]
    parents: bool,
    #[command(flatten)]
    connect: Connect,
}

/// Arguments of `mv`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  diskside mv diskside://server/data/new.csv diskside://server/data/report.csv
  diskside mv diskside://server/data/report.csv diskside://server/data/reports")]
pub(crate) struct Mv {
    /// A file or a directory
    #[arg(value_name = URL, value_parser = parse_export)]
    source: ExportUrl,
    /// Its new name in the same export; in a directory it keeps its own
    #[arg(value_name = "NEW", value_parser = parse_export)]
    destination: ExportUrl,
    /// Do not replace a file that has the new name
    #[arg(long, short)]
    no_clobber: bool,
    #[command(flatten)]
    connect: Connect,
}

/// Arguments of `rm`.
#[derive(Args)]
pub(crate) struct Rm {
    /// Files, or with --dir empty directories
    #[arg(required = true, value_name = URL, value_parser = parse_export)]
    urls: Vec<ExportUrl>,
    /// Remove empty directories
    #[arg(long)]
    dir: bool,
    #[command(flatten)]
    connect: Connect,
}

impl Mkdir {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let session = session(&self.connect)?;
        for url in &self.urls {
            refuse_no_export(url)?;
            let files = session.files(url).map_err(session_failure)?;
            if !self.parents {
                files.make_directory(&url.path, MODE).map_err(|error| not_there(&session, url, &error))?;
                continue;
            }
            // The export itself is there.
            let ends = url.path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at).skip(1);
            for end in ends.chain([url.path.len()]) {
                let made = make_unless_there(&files, &url.path[..end]);
                made.map_err(|error| not_there(&session, url, &error))?;
            }
        }
        Ok(())
    }
}

/// Less the umask of the server.
const MODE: u32 = 0o777;

fn make_unless_there(files: &Files, path: &[u8]) -> Result<(), FunctionError> {
    let error = match files.make_directory(path, MODE) {
        Err(error) => error,
        Ok(()) => return Ok(()),
    };
    // In a read-only export and at its root, what is there need not be made either.
    match files.stat(path) {
        Ok(info) if info.kind == FileKind::Directory => Ok(()),
        // A link that leads nowhere, or out of the export.
        Err(why) if error.errno() == Some(EXISTS) => Err(why),
        Ok(_) | Err(_) => Err(error),
    }
}

impl Mv {
    pub(crate) fn execute(mut self) -> Result<(), Failure> {
        let (source, to) = (&self.source, &self.destination);
        let export_of = |url: &ExportUrl| url.path.split(|byte| *byte == b'/').next().map(<[u8]>::to_vec);
        [source, to].into_iter().try_for_each(refuse_no_export)?;
        if source.authority() != to.authority() || source.tls != to.tls || export_of(source) != export_of(to) {
            return Err(Failure::Usage(format!(
                "{source} and {to} are not in one export, and only names change: copy it (diskside cp), and remove it (diskside rm)"
            )));
        }
        let session = session(&self.connect)?;
        let files = session.files(to).map_err(session_failure)?;
        refuse_pattern(&files, to, "or make a file of this very name there first")?;
        if files.stat(&to.path).is_ok_and(|info| info.kind == FileKind::Directory) {
            self.destination = to.join(source.name());
        }
        let to = &self.destination;
        files.rename(&source.path, &to.path, !self.no_clobber).map_err(|error| match error.errno() {
            Some(EXISTS) => failed(to, &error),
            _ => not_there(&session, source, &error),
        })
    }
}

impl Rm {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let session = session(&self.connect)?;
        for url in &self.urls {
            let files = session.files(url).map_err(session_failure)?;
            let path = &url.path;
            let removed = if self.dir { files.remove_directory(path) } else { files.unlink(path) };
            removed.map_err(|e| not_there(&session, url, &e))?;
        }
        Ok(())
    }
}
