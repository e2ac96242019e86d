//! The records of a channel that has been made (RFC 8446, 5).
//!
//! Data to send is copied into its records and sealed there; data that came is opened out of the buffer in which it arrived
//! into the caller's. The bytes of NVMe/TCP and the records that carry them have nothing to do with each other's bounds.

use std::fmt;
use std::ops::Range;

use aws_lc_rs::aead::Aad;

use crate::alert::Alert;
use crate::schedule::{Direction, Secrets};

/// The bytes that one record carries at most (5.1).
pub const RECORD_LEN_MAX: usize = 1 << 14;
/// Records that carry no data. A peer that sends more has something else in mind than data.
pub const CONTROL_RECORDS_MAX: u32 = 32;
/// Data that earns one more of them: each may ask for new keys, which cost more than data does.
const DATA_FOR_CONTROL_LEN: usize = 1 << 16;

const HEADER_LEN: usize = 5;
const TAG_LEN: usize = 16;
/// What sealing may add to a record (5.2).
const EXPANSION_MAX: usize = 256;
/// The least that a sealed record has: its type and its tag.
const SEALED_LEN_MIN: usize = 1 + TAG_LEN;
/// Messages of a handshake that are not whole yet: a ticket is not longer, and nobody wants one.
const PENDING_LEN_MAX: usize = 64 << 10;

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;
const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;

/// A channel: what it seals the other side opens, and the other way round.
pub struct Records {
    sending: Direction,
    receiving: Direction,
    /// The start of a message after the handshake.
    pending: Vec<u8>,
    control_records: u32,
    /// Data since the last such record was earned.
    data_len: usize,
    /// The other side asked for new keys, and has not got them.
    must_update: bool,
    /// The end was announced.
    closed: bool,
}

/// The finding of [`Records::open`] at the start of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The start of a record: this many bytes are missing, as far as can be seen.
    Incomplete(usize),
    /// A record, which took so many bytes.
    Record {
        /// Bytes of the input that are done with.
        taken: usize,
        /// The content of the record.
        content: Content,
    },
}

/// The kind of content in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// So many bytes of data, at the start of the output.
    Data(usize),
    /// Something for the channel itself, which may have something to answer.
    Control,
    /// The other side sends nothing more.
    Closed,
}

/// Why a channel cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// It was changed on its way, or sealed with another key.
    #[error("a record of TLS was changed on its way, or its key is another")]
    Forged,
    /// It is longer than records are.
    #[error("a record of TLS has {0} bytes, which is too long")]
    TooLong(usize),
    /// It is shorter than records are.
    #[error("a record of TLS has {0} bytes, which is too short")]
    TooShort(usize),
    /// It is of a type that does not occur here.
    #[error("a record of TLS of type {0} does not occur in a channel that has been made")]
    Type(u8),
    /// A message that does not occur after a handshake.
    #[error("a message of TLS of type {0} does not occur after the handshake: there is no second one")]
    Message(u8),
    /// A message that cannot be read.
    #[error("a message of TLS cannot be read")]
    Malformed,
    /// Nothing but messages of TLS.
    #[error("more than {CONTROL_RECORDS_MAX} records of TLS have no data, and little data is between them")]
    NoData,
    /// Something behind the announced end.
    #[error("a record of TLS follows the end of the channel")]
    AfterEnd,
    /// The other side gave the channel up.
    #[error("the other side ended the channel: {0}")]
    Peer(Alert),
}

impl RecordError {
    /// The alert for the other side.
    pub fn alert(self) -> Option<Alert> {
        Some(match self {
            Self::Forged => Alert::BAD_RECORD_MAC,
            Self::TooLong(_) => Alert::RECORD_OVERFLOW,
            Self::TooShort(_) | Self::Malformed => Alert::DECODE_ERROR,
            Self::Type(_) | Self::Message(_) | Self::NoData | Self::AfterEnd => Alert::UNEXPECTED_MESSAGE,
            Self::Peer(_) => return None,
        })
    }
}

impl Records {
    /// A channel with these keys.
    pub fn new(secrets: Secrets) -> Self {
        let Secrets { hash, ours, theirs } = secrets;
        Self {
            sending: Direction::new(hash, ours),
            receiving: Direction::new(hash, theirs),
            pending: Vec::new(),
            control_records: 0,
            data_len: 0,
            must_update: false,
            closed: false,
        }
    }

    /// Appends records to `out`, for the bytes that the writer is given; before them new keys, if the other side asked for them.
    pub fn seal<'a>(&'a mut self, out: &'a mut Vec<u8>) -> RecordWriter<'a> {
        self.answer(out);
        self.writer(out)
    }

    fn writer<'a>(&'a mut self, out: &'a mut Vec<u8>) -> RecordWriter<'a> {
        RecordWriter { start: out.len(), direction: &mut self.sending, out, kind: APPLICATION_DATA, is_open: false }
    }

