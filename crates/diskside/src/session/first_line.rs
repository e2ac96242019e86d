//! The first line of a file, where a table of text has the names of its columns.

use super::error::SessionError;
use super::file::File;
use super::place::Place;
use super::run::Decompress;
use diskside_decompress::{Codec, Damage, Decoder};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

impl File {
    /// Its first line, without what ends it; of a compressed file as [`Decompress`] says, of what it decompresses to.
    ///
    /// # Errors
    /// It cannot be read, or only once, as a pipe; it is damaged, or has no line of text within its first 64 KiB.
    pub fn first_line(&self, decompress: Decompress) -> Result<String, SessionError> {
        let refused = |why: String| SessionError::Input { name: self.inner.name.clone(), why };
        if matches!(&self.inner.place, Place::Local { path, .. } if is_stream(path)) {
            let why =
                "it can be read only once, so nobody can look at its first line before: give the names of its columns";
            return Err(refused(why.to_owned()));
        }
        let head = self.pread(0, HEAD_LEN).wait()?;
        let is_all = head.len() < HEAD_LEN;
        let codec = match decompress {
            Decompress::Auto if !matches!(self.inner.place, Place::Volume { .. }) => Codec::of(&head),
            Decompress::Auto | Decompress::Never => None,
            Decompress::Only(codec) => Some(codec),
        };
        let line = match codec {
            None => line_of(&head, is_all).map(<[u8]>::to_vec),
            Some(codec) => decoded_line(codec, &head, is_all).map_err(|damage| refused(damage.to_string()))?,
        };
        let line = line.ok_or_else(|| refused(format!("its first line is longer than {HEAD_LEN} bytes")))?;
        String::from_utf8(line).map_err(|_| refused("its first line is not text in UTF-8".to_owned()))
    }
}

fn is_stream(path: &Path) -> bool {
    let kind = path.metadata().map(|found| found.file_type());
    kind.is_ok_and(|kind| kind.is_fifo() || kind.is_socket() || kind.is_char_device())
}

/// The line that the bytes begin with; `None`: it continues behind them.
fn line_of(bytes: &[u8], is_all: bool) -> Option<&[u8]> {
    let line = match bytes.iter().position(|byte| *byte == b'\n') {
        Some(end) => &bytes[..end],
        None if is_all => bytes,
        None => return None,
    };
    Some(line.strip_suffix(b"\r").unwrap_or(line))
}

fn decoded_line(codec: Codec, compressed: &[u8], is_all: bool) -> Result<Option<Vec<u8>>, Damage> {
    let mut decoder = Decoder::new(codec)?;
    let (mut rest, mut decoded, mut len) = (compressed, vec![0; HEAD_LEN], 0);
    loop {
        let step = decoder.step(rest, &mut decoded[len..])?;
        rest = &rest[step.read..];
        len += step.written;
        if let Some(line) = line_of(&decoded[..len], false) {
            return Ok(Some(line.to_vec()));
        }
        if step.written == 0 {
            let ends = is_all && len < HEAD_LEN;
            if ends {
                decoder.finish()?;
            }
            return Ok(line_of(&decoded[..len], ends).map(<[u8]>::to_vec));
        }
    }
}

/// Bytes that are read for it.
const HEAD_LEN: usize = 64 << 10;
