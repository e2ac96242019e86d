//! A file of this machine as the engine reads it: by position, or as a stream.

use super::compressed::{Compressed, part_of};
use super::content::{Content, in_time};
use super::part::InputPart;
use super::{Decompress, Header, RunOptions};
use crate::npy;
use crate::session::error::SessionError;
use crate::session::file::File;
use crate::session::function::SessionFunction;
use crate::session::place::Now;
use crate::session::place::Place;
use diskside_engine::Source;
use diskside_io::request::run_here;
use diskside_io::stream::DescriptorStream;
use diskside_io::unanswered;
use rustix::fs::{FileType, Mode};
use std::io;
use std::os::fd::RawFd;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// How the bytes of a path of this machine are read.
#[derive(Debug)]
pub enum LocalBytes {
    /// By position.
    At {
        /// How many.
        len: u64,
        /// Whether it is a regular file; else it is a block device.
        is_file: bool,
    },
    /// One after another: of a pipe, a socket that is open, a terminal, and of files that are made as they are read.
    Stream(DescriptorStream),
}

impl LocalBytes {
    /// Looks how, and opens what is a stream.
    ///
    /// # Errors
    /// What has no bytes, or cannot be opened.
    pub fn of(path: &Path) -> Result<Self, SessionError> {
        bytes_of(&path.display().to_string(), path)
    }
}

/// The engine's source for the part of a file, and where in the file its data begins.
pub(super) fn source(
    file: &File,
    part: InputPart,
    function: &SessionFunction,
    args: &[u8],
    options: &RunOptions,
) -> Result<(Source, u64), SessionError> {
    let name = file.inner.name.clone();
    let delimiter = options.delimiter(function, args);
    let Place::Local { path, descriptor, .. } = &file.inner.place else { unreachable!("the file is of this machine") };
    let (len, is_file) = match descriptor {
        Some(_) => (file.len_bytes()?, true),
        None => match bytes_of(&name, path)? {
            LocalBytes::At { len, is_file } => (len, is_file),
            LocalBytes::Stream(stream) => return Ok((stream_source(name, stream, part, delimiter, options), 0)),
        },
    };
    let source = |range| match descriptor {
        Some(descriptor) => descriptor.source(&name, range),
        None => Source::File { path: path.to_owned(), range },
    };
    // A block device has no end of its own: what begins like a compressed file may be anything.
    let decompress = match options.decompress {
        Decompress::Auto if !is_file => Decompress::Never,
        how => how,
    };
    let now = Now { len_bytes: len, version: None, keep: false };
    match run_here(Content::of(file, &now, &RunOptions { decompress, ..options.clone() }))? {
        Content::Plain if part.is_whole() => Ok((source(None), 0)),
        Content::Plain => {
            let range = part.range_within(len).map_err(|range| SessionError::out_of_range(&name, range, len))?;
            Ok((source(Some(range)), 0))
        }
        Content::Compressed(codec) => Ok((Compressed { codec, part }.source(source(None), delimiter), 0)),
        Content::Array(array) => {
            Ok((source(Some(array.range(&name, part, function, delimiter, len)?)), array.data_start))
        }
    }
}

/// Whether one of these files begins like one with a header which is to be left out.
pub(super) fn any_header(files: &[File], options: &RunOptions) -> Result<bool, SessionError> {
    let path_of =
        |file: &File| if let Place::Local { path, .. } = &file.inner.place { Some(path.clone()) } else { None };
    let paths: Vec<PathBuf> = files.iter().filter_map(path_of).collect();
    let [first, others @ ..] = files else { return Ok(false) };
    if options.header == Header::Ignore {
        return Ok(false);
    }
    let more = if others.is_empty() { String::new() } else { format!(", or one of {} others", others.len()) };
    in_time(&options.limits, &format!("{}{more}", first.inner.name), move || paths.iter().any(|path| has_header(path)))
}

