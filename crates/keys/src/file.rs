//! Files with keys in them: read only if nobody else can read them, and made so.

use std::fs::{File, Metadata};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use diskside_nvme::NqnError;
use diskside_nvme::auth::{Secret, SecretError, TlsSecret};
use zeroize::Zeroizing;

/// No file of keys is as long.
const LEN_MAX: u64 = 64 << 10;
/// Reading or writing by anybody but the owner.
const OTHERS: u32 = 0o077;

/// A file of keys that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {trouble}", path.display())]
pub struct KeyFileError {
    /// Which file.
    pub path: PathBuf,
    /// The trouble with it, and what to do.
    pub trouble: Trouble,
}

/// The trouble with a file of keys. None of these repeats any of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Trouble {
    /// It cannot be opened, read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Others can read or change it.
    #[error(
        "its mode is {mode:04o}, so others may have read the key: make a new one, or, if nobody can have, `chmod 600` it"
    )]
    Mode {
        /// Its permissions.
        mode: u32,
    },
    /// Everybody can put another in its place.
    #[error(
        "everybody may replace it, in a directory of mode {mode:04o}: `chmod o-w` the directory, and make a new key"
    )]
    Directory {
        /// The directory's permissions.
        mode: u32,
    },
    /// Somebody else's.
    #[error(
        "it belongs to user {owner}, who could change the key; `chown` it to the user who reads it, or have a server that \
         root starts become that user (user = \"NAME\", --user NAME)"
    )]
    Owner {
        /// Whose it is.
        owner: u32,
    },
    /// Not a file.
    #[error("it is not a regular file")]
    NotAFile,
    /// It is too long.
    #[error("it is too long to hold keys")]
    TooLong,
    /// It holds no text.
    #[error("it holds no text")]
    NotText,
    /// There is a file already.
    #[error("it exists, and anybody who uses the key in it would be locked out; remove it first if nobody does")]
    Exists,
    /// It holds more than one key, or none.
    #[error(
        "it holds {0} keys, and not one; a key is a line DHHC-1:hh:BASE64:, or NVMeTLSkey-1:hh:BASE64: of TLS, and lines \
         with # say nothing"
    )]
    Count(usize),
    /// Its content is not a key.
    #[error("line {line}: {error}")]
    Secret {
        /// Where.
        line: usize,
        /// Why.
        error: SecretError,
    },
    /// Its content is not a name.
    #[error("line {line}: {error}")]
    Nqn {
        /// Where.
        line: usize,
        /// Why.
        error: NqnError,
    },
    /// A line that nobody understands.
    #[error("line {line}: a line is `nqn NAME`, `key KEY`, `server-key KEY` or `tls-key KEY`, each once")]
    Line {
        /// Where.
        line: usize,
    },
    /// Its content is not an invitation.
    #[error("line {line}: {what}")]
    Invitation {
        /// Where.
        line: usize,
        /// Why.
        what: String,
    },
    /// There is not one invitation in it.
    #[error("it does not hold one invitation, as `diskside invite` prints it")]
    NoInvitation,
    /// It holds more than one key to sign with, or none.
    #[error("it holds {0} signing keys, and not one; `diskside sign --new-key` makes such a file")]
    SigningKeys(usize),
    /// Its content is not a signing key.
    #[error("line {line}: a signing key is a line that `diskside sign --new-key` wrote; keys of hosts sign nothing")]
    SigningKey {
        /// Where.
        line: usize,
    },
    /// It lacks something.
    #[error("it has no line `{0} …`; `diskside key new` makes such a file")]
    Missing(&'static str),
}

/// The one key of a file, which belongs to the user of the process, to root, or to `user`: the one that a process of root's is
/// going to be.
pub fn read_secret(path: &Path, user: Option<u32>) -> Result<Secret, KeyFileError> {
    read_one(path, user, Secret::parse)
}

/// The one key of TLS of a file, as [`read_secret`].
pub fn read_tls_secret(path: &Path, user: Option<u32>) -> Result<TlsSecret, KeyFileError> {
    read_one(path, user, TlsSecret::parse)
}

fn read_one<T>(
    path: &Path,
    user: Option<u32>,
    parse: impl Fn(&str) -> Result<T, SecretError>,
) -> Result<T, KeyFileError> {
    let text = read(path, user)?;
    let mut found = Vec::new();
    for (line, text) in lines(&text) {
        let secret = parse(text).map_err(|error| at(path, Trouble::Secret { line, error }))?;
        found.push(secret);
    }
    match found.pop() {
        Some(secret) if found.is_empty() => Ok(secret),
        Some(_) => Err(at(path, Trouble::Count(found.len() + 1))),
        None => Err(at(path, Trouble::Count(0))),
    }
}

/// Makes a file for a key, which only its owner can read. There must be none.
pub fn write_secret(path: &Path, secret: &Secret) -> Result<(), KeyFileError> {
    write(path, &Zeroizing::new(format!("{}\n", *secret.to_text())))
}

