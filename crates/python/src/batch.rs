//! Reading many ranges of files of exports at once: every file is opened by one command, and every range read by as few as
//! its length takes, all of them on the way together. So a batch takes two round trips however many files and ranges it has.
//!
//! It takes one where files were opened before. Right after that, or where bytes are wanted of the version that was opened, they are
//! read from that handle; else they are read from it while the file is looked for, and taken if it still is the same.

use crate::error::Failure;
use diskside::ExportUrl;
use diskside::host::drive;
use diskside::host::function::{FileInfo, FunctionError, RemoteFile};
use diskside::io::buffer::Buffer;
use diskside::io::request::{RequestFuture, promise, run_here};
use diskside::session::{Session, SessionError};
use diskside::wire::file::FileFlags;
use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A range of a file of an export. A start below 0 counts from the end of the file.
pub(crate) struct Wanted {
    pub(crate) url: ExportUrl,
    pub(crate) start: i64,
    pub(crate) end: Option<u64>,
    /// The version of the file that the range was chosen for, as a chunk is by the index of its shard.
    pub(crate) version: Option<u64>,
}

/// Ranges of one file, by their places in the batch.
struct Group {
    url: ExportUrl,
    ranges: Vec<(usize, i64, Option<u64>)>,
    /// The one that all of them are wanted of.
    version: Option<u64>,
}

/// Files that are open for batches that follow, which often read on in them, as in a shard whose index was read.
#[derive(Default)]
pub(crate) struct Handles {
    open: Mutex<HashMap<String, (RemoteFile, Instant)>>,
}

/// How long a file that was opened is not looked for again once the batch is read that it was opened for: what has its name then
/// may be another file.
const FRESH: Duration = Duration::from_millis(100);
/// How long it stays open.
const HANDLE_LIFE: Duration = Duration::from_secs(10);
/// A target keeps no more than some handles of a host.
const HANDLES_MAX: usize = 64;

/// A file that was opened before.
struct Kept {
    file: RemoteFile,
    is_fresh: bool,
}

impl Kept {
    /// Whether what is read of it is what is wanted, or nothing is.
    fn will_do(&self, version: Option<u64>) -> bool {
        version.map_or(self.is_fresh, |version| self.file.info().version == version)
    }
}

impl Handles {
    /// Forgets what is open by this name, which is going to be another file's, or nobody's.
    pub(crate) fn forget(&self, url: &ExportUrl) {
        self.lock().remove(&url.to_string());
    }

    fn get(&self, name: &str) -> Option<Kept> {
        let mut open = self.lock();
        open.retain(|_, (_, opened)| opened.elapsed() < HANDLE_LIFE);
        open.get(name).map(|(file, opened)| Kept { file: file.clone(), is_fresh: opened.elapsed() < FRESH })
    }

    /// Keeps it instead of the one that was used longest ago, if there are too many.
    fn keep(&self, name: &str, file: &RemoteFile) {
        let mut open = self.lock();
        if open.len() >= HANDLES_MAX && !open.contains_key(name) {
            let oldest = open.iter().min_by_key(|(_, (_, opened))| *opened).map(|(name, _)| name.clone());
            oldest.and_then(|oldest| open.remove(&oldest));
        }
        open.insert(name.to_owned(), (file.clone(), Instant::now()));
    }

