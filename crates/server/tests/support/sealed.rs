//! A plain host's bytes over TLS: blocking, for tests.

#![allow(dead_code, reason = "each test is a crate of its own and uses its part")]

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::TcpStream;

use diskside_nvme::auth::TlsPsk;
use diskside_tls::{Content, Handshake, Next, RECORD_LEN_MAX, Records};

/// A connection over TLS.
pub(crate) struct Sealed {
    pub(crate) stream: TcpStream,
    /// The cipher suite that the server chose (RFC 8446, B.4).
    pub(crate) cipher_suite: u16,
    records: Records,
    /// What came, and what of it was opened and not read.
    sealed: Vec<u8>,
    opened: VecDeque<u8>,
}

impl Sealed {
    /// Makes a channel with this key. None: the server refused it.
    pub(crate) fn make(mut stream: TcpStream, psk: TlsPsk) -> Option<Self> {
        let mut handshake = Handshake::host(psk).unwrap();
        let mut step = handshake.step(&[]).unwrap();
        let (mut bytes, mut first) = ([0; 4096], Vec::new());
        loop {
            stream.write_all(&step.output).ok()?;
            if let Some(done) = step.done {
                let (records, sealed) = (Records::new(done.secrets), done.rest);
                let cipher_suite = chosen(&first);
                return Some(Self { stream, cipher_suite, records, sealed, opened: VecDeque::new() });
            }
            let len = stream.read(&mut bytes).ok().filter(|len| *len > 0)?;
            first.extend_from_slice(&bytes[..len]);
            step = handshake.step(&bytes[..len]).ok()?;
        }
    }
}

/// The cipher suite of ServerHello, which is in the clear: behind the heads of its record and of the message are a version, 32
/// random bytes and a session's name.
fn chosen(first: &[u8]) -> u16 {
    let name_at = 5 + 4 + 2 + 32;
    let suite_at = name_at + 1 + usize::from(first[name_at]);
    u16::from_be_bytes([first[suite_at], first[suite_at + 1]])
}

impl Read for Sealed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut output = vec![0; RECORD_LEN_MAX + Records::OUTPUT_SPARE];
        while self.opened.is_empty() {
            match self.records.open(&self.sealed, &mut output).map_err(io::Error::other)? {
                Next::Record { taken, content } => {
                    self.sealed.drain(..taken);
                    match content {
                        Content::Data(len) => self.opened.extend(&output[..len]),
                        Content::Control => {}
                        Content::Closed => return Ok(0),
                    }
                }
                Next::Incomplete(_) => {
                    let len = self.stream.read(&mut output)?;
                    if len == 0 {
                        return Ok(0);
                    }
                    self.sealed.extend_from_slice(&output[..len]);
                }
            }
        }
        self.opened.read(into)
    }
}

impl Write for Sealed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut sealed = Vec::new();
        let mut writer = self.records.seal(&mut sealed);
        writer.put(bytes);
        writer.finish();
        self.stream.write_all(&sealed)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl Sealed {
    /// Appends a record for each byte.
    pub(crate) fn seal_each(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for byte in bytes.chunks(1) {
            let mut writer = self.records.seal(out);
            writer.put(byte);
            writer.finish();
        }
    }
}
