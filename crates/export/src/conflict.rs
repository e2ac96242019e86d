//! Files that one call would read and write, or write twice.

use std::os::fd::AsFd;

use rustix::fs::Statx;

use super::attributes::status;
use super::open_file::OpenFile;
use super::root::same_file;
use super::{FileSink, FileSource};
use crate::reply::FileError;

/// Why these sources and sinks of one call get in each other's way, if they do. They are the same also where they were opened
/// twice, or by two names.
///
/// # Errors
/// One of the files could not be looked at.
pub fn conflict(sources: &[FileSource], sinks: &[&FileSink]) -> Result<Option<String>, FileError> {
    if sinks.is_empty() || sources.len() + sinks.len() < 2 {
        return Ok(None);
    }
    // Nothing writes to objects of stores.
    let sources = sources.iter().filter_map(FileSource::file).map(look).collect::<Result<Vec<_>, _>>()?;
    let mut before: Vec<(&FileSink, Statx)> = Vec::with_capacity(sinks.len());
    for &sink in sinks {
        let (file, name) = (look(sink.named())?, &sink.named().name);
        if !sink.is_replaced() && sources.iter().any(|source| same_file(source, &file)) {
            return Ok(Some(format!(
                "{name} is a source of this call, which would change it while it reads: let its output replace the file, \
                 or go elsewhere"
            )));
        }
        let apart =
            |(other, there): &(&FileSink, Statx)| !same_file(there, &file) || other.is_in_place() && sink.is_in_place();
        if !before.iter().all(apart) {
            return Ok(Some(format!(
                "{name} is more than one sink of this call, and not written in place by all of them"
            )));
        }
        before.push((sink, file));
    }
    Ok(None)
}

/// The files that sinks change while the call reads: none of them may be a source.
pub fn changed(sinks: &[&FileSink]) -> Result<Vec<Statx>, FileError> {
    sinks.iter().filter(|sink| !sink.is_replaced()).map(|sink| look(sink.named())).collect()
}

fn look(file: &OpenFile) -> Result<Statx, FileError> {
    status(file.fd.as_fd()).map_err(|errno| FileError::new(errno, &file.name))
}
