//! What compressed bytes decompress to, as a stream.

use crate::call::Source;
use crate::turns::{Turns, in_turn};
use diskside_decompress::{Codec, Decoder};
use diskside_io::readahead::{Chunk, ChunkReader, ReadAhead, ReadAtError, ReadError, ReadStream};
use std::io;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes that are made at a time: so long nobody else has the turn.
const STEP_LEN: usize = 256 << 10;
/// Compressed bytes that are read at a time.
const INPUT_LEN: usize = 256 << 10;
const INPUT_DEPTH: usize = 3;

impl Source {
    /// The source of its decompressed bytes. Without a codec their first bytes say which one it is; if they do not, the
    /// bytes are taken as they are.
    #[must_use]
    pub fn decompressed(self, codec: Option<Codec>, turns: Option<Arc<dyn Turns>>) -> Self {
        let name = self.name();
        let (state, closed, has_garbage) = (Mutex::default(), AtomicBool::new(false), AtomicBool::new(false));
        Self::Stream { name, stream: Arc::new(Decompressed { source: self, codec, turns, state, closed, has_garbage }) }
    }
}

/// The most bytes that a call needs for an input that it decompresses.
#[must_use]
pub fn decompression_memory(codec: Option<Codec>) -> u64 {
    let codecs = codec.map_or([Codec::Gzip, Codec::Zstd], |codec| [codec, codec]);
    let decoder = codecs.map(Codec::memory_bytes).into_iter().max().unwrap_or(0);
    decoder + ((INPUT_DEPTH + 1) * INPUT_LEN) as u64
}

#[derive(Debug)]
struct Decompressed {
    source: Source,
    codec: Option<Codec>,
    turns: Option<Arc<dyn Turns>>,
    /// Opened by the first read: only one source of a call is read at a time.
    state: Mutex<Option<Open>>,
    closed: AtomicBool,
    /// Behind the last gzip member was something else.
    has_garbage: AtomicBool,
}

#[derive(Debug)]
struct Open {
    raw: Raw,
    input: Input,
    /// `None`: the bytes are not compressed.
    decoder: Option<Decoder>,
}

/// Where compressed bytes come from.
#[derive(Debug)]
enum Raw {
    Ahead(ChunkReader),
    Stream(Arc<dyn ReadStream>),
}

/// Compressed bytes, and where those begin that are not done.
#[derive(Debug)]
enum Input {
    Chunk(Chunk, usize),
    Bytes(Vec<u8>, usize),
}

impl ReadStream for Decompressed {
    fn read(&self, buffer: &mut [u8]) -> Result<usize, ReadAtError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.is_none() {
            *state = Some(Open::new(&self.source, self.codec, &self.closed)?);
        }
        let open = state.as_mut().expect("it was opened");
        let room = buffer.len().min(STEP_LEN);
        loop {
            if self.closed.load(Ordering::Relaxed) {
                return Err(io::Error::from(io::ErrorKind::ConnectionAborted).into());
            }
            let made = in_turn(self.turns.as_deref(), || open.step(&mut buffer[..room]))?;
            if made > 0 {
                return Ok(made);
            }
            if open.input.left().is_empty() && !open.read_more(&self.closed)? {
                let has_garbage = open.finish()?;
                self.has_garbage.store(has_garbage, Ordering::Relaxed);
                return Ok(0);
            }
        }
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.source.close();
    }

    fn warning(&self) -> Option<String> {
        let garbage = "what follows its gzip data is not gzip data, and is ignored";
        self.has_garbage.load(Ordering::Relaxed).then(|| garbage.to_owned())
    }
}