/// The same of a key of TLS.
pub fn write_tls_secret(path: &Path, secret: &TlsSecret) -> Result<(), KeyFileError> {
    write(path, &Zeroizing::new(format!("{}\n", *secret.to_text())))
}

/// The text of a file that is its reader's alone.
pub(crate) fn read(path: &Path, user: Option<u32>) -> Result<Zeroizing<String>, KeyFileError> {
    let trouble = |trouble| at(path, trouble);
    // Opening a FIFO for reading would wait for a writer.
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(|e| trouble(e.into()))?;
    // The metadata of the open file, not of what may be in its place a moment later.
    let metadata = file.metadata().map_err(|e| trouble(e.into()))?;
    if !metadata.is_file() {
        return Err(trouble(Trouble::NotAFile));
    }
    let mode = metadata.mode() & 0o7777;
    if mode & OTHERS != 0 && !is_credential(path, &metadata) {
        return Err(trouble(Trouble::Mode { mode }));
    }
    // Where the name is a link, the file can be replaced in the directory to which it leads, too.
    let real = path.canonicalize().map_err(|e| trouble(e.into()))?;
    for name in [path, &real] {
        let directory = name.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mode = std::fs::metadata(directory).map_err(|e| trouble(e.into()))?.mode() & 0o7777;
        // In a sticky one, such as /tmp, nobody replaces what is another's.
        if mode & 0o1002 == 0o002 {
            return Err(trouble(Trouble::Directory { mode }));
        }
    }
    let owner = metadata.uid();
    if owner != 0 && owner != rustix::process::geteuid().as_raw() && Some(owner) != user {
        return Err(trouble(Trouble::Owner { owner }));
    }
    if metadata.len() > LEN_MAX {
        return Err(trouble(Trouble::TooLong));
    }
    // Reserved at once: what a longer one was copied from would not be wiped.
    let mut bytes = Zeroizing::new(Vec::with_capacity(LEN_MAX as usize + 1));
    file.take(LEN_MAX).read_to_end(&mut bytes).map_err(|e| trouble(e.into()))?;
    let text = std::str::from_utf8(&bytes).map_err(|_| trouble(Trouble::NotText))?;
    Ok(Zeroizing::new(text.to_owned()))
}

/// Whether the service manager passes it: such a file is root's, and lets one user in by an access list, whose mask shows as the
/// rights of the group, which is root's, too.
fn is_credential(path: &Path, metadata: &Metadata) -> bool {
    let directory = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
    let is_passed = directory.is_some_and(|directory| directory.is_absolute() && path.parent() == Some(&directory));
    is_passed && metadata.uid() == 0 && metadata.gid() == 0 && metadata.mode() & 0o037 == 0
}

/// Makes a file that is its owner's alone, and the directories above it.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), KeyFileError> {
    let trouble = |error: io::Error| match error.kind() {
        io::ErrorKind::AlreadyExists => at(path, Trouble::Exists),
        _ => at(path, error.into()),
    };
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Above a relative one is the directory of the process, which has no name here and is there.
    let is_missing = |directory: &&Path| !directory.as_os_str().is_empty() && !directory.exists();
    let missing: Vec<&Path> = directory.ancestors().take_while(is_missing).collect();
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(trouble)?;
    // From the top: each directory then has an owner for what is in it.
    missing.iter().rev().try_for_each(|made| give_to_owner_above(made, &File::open(made)?)).map_err(trouble)?;
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(path).map_err(trouble)?;
    give_to_owner_above(path, &file).map_err(trouble)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    written.map_err(|error| {
        // Half a key would be in the way of a whole one.
        let _ = std::fs::remove_file(path);
        trouble(error)
    })
}

/// A file that root makes belongs to the owner of its directory: a server that runs as that user reads its keys.
fn give_to_owner_above(made: &Path, open: &File) -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let directory = made.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let above = std::fs::metadata(directory)?;
    if above.uid() == open.metadata()?.uid() {
        return Ok(());
    }
    // Not by its name, which that user could have given to another file by now.
    std::os::unix::fs::fchown(open, Some(above.uid()), Some(above.gid()))
}

/// Makes a file like [`write()`], in the place of one that may be there: that one, or the new one, is there at any time. A link
/// is followed, and stays. Anyone who could read the old one cannot read the new one, which is its owner's alone before a byte is
/// in it.
pub(crate) fn replace(path: &Path, text: &str) -> Result<(), KeyFileError> {
    let trouble = |error: io::Error| at(path, error.into());
    let real = match path.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !path.is_symlink() => return write(path, text),
        real => real.map_err(trouble)?,
    };
    if !real.is_file() {
        return Err(at(path, Trouble::NotAFile));
    }
    let mut number = [0; 8];
    crate::random(&mut number);
    let new = real.with_file_name(format!(".diskside-{:016x}", u64::from_le_bytes(number)));
    write(&new, text)?;
    std::fs::rename(&new, &real).map_err(|error| {
        let _ = std::fs::remove_file(&new);
        trouble(error)
    })
}

/// Lines that say something, with their numbers.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let numbered = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    numbered.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

