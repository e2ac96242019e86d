//! The device memory that hosts have touched, counted for all of them together.
//!
//! Each host has a memory of its own, and a name costs a peer nothing: without a bound for all, peers with many names could
//! make the target hold as much as they like. Memory is charged when it is first accessed, because it takes none before, and
//! until the host's last controller is gone. A memory that hosts share is one, as long as its setting says, and not charged.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use diskside_nvme::Status;

use crate::ComputeConfig;
use crate::call::answer::Problem;
use crate::schedule::quota::{Book, Bounds};

/// Memory is charged by pieces of this length, because the kernel may give it in huge pages.
const PIECE_BYTES: usize = 2 << 20;

/// The memory of all hosts.
#[derive(Debug)]
pub(crate) struct DeviceMemory {
    bounds: Bounds,
    book: Mutex<Book>,
}

/// The memory of one host.
#[derive(Debug)]
pub(crate) struct Charge {
    all: Arc<DeviceMemory>,
    host: u64,
    len: usize,
    touched: Mutex<Touched>,
}

#[derive(Debug)]
struct Touched {
    pieces: Vec<bool>,
    bytes: u64,
}

impl DeviceMemory {
    /// Nothing was touched yet.
    pub(crate) fn new(config: &ComputeConfig) -> Arc<Self> {
        let total_max = config.device_memory();
        // A host has all of its own memory while there is much left, and when little is, less than that.
        Arc::new(Self { bounds: Bounds { host_max: total_max, total_max }, book: Mutex::default() })
    }
}

impl Charge {
    /// The memory of a host, with so many bytes.
    pub(crate) fn new(all: &Arc<DeviceMemory>, host: u64, len: usize) -> Self {
        let touched = Touched { pieces: vec![false; len.div_ceil(PIECE_BYTES)], bytes: 0 };
        Self { all: Arc::clone(all), host, len, touched: Mutex::new(touched) }
    }

    /// Charges the parts of these ranges that were not touched before, all or none.
    ///
    /// # Errors
    /// There is no room for them now.
    pub(crate) fn touch(&self, ranges: &[Range<usize>]) -> Result<(), Problem> {
        let mut touched = self.touched.lock().unwrap_or_else(PoisonError::into_inner);
        let mut new: Vec<usize> = Vec::new();
        for range in ranges.iter().filter(|range| !range.is_empty()) {
            let pieces = range.start / PIECE_BYTES..range.end.div_ceil(PIECE_BYTES);
            new.extend(pieces.filter(|piece| !touched.pieces[*piece]));
        }
        if new.is_empty() {
            return Ok(());
        }
        new.sort_unstable();
        new.dedup();
        let bytes = new.iter().map(|piece| PIECE_BYTES.min(self.len - piece * PIECE_BYTES) as u64).sum();
        let mut book = self.all.book.lock().unwrap_or_else(PoisonError::into_inner);
        if !book.take(self.host, bytes, self.all.bounds) {
            let (held, share) = (book.held(self.host), book.share(self.host, self.all.bounds));
            let told = format!(
                "no room for {bytes} bytes of device memory: this host has touched {held} bytes and may have {share} now; \
                 `compute.hosts_memory` bounds the device memory of all hosts together"
            );
            return Err(Problem::new(Status::FUNCTION_BUSY, told));
        }
        drop(book);
        touched.bytes += bytes;
        for piece in new {
            touched.pieces[piece] = true;
        }
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let bytes = self.touched.get_mut().unwrap_or_else(PoisonError::into_inner).bytes;
        self.all.book.lock().unwrap_or_else(PoisonError::into_inner).give_back(self.host, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ComputeSettings;
    use crate::standard::Standard;
    use diskside_volume::Size;
    use std::time::Instant;

    const MIB: usize = 1 << 20;

    fn config(memory: usize) -> ComputeConfig {
        let size = |mib: usize| Some(Size::from_mib(mib as u64));
        ComputeConfig::resolve(ComputeSettings {
            memory: size(memory),
            host_memory: size(64),
            hosts_memory: size(256),
            ..ComputeSettings::default()
        })
    }

    /// Where no hosts are configured every name had 64 MiB for itself, and nothing bounded the names: a peer with a thousand
    /// of them made the target hold 64 GiB.
    #[test]
    fn hosts_with_many_names_hold_no_more_device_memory_than_all_may() {
        let config = config(64);
        let all = DeviceMemory::new(&config);
        let held = || all.book.lock().unwrap().total();
        let write = |standard: &Standard, at: usize| {
            let place = at..at + 4096;
            standard.with(std::slice::from_ref(&place), Instant::now(), |parts| parts[0].fill(1))
        };
        let hosts: Vec<Standard> = (1..40).map(|host| Standard::own(&config, host, &all).unwrap()).collect();
        let mut told = None;
        for (nth, host) in hosts.iter().enumerate() {
            let taken = (0..64 * MIB).step_by(MIB).map(|at| write(host, at));
            let refused: Vec<Problem> = taken.filter_map(Result::err).collect();
            assert_eq!(nth >= 3, !refused.is_empty(), "the first hosts have all of their memory, host {nth}");
            assert!(nth > 20 || refused.len() < 64, "the next ones have some, host {nth}");
            told = refused.into_iter().next().or(told);
        }
        assert!(held() <= 256 << 20, "{}", held());
        let told = told.unwrap();
        assert_eq!(told.status, Status::FUNCTION_BUSY, "it can be sent again");
        assert!(told.record.unwrap().message.starts_with("no room for 2097152 bytes of device memory"));
        // What was touched stays usable, and is charged once.
        let before = held();
        write(&hosts[0], 5 * MIB).unwrap();
        assert_eq!(held(), before);
        drop(hosts);
        assert_eq!(held(), 0);
    }

    #[test]
    fn a_range_is_charged_by_the_pieces_that_it_touches() {
        let config = config(5);
        let all = DeviceMemory::new(&config);
        let charge = Charge::new(&all, 1, 5 * MIB);
        let held = || all.book.lock().unwrap().held(1);
        charge.touch(&[0..0, 8..16, 100..4096]).unwrap();
        assert_eq!(held(), 2 << 20);
        charge.touch(&[2 * MIB - 8..2 * MIB, 4 * MIB..5 * MIB]).unwrap();
        assert_eq!(held(), 3 << 20, "the last piece is shorter");
        charge.touch(&[0..2 * MIB, 2 * MIB..5 * MIB]).unwrap();
        assert_eq!(held(), 5 << 20);
    }

    /// An operator who gives each of a few hosts much gets that: as many hosts may have all of it as `hosts_memory` has shares.
    #[test]
    fn the_bound_fits_the_length_of_a_memory() {
        assert_eq!(config(64).device_memory(), 256 << 20);
        assert_eq!(config(1 << 10).device_memory(), 4 << 30);
        assert_eq!(config(1).device_memory(), 256 << 20);
    }
}
