//! Which files a scan is of: those that are named, those that patterns mean, and those below directories.

use super::super::Session;
use super::super::error::SessionError;
use crate::local_files::{FindError, below_or_matching};
use crate::location::{ExportUrl, Location};
use diskside_paths::Pattern;
use diskside_scan::{COLUMNS_MAX, ColumnType, Partitions};
use diskside_wire::file::{FileFlags, FileKind};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files of one scan.
const FILES_MAX: usize = 1 << 17;
/// Formats by the ends of names. Other files are what their first and last bytes say.
const EXTENSIONS: [(&str, &[&str]); 5] = [
    ("Parquet", &["parquet", "parq", "pq"]),
    ("Arrow", &["arrow", "arrows", "feather", "ipc"]),
    ("CSV with commas", &["csv"]),
    ("CSV with tabs", &["tsv"]),
    ("JSON lines", &["jsonl", "ndjson"]),
];

/// The files of a scan.
#[derive(Clone, Debug)]
pub struct ScanFiles {
    /// How messages call all of them.
    pub(super) name: String,
    /// In the order of the bytes of their paths, each once.
    pub(super) files: Vec<Location>,
    /// One file was named, and nothing else.
    is_plain: bool,
    /// What a table says of them.
    pub(super) table: Option<Arc<OfTable>>,
}

/// What the metadata of a table says of its files.
#[derive(Clone, Debug)]
pub(super) struct OfTable {
    /// Columns with one value in all rows of a file.
    pub(super) partitions: Partitions,
    /// Columns that are NULL where no file has them.
    pub(super) columns: Vec<(String, ColumnType)>,
}

impl ScanFiles {
    /// The file, if one was named, and neither a directory nor a pattern.
    #[must_use]
    pub fn plain(&self) -> Option<&Location> {
        self.files.first().filter(|_| self.is_plain)
    }

    /// All files, in the order in which they are read.
    #[must_use]
    pub fn all(&self) -> &[Location] {
        &self.files
    }

    /// The bytes of the path of the first file, by which the format of all is guessed.
    #[must_use]
    pub fn first_path(&self) -> &[u8] {
        self.files.first().map_or(b"", path)
    }

    /// Refuses files whose names are of two formats.
    pub(super) fn refuse_two_formats(&self) -> Result<(), SessionError> {
        let known = self.files.iter().filter_map(|file| Some((file, format_of(path(file))?))).collect::<Vec<_>>();
        let Some((first, of_first)) = known.first() else { return Ok(()) };
        match known.iter().find(|(_, of)| of != of_first) {
            None => Ok(()),
            Some((other, of_other)) => Err(SessionError::Input {
                name: self.name.clone(),
                why: format!(
                    "{first} is {of_first}, and {other} is {of_other}: the files of a scan are of one format; a pattern such as \
                     '**/*.parquet' takes some, and --input says what all are"
                ),
            }),
        }
    }
}

impl Session {
    /// Finds the files that places mean: a file, all below a directory, or those that a pattern means and all below the directories
    /// that it means. Where a name below a directory begins with `_` or `.`, it is left out, as Hive and Spark do; so is one that a
    /// wildcard means.
    ///
    /// # Errors
    /// A place cannot be looked at, or means no file.
    pub fn scan_files_of(&self, named: &[Location]) -> Result<ScanFiles, SessionError> {
        let name = match named {
            [one] => one.to_string(),
            [first, others @ ..] => format!("{first} and {} more", others.len()),
            [] => return Err(SessionError::Input { name: "scan".into(), why: "no file is named".into() }),
        };
        let mut files = Vec::new();
        for one in named {
            files.extend(self.files_of(one)?);
        }
        let is_plain = named.len() == 1 && files == named;
        files.sort_by(|a, b| key(a).cmp(&key(b)));
        files.dedup();
        refuse_too_many(&name, files.len())?;
        Ok(ScanFiles { name, files, is_plain, table: None })
    }

