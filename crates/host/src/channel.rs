//! A secure channel to a server: made on a socket that nobody else uses yet, and between it and the machine from then on.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use diskside_io::buffer::Buffer;
use diskside_nvme::BufferSlice;
use diskside_nvme::auth::{Names, TlsPsk, TlsSecret};
use diskside_tls::{Alert, Content, Done, Handshake, Next, RECORD_LEN_MAX, RecordError, Records, Unavailable};

/// With what channels to a subsystem are made.
#[derive(Debug)]
pub(crate) struct ChannelKey {
    psks: Vec<TlsPsk>,
    /// Which of what the key is for TLS the server took.
    worked: AtomicUsize,
    /// A server that does not take the key is talked to without TLS: one on this machine, where nobody is in between.
    optional: bool,
    /// It did not.
    unwanted: AtomicBool,
    was_wanted: AtomicBool,
    /// It speaks TLS, and this is what it said of the key.
    refusal: Mutex<Option<ChannelError>>,
}

/// Why there is no secure channel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// There is no TLS here.
    #[error("{0}")]
    Unavailable(#[from] Unavailable),
    /// The server speaks something else.
    #[error(
        "the server does not speak TLS, and this host has a key of TLS for it: have its operator give it the key (`diskside \
         key show` prints the line for `diskside key allow`); where it is meant to have none, go without (--key none)"
    )]
    NotTls,
    /// The server does not know the key's identity.
    #[error(
        "the server does not know this host's key of TLS, or the key has ended: `diskside key show` prints the line that its \
         operator must have given to `diskside key allow`, and `diskside key rotate` makes a new one"
    )]
    UnknownKey,
    /// The server closed the connection, as Linux does instead of saying why.
    #[error("the server closed the connection while the secure channel was made; the keys may not fit")]
    Closed,
    /// The server said nothing, or not enough.
    #[error(
        "the server was reached, but did not answer while the secure channel was made: it stands still or is very busy, or what \
         listens there does not speak TLS: check the port"
    )]
    TimedOut,
    /// The keys differ, or something else was not as it should be.
    #[error(
        "the server refused the secure channel ({0}): it keeps another key for this host, or is not the one that is meant"
    )]
    Refused(Alert),
    /// What the server said was refused here.
    #[error("the secure channel cannot be made: {0}")]
    Failed(String),
    /// The network.
    #[error("while the secure channel was made: {0}")]
    Io(#[from] io::Error),
}

impl ChannelKey {
    pub(crate) fn new(names: &Names, secret: &TlsSecret, optional: bool) -> Self {
        Self::of(secret.psks(names), optional)
    }

    /// One that an authentication made.
    pub(crate) fn generated(psk: TlsPsk) -> Self {
        Self::of(vec![psk], false)
    }

    fn of(psks: Vec<TlsPsk>, optional: bool) -> Self {
        Self {
            psks,
            worked: AtomicUsize::new(0),
            optional,
            unwanted: AtomicBool::new(false),
            was_wanted: AtomicBool::new(false),
            refusal: Mutex::new(None),
        }
    }