    /// The bytes that [`open`](Self::open) writes for the first record of `input`, if all of that is there: its content, one
    /// more, and zeroes that hide how long it is.
    #[must_use]
    pub fn opened_len(input: &[u8]) -> Option<usize> {
        let (&[_, _, _, high, low], rest) = input.split_first_chunk::<HEADER_LEN>()?;
        let len = usize::from(u16::from_be_bytes([high, low]));
        if rest.len() < len { None } else { len.checked_sub(TAG_LEN) }
    }

    /// Opens the first record of `input` into `output`, which has room for [`RECORD_LEN_MAX`] bytes and
    /// [`OUTPUT_SPARE`](Self::OUTPUT_SPARE) more, or for [`opened_len`](Self::opened_len).
    ///
    /// # Panics
    /// If `output` is shorter.
    pub fn open(&mut self, input: &[u8], output: &mut [u8]) -> Result<Next, RecordError> {
        let Some((header, rest)) = input.split_first_chunk::<HEADER_LEN>() else {
            return Ok(Next::Incomplete(HEADER_LEN - input.len()));
        };
        let [kind, _, _, high, low] = *header;
        let len = usize::from(u16::from_be_bytes([high, low]));
        if kind != APPLICATION_DATA {
            return Err(RecordError::Type(kind));
        }
        if self.closed {
            return Err(RecordError::AfterEnd);
        }
        if len > RECORD_LEN_MAX + EXPANSION_MAX {
            return Err(RecordError::TooLong(len));
        }
        if len < SEALED_LEN_MIN {
            return Err(RecordError::TooShort(len));
        }
        let Some(sealed) = rest.get(..len) else { return Ok(Next::Incomplete(len - rest.len())) };
        let (text, tag) = sealed.split_at(len - TAG_LEN);
        let output = &mut output[..text.len()];
        let (key, nonce) = self.receiving.next();
        key.open_separate_gather(nonce, Aad::from(header), text, tag, output).map_err(|_| RecordError::Forged)?;
        // Behind the content is its type, and behind that zeroes that hide how long it is.
        let end = output.iter().rposition(|byte| *byte != 0).ok_or(RecordError::Type(0))?;
        if end > RECORD_LEN_MAX {
            return Err(RecordError::TooLong(end));
        }
        let content = match output[end] {
            APPLICATION_DATA if !self.pending.is_empty() => return Err(RecordError::Malformed),
            APPLICATION_DATA => Content::Data(end),
            kind => self.take_control(kind, &output[..end])?,
        };
        if let Content::Data(len @ 1..) = content {
            self.data_len += len;
            let earned = self.data_len / DATA_FOR_CONTROL_LEN;
            self.control_records = self.control_records.saturating_sub(u32::try_from(earned).unwrap_or(u32::MAX));
            self.data_len %= DATA_FOR_CONTROL_LEN;
        } else {
            self.control_records += 1;
            if self.control_records > CONTROL_RECORDS_MAX {
                return Err(RecordError::NoData);
            }
        }
        Ok(Next::Record { taken: HEADER_LEN + len, content })
    }

    /// The room that [`open`](Self::open) needs beyond the data of a record.
    pub const OUTPUT_SPARE: usize = EXPANSION_MAX;

    /// Appends new keys, if the other side asked for them. However often it asked, one answer goes with the next data: else who
    /// asks and reads nothing would have answers pile up.
    fn answer(&mut self, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.must_update) {
            self.update_keys(false, out);
        }
    }

    /// Changes the key of what is sent, and asks the other side to do the same if `both`. Linux's side of a channel cannot,
    /// and ends it.
    pub fn update_keys(&mut self, both: bool, out: &mut Vec<u8>) {
        self.seal_control(HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, u8::from(both)], out);
        self.sending.update();
    }

    /// Appends the last thing that is said: the end in good order, or why the channel is given up.
    pub fn close(&mut self, alert: Alert, out: &mut Vec<u8>) {
        self.seal_control(ALERT, &[alert.level(), alert.0], out);
    }

    /// Records that were sealed and opened with the keys as they are. AES-GCM is sure to keep what it promises up to 2^24.5
    /// of a key (RFC 8446, 5.5).
    pub fn count(&self) -> (u64, u64) {
        (self.sending.records(), self.receiving.records())
    }

    fn seal_control(&mut self, kind: u8, message: &[u8], out: &mut Vec<u8>) {
        let mut writer = self.writer(out);
        writer.kind = kind;
        writer.put(message);
        writer.finish();
    }

    fn take_control(&mut self, kind: u8, bytes: &[u8]) -> Result<Content, RecordError> {
        match (kind, bytes) {
            (ALERT, _) if !self.pending.is_empty() => Err(RecordError::Malformed),
            (ALERT, [_, 0]) => {
                self.closed = true;
                Ok(Content::Closed)
            }
            // A word before the end, which follows.
            (ALERT, [_, 90]) => Ok(Content::Control),
            (ALERT, [_, alert]) => Err(RecordError::Peer(Alert(*alert))),
            (ALERT, _) | (HANDSHAKE, []) => Err(RecordError::Malformed),
            (HANDSHAKE, _) => self.take_messages(bytes).map(|()| Content::Control),
            _ => Err(RecordError::Type(kind)),
        }
    }

    /// Messages after the handshake, which may be cut at any byte.
    fn take_messages(&mut self, bytes: &[u8]) -> Result<(), RecordError> {
        self.pending.extend_from_slice(bytes);
        let mut taken = 0;
        while let Some((&[kind, high, middle, low], rest)) = self.pending[taken..].split_first_chunk::<4>() {
            if !matches!(kind, NEW_SESSION_TICKET | KEY_UPDATE) {
                return Err(RecordError::Message(kind));
            }
            let len = u32::from_be_bytes([0, high, middle, low]) as usize;
            if len > PENDING_LEN_MAX || kind == KEY_UPDATE && len != 1 {
                return Err(RecordError::Malformed);
            }
            let Some(message) = rest.get(..len) else { break };
            if kind == KEY_UPDATE {
                match message {
                    [0] => {}
                    [1] => self.must_update = true,
                    _ => return Err(RecordError::Malformed),
                }
                // The bytes that follow are sealed with the next key, so none of them is in this record.
                if rest.len() > len {
                    return Err(RecordError::Malformed);
                }
                self.receiving.update();
            }
            taken += 4 + len;
        }
        self.pending.drain(..taken);
        if self.pending.is_empty() {
            self.pending = Vec::new();
        }
        Ok(())
    }
}