pub(crate) fn at(path: &Path, trouble: Trouble) -> KeyFileError {
    KeyFileError { path: path.to_owned(), trouble }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// Others could read the new key where they could read the old one, and a link became a file.
    #[test]
    fn a_replaced_key_is_its_owners_alone_wherever_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("key"), "old").unwrap();
        std::fs::set_permissions(at("key"), std::fs::Permissions::from_mode(0o644)).unwrap();
        std::fs::write(at("link.new"), "mine").unwrap();
        std::os::unix::fs::symlink("key", at("link")).unwrap();
        replace(&at("link"), "new").unwrap();
        assert!(at("link").is_symlink());
        assert_eq!(*read(&at("key"), None).unwrap(), "new", "it would be refused if others could read it");
        assert_eq!(std::fs::read(at("link.new")).unwrap(), b"mine");
        replace(&at("none"), "first").unwrap();
        assert_eq!(*read(&at("none"), None).unwrap(), "first");
        std::os::unix::fs::symlink("nowhere", at("dangling")).unwrap();
        replace(&at("dangling"), "new").unwrap_err();
        assert!(matches!(replace(dir.path(), "new").unwrap_err().trouble, Trouble::NotAFile));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 5, "nothing is left");
    }

    #[test]
    fn a_key_comes_back_from_its_file_which_is_its_owners_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b/key");
        let secret = crate::new_secret();
        write_secret(&path, &secret).unwrap();
        assert!(read_secret(&path, None).unwrap().is(&secret));
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(std::fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
        assert!(matches!(write_secret(&path, &secret).unwrap_err().trouble, Trouble::Exists));
    }

    /// `diskside invite` gives a key to who has its directory, which is the account of the server. A server that root started, to
    /// become that account, refused it, and so did `check-config`.
    #[test]
    fn a_key_is_its_readers_or_that_of_who_the_reader_becomes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        write_secret(&path, &crate::new_secret()).unwrap();
        let own = rustix::process::geteuid().as_raw();
        read_secret(&path, Some(own + 1)).unwrap();
        if own == 0 {
            std::os::unix::fs::chown(&path, Some(54_321), None).unwrap();
            read_secret(&path, Some(54_321)).unwrap();
            for user in [None, Some(54_322)] {
                assert!(matches!(read_secret(&path, user).unwrap_err().trouble, Trouble::Owner { owner: 54_321 }));
            }
        }
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        write_secret(&path, &crate::new_secret()).unwrap();
        for mode in [0o640, 0o604, 0o620, 0o602, 0o611, 0o644] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let error = read_secret(&path, None).unwrap_err().to_string();
            assert!(error.contains(&format!("{mode:04o}")) && error.contains("chmod 600"), "{error}");
        }
        for mode in [0o600, 0o400] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            read_secret(&path, None).unwrap();
        }
    }

    #[test]
    fn what_holds_no_key_is_refused_and_not_repeated() {
        let directory = tempfile::tempdir().unwrap();
        let secret = crate::new_secret().to_text();
        let changed = secret.replace("DHHC-1:01:", "DHHC-1:01:x");
        for (name, text, want) in [
            ("none", "# nothing\n\n", "0 keys"),
            ("two", &format!("{}\n{}\n", *secret, *secret), "2 keys"),
            ("changed", &format!("# a comment\n{changed}"), "line 2:"),
            ("long", &"#".repeat(70 << 10), "too long"),
        ] {
            let path = directory.path().join(name);
            write(&path, text).unwrap();
            let error = read_secret(&path, None).unwrap_err().to_string();
            assert!(error.contains(want) && error.contains(name), "{error}");
            assert!(!error.contains(&secret[12..30]), "{error}");
        }
        let error = read_secret(directory.path(), None).unwrap_err();
        assert!(matches!(error.trouble, Trouble::NotAFile), "{error}");
        let error = read_secret(&directory.path().join("nowhere"), None).unwrap_err();
        assert!(error.to_string().contains("nowhere: No such file"), "{error}");
    }

    /// A key could be read by its owner alone, and be replaced by everybody who could write its directory, or, later, the one to
    /// which a link in its place led.
    #[test]
    fn a_key_in_a_directory_that_everybody_may_write_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let (within, path) = (directory.path().join("keys"), directory.path().join("keys/key"));
        std::fs::create_dir(&within).unwrap();
        write_secret(&path, &Secret::new(&[7; 32], None).unwrap()).unwrap();
        for (mode, is_taken) in [(0o777, false), (0o703, false), (0o1777, true), (0o755, true)] {
            std::fs::set_permissions(&within, std::fs::Permissions::from_mode(mode)).unwrap();
            let read = read_secret(&path, None);
            assert_eq!(read.is_ok(), is_taken, "{mode:o}: {read:?}");
            let link = directory.path().join(format!("link-{mode:o}"));
            std::os::unix::fs::symlink("keys/key", &link).unwrap();
            assert_eq!(read_secret(&link, None).is_ok(), is_taken, "a link into {mode:o}");
        }
    }
}