    /// Where a server that refused the key was then talked to without TLS: its refusal. It says why such a server closes the connection.
    pub(crate) fn take_refusal(&self) -> Option<ChannelError> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Connects, and makes a channel. A server may know the key by one identity alone, and as the tools that it got it by
    /// derived it: all are tried, and the one that did it first the next time.
    pub(crate) fn connect(
        &self,
        address: &SocketAddr,
        timeout: Duration,
    ) -> Result<(TcpStream, Option<Channel>), ConnectError> {
        let psks = &self.psks;
        if self.optional {
            return self.connect_if_wanted(address, timeout, &psks[0]);
        }
        let first = self.worked.load(Ordering::Relaxed);
        let mut failure: Option<ChannelError> = None;
        for index in (first..psks.len()).chain(0..first) {
            match connect(address, &psks[index], timeout) {
                Ok(connected) => {
                    self.worked.store(index, Ordering::Relaxed);
                    let (stream, channel) = connected;
                    return Ok((stream, Some(channel)));
                }
                Err(ConnectError::Channel(error)) if error.may_be_the_keys() => {
                    // The error that says most is reported.
                    if failure.as_ref().is_none_or(|known| error.says() > known.says()) {
                        failure = Some(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Err(ConnectError::Channel(failure.expect("there are identities for any names")))
    }

    fn connect_if_wanted(
        &self,
        address: &SocketAddr,
        timeout: Duration,
        psk: &TlsPsk,
    ) -> Result<(TcpStream, Option<Channel>), ConnectError> {
        if !self.unwanted.load(Ordering::Relaxed) {
            match connect(address, psk, timeout) {
                Ok((stream, channel)) => {
                    self.was_wanted.store(true, Ordering::Relaxed);
                    return Ok((stream, Some(channel)));
                }
                // A server that took it once takes it: what goes wrong then is not that.
                Err(error) if self.was_wanted.load(Ordering::Relaxed) => return Err(error),
                Err(error @ ConnectError::Socket(_)) => return Err(error),
                Err(ConnectError::Channel(error)) => {
                    self.unwanted.store(true, Ordering::Relaxed);
                    if matches!(error, ChannelError::Refused(_) | ChannelError::UnknownKey) {
                        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    }
                }
            }
        }
        let stream = TcpStream::connect_timeout(address, timeout).map_err(ConnectError::Socket)?;
        Ok((stream, None))
    }
}

impl ChannelError {
    /// Whether the server may have taken another identity, or another derivation of the key.
    fn may_be_the_keys(&self) -> bool {
        self.says() > 0
    }

    /// How much it says of the keys.
    fn says(&self) -> u8 {
        match self {
            Self::Refused(_) => 3,
            Self::UnknownKey => 2,
            Self::Closed => 1,
            _ => 0,
        }
    }
}

/// Where connecting failed.
pub(crate) enum ConnectError {
    Socket(io::Error),
    Channel(ChannelError),
}

fn connect(address: &SocketAddr, psk: &TlsPsk, timeout: Duration) -> Result<(TcpStream, Channel), ConnectError> {
    let mut stream = TcpStream::connect_timeout(address, timeout).map_err(ConnectError::Socket)?;
    let channel = shake(&mut stream, psk, Instant::now() + timeout).map_err(ConnectError::Channel)?;
    Ok((stream, channel))
}

fn shake(stream: &mut TcpStream, psk: &TlsPsk, deadline: Instant) -> Result<Channel, ChannelError> {
    // The peer waits for each of these: nothing is gained by holding them back.
    stream.set_nodelay(true)?;
    let done = converse(stream, psk, |stream| {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ChannelError::TimedOut);
        }
        stream.set_write_timeout(Some(left))?;
        Ok(stream.set_read_timeout(Some(left))?)
    })?;
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)?;
    Ok(Channel::new(done))
}

/// The handshake. `before_each` is called before anything is written or read.
fn converse<S: Read + Write>(
    stream: &mut S,
    psk: &TlsPsk,
    before_each: impl Fn(&S) -> Result<(), ChannelError>,
) -> Result<Done, ChannelError> {
    let mut handshake = Handshake::host(psk.clone())?;
    let mut step = handshake.step(&[]).map_err(|error| ChannelError::Failed(error.why))?;
    let mut bytes = [0; 4096];
    let mut is_first = true;
    loop {
        before_each(stream)?;
        // Once: an interrupted read brings us back here.
        stream.write_all(&std::mem::take(&mut step.output)).map_err(failed)?;
        if let Some(done) = step.done {
            return Ok(done);
        }
        let len = match stream.read(&mut bytes) {
            Ok(0) => return Err(ChannelError::Closed),
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(failed(error)),
        };
        if std::mem::take(&mut is_first) && !matches!(bytes[0], 21 | 22) {
            return Err(ChannelError::NotTls);
        }
        step = handshake.step(&bytes[..len]).map_err(|error| {
            // It does not matter whether the server hears why.
            let _ = stream.write_all(&error.output);
            match error.theirs {
                Some(Alert::UNKNOWN_PSK_IDENTITY) => ChannelError::UnknownKey,
                Some(alert) => ChannelError::Refused(alert),
                None => ChannelError::Failed(error.why),
            }
        })?;
    }
}

/// Why nothing could be written or read.
fn failed(error: io::Error) -> ChannelError {
    match error.kind() {
        // A reset may come before the host has said anything.
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => ChannelError::Closed,
        io::ErrorKind::WouldBlock => ChannelError::TimedOut,
        _ => error.into(),
    }
}

/// Takes what a channel opens.
pub(crate) trait Receiver {
    /// Where the next bytes belong, if there is room for so many.
    fn room(&mut self, len: usize) -> Option<Room>;

    /// So many bytes are at the start of the room.
    fn placed(&mut self, room: Room, len: usize);

    /// These bytes came.
    fn take(&mut self, bytes: &[u8]);
}

/// A range of a buffer to open a record into.
pub(crate) struct Room {
    pub(crate) buffer: Buffer,
    pub(crate) slice: BufferSlice,
}

/// Records so long are opened where they belong: to look for the place costs less than to copy so much.
const PLACED_LEN_MIN: usize = 4 << 10;

/// A channel that was made.
#[derive(Debug)]
pub(crate) struct Channel {
    records: Records,
    /// The start of a record.
    incoming: Vec<u8>,
    /// Where records are opened.
    output: Vec<u8>,
    /// Where records are sealed; away while they are sent.
    spare: Vec<u8>,
}

impl Channel {
    fn new(done: Done) -> Self {
        let Done { secrets, rest } = done;
        let output = vec![0; RECORD_LEN_MAX + Records::OUTPUT_SPARE];
        Self { records: Records::new(secrets), incoming: rest, output, spare: Vec::new() }
    }

    /// Opens what came for the receiver. False: the server sends nothing more.
    pub(crate) fn open(&mut self, mut bytes: &[u8], receiver: &mut impl Receiver) -> Result<bool, RecordError> {
        let Self { records, incoming, output, .. } = self;
        loop {
            let is_held = !incoming.is_empty();
            let input: &[u8] = if is_held { &*incoming } else { bytes };
            let mut room =
                Records::opened_len(input).filter(|len| *len >= PLACED_LEN_MIN).and_then(|len| receiver.room(len));
            let found = match &mut room {
                Some(Room { buffer, slice }) => {
                    records.open(input, &mut buffer[slice.offset as usize..(slice.offset + slice.len) as usize])
                }
                None => records.open(input, output),
            };
            let placed_len = if let Ok(Next::Record { content: Content::Data(len), .. }) = found { len } else { 0 };
            let is_placed = room.is_some();
            if let Some(room) = room {
                receiver.placed(room, placed_len);
            }
            match found? {
                Next::Incomplete(missing) => {
                    let (now, later) = bytes.split_at(if is_held { missing.min(bytes.len()) } else { bytes.len() });
                    incoming.extend_from_slice(now);
                    bytes = later;
                    if now.len() < missing || !is_held {
                        return Ok(true);
                    }
                }
                Next::Record { taken, content } => {
                    if is_held {
                        incoming.drain(..taken);
                    } else {
                        bytes = &bytes[taken..];
                    }
                    match content {
                        Content::Data(_) if is_placed => {}
                        Content::Data(len) => receiver.take(&output[..len]),
                        Content::Control => {}
                        Content::Closed => return Ok(false),
                    }
                }
            }
        }
    }

    /// The sealed bytes have left; their memory is for the next.
    pub(crate) fn recycle(&mut self, mut bytes: Vec<u8>) {
        bytes.clear();
        self.spare = bytes;
    }

    /// Bytes for the socket: what `fill` puts, sealed.
    pub(crate) fn seal(&mut self, fill: impl FnOnce(&mut diskside_tls::RecordWriter<'_>)) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.spare);
        let mut writer = self.records.seal(&mut bytes);
        fill(&mut writer);
        writer.finish();
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskside_nvme::auth::Hash;

    /// A server whose every answer is read only after a read that a signal interrupts.
    struct Interrupted {
        server: Handshake,
        answer: Vec<u8>,
        interrupts: bool,
        done: bool,
    }

    impl Write for Interrupted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if !bytes.is_empty() {
                let step = self.server.step(bytes).map_err(|error| io::Error::other(error.why))?;
                self.answer.extend(step.output);
                self.done |= step.done.is_some();
            }
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Read for Interrupted {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.interrupts = !self.interrupts;
            if !self.interrupts {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let len = self.answer.len().min(buffer.len());
            buffer[..len].copy_from_slice(&self.answer[..len]);
            self.answer.drain(..len);
            Ok(len)
        }
    }

    /// When a signal came while the host waited for the server's answer, it sent its first message again, which the server
    /// took for an attack: one connection in some dozens failed on a busy machine.
    #[test]
    fn nothing_is_said_twice_when_a_signal_interrupts_the_wait() {
        let psk = TlsPsk { identity: "NVMe1R01 a b c".into(), hash: Hash::Sha256, key: vec![1; 32].into() };
        let server = Handshake::server(psk.clone()).expect("OpenSSL");
        let mut stream = Interrupted { server, answer: Vec::new(), interrupts: true, done: false };
        converse(&mut stream, &psk, |_| Ok(())).expect("a channel");
        assert!(stream.done, "the server has it too");
    }

    /// A server that is gone by the time the host speaks.
    struct Gone(io::ErrorKind);

    impl Write for Gone {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Read for Gone {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Ok(0)
        }
    }

    /// When the server reset the connection before the host had said anything, the error was that of the system, and no other
    /// identity of the key was tried.
    #[test]
    fn a_server_that_goes_before_anything_is_said_has_closed_the_connection() {
        let psk = TlsPsk { identity: "NVMe1R01 a b c".into(), hash: Hash::Sha256, key: vec![1; 32].into() };
        for kind in [io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe] {
            let error = converse(&mut Gone(kind), &psk, |_| Ok(())).expect_err("it is gone");
            assert!(matches!(error, ChannelError::Closed), "{error}");
        }
        let error = converse(&mut Gone(io::ErrorKind::WouldBlock), &psk, |_| Ok(())).expect_err("it takes nothing");
        assert!(matches!(error, ChannelError::TimedOut), "{error}");
    }
}