    /// A round trip may take longer than a handle is fresh: those of a batch are so from its end on, unless they were
    /// forgotten meanwhile.
    fn renew(&self, name: &str) {
        if let Some((_, opened)) = self.lock().get_mut(name) {
            *opened = Instant::now();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, (RemoteFile, Instant)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes, the length of their file, and the version of it that they are of; 0: of more than one.
pub(crate) type Read = Result<(Buffer, u64, u64), Failure>;

/// Begins to read. The results come in the order of the wishes: for each the bytes that are there. With `anew`, files
/// that are open for a batch before are looked for again.
pub(crate) fn fetch(
    session: &Session,
    handles: &Arc<Handles>,
    wanted: Vec<Wanted>,
    anew: bool,
) -> Result<impl Future<Output = Vec<Read>> + Send + use<>, Failure> {
    let count = wanted.len();
    let mut groups: Vec<Group> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    for (place, one) in wanted.into_iter().enumerate() {
        let index = *known.entry(one.url.to_string()).or_insert_with(|| {
            groups.push(Group { url: one.url, ranges: Vec::new(), version: one.version });
            groups.len() - 1
        });
        let group = &mut groups[index];
        group.version = group.version.filter(|version| one.version == Some(*version));
        group.ranges.push((place, one.start, one.end));
    }
    let mut begun = Vec::with_capacity(groups.len());
    for group in groups {
        let name = group.url.to_string();
        if group.url.has_copies() {
            begun.push(read_copy(session.clone(), group, name));
            continue;
        }
        let (files, handles) = (session.files(&group.url)?, Arc::clone(handles));
        begun.push(drive(async move {
            let ranges = group.ranges;
            let mut kept = handles.get(&name);
            if let Some(Kept { file, .. }) = kept.take_if(|kept| !anew && kept.will_do(group.version)) {
                let read = read_all(&file, &name, &ranges).await;
                if are_of(&read, file.info().version) {
                    return Ok(read);
                }
            }
            let looked_for = files.lookup(&group.url.path, FileFlags::READ);
            let ahead = match &kept {
                Some(Kept { file, .. }) => read_all(file, &name, &ranges).await,
                None => Vec::new(),
            };
            let file = match looked_for.await {
                Ok(file) => file,
                Err(error) => return Ok::<_, SessionError>(all_failed(&name, &ranges, error)),
            };
            handles.keep(&name, &file);
            let is_ahead = kept.is_some_and(|kept| is_same(&kept.file.info(), &file.info()));
            let read = if is_ahead && are_of(&ahead, file.info().version) {
                ahead
            } else {
                read_all(&file, &name, &ranges).await
            };
            handles.renew(&name);
            Ok(read)
        }));
    }
    Ok(async move {
        let mut all: Vec<Option<Read>> = (0..count).map(|_| None).collect();
        for group in begun {
            for (place, read) in group.await.unwrap_or_default() {
                all[place] = Some(read);
            }
        }
        let lost = || Err(Failure::environment("the connection was lost before the request completed"));
        all.into_iter().map(|read| read.unwrap_or_else(lost)).collect()
    })
}

/// Reads the ranges of a file that several servers hold, all from one of them: on a thread, because finding one may take long.
fn read_copy(session: Session, group: Group, name: String) -> RequestFuture<Result<Vec<(usize, Read)>, SessionError>> {
    let (promise, future) = promise();
    let work = move || {
        let read = session.look(&group.url, |files| {
            let file = run_here(files.lookup(&group.url.path, FileFlags::READ))?;
            let (name, ranges, of) = (name.clone(), group.ranges.clone(), file.clone());
            let read = run_here(drive(async move { Ok::<_, SessionError>(read_all(&of, &name, &ranges).await) }));
            // After a loss this fails, and another server is asked.
            run_here(file.stat())?;
            Ok(read)
        });
        match read? {
            Ok(read) => read,
            Err(error) => Ok(all_failed(&name, &group.ranges, error)),
        }
    };
    // Without a thread the promise is gone, and says that the requests were lost.
    drop(std::thread::Builder::new().name("diskside".into()).spawn(move || promise.complete(work())));
    future
}

/// Whether all bytes are of the version that was known when their ranges were chosen: another one may be longer. Of no bytes
/// nobody knows.
fn are_of(read: &[(usize, Read)], known: u64) -> bool {
    let is_of = |read: &Read| matches!(read, Ok((bytes, _, version)) if *version == known && !bytes.is_empty());
    read.iter().all(|(_, read)| is_of(read))
}

/// Whether a file that is found now is the one that was open, and has not changed.
fn is_same(before: &FileInfo, now: &FileInfo) -> bool {
    (before.inode, before.version) == (now.inode, now.version) && !now.recent
}

async fn read_all(file: &RemoteFile, name: &str, ranges: &[(usize, i64, Option<u64>)]) -> Vec<(usize, Read)> {
    let info = file.info();
    let begun: Vec<_> = ranges
        .iter()
        .map(|(place, start, end)| {
            let (start, end) = clamped(&info, *start, *end);
            let buffer = Buffer::zeroed(usize::try_from(end - start).unwrap_or(0));
            let file = file.clone();
            (*place, drive(async move { Ok::<_, SessionError>(file.read_of_version(start, buffer).await) }))
        })
        .collect();
    let mut read = Vec::with_capacity(begun.len());
    for (place, outcome) in begun {
        let (outcome, version) = match outcome.await {
            Ok(read) => read,
            Err(error) => {
                read.push((place, Err(error.into())));
                continue;
            }
        };
        let failed = |source| Failure::from(SessionError::File { name: name.to_owned(), source });
        // Of no bytes the target was not asked.
        let version_of = |bytes: &Buffer| if bytes.is_empty() { info.version } else { version.unwrap_or_default() };
        let bytes = outcome.into_read().map(|bytes| {
            let version = version_of(&bytes);
            (bytes, info.len_bytes, version)
        });
        read.push((place, bytes.map_err(failed)));
    }
    read
}

/// Which bytes of the file are meant.
fn clamped(info: &FileInfo, start: i64, end: Option<u64>) -> (u64, u64) {
    let len = info.len_bytes;
    let start = if start < 0 { len.saturating_sub(start.unsigned_abs()) } else { start.unsigned_abs().min(len) };
    (start, end.map_or(len, |end| end.min(len)).max(start))
}

fn all_failed(name: &str, ranges: &[(usize, i64, Option<u64>)], error: FunctionError) -> Vec<(usize, Read)> {
    let source = Arc::new(error);
    let failed = |source: &FunctionError| Failure::of_file(name, source);
    ranges.iter().map(|(place, ..)| (*place, Err(failed(&source)))).collect()
}
