//! Measurements of functions at targets, kept in files for the next process.
//!
//! A file for each target and function, a few hundred bytes of it ([`Learnt`]). Files are replaced whole, so writers at
//! the same time leave one of theirs. A file that is damaged, or gone, costs nothing but measuring again.

use diskside_dispatch::{Learnt, TEXT_LEN_MAX_BYTES};
use diskside_outfile::write_private;
use rustix::fs::OFlags;
use std::collections::HashMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Most files that are kept; the ones that were written least recently give way.
pub(super) const FILES_MAX: usize = 512;
/// How their names end.
const SUFFIX: &str = "learnt";

/// A target, and a function by its content and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Subject {
    pub(super) target: String,
    pub(super) program: u64,
    pub(super) function: String,
}

#[derive(Debug)]
pub(super) struct LearntFiles {
    directory: PathBuf,
    /// Pairs of this session by the subject whose file they belong to: the last one used represents it.
    used: Mutex<HashMap<Subject, diskside_dispatch::PairId>>,
}

impl LearntFiles {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { directory, used: Mutex::default() }
    }

    /// What is kept of a subject.
    pub(super) fn load(&self, subject: &Subject) -> Option<Learnt> {
        let mut text = String::new();
        // A FIFO of that name would be waited for.
        let mut options = fs::File::options();
        let file =
            options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(self.path(subject)).ok()?;
        file.take(TEXT_LEN_MAX_BYTES as u64 + 1).read_to_string(&mut text).ok()?;
        Learnt::from_text(&text)
    }

    /// Remembers which pair a subject's file is to be written from.
    pub(super) fn note(&self, subject: Subject, pair: diskside_dispatch::PairId) {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).insert(subject, pair);
    }

    /// Writes the files of all subjects that were used.
    pub(super) fn save(&self, learnt: impl Fn(diskside_dispatch::PairId) -> Option<Learnt>) -> io::Result<()> {
        let used = std::mem::take(&mut *self.used.lock().unwrap_or_else(PoisonError::into_inner));
        let known: Vec<_> = used.into_iter().filter_map(|(subject, pair)| Some((subject, learnt(pair)?))).collect();
        if known.is_empty() {
            return Ok(());
        }
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        for (subject, learnt) in known {
            write_private(&self.path(&subject), learnt.to_text().as_bytes())?;
        }
        self.prune()
    }

    /// Removes what is too much.
    fn prune(&self) -> io::Result<()> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            // Only what was written here is removed.
            if Path::new(&entry.file_name()).extension().is_none_or(|extension| extension != SUFFIX) {
                continue;
            }
            // Another process may have removed it meanwhile.
            let Ok(written) = entry.metadata().and_then(|found| found.modified()) else { continue };
            files.push((written, entry.path()));
        }
        files.sort_by(|a, b| b.cmp(a));
        for (_, path) in files.drain(FILES_MAX.min(files.len())..) {
            let _ = fs::remove_file(path);
        }
        Ok(())
    }

    fn path(&self, subject: &Subject) -> PathBuf {
        let mut hasher = DefaultHasher::new();
        subject.hash(&mut hasher);
        self.directory.join(format!("{:016x}.{SUFFIX}", hasher.finish()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskside_dispatch::{Observation, PairId, Side};

    const PAIR: PairId = PairId { file: 1, function: 1 };

    fn subject(program: u64) -> Subject {
        Subject { target: "nvme-tcp://server".into(), program, function: "f".into() }
    }

    fn learnt(s: f64) -> Learnt {
        let observation = Observation {
            side: Side::Device,
            len_bytes: 1,
            input_bytes: 1,
            output_bytes: 1,
            round_trip_s: s,
            queue_s: s,
            input_s: s,
            run_s: s,
            output_s: s,
            total_s: s,
        };
        Learnt { observations: vec![observation], credit_s: 0.0, since: 1, interval: 1, free: 0, requests: 1 }
    }

    fn save(files: &LearntFiles, program: u64, s: f64) -> io::Result<()> {
        files.note(subject(program), PAIR);
        files.save(|_| Some(learnt(s)))
    }

    #[test]
    fn it_is_there_for_the_next_process_and_garbage_is_not() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("state/diskside");
        let files = LearntFiles::new(directory.clone());
        assert_eq!(files.load(&subject(1)), None);
        save(&files, 1, 0.5).unwrap();
        let next = LearntFiles::new(directory.clone());
        assert_eq!((next.load(&subject(1)), next.load(&subject(2))), (Some(learnt(0.5)), None));
        let path = next.path(&subject(1));
        for garbage in [&b"diskside-learnt 2 x"[..], b"", &[0xff; 100], &[b' '; 1 << 20]] {
            fs::write(&path, garbage).unwrap();
            assert_eq!(next.load(&subject(1)), None);
        }
        // A run waited for good for somebody to write into it.
        fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert_eq!(next.load(&subject(1)), None);
        fs::remove_file(&path).unwrap();
        save(&next, 1, 0.25).unwrap();
        assert_eq!(next.load(&subject(1)), Some(learnt(0.25)), "garbage is written over");
    }

    #[test]
    fn writers_at_once_leave_whole_files_and_nothing_else() {
        let home = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let files = LearntFiles::new(home.path().to_owned());
                scope.spawn(move || {
                    for n in 0..100 {
                        save(&files, writer, f64::from(n)).unwrap();
                        save(&files, u64::MAX, f64::from(n)).unwrap();
                    }
                });
            }
        });
        let files = LearntFiles::new(home.path().to_owned());
        assert!((0..4).chain([u64::MAX]).all(|writer| files.load(&subject(writer)).is_some()));
        assert!((0..4).all(|writer| files.load(&subject(writer)) == Some(learnt(99.0))));
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 5);
    }

    #[test]
    fn the_directory_stays_small() {
        let home = tempfile::tempdir().unwrap();
        let files = LearntFiles::new(home.path().to_owned());
        for program in 0..FILES_MAX as u64 + 3 {
            fs::write(files.path(&subject(program)), "old").unwrap();
            // Files that others keep there are neither counted nor removed: all files of a directory went once that a
            // link led to.
            fs::write(home.path().join(format!("{program}.txt")), "mine").unwrap();
        }
        save(&files, u64::MAX, 1.0).unwrap();
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), FILES_MAX + FILES_MAX + 3);
        assert_eq!(files.load(&subject(u64::MAX)), Some(learnt(1.0)), "the newest stays");
    }

    #[test]
    fn a_directory_that_cannot_be_written_is_an_error_and_nothing_else() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("file");
        fs::write(&file, "in the way").unwrap();
        save(&LearntFiles::new(file.join("state")), 1, 1.0).unwrap_err();
    }
}