/// Makes records of bytes as they are put.
pub struct RecordWriter<'a> {
    direction: &'a mut Direction,
    out: &'a mut Vec<u8>,
    /// Where the record begins that is being filled.
    start: usize,
    kind: u8,
    is_open: bool,
}

impl RecordWriter<'_> {
    /// Appends bytes.
    pub fn put(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if !self.has_room()
                && let Some((record, later)) = bytes.split_at_checked(RECORD_LEN_MAX)
            {
                self.seal_from(record);
                bytes = later;
                continue;
            }
            let (now, later) = bytes.split_at(bytes.len().min(self.room()));
            self.out.extend_from_slice(now);
            bytes = later;
        }
    }

    /// Appends `len` bytes: `append` appends each part in turn.
    ///
    /// # Panics
    /// If it appends more or less.
    pub fn put_with(&mut self, len: usize, mut append: impl FnMut(Range<usize>, &mut Vec<u8>)) {
        let mut done = 0;
        while done < len {
            let now = (len - done).min(self.room());
            let before = self.out.len();
            append(done..done + now, self.out);
            assert_eq!(self.out.len(), before + now, "a part is appended whole");
            done += now;
        }
    }

    /// Seals the last record.
    pub fn finish(mut self) {
        self.seal();
    }

    /// Whether a record is being filled that is not full.
    fn has_room(&self) -> bool {
        self.is_open && self.out.len() - self.start < HEADER_LEN + RECORD_LEN_MAX
    }

    /// Bytes that the record has room for, which begins if there is none.
    fn room(&mut self) -> usize {
        if self.has_room() {
            return HEADER_LEN + RECORD_LEN_MAX - (self.out.len() - self.start);
        }
        self.seal();
        (self.start, self.is_open) = (self.out.len(), true);
        self.out.extend_from_slice(&[0; HEADER_LEN]);
        RECORD_LEN_MAX
    }

    /// Appends a record of these bytes, which are sealed from where they are.
    fn seal_from(&mut self, bytes: &[u8]) {
        self.seal();
        self.start = self.out.len();
        self.out.resize(self.start + HEADER_LEN + bytes.len() + 1 + TAG_LEN, 0);
        let (header, sealed) = self.out[self.start..].split_first_chunk_mut::<HEADER_LEN>().expect("it begins with it");
        *header = header_of(sealed.len());
        let (text, kind_and_tag) = sealed.split_at_mut(bytes.len());
        let (key, nonce) = self.direction.next();
        key.seal_out_of_place_scatter(nonce, Aad::from(&*header), bytes, text, &[self.kind], kind_and_tag)
            .expect("a record is shorter than what AES-GCM seals at once");
    }

    fn seal(&mut self) {
        if !std::mem::take(&mut self.is_open) {
            return;
        }
        self.out.push(self.kind);
        let (header, text) = self.out[self.start..].split_first_chunk_mut::<HEADER_LEN>().expect("it begins with it");
        *header = header_of(text.len() + TAG_LEN);
        let (key, nonce) = self.direction.next();
        let tag = key.seal_in_place_separate_tag(nonce, Aad::from(&*header), text);
        let tag = tag.expect("a record is shorter than what AES-GCM seals at once");
        self.out.extend_from_slice(tag.as_ref());
    }
}

/// The header of a record with so many bytes behind it.
fn header_of(sealed_len: usize) -> [u8; HEADER_LEN] {
    let [high, low] = (sealed_len as u16).to_be_bytes();
    [APPLICATION_DATA, 3, 3, high, low]
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Records").field("count", &self.count()).finish_non_exhaustive()
    }
}