impl Open {
    fn new(source: &Source, codec: Option<Codec>, closed: &AtomicBool) -> Result<Self, ReadAtError> {
        let how = ReadAhead { chunk_bytes: INPUT_LEN, depth: INPUT_DEPTH, ..ReadAhead::default() };
        let mut input = Input::Bytes(Vec::new(), 0);
        let raw = match source {
            Source::File { path, range: None } => Raw::Ahead(ChunkReader::open(path, .., &how).map_err(unnamed)?),
            Source::File { path, range: Some(range) } => {
                Raw::Ahead(ChunkReader::open(path, range.clone(), &how).map_err(unnamed)?)
            }
            Source::Open { name, file, range } => {
                let bounds = range.as_ref().map_or((Bound::Unbounded, Bound::Unbounded), |range| {
                    (Bound::Included(range.start), Bound::Excluded(range.end))
                });
                Raw::Ahead(ChunkReader::new(Arc::clone(file), name, bounds, &how).map_err(unnamed)?)
            }
            Source::Reader { name, reader, range } => {
                let range = range.clone().unwrap_or(0..reader.len());
                Raw::Ahead(ChunkReader::over(Arc::clone(reader), name, range, &how).map_err(unnamed)?)
            }
            Source::Stream { stream, .. } => Raw::Stream(Arc::clone(stream)),
            Source::Many { .. } => return Err(io::Error::other("many sources are decompressed one by one").into()),
            Source::Chunk { .. } => return Err(io::Error::other("a chunk is decoded, and not decompressed").into()),
            Source::Bytes { bytes, .. } => {
                input = Input::Bytes(bytes.to_vec(), 0);
                Raw::Stream(Arc::new(Nothing))
            }
        };
        let mut this = Self { raw, input, decoder: None };
        let codec = match codec {
            None => Codec::of(this.head(closed)?),
            codec => codec,
        };
        this.decoder = codec.map(Decoder::new).transpose().map_err(damaged)?;
        Ok(this)
    }

    /// The first bytes, as many as tell what they are, or fewer at the end.
    fn head(&mut self, closed: &AtomicBool) -> Result<&[u8], ReadAtError> {
        while self.input.left().len() < Codec::HEAD_LEN {
            let begun = self.input.left().to_vec();
            let goes_on = self.read_more(closed)?;
            if !begun.is_empty() {
                self.input = Input::Bytes([&begun[..], self.input.left()].concat(), 0);
            }
            if !goes_on {
                break;
            }
        }
        Ok(self.input.left())
    }

    /// Bytes made of the input that is there.
    fn step(&mut self, buffer: &mut [u8]) -> Result<usize, ReadAtError> {
        let input = self.input.left();
        let (read, written) = match &mut self.decoder {
            Some(decoder) => {
                let step = decoder.step(input, buffer).map_err(damaged)?;
                (step.read, step.written)
            }
            None => {
                let len = input.len().min(buffer.len());
                buffer[..len].copy_from_slice(&input[..len]);
                (len, len)
            }
        };
        self.input.advance(read);
        Ok(written)
    }

    /// The next input, after what was there is done. False: there is none. Once it is closed, nothing is waited for.
    fn read_more(&mut self, closed: &AtomicBool) -> Result<bool, ReadAtError> {
        self.input = match &mut self.raw {
            Raw::Ahead(chunks) => match chunks.next_unless(&|| closed.load(Ordering::Relaxed)) {
                Some(chunk) => Input::Chunk(chunk.map_err(unnamed)?, 0),
                None => Input::Bytes(Vec::new(), 0),
            },
            Raw::Stream(stream) => {
                let mut bytes = match std::mem::replace(&mut self.input, Input::Bytes(Vec::new(), 0)) {
                    Input::Bytes(bytes, _) => bytes,
                    Input::Chunk(..) => Vec::new(),
                };
                bytes.resize(INPUT_LEN, 0);
                let len = stream.read(&mut bytes)?;
                bytes.truncate(len);
                Input::Bytes(bytes, 0)
            }
        };
        Ok(!self.input.left().is_empty())
    }

    /// Whether something else follows what was decompressed.
    fn finish(&self) -> Result<bool, ReadAtError> {
        let Some(decoder) = &self.decoder else { return Ok(false) };
        decoder.finish().map_err(damaged)?;
        Ok(decoder.has_garbage())
    }
}

impl Input {
    fn left(&self) -> &[u8] {
        match self {
            Self::Chunk(chunk, at) => &chunk[*at..],
            Self::Bytes(bytes, at) => &bytes[*at..],
        }
    }