    /// The files of a table, which its metadata names: neither patterns nor directories. Columns that directories are called after mean
    /// nothing.
    ///
    /// * `name`: how messages call the table.
    /// * `files`: each with its values of `partitions`, as texts; `None` is NULL. There may be none.
    /// * `columns`: those that are NULL where no file has them.
    ///
    /// # Errors
    /// There are too many files, or a value is not of its column's type.
    pub fn scan_files_of_table(
        name: String,
        mut files: Vec<(Location, Vec<Option<String>>)>,
        partitions: Vec<(String, ColumnType)>,
        columns: Vec<(String, ColumnType)>,
    ) -> Result<ScanFiles, SessionError> {
        refuse_too_many(&name, files.len())?;
        if columns.len().max(partitions.len()) > COLUMNS_MAX {
            let why = format!("it has {} columns, and a scan of a table takes at most {COLUMNS_MAX}", columns.len());
            return Err(SessionError::Input { name, why });
        }
        files.sort_by(|(a, _), (b, _)| key(a).cmp(&key(b)));
        let (files, values): (Vec<_>, Vec<_>) = files.into_iter().unzip();
        let named: Vec<_> = files.iter().map(ToString::to_string).zip(values).collect();
        let partitions = Partitions::of_table(partitions, &named)
            .map_err(|error| SessionError::Input { name: name.clone(), why: error.to_string() })?;
        let table = Some(Arc::new(OfTable { partitions, columns }));
        Ok(ScanFiles { name, files, is_plain: false, table })
    }

    fn files_of(&self, named: &Location) -> Result<Vec<Location>, SessionError> {
        let input = |why: &str| Err(SessionError::Input { name: named.to_string(), why: why.into() });
        let (found, is_pattern): (Vec<Location>, bool) = match named {
            Location::Volume(_) => return Ok(vec![named.clone()]),
            Location::Local(path) => {
                let is_pattern = Pattern::has_wildcards(path.as_os_str().as_bytes()) && !path.exists();
                if !is_pattern && !path.is_dir() {
                    return Ok(vec![named.clone()]);
                }
                (local(path, is_pattern, named)?, is_pattern)
            }
            Location::Export(url) => {
                let is_pattern = Pattern::has_wildcards(&url.path);
                let found = self.look(url, |files| files.find(&url.path, FileFlags::RECURSIVE))?;
                let found: Vec<_> = match found {
                    // What is wrong with a file is said when it is opened.
                    Err(_) if !is_pattern => return Ok(vec![named.clone()]),
                    found => found.map_err(|error| SessionError::device(&named.to_string(), error))?,
                };
                // Neither are pipes, sockets and devices files to a server.
                let is_file = |kind| !matches!(kind, FileKind::Directory | FileKind::Other);
                let files = found.into_iter().filter(|one| is_file(one.kind));
                let files = files.map(|one| Location::Export(ExportUrl { path: one.path, ..url.clone() }));
                let files: Vec<_> = files.collect();
                if files.is_empty() {
                    // A file whose name looks like a pattern, one that is not there, or a directory.
                    let kind = self.look(url, |files| files.stat(&url.path))?.map(|info| info.kind);
                    if kind.as_ref().map_or(!is_pattern, |kind| *kind != FileKind::Directory) {
                        return Ok(vec![named.clone()]);
                    }
                }
                (files, is_pattern)
            }
        };
        if found == [named.clone()] {
            return Ok(found);
        }
        let why = found.iter().filter(|_| !is_pattern).find_map(|file| is_of_table(named, path(file)));
        if let Some(why) = why {
            return input(&why);
        }
        let skipped = base_len(path(named), is_pattern);
        let shows = |first: u8| {
            is_pattern && path(named)[skipped..].split(|byte| *byte == b'/').any(|name| name.first() == Some(&first))
        };
        let (shows_underscores, shows_dots) = (shows(b'_'), shows(b'.'));
        let is_shown = |name: &[u8]| match name {
            [b'.', ..] => shows_dots,
            // A column may be called so.
            [b'_', rest @ ..] => shows_underscores || rest.contains(&b'='),
            _ => true,
        };
        let base = &path(named)[..skipped];
        let mut shown = found;
        shown.retain(|file| below(path(file), base).split(|byte| *byte == b'/').all(is_shown));
        match shown.is_empty() {
            false => Ok(shown),
            true if is_pattern => input("no file matches this pattern"),
            true => input("there are no files in this directory, or only hidden ones, whose names begin with _ or ."),
        }
    }
}

