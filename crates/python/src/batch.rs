//! Reading many ranges of files of exports at once: every file is opened by one command, and every range read by as few as
//! its length takes, all of them on the way together. So a batch takes two round trips however many files and ranges it has,
//! and one if the batch before it has opened its files.

use crate::error::Failure;
use diskside::ExportUrl;
use diskside::host::drive;
use diskside::host::function::{FileInfo, FunctionError, RemoteFile};
use diskside::io::buffer::Buffer;
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
}

/// Ranges of one file, by their places in the batch.
struct Group {
    url: ExportUrl,
    ranges: Vec<(usize, i64, Option<u64>)>,
}

/// Files that are open for the batch that follows, which often reads on in them, as in a shard whose index was read.
#[derive(Default)]
pub(crate) struct Handles {
    open: Mutex<HashMap<String, (RemoteFile, Instant)>>,
}

/// How long a file that was opened is not looked for again once the batch is read that it was opened for: what has its name then
/// may be another file.
const HANDLE_LIFE: Duration = Duration::from_millis(100);
/// A target keeps no more than some handles of a host.
const HANDLES_MAX: usize = 64;

impl Handles {
    /// Forgets what is open by this name, which is going to be another file's, or nobody's.
    pub(crate) fn forget(&self, url: &ExportUrl) {
        self.lock().remove(&url.to_string());
    }

    fn get(&self, name: &str) -> Option<RemoteFile> {
        let mut open = self.lock();
        open.retain(|_, (_, opened)| opened.elapsed() < HANDLE_LIFE);
        open.get(name).map(|(file, _)| file.clone())
    }

    fn keep(&self, name: &str, file: &RemoteFile) {
        let mut open = self.lock();
        if open.len() < HANDLES_MAX {
            open.insert(name.to_owned(), (file.clone(), Instant::now()));
        }
    }

    /// A round trip may take longer than a handle lives: those of a batch live on from its end, unless they were forgotten
    /// meanwhile.
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

/// Begins to read. What comes has the order of what is wanted: of each the bytes that are there. With `anew`, files that are open for
/// a batch before are looked for again.
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
            groups.push(Group { url: one.url, ranges: Vec::new() });
            groups.len() - 1
        });
        groups[index].ranges.push((place, one.start, one.end));
    }
    let mut begun = Vec::with_capacity(groups.len());
    for group in groups {
        let name = group.url.to_string();
        let (files, handles) = (session.files(&group.url)?, Arc::clone(handles));
        begun.push(drive(async move {
            let ranges = group.ranges;
            if let Some(file) = handles.get(&name).filter(|_| !anew) {
                let version = file.info().version;
                let read = read_all(&file, &name, &ranges).await;
                if read.iter().all(|(_, one)| is_of(one, version)) {
                    return Ok(read);
                }
            }
            match files.lookup(&group.url.path, FileFlags::READ).await {
                Ok(file) => {
                    handles.keep(&name, &file);
                    let read = read_all(&file, &name, &ranges).await;
                    handles.renew(&name);
                    Ok(read)
                }
                Err(error) => Ok::<_, SessionError>(all_failed(&name, &ranges, error)),
            }
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

/// Whether bytes are of the version that was known when their range was chosen: another one may be longer. Of no bytes nobody
/// knows.
fn is_of(read: &Read, known: u64) -> bool {
    matches!(read, Ok((bytes, _, version)) if *version == known && !bytes.is_empty())
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