    fn advance(&mut self, len: usize) {
        match self {
            Self::Chunk(_, at) | Self::Bytes(_, at) => *at += len,
        }
    }
}

/// The end of a stream.
#[derive(Debug)]
struct Nothing;

impl ReadStream for Nothing {
    fn read(&self, _: &mut [u8]) -> Result<usize, ReadAtError> {
        Ok(0)
    }

    fn close(&self) {}
}

fn damaged(damage: diskside_decompress::Damage) -> ReadAtError {
    ReadAtError::Damaged(damage.to_string())
}

/// Who reads the stream names it.
fn unnamed(error: ReadError) -> ReadAtError {
    match error {
        ReadError::Changed { how, .. } => ReadAtError::Changed(how),
        ReadError::Shrunk { found, .. } => ReadAtError::Changed(format!("it ends at byte {found}")),
        ReadError::Damaged { how, .. } => ReadAtError::Damaged(how),
        ReadError::OutOfRange { start, end, len, .. } => ReadAtError::OutOfRange { start, end, len },
        ReadError::Read { source, .. } | ReadError::Open { source, .. } | ReadError::Setup(source) => source.into(),
        other @ (ReadError::NotAFile { .. } | ReadError::Stopped) => io::Error::other(other.to_string()).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream whose reads give a byte each.
    #[derive(Debug)]
    struct Slow(Mutex<std::vec::IntoIter<u8>>);

    impl ReadStream for Slow {
        fn read(&self, buffer: &mut [u8]) -> Result<usize, ReadAtError> {
            let byte = self.0.lock().unwrap_or_else(PoisonError::into_inner).next();
            buffer.iter_mut().zip(byte).for_each(|(to, from)| *to = from);
            Ok(byte.iter().count())
        }

        fn close(&self) {}
    }

    fn read_all(source: Source) -> Result<Vec<u8>, String> {
        let Source::Stream { stream, .. } = source else { panic!("a stream") };
        let (mut all, mut buffer) = (Vec::new(), [0; 5]);
        loop {
            match stream.read(&mut buffer).map_err(|error| error.to_string())? {
                0 => return Ok(all),
                len => all.extend_from_slice(&buffer[..len]),
            }
        }
    }

    /// "hello, hello, hello\n", by `gzip -n`.
    const HELLO: [u8; 30] = [
        0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0xcb, 0x48, 0xcd, 0xc9, 0xc9, 0xd7, 0x51, 0xc8, 0x40, 0xa2, 0xb8, 0, 0xe7,
        0x42, 0x6e, 0x52, 0x14, 0, 0, 0,
    ];

    #[test]
    fn plain_bytes_stay_as_they_are_and_others_are_decompressed_from_any_source() {
        for plain in [&b""[..], b"\x1f", b"plain", &[7; 100][..]] {
            let source = Source::Bytes { name: "x".into(), bytes: plain.into() };
            assert_eq!(read_all(source.decompressed(None, None)), Ok(plain.to_vec()));
            let stream = Arc::new(Slow(Mutex::new(Vec::from(plain).into_iter())));
            let source = Source::Stream { name: "x".into(), stream };
            assert_eq!(read_all(source.decompressed(None, None)), Ok(plain.to_vec()));
        }
        let stream = Arc::new(Slow(Mutex::new(HELLO.to_vec().into_iter())));
        let source = Source::Stream { name: "x".into(), stream };
        assert_eq!(read_all(source.decompressed(None, None)), Ok(b"hello, hello, hello\n".to_vec()));
        let source = Source::Bytes { name: "x".into(), bytes: HELLO.into() };
        assert_eq!(read_all(source.decompressed(Some(Codec::Gzip), None)), Ok(b"hello, hello, hello\n".to_vec()));
        let told = "the gzip data is cut off: it ends at byte 20, in the middle of a member";
        let stream = Arc::new(Slow(Mutex::new(HELLO[..20].to_vec().into_iter())));
        let source = Source::Stream { name: "x".into(), stream };
        assert_eq!(read_all(source.decompressed(None, None)), Err(told.to_owned()));
    }
}
