//! What a file holds, by its first bytes.

use super::part::InputPart;
use super::{Decompress, Header, RunOptions};
use crate::npy::{self, Head, Npy};
use crate::session::error::SessionError;
use crate::session::file::File;
use crate::session::function::SessionFunction;
use crate::session::patience::{Patience, before};
use crate::session::place::{Now, Place};
use diskside_engine::{CallLimits, Codec};
use diskside_host::own_thread;
use diskside_io::buffer::Buffer;
use diskside_io::request::{AsyncIo as _, Request, run_here};
use diskside_io::unanswered;
use diskside_sbpf::image::{InputElement, InputKind};
use diskside_sbpf::machine::CancelToken;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// What a function is given of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Its bytes.
    Plain,
    /// What its bytes decompress to.
    Compressed(Codec),
    /// The elements behind its header.
    Array(Npy),
}

/// First bytes that nearly always tell everything: NumPy's headers have 128.
const HEAD_LEN: usize = 512;

/// What to do with a file whose header is not what it seems.
const WITH_HEADER: &str = "; --header none gives the function all bytes of the file";

impl Content {
    /// Looks at a file of which bytes can be read by position.
    pub(super) async fn of(file: &File, now: &Now, options: &RunOptions) -> Result<Self, SessionError> {
        let name = &file.inner.name;
        let is_volume = matches!(file.inner.place, Place::Volume { .. });
        let may_be_compressed = match options.decompress {
            Decompress::Only(codec) => return Ok(Self::Compressed(codec)),
            // It has no end of its own: what begins like a compressed file may be anything.
            Decompress::Auto => !is_volume,
            Decompress::Never => false,
        };
        if !may_be_compressed && options.header == Header::Ignore {
            return Ok(Self::Plain);
        }
        let read = |len| head_in_time(file, now, len, &options.limits);
        let begin = read(HEAD_LEN).await?;
        if let Some(codec) = Codec::of(&begin).filter(|_| may_be_compressed) {
            return Ok(Self::Compressed(codec));
        }
        if options.header == Header::Ignore {
            return Ok(Self::Plain);
        }
        let mut found = npy::head(&begin);
        if let Ok(Head::Longer(len)) = found {
            found = npy::head(&read(len).await?);
        }
        let refused = |why: String| SessionError::Input { name: name.clone(), why };
        let leave = WITH_HEADER;
        match found.map_err(|why| refused(why + leave))? {
            Head::Npy(array) if array.data_start + array.data_len > now.len_bytes => Err(refused(format!(
                "its NumPy header says {} bytes of elements, and {} are there{leave}",
                array.data_len,
                now.len_bytes.saturating_sub(array.data_start)
            ))),
            Head::Npy(array) => Ok(Self::Array(array)),
            Head::Longer(_) => Err(refused(format!("it ends in its NumPy header{leave}"))),
            Head::Other if options.header == Header::Npy => Err(refused("it has no NumPy header".to_owned())),
            Head::Other => Ok(Self::Plain),
        }
    }

    /// Takes note of how long a file of an export is. What an array holds, this side finds out each time.
    pub(super) fn note_len(&self, file: &File, now: &Now) {
        let (short_files, id) = (file.inner.session.short_files(), file.inner.id);
        match (self, &file.inner.place) {
            (Self::Plain | Self::Compressed(_), Place::Export(_)) => short_files.note(id, now.len_bytes),
            _ => short_files.forget(id),
        }
    }

    /// The content of all files, if that is the same, and each is read from its first byte to its last.
    pub(super) fn of_all(files: &[File], options: &RunOptions) -> Result<Option<Self>, SessionError> {
        let mut common = None;
        for file in files {
            let inner = &file.inner;
            // What a stream begins with is known when it is read.
            if matches!(&inner.place, Place::Local { path, .. } if !path.is_file()) {
                return Ok(None);
            }
            let now = run_here(inner.place.now(&inner.session, &inner.name))?;
            let content = run_here(Self::of(file, &now, options))?;
            if matches!(content, Self::Array(_)) || *common.get_or_insert(content.clone()) != content {
                return Ok(None);
            }
        }
        Ok(common)
    }
}

/// Whether a function is given all files from their first byte to their last, as they are.
pub(super) fn are_whole(files: &[File], options: &RunOptions) -> Result<bool, SessionError> {
    let as_they_are = options.decompress == Decompress::Never && options.header == Header::Ignore;
    Ok(options.part().is_whole() && (as_they_are || Content::of_all(files, options)? == Some(Content::Plain)))
}

impl Npy {
    /// The range of a part of the elements in the file, which has so many bytes. A function whose records end with a delimiter would
    /// read on behind the elements.
    ///
    /// # Errors
    /// The function takes other elements, or the part is not there.
    pub(super) fn range(
        &self,
        name: &str,
        part: InputPart,
        function: &SessionFunction,
        delimiter: Option<u8>,
        len_bytes: u64,
    ) -> Result<Range<u64>, SessionError> {
        let behind = len_bytes.saturating_sub(self.data_start + self.data_len);
        if delimiter.is_some() && behind > 0 {
            let why = format!(
                "{behind} bytes follow its NumPy elements, and the last record of {} would go on into them{WITH_HEADER}",
                function.name()
            );
            return Err(SessionError::Input { name: name.to_owned(), why });
        }
        let range = part.range_within(self.data_len);
        let range = range.map_err(|range| SessionError::out_of_range(name, range, self.data_len))?;
        if let Some(takes) = function.main().entry().input {
            self.check(takes, function.name()).map_err(|why| SessionError::Input {
                name: name.to_owned(),
                why: format!("it holds NumPy elements `{}`, {}, but {why}", self.element.descr, self.shape_text()),
            })?;
        }
        Ok(self.data_start + range.start..self.data_start + range.end)
    }

