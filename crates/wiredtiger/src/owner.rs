//! Which process has a database: the one whose token is in the file `WiredTiger.diskside`.

use crate::failure::Failure;
use crate::space::Space;
use diskside::wire::file::FileFlags;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The file that is there as long as a process has the database.
const OWNER: &str = "WiredTiger.diskside";
/// The most bytes of it that are read.
const TOKEN_LEN_MAX: u32 = 256;

/// This process's part of it.
#[derive(Debug, Default)]
pub(crate) struct Owner {
    held: Mutex<Option<Held>>,
}

#[derive(Clone, Debug)]
struct Held {
    token: String,
    /// The version of the file that was found to have the token.
    version: u64,
}

impl Owner {
    /// Takes the database. The file gets its name when the token is in it: there is none without an owner.
    pub(crate) fn take(&self, space: &Space) -> Result<(), Failure> {
        let mut held = self.lock();
        let token = new_token();
        let prepared = format!("{OWNER}.{}", &token[..32]);
        space.write_file(&prepared, token.as_bytes())?;
        let renamed = space.rename_once(&prepared, OWNER, space.options.takeover);
        // Sent again after a loss, it finds its own work done.
        let is_ours = renamed.is_ok() || content(space)?.is_some_and(|found| found == token.as_bytes());
        if !is_ours {
            let _is_left = space.unlink(&prepared);
            let failure = renamed.expect_err("it is not ours");
            if failure.errno != libc::EEXIST {
                return Err(failure);
            }
            let why = format!(
                "a process has the database open, or ended without closing it, because {OWNER} is there; if no process has it, open \
                 it with takeover=true"
            );
            return Err(Failure::new(libc::EBUSY, &space.name(), &why));
        }
        *held = Some(Held { token, version: version(space)?.unwrap_or(0) });
        Ok(())
    }

    /// Gives it up, unless it is another one's by now.
    pub(crate) fn leave(&self, space: &Space) -> Result<(), Failure> {
        let Some(held) = self.lock().take() else { return Ok(()) };
        match content(space)? {
            Some(found) if found == held.token.as_bytes() => space.unlink(OWNER),
            _ => Ok(()),
        }
    }

    /// Whether another process has taken the database since. One round trip.
    pub(crate) fn is_lost(&self, space: &Space) -> Result<bool, Failure> {
        let Some(held) = self.lock().clone() else { return Ok(false) };
        let version = version(space)?;
        if version == Some(held.version) {
            return Ok(false);
        }
        if content(space)?.is_none_or(|found| found != held.token.as_bytes()) {
            return Ok(true);
        }
        if let (Some(held), Some(version)) = (self.lock().as_mut(), version) {
            held.version = version;
        }
        Ok(false)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Another one each time: 128 random bits, and the process for people.
fn new_token() -> String {
    let random = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x} process {}\n", random(), random(), std::process::id())
}

/// The version of the owner's file; `None`: there is none.
fn version(space: &Space) -> Result<Option<u64>, Failure> {
    Ok(space.info_of(OWNER)?.map(|info| info.version))
}

/// The token in the owner's file.
fn content(space: &Space) -> Result<Option<Vec<u8>>, Failure> {
    let read = space.ask(OWNER, |files, path| {
        let file = files.open(path, FileFlags::READ)?;
        Ok(diskside::io::request::block_on(file.read_once(0, TOKEN_LEN_MAX))?.result)
    });
    match read {
        Ok(bytes) => Ok(Some(bytes.to_vec())),
        Err(failure) if failure.errno == libc::ENOENT => Ok(None),
        Err(failure) => Err(failure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ() {
        let tokens: std::collections::HashSet<String> = (0..1000).map(|_| new_token()).collect();
        assert!(tokens.len() == 1000 && tokens.iter().all(|token| token.len() > 32));
    }
}
