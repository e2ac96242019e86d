//! The files of a call by their paths, which come on the host's stream: opened late, read and closed again.
//!
//! Files are looked up some at a time, on a thread of their export, while the function runs over those before. Short
//! ones are read at once and closed; others are opened when it is their turn, and closed before the next one. So a call
//! over any number of files has at most two of them open and [`FilesByPath::MEMORY_BYTES`] of them in memory.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use diskside_engine::{ChunkCodecs, Codec, ReadAt, ReadAtError, ReadError, ReadStream, Source, Sources, Turns};

use diskside_wire::function::{CompressedBy, Decompression};

use crate::call::context::CallContext;
use crate::call::control::Control;
use crate::call::input::InputQueue;
use crate::call::used::{Lost, Used};
use diskside_export::{FileError, FileSession, FileSource, Found, SHORT_FILE_LEN_MAX, Statx};
use diskside_volume::metered::Reads;

/// Files that are looked up at a time, and when fewer are enough: what was read of them.
const BATCH_FILES: usize = 64;
const BATCH_BYTES: usize = 1 << 20;
/// How NumPy's files begin.
const NPY_MAGIC: &[u8] = b"\x93NUMPY";
/// The longest path.
const PATH_LEN_MAX: usize = diskside_wire::file::PATH_LEN_MAX;
/// Bytes of the stream that are taken at a time.
const STREAM_BYTES: usize = 64 << 10;

/// The sources of a call that names files by their paths.
pub(crate) struct FilesByPath {
    context: Arc<CallContext>,
    control: Arc<Control>,
    /// When nobody waits for it any more.
    until: Instant,
    paths: Arc<InputQueue>,
    /// How a file is read that is opened in its turn.
    read: Box<dyn Fn(FileSource, Range<u64>) -> Arc<dyn ReadAt> + Send + Sync>,
    reads: Arc<Reads>,
    /// The files that the call changes while it reads; known before the first file is looked up.
    changed: Arc<OnceLock<Vec<Statx>>>,
    kept: Kept,
    /// The turns in which bytes are decompressed.
    turns: Arc<dyn Turns>,
    state: Mutex<State>,
}

/// What the files hold.
pub(crate) enum Kept {
    /// Bytes, of which each file is all, as they are or compressed.
    Whole(Option<Decompression>),
    /// Chunks of an array, each a file or a range of one that follows its path.
    Chunks { codecs: Arc<ChunkCodecs>, ranged: bool },
}

/// A name in the stream: a path, and the part of the file, if it is not the whole.
type Named = (Vec<u8>, Option<NamedRange>);

/// A part of a file.
#[derive(Clone, Copy)]
struct NamedRange {
    start: u64,
    len: u64,
    /// That the file must have; 0: any, but one for all its chunks that follow one another.
    version: u64,
}

/// The file at a path; `None`: the file of the chunk before.
type Seen = Result<Option<Found>, FileError>;

#[derive(Default)]
struct State {
    /// Bytes of the stream that are not a whole path yet, or were not needed yet.
    stream: VecDeque<u8>,
    stream_ended: bool,
    /// Paths of which nothing is known.
    paths: VecDeque<Named>,
    /// What was found at those before them.
    found: VecDeque<(Named, Seen)>,
    coming: Option<Receiver<Batch>>,
    /// The one that is being read, if it was opened for that.
    open: Option<FileSource>,
    /// All bytes of the one that chunks are of, if it is short.
    short: Vec<u8>,
    /// The one that the last chunk was a range of, and its version.
    last: Option<(Vec<u8>, u64)>,
}

/// What was found, and the paths that were not looked at.
struct Batch {
    found: VecDeque<(Named, Seen)>,
    rest: VecDeque<Named>,
}

impl FilesByPath {
    /// The files that were found and not used yet, and those that are being looked up.
    pub(crate) const MEMORY_BYTES: u64 =
        2 * (BATCH_BYTES + SHORT_FILE_LEN_MAX + BATCH_FILES * PATH_LEN_MAX) as u64 + 2 * STREAM_BYTES as u64;

