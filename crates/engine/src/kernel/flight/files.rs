//! The file operations of a kernel's helpers: at once, or begun and waited for.

use super::super::operation::Operation;
use super::{ACCESS_LEN_MAX, At, Flight, PAUSE, errno};
use diskside_io::bytefile::Direction;
use diskside_sbpf::files::{Ended, FileFault, Files};
use std::sync::Arc;
use std::time::{Duration, Instant};

impl Files for Flight {
    fn read(&mut self, file: u32, offset: u64, into: &mut [u8]) -> Result<u64, FileFault> {
        let file = self.check(file, Direction::Read)?;
        let mut filled = 0;
        while filled < into.len() {
            let len = (into.len() - filled).min(ACCESS_LEN_MAX as usize);
            let at = At { file, offset: offset + filled as u64, len: len as u64 };
            let buffer = self.buffer(len);
            let (moved, bytes) = self.at_once(at, Direction::Read, buffer)?;
            let moved = moved as usize;
            if let Some(bytes) = bytes {
                into[filled..filled + moved].copy_from_slice(&bytes[..moved]);
                self.keep_spare(bytes);
            }
            filled += moved;
            if moved < len {
                break;
            }
        }
        Ok(filled as u64)
    }

    fn write(&mut self, file: u32, offset: u64, bytes: &[u8]) -> Result<u64, FileFault> {
        let file = self.check(file, Direction::Write)?;
        let mut written = 0;
        while written < bytes.len() {
            let len = (bytes.len() - written).min(ACCESS_LEN_MAX as usize);
            let at = At { file, offset: offset + written as u64, len: len as u64 };
            let mut buffer = self.buffer(len);
            buffer.copy_from_slice(&bytes[written..written + len]);
            let (moved, bytes) = self.at_once(at, Direction::Write, buffer)?;
            written += moved as usize;
            if let Some(bytes) = bytes {
                self.keep_spare(bytes);
            }
        }
        Ok(written as u64)
    }

    fn len_bytes(&mut self, file: u32) -> Result<u64, FileFault> {
        let file = self.check(file, Direction::Read)?;
        self.files[file].len_bytes().map_err(errno)
    }

    fn sync(&mut self, file: u32) -> Result<(), FileFault> {
        let file = Arc::clone(&self.files[self.check(file, Direction::Write)?]);
        let (began, mut synced) = (Instant::now(), Ok(()));
        let mut sync = || synced = file.sync();
        match &self.turns {
            Some(turns) => turns.away(&mut sync),
            None => sync(),
        }
        self.counts.waited += began.elapsed();
        synced.map_err(errno)
    }

    fn begin_read(&mut self, file: u32, offset: u64, len: u64, address: u64, cookie: u64) -> Result<(), FileFault> {
        let file = self.check(file, Direction::Read)?;
        self.check_depth()?;
        let buffer = self.buffer(len as usize);
        let operation = Operation::new(At { file, offset, len }, Direction::Read, buffer, Some(cookie), address);
        self.begin(operation);
        self.submit();
        Ok(())
    }

    fn begin_write(&mut self, file: u32, offset: u64, bytes: &[u8], cookie: u64) -> Result<(), FileFault> {
        let file = self.check(file, Direction::Write)?;
        self.check_depth()?;
        let mut buffer = self.buffer(bytes.len());
        buffer.copy_from_slice(bytes);
        let at = At { file, offset, len: bytes.len() as u64 };
        let operation = Operation::new(at, Direction::Write, buffer, Some(cookie), 0);
        self.begin(operation);
        self.submit();
        Ok(())
    }

    fn wait(&mut self, cookie: Option<u64>, take: &mut dyn FnMut(Ended<'_>)) -> Result<bool, FileFault> {
        let Some(cookie) = cookie else {
            if self.operations.values().all(|it| it.cookie.is_none()) {
                return Ok(false);
            }
            self.drive(|flight| flight.oldest_ended().is_some())?;
            return Ok(self.take_ended(take));
        };
        let found = self.operations.iter().find(|(_, it)| it.cookie == Some(cookie)).map(|(&id, _)| id);
        let Some(id) = found else { return Ok(false) };
        self.drive(|flight| flight.operations.get(&id).is_none_or(Operation::is_over))?;
        self.hand_over(id, take);
        Ok(true)
    }

    /// A program that computes for long keeps nobody from the bytes that it has read or written.
    fn pause(&mut self) {
        let now = Instant::now();
        if now - self.looked < PAUSE || self.operations.values().all(Operation::is_over) {
            return;
        }
        self.looked = now;
        self.poll(now);
        if self.ring.is_some() {
            self.wait_and_take(Duration::ZERO);
        }
    }

    fn take_ended(&mut self, take: &mut dyn FnMut(Ended<'_>)) -> bool {
        let Some(id) = self.oldest_ended() else { return false };
        self.hand_over(id, take);
        true
    }
}