/// Why a directory is not scanned as the files below it: one of them is the metadata of a table, by which some of its rows were deleted
/// or replaced.
fn is_of_table(named: &Location, file: &[u8]) -> Option<String> {
    let below = String::from_utf8_lossy(below(file, path(named)));
    let names: Vec<&str> = below.split('/').filter(|name| !name.is_empty()).collect();
    let of_delta = names.iter().position(|name| *name == "_delta_log").filter(|at| at + 1 < names.len());
    let (what, function, depth) = match (of_delta, &names[..]) {
        (Some(depth), _) => ("a Delta table", "scan_delta", depth),
        (None, [.., "metadata", name]) if name.contains(".metadata.json") => {
            ("an Iceberg table", "scan_iceberg", names.len() - 2)
        }
        _ => return None,
    };
    let (is, below) = match depth {
        0 => ("it is".to_owned(), String::new()),
        _ => (format!("{} below it is", names[..depth].join("/")), format!("{}/", names[..depth].join("/"))),
    };
    let directory = named.to_string();
    Some(format!(
        "{is} {what}, and rows in its files may be deleted or replaced: {function} of the Python package reads it. A pattern scans the \
         files as they are: '{}/{below}**/*.parquet'",
        directory.trim_end_matches('/')
    ))
}

fn refuse_too_many(name: &str, count: usize) -> Result<(), SessionError> {
    if count <= FILES_MAX {
        return Ok(());
    }
    let why = format!("there are {count} files, and a scan takes at most {FILES_MAX}: name a part of them");
    Err(SessionError::Input { name: name.to_owned(), why })
}

fn local(path: &Path, is_pattern: bool, named: &Location) -> Result<Vec<Location>, SessionError> {
    match below_or_matching(path, is_pattern) {
        Ok(found) => Ok(found.into_iter().map(Location::Local).collect()),
        Err(FindError::Directory { path, error: source }) => {
            Err(SessionError::Open { name: path.display().to_string(), source })
        }
        Err(error) => Err(SessionError::Input { name: named.to_string(), why: error.to_string() }),
    }
}

/// How many bytes of a path are as they were named: names of directories that are not part of a pattern.
fn base_len(named: &[u8], is_pattern: bool) -> usize {
    if !is_pattern {
        return named.len();
    }
    let wild = named.iter().position(|byte| b"*?[".contains(byte)).unwrap_or(named.len());
    named[..wild].iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1)
}

/// The path of a file below a directory, or below the part of a pattern that has no wildcards. An export leaves out names in it that mean
/// nothing.
fn below<'a>(file: &'a [u8], base: &[u8]) -> &'a [u8] {
    let behind = |base: &[u8]| {
        let is_whole = |rest: &&[u8]| base.is_empty() || base.ends_with(b"/") || rest.starts_with(b"/");
        file.strip_prefix(base).filter(is_whole)
    };
    let names = base.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".");
    behind(base).or_else(|| behind(&names.collect::<Vec<_>>().join(&b'/'))).unwrap_or(file)
}

pub(super) fn path(of: &Location) -> &[u8] {
    match of {
        Location::Local(path) => path.as_os_str().as_bytes(),
        Location::Export(url) => &url.path,
        Location::Volume(_) => b"",
    }
}

fn key(of: &Location) -> (String, &[u8]) {
    let place = match of {
        Location::Local(_) => String::new(),
        Location::Export(url) => ExportUrl { path: Vec::new(), ..url.clone() }.to_string(),
        Location::Volume(url) => url.to_string(),
    };
    (place, path(of))
}

fn format_of(path: &[u8]) -> Option<&'static str> {
    let extension = PathBuf::from(std::ffi::OsStr::from_bytes(path)).extension()?.to_ascii_lowercase();
    EXTENSIONS.iter().find(|(_, ends)| ends.iter().any(|end| extension == *end)).map(|(format, _)| *format)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_more_columns_than_a_scan_takes_is_refused() {
        let of = |count: usize| {
            let columns = (0..count).map(|number| (format!("c{number}"), ColumnType::Text)).collect();
            Session::scan_files_of_table("the table".into(), Vec::new(), Vec::new(), columns)
        };
        assert!(of(COLUMNS_MAX).is_ok());
        let told = of(COLUMNS_MAX + 1).unwrap_err().to_string();
        assert_eq!(told, "the table: it has 16385 columns, and a scan of a table takes at most 16384");
    }

    /// Of files below `.` in an export the first letter was cut off, so those that are hidden were scanned.
    #[test]
    fn a_path_below_a_directory_has_whole_names() {
        for (file, base, wanted) in [
            ("sales/_a/b", "sales", "/_a/b"),
            ("sales/_a", "sales/", "_a"),
            ("_a", ".", "_a"),
            (".a/b", ".", ".a/b"),
            ("./_a", ".", "/_a"),
            ("sales/_a", "./sales//", "/_a"),
            ("_a", "", "_a"),
        ] {
            assert_eq!(below(file.as_bytes(), base.as_bytes()), wanted.as_bytes(), "{file} below {base}");
        }
    }
}