    fn check(&self, takes: InputElement, function: &str) -> Result<(), String> {
        if self.element.is_big_endian {
            let remedy = "save a.astype(a.dtype.newbyteorder('<'))";
            return Err(format!("{function} takes numbers whose lowest byte comes first: {remedy}"));
        }
        let kinds = match takes.kind {
            InputKind::Signed => "imM",
            InputKind::Unsigned => "ub",
            InputKind::Float => "f",
            InputKind::Record => return self.check_record(takes.len_bytes, function),
        };
        if kinds.contains(self.element.kind) && self.element.len_bytes == u64::from(takes.len_bytes) {
            return Ok(());
        }
        let (kind, len) = (takes.kind.name(), takes.len_bytes);
        Err(format!("{function} takes {kind} of {len} bytes: save the array as such"))
    }

    /// A record is an element, or a row.
    fn check_record(&self, len: u32, function: &str) -> Result<(), String> {
        let row_len = self.shape.iter().skip(1).fold(self.element.len_bytes, |len, count| len.saturating_mul(*count));
        let is_by_columns = self.is_fortran && self.shape.len() > 1;
        match u64::from(len) {
            len if len == self.element.len_bytes || len == row_len && !is_by_columns => Ok(()),
            _ if is_by_columns => {
                Err(format!("{function} takes rows, and its columns come first: save numpy.ascontiguousarray(a)"))
            }
            len => Err(format!("{function} takes records of {len} bytes, and a row has {row_len}")),
        }
    }

    fn shape_text(&self) -> String {
        let counts: Vec<String> = self.shape.iter().map(u64::to_string).collect();
        format!("shape ({})", counts.join(", "))
    }
}

/// The first bytes of a file, or all if it has fewer, unless the call is cancelled or its deadline passes.
async fn head_in_time(file: &File, now: &Now, len: usize, limits: &CallLimits) -> Result<Vec<u8>, SessionError> {
    let (name, len) = (&file.inner.name, now.len_bytes.min(len as u64));
    let head = if let Place::Local { .. } = &file.inner.place {
        own_thread().await;
        let file = file.clone();
        in_time(limits, name, move || local_head(&file, len))?
    } else {
        let until = limits.deadline.and_then(|deadline| Instant::now().checked_add(deadline));
        let read = before(until, remote_head(file, now, len));
        let read = Patience::none(limits.cancel.as_ref()).answer(read).await;
        let read = read.ok_or_else(|| SessionError::Cancelled(name.clone()))?;
        read.ok_or_else(|| SessionError::Late(name.clone()))?
    };
    head.map_err(|error| SessionError::file(name, error))
}

/// Looks at a file, unless the call is cancelled or its deadline passes: then a thread of its own waits for a disk that hangs.
pub(super) fn in_time<T: Send + 'static>(
    limits: &CallLimits,
    name: &str,
    look: impl FnOnce() -> T + Send + 'static,
) -> Result<T, SessionError> {
    if limits.deadline.is_none() && limits.cancel.is_none() {
        return Ok(look());
    }
    let told = |error| SessionError::file(name, error);
    let until = limits.deadline.and_then(|deadline| Instant::now().checked_add(deadline));
    let (send, found) = channel();
    let look = move || drop(send.send(look()));
    std::thread::Builder::new().name("head".into()).spawn(look).map_err(told)?;
    loop {
        match found.recv_timeout(LOOK) {
            Ok(found) => return Ok(found),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(told(io::Error::other("the thread that reads it ended")));
            }
            Err(RecvTimeoutError::Timeout) if limits.cancel.as_ref().is_some_and(CancelToken::is_cancelled) => {
                return Err(SessionError::Cancelled(name.to_owned()));
            }
            Err(RecvTimeoutError::Timeout) if until.is_some_and(|until| Instant::now() >= until) => {
                return Err(SessionError::Late(name.to_owned()));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// How often it is asked whether somebody still waits.
const LOOK: Duration = Duration::from_millis(20);

fn local_head(file: &File, len: u64) -> io::Result<Vec<u8>> {
    let Place::Local { path, descriptor: None, .. } = &file.inner.place else {
        return Ok(file.pread(0, len as usize).wait().map_err(io::Error::other)?.to_vec());
    };
    let mut head = vec![0; len as usize];
    let _asked = unanswered::here().ask(Instant::now());
    let read = std::fs::File::open(path)?.read_at(&mut head, 0)?;
    head.truncate(read);
    Ok(head)
}

async fn remote_head(file: &File, now: &Now, len: u64) -> io::Result<Vec<u8>> {
    let inner = &file.inner;
    let Place::Export(remote) = &inner.place else {
        return Ok(file.pread(0, len as usize).await.map_err(io::Error::other)?.to_vec());
    };
    // What this session holds, or these bytes alone.
    let version = now.version.filter(|_| now.keep);
    let held = version.map(|version| inner.session.cache().ranges(inner.id, version, &(0..len)));
    if held.is_some_and(|held| held.first() == Some(&(0..len))) {
        let mut head = vec![0; len as usize];
        let cached = remote.cached(&inner.session, inner.id, now).await?;
        cached.fill(0, &mut head).await.map_err(io::Error::other)?;
        return Ok(head);
    }
    let open = remote.file_soon().await?;
    let read = open.submit(Request::Read { offset: 0, buffer: Buffer::zeroed(len as usize) }).await;
    Ok(read.into_read()?.to_vec())
}
