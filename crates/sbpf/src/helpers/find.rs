//! `ds_find`: substring search.

use super::access::{STEP_BYTES, cost};
use crate::machine::{Fault, Machine};
use memchr::memmem::Finder;

/// Longest needle whose preparation is kept for the next call.
const CACHED_NEEDLE_BYTES_MAX: usize = 256;

/// The last needle, prepared: programs look for one needle in many rows. Boxed, as each call takes it and gives it back.
#[derive(Clone, Debug, Default)]
pub(crate) struct FinderCache(Option<Box<Finder<'static>>>);

impl FinderCache {
    /// The finder for this needle, kept if it is short.
    fn finder(&mut self, needle: &[u8]) -> Option<&Finder<'static>> {
        if needle.len() > CACHED_NEEDLE_BYTES_MAX {
            return None;
        }
        if self.0.as_ref().is_none_or(|f| f.needle() != needle) {
            self.0 = Some(Box::new(Finder::new(needle).into_owned()));
        }
        self.0.as_deref()
    }
}

/// `ds_find(hay, hay_len, needle, needle_len)`. Costs one edge for each 64 bytes looked at.
pub(super) fn ds_find(machine: &mut Machine, [hay, hay_len, needle, needle_len, _]: [u64; 5]) -> Result<u64, Fault> {
    const ABSENT: u64 = -1i64 as u64;
    machine.check_read(hay, hay_len)?;
    machine.check_read(needle, needle_len)?;
    machine.charge(1)?;
    if needle_len > hay_len {
        return Ok(ABSENT);
    }
    let mut cache = std::mem::take(&mut machine.finder);
    let found = search(machine, &mut cache, (hay, hay_len), (needle, needle_len));
    machine.finder = cache;
    Ok(found?.unwrap_or(ABSENT))
}

fn search(
    machine: &mut Machine,
    cache: &mut FinderCache,
    (hay, hay_len): (u64, u64),
    (needle, needle_len): (u64, u64),
) -> Result<Option<u64>, Fault> {
    let overlap = needle_len.saturating_sub(1);
    let mut at = 0;
    // Windows overlap by all but one byte of the needle, so that no match falls between two.
    while at + needle_len <= hay_len {
        let window = (STEP_BYTES + overlap).min(hay_len - at);
        let (hay_bytes, needle_bytes) = machine.bytes_pair((hay + at, window), (needle, needle_len))?;
        let found = match needle_bytes {
            // Looking for line ends between two searches must not push the other needle out.
            &[byte] => memchr::memchr(byte, hay_bytes),
            _ => match cache.finder(needle_bytes) {
                Some(finder) => finder.find(hay_bytes),
                None => Finder::new(needle_bytes).find(hay_bytes),
            },
        };
        if let Some(offset) = found {
            machine.charge(cost(offset as u64 + needle_len))?;
            return Ok(Some(at + offset as u64));
        }
        machine.charge(cost(window))?;
        at += window - overlap;
    }
    Ok(None)
}
