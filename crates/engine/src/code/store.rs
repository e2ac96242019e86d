//! Compiled code on disk, so that a restart is warm.
//!
//! A private directory with a file for each program, named by a hash of everything that the code depends on: the text
//! that was compiled, the processor, the compiler. The file contains all of that as well, and it is compared: two
//! programs with one hash gain nothing. A file that others could have written, or that is not whole, is ignored. Files
//! get their names when they are whole.

use diskside_outfile::write_private;
use diskside_sbpf_llvm::Compiler;
use rustix::fs::{Mode, OFlags};
use std::fs::{DirBuilder, File, Metadata};
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use twox_hash::XxHash3_64;

/// First bytes of a file, with the version of its form.
const MAGIC: &[u8; 16] = b"diskside code 1\n";
/// Magic, three lengths and the checksum.
const HEADER_LEN: usize = 16 + 4 * 8;
/// Longest file.
const FILE_LEN_MAX: u64 = 128 << 20;
/// When all files together are longer, those that were used least recently go.
const STORE_LEN_MAX: u64 = 256 << 20;

/// A directory of compiled code.
#[derive(Debug)]
pub(super) struct Store {
    dir: PathBuf,
    /// Processor and compiler.
    machine: String,
}

impl Store {
    /// Opens a directory, made if need be.
    ///
    /// # Errors
    /// Why it is not to be used.
    pub(super) fn open(dir: &Path, compiler: &Compiler) -> Result<Self, String> {
        let failed = |e: std::io::Error| format!("{}: {e}", dir.display());
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
        let metadata = std::fs::symlink_metadata(dir).map_err(failed)?;
        if !metadata.is_dir() || !is_ours_alone(&metadata) {
            return Err(format!(
                "{}: it has to be a directory that is yours and that nobody else may use",
                dir.display()
            ));
        }
        Ok(Self { dir: dir.to_owned(), machine: machine(compiler).map_err(failed)? })
    }

    /// The object that was compiled from this text.
    pub(super) fn load(&self, text: &str) -> Option<Vec<u8>> {
        let path = self.path(text);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let mut file = File::from(rustix::fs::open(&path, flags, Mode::empty()).ok()?);
        let metadata = file.metadata().ok()?;
        if !metadata.is_file() || !is_ours_alone(&metadata) || metadata.len() > FILE_LEN_MAX {
            tracing::warn!("{}: not used: it is not a file of yours alone", path.display());
            return None;
        }
        let mut bytes = Vec::with_capacity(metadata.len() as usize);
        file.read_to_end(&mut bytes).ok()?;
        let object = self.parse(&bytes, text);
        match object {
            // Used now: it goes last.
            Some(_) => drop(file.set_modified(std::time::SystemTime::now())),
            None => tracing::warn!("{}: not used: it is damaged, or of another program", path.display()),
        }
        object.map(<[u8]>::to_vec)
    }

    /// Keeps an object.
    ///
    /// # Errors
    /// What the system said.
    pub(super) fn save(&self, text: &str, object: &[u8]) -> std::io::Result<()> {
        write_private(&self.path(text), &self.bytes(text, object))?;
        self.shrink()
    }

    fn path(&self, text: &str) -> PathBuf {
        let hash = XxHash3_64::oneshot_with_seed(XxHash3_64::oneshot(self.machine.as_bytes()), text.as_bytes());
        self.dir.join(format!("{hash:016x}"))
    }

    fn bytes(&self, text: &str, object: &[u8]) -> Vec<u8> {
        let parts = [self.machine.as_bytes(), text.as_bytes(), object];
        let body = parts.concat();
        let mut bytes = Vec::with_capacity(HEADER_LEN + body.len());
        bytes.extend_from_slice(MAGIC);
        parts.iter().for_each(|p| bytes.extend_from_slice(&(p.len() as u64).to_le_bytes()));
        bytes.extend_from_slice(&XxHash3_64::oneshot(&body).to_le_bytes());
        bytes.extend_from_slice(&body);
        bytes
    }