fn has_header(path: &Path) -> bool {
    let mut magic = [0; npy::MAGIC.len()];
    let _asked = unanswered::here().ask(Instant::now());
    let mut begins = || std::fs::File::open(path).is_ok_and(|file| file.read_exact_at(&mut magic, 0).is_ok());
    path.is_file() && begins() && magic == npy::MAGIC
}

fn stream_source(
    name: String,
    stream: DescriptorStream,
    part: InputPart,
    delimiter: Option<u8>,
    options: &RunOptions,
) -> Source {
    let until = options.limits.deadline.map(|deadline| Instant::now() + deadline);
    let source = Source::Stream { name, stream: Arc::new(stream.until(until)) };
    let source = match options.decompress {
        Decompress::Never => source,
        Decompress::Auto => source.decompressed(None, None),
        Decompress::Only(codec) => source.decompressed(Some(codec), None),
    };
    part_of(source, part, delimiter)
}

fn bytes_of(name: &str, path: &Path) -> Result<LocalBytes, SessionError> {
    let failed = |source| SessionError::Open { name: name.to_owned(), source };
    let refused = |why| Err(SessionError::Unsupported { name: name.to_owned(), why });
    if descriptor_number(path) == Some(0) && diskside_sys::standard::input_was_closed() {
        return Err(failed(io::Error::other("standard input is closed: for empty input, give it /dev/null")));
    }
    let found = rustix::fs::stat(path).map_err(|errno| failed(errno.into()))?;
    let kind = FileType::from_raw_mode(found.st_mode);
    if kind == FileType::Directory {
        return refused("it is a directory, which has no bytes of its own: name the files in it");
    }
    if let Some(number) = descriptor_number(path) {
        let open = diskside_sys::descriptor::duplicate(number).map_err(failed)?;
        // Its bytes begin where the program that opened it, or read of it, has left it.
        let has_positions = matches!(kind, FileType::RegularFile | FileType::BlockDevice);
        if !has_positions || rustix::fs::tell(&open).is_ok_and(|position| position > 0) {
            return DescriptorStream::new(open).map(LocalBytes::Stream).map_err(failed);
        }
    }
    match kind {
        FileType::Socket => {
            refused("it is a socket, where a program listens: let one connect to it and write into a pipe")
        }
        FileType::BlockDevice => {
            block_device_len(path).map(|len| LocalBytes::At { len, is_file: false }).map_err(failed)
        }
        FileType::RegularFile => match is_made_as_it_is_read(path, found.st_size).map_err(failed)? {
            true => DescriptorStream::open(path).map(LocalBytes::Stream).map_err(failed),
            false => Ok(LocalBytes::At { len: found.st_size.cast_unsigned(), is_file: true }),
        },
        _ => DescriptorStream::open(path).map(LocalBytes::Stream).map_err(failed),
    }
}

/// Which descriptor of this process a path names.
fn descriptor_number(path: &Path) -> Option<RawFd> {
    let path = path.to_str()?;
    match path {
        "/dev/stdin" => Some(0),
        _ => path.strip_prefix("/dev/fd/").or_else(|| path.strip_prefix("/proc/self/fd/"))?.parse().ok(),
    }
}

fn block_device_len(path: &Path) -> io::Result<u64> {
    let device = rustix::fs::open(path, rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC, Mode::empty())?;
    Ok(rustix::fs::seek(&device, rustix::fs::SeekFrom::End(0))?)
}

/// Whether the length that a regular file says is not that of its bytes: those of `/proc` say 0, those of `/sys` a page.
fn is_made_as_it_is_read(path: &Path, len: i64) -> io::Result<bool> {
    if rustix::fs::statfs(path)?.f_type == SYSFS_MAGIC {
        return Ok(true);
    }
    if len > 0 {
        return Ok(false);
    }
    let file = rustix::fs::open(path, rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC, Mode::empty())?;
    Ok(rustix::io::read(&file, &mut [0; 1])? > 0)
}

/// `linux/magic.h`.
const SYSFS_MAGIC: rustix::fs::FsWord = 0x6265_6572;
