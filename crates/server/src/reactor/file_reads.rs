//! Which reads of exports' files have a worker of the ring, and which wait for one: hosts take turns.
//!
//! An export that hangs keeps its own workers, and a file that hangs leaves some of them to the other files. The kernel has more
//! workers for each ring than such exports keep.

use std::collections::{BTreeSet, HashMap};

use diskside_compute::FileRead;
use diskside_export::Turns;
use diskside_io::ring::{Interface, interface};
use slab::Slab;

/// Reads of one export that have a worker at a time: half of them of one file, and three quarters of one host.
const WORKERS_OF_EXPORT: usize = 16;
/// The same without io_uring, where a ring has 32 workers in all.
const THREADS_OF_EXPORT: usize = 8;

/// All reads of files that have not ended.
#[derive(Debug)]
pub(super) struct FileReads {
    pub(super) reads: Slab<Reading>,
    /// By the export's number.
    exports: HashMap<usize, OfExport>,
    workers_max: usize,
}

#[derive(Debug)]
pub(super) struct Reading {
    connection: usize,
    host: usize,
    pub(super) export: usize,
    file: u64,
    pub(super) read: FileRead,
}

/// The reads of an export: those that wait for a worker, and how many of each file have one.
#[derive(Debug, Default)]
struct OfExport {
    /// Places in the list of all reads, with their files.
    turns: Turns<usize, (u64, usize)>,
    files: HashMap<u64, usize>,
}

impl FileReads {
    pub(super) fn new() -> Self {
        let is_uring = matches!(interface(), Ok(Interface::IoUring));
        let workers_max = if is_uring { WORKERS_OF_EXPORT } else { THREADS_OF_EXPORT };
        Self { reads: Slab::new(), exports: HashMap::new(), workers_max }
    }

    pub(super) fn add(&mut self, connection: usize, host: usize, read: FileRead) -> usize {
        let (export, file) = (read.read().export_id(), read.read().file_id());
        let key = self.reads.insert(Reading { connection, host, export, file, read });
        self.exports.entry(export).or_default().turns.push(host, (file, key));
        export
    }

    /// The next read that may have a worker.
    pub(super) fn next(&mut self, export: usize) -> Option<usize> {
        self.exports.get_mut(&export)?.next(self.workers_max)
    }

    /// A read has ended that had a worker.
    pub(super) fn remove(&mut self, key: usize) -> Reading {
        let reading = self.reads.remove(key);
        if let Some(export) = self.exports.get_mut(&reading.export) {
            export.ended(reading.host, reading.file);
        }
        self.forget_idle();
        reading
    }

    /// The reads of a connection that wait for a worker.
    pub(super) fn take_out(&mut self, connection: usize) -> Vec<Reading> {
        let reads = &self.reads;
        let is_of_it = |(_, key): &(u64, usize)| reads[*key].connection == connection;
        let out: Vec<_> = self.exports.values_mut().flat_map(|export| export.turns.take_out(is_of_it)).collect();
        self.forget_idle();
        out.into_iter().map(|(_, key)| self.reads.remove(key)).collect()
    }

    fn forget_idle(&mut self) {
        self.exports.retain(|_, export| !export.turns.is_empty());
    }

    /// The connection that a read came from.
    pub(super) fn connection_of(&self, key: usize) -> usize {
        self.reads[key].connection
    }

    pub(super) fn len(&self) -> usize {
        self.reads.len()
    }

    /// The names of the exports that are read.
    pub(super) fn exports(&self) -> BTreeSet<&str> {
        self.reads.iter().map(|(_, reading)| reading.read.read().export_name()).collect()
    }
}

impl OfExport {
    fn next(&mut self, max: usize) -> Option<usize> {
        let files = &self.files;
        let all: usize = files.values().sum();
        let may_run = |_, of_host: usize, (file, _): &(u64, usize)| {
            let of_file = files.get(file).copied().unwrap_or(0);
            all < max && of_file < max / 2 && of_host < max * 3 / 4
        };
        let (_, (file, key)) = self.turns.take(may_run)?;
        *self.files.entry(file).or_default() += 1;
        Some(key)
    }

    fn ended(&mut self, host: usize, file: u64) {
        self.turns.ended(host);
        if let Some(of_file) = self.files.get_mut(&file) {
            *of_file -= 1;
        }
        self.files.retain(|_, of_file| *of_file > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(export: &mut OfExport) -> Vec<usize> {
        std::iter::from_fn(|| export.next(16)).collect()
    }

    #[test]
    fn a_file_a_host_and_an_export_have_their_parts_of_the_workers() {
        let mut export = OfExport::default();
        let (hung, calm) = (1, 2);
        for key in 0..20 {
            export.turns.push(7, (hung, key));
        }
        assert_eq!(begun(&mut export), [0, 1, 2, 3, 4, 5, 6, 7], "of one file");
        for key in 20..40 {
            export.turns.push(7, (calm, key));
        }
        assert_eq!(begun(&mut export), [20, 21, 22, 23], "of one host");
        for key in 40..50 {
            export.turns.push(8, (if key % 2 == 0 { hung } else { key as u64 }, key));
        }
        assert_eq!(begun(&mut export), [41, 43, 45, 47], "of the export; another file than that which has all it may");
        export.ended(7, calm);
        assert_eq!(begun(&mut export), [49], "of the host that has fewer");
        export.ended(7, hung);
        assert_eq!(begun(&mut export), [40]);
    }
}