    /// The object in a file, when the file is whole and of this text.
    fn parse<'b>(&self, bytes: &'b [u8], text: &str) -> Option<&'b [u8]> {
        let (header, body) = bytes.split_at_checked(HEADER_LEN)?;
        let (magic, numbers) = header.split_at(MAGIC.len());
        let number = |i: usize| u64::from_le_bytes(numbers[i * 8..i * 8 + 8].try_into().expect("eight bytes"));
        if magic != MAGIC || XxHash3_64::oneshot(body) != number(3) {
            return None;
        }
        let mut rest = body;
        let mut part = |i: usize| {
            let (part, after) = rest.split_at_checked(usize::try_from(number(i)).ok()?)?;
            rest = after;
            Some(part)
        };
        let (machine, program, object) = (part(0)?, part(1)?, part(2)?);
        let same = machine == self.machine.as_bytes() && program == text.as_bytes() && rest.is_empty();
        same.then_some(object)
    }

    /// Removes the files that were used least recently while all are too long together.
    fn shrink(&self) -> std::io::Result<()> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&self.dir)? {
            let entry = entry?;
            // Another process may have removed it.
            if let Ok(metadata) = entry.metadata() {
                files.push((metadata.modified()?, metadata.len(), entry.path()));
            }
        }
        files.sort();
        let mut total: u64 = files.iter().map(|f| f.1).sum();
        for (_, len, path) in files {
            if total <= STORE_LEN_MAX {
                break;
            }
            let _ = std::fs::remove_file(path);
            total -= len;
        }
        Ok(())
    }
}

/// Whether only we may use it.
fn is_ours_alone(metadata: &Metadata) -> bool {
    metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & 0o077 == 0
}

/// The inputs of code besides its text: the processor's features, and the compiler.
fn machine(compiler: &Compiler) -> std::io::Result<String> {
    let info = std::fs::read_to_string("/proc/cpuinfo")?;
    let line = |name: &str| info.lines().find(|l| l.starts_with(name)).unwrap_or_default();
    let program = std::fs::metadata(compiler.program())?;
    Ok(format!(
        "{}\n{}\n{compiler:?} {} {}.{}\n",
        line("model name"),
        line("flags"),
        program.len(),
        program.mtime(),
        program.mtime_nsec()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn store(dir: &Path) -> Result<Store, String> {
        Store::open(dir, &Compiler::at("/bin/sh"))
    }

    #[test]
    fn what_was_saved_is_found_by_its_text_only() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = store(&dir.path().join("code")).expect("a private one is made");
        assert_eq!(store.load("text"), None);
        store.save("text", b"object").expect("it is saved");
        assert_eq!(store.load("text").as_deref(), Some(&b"object"[..]));
        assert_eq!(store.load("other text"), None);
        let other = Store { machine: "another processor".into(), dir: store.dir.clone() };
        assert_eq!(other.load("text"), None);
        // One name for two programs: as after a collision of hashes.
        std::fs::rename(store.path("text"), store.path("other text")).expect("it is ours");
        assert_eq!(store.load("other text"), None);
    }

    #[test]
    fn a_damaged_file_is_none() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = store(&dir.path().join("code")).expect("a private one is made");
        let whole = store.bytes("text", b"object");
        assert_eq!(store.parse(&whole, "text"), Some(&b"object"[..]));
        for len in 0..whole.len() {
            assert_eq!(store.parse(&whole[..len], "text"), None, "cut at {len}");
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            assert_eq!(store.parse(&damaged, "text"), None, "changed at {at}");
        }
    }

    #[test]
    fn what_others_may_write_is_not_used() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("code");
        let ours = store(&path).expect("a private one is made");
        ours.save("text", b"object").expect("it is saved");
        let set = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode));
        set(&ours.path("text"), 0o620).expect("it is ours");
        assert_eq!(ours.load("text"), None);
        // Compiled again, it is kept as a file of ours alone.
        ours.save("text", b"object").expect("it is saved");
        assert_eq!(ours.load("text").as_deref(), Some(&b"object"[..]));
        set(&path, 0o770).expect("it is ours");
        assert!(store(&path).expect_err("others may write there").contains("nobody else may use"));
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path().join("code"), &link).expect("a link");
        set(&path, 0o700).expect("it is ours");
        assert!(store(&link).is_err(), "a link may lead elsewhere later");
    }
}