    pub(crate) fn new(
        (context, control, until): (&Arc<CallContext>, &Arc<Control>, Instant),
        paths: Arc<InputQueue>,
        read: impl Fn(FileSource, Range<u64>) -> Arc<dyn ReadAt> + Send + Sync + 'static,
        reads: Arc<Reads>,
        changed: Arc<OnceLock<Vec<Statx>>>,
        kept: Kept,
        turns: Arc<dyn Turns>,
    ) -> Self {
        let (context, control) = (Arc::clone(context), Arc::clone(control));
        let (read, state) = (Box::new(read), Mutex::default());
        Self { context, control, until, paths, read, reads, changed, kept, turns, state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the next files looked up, if there are any.
    fn begin(&self, state: &mut State) -> Result<(), ReadError> {
        while state.paths.len() < BATCH_FILES {
            match self.next_path(state)? {
                Some(path) => state.paths.push_back(path),
                None => break,
            }
        }
        let Some((first, _)) = state.paths.front() else { return Ok(()) };
        let same = state.paths.iter().take_while(|(path, _)| export_of(path) == export_of(first)).count();
        let rest = state.paths.split_off(same);
        let paths = std::mem::replace(&mut state.paths, rest);
        let (send, coming) = sync_channel(1);
        let first = paths[0].clone();
        let export = first.0.clone();
        let changed = Arc::clone(&self.changed);
        let look = move |session: &FileSession| {
            let (mut found, mut rest, mut bytes) = (VecDeque::new(), paths, 0);
            let mut last: Option<Vec<u8>> = None;
            while bytes < BATCH_BYTES
                && let Some((path, range)) = rest.pop_front()
            {
                let is_same = range.is_some() && last.as_ref() == Some(&path);
                let look = || session.find_file(&path, changed.get().map_or(&[], Vec::as_slice));
                let one = if is_same { Ok(None) } else { look().map(Some) };
                bytes += if let Ok(Some(Found::Short { bytes, .. })) = &one { bytes.len() } else { 0 };
                last = Some(path.clone());
                // Nothing is read behind a file that ends the call.
                let ends = one.is_err();
                found.push_back(((path, range), one));
                if ends {
                    break;
                }
            }
            // A call that has ended waits for nothing.
            let _ = send.send(Batch { found, rest });
        };
        match self.note(&export).and_then(|()| self.context.files.on_export_of(&export, look)) {
            Ok(()) => state.coming = Some(coming),
            Err(error) => state.found.push_back((first, Err(error))),
        }
        Ok(())
    }

    /// Notes the export that a path begins with, before anything of it is read.
    fn note(&self, path: &[u8]) -> Result<(), FileError> {
        let export = self.context.files.used_at(path)?;
        self.control.uses(&self.context, [Used::Export(export)]).map_err(Lost::error)
    }

    fn is_over(&self) -> bool {
        self.control.cancel.is_cancelled() || Instant::now() >= self.until
    }

    fn failed(&self, name: &str, offset: u64, error: ReadAtError) -> ReadError {
        if self.is_over() { ReadError::Stopped } else { failed(name, offset, error) }
    }

    fn decompressed(&self, source: Source, codec: Option<Codec>) -> Source {
        if codec.is_some() { source.decompressed(codec, Some(Arc::clone(&self.turns))) } else { source }
    }

    /// How a file that begins so is compressed, if it is to be decompressed.
    fn codec_of(&self, head: &[u8]) -> Option<Codec> {
        let Kept::Whole(Some(decompression)) = &self.kept else { return None };
        match decompression.by {
            CompressedBy::Gzip => Some(Codec::Gzip),
            CompressedBy::Zstd => Some(Codec::Zstd),
            CompressedBy::Any | CompressedBy::AnyWithoutHeader => Codec::of(head),
        }
    }

    fn is_compressed(&self, by: &[CompressedBy]) -> bool {
        matches!(&self.kept, Kept::Whole(Some(asked)) if by.contains(&asked.by))
    }

    /// A file that begins with a header that the function does not get is for the host to look at.
    fn check_header(&self, name: &str, head: &[u8]) -> Result<(), ReadError> {
        let asks = self.is_compressed(&[CompressedBy::AnyWithoutHeader]);
        if !asks || !head.starts_with(NPY_MAGIC) {
            return Ok(());
        }
        Err(ReadError::Open { path: PathBuf::from(name), source: diskside_io::Errno::OPNOTSUPP.into() })
    }

    /// The next path of the stream.
    fn next_path(&self, state: &mut State) -> Result<Option<Named>, ReadError> {
        if !self.fill(state, 2)? {
            return Ok(None);
        }
        let len = usize::from(u16::from_le_bytes([state.stream[0], state.stream[1]]));
        if len == 0 || len > PATH_LEN_MAX {
            return Err(malformed(format!("a path has 1 to {PATH_LEN_MAX} bytes, not {len}")));
        }
        if !self.fill(state, 2 + len)? {
            return Err(malformed("the list of paths ends within one".into()));
        }
        let path: Vec<u8> = state.stream.drain(..2 + len).skip(2).collect();
        if path.contains(&0) {
            return Err(malformed("a NUL in a path".into()));
        }
        if !matches!(self.kept, Kept::Chunks { ranged: true, .. }) {
            return Ok(Some((path, None)));
        }
        if !self.fill(state, 24)? {
            return Err(malformed("the list of paths ends before the range of one".into()));
        }
        let mut number = || {
            let bytes: [u8; 8] = std::array::from_fn(|_| state.stream.pop_front().unwrap_or(0));
            u64::from_le_bytes(bytes)
        };
        let (start, len, version) = (number(), number(), number());
        Ok(Some((path, Some(NamedRange { start, len, version }))))
    }

    /// Has so many bytes of the stream at hand; false at its end.
    fn fill(&self, state: &mut State, len: usize) -> Result<bool, ReadError> {
        let mut buffer = Vec::new();
        while state.stream.len() < len && !state.stream_ended {
            buffer.resize(STREAM_BYTES, 0);
            let count = self.paths.read(&mut buffer).map_err(|error| match error {
                ReadAtError::Io(source) => ReadError::Setup(source),
                other => malformed(other.to_string()),
            })?;
            state.stream.extend(&buffer[..count]);
            state.stream_ended = count == 0;
        }
        match state.stream.len() {
            0 => Ok(false),
            some if some < len => Err(malformed("the list of paths ends within one".into())),
            _ => Ok(true),
        }
    }
}

impl Sources for FilesByPath {
    fn next(&self) -> Result<Option<Source>, ReadError> {
        let state = &mut *self.state();
        let open = state.open.take();
        if let Some(file) = &open {
            // The index of a shard, which chunks are found by, may be behind them.
            let unchanged = if self.are_chunks() { file.unchanged() } else { file.unchanged_or_grown() };
            unchanged.map_err(|error| read_error(file.name(), &error))?;
        }
        if state.found.is_empty() {
            if state.coming.is_none() {
                self.begin(state)?;
            }
            if let Some(coming) = state.coming.take() {
                let ended = || ReadError::Setup(std::io::Error::other("looking for files ended early: a bug"));
                let batch = coming.recv().map_err(|_| ended())?;
                state.found.extend(batch.found);
                let later = std::mem::replace(&mut state.paths, batch.rest);
                state.paths.extend(later);
                if state.found.iter().all(|(_, found)| found.is_ok()) {
                    self.begin(state)?;
                }
            }
        }
        let Some(((path, range), found)) = state.found.pop_front() else { return Ok(None) };
        let name = String::from_utf8_lossy(&path).into_owned();
        if let Kept::Chunks { codecs, .. } = &self.kept {
            let found = found.map_err(|error| read_error(&name, &error))?;
            let bytes = self.chunk(state, &path, range, found, open, codecs)?;
            return Ok(Some(Source::Chunk { name, bytes, codecs: Arc::clone(codecs) }));
        }
        match found.map_err(|error| read_error(&name, &error))?.unwrap_or(Found::Long) {
            Found::Short { bytes, .. } => {
                self.reads.media_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                let codec = self.codec_of(&bytes);
                self.check_header(&name, &bytes)?;
                Ok(Some(self.decompressed(Source::Bytes { name, bytes: bytes.into() }, codec)))
            }
            Found::Long => {
                let file = self.context.files.open_source(&path).map_err(|error| read_error(&name, &error))?;
                state.open = Some(file.clone());
                let range = 0..file.len_bytes();
                let asks = self.is_compressed(&[CompressedBy::Any, CompressedBy::AnyWithoutHeader]);
                let mut head = vec![0; if asks { Codec::HEAD_LEN } else { 0 }];
                // These bytes are read again, and counted then.
                file.read_unless(0, &mut head, &|| self.is_over()).map_err(|error| self.failed(&name, 0, error))?;
                let reader = (self.read)(file, range.clone());
                let codec = self.codec_of(&head);
                self.check_header(&name, &head)?;
                Ok(Some(self.decompressed(Source::Reader { name, reader, range: Some(range) }, codec)))
            }
        }
    }

    fn are_chunks(&self) -> bool {
        matches!(self.kept, Kept::Chunks { .. })
    }

    fn close(&self) {
        self.paths.close();
    }
}

impl FilesByPath {
    /// The bytes of a chunk, as they are in its file.
    fn chunk(
        &self,
        state: &mut State,
        path: &[u8],
        range: Option<NamedRange>,
        found: Option<Found>,
        open: Option<FileSource>,
        codecs: &ChunkCodecs,
    ) -> Result<Arc<[u8]>, ReadError> {
        let name = String::from_utf8_lossy(path).into_owned();
        let (file, version) = match found {
            Some(Found::Short { bytes, version }) => {
                state.short = bytes;
                (None, Some(version))
            }
            Some(Found::Long) => {
                let file = self.context.files.open_source(path).map_err(|error| read_error(&name, &error))?;
                let version = file.version();
                (Some(file), Some(version))
            }
            None => (open, None),
        };
        if let Some(range) = range {
            state.check_version(path, range.version, version)?;
        }
        let Some(file) = file else {
            let range = range_in(&name, range, state.short.len() as u64, codecs)?;
            self.reads.media_bytes.fetch_add(range.end - range.start, Ordering::Relaxed);
            return Ok(state.short[range.start as usize..range.end as usize].into());
        };
        state.open = Some(file.clone());
        let range = range_in(&name, range, file.len_bytes(), codecs)?;
        let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, (range.end - range.start) as usize).collect();
        let to = Arc::get_mut(&mut bytes).expect("nobody else has it yet");
        let start = range.start;
        let read = (self.read)(file, range).read_unless(start, to, &|| self.is_over());
        read.map_err(|error| self.failed(&name, start, error))?;
        Ok(bytes)
    }
}

impl State {
    /// Sees to it that a chunk is of the version that is wanted, and that those of one file that follow one another are of one,
    /// also where the file was opened again in between. `found` is what it was when it was opened; `None`: just before.
    fn check_version(&mut self, path: &[u8], wanted: u64, found: Option<u64>) -> Result<(), ReadError> {
        let before = self.last.as_ref().filter(|(last, _)| last == path).map(|(_, version)| *version);
        let version = found.or(before).unwrap_or_default();
        if before.is_some_and(|before| before != version) || wanted != 0 && wanted != version {
            let how = "it is another version than its other chunks are of".to_owned();
            return Err(ReadError::Changed { path: PathBuf::from(String::from_utf8_lossy(path).into_owned()), how });
        }
        self.last = Some((path.to_vec(), version));
        Ok(())
    }
}

/// Which bytes of a file a chunk is; no more than what decodes to one can have.
fn range_in(name: &str, range: Option<NamedRange>, len: u64, codecs: &ChunkCodecs) -> Result<Range<u64>, ReadError> {
    let path = PathBuf::from(name);
    let (start, wanted) = range.map_or((0, len), |range| (range.start, range.len));
    let Some(end) = start.checked_add(wanted).filter(|end| *end <= len) else {
        return Err(ReadError::OutOfRange { path, start, end: start.saturating_add(wanted), len });
    };
    if wanted > codecs.encoded_len_max() as u64 {
        let how = format!("the chunk has {wanted} bytes, too many for one that decodes to {}", codecs.decoded_len());
        return Err(ReadError::Damaged { path, how });
    }
    Ok(start..end)
}

/// As the engine tells it of a read.
fn failed(name: &str, offset: u64, error: ReadAtError) -> ReadError {
    let path = PathBuf::from(name);
    match error {
        ReadAtError::Io(source) => ReadError::Read { path, offset, source },
        other => ReadError::Changed { path, how: other.to_string() },
    }
}

impl std::fmt::Debug for FilesByPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FilesByPath").field("paths", &self.paths).finish_non_exhaustive()
    }
}

/// The name of the export that a path begins with.
fn export_of(path: &[u8]) -> &[u8] {
    path.split(|&byte| byte == b'/').next().unwrap_or_default()
}

fn malformed(what: String) -> ReadError {
    ReadError::Setup(std::io::Error::new(std::io::ErrorKind::InvalidInput, what))
}

/// Why a file that is input and output is refused.
const WRITTEN: &str = "it is where the output of this call goes, which would change it while it is read: let the output \
                       replace the file, or go elsewhere";

/// As the engine tells it of a file here.
fn read_error(name: &str, error: &FileError) -> ReadError {
    let path = PathBuf::from(name);
    match error.errno {
        _ if error.changed => ReadError::Changed { path, how: "read it again".into() },
        diskside_io::Errno::TXTBSY => ReadError::Open { path, source: std::io::Error::other(WRITTEN) },
        diskside_io::Errno::ISDIR => ReadError::NotAFile { path, kind: "directory" },
        errno => ReadError::Open { path, source: errno.into() },
    }
}
