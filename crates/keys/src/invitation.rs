//! An invitation, for somebody who is to join: a text that holds where the server is, who the host is there, and its key.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use crc_fast::CrcAlgorithm::Crc32IsoHdlc;
use diskside_nvme::Nqn;
use std::path::Path;
use zeroize::Zeroizing;

use crate::file::{KeyFileError, Trouble, at, lines, read, write};
use crate::host::{HostKey, Introduction};

/// The start of every invitation; the number is that of its form.
const START: &str = "diskside-invitation-1:";
/// No invitation is as long.
pub const INVITATION_LEN_MAX: usize = 4096;

/// An invitation. Anyone who has its text can be this host.
///
/// The text is one word: a start, and in base64 three lines (the server's address, its subsystem, and the line that
/// introduces the host) with their CRC-32, so that one that was cut off is noticed.
#[derive(Clone, Debug)]
pub struct Invitation {
    /// Where the server is, as the host names it: `HOST:PORT`.
    pub server: String,
    /// The server's subsystem.
    pub subsystem: Nqn,
    /// The identity of the host there, with its keys.
    pub host: Introduction,
}

impl Invitation {
    /// The text.
    pub fn to_text(&self) -> Zeroizing<String> {
        let line = self.host.to_line();
        let mut bytes = Zeroizing::new(format!("{}\n{}\n{}", self.server, self.subsystem, *line).into_bytes());
        let check = checksum(&bytes);
        bytes.extend_from_slice(&check);
        let mut text = Zeroizing::new(String::with_capacity(START.len() + 2 * bytes.len()));
        text.push_str(START);
        BASE64_URL_SAFE_NO_PAD.encode_string(&*bytes, &mut text);
        text
    }

    /// Reads the text. No error repeats any of it.
    pub fn parse(text: &str) -> Result<Self, String> {
        const CUT: &str = "this invitation is damaged: copy all of it, which is one line";
        let text = text.trim();
        let Some(encoded) = text.strip_prefix(START) else {
            let newer = text.starts_with("diskside-invitation-");
            return Err(if newer {
                "this invitation is of another version of diskside".into()
            } else {
                format!("this is not what `diskside invite` prints, which begins with {START}")
            });
        };
        if text.len() > INVITATION_LEN_MAX {
            return Err(CUT.into());
        }
        let bytes = Zeroizing::new(BASE64_URL_SAFE_NO_PAD.decode(encoded).map_err(|_| CUT)?);
        let (bytes, check) = bytes.split_last_chunk::<4>().ok_or(CUT)?;
        if *check != checksum(bytes) {
            return Err(CUT.into());
        }
        let mut lines = std::str::from_utf8(bytes).map_err(|_| CUT)?.split('\n');
        let mut next = || lines.next().ok_or(CUT);
        let (server, subsystem, host) = (next()?.to_owned(), next()?, next()?);
        let subsystem =
            Nqn::new(subsystem).map_err(|error| format!("the server's name in this invitation: {error}"))?;
        // It becomes the name of a file.
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-:[]%".contains(c);
        if server.is_empty() || server.starts_with('.') || !server.chars().all(is_plain) || lines.next().is_some() {
            return Err(CUT.into());
        }
        Ok(Self { server, subsystem, host: Introduction::parse(host)? })
    }

    /// Reads it from a file, which nobody else can read.
    pub fn read(path: &Path) -> Result<Self, KeyFileError> {
        let text = read(path, None)?;
        let mut found = lines(&text);
        match (found.next(), found.next()) {
            (Some((line, text)), None) => {
                Self::parse(text).map_err(|what| at(path, Trouble::Invitation { line, what }))
            }
            _ => Err(at(path, Trouble::NoInvitation)),
        }
    }

    /// Writes it to a new file, which nobody else can read.
    pub fn write(&self, path: &Path) -> Result<(), KeyFileError> {
        write(path, &Zeroizing::new(format!("{}\n", *self.to_text())))
    }

    /// The host's keys, as its file has them.
    pub fn key(&self) -> HostKey {
        let Introduction { nqn, key, server_key, tls_key } = self.host.clone();
        HostKey { nqn, key, server_key, tls_key }
    }
}

fn checksum(bytes: &[u8]) -> [u8; 4] {
    (crc_fast::checksum(Crc32IsoHdlc, bytes) as u32).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    fn invitation(kind: Kind) -> Invitation {
        Invitation {
            server: "server.example:4420".into(),
            subsystem: Nqn::new("nqn.2026-11.io.diskside:server").unwrap(),
            host: HostKey::new(None, kind).introduction(),
        }
    }

    #[test]
    fn an_invitation_comes_back_from_its_text_and_from_its_file() {
        let directory = tempfile::tempdir().unwrap();
        for kind in [Kind::Host, Kind::Mutual, Kind::Tls] {
            let invitation = invitation(kind);
            let path = directory.path().join(format!("{kind:?}"));
            invitation.write(&path).unwrap();
            let pasted = Invitation::parse(&format!(" {}\n", *invitation.to_text())).unwrap();
            for found in [pasted, Invitation::read(&path).unwrap()] {
                assert_eq!((&found.server, &found.subsystem), (&invitation.server, &invitation.subsystem));
                assert_eq!(found.host.to_line(), invitation.host.to_line());
            }
        }
    }

    /// Each cut and each changed letter is noticed, and no error says what a key is.
    #[test]
    fn a_damaged_text_is_refused_and_not_repeated() {
        let text = invitation(Kind::Tls).to_text();
        let refused = |text: &str| {
            let error = Invitation::parse(text).unwrap_err();
            assert!(error.len() < 200, "{error}");
            error
        };
        for len in 0..text.len() {
            refused(&text[..len]);
        }
        for at in 0..text.len() {
            let mut bytes = text.as_bytes().to_vec();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            refused(std::str::from_utf8(&bytes).unwrap());
        }
        assert!(refused("diskside-invitation-2:AAAA").contains("another version"));
        assert!(refused("nqn.2014-08.org.nvmexpress:uuid:1").contains("diskside invite"));
    }

    #[test]
    fn a_server_that_would_be_another_file_is_refused() {
        for server in ["", "../key", "a/b:1", ".hidden:1", "a b:1", "a\0:1"] {
            let text = Invitation { server: server.into(), ..invitation(Kind::Tls) }.to_text();
            Invitation::parse(&text).unwrap_err();
        }
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("invitation");
        invitation(Kind::Tls).write(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let error = Invitation::read(&path).unwrap_err();
        assert!(matches!(error.trouble, Trouble::Mode { mode: 0o644 }), "{error}");
        let empty = directory.path().join("empty");
        write(&empty, "# nothing\n").unwrap();
        assert!(matches!(Invitation::read(&empty).unwrap_err().trouble, Trouble::NoInvitation));
    }
}
