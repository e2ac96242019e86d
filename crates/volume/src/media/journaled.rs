//! A volume's file and its journal: which journal belongs to which file, and whether a file may be served without one.
//!
//! A journal has an identifier, and a file that may lack what its journal has is marked with it (`atomic::Mark`). So a file is not served
//! without its journal, nor with that of another file: either way acknowledged writes would be lost, or replaced by older ones.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use diskside_io::Errno;
use rustix::fs::{Gid, Uid, fchown, fstat};

use super::atomic::{ATTRIBUTE, AtomicMedium, AtomicOptions, JOURNAL_LEN, JOURNAL_LEN_MIN, Kind, Mark};
use super::file::{FileMedium, OpenOptions};
use crate::medium::Medium;

/// Where the journal of a file is, unless the user said another place. A link to the file has no other journal.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.canonicalize().unwrap_or_else(|_| path.to_owned()).into_os_string();
    name.push(".journal");
    name.into()
}

/// Refuses a file without `atomic=` whose last writes may be in a journal only.
pub(super) fn check_without(image: &Path, file: &impl AsFd) -> io::Result<()> {
    let mark = Mark::of(file).ok().flatten().filter(|mark| !is_done_with(mark));
    let is_marked = mark.is_some();
    let journal = mark.map_or_else(|| beside(image), |mark| mark.journal);
    if !is_marked && !matches!(kind(&journal)?, Some(Kind::Journal { pending: true, .. })) {
        return Ok(());
    }
    Err(refused(format!(
        "{} has writes that may not be in the volume: serve it with rw and atomic= once, and end that in order{}",
        journal.display(),
        if is_marked { give_up(image) } else { String::new() }
    )))
}

/// Makes a medium atomic by the journal at `journal`, or beside the image.
pub(super) fn open(
    (inner, file): (Arc<dyn Medium>, &Arc<OwnedFd>),
    image: &Path,
    journal: Option<&Path>,
    options: &AtomicOptions,
) -> io::Result<AtomicMedium> {
    let path = journal.map_or_else(|| beside(image), Path::to_owned);
    let path = std::path::absolute(&path).unwrap_or(path);
    let mark = Mark::of(file);
    check(image, &path, &mark)?;
    let medium = open_journal(&path, file)?;
    let mut medium = AtomicMedium::new(inner, medium, options).map_err(|error| {
        io::Error::new(error.kind(), format!("{} with {}: {error}", image.display(), path.display()))
    })?;
    match mark.map(|_| medium.mark(file, &path)) {
        // Devices, and file systems without attributes.
        Ok(Ok(())) | Err(Errno::OPNOTSUPP) => {}
        Ok(Err(errno)) | Err(errno) => {
            tracing::warn!(volume = %options.name, image = %image.display(), %errno, "cannot mark the image as one with a journal");
        }
    }
    Ok(medium)
}

/// Whether the journal at `path` is the image's, as far as the mark says.
fn check(image: &Path, path: &Path, mark: &Result<Option<Mark>, Errno>) -> io::Result<()> {
    let Ok(mark) = mark else { return Ok(()) };
    let found = kind(path)?;
    let is_missing = found.is_none();
    let (id, pending) = match found {
        Some(Kind::Journal { id, pending }) => (id, pending),
        Some(Kind::New | Kind::Other) | None => (None, false),
    };
    match (mark, id) {
        (Some(mark), Some(id)) if mark.id == id => Ok(()),
        (Some(mark), _) if !is_done_with(mark) && is_missing && mark.journal == path => Err(refused(format!(
            "the last writes of {} are in its journal {}, which is missing: bring it back{}",
            image.display(),
            path.display(),
            give_up(image)
        ))),
        (Some(mark), _) if !is_done_with(mark) => Err(refused(format!(
            "the last writes of {} are in another journal than {}, in {}: name that by journal=, or bring it back{}",
            image.display(),
            path.display(),
            mark.journal.display(),
            give_up(image)
        ))),
        (_, Some(id)) if pending => {
            let own = Mark { id, journal: path.to_owned() };
            Err(refused(format!(
                "{} has writes for another file than {}, which was closed in order; if the file is a copy that was made together with \
                 the journal, mark it: setfattr -n {ATTRIBUTE} -v '{}' {}",
                path.display(),
                image.display(),
                own.text(),
                image.display()
            )))
        }
        _ => Ok(()),
    }
}

/// Whether the journal of a mark is there, and has nothing that its file lacks.
fn is_done_with(mark: &Mark) -> bool {
    matches!(kind(&mark.journal), Ok(Some(Kind::Journal { id: Some(id), pending: false })) if id == mark.id)
}

fn kind(path: &Path) -> io::Result<Option<Kind>> {
    match Kind::of(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        kind => kind.map(Some).map_err(|error| in_journal(path, &error)),
    }
}

fn give_up(image: &Path) -> String {
    format!(". To do without them: setfattr -x {ATTRIBUTE} {}", image.display())
}

/// Opens a journal, or makes one of zeroes.
fn open_journal(path: &Path, image: &impl AsFd) -> io::Result<Arc<dyn Medium>> {
    let is_empty = std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.len() == 0);
    if is_empty || !path.exists() {
        make_journal(path, image).map_err(|error| in_journal(path, &error))?;
    }
    if kind(path)? == Some(Kind::Other) {
        let what = format!("{} is not a journal: name a file that is not there, or a device of zeroes", path.display());
        return Err(refused(what));
    }
    let options = OpenOptions { read_only: false, buffered: false, size: None, block_bytes: 4096 };
    let medium = FileMedium::open(path, &options)?;
    if medium.properties().len_bytes < JOURNAL_LEN_MIN {
        return Err(refused(format!("the journal {} is shorter than {JOURNAL_LEN_MIN} bytes", path.display())));
    }
    Ok(Arc::new(medium))
}

fn make_journal(path: &Path, image: &impl AsFd) -> io::Result<()> {
    let partial = path.with_extension("journal-new");
    // One may be left of a start that was cut short. A link in its place goes, and not the file to which it leads.
    match std::fs::remove_file(&partial) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(&partial)?;
    // The user that can open the image can open its journal: a server that root started opens both again as another user.
    let owner = fstat(image)?;
    if owner.st_uid != fstat(&file)?.st_uid {
        fchown(&file, Some(Uid::from_raw(owner.st_uid)), Some(Gid::from_raw(owner.st_gid)))?;
    }
    // Blocks that were written before are written again without a change of the file system's own.
    io::copy(&mut io::Read::take(io::repeat(0), JOURNAL_LEN), &mut &file)?;
    file.sync_all()?;
    std::fs::rename(&partial, path)?;
    // Without its name a journal is nothing after power loss.
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::File::open(directory)?.sync_all()
}

fn in_journal(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("the journal {}: {error}", path.display()))
}

fn refused(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}
